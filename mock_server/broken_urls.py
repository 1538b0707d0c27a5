"""Violations of the sentences about files behind pre-signed URLs."""

from __future__ import annotations

import os
from collections.abc import Callable

from .violations import Answer, Asked, misreads, spoils

_DATA = "/data/.*/country=.*"


def _of_range(text: str | None, change: Callable[[bytes], bytes]) -> Callable[[Answer], None]:
    """Return a change of the bytes of a range, or of a whole file."""

    def spoil(answer: Answer) -> None:
        if answer.asked.headers.get("range") == text:
            answer.body = change(answer.body)

    return spoil


spoils("urls.whole-file", _DATA)(_of_range(None, lambda body: body[:-1]))
spoils("urls.same-bytes", _DATA)(_of_range(None, lambda body: body[:24] + os.urandom(16) + body[40:]))
spoils("urls.parquet", _DATA, statuses=(206,))(_of_range("bytes=0-3", lambda body: b"ORC1"))
spoils("urls.range", _DATA, statuses=(206,))(_of_range("bytes=4-19", lambda body: body[::-1]))
spoils("urls.range-from-the-end", _DATA, statuses=(206,))(_of_range("bytes=-8", lambda body: body[::-1]))


@spoils("urls.content-range", _DATA, statuses=(206,))
def _no_content_range(answer: Answer) -> None:
    if answer.asked.headers["range"] == "bytes=4-19":
        del answer.headers["content-range"]


@spoils("urls.head", _DATA, "HEAD")
def _no_length(answer: Answer) -> None:
    answer.headers["content-length"] = "0"


@spoils("urls.if-match", _DATA, statuses=(206,))
def _condition_that_never_holds(answer: Answer) -> None:
    if "if-match" in answer.asked.headers:
        answer.status = 412


@misreads("urls.if-match-fails", _DATA)
def _conditions_are_ignored(asked: Asked) -> None:
    asked.headers.pop("if-match", None)


@spoils("urls.expiration", "/tables/orders/query", "POST")
def _expired(answer: Answer) -> None:
    if answer.format == "delta" and not answer.asked.document:
        lines = answer.lines
        for line in lines[2:]:
            line.get("file", {})["expirationTimestamp"] = 1_600_000_000_000
        answer.lines = lines
