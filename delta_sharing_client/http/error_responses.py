"""What the error responses of servers, gateways and identity providers mean: they become exceptions (protocol: 4xx and
5xx responses have ``errorCode`` and ``message``).
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterable

import msgspec

from delta_sharing_client.errors import AuthError, DeltaSharingError, NotFoundError, RequestError
from delta_sharing_client.redact import scrub

_NOT_FOUND_CODE = "RESOURCE_DOES_NOT_EXIST"
_MAX_CODE = 100
_MAX_SHOWN = 500
_MAX_KEPT = 16_384
# Databricks ends its messages with this id; its support asks for the id.
_TRACE = re.compile(r"\[Trace Id: [^\]]{1,200}\]")
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>|<h1[^>]*>(.*?)</h1>", re.IGNORECASE | re.DOTALL)
_HTML = re.compile(r"\s*<(?:!doctype\s+html|html|head|body|h1)\b", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_INSTEAD = "arrived instead of JSON, perhaps from a proxy or a login page in front of the server"
# The names that servers, gateways and identity providers use for the code and message of an error; the protocol's come
# first.
_CODES = ("errorCode", "error_code", "code", "error", "status")
_MESSAGES = (
    *("message", "errorMessage", "error_message", "errorSummary", "error_description", "detail", "details"),
    *("description", "Message", "faultstring", "msg", "title", "reason", "value", "text"),
)
_INNER = ("error", "errors", "fault", "errorCauses")
_MAX_DEPTH = 4


def error_of(body: bytes) -> tuple[str | None, str | None]:
    """Return the code and message in the JSON of an error response; each may be ``None``.

    The protocol has ``errorCode`` and ``message``, Databricks ``error_code``, OAuth ``error`` and ``error_description``
    (RFC 6749, 5.2), Okta ``errorSummary``, and RFC 9457 ``title`` and ``detail``. Some servers nest them in an
    ``error`` or a list of ``errors``: Iceberg catalogs have ``message`` and ``type`` there, and OData has the message
    in an object with its language. If the JSON value is empty, so is the message.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, None
    return error_in(value) if value else (None, "")


def error_in(value: object, depth: int = _MAX_DEPTH) -> tuple[str | None, str | None]:
    """Like ``error_of``, for decoded JSON."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, str):
        return None, value
    if not isinstance(value, dict) or depth == 0:
        return None, None
    # At the top level, ``type`` is a URI (RFC 9457) and not a code.
    names = _CODES if depth == _MAX_DEPTH else (*_CODES, "type")
    codes = [value[name] for name in names if isinstance(value.get(name), (str, int)) and value[name]]
    # A numeric code often just repeats the status.
    code = next((str(one) for kind in (str, int) for one in codes if isinstance(one, kind)), None)
    said = [value[name] for name in _MESSAGES if isinstance(value.get(name), str)]
    message = next((one for one in said if one), said[0] if said else None)
    for name in (*_INNER, *_MESSAGES):
        if not message and isinstance(value.get(name), (dict, list)):
            inner_code, message = error_in(value[name], depth - 1)
            code = inner_code or code
    return code, message


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A server's error response; secrets in it are masked."""

    status: int | None
    code: str | None = None
    message: str = ""

    @classmethod
    def read(cls, status: int, body: bytes, secrets: Iterable[str] = (), challenge: str | None = None) -> Refusal:
        """Read the body of an error response, as JSON whatever its content type, or else as text.

        For an HTML page, the message contains only its title. The header ``WWW-Authenticate`` (``challenge``) is used
        if the body has no message. ``secrets`` are masked.
        """
        code, message = error_of(body)
        if code is None and message is None:
            page = html_page(body, secrets)
            message = body.decode("utf-8", "replace") if page is None else f"{page} {_INSTEAD}"
        if challenge and not message:
            message = f"the server sent the header WWW-Authenticate: {' '.join(challenge.split())}"
        code = None if code is None else scrub(code, secrets)[:_MAX_CODE]
        return cls(status=status, code=code, message=scrub((message or "").strip(), secrets))

    def error(self, doing: str, *, table: str | None, auth_hint: str = "") -> DeltaSharingError:
        """Return the exception. ``doing`` describes the request ("Listing the shares"); ``auth_hint`` is advice about
        refused credentials."""
        code = None if self.code == str(self.status) else self.code
        facts = ", ".join(str(fact) for fact in (self.status, code) if fact is not None)
        failed = f"{doing} failed ({facts})" if facts else f"{doing} failed"
        shown = _shortened(" ".join(self.message.split()))
        text = f"{failed}: {shown}" if shown else failed
        text = text if text.endswith((".", "!", "?")) else text + "."
        kind: type[AuthError | RequestError] = RequestError
        if self.status == 401:
            kind, text = AuthError, f"{text} The server refused the credentials. {auth_hint}".strip()
        elif self.status == 403:
            kind = AuthError
            text += " These credentials do not allow this request; ask the data provider for access."
        elif self.status == 404 or (self.status == 400 and self.code == _NOT_FOUND_CODE):
            kind = NotFoundError
        kept = self.message[:_MAX_KEPT] or None
        return kind(text, status=self.status, error_code=self.code, server_message=kept, table=table)


def html_page(body: bytes, secrets: Iterable[str] = ()) -> str | None:
    """Return a description of an HTML page, with its title, in which ``secrets`` are masked; ``None`` for any other
    body."""
    text = body.decode("utf-8", "replace")
    if not _HTML.match(text):
        return None
    match = _TITLE.search(text)
    title = " ".join(html.unescape(_TAG.sub(" ", match[1] or match[2] or "")).split()) if match else ""
    # Masked before it is cut, because a partial secret would not be recognized.
    title = scrub(title, secrets)[:_MAX_CODE]
    return f"an HTML page with the title '{title}'" if title else "an HTML page without a title"


def _shortened(message: str) -> str:
    if len(message) <= _MAX_SHOWN:
        return message
    traces = [trace for trace in _TRACE.findall(message) if trace not in message[:_MAX_SHOWN]]
    return " ".join([f"{message[:_MAX_SHOWN]} ...", *traces[-1:]])
