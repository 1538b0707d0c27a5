"""A table of the server that is checked: its raw responses in both formats, and what it can be used to check."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from delta_sharing_client.checks import forms
from delta_sharing_client.checks.check import Failed, NotTestable
from delta_sharing_client.checks.checked_server import MALFORMED, MOST_PAGES, Answer, Server
from delta_sharing_client.parquet.footer import Footer, parse_footer

CAPABILITIES = "delta-sharing-capabilities"
MOST_FILES = 10_000
# What a client of everything says; servers refuse tables whose features a request does not name.
FEATURES = (
    "deletionvectors,columnmapping,timestampntz,typewidening,typewidening-preview,variant,variant-preview,"
    "variantshredding,variantshredding-preview,v2checkpoint,vacuumprotocolcheck,catalogmanaged,materializepartitioncolumns"
)
_TAIL = 256 * 1024
PARQUET = {CAPABILITIES: "responseformat=parquet"}
DELTA = {CAPABILITIES: f"responseformat=delta;readerfeatures={FEATURES}"}


class SharedTable:
    """A shared table, with its responses. A response that the server refuses is an answer, too."""

    def __init__(self, server: Server, share: str, schema: str, name: str) -> None:
        self.server = server
        self.names = (share, schema, name)
        self.path = ("shares", share, "schemas", schema, "tables", name)

    def __str__(self) -> str:
        return ".".join(self.names)

    def metadata(self, headers: dict[str, str] = DELTA, **params: object) -> Answer:
        """Return the response of "Query Table Metadata"."""
        return self.server.get(*self.path, "metadata", headers=headers, params=params)

    def query(self, headers: dict[str, str] = DELTA, *, fresh: bool = False, **body: object) -> Answer:
        """Return the response of "Read Data from a Table"."""
        return self.server.post(*self.path, "query", headers=headers, body=body, fresh=fresh)

    def changes(self, headers: dict[str, str] = DELTA, **params: object) -> Answer:
        """Return the response of "Read Change Data Feed from a Table"."""
        return self.server.get(*self.path, "changes", headers=headers, params=params)

    @property
    def is_large(self) -> bool:
        """Whether the table states more than ``MOST_FILES`` files, so that its responses would be long."""
        answer = self.metadata()
        lines = answer.lines() if answer.status == 200 else []
        counts = [line["metaData"].get("numFiles") for line in lines if isinstance(line.get("metaData"), dict)]
        return any(isinstance(count, int) and count > MOST_FILES for count in counts)

    def version(self) -> int:
        """Return the current version."""
        answer = self.server.get(*self.path, "version").require()
        text = answer.headers.get("Delta-Table-Version", "")
        if not text.isascii() or not text.isdigit():
            raise Failed(f"Expected a number in the header Delta-Table-Version, found '{text}'.", answer)
        return int(text)

    def files(self, headers: dict[str, str] = DELTA, **body: object) -> list[dict[str, Any]]:
        """Return the contents of the "file" lines of a query."""
        answer = self.server.post(*self.path, "query", headers=headers, body=body)
        return [line["file"] for line in answer.require().lines() if "file" in line]

    @property
    def protocol(self) -> dict[str, Any]:
        """The table's protocol as in its log, from the response in delta format."""
        return self._line("protocol", "deltaProtocol")

    @property
    def details(self) -> dict[str, Any]:
        """The table's metadata as in its log, from the response in delta format."""
        return self._line("metaData", "deltaMetadata")

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        found = self.details.get("configuration")
        return found if isinstance(found, dict) else {}

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The fields of the table's schema."""
        fields: list[dict[str, Any]] = json.loads(self.details["schemaString"])["fields"]
        return fields

    def _line(self, name: str, inner: str) -> dict[str, Any]:
        answer = self.metadata().require()
        for line in answer.lines():
            found = line.get(name)
            if isinstance(found, dict) and isinstance(found.get(inner), dict):
                result: dict[str, Any] = found[inner]
                return result
        raise Failed(f"Expected a line with {name}.{inner}, found none.", answer)


