"""Checks of tables in delta format: protocol and metadata, actions of files, deletion vectors, column mapping."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from delta_sharing_client.checks import forms
from delta_sharing_client.checks.check import Failed, Level, NotOffered, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.parquet_checks import format_of
from delta_sharing_client.checks.shared_tables import (
    CAPABILITIES,
    FEATURES,
    PARQUET,
    SharedTable,
    footer_of,
    next_page,
    readable,
    records_of,
    require_lines,
    table_with,
    tables,
)
from delta_sharing_client.delta import deletion_vectors
from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.redact import safe_url

_SPEC = "Delta Sharing Protocol"
_FILE = f"{_SPEC}, File in Delta Format"
_LOG = "Delta transaction log protocol"
_MAPPING = ("delta.columnMapping.id", "delta.columnMapping.physicalName")
_CHANGES = "delta.typeChanges"
_BOUNDS = ("minValues", "maxValues", "nullCount")


def _offering(server: Server) -> Server:
    """Return the server; ``NotOffered`` if parquet is its only format."""
    answer = readable(server).query()
    if CAPABILITIES not in answer.headers and format_of(answer) == "parquet":
        raise NotOffered("The server ignores the capabilities header: it answers in parquet format.")
    return server


def single_actions(answer: Answer) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Yield the content of each "file" line of a response, with the kind and the content of its Delta action."""
    for line in answer.require().lines():
        for kind, action in line.get("file", {}).get("deltaSingleAction", {}).items():
            yield line["file"], kind, action


def _adds(table: SharedTable) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(file, action) for file, kind, action in single_actions(table.query()) if kind == "add"]


def _with_vectors(server: Server) -> SharedTable:
    return table_with(
        _offering(server), "a table with deletion vectors",
        lambda table: [action for _, action in _adds(table) if action.get("deletionVector")],
    )  # fmt: skip


def _marked(table: SharedTable) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Return the files with a vector, smallest first: the wrapper, the action and the vector's descriptor."""
    found = [(file, add, add["deletionVector"]) for file, add in _adds(table) if add.get("deletionVector")]
    return sorted(found, key=lambda each: int(each[1]["size"]))


def _is_mapped(table: SharedTable) -> bool:
    return table.configuration.get("delta.columnMapping.mode", "none") != "none"


def _mapped(server: Server) -> SharedTable:
    return table_with(
        _offering(server), "a table with column mapping", lambda table: _is_mapped(table) and table.files()
    )


# === Lines ===


@check(
    "delta.metadata-form", Level.DELTA, "Protocol and metadata of a table have the form that the specification says.",
    f"{_SPEC}, Query Table Metadata; Protocol in Delta Format; Metadata in Delta Format",
)  # fmt: skip
def _metadata_form(server: Server) -> None:
    require_lines(readable(_offering(server)).metadata(), True, "protocol", "metaData")


@check(
    "delta.query-form", Level.DELTA,
    "A query's first lines are protocol and metadata; the others are files of the form that the specification says.",
    f"{_SPEC}, Read Data from a Table; File in Delta Format",
)  # fmt: skip
def _query_form(server: Server) -> None:
    require_lines(readable(_offering(server)).query(), True, "file")


@check(
    "delta.one-object", Level.DELTA, "Each line has only one of protocol, metaData and file.",
    f"{_SPEC}, JSON Wrapper Object In Each Line in Delta",
)  # fmt: skip
def _one_object(server: Server) -> None:
    answer = readable(_offering(server)).query()
    for number, line in enumerate(answer.require().lines(), start=1):
        found = [name for name in ("protocol", "metaData", "file") if name in line]
        if len(found) > 1:
            raise Failed(f"Expected one object in line {number}, found {' and '.join(found)}.", answer)


