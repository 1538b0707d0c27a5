"""Frames filled batch by batch equal frames converted at the end, whatever the types, nulls and row counts."""

from __future__ import annotations

import datetime
import decimal
import types
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from delta_sharing_client.delta.data_types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.outputs import pandas as frames
from tests.versions import PANDAS

FIRST, LAST = (-62135596800000000, 253402300799999999) if PANDAS >= 2 else (-9 * 10**15, 9 * 10**15)
DAY = datetime.date(2026, 11, 20)
DATES = pa.array([DAY, DAY, None], pa.date32())
FAR = (datetime.date.min, datetime.date(1969, 12, 31), datetime.date.max)
VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "int8": (pa.int8(), [1, -128, 127]),
    "int16": (pa.int16(), [1, 2, -3]),
    "int32": (pa.int32(), [1, 2, -3]),
    "int64": (pa.int64(), [2**53 + 1, -(2**63), 2**63 - 1]),
    "bool": (pa.bool_(), [True, False, True]),
    "float32": (pa.float32(), [1.5, float("nan"), float("-inf")]),
    "float64": (pa.float64(), [0.1, float("nan"), -0.0]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [0, FIRST, LAST]),
    "timestamp_ms": (pa.timestamp("ms", tz="UTC"), [0, -1, 1_700_000_000_000]),
    "timestamp_ntz": (pa.timestamp("us"), [0, -1, LAST]),
    "date": (pa.date32(), [DAY, DAY, datetime.date(2026, 11, 21)]),
    "far dates": (pa.date32(), [*FAR]),
    "string": (pa.string(), ["a", "", "é"]),
    "binary": (pa.binary(), [b"", b"\x00", b"x"]),
    "decimal": (pa.decimal128(20, 2), [decimal.Decimal("1.10"), decimal.Decimal(0), decimal.Decimal("-2.00")]),
    "list": (pa.list_(pa.int64()), [[1, None], [], [2]]),
    "duration": (pa.duration("us"), [0, 1, -1]),
    "null": (pa.null(), [None, None, None]),
}
NULLS = {"no nulls": [0], "some nulls": [0, 1, 2], "only nulls": [2]}


def batches(field: pa.Field, pieces: Sequence[Sequence[object]]) -> list[pa.RecordBatch]:
    schema = pa.schema([field])
    return [pa.RecordBatch.from_arrays([pa.array(piece, field.type)], schema=schema) for piece in pieces]


def frame(field: pa.Field, made: list[pa.RecordBatch], backend: str | None, rows: int | None) -> pd.DataFrame:
    return frames.to_pandas(pa.schema([field]), made, frames.check_dtype_backend(backend), rows)


@pytest.mark.parametrize("backend", ["numpy", "numpy_nullable", "pyarrow"])
@pytest.mark.parametrize("nulls", NULLS)
@pytest.mark.parametrize("name", VALUES)
def test_frame_is_the_same_for_known_and_unknown_row_counts(name: str, nulls: str, backend: str) -> None:
    data_type, values = VALUES[name]
    kinds: list[list[object]] = [values, [*values, None, values[0]], [None, None]]
    pieces = [kinds[kind] for kind in NULLS[nulls]] * 3
    for nullable in (True, False) if nulls == "no nulls" and data_type != pa.null() else (True,):
        field = pa.field("c", data_type, nullable=nullable)
        made = batches(field, pieces)
        rows = sum(map(len, pieces))

        expected = frame(field, made, backend, None)
        # In NumPy floats, nulls are NaN. Other types distinguish them.
        missing = [value is None or (value != value and backend == "numpy") for piece in pieces for value in piece]
        assert expected["c"].isna().to_list() == missing

        for guess in (rows, 0, 1, rows + 100):
            result = frame(field, made, backend, guess)
            pd.testing.assert_frame_equal(result, expected, check_exact=True)
            assert result["c"].dtype == expected["c"].dtype
            assert [*map(type, result["c"])] == [*map(type, expected["c"])]


@pytest.mark.parametrize("backend", ["numpy", "numpy_nullable", "pyarrow"])
@pytest.mark.parametrize("name", VALUES)
def test_frame_without_rows_has_the_same_dtypes(name: str, backend: str) -> None:
    field = pa.field("c", VALUES[name][0])

    pd.testing.assert_frame_equal(frame(field, [], backend, 0), frame(field, [], backend, None))


def test_null_in_a_non_nullable_column_is_kept() -> None:
    field = pa.field("c", pa.int64(), nullable=False)
    made = batches(field, [[1, 2], [None, 3]])

    pd.testing.assert_frame_equal(frame(field, made, None, 4), frame(field, made, None, None))


