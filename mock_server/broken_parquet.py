"""Violations of the sentences about tables in parquet format."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

from .violations import TABLE, Answer, Asked, misreads, spoils

_QUERY, _METADATA = f"{TABLE}/query", f"{TABLE}/metadata"
_RESPONSES = (("metadata", "GET", _METADATA), ("query", "POST", _QUERY))
_CAPABILITIES = "delta-sharing-capabilities"


def _is_snapshot(answer: Answer) -> bool:
    """Return whether a response is for the latest version in parquet format, without hints and other capabilities."""
    asked = answer.asked
    plain = asked.headers.get(_CAPABILITIES) == "responseformat=parquet" and "fileidhash" not in asked.headers
    return plain and asked.body in (b"", b"{}") and not asked.query


def _of_snapshots(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Answer], None]:
    """Return a violation that changes the lines of plain responses in parquet format."""

    def spoil(answer: Answer) -> None:
        if _is_snapshot(answer):
            lines = answer.lines
            change(lines)
            answer.lines = lines

    return spoil


def _of_files(change: Callable[[dict[str, Any]], object]) -> Callable[[Answer], None]:
    """Return a violation that changes the first file of plain responses in parquet format."""
    return _of_snapshots(lambda lines: change(next(line["file"] for line in lines if "file" in line)))


def _text_as_header(name: str, value: str) -> Callable[[Answer], None]:
    def spoil(answer: Answer) -> None:
        if _is_snapshot(answer):
            answer.headers[name] = value

    return spoil


for _api, _method, _path in _RESPONSES:
    spoils(f"{_api}.content-type", _path, _method)(_text_as_header("content-type", "text/plain"))
    spoils(f"{_api}.table-version", _path.replace(TABLE, "/tables/products"), _method)(
        _text_as_header("delta-table-version", "999")
    )
    spoils(f"{_api}.one-action-a-line", _path, _method)(
        _of_snapshots(lambda lines: lines[-1].update(endStreamAction={}))
    )
    spoils(f"{_api}.protocol", _path, _method)(
        _of_snapshots(lambda lines: lines[0]["protocol"].update(minReaderVersion="1"))
    )
    spoils(f"{_api}.metadata", _path, _method)(_of_snapshots(lambda lines: lines[1]["metaData"].update(name=5)))
    spoils(f"{_api}.order-of-lines", _path, _method)(_of_snapshots(lambda lines: lines.append({"metaData": {}})))


@spoils("query-version.header", f"{TABLE}/version")
def _version_in_words(answer: Answer) -> None:
    if _CAPABILITIES in answer.asked.headers:
        answer.headers["delta-table-version"] = "latest"


@spoils("query-version.empty-body", f"{TABLE}/version")
def _version_in_the_body(answer: Answer) -> None:
    answer.body = b"{}"


def _unknown_type(lines: list[dict[str, Any]]) -> None:
    schema = json.loads(lines[1]["metaData"]["schemaString"])
    schema["fields"][0]["type"] = "number"
    lines[1]["metaData"]["schemaString"] = json.dumps(schema)


spoils("metadata.schema", _METADATA)(_of_snapshots(_unknown_type))
spoils("metadata.partition-columns", _METADATA)(
    _of_snapshots(lambda lines: lines[1]["metaData"].update(partitionColumns=["no_such_column"]))
)


def _statistic(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(file: dict[str, Any]) -> None:
        file["stats"] = json.dumps(json.loads(file["stats"]) | {name: value})

    return change


for _check, _table, _change in (
    ("query.files", "products", lambda file: file.update(version="1")),
    ("query.partition-keys", "readings", lambda file: file["partitionValues"].update(other="x")),
    ("query.statistics", "products", _statistic("nullCount", 5)),
    ("query.num-records", "products", _statistic("numRecords", 1)),
    ("query.bounds", "products", _statistic("maxValues", {"product_id": 1})),
):
    spoils(_check, f"/tables/{_table}/query", "POST")(_of_files(_change))


@spoils("query.partition-values", "/tables/readings/query", "POST")
def _day_in_words(answer: Answer) -> None:
    # In delta format, too, because both formats must have the same values.
    answer.body = re.sub(rb'("day":\s*)"2026-01-05"', rb'\1"5 January"', answer.body)


spoils("query.one-page", "/tables/products/query", "POST")(
    _of_snapshots(lambda lines: lines.append({"endStreamAction": {"nextPageToken": "more"}}))
)


@spoils("query.unique-file-ids", "/tables/readings/query", "POST")
def _last_file_twice(answer: Answer) -> None:
    if answer.asked.headers.get(_CAPABILITIES) == "responseformat=parquet;readerfeatures=":
        answer.lines = [*answer.lines, answer.lines[-1]]


# Of the two requests of a run, the second one has another id.
_second_time = itertools.cycle((False, True))
spoils("query.stable-file-ids", "/tables/readings/query", "POST")(
    _of_files(lambda file: file.update(id=f"{file['id']}-2") if next(_second_time) else None)
)


# --- capabilities ---


@misreads("capabilities.parquet-by-default", _QUERY, "POST")
def _delta_by_default(asked: Asked) -> None:
    asked.headers.setdefault(_CAPABILITIES, "responseformat=delta")


@misreads("capabilities.one-format", _QUERY, "POST")
def _other_format(asked: Asked) -> None:
    if asked.headers.get(_CAPABILITIES) == "responseformat=delta;readerfeatures=":
        asked.headers[_CAPABILITIES] = "responseformat=parquet"


@misreads("capabilities.case", _QUERY, "POST")
def _only_lower_case(asked: Asked) -> None:
    text = asked.headers.get(_CAPABILITIES, "")
    if text != text.lower() and "feature" not in text.lower():
        asked.headers[_CAPABILITIES] = ""


@spoils("end-stream.promised", _METADATA)
def _no_end(answer: Answer) -> None:
    answer.lines = [line for line in answer.lines if "endStreamAction" not in line]


@spoils("end-stream.announced", _METADATA)
def _end_without_announcement(answer: Answer) -> None:
    answer.headers[_CAPABILITIES] = answer.headers[_CAPABILITIES].partition(";")[0]


def _expiring(time: Any) -> Callable[[Answer], None]:
    """Return a violation that changes the time in an EndStreamAction."""

    def spoil(answer: Answer) -> None:
        lines = answer.lines
        if "endStreamAction" in lines[-1]:
            lines[-1]["endStreamAction"]["minUrlExpirationTimestamp"] = time
        answer.lines = lines

    return spoil


spoils("end-stream.form", _METADATA)(_expiring("soon"))
spoils("end-stream.expiration", "/tables/products/query", "POST")(_expiring(1))


@spoils("file-id-hash.echo", _QUERY, "POST")
def _scheme_as_written(answer: Answer) -> None:
    if "fileidhash" in answer.headers:
        answer.headers["fileidhash"] = answer.asked.headers["fileidhash"]


@misreads("file-id-hash.unsupported", _QUERY, "POST")
def _any_scheme(asked: Asked) -> None:
    if asked.headers.get("fileidhash") == "crc32":
        asked.headers["fileidhash"] = "parquet"


@misreads("file-id-hash.stable", _QUERY, "POST")
def _scheme_of_the_format(asked: Asked) -> None:
    if "fileidhash" in asked.headers and asked.headers.get(_CAPABILITIES) == "responseformat=delta":
        asked.headers["fileidhash"] = "delta"
