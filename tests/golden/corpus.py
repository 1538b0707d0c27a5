"""The golden corpus: tables written by other engines, and the rows that a reader must return.

``DELTA_GOLDEN_TABLES`` names the directory; its README describes the layout. This module does not use the client:
rows are Arrow tables, compared as multisets of canonical values.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import functools
import json
import math
import os
import pathlib
import shutil
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

ENVIRONMENT = "DELTA_GOLDEN_TABLES"


@functools.cache
def folder() -> pathlib.Path | None:
    """Return the directory that the environment names, or ``None``; raise ``FileNotFoundError`` if it does not
    exist."""
    named = os.environ.get(ENVIRONMENT)
    if not named:
        return None
    path = pathlib.Path(named)
    if not path.is_dir():
        raise FileNotFoundError(f"{ENVIRONMENT} names {path}, which is not a folder")
    return path


@dataclasses.dataclass(frozen=True)
class GoldenTable:
    """A table of the corpus with its expected rows."""

    name: str
    path: pathlib.Path
    expected: Mapping[str, object]

    @property
    def outcome(self) -> str:
        return str(self.expected["outcome"])

    @property
    def latest_version(self) -> int:
        return int(self.expected["latest_version"])  # type: ignore[call-overload,no-any-return]

    @property
    def versions(self) -> Mapping[int, Mapping[str, object]]:
        listed: Mapping[str, Mapping[str, object]] = self.expected.get("versions") or {}  # type: ignore[assignment]
        return {int(version): facts for version, facts in listed.items()}

    @property
    def change_queries(self) -> Sequence[Mapping[str, object]]:
        path = self.path / "expected_cdf.json"
        return json.loads(path.read_text(encoding="utf-8"))["queries"] if path.exists() else []

    def stage(self, target: pathlib.Path) -> pathlib.Path:
        """Copy the table to ``target`` and apply its ``setup`` steps (placeholder paths, commit times)."""
        shutil.copytree(self.path / "delta", target)
        target.chmod(0o755)
        for directory, _, files in os.walk(target):
            os.chmod(directory, 0o755)
            for file in files:
                os.chmod(os.path.join(directory, file), 0o644)
        steps: Sequence[Mapping[str, object]] = self.expected.get("setup") or []  # type: ignore[assignment]
        for step in steps:
            path = target / str(step["file"])
            if step["op"] == "replace":
                replacement = str(step["with"]).replace("{TABLE}", str(target.absolute()))
                path.write_text(path.read_text(encoding="utf-8").replace(str(step["find"]), replacement), "utf-8")
        for step in steps:
            if step["op"] == "mtime":
                seconds = int(step["ms"]) / 1000  # type: ignore[call-overload]
                os.utime(target / str(step["file"]), (seconds, seconds))
        return target

    def expected_rows(self, version: int, schema: pa.Schema) -> collections.Counter[object] | None:
        """Return the expected rows of ``version`` as canonical values, or ``None`` if the corpus only has checks of
        columns."""
        directory = self.path / f"expected_v{version}"
        if version == self.latest_version and not directory.is_dir():
            directory = self.path / "expected"
        if directory.is_dir():
            # Some INT96 timestamps in the corpus are outside the range of nanoseconds.
            parts = [
                pq.read_table(file, coerce_int96_timestamp_unit="us") for file in sorted(directory.glob("*.parquet"))
            ]
            return collections.Counter(row for part in parts for row in arrow_rows(conform(part, schema)))
        if version == self.latest_version and self.expected.get("rows") is not None:
            return collections.Counter(json_rows(self.expected["rows"], schema))  # type: ignore[arg-type]
        return None

    def checks(self, version: int) -> Mapping[str, Mapping[str, object]]:
        facts = self.versions.get(version) or {}
        if version == self.latest_version and "checks" not in facts:
            facts = self.expected
        return facts.get("checks") or {}  # type: ignore[return-value]

    def row_count(self, version: int) -> int | None:
        facts = self.versions.get(version)
        if facts is not None and "rows" in facts:
            return int(facts["rows"])  # type: ignore[call-overload,no-any-return]
        return int(self.expected["row_count"]) if version == self.latest_version else None  # type: ignore[call-overload,no-any-return]


def tables() -> list[GoldenTable]:
    """Return every table of the corpus, sorted by name; an empty list if the environment names no corpus."""
    root = folder()
    if root is None:
        return []
    return [
        GoldenTable(path.parent.name, path.parent, json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(root.glob("*/expected.json"))
    ]


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast ``table`` to ``schema``: files of expected rows may have different types than the table (INT96,
    nullability)."""
    by_name = {name.lower(): name for name in table.column_names}
    columns = []
    for field in schema:
        column = table[by_name[field.name.lower()]]
        target = field.type
        stamps = pa.types.is_timestamp(target) and pa.types.is_timestamp(column.type)
        if stamps and (target.tz is None) != (column.type.tz is None):
            column = reinterpret(column, target)
        columns.append(column if pa.types.is_nested(target) else column.cast(target))
    return pa.Table.from_arrays(columns, names=schema.names)


