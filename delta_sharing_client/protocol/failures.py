"""Error answers of the server as exceptions (protocol: 4xx and 5xx answers carry ``errorCode`` and ``message``)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from delta_sharing_client.errors import AuthError, DeltaSharingError, NotFoundError, RequestError
from delta_sharing_client.protocol.messages import ErrorAnswer
from delta_sharing_client.redact import scrub

_NOT_FOUND_CODE = "RESOURCE_DOES_NOT_EXIST"
_MAX_SHOWN = 500

_decoder = msgspec.json.Decoder(ErrorAnswer)


def request_error(
    status: int,
    body: bytes,
    doing: str,
    *,
    table: str | None = None,
    secrets: Iterable[str] = (),
    auth_hint: str = "",
) -> DeltaSharingError:
    """Return the exception for an answer with an error ``status``.

    ``body`` is read as JSON whatever its content type, and shown as text, shortened, where it is none. ``doing`` says
    what was asked ("Listing the shares"). ``secrets`` are masked should the server repeat them.
    """
    code, message = _parse(body)
    code = None if code is None else scrub(code, secrets)[:_MAX_SHOWN]
    return error_for(status, code, scrub(message, secrets), doing, table=table, auth_hint=auth_hint)


def error_for(
    status: int | None, code: str | None, message: str, doing: str, *, table: str | None, auth_hint: str = ""
) -> DeltaSharingError:
    """Return the exception for a status, error code and message that the server stated."""
    shown = " ".join(message.split())
    shown = shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + " ..."
    facts = ", ".join(str(fact) for fact in (status, code) if fact is not None)
    failed = f"{doing} failed ({facts})" if facts else f"{doing} failed"
    text = f"{failed}: {shown}" if shown else failed
    text = text if text.endswith((".", "!", "?")) else text + "."
    if status == 401:
        return AuthError(
            f"{text} The server refused the credentials. {auth_hint}".strip(),
            status=status,
            error_code=code,
            table=table,
        )
    if status == 403:
        return AuthError(
            f"{text} The credentials are known but not allowed to do this; ask the data provider.",
            status=status,
            error_code=code,
            table=table,
        )
    if status == 404 or (status == 400 and code == _NOT_FOUND_CODE):
        return NotFoundError(text, status=status, error_code=code, table=table)
    return RequestError(text, status=status, error_code=code, table=table)


def _parse(body: bytes) -> tuple[str | None, str]:
    try:
        answer = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, body.decode("utf-8", "replace").strip()
    if answer.error_code is None and answer.message is None:
        return None, body.decode("utf-8", "replace").strip()
    return answer.error_code or None, (answer.message or "").strip()
