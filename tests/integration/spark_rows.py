"""The tables of ``tests/tables_spark``, and an exact comparison of rows, with the types that Spark wrote to the log.

The client is not used here: types come from the JSON of the log, and expected rows come from Spark.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
import json
import math
import pathlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tables_spark"

_ARROW = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": pa.string(),  # as JSON text, like the client's default
}


@dataclasses.dataclass(frozen=True)
class SparkTable:
    """A table written by Delta Lake for Spark, with the rows that Spark reads."""

    name: str

    @property
    def path(self) -> pathlib.Path:
        return FOLDER / self.name / "delta"

    @functools.cached_property
    def expected(self) -> Mapping[str, Any]:
        return _json(FOLDER / self.name / "expected.json")

    @property
    def versions(self) -> list[int]:
        return sorted(int(version) for version in self.expected["versions"])

    @property
    def latest(self) -> int:
        return int(self.expected["latest_version"])

    @property
    def change_queries(self) -> Sequence[Mapping[str, Any]]:
        path = FOLDER / self.name / "expected_cdf.json"
        return _json(path)["queries"] if path.exists() else []

    def is_gone(self, version: int) -> bool:
        """Whether Spark could not read the version because its files were vacuumed."""
        return "refuse" in self.expected["versions"][str(version)]

    def rows(self, version: int) -> Sequence[Sequence[object]]:
        return self.expected["version_rows"][str(version)]

    def fields(self, version: int) -> list[Mapping[str, Any]]:
        """Return the fields of a version's schema, from the log that Spark wrote."""
        for earlier in range(version, -1, -1):
            commit = (self.path / "_delta_log" / f"{earlier:020d}.json").read_text(encoding="utf-8")
            for line in commit.splitlines():
                action = json.loads(line)
                if "metaData" in action:
                    return [sized(field) for field in json.loads(action["metaData"]["schemaString"])["fields"]]
        raise AssertionError(f"{self.name} has no schema at version {version}")


def tables() -> list[SparkTable]:
    """Return every table of the directory, sorted by name."""
    return [SparkTable(path.parent.name) for path in sorted(FOLDER.glob("*/expected.json"))]


def sized(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``field`` with ``char(n)`` in place of ``string`` where the column's metadata says so."""
    declared = field["metadata"].get("__CHAR_VARCHAR_TYPE_STRING", "")
    if declared.startswith("char("):
        return {**field, "type": declared}
    sizes = dict(re.findall(r"(\w+):(char\(\d+\))", declared))
    if not sizes:
        return field
    inner = [{**item, "type": sizes.get(item["name"], item["type"])} for item in field["type"]["fields"]]
    return {**field, "type": {**field["type"], "fields": inner}}


def arrow_type(kind: Any) -> pa.DataType:
    """Return the Arrow type for a type in a ``schemaString`` (documentation, "Types")."""
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            precision, scale = kind[len("decimal(") : -1].split(",")
            return pa.decimal128(int(precision), int(scale))
        if kind.startswith("char"):
            return pa.string()
        if kind.startswith("geo"):
            return pa.binary()
        return _ARROW[kind]
    if kind["type"] == "struct":
        return pa.struct([pa.field(field["name"], arrow_type(field["type"])) for field in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(arrow_type(kind["elementType"]))
    return pa.map_(arrow_type(kind["keyType"]), arrow_type(kind["valueType"]))


def expected_rows(rows: Iterable[Sequence[object]], kinds: Sequence[Any]) -> Counter[object]:
    """Convert rows of the JSON files to a multiset of canonical values."""
    return Counter(tuple(_from_json(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in rows)


def found_rows(table: pa.Table, kinds: Sequence[Any]) -> Counter[object]:
    """Convert the rows of ``table`` to a multiset of canonical values, for comparison with ``expected_rows``."""
    columns = [
        [_from_arrow(value, kind) for value in _values(column, kind)]
        for column, kind in zip(table.columns, kinds, strict=True)
    ]
    return Counter(zip(*columns, strict=True))


def _values(column: pa.ChunkedArray, kind: Any) -> list[Any]:
    # Spark's timestamps may be outside the range of Python's ``datetime``.
    plain = kind in ("timestamp", "timestamp_ntz")
    return (column.cast(pa.int64()) if plain else column).to_pylist()


def _from_json(value: Any, kind: Any) -> object:
    """Convert a JSON value to a hashable value that is equal only to the same value of the same type."""
    if kind == "variant":
        return _text(value)
    if value is None:
        return None
    if isinstance(kind, str):
        return _scalar_from_json(value, kind)
    if kind["type"] == "struct":
        return tuple((f["name"], _from_json(value[f["name"]], f["type"])) for f in kind["fields"])
    if kind["type"] == "array":
        return tuple(_from_json(item, kind["elementType"]) for item in value)
    return frozenset((_from_json(k, kind["keyType"]), _from_json(v, kind["valueType"])) for k, v in value)


def _scalar_from_json(value: Any, kind: str) -> object:
    if kind in ("float", "double"):
        return _float(float(value))
    if kind.startswith("decimal"):
        return _exact(decimal.Decimal(value))
    if kind.startswith("char"):
        # Spark pads with spaces when it reads; the files have no padding, and Delta has no such type.
        assert len(value) == int(kind[len("char(") : -1])
        return value.rstrip(" ")
    if kind in ("timestamp", "timestamp_ntz"):
        return _micros(datetime.datetime.strptime(value.rstrip("Z"), "%Y-%m-%dT%H:%M:%S.%f"))
    return value


def _from_arrow(value: Any, kind: Any) -> object:
    """Convert an Arrow value to the form that ``_from_json`` returns."""
    if value is None:
        return None
    if isinstance(kind, str):
        return _scalar_from_arrow(value, kind)
    if kind["type"] == "struct":
        return tuple((f["name"], _from_arrow(value[f["name"]], f["type"])) for f in kind["fields"])
    if kind["type"] == "array":
        return tuple(_from_arrow(item, kind["elementType"]) for item in value)
    return frozenset((_from_arrow(k, kind["keyType"]), _from_arrow(v, kind["valueType"])) for k, v in value)


def _scalar_from_arrow(value: Any, kind: str) -> object:
    if kind == "variant":
        return _text(json.loads(value))
    if kind in ("float", "double"):
        return _float(value)
    if kind.startswith("decimal"):
        return _exact(value)
    if kind in ("timestamp", "timestamp_ntz"):
        return value if isinstance(value, int) else _micros(value.replace(tzinfo=None))
    if kind == "date":
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else value


def _text(value: object) -> str | None:
    """Return a variant as JSON text; Spark's rows do not distinguish a null variant from a variant with a JSON null."""
    return None if value is None else json.dumps(value, sort_keys=True)


def _float(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value)


def _exact(value: decimal.Decimal) -> tuple[int, str]:
    return value.as_tuple().exponent, str(value)  # type: ignore[return-value]


def _micros(moment: datetime.datetime) -> int:
    return (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)


def _json(path: pathlib.Path) -> Mapping[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
