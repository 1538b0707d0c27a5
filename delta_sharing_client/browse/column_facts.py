"""Facts about one column: what the log states about all rows, without a download, and what its values are."""

from __future__ import annotations

import contextlib
import decimal
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.browse.cells import texts_of
from delta_sharing_client.delta.actions import AddFile
from delta_sharing_client.delta.listed_files import kept
from delta_sharing_client.delta.statistics import ColumnBounds, StatisticsReader
from delta_sharing_client.plan.read_request import ScanRequest, as_of_now
from delta_sharing_client.sources.table_source import Purpose, TableSource

BARS = 20
MOST_VALUES = 10
"""The number of most frequent values that are shown."""
# Up to this many different values, they are counted exactly; beyond, their number is estimated by as many hashes, with
# an error of 1 / sqrt(_TRACKED), about 1.6%.
_TRACKED = 4096
# The histogram is that of a random sample of this size.
_SAMPLE = 50_000
_SCALED = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date, pa.types.is_timestamp)
_HASHED = (*_SCALED, pa.types.is_string, pa.types.is_boolean, pa.types.is_binary)


# === Stated by the log ===


def stated_facts(
    source: TableSource, request: ScanRequest, path: Sequence[str], kind: pa.DataType
) -> dict[str, object]:
    """Return what the statistics of all files of ``request``, which has no filter, state about a column of the type
    ``kind``: ``rows``, ``nulls``, and texts of bounds that no value is less or greater than (``lower``, ``upper``).

    Each is ``None`` if it is not stated for every file. This lists all files, and downloads none.
    """
    with source.about(), contextlib.closing(source.files(as_of_now(request), Purpose.PLAN)) as files:
        state, shared = files.state, kept(files.blocks)
    column = tuple(path)
    reader = StatisticsReader(
        state.schema, state.mapping_mode, state.partition_columns, [column], empty_is_null=state.empty_is_null
    )
    # Equality deletes remove rows that no statistics count.
    actions = [one.action for one in shared if isinstance(one.action, AddFile) and not one.equality]
    found = [reader.read(action) for action in actions] if len(actions) == len(shared) else []
    if not found:
        return dict.fromkeys(("rows", "nulls", "lower", "upper"))
    counts = [one.row_count for one in found]
    bounds = [one.bounds(column) for one in found]
    return {
        "rows": _total(counts),
        "nulls": _total([None if one is None else one.null_count for one in bounds]),
        "lower": _text(kind, _extreme(bounds, "lower", min), decimal.ROUND_FLOOR),
        "upper": _text(kind, _extreme(bounds, "upper", max), decimal.ROUND_CEILING),
    }


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _extreme(bounds: Sequence[ColumnBounds | None], which: str, of: Any) -> Any:
    values = []
    for one in bounds:
        if one is not None and one.null_count is not None and one.null_count == one.row_count:
            continue
        value = None if one is None else getattr(one, which)
        if value is None:
            return None
        values.append(value)
    return of(values) if values else None


