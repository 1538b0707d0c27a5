"""Files are skipped by their statistics only if no row can match, and only if the statistics are the column's."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.iceberg.file_bounds import FileFilter, Skipped
from delta_sharing_client.iceberg.manifests import Content, File
from delta_sharing_client.iceberg.table_schema import schema_string
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter

FIELDS: list[dict[str, Any]] = [
    {"id": 1, "name": "a", "required": False, "type": "long"},
    {"id": 7, "name": "b", "required": False, "type": "long"},
    {"id": 9, "name": "x", "required": False, "type": "double"},
]
SCHEMA = parse_schema(schema_string({"type": "struct", "fields": FIELDS}))
ARROW = pa.schema({"a": pa.int64(), "b": pa.int64(), "x": pa.float64()})


def file_of(**statistics: Any) -> File:
    """Return a file of ten rows whose statistics have the form of the specification's "Single-value serialization"."""
    values: dict[str, Any] = {"null_counts": None, "lower": None, "upper": None, **statistics}
    plain = dict.fromkeys(File._fields)
    known = {"path": "f", "format": "parquet", "size": 9, "records": 10, "content": Content.DATA, "spec_id": 0}
    return File(**{**plain, **known, "partition": {}, "sequence_number": 1, "equality_ids": (), **values})  # type: ignore[arg-type]


def longs(**values: int) -> dict[int, bytes]:
    ids = {"a": 1, "b": 7}
    return {ids[name]: struct.pack("<q", value) for name, value in values.items()}


def reason(text: str, file: File, *, has_statistics: bool = True) -> Skipped | None:
    predicate = bind(parse_filter(text), ARROW)  # type: ignore[arg-type]
    return FileFilter(predicate, SCHEMA, {0: []}, has_statistics=has_statistics).reason_to_skip(file)


@pytest.mark.parametrize(
    ("text", "is_skipped"),
    [
        ("b > 5", True),
        ("b > 4", False),
        ("b >= 5", False),
        ("b >= 6", True),
        ("b < 2", True),
        ("b <= 2", False),
        ("b = 6", True),
        ("b = 3", False),
        ("a > 5", False),
        ("b > 5 OR a > 5", False),
        ("b > 5 AND a > 5", True),
        ("b IS NULL", True),
        ("b IS NOT NULL", False),
        ("a IS NULL", False),
    ],
)
def test_file_is_skipped_if_its_bounds_exclude_every_row(text: str, is_skipped: bool) -> None:
    file = file_of(lower=longs(b=2), upper=longs(b=5), null_counts={7: 0})
    assert reason(text, file) is (Skipped.BY_STATISTICS if is_skipped else None)
    # If the statistics may belong to another column, no file is skipped.
    assert reason(text, file, has_statistics=False) is None


def test_only_columns_of_the_filter_have_statistics() -> None:
    predicate = bind(parse_filter("b > 5 AND x < 1E0"), ARROW)  # type: ignore[arg-type]
    assert FileFilter(predicate, SCHEMA, {0: []}).ids == {7, 9}
    assert FileFilter(predicate, SCHEMA, {0: []}, has_statistics=False).ids == frozenset()


@pytest.mark.parametrize(
    ("nulls", "is_skipped"), [(None, False), (-1, False), (0, True), (1, False), (10, False), (11, False)]
)
def test_impossible_counts_of_nulls_are_unknown(nulls: int | None, is_skipped: bool) -> None:
    counts = None if nulls is None else {7: nulls}
    assert reason("b IS NULL", file_of(null_counts=counts)) is (Skipped.BY_STATISTICS if is_skipped else None)
    every = reason("b IS NOT NULL", file_of(null_counts=counts))
    assert every is (Skipped.BY_STATISTICS if nulls == 10 else None)


def test_upper_bound_of_floats_does_not_exclude_nan() -> None:
    bounds = {9: struct.pack("<d", 1.0)}
    file = file_of(lower=bounds, upper=bounds, null_counts={9: 0})
    # NaN is greater than every number, and no bound tells of it.
    assert reason("x > 5E0", file) is None
    assert reason("x = 5E0", file) is Skipped.BY_STATISTICS
    assert reason("x < 1E0", file) is Skipped.BY_STATISTICS


def test_missing_bounds_skip_nothing() -> None:
    for file in (file_of(), file_of(lower=longs(b=2)), file_of(upper={7: b"?"}, lower={7: b"?"})):
        assert reason("b > 5", file) is None