def reinterpret(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Reinterpret timestamps without a zone as UTC, or the reverse, without shifting them."""
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).cast(target)


def arrow_rows(table: pa.Table) -> Iterable[tuple[object, ...]]:
    """Yield the rows of ``table`` as canonical, hashable values."""
    columns = [
        [canonical(value, field.type) for value in values(column)]
        for field, column in zip(table.schema, table.columns, strict=True)
    ]
    if not columns:
        return iter([()] * table.num_rows)
    return zip(*columns, strict=True)


def values(column: pa.ChunkedArray) -> list[object]:
    """Like ``to_pylist``, but with timestamps as integers of microseconds, because Python's end at the year 9999 and
    need time zone data."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return column.to_pylist()


def json_rows(rows: Iterable[Sequence[object]], schema: pa.Schema) -> Iterable[tuple[object, ...]]:
    """Yield the JSON rows of the corpus in the canonical form of ``arrow_rows``."""
    for row in rows:
        yield tuple(canonical_json(value, field.type) for value, field in zip(row, schema, strict=True))


def canonical(value: object, data_type: pa.DataType) -> object:
    """Convert a Python value of Arrow to a hashable value for comparison by meaning (NaN equals NaN, 1.0 is not 1)."""
    if value is None:
        return None
    if pa.types.is_floating(data_type):
        return ("float", "NaN" if math.isnan(value) else repr(float(value) + 0.0))  # type: ignore[arg-type]
    if pa.types.is_timestamp(data_type):
        micros = value if isinstance(value, int) else _micros(value)  # type: ignore[arg-type]
        return ("ntz" if data_type.tz is None else "utc", micros)
    if pa.types.is_date(data_type):
        return ("date", value.isoformat())  # type: ignore[attr-defined]
    if pa.types.is_decimal(data_type):
        return (
            "decimal",
            str(decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-data_type.scale), context=_WIDE)),
        )  # type: ignore[arg-type]
    if isinstance(value, (bytes, bytearray)):
        return ("binary", bytes(value).hex())
    if pa.types.is_struct(data_type):
        return ("struct", tuple((f.name, canonical(value[f.name], f.type)) for f in data_type))  # type: ignore[index]
    if pa.types.is_map(data_type):
        pairs = [(canonical(k, data_type.key_type), canonical(v, data_type.item_type)) for k, v in value]  # type: ignore[attr-defined]
        return ("map", frozenset(collections.Counter(pairs).items()))
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return ("list", tuple(canonical(item, data_type.value_type) for item in value))  # type: ignore[attr-defined]
    if isinstance(value, str) and value[:1] in ("{", "["):
        # variants are JSON text, in which the order of keys and spaces have no meaning
        return _json(json.loads(value))
    return value


def canonical_json(value: object, data_type: pa.DataType) -> object:
    """Convert a JSON value of the corpus to the form that ``canonical`` returns for the same Arrow value."""
    if value is None:
        return None
    if pa.types.is_floating(data_type):
        number = float(value)  # type: ignore[arg-type]
        if pa.types.is_float32(data_type):
            number = pa.scalar(number, pa.float32()).as_py()
        return canonical(number, data_type)
    if pa.types.is_timestamp(data_type):
        text = str(value)
        moment = datetime.datetime.strptime(text.rstrip("Z"), "%Y-%m-%dT%H:%M:%S.%f")
        return canonical(moment, data_type)
    if pa.types.is_date(data_type):
        return ("date", value)
    if pa.types.is_decimal(data_type):
        return canonical(decimal.Decimal(str(value)), data_type)
    if pa.types.is_binary(data_type):
        return ("binary", value)
    if pa.types.is_struct(data_type):
        return ("struct", tuple((f.name, canonical_json(value[f.name], f.type)) for f in data_type))  # type: ignore[index]
    if pa.types.is_map(data_type):
        pairs = [(canonical_json(k, data_type.key_type), canonical_json(v, data_type.item_type)) for k, v in value]  # type: ignore[attr-defined]
        return ("map", frozenset(collections.Counter(pairs).items()))
    if pa.types.is_list(data_type):
        return ("list", tuple(canonical_json(item, data_type.value_type) for item in value))  # type: ignore[attr-defined]
    if pa.types.is_string(data_type) and not isinstance(value, str):
        return _json(value)
    return canonical(value, data_type)


def column_facts(table: pa.Table, name: str) -> dict[str, object]:
    """Compute the ``checks`` that the corpus has for a column (nulls, minimum, ...) from our rows."""
    field = table.schema.field(name)
    held = [value for value in values(table[name]) if value is not None]
    facts: dict[str, object] = {"nulls": len(table) - len(held)}
    data_type = field.type
    if pa.types.is_boolean(data_type):
        facts["true"] = sum(held)  # type: ignore[arg-type]
    elif pa.types.is_integer(data_type):
        facts.update(min=min(held, default=None), max=max(held, default=None), sum=sum(held) if held else None)  # type: ignore[type-var,arg-type]
    elif pa.types.is_decimal(data_type):
        total = sum(held, decimal.Decimal(0)) if held else None  # type: ignore[arg-type]
        facts.update(min=_text(min(held, default=None)), max=_text(max(held, default=None)), sum=_text(total))  # type: ignore[type-var]
    elif pa.types.is_floating(data_type):
        numbers = [value for value in held if not math.isnan(value)]  # type: ignore[arg-type]
        facts.update(min=min(numbers, default=None), max=max(numbers, default=None))  # type: ignore[type-var]
    elif not pa.types.is_nested(data_type) and not pa.types.is_null(data_type):
        texts = [_check_text(value, data_type) for value in held]
        facts.update(min=min(texts, default=None), max=max(texts, default=None), distinct=len(set(texts)))
    return facts


def _check_text(value: object, data_type: pa.DataType) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if pa.types.is_timestamp(data_type):
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=value)  # type: ignore[arg-type]
        text = moment.strftime("%Y-%m-%dT%H:%M:%S.%f")
        return text + ("Z" if data_type.tz else "")
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def _json(value: object) -> object:
    return ("json", json.dumps(value, sort_keys=True))


def _text(value: object) -> str | None:
    return None if value is None else format(value, "f") if isinstance(value, decimal.Decimal) else str(value)


def _micros(value: datetime.datetime) -> int:
    return (value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)


_WIDE = decimal.Context(prec=80)
