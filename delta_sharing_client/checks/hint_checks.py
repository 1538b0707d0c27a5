"""Checks of hints in queries: they skip files, but never a file with a matching row."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from typing import Any

from delta_sharing_client.checks.check import Failed, Level, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.parquet_checks import fields_of, ids_of, metadata_of, statistics
from delta_sharing_client.checks.shared_tables import PARQUET, SharedTable, table_with

_SPEC = "Delta Sharing Protocol"
_BODY = f"{_SPEC}, Request Body"
_JSON = f"{_SPEC}, JSON predicates for Filtering"
# The value types of the protocol, by the type of a column.
_KINDS = {"string": "string", "long": "long", "integer": "int", "date": "date", "boolean": "bool"}
_is_plain_name = re.compile(r"[A-Za-z_]\w*", re.ASCII).fullmatch
_is_plain_value = re.compile(r"[\w .:-]+").fullmatch


@dataclasses.dataclass(frozen=True)
class _Predicate:
    """``column operator value``, with the files that have matching rows, by their ids."""

    column: str
    kind: str
    value: str
    files: frozenset[str]
    at_least: bool = False

    @property
    def text(self) -> str:
        """The predicate in SQL."""
        value = f"'{self.value}'" if self.kind in ("string", "date") else self.value
        return f"{self.column} {'>=' if self.at_least else '='} {value}"

    def hints(self, dialect: str) -> dict[str, Any]:
        """Return the parameter of a query: ``sql`` or ``json``."""
        if dialect == "sql":
            return {"predicateHints": [self.text]}
        op = "greaterThanOrEqual" if self.at_least else "equal"
        return {"jsonPredicateHints": _comparison(op, self.column, self.kind, self.value)}


def _comparison(op: str, column: str, kind: str, value: str) -> str:
    leaves = [
        {"op": "column", "name": column, "valueType": kind},
        {"op": "literal", "value": value, "valueType": kind},
    ]
    return json.dumps({"op": op, "children": leaves})


# --- tables and predicates ---


def _on_partition(table: SharedTable) -> _Predicate | None:
    """Return a predicate for the partition of the last file, which not all files have."""
    metadata, files = metadata_of(table.query(PARQUET)), table.files(PARQUET)
    types = fields_of(metadata)
    for column in metadata["partitionColumns"]:
        value = files[-1]["partitionValues"].get(column)
        matching = [file["id"] for file in files if file["partitionValues"].get(column) == value]
        known = types.get(column) in _KINDS and _is_plain_name(column) and value and _is_plain_value(value)
        if known and len(matching) < len(files):
            return _Predicate(column, _KINDS[types[column]], value, frozenset(matching))
    return None


def _on_data(table: SharedTable) -> _Predicate | None:
    """Return a predicate for the largest value of a column of integers, by the statistics of the files."""
    metadata, files = metadata_of(table.query(PARQUET)), table.files(PARQUET)
    for column, kind in fields_of(metadata).items():
        if kind not in ("long", "integer") or column in metadata["partitionColumns"] or not _is_plain_name(column):
            continue
        highest = {file["id"]: statistics(file).get("maxValues", {}).get(column) for file in files}
        if len(files) > 1 and all(isinstance(value, int) for value in highest.values()):
            most = max(highest.values())
            matching = frozenset(one for one, value in highest.items() if value == most)
            return _Predicate(column, _KINDS[kind], str(most), matching, at_least=True)
    return None


def _with_partition(server: Server) -> tuple[SharedTable, _Predicate]:
    need = "a table in parquet format with files in two partitions of text, integers, dates or booleans"
    table = table_with(server, need, _on_partition)
    predicate = _on_partition(table)
    assert predicate is not None
    return table, predicate


def _with_data(server: Server) -> tuple[SharedTable, _Predicate]:
    need = "a table in parquet format with two files, with statistics of a column of integers"
    table = table_with(server, need, _on_data)
    predicate = _on_data(table)
    assert predicate is not None
    return table, predicate


# --- predicates ---


def _keeps_matches(dialect: str, of: str, server: Server) -> None:
    table, predicate = (_with_partition if of == "partition" else _with_data)(server)
    answer = table.query(PARQUET, **predicate.hints(dialect))
    if missing := sorted(predicate.files - set(ids_of(answer))):
        why = "partition value" if of == "partition" else "statistics"
        raise Failed(
            f"Expected all {len(predicate.files)} file(s) with rows where {predicate.text}; found no file "
            f"'{missing[0]}', which has such rows by its {why}.", answer,
        )  # fmt: skip


for _dialect, _title, _source in (
    ("sql", "SQL", f"{_SPEC}, SQL Expressions for Filtering"),
    ("json", "JSON", _JSON),
):
    for _of, _noun in (("partition", "a partition column"), ("data", "a column of the files")):
        check(
            f"query.{_dialect}-predicate-on-{_of}", Level.PARQUET, f"A {_title} predicate on {_noun} skips no file "
            "with a matching row.", _source,
        )(functools.partial(_keeps_matches, _dialect, _of))  # fmt: skip


def _wrong_hints(predicate: _Predicate) -> dict[str, dict[str, str]]:
    """Return predicates that a server must ignore, by what is wrong. Any part that was applied would match no file."""
    nothing = json.loads(_comparison("equal", predicate.column, predicate.kind, _no_value(predicate.kind)))
    column, literal = nothing["children"]

    def of(op: str, *children: object) -> str:
        return json.dumps({"op": op, "children": children})

    return {
        "syntax": {"is not JSON": "{", "is no object": "[]", "has an unknown operator": of("like", column, literal)},
        "unknown-column": {
            "names an unknown column": _comparison("equal", "conformance_no_such_column", "string", "x")
        },
        "wrong-children": {
            "has an isNull without a column": of("isNull"),
            "has an isNull with two columns": of("isNull", column, column),
            "has an equal with one leaf": of("equal", column),
            "has an equal with three leaves": of("equal", column, literal, literal),
            "has a lessThan with a child that is no leaf": of("lessThan", column, nothing),
            "has an 'and' without children": of("and"),
            "has an 'or' without children": of("or"),
            "has a 'not' without a child": of("not"),
            "has a 'not' with two children": of("not", nothing, nothing),
        },
    }


def _no_value(kind: str) -> str:
    return {"string": "conformance-no-such-value", "date": "1700-01-01", "bool": "maybe"}.get(kind, "-987654321")


def _ignores(which: str, server: Server) -> None:
    table, predicate = _with_partition(server)
    every = frozenset(ids_of(table.query(PARQUET)))
    for wrong, hint in _wrong_hints(predicate)[which].items():
        answer = table.query(PARQUET, jsonPredicateHints=hint).require()
        missing = every - set(ids_of(answer))
        if missing:
            raise Failed(
                f"Expected all {len(every)} files of the table, because the predicate {wrong}; found "
                f"{len(every) - len(missing)}.", answer,
            )  # fmt: skip


for _which, _statement, _source in (
    ("syntax", "A JSON predicate with invalid syntax is ignored: all files are returned.", _BODY),
    ("unknown-column", "A JSON predicate on an unknown column is ignored: all files are returned.", _BODY),
    ("wrong-children", "A JSON predicate whose operator has wrong children is ignored: isNull has one column, "
     "comparisons have two leaves, 'and' and 'or' two children or more, 'not' has one.", _JSON),
):  # fmt: skip
    check(f"query.json-predicate-{_which}", Level.PARQUET, _statement, _source)(functools.partial(_ignores, _which))


# --- limits ---


def _counts(answer: Answer) -> dict[str, int]:
    """Return the number of rows of each file, by its id."""
    files = [line["file"] for line in answer.require().lines() if "file" in line]
    return {str(file["id"]): statistics(file)["numRecords"] for file in files}


def _counted(server: Server) -> SharedTable:
    def fits(table: SharedTable) -> bool:
        counts = _counts(table.query(PARQUET)).values()
        return len(counts) > 1 and all(isinstance(count, int) and count > 0 for count in counts)

    return table_with(server, "a table in parquet format with two files, each with the statistic numRecords", fits)


@check("query.limit", Level.PARQUET, "With a limitHint, the files have as many rows or more, if the table has.", _BODY)
def _limit(server: Server) -> None:
    table = _counted(server)
    counts = list(_counts(table.query(PARQUET)).values())
    for limit in (1, counts[0] + 1, sum(counts) + 1):
        answer = table.query(PARQUET, limitHint=limit)
        expected, found = min(limit, sum(counts)), sum(_counts(answer).values())
        if found < expected:
            raise Failed(f"Expected at least {expected} rows with limitHint={limit}, found files with {found}.", answer)


def _matching_rows(answer: Answer, predicate: _Predicate) -> int:
    return sum(count for one, count in _counts(answer).items() if one in predicate.files)


def _limit_after(dialect: str, server: Server) -> None:
    table, predicate = _with_partition(server)
    try:
        matching = _matching_rows(table.query(PARQUET), predicate)
    except (KeyError, TypeError, ValueError):
        raise NotTestable("The share would need a table with two partitions, whose files have numRecords.") from None
    for limit in (1, matching):
        answer = table.query(PARQUET, **predicate.hints(dialect), limitHint=limit)
        if (found := _matching_rows(answer, predicate)) < limit:
            raise Failed(
                f"Expected at least {limit} rows where {predicate.text} in the files for limitHint={limit}, because "
                f"predicates come first; found {found}.", answer,
            )  # fmt: skip


for _dialect, _noun in (("sql", "predicateHints"), ("json", "jsonPredicateHints")):
    check(
        f"query.limit-after-{_dialect}-predicate", Level.PARQUET, f"The {_noun} are applied before the limitHint.",
        _BODY,
    )(functools.partial(_limit_after, _dialect))  # fmt: skip
