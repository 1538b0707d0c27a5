"""Checks of ranges of versions: the change data feed, and queries with a starting version, as streams use them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
from collections.abc import Callable
from typing import Any

from delta_sharing_client.checks import forms
from delta_sharing_client.checks.asset_checks import NO_SUCH_NAME
from delta_sharing_client.checks.check import Failed, Level, NotOffered, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.shared_tables import (
    CAPABILITIES,
    DELTA,
    PARQUET,
    SharedTable,
    footer_of,
    next_page,
    pages_of,
    records_of,
    require_lines,
    table_with,
)

_SPEC = "Delta Sharing Protocol"
_FEED = f"{_SPEC}, Read Change Data Feed from a Table"
_QUERY = f"{_SPEC}, Read Data from a Table"
# How many versions before the latest one a range begins.
_SPANS = (6, 1)
_KINDS = ("add", "cdf", "remove")


@dataclasses.dataclass(frozen=True)
class Changed:
    """A line of a changed file: its wrapper, the kind of action (``cdc`` in delta format), and its version."""

    file: dict[str, Any]
    kind: str

    @property
    def version(self) -> int:
        """The version that changed the file."""
        return int(self.file["version"])

    @property
    def action(self) -> dict[str, Any]:
        """The Delta action, or the line's content in parquet format."""
        found: dict[str, Any] = self.file.get("deltaSingleAction", {}).get(self.kind, self.file)
        return found


def changed_files(answer: Answer) -> list[Changed]:
    """Return the changed files of a response in either format."""
    results = []
    for line in answer.require().lines():
        results += [Changed(line["file"], kind) for kind in line.get("file", {}).get("deltaSingleAction", ())]
        results += [Changed(line[kind], kind) for kind in _KINDS if kind in line]
    return results


def _ids(answer: Answer, version: int | None = None) -> list[tuple[str, str]]:
    changes = changed_files(answer)
    return sorted((each.file["id"], each.kind) for each in changes if version is None or each.version == version)


@dataclasses.dataclass(frozen=True)
class Api:
    """An API for a range of versions."""

    name: str
    level: Level
    section: str
    need: str
    history: dict[str, object]
    ask: Callable[..., Answer]

    def range(self, server: Server, headers: dict[str, str] = DELTA) -> Range:
        """Return a range of versions with changed files, in a table that the server gives in this format."""
        words = "parquet" if headers is PARQUET else "delta"
        table = table_with(
            server, f"{self.need}, in {words} format", lambda table: self._span(table, headers) is not None
        )
        span = self._span(table, headers)
        assert span is not None
        return Range(self, table, headers, *span)

    def _span(self, table: SharedTable, headers: dict[str, str]) -> tuple[int, int] | None:
        if table.metadata(headers).status != 200:
            return None
        end = table.version()
        for start in dict.fromkeys(max(0, end - each) for each in _SPANS):
            answer = self.ask(table, headers, startingVersion=start, endingVersion=end)
            if start < end and answer.status == 200 and changed_files(answer) and not next_page(answer):
                return start, end
        return None


@dataclasses.dataclass(frozen=True)
class Range:
    """A range of versions of a table."""

    api: Api
    table: SharedTable
    headers: dict[str, str]
    start: int
    end: int

    def answer(self, **more: object) -> Answer:
        """Return the response for the whole range."""
        return self.part(self.start, self.end, **more)

    def part(self, start: int, end: int, **more: object) -> Answer:
        """Return the response for a part of the range."""
        return self.api.ask(self.table, self.headers, startingVersion=start, endingVersion=end, **more)


FEED = Api(
    "feed", Level.FEED, _FEED, "a table with a change data feed and two versions whose history is shared",
    {"includeHistoricalMetadata": "true"}, SharedTable.changes,
)  # fmt: skip
STREAM = Api(
    "stream", Level.STREAMING, _QUERY, "a table with two versions whose history is shared", {}, SharedTable.query
)


# === What both have in common ===


def _parquet_form(api: Api, server: Server) -> None:
    require_lines(api.range(server, PARQUET).answer(), False, *_KINDS)


def _delta_form(api: Api, server: Server) -> None:
    answer = api.range(server).answer()
    for line in require_lines(answer, True, "file"):
        problem = forms.problem(line.get("file", {}).get("deltaSingleAction", {}), "DeltaAction")
        if problem is not None:
            raise Failed(problem, answer)


def _versions(api: Api, server: Server) -> None:
    found = api.range(server)
    start = found.start + 1
    answer = found.part(start, found.end)
    for each in changed_files(answer):
        # For a query, the end is only a hint.
        if "version" not in each.file or each.version < start or (api is FEED and each.version > found.end):
            raise Failed(f"Expected a version from {start} to {found.end}, found {each.file.get('version')}.", answer)


