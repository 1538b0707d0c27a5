"""Violations of the sentences about tables in delta format."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from .violations import TABLE, Answer, Asked, misreads, spoils

_QUERY = f"{TABLE}/query"
_ORDERS, _READINGS = "/tables/orders/query", "/tables/readings/query"
_METADATA = "/tables/orders/metadata"
Spoil = Callable[[dict[str, Any]], None]


def _of_file(choose: Callable[[list[dict[str, Any]]], dict[str, Any]], change: Spoil) -> Callable[[Answer], None]:
    """Return a change of one "file" line of a snapshot in delta format."""

    def spoil(answer: Answer) -> None:
        if answer.format == "delta" and not {"startingVersion", "version"} & answer.asked.document.keys():
            lines = answer.lines
            change(choose([line for line in lines if "file" in line]))
            answer.lines = lines

    return spoil


def _add(line: dict[str, Any]) -> dict[str, Any]:
    return line["file"]["deltaSingleAction"]["add"]


def _first(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return lines[0]


def _largest(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return max(lines, key=lambda line: _add(line)["size"])


def _marked(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines with a deletion vector, smallest file first."""
    return sorted((line for line in lines if "deletionVector" in _add(line)), key=lambda line: _add(line)["size"])


def _of_head(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Callable[[Answer], None]:
    """Return a change of protocol and metadata of the latest version in delta format, without their wrappers."""

    def spoil(answer: Answer) -> None:
        if answer.format == "delta" and not answer.asked.query:
            lines = answer.lines
            change(lines[0]["protocol"]["deltaProtocol"], lines[1]["metaData"]["deltaMetadata"])
            answer.lines = lines

    return spoil


def _of_schema(change: Spoil) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """Return a change of the first field of the schema."""

    def of_head(_: dict[str, Any], metadata: dict[str, Any]) -> None:
        schema = json.loads(metadata["schemaString"])
        change(schema["fields"][0])
        metadata["schemaString"] = json.dumps(schema)

    return of_head


def _of_stats(change: Spoil) -> Spoil:
    def of_line(line: dict[str, Any]) -> None:
        stats = json.loads(_add(line)["stats"])
        change(stats)
        _add(line)["stats"] = json.dumps(stats)

    return of_line


def _renames(values: dict[str, Any], old: str, new: str) -> None:
    values[new] = values.pop(old)


spoils("delta.metadata-form", _METADATA)(_of_head(lambda protocol, metadata: metadata.pop("format")))
spoils("delta.query-form", _ORDERS, "POST")(
    _of_file(_first, lambda line: line["file"].update(expirationTimestamp="soon"))
)
spoils("delta.one-object", _ORDERS, "POST")(
    _of_file(_first, lambda line: line.update(protocol={"deltaProtocol": {"minReaderVersion": 1}}))
)
spoils("delta.schema", "/tables/products/metadata")(_of_head(_of_schema(lambda field: field.pop("nullable"))))
spoils("delta.reader-features", _METADATA)(_of_head(lambda protocol, metadata: protocol.update(minReaderVersion=2)))
spoils("delta.features-are-listed", _METADATA)(
    _of_head(lambda protocol, metadata: protocol["readerFeatures"].remove("deletionVectors"))
)
spoils("delta.actions", _ORDERS, "POST")(_of_file(_first, lambda line: _add(line).pop("modificationTime")))
spoils("delta.path-is-url", _ORDERS, "POST")(_of_file(_largest, lambda line: _add(line).update(path="a.parquet")))
spoils("delta.ids-are-stable", _ORDERS, "POST")(
    _of_file(_first, lambda line: line["file"].update(id=str(uuid.uuid4())))
)
spoils("delta.partition-values", _READINGS, "POST")(
    _of_file(_first, lambda line: _add(line)["partitionValues"].update(other="1"))
)
spoils("delta.stats", _ORDERS, "POST")(_of_file(_largest, _of_stats(lambda stats: stats.update(nullCount=5))))
spoils("delta.mapping", _METADATA)(_of_head(_of_schema(lambda field: field["metadata"].pop("delta.columnMapping.id"))))
spoils("delta.mapped-partition-values", _ORDERS, "POST")(
    _of_file(_first, lambda line: _renames(_add(line)["partitionValues"], "col-3", "country"))
)
spoils("delta.mapped-stats", _ORDERS, "POST")(
    _of_file(_first, _of_stats(lambda stats: _renames(stats["minValues"], "col-1", "order_id")))
)
spoils("delta.vector-form", _ORDERS, "POST")(
    _of_file(lambda lines: _marked(lines)[-1], lambda line: _add(line)["deletionVector"].update(storageType="u"))
)
spoils("delta.vector-ids", _ORDERS, "POST")(
    _of_file(lambda lines: _marked(lines)[-1], lambda line: line["file"].update(deletionVectorFileId=str(uuid.uuid4())))
)
spoils("delta.vector-bytes", _ORDERS, "POST")(
    _of_file(
        lambda lines: _marked(lines)[0],
        lambda line: _add(line)["deletionVector"].update(cardinality=_add(line)["deletionVector"]["cardinality"] + 1),
    )
)
spoils("delta.vector-records", _ORDERS, "POST")(
    _of_file(lambda lines: _marked(lines)[0], _of_stats(lambda stats: stats.update(numRecords=stats["numRecords"] + 1)))
)


@spoils("delta.ids-are-unique", _ORDERS, "POST")
def _one_id_twice(answer: Answer) -> None:
    if answer.format == "delta" and not answer.asked.document:
        lines = answer.lines
        first, second = (line["file"] for line in lines[2:4])
        second["id"] = first["id"]
        answer.lines = lines


@spoils("delta.formats-agree", _READINGS, "POST")
def _one_file_less_in_delta_format(answer: Answer) -> None:
    if answer.format == "delta" and not answer.asked.document:
        answer.lines = answer.lines[:-1]


@spoils("delta.table-size", _ORDERS, "POST")
def _one_file_too_many(answer: Answer) -> None:
    if answer.format == "delta" and not answer.asked.document:
        lines = answer.lines
        lines[1]["metaData"]["numFiles"] += 1
        answer.lines = lines


@misreads("delta.missing-features", _QUERY, "POST")
def _every_feature(asked: Asked) -> None:
    if asked.headers.get("delta-sharing-capabilities") == "responseformat=delta":
        asked.headers["delta-sharing-capabilities"] += ";readerfeatures=deletionvectors,columnmapping"


@misreads("delta.negotiation", _QUERY, "POST")
def _parquet_first(asked: Asked) -> None:
    capabilities = asked.headers.get("delta-sharing-capabilities", "")
    if capabilities.startswith("responseformat=delta,parquet"):
        asked.headers["delta-sharing-capabilities"] = "responseformat=parquet"


@misreads("delta.features-case", _QUERY, "POST")
def _features_in_lower_case_only(asked: Asked) -> None:
    capabilities = asked.headers.get("delta-sharing-capabilities", "")
    if "readerfeatures=" in capabilities and capabilities.rpartition("=")[2].isupper():
        asked.headers["delta-sharing-capabilities"] = "responseformat=delta"


@spoils("delta.widening", f"{TABLE}/metadata")
def _change_of_a_type_without_its_start(answer: Answer) -> None:
    answer.body = answer.body.replace(b'\\"fromType\\"', b'\\"from\\"')