def test_sliced_batches_are_converted_exactly() -> None:
    for data_type, values in VALUES.values():
        field = pa.field("c", data_type)
        made = [batch.slice(1, 3) for batch in batches(field, [[None, *values, None, *values]] * 2)]

        pd.testing.assert_frame_equal(frame(field, made, None, 6), frame(field, made, None, None))


def test_rows_of_one_day_share_one_date_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames.SHORTCUTS, "batches_together", False)
    field = pa.field("c", pa.date32())
    days = [DAY - datetime.timedelta(days=number % 50) for number in range(1000)]

    result = frame(field, batches(field, [days] * 5), None, 5000)

    assert [*result["c"]] == days * 5
    assert len({id(day) for day in result["c"]}) == 50


def test_impossible_row_count_is_ignored() -> None:
    for data_type, values in VALUES.values():
        field = pa.field("c", data_type)
        made = batches(field, [values])

        pd.testing.assert_frame_equal(frame(field, made, None, 2**60), frame(field, made, None, None))


@pytest.mark.parametrize("rows", [2, None])
@pytest.mark.parametrize("backend", ["numpy", "numpy_nullable"])
def test_frame_is_writable(backend: str, rows: int | None) -> None:
    for name in ("int32", "int64", "float32", "float64", "timestamp", "bool", "date", "string", "decimal"):
        data_type, values = VALUES[name]
        field = pa.field("c", data_type, nullable=name != "int32")
        made = batches(field, [values[::2]])
        written = frame(field, made, None if backend == "numpy" else backend, rows)

        written.loc[0, "c"] = written.loc[1, "c"]

        assert written.loc[0, "c"] == written.loc[1, "c"]
        assert made[0].column(0) == pa.array(values[::2], data_type)


NANOSECONDS = pa.timestamp("ns")


@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
    [
        (pa.struct([("t", NANOSECONDS)]), {"t": 1001}, {"t": pd.Timestamp(1001)}),
        (pa.map_(pa.string(), NANOSECONDS), [("k", 1001)], [("k", pd.Timestamp(1001))]),
        (pa.list_(pa.struct([("t", NANOSECONDS)])), [{"t": 1001}], [{"t": pd.Timestamp(1001)}]),
    ],
    ids=str,
)
def test_nanoseconds_in_structs_and_maps_are_timestamps(
    data_type: pa.DataType, value: object, expected: object
) -> None:
    field = pa.field("c", data_type)
    made = batches(field, [[value, None]])
    assert frame(field, made, None, 2)["c"].to_list() == [expected, None]


@pytest.mark.parametrize("data_type", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.duration("us")], ids=str)
def test_times_out_of_nanosecond_range_are_exact_or_refused(
    data_type: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("when", data_type)])
    batch = pa.record_batch([pa.array([0, 253402300799999999], data_type)], schema=schema)
    if PANDAS < 2:
        with pytest.raises(UnsupportedFeatureError, match=r"'when' has times outside the range of pandas 1\."):
            frames.to_pandas(schema, iter([batch]), "numpy", 2)
        return
    frame = frames.to_pandas(schema, iter([batch]), "numpy", 2)
    assert pa.array(frame["when"]).cast(pa.int64()).to_pylist() == [0, 253402300799999999]
    monkeypatch.setattr(frames, "HAS_UNITS", False)
    for rows in (2, None):
        with pytest.raises(UnsupportedFeatureError, match="'when' has times outside the range"):
            frames.to_pandas(schema, iter([batch]), "numpy", rows)
        first = frames.to_pandas(schema, iter([batch.slice(0, 1)]), "numpy", rows)["when"]
        assert (first.dt.unit, first.astype("int64").to_list()) == ("ns", [0])
        assert "UTC" in str(first.dtype) or getattr(data_type, "tz", None) is None


FAR = pa.array([0, 3_700_000], pa.int32()).view(pa.date32())


@pytest.mark.parametrize("rows", [2, None])
@pytest.mark.parametrize(
    "column",
    [FAR, pa.array([-(1 << 31), None], pa.int32()).view(pa.date32()), pa.ListArray.from_arrays([0, 2], FAR)],
    ids=["after year 9999", "before year 1", "in a list"],
)
def test_error_of_a_date_out_of_range_names_the_column(column: pa.Array, rows: int | None) -> None:
    batch = pa.RecordBatch.from_pydict({"id": pa.array(range(len(column))), "day": column})
    for backend in ("numpy", "numpy_nullable"):
        with pytest.raises(UnsupportedFeatureError, match=r"'day' .* the years 1 to 9999.*to_arrow\(\)"):
            frames.to_pandas(batch.schema, [batch], backend, rows)
    if not pa.types.is_list(column.type):
        frame = frames.to_pandas(batch.schema, [batch], "pyarrow", rows)
        assert len(frame) == len(column)