def _timestamps(api: Api, server: Server) -> None:
    answer = api.range(server).answer()
    times: dict[int, object] = {}
    for each in changed_files(answer):
        time = each.file.get("timestamp")
        if not isinstance(time, int) or times.setdefault(each.version, time) != time:
            raise Failed(
                f"Expected one timestamp for all files of version {each.version}, in milliseconds; found {time!r}.",
                answer,
            )


def _inclusive(api: Api, server: Server) -> None:
    found = api.range(server)
    version = min(each.version for each in changed_files(found.answer()))
    alone = found.part(version, version)
    expected, ids = _ids(found.answer(), version), _ids(alone, version)
    if expected != ids:
        raise Failed(
            f"Expected the {len(expected)} files of version {version} in the range from {version} to {version}, found "
            f"{len(ids)}{' others' if len(ids) == len(expected) else ''}.",
            alone,
        )


def _header(api: Api, server: Server) -> None:
    found = api.range(server)
    answer = found.answer()
    text = answer.headers.get("Delta-Table-Version", "")
    first = min(each.version for each in changed_files(answer))
    if not text.isascii() or not text.isdigit() or not found.start <= int(text) <= first:
        raise Failed(f"Expected Delta-Table-Version from {found.start} to {first}, found '{text}'.", answer)


def _historical_metadata(api: Api, server: Server) -> None:
    def schemas(found: Range) -> list[str]:
        answers = (found.table.metadata(version=version) for version in (found.start, found.end))
        return [answer.lines()[1]["metaData"]["deltaMetadata"]["schemaString"] for answer in answers]

    found = api.range(server)
    if any(found.table.metadata(version=each).status != 200 for each in (found.start, found.end)):
        raise NotTestable("The table would need versions whose metadata can be queried.")
    before, after = schemas(found)
    if before == after:
        raise NotTestable("The table would need a change of its schema in its last versions.")
    answer = found.answer(**api.history)
    lines = [line["metaData"] for line in answer.require().lines() if "metaData" in line]
    given = [line["deltaMetadata"]["schemaString"] for line in lines]
    if given[0] != before or after not in given:
        raise Failed(f"Expected the schemas of versions {found.start} and {found.end}, found {len(given)}.", answer)
    if not all(isinstance(line.get("version"), int) for line in lines):
        raise Failed("Expected the version of each metadata.", answer)


def _historical_protocol(api: Api, server: Server) -> None:
    found = api.range(server)
    wanted: object = "true" if api is FEED else True
    answer = found.answer(**api.history, includeHistoricalProtocol=wanted)
    lines = [line["protocol"] for line in answer.require().lines() if "protocol" in line]
    if not any("version" in line for line in lines):
        raise NotOffered("The server ignores includeHistoricalProtocol: no protocol states its version.")
    for line in lines:
        if not isinstance(line.get("version"), int) or not line["version"] <= found.end:
            raise Failed(
                f"Expected a version up to {found.end} of each protocol, found {line.get('version')!r}.", answer
            )


def _parquet_protocol(api: Api, server: Server) -> None:
    wanted: object = "true" if api is FEED else True
    _require_one_protocol(api.range(server, PARQUET).answer(includeHistoricalProtocol=wanted))


def _no_historical_protocol(api: Api, server: Server) -> None:
    _require_one_protocol(api.range(server).answer())


def _require_one_protocol(answer: Answer) -> None:
    lines = [line["protocol"] for line in answer.require().lines() if "protocol" in line]
    if len(lines) != 1 or "version" in lines[0]:
        raise Failed("Expected one protocol without a version, found more.", answer)


def _end_of_stream(api: Api, server: Server) -> None:
    found = api.range(server)
    wanted = f"{DELTA[CAPABILITIES]};includeendstreamaction=true"
    answer = dataclasses.replace(found, headers={CAPABILITIES: wanted}).answer().require()
    if "includeendstreamaction=true" not in answer.headers.get(CAPABILITIES, "").lower().replace(" ", ""):
        raise NotOffered("The server promises no EndStreamAction.")
    if "endStreamAction" not in answer.lines()[-1]:
        raise Failed("Expected an EndStreamAction as the last line, as the header says; found none.", answer)


