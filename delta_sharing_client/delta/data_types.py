"""Column types as Python values (Delta log protocol, "Schema Serialization Format")."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Union

from delta_sharing_client.columns import ColumnPath as ColumnPath
from delta_sharing_client.lazy import lazy

PHYSICAL_NAME_KEY = "delta.columnMapping.physicalName"
FIELD_ID_KEY = "delta.columnMapping.id"
COLLATIONS_KEY = "__COLLATIONS"
TYPE_CHANGES_KEY = "delta.typeChanges"
INITIAL_DEFAULT_KEY = "iceberg.initialDefault"
WAS_UNKNOWN_KEY = "iceberg.wasUnknown"
"""Marks a column that had the type 'unknown', so that older files may not have it."""

COLLATED = re.compile(r"string\s+collate\s+(\S+)\Z", re.IGNORECASE)
_SIZED_TEXT = re.compile(r"(char|varchar)\(\s*(\d{1,10})\s*\)\Z")
_DEFAULT_CRS = "OGC:CRS84"
_CRS = r"(?P<crs>\{(?s:.*)\}|[^(),{}]+?)"  # a name, or a definition in PROJJSON
_GEOMETRY = re.compile(rf"geometry(?:\(\s*{_CRS}\s*\))?\Z", re.IGNORECASE)
_EDGES = "spherical|vincenty|thomas|andoyer|karney"  # the algorithms of Parquet, Iceberg and GeoArrow
_GEOGRAPHY = re.compile(
    rf"geography(?:\(\s*(?:(?P<alone>{_EDGES})|{_CRS}\s*(?:,\s*(?P<edges>{_EDGES}))?)\s*\))?\Z",
    re.IGNORECASE,
)
DAY_TIME_UNITS = ("day", "hour", "minute", "second")
YEAR_MONTH_UNITS = ("year", "month")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A supported type that is neither nested nor a decimal; ``name`` is its spelling in the schema (``"long"``)."""

    name: str

    @property
    def base(self) -> str:
        """The kind of the type, a key of ``type_rows.TYPES``: ``"string"`` for every string type (char, varchar,
        collated), ``"day_time_interval"`` or ``"year_month_interval"`` for an interval, ``name`` for most others."""
        return _base(self.name)

    @property
    def coordinates(self) -> tuple[str, str | None] | None:
        """The coordinate reference system (a name or PROJJSON) of a ``geometry`` or ``geography``, and the edge
        algorithm, which is ``None`` for a ``geometry``. ``None`` for other types."""
        if (match := _GEOMETRY.match(self.name)) is not None:
            return match["crs"] or _DEFAULT_CRS, None
        if (match := _GEOGRAPHY.match(self.name)) is not None:
            return match["crs"] or _DEFAULT_CRS, (match["edges"] or match["alone"] or "spherical").lower()
        return None


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal with ``precision`` digits (1 to 38), ``scale`` of them after the decimal point."""

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
        """The name in data files, partition values and statistics under column mapping; ``name`` if there is none."""
        physical = self.metadata.get(PHYSICAL_NAME_KEY)
        return physical if isinstance(physical, str) else self.name

    @property
    def field_id(self) -> int | None:
        """The column id of column mapping (``field_id`` in Parquet), or ``None``."""
        value = self.metadata.get(FIELD_ID_KEY)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def collation(self) -> str | None:
        """The collation of a string column, as spelled in the schema; ``None`` if it is byte order.

        A collation affects comparisons, not values.
        """
        if isinstance(self.type, PrimitiveType) and (match := COLLATED.match(self.type.name)):
            return _unless_binary(match[1])
        collations = self.metadata.get(COLLATIONS_KEY)
        if isinstance(collations, Mapping):
            own = collations.get(self.name, collations.get(self.physical_name))
            return _unless_binary(own) if isinstance(own, str) else None
        return None

    @property
    def type_changes(self) -> list[tuple[str, str]]:
        """The types before and after each change of the column's type, or of a type below it, as spelled in the schema
        (Delta log protocol, "Type Change Metadata"). Malformed changes are omitted."""
        changes = self.metadata.get(TYPE_CHANGES_KEY)
        pairs = [
            (change.get("fromType"), change.get("toType"))
            for change in (changes if isinstance(changes, (list, tuple)) else ())
            if isinstance(change, Mapping)
        ]
        return [(old, new) for old, new in pairs if isinstance(old, str) and isinstance(new, str)]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A column of an unsupported type: its path, its type as spelled in the schema, the table feature of the type (or
    the type itself), and a sentence with the reason and what to do."""

    path: ColumnPath
    type: str
    feature: str
    reason: str