@check(
    "delta.schema", Level.DELTA,
    "The schema is the JSON of a struct, whose fields have name, type and nullable; it has the partition columns.",
    f"{_LOG}, Schema Serialization Format; Change Metadata",
)  # fmt: skip
def _schema(server: Server) -> None:
    for table in _served(server):
        for field in _fields(json.loads(table.details["schemaString"])):
            if not {"name", "type", "nullable"} <= field.keys() or not isinstance(field["nullable"], bool):
                raise Failed(
                    f"Expected name, type and nullable of each field, found {', '.join(field)}.", table.metadata()
                )
        missing = set(table.details["partitionColumns"]) - {field["name"] for field in table.columns}
        if missing:
            raise Failed(
                f"Expected the partition columns in the schema, found no {', '.join(missing)}.", table.metadata()
            )


def _served(server: Server) -> list[SharedTable]:
    """Return the tables whose metadata the server gives in delta format."""
    readable(_offering(server))
    return [table for table in tables(server) if table.metadata().status == 200]


def _fields(node: object) -> Iterator[dict[str, Any]]:
    """Yield the fields of a schema and of the structs in it."""
    if isinstance(node, dict):
        yield from node["fields"] if node.get("type") == "struct" else ()
        for part in (node.get("fields"), node.get("type"), *map(node.get, ("elementType", "keyType", "valueType"))):
            yield from _fields(part)
    elif isinstance(node, list):
        for each in node:
            yield from _fields(each)


def _changes(table: SharedTable) -> list[dict[str, Any]]:
    """Return the fields whose type was changed."""
    return [field for field in _fields(json.loads(table.details["schemaString"])) if _CHANGES in field["metadata"]]


@check(
    "delta.widening", Level.DELTA,
    "A widened field states its earlier types: each change has fromType and toType, the last one ends with the field's "
    "type, and the protocol has the feature typeWidening.",
    f"{_LOG}, Type Widening; Type Change Metadata",
)  # fmt: skip
def _widening(server: Server) -> None:
    table = table_with(_offering(server), "a table with type widening and a widened column", _changes)
    answer = table.metadata()
    if not {"typeWidening", "typeWidening-preview"} & set(table.protocol.get("readerFeatures") or ()):
        raise Failed("Expected the reader feature typeWidening of a table with delta.typeChanges, found none.", answer)
    for field in _changes(table):
        changes = field["metadata"][_CHANGES]
        if not all(isinstance(change.get(name), str) for change in changes for name in ("fromType", "toType")):
            raise Failed(f"Expected fromType and toType in each change of the field '{field['name']}'.", answer)
        own = [change["toType"] for change in changes if "fieldPath" not in change]
        if own and own[-1] != field["type"]:
            raise Failed(
                f"Expected the last change of the field '{field['name']}' to end with its type {field['type']}, found "
                f"{own[-1]}.",
                answer,
            )


@check(
    "delta.reader-features", Level.DELTA,
    "A protocol lists reader features if, and only if, its minReaderVersion is 3.", f"{_LOG}, Protocol Evolution",
)  # fmt: skip
def _reader_features(server: Server) -> None:
    for table in _served(server):
        version, features = table.protocol["minReaderVersion"], table.protocol.get("readerFeatures")
        if (features is not None) != (version == 3):
            raise Failed(
                f"Expected reader features only with minReaderVersion 3, found {features} with {version}.",
                table.metadata(),
            )


@check(
    "delta.features-are-listed", Level.DELTA,
    "The protocol of a table with deletion vectors lists this reader feature.", f"{_LOG}, Deletion Vectors",
)  # fmt: skip
def _features_are_listed(server: Server) -> None:
    table = _with_vectors(server)
    if "deletionVectors" not in (table.protocol.get("readerFeatures") or ()):
        raise Failed("Expected the reader feature deletionVectors in the protocol, found none.", table.metadata())


# === Formats ===


@check(
    "delta.missing-features", Level.DELTA,
    "A table with reader features that the request does not name is refused with a status of 400 or above.",
    f"{_SPEC}, readerFeatures",
)  # fmt: skip
def _missing_features(server: Server) -> None:
    table = table_with(
        _offering(server), "a table with deletion vectors or column mapping",
        lambda table: table.files() and {"deletionVectors", "columnMapping"} & set(table.protocol["readerFeatures"]),
    )  # fmt: skip
    answer = table.query({CAPABILITIES: "responseformat=delta"})
    if answer.status < 400:
        raise Failed(
            f"Expected a refusal of the table with {', '.join(table.protocol['readerFeatures'])}, found status "
            f"{answer.status}.",
            answer,
        )