def _pages(api: Api, server: Server) -> None:
    found = api.range(server)
    whole = _ids(found.answer())
    most = max(1, len(whole) // 2)
    answer = found.answer(maxFiles=most)
    if not next_page(answer):
        raise NotOffered(f"The server returns all files to a request with maxFiles={most}.")
    pages = pages_of(answer, lambda token: found.answer(maxFiles=most, pageToken=token))
    ids = [each for page in pages for each in _ids(page)]
    if sorted(ids) != whole:
        raise Failed(f"Expected the {len(whole)} files of the range, each once; found {len(ids)}.", pages[-1])


_PROTOCOLS = f"{_SPEC}, Protocol in Delta Format"
_ROWS: tuple[tuple[str, str, str, Callable[[Api, Server], None]], ...] = (
    ("form-parquet",
     "In parquet format, lines after protocol and metadata are changed files with the fields that the specification "
     "requires.", f"{_SPEC}, Data Change Files", _parquet_form),
    ("form-delta",
     "In delta format, lines after protocol and metadata are files whose Delta action a log could have.",
     f"{_SPEC}, File in Delta Format", _delta_form),
    ("versions", "Each file states its version, which is not before the start of the range.",
     f"{_SPEC}, File in Delta Format", _versions),
    ("timestamps", "Each file states the timestamp of its version.", f"{_SPEC}, File in Delta Format", _timestamps),
    ("inclusive", "A range includes its first and its last version.", "{section}", _inclusive),
    ("header", "Delta-Table-Version is the starting version of the files.", "{section}", _header),
    ("historical-metadata", "Each metadata that the table had in the range is returned with its version{if}.",
     "{section}", _historical_metadata),
    ("historical-protocol", "With includeHistoricalProtocol, each protocol states its version.", _PROTOCOLS,
     _historical_protocol),
    ("no-historical-protocol", "Without includeHistoricalProtocol, there is one protocol, and it states no version.",
     _PROTOCOLS, _no_historical_protocol),
    ("parquet-protocol", "In parquet format, includeHistoricalProtocol is ignored: there is one protocol.",
     "{section}", _parquet_protocol),
    ("pages", "The pages of a range together have each file once.", f"{_SPEC}, EndStreamAction", _pages),
    ("end-of-stream", "If the response header has includeEndStreamAction=true, the last line is an EndStreamAction.",
     f"{_SPEC}, includeEndStreamAction", _end_of_stream),
)  # fmt: skip
for _api in (FEED, STREAM):
    for _suffix, _statement, _section, _run in _ROWS:
        _if = " if includeHistoricalMetadata is set" if _api is FEED else ""
        check(
            f"{_api.name}.{_suffix}", _api.level, _statement.format(**{"if": _if}),
            _section.format(section=_api.section),
        )(functools.partial(_run, _api))  # fmt: skip


# === The change data feed ===


def _require_refusal(answer: Answer, what: str) -> None:
    if not 400 <= answer.status < 500 and answer.status != 501:
        raise Failed(f"Expected a refusal of {what} (status 400), found status {answer.status}.", answer)


@check("feed.needs-a-start", Level.FEED, "A request without a start is a 400.", _FEED)
def _needs_a_start(server: Server) -> None:
    FEED.range(server).table.changes().conforms("Error", status=400)


def _malformed(parameters: dict[str, object], server: Server) -> None:
    FEED.range(server).table.changes(DELTA, **parameters).conforms("Error", status=400)


for _name, _value in (("startingVersion", "first"), ("startingTimestamp", "yesterday")):
    check(
        f"feed.malformed-{'version' if _value == 'first' else 'timestamp'}", Level.FEED,
        f"A request with an invalid {_name} is a 400.", f"{_FEED}; Timestamp Format",
    )(functools.partial(_malformed, {_name: _value}))  # fmt: skip


@check("feed.unknown", Level.FEED, "The feed of an unknown table is a 404.", _FEED)
def _unknown(server: Server) -> None:
    share, schema, _ = FEED.range(server).table.names
    SharedTable(server, share, schema, NO_SUCH_NAME).changes(startingVersion=0).conforms("Error", status=404)


@check("feed.token", Level.FEED, "A request without a token is a 401, with errorCode and message.", _FEED)
def _token(server: Server) -> None:
    path = (*FEED.range(server).table.path, "changes")
    server.get(*path, params={"startingVersion": 0}, anonymous=True).conforms("Error", status=401)


@check("feed.content-type", Level.FEED, "The content type of a feed is application/x-ndjson.", _FEED)
def _content_type(server: Server) -> None:
    answer = FEED.range(server).answer()
    found = answer.headers.get("Content-Type", "")
    if found.partition(";")[0].strip().lower() != "application/x-ndjson":
        raise Failed(f"Expected the content type application/x-ndjson, found '{found}'.", answer)


@check(
    "feed.file-id-hash", Level.FEED,
    "The response has the header fileidhash of the request, in lower case; an unsupported value is a 400.",
    f"{_SPEC}, File ID Hash Header",
)  # fmt: skip
def _file_id_hash(server: Server) -> None:
    found = FEED.range(server)
    answer = dataclasses.replace(found, headers={**DELTA, "fileidhash": "Delta"}).answer()
    if answer.status == 200 and "fileidhash" not in answer.headers:
        raise NotOffered("The server ignores the header fileidhash.")
    if answer.require().headers["fileidhash"] != "delta":
        raise Failed(f"Expected 'delta' in the header fileidhash, found '{answer.headers['fileidhash']}'.", answer)
    dataclasses.replace(found, headers={**DELTA, "fileidhash": "crc32"}).answer().conforms("Error", status=400)


@check("feed.end-before-start", Level.FEED, "A range that ends before it starts is refused.", _FEED)
def _end_before_start(server: Server) -> None:
    found = FEED.range(server)
    _require_refusal(found.part(found.end, found.start), "a range that ends before it starts")


@check("feed.start-after-latest", Level.FEED, "A range that starts after the latest version is refused.", _FEED)
def _start_after_latest(server: Server) -> None:
    found = FEED.range(server)
    _require_refusal(found.table.changes(startingVersion=found.end + 1000), "a start after the latest version")


@check("feed.default-end", Level.FEED, "Without an end, a range ends with the latest version.", _FEED)
def _default_end(server: Server) -> None:
    found = FEED.range(server)
    answer = found.table.changes(startingVersion=found.start)
    if _ids(answer) != _ids(found.answer()):
        raise Failed(f"Expected the same files as up to version {found.end}, found others.", answer)


@check(
    "feed.times", Level.FEED, "A range of timestamps has the versions that were created from its start to its end.",
    _FEED,
)  # fmt: skip
def _times(server: Server) -> None:
    found = FEED.range(server)
    first = min(changed_files(found.answer()), key=lambda each: each.version)
    time = dt.datetime.fromtimestamp(int(first.file["timestamp"]) / 1000, dt.timezone.utc)
    text = time.isoformat(timespec="milliseconds" if time.microsecond else "seconds").replace("+00:00", "Z")
    answer = found.table.changes(startingTimestamp=text, endingTimestamp=text)
    same = [each for each in changed_files(found.answer()) if each.file["timestamp"] == first.file["timestamp"]]
    if _ids(answer) != sorted((each.file["id"], each.kind) for each in same):
        raise Failed(f"Expected the {len(same)} files of {text}, found {len(_ids(answer))}.", answer)


@check("feed.not-recorded", Level.FEED, "The feed of a table that records none is refused.", _FEED)
def _not_recorded(server: Server) -> None:
    table = table_with(
        server, "a table without a change data feed",
        lambda table: table.configuration.get("delta.enableChangeDataFeed", "").lower() != "true",
    )  # fmt: skip
    _require_refusal(table.changes(startingVersion=0), f"the feed of {table}")


@check(
    "feed.change-type", Level.FEED, "A change data file has the column _change_type.",
    f"{_FEED}; Delta transaction log protocol, Change Data Files",
)  # fmt: skip
def _change_type(server: Server) -> None:
    for headers in (DELTA, PARQUET):
        try:
            answer = FEED.range(server, headers).answer()
        except NotTestable:
            continue
        for each in changed_files(answer):
            if each.kind in ("cdc", "cdf"):
                action = each.action
                names = footer_of(server, action.get("path") or action["url"], action["size"]).arrow.names
                if "_change_type" not in names:
                    raise Failed(f"Expected the column _change_type, found {', '.join(names)}.", answer)
                return
    raise NotTestable("The share would need a table with a change data feed that has updates of rows.")


# === Queries of a range ===


@check(
    "stream.complete", Level.STREAMING, "A query with startingVersion returns all files that changed data since then.",
    f"{_SPEC}, Request Body",
)  # fmt: skip
def _complete(server: Server) -> None:
    def rows(answer: Answer, kind: str) -> int:
        return sum(records_of(line[kind].get("stats")) for line in answer.require().lines() if kind in line)

    def appended(table: SharedTable) -> tuple[int, int] | None:
        end = table.version()
        for start in dict.fromkeys(max(1, end - span) for span in _SPANS):
            answer = STREAM.ask(table, PARQUET, startingVersion=start, endingVersion=end)
            changes = [] if next_page(answer) else changed_files(answer)
            if start <= end and changes and {each.kind for each in changes} == {"add"}:
                before, after = (table.query(PARQUET, version=version) for version in (start - 1, end))
                if next_page(before) or next_page(after):
                    return None
                return rows(answer, "add"), rows(after, "file") - rows(before, "file")
        return None

    def fits(table: SharedTable) -> bool:
        try:
            return appended(table) is not None
        except NotTestable:
            return False

    found = appended(
        table_with(server, "a table whose last versions only add rows, with statistics and a shared history", fits)
    )
    if found is not None and found[0] != found[1]:
        raise Failed(
            f"Expected files with {found[1]} added rows, as between the two snapshots, found {found[0]}.", server.latest
        )
