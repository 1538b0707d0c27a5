"""Checks of tables in parquet format: metadata, data queries, capabilities, and ids of files."""

from __future__ import annotations

import datetime as dt
import functools
import io
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_sharing_client.checks import forms
from delta_sharing_client.checks.check import Failed, Level, NotOffered, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.listing_checks import difference
from delta_sharing_client.checks.shared_tables import CAPABILITIES, PARQUET, SharedTable, plain, table_with

_SPEC = "Delta Sharing Protocol"
_QUERY = "Read Data from a Table"
_LEVEL = Level.PARQUET
_MOST_FILE_BYTES = 8 * 1024 * 1024
_INTEGERS = ("long", "integer", "short", "byte")
_NUMBERS = (*_INTEGERS, "double")
_ACTIONS = frozenset(("protocol", "metaData", "file", "add", "cdf", "remove", "endStreamAction"))
Line = dict[str, Any]


def partitioned(server: Server) -> SharedTable:
    """Return a table with partition columns and two files or more in parquet format."""
    return table_with(
        server, "a table with a partition column and two files, that parquet format can represent",
        lambda table: metadata_of(table.query(PARQUET))["partitionColumns"] and len(table.files(PARQUET)) > 1,
    )  # fmt: skip


def with_statistics(server: Server) -> SharedTable:
    """Return a table in parquet format, each of whose files has statistics."""
    return table_with(
        server, "a table whose files have statistics, that parquet format can represent",
        lambda table: (files := table.files(PARQUET)) and all(statistics(file)["numRecords"] > 0 for file in files),
    )  # fmt: skip


def metadata_of(answer: Answer) -> dict[str, Any]:
    """Return the contents of the second line, the metadata."""
    found: dict[str, Any] = answer.require().lines()[1]["metaData"]
    return found


