"""The error responses of the server: an HTTP status, an ``errorCode`` and one sentence (protocol, "REST APIs")."""

from __future__ import annotations

import re

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
NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
INTERNAL_ERROR = "INTERNAL_ERROR"
_SHOWN_CHARACTERS = 100
_ADVICE = re.compile(
    r"(?:Ask|Check|Choose|Give|Install|Pass|Query|Read|Remove|Retry|Set|Try|Update|Upgrade|Use)\b"
).match


class ConfigError(Exception):
    """The server cannot start with this configuration, folder or option; the message is one sentence."""


class ApiError(Exception):
    """The request gets an error response.

    ``status`` is the HTTP status code, ``code`` the protocol's ``errorCode``, ``message`` a description of the
    problem, and ``headers`` are additional response headers, such as ``Retry-After``.
    """

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}


def invalid(message: str) -> ApiError:
    """Return the error (400) for a parameter with an invalid value."""
    return ApiError(400, INVALID_PARAMETER_VALUE, message)


def malformed(message: str) -> ApiError:
    """Return the error (400) for a request that cannot be parsed."""
    return ApiError(400, MALFORMED_REQUEST, message)


def unsupported(message: str) -> ApiError:
    """Return the error (400) for something that this server or the response format does not support."""
    return ApiError(400, UNSUPPORTED_OPERATION, message)


def not_found(message: str) -> ApiError:
    """Return the error (404) for a share, schema, table or query that does not exist."""
    return ApiError(404, RESOURCE_DOES_NOT_EXIST, message)


def no_such_api(message: str, status: int) -> ApiError:
    """Return the error (404, 405 or 501) for an API that this server does not have."""
    codes = {404: RESOURCE_DOES_NOT_EXIST, 405: UNSUPPORTED_OPERATION}
    return ApiError(status, codes.get(status, NOT_IMPLEMENTED), message)


def data_lost(message: str) -> ApiError:
    """Return the error (400) for a version or file of the table's log that no longer exists.

    The status is 400 and not 404, as on the reference server, because the table exists and only its data does not.
    """
    return ApiError(400, RESOURCE_DOES_NOT_EXIST, message)


def too_large(limit: int) -> ApiError:
    """Return the error (413) for a request body of more than ``limit`` bytes."""
    return ApiError(413, MALFORMED_REQUEST, f"The request body must not be larger than {limit} bytes.")


def shown(value: object) -> str:
    """Quote a part of a request for a message, shortened and without control characters."""
    text = str(value)[: _SHOWN_CHARACTERS + 1]
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return f"'{text}'" if len(text) <= _SHOWN_CHARACTERS else f"'{text[:_SHOWN_CHARACTERS]}...'"


def from_table_error(error: DeltaSharingError) -> ApiError:
    """Return the response for an error while reading a table's log.

    Advice for callers of the library is omitted, because a client of this server does not read the log itself.
    """
    about = f" '{error.table}'" if error.table else ""
    if isinstance(error, UnsupportedFeatureError):
        return unsupported(f"The table{about} needs '{error.feature}', which this server does not support.")
    fact = _without_advice(str(error))
    if isinstance(error, UsageError):
        return invalid(fact)
    if isinstance(error, (DataError, ProtocolError)):
        return data_lost(fact)
    return ApiError(500, INTERNAL_ERROR, fact)


def _without_advice(message: str) -> str:
    sentences = re.split(r"(?<=[.?])\s+(?=[A-Z])", message)
    return " ".join([sentences[0], *(sentence for sentence in sentences[1:] if not _ADVICE(sentence))])