# --- decimals ---

PRICES = [decimal.Decimal(number).scaleb(-2) for number in (-1, 0, 100, 10**17)]


@pytest.mark.parametrize("rows", [None, 3, 10_000])
@pytest.mark.parametrize("precision", [20, 38])
@pytest.mark.parametrize("count", [1, 4, 5_000])
def test_decimals_are_converted_as_by_arrow(count: int, precision: int, rows: int | None) -> None:
    field = pa.field("d", pa.decimal128(precision, 2))
    values = [None, *PRICES, *(decimal.Decimal(number).scaleb(-2) for number in range(5, count))][: count + 1]
    pieces = [(values * 2 * (10_000 // len(values)))[:10_000], [None] * 20, [], values[1:2] * 20]
    made = frame(field, batches(field, pieces), "numpy", rows)["d"]
    expected = [value for piece in pieces for value in piece]
    assert made.dtype == object
    assert made.tolist() == expected
    assert len(frame(field, [], "numpy", rows)["d"].array) == 0
    # Equal values of a batch share one object if values repeat.
    objects = len({id(value) for value in made[:10_000] if value is not None})
    assert (objects == count) is (count < 5_000)


@pytest.mark.parametrize("rows", [None, 100])
def test_nullable_string_dtypes_match_pandas(rows: int | None) -> None:
    field = pa.field("t", pa.string())
    pieces = [["a", None, "\u00e9"], [], ["", None]]
    made = frame(field, batches(field, pieces), "numpy_nullable", rows)["t"]
    expected = pd.Series([value for piece in pieces for value in piece], dtype=pd.StringDtype(), name="t")
    pd.testing.assert_series_equal(made, expected)


@pytest.mark.parametrize(
    ("backend", "made", "all_of_it", "is_noted"),
    [
        ("numpy", 3.0, 5.9, True),
        ("numpy", 3.0, 6.0, False),
        ("numpy", 1.1, 1.2, True),
        ("numpy", 1.0, 1.2, False),
        ("pyarrow", 3.0, 3.0, False),
    ],
)
def test_report_suggests_faster_types_than_decimals(
    monkeypatch: pytest.MonkeyPatch, backend: str, made: float, all_of_it: float, is_noted: bool
) -> None:
    """The note is added if decimals take more than a second and more than half of the total time."""
    times = [0.0, 0.0, made, all_of_it] if backend == "numpy" else [0.0, all_of_it]
    monkeypatch.setattr(frames, "time", types.SimpleNamespace(perf_counter=iter(times).__next__))
    field = pa.field("d", pa.decimal128(9, 2))
    report = ScanReport(notes=("first",))
    frames.to_pandas(
        pa.schema([field]),
        batches(field, [[decimal.Decimal("0.01")]]),
        frames.check_dtype_backend(backend),
        report=report,
    )
    assert report.notes[0] == "first"
    assert (f"{made} s were spent" in str(report) and "dtype_backend='pyarrow'" in str(report)) is is_noted


# --- groups of batches, calendars, variants ---


def test_small_batches_are_converted_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_FEW_ROWS", 5)
    monkeypatch.setattr(frames, "_TOGETHER", 8)
    lengths = [1, 5, 4, 4, 2, 0, 9, 3, 4, 4]
    field = pa.field("c", pa.int64())
    made = batches(field, [[0] * length for length in lengths])

    def sizes() -> list[list[int]]:
        return [[batch.num_rows for batch in some] for some in frames._together(iter(made))]

    assert sizes() == [[1, 5], [4, 4], [2, 0, 9], [3, 4, 4]]
    monkeypatch.setattr(frames.SHORTCUTS, "batches_together", False)
    assert sizes() == [[length] for length in lengths]
    assert list(frames._together(iter([]))) == []


def test_calendar_grows_only_if_enough_rows_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_LONGEST_CALENDAR", 1000)

    def covered(rows: int, *spans: tuple[int, int, int]) -> tuple[list[bool], int, int]:
        dates = frames._Dates(pa.field("c", pa.date32()), rows)
        results = [dates._covers(first, last, count) for first, last, count in spans]
        known = len(dates._calendar)
        assert list(dates._calendar) == [
            datetime.date(1970, 1, 1) + datetime.timedelta(days=dates._first + day) for day in range(known)
        ]
        return results, dates._first, known

    # At most eight days for each row of the batch, or as many days as the column has rows.
    assert covered(0, (0, 79, 10)) == ([True], 0, 80)
    assert covered(0, (0, 80, 10)) == ([False], 0, 0)
    assert covered(90, (0, 89, 1), (50, 50, 1), (89, 89, 0)) == ([True] * 3, 0, 90)
    assert covered(90, (0, 90, 1)) == ([False], 0, 0)
    # Only days outside the covered range count.
    assert covered(10, (0, 9, 1), (5, 19, 1), (-10, 3, 1)) == ([True] * 3, -10, 30)
    assert covered(10, (0, 9, 1), (5, 20, 1), (-11, 3, 1)) == ([True, False, False], 0, 10)
    # A calendar is at most as long as the limit and has only days that Python can represent.
    assert covered(5000, (0, 999, 1), (0, 1000, 1), (-1, 5, 1)) == ([True, False, False], 0, 1000)
    first, last = -719_162, 2_932_896
    assert covered(5000, (first, first, 1)) == ([True], first, 1)
    assert covered(5000, (first - 1, first, 1)) == ([False], 0, 0)
    assert covered(5000, (last, last, 1)) == ([True], last, 1)
    assert covered(5000, (last, last + 1, 1)) == ([False], 0, 0)


def test_dates_of_many_batches_keep_their_rows() -> None:
    field = pa.field("c", pa.date32())
    pieces = [[None, 3, 1], [None], [9, 9], [], [-5, None], [40_000, 0], [2_932_896, None, -719_162]]
    arrays = [pa.array(piece, pa.int32()).view(pa.date32()) for piece in pieces]
    made = [pa.RecordBatch.from_arrays([array], schema=pa.schema([field])) for array in arrays]
    expected = [value for array in arrays for value in array.to_pylist()]
    for rows in (None, 0, 13, 500):
        result = frame(field, made, None, rows)["c"]
        assert result.dtype == object
        assert result.to_list() == expected


def packed(number: int) -> dict[str, bytes]:
    return {"metadata": b"\x01\x00\x00", "value": bytes([0x0C, number])}


def test_variants_are_decoded_at_every_level() -> None:
    variant = PrimitiveType("variant")
    inner = StructType((StructField("v", variant), StructField("n", PrimitiveType("long"))))
    types: dict[str, tuple[DataType, list[object], list[object]]] = {
        "plain": (variant, [packed(1), None, pd.NA], [1, None, pd.NA]),
        "struct": (
            inner,
            [{"v": packed(2), "n": 5}, {"v": None, "n": None}, None],
            [{"v": 2, "n": 5}, {"v": None, "n": None}, None],
        ),
        "list": (ArrayType(variant, contains_null=True), [[packed(3), None], [], None], [[3, None], [], None]),
        "value": (
            MapType(PrimitiveType("string"), variant, value_contains_null=True),
            [[("k", packed(4))], [("k", None)], None],
            [[("k", 4)], [("k", None)], None],
        ),
        "key": (
            MapType(inner, PrimitiveType("string"), value_contains_null=True),
            [[({"v": packed(5), "n": 1}, "x")], [], None],
            [[({"v": 5, "n": 1}, "x")], [], None],
        ),
        "deep": (
            ArrayType(inner, contains_null=True),
            [[{"v": packed(6), "n": 1}, None], [], None],
            [[{"v": 6, "n": 1}, None], [], None],
        ),
        "other struct": (
            StructType((StructField("n", PrimitiveType("long")),)),
            [{"n": 1}, None, None],
            [{"n": 1}, None, None],
        ),
        "other": (ArrayType(PrimitiveType("long"), contains_null=True), [[1], [], None], [[1], [], None]),
    }
    fields = [StructField(name, kind) for name, (kind, *_) in types.items()]
    schema = StructType((*fields, StructField("other column", PrimitiveType("long"))))
    made = pd.DataFrame({name: pd.Series(raw, dtype=object) for name, (_, raw, _) in types.items()})
    made["_extra"] = [1, 2, 3]
    made["other column"] = [1, 2, 3]
    result = frames.decode_variants(made.copy(), schema)
    assert list(result) == [*types, "_extra", "other column"]
    assert result["other column"].dtype == "int64"
    for name, (_, raw, expected) in types.items():
        assert result[name].to_list() == expected
        assert result[name].dtype == object
        assert frames._holds_variant(schema.find(name).type) is (raw != expected)  # type: ignore[union-attr]


def test_list_is_a_numpy_array_and_struct_a_dict() -> None:
    for kind, value, expected in (
        (pa.list_(pa.int64()), [1, 2], np.ndarray),
        (pa.list_(NANOSECONDS), [1], np.ndarray),
        (pa.struct([("x", pa.int64())]), {"x": 1}, dict),
    ):
        field = pa.field("c", kind)
        assert type(frame(field, batches(field, [[value]]), None, 1)["c"][0]) is expected