def tables(server: Server) -> list[SharedTable]:
    """Return the shared tables, at most ``MOST_TABLES``."""
    return server.found(
        "tables",
        lambda: [
            SharedTable(server, item["share"], item["schema"], str(item.get("name")))
            for item in server.assets("tables")
        ],
    )


def table_with(server: Server, need: str, fits: Callable[[SharedTable], object]) -> SharedTable:
    """Return the first table for which ``fits`` is true; ``NotTestable`` with ``need`` ("a table with two files") if
    there is none. A table that the server does not serve as expected, or with very many files, does not fit."""

    def find() -> SharedTable | None:
        for table in tables(server):
            try:
                if not table.is_large and fits(table):
                    return table
            except (Failed, *MALFORMED):
                continue
        return None

    found = server.found(("table", need), find)
    if found is None:
        raise NotTestable(f"The share would need {need}.")
    return found


def readable(server: Server) -> SharedTable:
    """Return a table whose files the server gives."""
    return table_with(server, "a table with a file that is read by URL", lambda table: table.files())


def plain(server: Server) -> SharedTable:
    """Return a table with a file that the parquet format can represent."""
    return table_with(
        server, "a table with a file that parquet format can represent", lambda table: table.files(PARQUET)
    )


def require_lines(answer: Answer, delta: bool, *kinds: str) -> list[dict[str, Any]]:
    """Return the lines of a response in ``delta`` or parquet format: protocol and metadata, then lines of ``kinds``,
    perhaps with metadata, protocols and an end-of-stream action. ``Failed`` if a line has another form."""
    lines = answer.require().lines()
    for number, line in enumerate(lines):
        kind = ("protocol", "metaData")[number] if number < 2 else next((name for name in kinds if name in line), None)
        if kind is None:
            kind = next((name for name in _OTHER_LINES if name in line), None)
        if kind is None:
            raise Failed(f"Expected a line with {', '.join(kinds)}, found {', '.join(line) or 'none'}.", answer)
        problem = forms.problem(line, _FORMS.get(kind) or ("Delta" if delta else "Parquet") + _PAIRED[kind])
        if problem is not None:
            raise Failed(f"Line {number + 1} differs from the specification: {problem}", answer)
    if len(lines) < 2:
        raise Failed("Expected a line with the protocol and one with the metadata.", answer)
    return lines


_OTHER_LINES = ("metaData", "protocol", "endStreamAction")
_PAIRED = {"protocol": "Protocol", "metaData": "Metadata", "file": "File"}
_FORMS = {"endStreamAction": "EndStreamAction", **dict.fromkeys(("add", "cdf", "remove"), "ParquetChange")}


def next_page(answer: Answer) -> str | None:
    """Return the token for the page after a response; ``None`` if it is the last one."""
    lines = answer.require().lines()
    token = lines[-1].get("endStreamAction", {}).get("nextPageToken") if lines else None
    return str(token) if token else None


def pages_of(first: Answer, ask: Callable[[str], Answer]) -> list[Answer]:
    """Return a response and its further pages; ``ask`` returns the page of a token. ``Failed`` if they do not end."""
    results, tokens = [first], set()
    while (token := next_page(results[-1])) is not None:
        if token in tokens or len(results) >= MOST_PAGES:
            raise Failed(f"Expected a last page, found one more nextPageToken after {len(results)} pages.", results[-1])
        tokens.add(token)
        results.append(ask(token).require())
    return results


def records_of(stats: str | None) -> int:
    """Return the number of records that the statistics of a file state. ``NotTestable`` if they state none."""
    records = json.loads(stats or "{}").get("numRecords")
    if not isinstance(records, int):
        raise NotTestable("The files would need statistics with numRecords, which are optional.")
    return records


def footer_of(server: Server, url: str, size: int) -> Footer:
    """Return the footer of the Parquet file at a pre-signed URL."""
    start = max(0, size - _TAIL)
    answer = server.fetch(url, Range=f"bytes={start}-{size - 1}").require(200, 206)
    return parse_footer(pa.py_buffer(answer.body if answer.status == 206 else answer.body[start:]), size)
