"""Finds the files of a snapshot that may have rows for a filter: by their partitions, and by the statistics of their
columns.

A column's bounds are those of its values without null and NaN (Iceberg, "Field-level Metrics and Statistics"); the
partition value bounds them as well. The bounds also cover deleted rows, which is harmless.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from delta_sharing_client.columns import ColumnPath
from delta_sharing_client.delta.data_types import StructType
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.iceberg.manifests import File, Manifest
from delta_sharing_client.iceberg.partition_types import Undecoded
from delta_sharing_client.iceberg.partitioning import BoundField, intersection, possible_buckets, sources
from delta_sharing_client.iceberg.single_values import DecodePair, bounds_decoder
from delta_sharing_client.predicates.skipping import compile_skipping
from delta_sharing_client.predicates.tree import Expression
from delta_sharing_client.predicates.tree import columns as columns_of


class Skipped(enum.Enum):
    """The reason why no row of a file can match."""

    BY_PARTITION = "by_partition"
    BY_STATISTICS = "by_statistics"


_MISSING = object()


class _ColumnFacts:
    """The known properties of the columns of a file, or of all files of a manifest."""

    def __init__(self, of_partition: Mapping[ColumnPath, ColumnBounds], bounds: Callable[[ColumnPath], Any]) -> None:
        self._of_partition = of_partition
        self._bounds = bounds

    def bounds(self, path: ColumnPath) -> ColumnBounds | None:
        return intersection(self._of_partition.get(path), self._bounds(path))


class FileFilter:
    """Tests files and manifests with a predicate that is bound to ``schema``; ``specs`` has the table's partition
    specs by id.

    Without ``has_statistics``, column statistics are not used, because they may belong to different columns.
    """

    def __init__(
        self,
        predicate: Expression,
        schema: StructType,
        specs: Mapping[int, list[BoundField]],
        *,
        has_statistics: bool = True,
    ) -> None:
        self._may_match = compile_skipping(predicate)
        paths = columns_of(predicate)
        self._buckets = {spec_id: possible_buckets(predicate, fields) for spec_id, fields in specs.items()}
        self._of_spec = {
            spec_id: [field for field in fields if field.source.path in paths] for spec_id, fields in specs.items()
        }
        self._columns: dict[ColumnPath, tuple[int, DecodePair | None, bool]] = {}
        # In these columns, rows have the partition value even if the file has the column, so that the file's statistics
        # may describe other values.
        self._constant = {
            spec_id: frozenset(field.source.path for field in fields if field.is_constant)
            for spec_id, fields in self._of_spec.items()
        }
        for field_id, source in sources(schema).items():
            if has_statistics and source.path in paths:
                name = getattr(source.field.type, "base", "")
                decode = None if source.field.collation else bounds_decoder(source.field.type)
                self._columns[source.path] = (field_id, decode, name in ("float", "double"))
        self.ids = frozenset(field_id for field_id, _, _ in self._columns.values())
        """The field ids of the columns whose statistics are used."""

    def may_have_matches(self, manifest: Manifest) -> bool:
        """Return whether a file of ``manifest`` may have a matching row, by the summaries of its partition values."""
        bounds: dict[ColumnPath, ColumnBounds] = {}
        for field in self._of_spec[manifest.spec_id]:
            summary = manifest.summary(field.place)
            if summary is None:
                continue
            buckets = self._buckets[manifest.spec_id].get(field.field_id)
            between = None if buckets is None else field.buckets(summary)
            # A null is in no bucket, and the predicate requires a value.
            if buckets is not None and between is not None and not _any_between(buckets, *between):
                return False
            _add(bounds, field.source.path, field.summary_bounds(summary))
        return not bounds or self._may_match(_ColumnFacts(bounds, _unknown))

    def reason_to_skip(self, file: File) -> Skipped | None:
        """Return why no row of ``file`` can match, ``None`` to read it."""
        bounds: dict[ColumnPath, ColumnBounds] = {}
        for field in self._of_spec[file.spec_id]:
            value = file.partition.get(str(field.field_id), _MISSING)
            if value is _MISSING:
                continue
            buckets = self._buckets[file.spec_id].get(field.field_id)
            if buckets is not None and value not in buckets and not isinstance(value, Undecoded):
                return Skipped.BY_PARTITION
            _add(bounds, field.source.path, field.bounds(value, file.records))
        if bounds and not self._may_match(_ColumnFacts(bounds, _unknown)):
            return Skipped.BY_PARTITION
        facts = _ColumnFacts(bounds, lambda path: self._statistics(file, path))
        return None if self._may_match(facts) else Skipped.BY_STATISTICS

    def _statistics(self, file: File, path: ColumnPath) -> ColumnBounds | None:
        column = self._columns.get(path)
        if column is None or path in self._constant[file.spec_id]:
            return None
        field_id, decode, is_floating = column
        nulls = (file.null_counts or {}).get(field_id)
        if nulls is not None and not 0 <= nulls <= file.records:
            nulls = None
        lower = upper = None
        if decode is not None:
            lower, upper = decode((file.lower or {}).get(field_id), (file.upper or {}).get(field_id))
        if is_floating:
            # The upper bound does not cover NaN, so it only bounds the other values.
            return ColumnBounds(lower, None, nulls, file.records, upper)
        return ColumnBounds(lower, upper, nulls, file.records)


def _any_between(buckets: frozenset[int], first: int, last: int) -> bool:
    return any(first <= bucket <= last for bucket in buckets)


def _add(by_path: dict[ColumnPath, ColumnBounds], path: ColumnPath, bounds: ColumnBounds | None) -> None:
    both = intersection(by_path.get(path), bounds)
    if both is not None:
        by_path[path] = both


def _unknown(path: ColumnPath) -> None:
    return None