def statistics(file: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics of a file."""
    found: dict[str, Any] = json.loads(file["stats"])
    return found


def fields_of(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the types of the columns, by name."""
    return {field["name"]: field["type"] for field in json.loads(metadata["schemaString"])["fields"]}


# --- the version ---


@check(
    "query-version.header", _LEVEL, "The version of a table is a number in the header Delta-Table-Version.",
    f"{_SPEC}, Query Table Version",
)  # fmt: skip
def _version(server: Server) -> None:
    answer = server.get(*plain(server).path, "version", headers=PARQUET).require()
    found = answer.headers.get("Delta-Table-Version", "")
    if not found.isascii() or not found.isdigit():
        raise Failed(f"Expected a number in the header Delta-Table-Version, found '{found}'.", answer)


@check(
    "query-version.empty-body", _LEVEL, "The response with the version has no body.", f"{_SPEC}, Query Table Version"
)
def _no_body(server: Server) -> None:
    answer = server.get(*plain(server).path, "version").require()
    if answer.body:
        raise Failed(f"Expected no body, found {len(answer.body)} bytes.", answer)


# --- what metadata and queries have in common ---


def _content_type(table: SharedTable, answer: Answer) -> None:
    found = answer.headers.get("Content-Type", "")
    if found.partition(";")[0].strip().lower() != "application/x-ndjson":
        raise Failed(f"Expected the content type application/x-ndjson, found '{found}'.", answer)


def _table_version(table: SharedTable, answer: Answer) -> None:
    found = answer.headers.get("Delta-Table-Version", "")
    first = table.server.get(*table.path, "version").headers.get("Delta-Table-Version", "")
    if not first.isdigit():
        raise NotTestable("The version of the table would need to be right.")
    if not found.isdigit() or int(found) != int(first):
        # The table may have got a new version in between.
        last = table.server.get(*table.path, "version", fresh=True).headers["Delta-Table-Version"]
        if not found.isdigit() or not int(first) <= int(found) <= int(last):
            raise Failed(f"Expected version {last} in the header Delta-Table-Version, found '{found}'.", answer)


def _order(table: SharedTable, answer: Answer) -> None:
    lines = answer.lines()
    for place, name in enumerate(("protocol", "metaData")):
        found = ", ".join(lines[place]) if place < len(lines) else "no line"
        if place >= len(lines) or name not in lines[place]:
            raise Failed(f"Expected '{name}' in line {place + 1}, found {found}.", answer)
    is_query = answer.asked.startswith("POST")
    for number, line in enumerate(lines[2:], start=3):
        is_end = number == len(lines) and "endStreamAction" in line
        if not is_end and not (is_query and "file" in line):
            expected = "'file'" if is_query else "no line after the metadata"
            raise Failed(f"Expected {expected}, found {', '.join(line)} in line {number}.", answer)


def _one_action(table: SharedTable, answer: Answer) -> None:
    for number, line in enumerate(answer.lines(), start=1):
        found = sorted(_ACTIONS & line.keys())
        if len(found) != 1:
            raise Failed(f"Expected one action in line {number}, found {', '.join(found) or 'none'}.", answer)


def _form_of_line(place: int, form: str, table: SharedTable, answer: Answer) -> None:
    if (problem := forms.problem(answer.lines()[place], form)) is not None:
        raise Failed(f"Line {place + 1}: {problem}", answer)


Ask = Callable[[SharedTable, dict[str, str]], Answer]
_RESPONSES: tuple[tuple[str, str, Ask], ...] = (
    ("metadata", "Query Table Metadata", SharedTable.metadata),
    ("query", _QUERY, SharedTable.query),
)
_COMMON: tuple[tuple[str, str, str | None, Callable[[SharedTable, Answer], None]], ...] = (
    ("content-type", "the content type is application/x-ndjson.", None, _content_type),
    ("table-version", "the header Delta-Table-Version is the current version.", None, _table_version),
    ("order-of-lines", "the protocol comes first, then the metadata, then (of a query) files.", None, _order),
    ("one-action-a-line", "each line has one action.", "JSON Wrapper Object In Each Line", _one_action),
    ("protocol", "the protocol has the form of the specification.", "Protocol",
     functools.partial(_form_of_line, 0, "ParquetProtocol")),
    ("metadata", "the metadata has the form of the specification.", "Metadata",
     functools.partial(_form_of_line, 1, "ParquetMetadata")),
)  # fmt: skip


def _require(ask: Ask, test: Callable[[SharedTable, Answer], None], server: Server) -> None:
    table = plain(server)
    test(table, ask(table, PARQUET).require())


for _api, _title, _ask in _RESPONSES:
    for _name, _statement, _section, _test in _COMMON:
        check(f"{_api}.{_name}", _LEVEL, f"{_title}: {_statement}", f"{_SPEC}, {_section or _title}")(
            functools.partial(_require, _ask, _test)
        )


# --- the schema ---

_PRIMITIVE = frozenset(
    (
        *("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp"),
        "decimal",
    )
)
# The types of types that are objects, with the keys of the types in them.
_NESTED = {"array": ("elementType",), "map": ("keyType", "valueType")}
_FLAGS = {"array": "containsNull", "map": "valueContainsNull"}
_FORMS: dict[type, str] = {str: "text", int: "a number", bool: "true or false", dict: "an object"}


def _type_problem(kind: Any, place: str) -> str | None:
    """Return what is wrong with a type, as a sentence."""
    if isinstance(kind, str):
        known = kind.partition("(")[0] in _PRIMITIVE
        return None if known else f"Expected a primitive type of the specification for {place}, found '{kind}'."
    if not isinstance(kind, dict) or kind.get("type") not in (*_NESTED, "struct"):
        return f"Expected a type for {place}, found {json.dumps(kind)[:80]}."
    if (name := kind["type"]) == "struct":
        return _struct_problem(kind, f"{place}.")
    if not isinstance(kind.get(_FLAGS[name]), bool):
        return f"Expected true or false as '{_FLAGS[name]}' of {place}, found {json.dumps(kind.get(_FLAGS[name]))}."
    problems = (_type_problem(kind.get(key), f"{place}.{key}") for key in _NESTED[name])
    return next(filter(None, problems), None)


def _struct_problem(struct: Any, place: str = "") -> str | None:
    if not isinstance(struct, dict) or struct.get("type") != "struct" or not isinstance(struct.get("fields"), list):
        return f"Expected a struct with fields for {place or 'the schema'}, found {json.dumps(struct)[:80]}."
    for field in struct["fields"]:
        parts = {"name": str, "nullable": bool, "metadata": dict}
        wrong = next((key for key, form in parts.items() if not isinstance(field.get(key), form)), None)
        if wrong is not None:
            return (
                f"Expected {_FORMS[parts[wrong]]} as '{wrong}' of the field {place}{field.get('name')}, found "
                f"{json.dumps(field.get(wrong))[:80]}."
            )
        if (problem := _type_problem(field.get("type"), place + field["name"])) is not None:
            return problem
    return None


@check("metadata.schema", _LEVEL, "The schemaString is a schema, serialized as JSON.", f"{_SPEC}, Schema Object")
def _schema(server: Server) -> None:
    answer = plain(server).metadata(PARQUET)
    if (problem := _struct_problem(json.loads(metadata_of(answer)["schemaString"]))) is not None:
        raise Failed(problem, answer)


@check("metadata.partition-columns", _LEVEL, "The partitionColumns are columns of the schema.", f"{_SPEC}, Metadata")
def _partition_columns(server: Server) -> None:
    answer = partitioned(server).metadata(PARQUET)
    columns = fields_of(metadata_of(answer))
    for name in metadata_of(answer)["partitionColumns"]:
        if name not in columns:
            raise Failed(f"Expected a column called '{name}', as in partitionColumns, found none.", answer)


# --- files ---


def _files(server: Server, find: Callable[[Server], SharedTable]) -> Iterator[tuple[Answer, dict[str, Any]]]:
    answer = find(server).query(PARQUET)
    for line in answer.require().lines():
        if "file" in line:
            yield answer, line["file"]


@check("query.files", _LEVEL, "Each file has the form of the specification.", f"{_SPEC}, File")
def _file_form(server: Server) -> None:
    for answer, file in _files(server, plain):
        if (problem := forms.problem({"file": file}, "ParquetFile")) is not None:
            raise Failed(problem, answer)


@check("query.partition-keys", _LEVEL, "Each file has a value for each partition column.", f"{_SPEC}, File")
def _partition_keys(server: Server) -> None:
    for find in (plain, partitioned):
        for answer, file in _files(server, find):
            expected, found = sorted(metadata_of(answer)["partitionColumns"]), sorted(file["partitionValues"])
            if found != expected:
                raise Failed(
                    f"Expected partitionValues of {expected}, as in partitionColumns, for the file '{file['id']}'; "
                    f"found {found}.", answer,
                )  # fmt: skip


def _is_value(text: str, kind: Any) -> bool:
    """Return whether a partition value has the serialization of its type."""
    name = kind.partition("(")[0] if isinstance(kind, str) else ""
    try:
        if name in _INTEGERS:
            return text == str(int(text))
        if name in ("float", "double", "decimal"):
            float(text)
        if name == "date":
            return dt.date.fromisoformat(text).isoformat() == text
        if name == "timestamp":
            dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return False
    return name != "boolean" or text in ("true", "false")


@check(
    "query.partition-values", _LEVEL, "Partition values are serialized as the specification says for their types.",
    f"{_SPEC}, Partition Value Serialization",
)  # fmt: skip
def _partition_values(server: Server) -> None:
    for answer, file in _files(server, partitioned):
        types = fields_of(metadata_of(answer))
        for name, value in file["partitionValues"].items():
            if value and name in types and not _is_value(value, types[name]):
                raise Failed(
                    f"Expected a {types[name]} as the partition value of '{name}', found '{value}'.", answer
                )  # fmt: skip


@check(
    "query.statistics", _LEVEL, "Statistics are a JSON object, whose numRecords is a number.",
    f"{_SPEC}, Per-file Statistics",
)  # fmt: skip
def _statistics_form(server: Server) -> None:
    for find in (plain, with_statistics):
        for answer, file in _files(server, find):
            if (text := file.get("stats")) is None:
                continue
            try:
                found = json.loads(text)
            except (TypeError, ValueError):
                found = None
            if not isinstance(found, dict):
                raise Failed(
                    f"Expected a JSON object as text in the stats of '{file['id']}', found {text!r:.80}.",
                    answer,
                )
            for name, form in (("numRecords", int), ("minValues", dict), ("maxValues", dict), ("nullCount", dict)):
                if not isinstance(value := found.get(name, form()), form):
                    raise Failed(
                        f"Expected {_FORMS[form]} as '{name}' in the stats of the file '{file['id']}', found "
                        f"{json.dumps(value)[:80]}.", answer,
                    )  # fmt: skip


def _read_file(server: Server) -> tuple[Answer, dict[str, Any], dict[str, Any], pq.ParquetFile]:
    """Return the smallest file with statistics, opened, with the response that has it."""

    def find() -> tuple[Answer, dict[str, Any], dict[str, Any], pq.ParquetFile]:
        table = with_statistics(server)
        file = min(table.files(PARQUET), key=lambda file: int(file["size"]))
        if file["size"] > _MOST_FILE_BYTES:
            raise NotTestable(f"The share would need a file of at most {_MOST_FILE_BYTES} bytes, with statistics.")
        body = server.fetch(file["url"]).require().body
        return table.query(PARQUET), file, statistics(file), pq.ParquetFile(io.BytesIO(body))

    return server.found("a file with statistics", find)


@check("query.num-records", _LEVEL, "The numRecords of a file are its number of rows.", f"{_SPEC}, Per-file Statistics")
def _num_records(server: Server) -> None:
    answer, file, stats, content = _read_file(server)
    if stats["numRecords"] != content.metadata.num_rows:
        raise Failed(
            f"Expected the {content.metadata.num_rows} rows of the file '{file['id']}' as its numRecords, found "
            f"{stats['numRecords']}.", answer,
        )  # fmt: skip


@check(
    "query.bounds", _LEVEL, "The values of a column lie between the minValues and maxValues of its file.",
    f"{_SPEC}, Per-file Statistics",
)  # fmt: skip
def _bounds(server: Server) -> None:
    answer, file, stats, content = _read_file(server)
    types = fields_of(metadata_of(answer))
    # Statistics of texts and times may be rounded.
    numbers = (name for name in content.schema_arrow.names if types.get(name) in _NUMBERS)
    for name in numbers:
        lowest, highest = stats.get("minValues", {}).get(name), stats.get("maxValues", {}).get(name)
        found = pc.min_max(content.read([name])[name]).as_py()
        if found["min"] is None or isinstance(lowest, str) or isinstance(highest, str):
            continue
        if (lowest is not None and found["min"] < lowest) or (highest is not None and found["max"] > highest):
            raise Failed(
                f"Expected values of '{name}' from {lowest} to {highest} in the file '{file['id']}', as in its "
                f"statistics; found {found['min']} to {found['max']}.", answer,
            )  # fmt: skip


@check(
    "query.one-page", _LEVEL, "A query that asks for no pages has all files in one response.", f"{_SPEC}, Request Body"
)
def _one_page(server: Server) -> None:
    for find in (plain, partitioned):
        answer = find(server).query(PARQUET)
        if answer.lines()[-1].get("endStreamAction", {}).get("nextPageToken"):
            raise Failed("Expected all files, because the query asks for no pages; found a nextPageToken.", answer)


@check("query.unique-file-ids", _LEVEL, "Each file has its own id.", f"{_SPEC}, File")
def _unique_ids(server: Server) -> None:
    answer = partitioned(server).query({CAPABILITIES: f"{PARQUET[CAPABILITIES]};readerfeatures="})
    ids = ids_of(answer)
    twice = next((one for one, following in itertools.pairwise(ids) if one == following), None)
    if twice is not None:
        raise Failed(f"Expected a different id for each file, found '{twice}' twice.", answer)


def ids_of(answer: Answer) -> list[str]:
    """Return the ids of the files, sorted."""
    return sorted(str(line["file"]["id"]) for line in answer.require().lines() if "file" in line)


def _require_same_ids(first: Answer, again: Answer, where: str) -> None:
    same_version = first.headers.get("Delta-Table-Version") == again.headers.get("Delta-Table-Version")
    if same_version and ids_of(first) != ids_of(again):
        told = difference(ids_of(first), ids_of(again))
        raise Failed(f"Expected the same ids of files {where}, found others: {told}.", again)


@check("query.stable-file-ids", _LEVEL, "A file has the same id in each response.", f"{_SPEC}, File")
def _stable_ids(server: Server) -> None:
    table = partitioned(server)
    _require_same_ids(table.query(PARQUET), table.query(PARQUET, fresh=True), "in a second response")


# --- capabilities ---


def format_of(answer: Answer) -> str:
    """Return the format of a response, by its first line."""
    return "delta" if "deltaProtocol" in answer.require().lines()[0]["protocol"] else "parquet"


@check(
    "capabilities.parquet-by-default", _LEVEL, "Without the capabilities header, the response has parquet format.",
    f"{_SPEC}, responseFormat",
)  # fmt: skip
def _default(server: Server) -> None:
    for answer in (plain(server).query({}), plain(server).metadata({})):
        if format_of(answer) != "parquet":
            raise Failed("Expected parquet format for a request without capabilities, found delta format.", answer)


@check(
    "capabilities.one-format", _LEVEL, "If a request names one format, the response has it.", f"{_SPEC}, responseFormat"
)
def _one_format(server: Server) -> None:
    table = plain(server)
    answers = [
        (name, table.query({CAPABILITIES: f"responseformat={name};readerfeatures="})) for name in ("parquet", "delta")
    ]
    if format_of(answers[1][1]) == "parquet" and CAPABILITIES not in answers[1][1].headers:
        raise NotOffered("The server ignores the capabilities header: it answers in parquet format.")
    for name, answer in answers:
        if format_of(answer) != name:
            raise Failed(f"Expected {name} format, as requested, found {format_of(answer)} format.", answer)


@check(
    "capabilities.case", _LEVEL, "Names and values in the capabilities header are case-insensitive.",
    f"{_SPEC}, Delta Sharing Capabilities Header",
)  # fmt: skip
def _capabilities_case(server: Server) -> None:
    table = plain(server)
    text = "responseformat=delta"
    if format_of(table.query({CAPABILITIES: text})) != "delta":
        raise NotOffered("The server ignores the capabilities header: it answers in parquet format.")
    for spelling in (text.upper(), "responseFormat=Delta"):
        answer = table.query({CAPABILITIES: spelling})
        if format_of(answer) != "delta":
            raise Failed(f"Expected delta format for '{spelling}', as for '{text}'; found parquet format.", answer)


# --- the end of a stream ---

_END_STREAM = {CAPABILITIES: "responseformat=parquet;includeendstreamaction=true"}


def _with_end(server: Server) -> list[tuple[Answer, bool, dict[str, Any] | None]]:
    """Return responses with whether they promise an EndStreamAction, and the one that they have."""
    results = []
    for _, _, ask in _RESPONSES:
        answer = ask(plain(server), _END_STREAM).require()
        told = answer.headers.get(CAPABILITIES, "").lower().replace(" ", "").split(";")
        results.append((answer, "includeendstreamaction=true" in told, answer.lines()[-1].get("endStreamAction")))
    if not any(promised or end is not None for _, promised, end in results):
        raise NotOffered("The server does not send an EndStreamAction.")
    return results


@check(
    "end-stream.promised", _LEVEL, "If the response header has includeEndStreamAction=true, the last line is an "
    "EndStreamAction.", f"{_SPEC}, includeEndStreamAction",
)  # fmt: skip
def _promised_end(server: Server) -> None:
    for answer, promised, end in _with_end(server):
        if promised and end is None:
            raise Failed(
                "Expected an EndStreamAction as the last line, as the response header says; found none.", answer
            )


@check(
    "end-stream.announced", _LEVEL, "If a request has includeEndStreamAction=true and the response ends with an "
    "EndStreamAction, the response header says so.", f"{_SPEC}, includeEndStreamAction",
)  # fmt: skip
def _announced_end(server: Server) -> None:
    for answer, promised, end in _with_end(server):
        # Servers that do not know the capability send one with these.
        if end is not None and not promised and not {"refreshToken", "nextPageToken"} & end.keys():
            raise Failed(
                f"Expected includeEndStreamAction=true in the header {CAPABILITIES} of a response with an "
                f"EndStreamAction, found '{answer.headers.get(CAPABILITIES, '')}'.", answer,
            )  # fmt: skip


@check("end-stream.form", _LEVEL, "An EndStreamAction has the form of the specification.", f"{_SPEC}, EndStreamAction")
def _end_form(server: Server) -> None:
    for answer, _, end in _with_end(server):
        if end is not None and (problem := forms.problem({"endStreamAction": end}, "EndStreamAction")) is not None:
            raise Failed(problem, answer)


@check(
    "end-stream.expiration", _LEVEL, "The minUrlExpirationTimestamp is the first time at which a URL of the response "
    "expires.", f"{_SPEC}, EndStreamAction",
)  # fmt: skip
def _expiration(server: Server) -> None:
    answer, _, end = _with_end(server)[1]
    times = [line["file"].get("expirationTimestamp") for line in answer.lines() if "file" in line]
    if end is None or end.get("minUrlExpirationTimestamp") is None or None in times:
        raise NotOffered("The server does not say when URLs expire, in the files and in an EndStreamAction.")
    if end["minUrlExpirationTimestamp"] != min(times):
        raise Failed(
            f"Expected the minUrlExpirationTimestamp {min(times)}, as the first of the files; found "
            f"{end['minUrlExpirationTimestamp']}.", answer,
        )  # fmt: skip


# --- the scheme of file ids ---

_HASH = "fileidhash"


def _hashed(server: Server, scheme: str, capabilities: str = "parquet", *, fresh: bool = False) -> Answer:
    headers = {CAPABILITIES: f"responseformat={capabilities}", _HASH: scheme}
    answer = plain(server).query(headers, fresh=fresh)
    if answer.status == 200 and _HASH not in answer.headers:
        raise NotOffered(f"The response has no header {_HASH}: the server does not let clients choose the scheme.")
    return answer


@check(
    "file-id-hash.echo", _LEVEL, "The response has the header fileidhash of the request, in lower case.",
    f"{_SPEC}, Response Header",
)  # fmt: skip
def _echo(server: Server) -> None:
    for scheme in ("parquet", "delta", "PARQUET"):
        answer = _hashed(server, scheme).require()
        if (found := answer.headers[_HASH]) != scheme.lower():
            raise Failed(f"Expected '{scheme.lower()}' in the header {_HASH}, found '{found}'.", answer)


@check(
    "file-id-hash.unsupported", _LEVEL, "A value of fileidhash other than parquet and delta has status 400.",
    f"{_SPEC}, Supported Values",
)  # fmt: skip
def _unsupported_hash(server: Server) -> None:
    _hashed(server, "parquet")
    if (answer := _hashed(server, "crc32")).status != 400:
        raise Failed(f"Expected status 400 for {_HASH}: crc32, found {answer.status}.", answer)


@check(
    "file-id-hash.stable", _LEVEL, "With one scheme, a file has the same id in each response.",
    f"{_SPEC}, File ID Hash Header",
)  # fmt: skip
def _stable_hash(server: Server) -> None:
    for scheme in ("parquet", "delta"):
        first = _hashed(server, scheme)
        _require_same_ids(first, _hashed(server, scheme, fresh=True), f"in a second response with {_HASH}: {scheme}")
        _require_same_ids(first, _hashed(server, scheme, "delta"), f"with {_HASH}: {scheme} in delta format")
