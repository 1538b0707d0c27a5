"""Tests whether an equality delete file may delete a row of a data file, by the statistics of both (Iceberg, "Scan
Planning").

A value that occurs in both files lies within the bounds of both. Missing bounds and missing null counts exclude
nothing. Neither do bounds that may not cover all values of a column: of floating-point numbers (NaN is equal to NaN),
of fields of structs (a null struct has a null in each), and of columns in which the rows have the value of their
partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from delta_sharing_client.delta.data_types import PrimitiveType, StructField, StructType
from delta_sharing_client.iceberg.manifests import File
from delta_sharing_client.iceberg.metadata import PartitionSpec
from delta_sharing_client.iceberg.partitioning import identity_sources
from delta_sharing_client.iceberg.single_values import DecodePair, bounds_decoder


class _Range(NamedTuple):
    lower: Any
    upper: Any
    may_be_null: bool


class EqualityRanges:
    """The ranges of the columns ``comparable``, by field id, in files with partition specs ``specs``."""

    def __init__(self, comparable: Mapping[int, StructField], specs: Mapping[int, PartitionSpec]) -> None:
        self._decoders: dict[int, DecodePair] = {}
        for field_id, column in comparable.items():
            decode = None if _has_no_range(column) else bounds_decoder(column.type)
            if decode is not None:
                self._decoders[field_id] = decode
        self._of_partition = {spec_id: identity_sources(spec) for spec_id, spec in specs.items()}
        self._deletes: dict[str, dict[int, _Range]] = {}
        self._data: tuple[str, dict[int, _Range]] = ("", {})

    @property
    def ids(self) -> frozenset[int]:
        """The field ids of the columns with ranges."""
        return frozenset(self._decoders)

    def may_delete(self, deletes: File, data: File) -> bool:
        """Return whether a row of ``data`` may equal one of ``deletes``; calls for the same data file should be
        consecutive."""
        of_deletes = self._deletes.get(deletes.path)
        if of_deletes is None:
            of_deletes = self._deletes[deletes.path] = self._ranges(deletes, deletes.equality_ids)
        if not of_deletes:
            return True
        if self._data[0] != data.path:
            without = self._of_partition.get(data.spec_id, frozenset())
            self._data = (data.path, self._ranges(data, self._decoders.keys() - without))
        of_data = self._data[1]
        return all(field_id not in of_data or _meet(one, of_data[field_id]) for field_id, one in of_deletes.items())

    def _ranges(self, file: File, ids: Iterable[int]) -> dict[int, _Range]:
        ranges: dict[int, _Range] = {}
        for field_id in ids:
            decode = self._decoders.get(field_id)
            if decode is None:
                continue
            lower, upper = decode((file.lower or {}).get(field_id), (file.upper or {}).get(field_id))
            # Bounds in the wrong order describe no range.
            if lower is not None and upper is not None and lower <= upper:
                ranges[field_id] = _Range(lower, upper, (file.null_counts or {}).get(field_id) != 0)
        return ranges


def _has_no_range(column: StructField) -> bool:
    if isinstance(column.type, StructType):
        return True
    return isinstance(column.type, PrimitiveType) and column.type.base in ("float", "double")


def _meet(one: _Range, other: _Range) -> bool:
    # Null is equal to null.
    return (one.may_be_null and other.may_be_null) or (one.lower <= other.upper and other.lower <= one.upper)
