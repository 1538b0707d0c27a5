"""Error answers of the server as exceptions (protocol: 4xx and 5xx answers carry ``errorCode`` and ``message``)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

import msgspec

from delta_sharing_client.errors import AuthError, DeltaSharingError, NotFoundError, RequestError
from delta_sharing_client.protocol.messages import ErrorAnswer
from delta_sharing_client.redact import scrub

_NOT_FOUND_CODE = "RESOURCE_DOES_NOT_EXIST"
_MAX_CODE = 100
_MAX_SHOWN = 500
_MAX_KEPT = 16_384
# What Databricks ends its messages with, and its support asks for.
_TRACE = re.compile(r"\[Trace Id: [^\]]{1,200}\]")

_decoder = msgspec.json.Decoder(ErrorAnswer)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What a server said when it refused; ``secrets`` of ours that it repeats are masked before."""

    status: int | None
    code: str | None = None
    message: str = ""

    @classmethod
    def read(cls, status: int, body: bytes, secrets: Iterable[str] = ()) -> Refusal:
        """Read the body of an answer with an error ``status``: JSON whatever its content type, else text."""
        try:
            answer = _decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            answer = ErrorAnswer()
        message = answer.message or ""
        if answer.code is None and answer.message is None:
            message = body.decode("utf-8", "replace")
        code = None if answer.code is None else scrub(answer.code, secrets)[:_MAX_CODE]
        return cls(status=status, code=code, message=scrub(message.strip(), secrets))

    def error(self, doing: str, *, table: str | None, auth_hint: str = "") -> DeltaSharingError:
        """Return the exception; ``doing`` says what was asked ("Listing the shares"), ``auth_hint`` what to do about
        refused credentials."""
        facts = ", ".join(str(fact) for fact in (self.status, self.code) if fact is not None)
        failed = f"{doing} failed ({facts})" if facts else f"{doing} failed"
        shown = _shortened(" ".join(self.message.split()))
        text = f"{failed}: {shown}" if shown else failed
        text = text if text.endswith((".", "!", "?")) else text + "."
        kind: type[AuthError | RequestError] = RequestError
        if self.status == 401:
            kind, text = AuthError, f"{text} The server refused the credentials. {auth_hint}".strip()
        elif self.status == 403:
            kind = AuthError
            text += " The credentials are known but not allowed to do this; ask the data provider."
        elif self.status == 404 or (self.status == 400 and self.code == _NOT_FOUND_CODE):
            kind = NotFoundError
        kept = self.message[:_MAX_KEPT] or None
        return kind(text, status=self.status, error_code=self.code, server_message=kept, table=table)


def _shortened(message: str) -> str:
    if len(message) <= _MAX_SHOWN:
        return message
    traces = [found for found in _TRACE.findall(message) if found not in message[:_MAX_SHOWN]]
    return " ".join([f"{message[:_MAX_SHOWN]} ...", *traces[-1:]])