def _advanced(server: Server) -> SharedTable:
    return table_with(
        _offering(server), "a table with deletion vectors or column mapping",
        lambda table: table.files() and {"deletionVectors", "columnMapping"} & set(table.protocol["readerFeatures"]),
    )  # fmt: skip


@check(
    "delta.features-case", Level.DELTA, "The names in readerfeatures are case-insensitive.",
    f"{_SPEC}, Delta Sharing Capabilities Header",
)  # fmt: skip
def _features_case(server: Server) -> None:
    for spelling in (FEATURES.lower(), FEATURES.upper()):
        _advanced(server).query({CAPABILITIES: f"responseformat=delta;readerfeatures={spelling}"}).require()


@check(
    "delta.negotiation", Level.DELTA,
    "If a request accepts both formats, a table that parquet format cannot represent is served in delta format.",
    f"{_SPEC}, responseFormat",
)  # fmt: skip
def _negotiation(server: Server) -> None:
    table = table_with(
        _offering(server), "a table that parquet format cannot represent",
        lambda table: table.files() and table.query(PARQUET).status >= 400,
    )  # fmt: skip
    answer = table.query({CAPABILITIES: f"responseformat=delta,parquet;readerfeatures={FEATURES}"}).require()
    if "deltaProtocol" not in answer.lines()[0].get("protocol", {}):
        raise Failed("Expected a response in delta format, found another one.", answer)


@check(
    "delta.formats-agree", Level.DELTA,
    "Both formats return the same files: as many, with the same sizes, partition values and numbers of records.",
    f"{_SPEC}, Read Data from a Table",
)  # fmt: skip
def _formats_agree(server: Server) -> None:
    def described(file: dict[str, Any]) -> str:
        stats = json.loads(file.get("stats") or "{}")
        values = [file["partitionValues"].get(name) or None for name in table.details["partitionColumns"]]
        return json.dumps([file["size"], values, stats.get("numRecords")])

    table = table_with(
        _offering(server), "a table with two files that both formats can represent",
        lambda table: len(table.files(PARQUET)) > 1 and table.query().status == 200 and not _is_mapped(table),
    )  # fmt: skip
    parquet = Counter(map(described, table.files(PARQUET)))
    delta = Counter(described(action) for _, action in _adds(table))
    if parquet != delta:
        raise Failed(
            f"Expected the {parquet.total()} files of the response in parquet format, found {delta.total()}, of which "
            f"{(parquet & delta).total()} are equal."
        )


# === Files ===


@check(
    "delta.actions", Level.DELTA, "The Delta action of each file has the fields that a Delta log requires.",
    f"{_FILE}; {_LOG}, Add File and Remove File",
)  # fmt: skip
def _actions(server: Server) -> None:
    answer = readable(_offering(server)).query()
    for file, _, _ in single_actions(answer):
        if (problem := forms.problem(file["deltaSingleAction"], "DeltaAction")) is not None:
            raise Failed(problem, answer)


@check("delta.path-is-url", Level.DELTA, "The path of each Delta action is a pre-signed URL with https.", _FILE)
def _path_is_url(server: Server) -> None:
    answer = readable(_offering(server)).query()
    for _, kind, action in single_actions(answer):
        if not action["path"].startswith(("https://", "http://")):
            raise Failed(f"Expected a URL as path of {kind}, found '{safe_url(action['path'])[:80]}'.", answer)


@check("delta.ids-are-unique", Level.DELTA, "The id of a file is unique in its table.", _FILE)
def _ids_are_unique(server: Server) -> None:
    table = table_with(
        _offering(server), "a table with two files that are read by URL", lambda table: len(table.files()) > 1
    )
    twice = [name for name, count in Counter(file["id"] for file in table.files()).items() if count > 1]
    if twice:
        raise Failed("Expected a different id for each file, found one twice.", table.query())


