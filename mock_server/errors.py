"""The error answers of the server: an HTTP status, an ``errorCode`` and one sentence (protocol, "REST APIs")."""

from __future__ import annotations

from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    ProtocolError,
    UnsupportedFeatureError,
    UsageError,
)

RESOURCE_DOES_NOT_EXIST = "RESOURCE_DOES_NOT_EXIST"
INVALID_PARAMETER_VALUE = "INVALID_PARAMETER_VALUE"
MALFORMED_REQUEST = "MALFORMED_REQUEST"
UNSUPPORTED_OPERATION = "UNSUPPORTED_OPERATION"
UNAUTHENTICATED = "UNAUTHENTICATED"
INTERNAL_ERROR = "INTERNAL_ERROR"


class ConfigError(Exception):
    """A configuration, folder or option that the server cannot start with; the message is one clear sentence."""


class ApiError(Exception):
    """A request that is answered with an error.

    Parameters
    ----------
    status:
        HTTP status code.
    code:
        The protocol's ``errorCode``.
    message:
        What was wrong with the request, for a person.
    headers:
        Further response headers, such as ``Retry-After``.
    """

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}


def invalid(message: str) -> ApiError:
    """Return the 400 of a parameter whose value cannot be used."""
    return ApiError(400, INVALID_PARAMETER_VALUE, message)


def malformed(message: str) -> ApiError:
    """Return the 400 of a request that cannot be parsed."""
    return ApiError(400, MALFORMED_REQUEST, message)


def unsupported(message: str) -> ApiError:
    """Return the 400 of something this server or this response format does not offer."""
    return ApiError(400, UNSUPPORTED_OPERATION, message)


def not_found(message: str) -> ApiError:
    """Return the 404 of a share, schema, table or query that is not there."""
    return ApiError(404, RESOURCE_DOES_NOT_EXIST, message)


def data_lost(message: str) -> ApiError:
    """Return the 400 of a version or file of the table's log that no longer exists.

    The reference server answers this with 400, not 404: the table is there, its data is not.
    """
    return ApiError(400, RESOURCE_DOES_NOT_EXIST, message)


def from_table_error(error: DeltaSharingError) -> ApiError:
    """Return the answer for an error raised while a table's log was read."""
    if isinstance(error, UnsupportedFeatureError):
        return unsupported(str(error))
    if isinstance(error, UsageError):
        return invalid(str(error))
    if isinstance(error, (DataError, ProtocolError)):
        return data_lost(str(error))
    return ApiError(500, INTERNAL_ERROR, str(error))