def _text(kind: pa.DataType, value: Any, rounding: str) -> str | None:
    """Return the text of a bound, in which moments are numbers; a decimal is rounded outward to what the column can
    have."""
    if value is None:
        return None
    if isinstance(value, decimal.Decimal):
        with decimal.localcontext() as context:
            context.prec = 100
            return f"{value.quantize(decimal.Decimal(1).scaleb(-kind.scale), rounding):f}"
    if pa.types.is_date(kind):
        array = pa.array([value], pa.int32()).cast(pa.date32())
    elif pa.types.is_timestamp(kind):
        # Rounded down to what the column can have.
        array = pa.array([value // 1000], pa.int64()).cast(pa.timestamp("us", kind.tz))
    else:
        array = pa.array([value])
    return texts_of(array)[0]


# === Computed from the values ===


class ValueFacts:
    """The facts about the values of a column, from its batches: rows, nulls, extremes, different values, the most
    frequent ones, and a histogram. Memory is bounded, whatever the number of rows."""

    def __init__(self, kind: pa.DataType, seed: int = 0) -> None:
        self._kind = kind
        self._rows = self._nulls = 0
        # Arrays with one value: Python has no dates beyond the year 9999.
        self._least: pa.Array | None = None
        self._greatest: pa.Array | None = None
        self._counts: dict[Any, int] | None = {} if any(is_it(kind) for is_it in _HASHED) else None
        self._hashes = np.empty(0, np.uint64)
        self._sample = np.empty(0)
        self._keys = np.empty(0)
        self._random = np.random.default_rng(seed)

    def add(self, array: pa.Array) -> None:
        """Add the next values."""
        self._rows += len(array)
        self._nulls += array.null_count
        values = array.drop_null()
        if not len(values):
            return
        is_scaled = any(is_it(self._kind) for is_it in _SCALED)
        if is_scaled or pa.types.is_string(self._kind):
            both = pc.min_max(values)
            self._least = _outer(self._least, values, both["min"], pc.less)
            self._greatest = _outer(self._greatest, values, both["max"], pc.greater)
        if any(is_it(self._kind) for is_it in _HASHED):
            self._add_different(values)
        if is_scaled:
            self._add_sample(_numbers(values))

    def _add_different(self, values: pa.Array) -> None:
        counted = _counted(values).value_counts()
        found = counted.field("values")
        if self._counts is not None:
            for value, count in zip(found.to_pylist(), counted.field("counts").to_pylist(), strict=True):
                # NaN is one value.
                key = "NaN" if value != value else value
                self._counts[key] = self._counts.get(key, 0) + count
            if len(self._counts) > _TRACKED:
                self._counts = None
        hashes = pd.util.hash_array(np.asarray(found.to_pandas(), dtype=object))
        self._hashes = np.unique(np.concatenate([self._hashes, hashes]))[:_TRACKED]

    def _add_sample(self, numbers: Any) -> None:
        # Each value gets a random key; those with the least keys are a random sample.
        keys = np.concatenate([self._keys, self._random.random(len(numbers))])
        both = np.concatenate([self._sample, numbers])
        if len(both) > _SAMPLE:
            kept_places = np.argpartition(keys, _SAMPLE)[:_SAMPLE]
            keys, both = keys[kept_places], both[kept_places]
        self._keys, self._sample = keys, both

    def result(self) -> dict[str, object]:
        """Return the facts, with values as the page shows them; ``None`` for what the type does not have."""
        return {
            "rows": self._rows,
            "nulls": self._nulls,
            "least": self._shown(self._least),
            "greatest": self._shown(self._greatest),
            **self._different(),
            "bars": self._bars(),
        }

    def _shown(self, one: pa.Array | None) -> str | None:
        return None if one is None else texts_of(one)[0]

    def _different(self) -> dict[str, object]:
        if not any(is_it(self._kind) for is_it in _HASHED):
            return {"different": None, "isEstimate": False, "values": []}
        if self._counts is None:
            share = float(self._hashes[-1]) / 2.0**64
            return {"different": round((_TRACKED - 1) / share), "isEstimate": True, "values": []}
        most = sorted(self._counts.items(), key=lambda item: -item[1])[:MOST_VALUES]
        keys = [float("nan") if key == "NaN" and pa.types.is_floating(self._kind) else key for key, _ in most]
        counted = _counted(pa.array([], self._kind)).type
        texts = texts_of(pa.array(keys, counted).cast(self._kind))
        values = [[text, count] for text, (_, count) in zip(texts, most, strict=True)]
        return {"different": len(self._counts), "isEstimate": False, "values": values}

    def _bars(self) -> list[list[object]] | None:
        """Return the histogram: for each bar its least value, as text, and its share of the values."""
        finite = self._sample[np.isfinite(self._sample)]
        if not len(finite):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            edges = np.linspace(finite.min(), finite.max(), BARS + 1)
            if not (np.diff(edges) > 0).all() or not np.isfinite(edges).all():
                # The values are too close to each other, or too far apart, for different bars.
                return None
        counts, _ = np.histogram(finite, edges)
        starts = [_edge(self._kind, edge) for edge in edges[:-1]]
        return [[start, float(count) / len(finite)] for start, count in zip(starts, counts, strict=True)]


def facts_of(batches: Iterable[pa.RecordBatch], kind: pa.DataType) -> dict[str, object]:
    """Return the facts about the only column of ``batches``, or about the field of the struct in it that they have."""
    facts = ValueFacts(kind)
    for batch in batches:
        array = batch.column(0)
        while pa.types.is_struct(array.type) and not pa.types.is_struct(kind):
            # A field of a struct that is null is null.
            array = array.flatten()[0]
        facts.add(array)
    return facts.result()


def _outer(before: pa.Array | None, values: pa.Array, scalar: Any, is_further: Any) -> pa.Array | None:
    """Return the value that is further out: ``scalar``, which is in ``values``, or the one ``before``."""
    if pa.types.is_floating(values.type) and scalar.as_py() != scalar.as_py():
        # All values are NaN, which has no place among the numbers.
        return before
    one = values.slice(pc.index(values, scalar).as_py(), 1)
    return one if before is None or is_further(one[0], before[0]).as_py() else before


def _counted(values: pa.Array) -> pa.Array:
    """Return dates and moments as numbers, which Python can represent."""
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _numbers(values: pa.Array) -> Any:
    return np.asarray(_counted(values).cast(pa.float64(), safe=False), dtype=float)


def _edge(kind: pa.DataType, edge: float) -> str:
    if pa.types.is_date(kind):
        return texts_of(pa.array([int(edge)], pa.int32()).cast(kind))[0] or ""
    if pa.types.is_timestamp(kind):
        return texts_of(pa.array([int(edge)], pa.int64()).cast(kind))[0] or ""
    return f"{edge:.6g}"