@dataclass(frozen=True)
class StructType:
    """A record: the table's columns, or a nested struct. Names are unique regardless of case.

    ``left_out`` holds the columns of unsupported types, which are not in ``fields``.
    """

    fields: tuple[StructField, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def names(self) -> list[str]:
        """The field names, in order."""
        return [item.name for item in self.fields]

    def find(self, name: str) -> StructField | None:
        """Return the field called ``name``, regardless of case, or ``None``."""
        return self._by_name.get(name.lower())

    @lazy
    def _by_name(self) -> dict[str, StructField]:
        return {item.name.lower(): item for item in self.fields}

    def __reduce__(self) -> tuple[object, ...]:
        return (StructType, (self.fields, self.left_out))

    @property
    def all_left_out(self) -> tuple[LeftOut, ...]:
        """The columns left out here and at every level below."""
        return _left_out(self)

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)


DataType = Union[PrimitiveType, DecimalType, ArrayType, MapType, StructType]


def children(data_type: DataType) -> list[tuple[str, DataType]]:
    """Return the types directly inside ``data_type``, each with the name by which a column path refers to it."""
    if isinstance(data_type, StructType):
        return [(item.name, item.type) for item in data_type.fields]
    if isinstance(data_type, ArrayType):
        return [("element", data_type.element)]
    return [("key", data_type.key), ("value", data_type.value)] if isinstance(data_type, MapType) else []


def is_void(data_type: DataType) -> bool:
    """Return whether null is the only value of the type (Delta log protocol, "Void Type")."""
    return isinstance(data_type, PrimitiveType) and data_type.base == "void"


def is_variant(data_type: DataType) -> bool:
    """Return whether the type is variant."""
    return isinstance(data_type, PrimitiveType) and data_type.base == "variant"


def _is_interval(name: str, family: tuple[str, ...]) -> bool:
    words = name.split(" ")
    if len(words) not in (2, 4) or words[0] != "interval" or (len(words) == 4 and words[2] != "to"):
        return False
    units = words[1::2]
    if not all(unit in family for unit in units):
        return False
    return len(units) == 1 or family.index(units[0]) < family.index(units[1])


SPELLINGS: dict[str, Callable[[str], object]] = {
    "string": lambda name: _SIZED_TEXT.match(name) or COLLATED.match(name),
    "geometry": _GEOMETRY.match,
    "geography": _GEOGRAPHY.match,
    "day_time_interval": lambda name: _is_interval(name, DAY_TIME_UNITS),
    "year_month_interval": lambda name: _is_interval(name, YEAR_MONTH_UNITS),
}
"""For each kind of type whose name has parameters, a test of whether a name in a schema is of that kind."""


@functools.lru_cache(maxsize=1024)
def _base(name: str) -> str:
    return next((base for base, is_spelled in SPELLINGS.items() if is_spelled(name)), name)


def _left_out(data_type: DataType) -> tuple[LeftOut, ...]:
    own = data_type.left_out if isinstance(data_type, StructType) else ()
    return (*own, *(column for _, child in children(data_type) for column in _left_out(child)))


def _unless_binary(collation: str) -> str | None:
    return None if collation.rpartition(".")[2].upper() == "UTF8_BINARY" else collation


def type_text(data_type: DataType) -> str:
    """Return ``data_type`` on one line, such as ``array<struct<a: long>>``, in the type names of the Delta log."""
    if isinstance(data_type, StructType):
        return f"struct<{', '.join(f'{field.name}: {type_text(field.type)}' for field in data_type.fields)}>"
    if isinstance(data_type, ArrayType):
        return f"array<{type_text(data_type.element)}>"
    if isinstance(data_type, MapType):
        return f"map<{type_text(data_type.key)}, {type_text(data_type.value)}>"
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    # The definition of a coordinate reference system may have many lines.
    return re.sub(r"\{.*\}", "{...}", data_type.name, flags=re.DOTALL)
