"""Checks of the files behind pre-signed URLs: their bytes, ranges, conditions and expiration."""

from __future__ import annotations

import dataclasses
import email.utils
import time
from typing import Any

from delta_sharing_client.checks.check import Failed, Level, NotOffered, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.shared_tables import DELTA, PARQUET, SharedTable, plain, readable

_FILE = "Delta Sharing Protocol, File"
_RFC = "RFC 9110"
_MOST_BYTES = 32 * 1024 * 1024
_MAGIC = b"PAR1"


@dataclasses.dataclass(frozen=True)
class _File:
    """The smallest file of a table."""

    url: str
    id: str
    size: int
    expires: int | None
    answer: Answer


def _smallest(server: Server, *, fresh: bool = False) -> _File:
    try:
        table, headers = readable(server), DELTA
    except NotTestable:
        table, headers = plain(server), PARQUET
    return _smallest_of(table, table.query(headers, fresh=fresh))


def _smallest_of(table: SharedTable, answer: Answer) -> _File:
    def described(file: dict[str, Any]) -> _File:
        action = file.get("deltaSingleAction", {}).get("add", {})
        url, size = file.get("url") or action["path"], file.get("size") or action["size"]
        return _File(url, file["id"], size, file.get("expirationTimestamp"), answer)

    try:
        files = [described(line["file"]) for line in answer.require().lines() if "file" in line]
    except (KeyError, TypeError, AttributeError):
        files = []  # the checks of forms say more
    if not files:
        raise NotTestable(f"The table {table} would need a file with a URL, an id and a size.")
    return min(files, key=lambda file: (file.size, file.id))


def _whole(server: Server, file: _File) -> Answer:
    if file.size > _MOST_BYTES:
        raise NotTestable(f"The share would need a file of at most {_MOST_BYTES} bytes.")
    return server.found(("bytes", file.url), lambda: server.fetch(file.url).require())


def _range(server: Server, file: _File, text: str) -> Answer:
    """Return the response to a request for a range of a file. A store may ignore ranges (RFC 9110, 14.2)."""
    answer = server.fetch(file.url, Range=f"bytes={text}").require(200, 206)
    if answer.status == 200:
        raise NotOffered("The store ignores ranges.")
    return answer


@check(
    "urls.whole-file", Level.URLS, "The file is read from its URL without credentials, and has the stated size.", _FILE
)
def _whole_file(server: Server) -> None:
    file = _smallest(server)
    answer = _whole(server, file)
    if len(answer.body) != file.size:
        raise Failed(f"Expected {file.size} bytes, as the server states, found {len(answer.body)}.", answer)


@check("urls.parquet", Level.URLS, "The file is in Parquet format.", "Delta Sharing Protocol, Format")
def _parquet(server: Server) -> None:
    file = _smallest(server)
    for start, stop in ((0, 4), (file.size - 4, file.size)):
        answer = server.fetch(file.url, Range=f"bytes={start}-{stop - 1}").require(200, 206)
        found = answer.body if answer.status == 206 else answer.body[start:stop]
        if found != _MAGIC:
            raise Failed(f"Expected 'PAR1' in bytes {start} to {stop}, found {found[:4]!r}.", answer)


@check("urls.same-bytes", Level.URLS, "The URLs of a file in two responses both work, and have the same bytes.", _FILE)
def _same_bytes(server: Server) -> None:
    file, again = _smallest(server), _smallest(server, fresh=True)
    if file.id == again.id and _whole(server, file).body != server.fetch(again.url).require().body:
        raise Failed("Expected the same bytes behind both URLs of a file, found others.")


@check("urls.expiration", Level.URLS, "The expirationTimestamp of a URL is in the future, by the server's time.", _FILE)
def _expiration(server: Server) -> None:
    file = _smallest(server)
    if file.expires is None:
        raise NotTestable("The files would need an expirationTimestamp, which is optional.")
    date = email.utils.parsedate_tz(file.answer.headers.get("Date", ""))
    now = time.time() if date is None else email.utils.mktime_tz(date)
    if file.expires <= now * 1000:
        raise Failed("Expected an expirationTimestamp after the server's own time, found an earlier one.", file.answer)


@check("urls.range", Level.URLS, "A request for a range returns the bytes of this range.", f"{_RFC}, 14.2")
def _bytes_of_a_range(server: Server) -> None:
    file = _smallest(server)
    answer, whole = _range(server, file, "4-19"), _whole(server, file).body
    if answer.body != whole[4:20]:
        raise Failed("Expected the bytes 4 to 19 of the file, found others.", answer)


@check("urls.content-range", Level.URLS, "Content-Range names the range and the size of the file.", f"{_RFC}, 14.4")
def _content_range(server: Server) -> None:
    file = _smallest(server)
    answer = _range(server, file, "4-19")
    found = answer.headers.get("Content-Range", "")
    if found not in (f"bytes 4-19/{file.size}", "bytes 4-19/*"):
        raise Failed(f"Expected Content-Range 'bytes 4-19/{file.size}', found '{found}'.", answer)


@check("urls.range-from-the-end", Level.URLS, "A request for the last bytes returns the last bytes.", f"{_RFC}, 14.1.2")
def _range_from_the_end(server: Server) -> None:
    file = _smallest(server)
    answer, counted = _range(server, file, "-8"), _range(server, file, f"{file.size - 8}-{file.size - 1}")
    if answer.body != counted.body:
        raise Failed("Expected the last 8 bytes of the file, found others.", answer)


@check("urls.head", Level.URLS, "HEAD returns the size of the file, if URLs allow it.", f"{_RFC}, 9.3.2")
def _head(server: Server) -> None:
    file = _smallest(server)
    answer = server.fetch(file.url, "HEAD")
    if answer.status >= 400:
        raise NotOffered(f"HEAD has status {answer.status}.")
    found = answer.require().headers.get("Content-Length", str(file.size))
    if found != str(file.size):
        raise Failed(f"Expected Content-Length {file.size}, found {found}.", answer)


def _tag(server: Server) -> tuple[_File, str]:
    """Return a file with its strong entity tag."""
    file = _smallest(server)
    tag = server.fetch(file.url, Range="bytes=0-3").require(200, 206).headers.get("ETag", "W/")
    if tag.startswith("W/"):
        raise NotTestable("The store would need strong ETags, which are optional.")
    return file, tag


@check(
    "urls.if-match", Level.URLS, "A request with If-Match and the ETag of the file returns its bytes.",
    f"{_RFC}, 13.1.1",
)  # fmt: skip
def _if_match(server: Server) -> None:
    file, tag = _tag(server)
    server.fetch(file.url, Range="bytes=0-3", If_Match=tag).require(200, 206)


@check(
    "urls.if-match-fails", Level.URLS, "A request with If-Match and another ETag is a 412.", f"{_RFC}, 13.1.1"
)  # fmt: skip
def _if_match_fails(server: Server) -> None:
    file, _ = _tag(server)
    server.fetch(file.url, Range="bytes=0-3", If_Match='"another-version"').require(412)