@check("delta.ids-are-stable", Level.DELTA, "The id of a file is the same in each response.", _FILE)
def _ids_are_stable(server: Server) -> None:
    table = readable(_offering(server))
    before, again = table.query(), table.query(fresh=True)
    if {file["id"] for file, _, _ in single_actions(before)} != {file["id"] for file, _, _ in single_actions(again)}:
        raise Failed("Expected the same ids in a second response, found others.", again)


def _require_partition_values(table: SharedTable, names: set[str]) -> None:
    for _, action in _adds(table):
        if action["partitionValues"].keys() != names:
            found = ", ".join(action["partitionValues"])
            raise Failed(f"Expected partition values of {', '.join(sorted(names))}, found {found}.", table.query())


@check(
    "delta.partition-values", Level.DELTA, "A file has a value for each partition column of the table.",
    f"{_LOG}, Add File and Remove File",
)  # fmt: skip
def _partition_values(server: Server) -> None:
    table = table_with(
        _offering(server), "a table with partitions and without column mapping",
        lambda table: table.details["partitionColumns"] and not _is_mapped(table) and table.files(),
    )  # fmt: skip
    _require_partition_values(table, set(table.details["partitionColumns"]))


@check(
    "delta.stats", Level.DELTA, "The statistics of a file are JSON: a number of records, bounds and counts of nulls.",
    f"{_LOG}, Per-file Statistics",
)  # fmt: skip
def _stats(server: Server) -> None:
    table = table_with(
        _offering(server),
        "a table whose files have statistics",
        lambda table: any(add.get("stats") for _, add in _adds(table)),
    )
    for text in filter(None, (add.get("stats") for _, add in _adds(table))):
        stats = json.loads(text)
        if not isinstance(stats.get("numRecords", 0), int) or stats.get("numRecords", 0) < 0:
            raise Failed(f"Expected a number as numRecords, found {stats['numRecords']!r}.", table.query())
        for name in _BOUNDS:
            if not isinstance(stats.get(name) or {}, dict):
                raise Failed(f"Expected an object with columns as {name} in stats.", table.query())


@check(
    "delta.table-size", Level.DELTA,
    "The numFiles and size of the metadata, if they are stated, are those of the table's files.",
    f"{_SPEC}, Metadata in Delta Format",
)  # fmt: skip
def _table_size(server: Server) -> None:
    table = readable(_offering(server))
    if next_page(table.query()):
        raise NotTestable("The table would need to have all of its files in one page.")
    stated = table.query().lines()[1]["metaData"]
    files = [action for _, action in _adds(table)]
    facts = {"numFiles": len(files), "size": sum(int(action["size"]) for action in files)}
    if not facts.keys() & stated.keys():
        raise NotTestable("The metadata would need numFiles or size, which are optional.")
    for name, expected in facts.items():
        if stated.get(name, expected) != expected:
            raise Failed(f"Expected the {name} {expected} of the files, found {stated[name]}.", table.query())


# === Column mapping ===


@check(
    "delta.mapping", Level.DELTA,
    "In a table with column mapping, each field has an id of its own and a physical name.", f"{_LOG}, Column Mapping",
)  # fmt: skip
def _mapping(server: Server) -> None:
    table = _mapped(server)
    found = [field["metadata"] for field in _fields(json.loads(table.details["schemaString"]))]
    if not all(isinstance(each.get(_MAPPING[0]), int) and isinstance(each.get(_MAPPING[1]), str) for each in found):
        raise Failed(f"Expected {' and '.join(_MAPPING)} in the metadata of each field.", table.metadata())
    if len({each[_MAPPING[0]] for each in found}) < len(found):
        raise Failed("Expected a different id for each field, found one twice.", table.metadata())


def _physical(table: SharedTable) -> dict[str, str]:
    return {field["name"]: field["metadata"][_MAPPING[1]] for field in table.columns}


@check(
    "delta.mapped-partition-values", Level.DELTA,
    "In a table with column mapping, partition values have the physical names of their columns.",
    f"{_LOG}, Column Mapping",
)  # fmt: skip
def _mapped_partition_values(server: Server) -> None:
    table = table_with(
        _offering(server), "a table with partitions and column mapping",
        lambda table: _is_mapped(table) and table.details["partitionColumns"] and table.files(),
    )  # fmt: skip
    _require_partition_values(table, {_physical(table)[name] for name in table.details["partitionColumns"]})


