"""The types of a table's columns as values (Delta log protocol, "Schema Serialization Format")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Union

from delta_sharing_client.columns import ColumnPath as ColumnPath

PHYSICAL_NAME_KEY = "delta.columnMapping.physicalName"
FIELD_ID_KEY = "delta.columnMapping.id"
COLLATIONS_KEY = "__COLLATIONS"

_NUMBERS = ("long", "integer", "short", "byte", "float", "double")
_TIMES = ("date", "timestamp", "timestamp_ntz")
SIMPLE_TYPES = frozenset((*_NUMBERS, *_TIMES, "string", "boolean", "binary", "void", "variant"))
COLLATED = re.compile(r"string\s+collate\s+(\S+)\Z", re.IGNORECASE)
DAY_TIME_UNITS = ("day", "hour", "minute", "second")
YEAR_MONTH_UNITS = ("year", "month")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parameters that we interpret; ``name`` is the text of the schema (``"long"``, ``"char(5)"``)."""

    name: str

    @property
    def base(self) -> str:
        """The kind to switch on: ``"string"`` for every text type (char, varchar, collated),
        ``"day_time_interval"`` and ``"year_month_interval"`` for the interval types, ``name`` for all others."""
        if self.name in SIMPLE_TYPES:
            return self.name
        if self.name.startswith("interval "):
            return "year_month_interval" if self.name.split()[1] in YEAR_MONTH_UNITS else "day_time_interval"
        return "string"


@dataclass(frozen=True, slots=True)
class DecimalType:
    """An exact decimal of ``precision`` digits (1 to 38), ``scale`` of them after the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of ``element``."""

    element: DataType
    contains_null: bool = True


@dataclass(frozen=True, slots=True)
class MapType:
    """A map of ``key`` to ``value``; keys are never null."""

    key: DataType
    value: DataType
    value_contains_null: bool = True


@dataclass(frozen=True, slots=True)
class StructField:
    """A column, or a field of a nested struct, with its column metadata as parsed JSON."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def physical_name(self) -> str:
        """The name in data files, partition values and statistics under column mapping; ``name`` if none is given."""
        physical = self.metadata.get(PHYSICAL_NAME_KEY)
        return physical if isinstance(physical, str) else self.name

    @property
    def field_id(self) -> int | None:
        """The column id of column mapping (``field_id`` in Parquet), ``None`` where none is given."""
        value = self.metadata.get(FIELD_ID_KEY)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def collation(self) -> str | None:
        """The collation of a string column other than plain byte order, as the schema spells it, or ``None``.

        It changes what comparisons mean, not what the values are.
        """
        if isinstance(self.type, PrimitiveType) and (match := COLLATED.match(self.type.name)):
            return _unless_binary(match[1])
        collations = self.metadata.get(COLLATIONS_KEY)
        if isinstance(collations, Mapping):
            own = collations.get(self.name, collations.get(self.physical_name))
            return _unless_binary(own) if isinstance(own, str) else None
        return None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A column of a type that we cannot decode: its path, its type as the schema spells it, the table feature that the
    type belongs to (or the type itself), and why and what to do, in a sentence."""

    path: ColumnPath
    type: str
    feature: str
    reason: str


@dataclass(frozen=True, slots=True)
class StructType:
    """A record: the table's columns, or a nested struct. Names are unique regardless of case.

    ``left_out`` are further columns, which keep nobody from reading the others.
    """

    fields: tuple[StructField, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def names(self) -> list[str]:
        """The field names, in order."""
        return [item.name for item in self.fields]

    def find(self, name: str) -> StructField | None:
        """Return the field called ``name``, regardless of case, or ``None``."""
        wanted = name.lower()
        return next((item for item in self.fields if item.name == name or item.name.lower() == wanted), None)

    @property
    def all_left_out(self) -> tuple[LeftOut, ...]:
        """What is left out here and at every level below."""
        below = (found for item in self.fields for found in _left_out(item.type))
        return (*self.left_out, *below)

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)


DataType = Union[PrimitiveType, DecimalType, ArrayType, MapType, StructType]


def _left_out(data_type: DataType) -> tuple[LeftOut, ...]:
    if isinstance(data_type, StructType):
        return data_type.all_left_out
    if isinstance(data_type, ArrayType):
        return _left_out(data_type.element)
    if isinstance(data_type, MapType):
        return (*_left_out(data_type.key), *_left_out(data_type.value))
    return ()


def _unless_binary(collation: str) -> str | None:
    return None if collation.rpartition(".")[2].upper() == "UTF8_BINARY" else collation
