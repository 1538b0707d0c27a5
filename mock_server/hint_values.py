"""Columns, literals and statistics of a predicate hint: what is comparable, and what a file says of a column."""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Callable
from typing import Any, Union

import msgspec

from delta_sharing_client.delta.actions import AddFile
from delta_sharing_client.delta.data_types import PrimitiveType, StructField, StructType
from delta_sharing_client.delta.snapshot import Snapshot
from mock_server.hint_logic import UNKNOWN, NotUnderstood, Span, Value


class _FileStats(msgspec.Struct, rename="camel"):
    num_records: Union[int, None] = None
    min_values: dict[str, Any] = {}
    max_values: dict[str, Any] = {}
    null_count: dict[str, Any] = {}


_decode_stats = msgspec.json.Decoder(_FileStats).decode


class Kind(enum.Enum):
    """How values compare; a value type of a hint and a column's type must mean the same."""

    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    STRING = "string"
    DATE = "date"
    TIMESTAMP = "timestamp"


_KINDS = {
    "boolean": Kind.BOOL, "byte": Kind.INTEGER, "short": Kind.INTEGER, "integer": Kind.INTEGER,
    "long": Kind.INTEGER, "float": Kind.FLOAT, "double": Kind.FLOAT, "string": Kind.STRING, "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
}  # fmt: skip
_VALUE_TYPES = {
    "bool": Kind.BOOL, "boolean": Kind.BOOL, "int": Kind.INTEGER, "long": Kind.INTEGER, "float": Kind.FLOAT,
    "double": Kind.FLOAT, "string": Kind.STRING, "date": Kind.DATE, "timestamp": Kind.TIMESTAMP,
}  # fmt: skip


def _kind_of(field: StructField) -> Kind | None:
    # A collated column does not compare as its bytes do, in which its statistics are kept.
    if not isinstance(field.type, PrimitiveType) or field.collation is not None:
        return None
    return _KINDS.get(field.type.name)


def find_column(name: object, value_type: object, schema: StructType, *, any_type: bool = False) -> tuple[str, Kind]:
    """Return a column's own name and kind; `NotUnderstood` if it does not exist or compare as ``value_type`` says."""
    field = schema.find(name) if isinstance(name, str) else None
    if field is None:
        raise NotUnderstood(f"there is no column {name}")
    kind = _kind_of(field)
    if any_type:
        return field.name, kind or Kind.STRING
    if kind is None:
        raise NotUnderstood(f"columns of the type of {name} are not compared")
    if value_type is not None and _VALUE_TYPES.get(str(value_type)) is not kind:
        raise NotUnderstood(f"column {name} is {kind.value}, not {value_type}")
    return field.name, kind


def literal_bounds(text: str, kind: Kind) -> tuple[Value, Value]:
    """Return the bounds between which the literal lies; they differ where clients round."""
    value = parse_value(text, kind)
    if value is None:
        raise NotUnderstood(f"not a {kind.value}: {text[:100]}")
    if kind is Kind.TIMESTAMP:
        # The JVM client cuts literals to milliseconds, so this one may stand for any microsecond of it.
        assert isinstance(value, int)
        return value, value + 999
    return value, value


def parse_value(text: str, kind: Kind) -> Value | None:
    """Return a literal, partition value or statistic in a form that compares; ``None`` if it has none."""
    try:
        if kind is Kind.BOOL:
            return {"true": True, "false": False}[text.lower()]
        if kind is Kind.INTEGER:
            return int(text)
        if kind is Kind.FLOAT:
            number = float(text)
            return None if number != number else number
        if kind is Kind.DATE:
            return datetime.date.fromisoformat(text).toordinal()
        if kind is Kind.TIMESTAMP:
            return _micros(text)
    except (ValueError, KeyError):
        return None
    return text


_INSTANT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6})\d*)?Z").fullmatch


def _micros(text: str) -> int | None:
    """Microseconds since the epoch; a time without zone is not compared, as its zone is not known."""
    match = _INSTANT(text)
    if match is None:
        return None
    moment = datetime.datetime.fromisoformat(f"{match.group(1)}T{match.group(2)}")
    since = moment - datetime.datetime(1970, 1, 1)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + int((match.group(3) or "").ljust(6, "0"))


class SpanReader:
    """Gives the spans of a file's columns: exact for partition columns, from statistics for others."""

    def __init__(self, snapshot: Snapshot, with_stats: bool) -> None:
        self._with_stats = with_stats
        partitions = {name.lower() for name in snapshot.metadata.partition_columns}
        self._fields = {
            field.name: (field.physical_name, _kind_of(field), field.name.lower() in partitions)
            for field in snapshot.schema.fields
        }

    def of(self, add: AddFile) -> Callable[[str], Span]:
        """Return the span of a column of ``add`` by the column's name; statistics are decoded at most once."""
        stats: list[_FileStats | None] = []

        def span(name: str) -> Span:
            physical, kind, partitioned = self._fields[name]
            if partitioned:
                return _partition_span(add, physical, kind)
            if not self._with_stats or add.stats is None:
                return UNKNOWN
            if not stats:
                stats.append(_read_stats(add.stats))
            return UNKNOWN if stats[0] is None else _stats_span(stats[0], physical, kind)

        return span


def _partition_span(add: AddFile, physical: str, kind: Kind | None) -> Span:
    if physical not in add.partition_values:
        return UNKNOWN
    text = add.partition_values[physical]
    if text is None or text == "":
        return Span(None, None, values=False, nulls=True)
    value = None if kind is None else parse_value(text, kind)
    return Span(value, value, values=True, nulls=False)


def _read_stats(text: str) -> _FileStats | None:
    try:
        return _decode_stats(text)
    except msgspec.DecodeError:
        return None


def _stats_span(stats: _FileStats, physical: str, kind: Kind | None) -> Span:
    nulls = stats.null_count.get(physical)
    nulls = nulls if isinstance(nulls, int) and not isinstance(nulls, bool) else None
    has_values = not (nulls is not None and stats.num_records is not None and nulls >= stats.num_records > 0)
    lower = _stats_value(stats.min_values.get(physical), kind)
    upper = _stats_value(stats.max_values.get(physical), kind)
    if kind is Kind.FLOAT:
        upper = None  # NaN is greater than all numbers, and statistics leave it out
    elif kind is Kind.TIMESTAMP and isinstance(upper, int):
        upper += 999  # writers cut statistics to milliseconds
    elif kind is Kind.STRING and isinstance(upper, str) and "\ufffd" in upper:
        upper = None  # cut in the middle of a character: no bound
    return Span(lower, upper, values=has_values, nulls=nulls != 0)


def _stats_value(value: object, kind: Kind | None) -> Value | None:
    if kind is None or value is None:
        return None
    if kind in (Kind.DATE, Kind.TIMESTAMP, Kind.STRING):
        return parse_value(value, kind) if isinstance(value, str) else None
    if kind is Kind.BOOL:
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if kind is Kind.FLOAT or isinstance(value, int) else None