@check(
    "delta.mapped-stats", Level.DELTA,
    "In a table with column mapping, statistics have the physical names of the columns.", f"{_LOG}, Column Mapping",
)  # fmt: skip
def _mapped_stats(server: Server) -> None:
    table = _mapped(server)
    names = set(_physical(table).values())
    found = [json.loads(add["stats"]) for _, add in _adds(table) if add.get("stats")]
    if not found:
        raise NotTestable("The files would need statistics, which are optional.")
    for stats in found:
        for bounds in (stats.get(name) for name in _BOUNDS):
            others = set(bounds) - names if isinstance(bounds, dict) else None
            if others:
                raise Failed(f"Expected physical names in stats, found {', '.join(sorted(others))}.", table.query())


# === Deletion vectors ===


@check(
    "delta.vector-form", Level.DELTA, "A deletion vector is given by a URL (storage type p) or inline (i).",
    f"{_FILE}; {_LOG}, Deletion Vector Descriptor Schema",
)  # fmt: skip
def _vector_form(server: Server) -> None:
    table = _with_vectors(server)
    for _, _, vector in _marked(table):
        if (problem := forms.problem(vector, "DeletionVector")) is not None:
            raise Failed(f"In a deletion vector, {problem}", table.query())


@check(
    "delta.vector-ids", Level.DELTA,
    "The deletionVectorFileId is unique for the file of a deletion vector, and the same in each response.", _FILE,
)  # fmt: skip
def _vector_ids(server: Server) -> None:
    table = _with_vectors(server)

    def ids(answer: Answer) -> set[tuple[str, str]]:
        return {
            (safe_url(action["deletionVector"]["pathOrInlineDv"]), file["deletionVectorFileId"])
            for file, _, action in single_actions(answer)
            if (action.get("deletionVector") or {}).get("storageType") == "p" and file.get("deletionVectorFileId")
        }

    before, again = ids(table.query()), table.query(fresh=True)
    if not before:
        raise NotTestable("The files would need a deletionVectorFileId, which is optional.")
    urls, names = ({pair[number] for pair in before} for number in (0, 1))
    if not len(urls) == len(names) == len(before):
        raise Failed(
            f"Expected one id for each of {len(urls)} files with deletion vectors, found {len(names)} ids.",
            table.query(),
        )
    if {name for _, name in ids(again)} != names:
        raise Failed("Expected the same ids of deletion vectors in a second response, found others.", again)


@check(
    "delta.vector-bytes", Level.DELTA,
    "The bytes of a deletion vector have the size, the checksum and the number of rows that its descriptor states.",
    f"{_LOG}, Deletion Vector Format",
)  # fmt: skip
def _vector_bytes(server: Server) -> None:
    descriptor = msgspec.convert(_marked(_with_vectors(server))[0][2], DeletionVectorDescriptor)
    if descriptor.storage_type == "i":
        deletion_vectors.decode_inline(descriptor)
        return
    start, stop = deletion_vectors.byte_range(descriptor)
    answer = server.fetch(descriptor.path_or_inline_dv, Range=f"bytes={start}-{stop - 1}").require(200, 206)
    deletion_vectors.decode_file(answer.body, descriptor, base=start if answer.status == 206 else 0)


@check(
    "delta.vector-records", Level.DELTA,
    "A file with a deletion vector states the number of its records, and it is that of the Parquet file.",
    f"{_LOG}, Per-file Statistics",
)  # fmt: skip
def _vector_records(server: Server) -> None:
    table = _with_vectors(server)
    _, add, _ = _marked(table)[0]
    if "numRecords" not in json.loads(add.get("stats") or "{}"):
        raise Failed("Expected numRecords in the stats of a file with a deletion vector.", table.query())
    rows = footer_of(server, add["path"], add["size"]).metadata.num_rows
    if records_of(add["stats"]) != rows:
        raise Failed(f"Expected {rows} numRecords, as in the Parquet file, found {records_of(add['stats'])}.")
