"""Text that is not UTF-8 is an error with its row and value, or is replaced as in Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from delta_sharing_client.decode.text import as_shown
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.options import InvalidText, ReadOptions
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.tree import Not, col
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.decode.eager import make_eager, make_gentle
from tests.unit.storages import Storage, Table, fast_options, metadata, rows_of
from tests.vectors import encode_inline

MakeTable = Callable[..., Table]
REPLACE = fast_options(invalid_text=InvalidText.REPLACE)
LATIN = "Straße".encode("latin-1")
SHOWN = "Stra\ufffde"


def texts(values: list[bytes | None]) -> pa.Array:
    """Return bytes as an Arrow string array, without validation."""
    return pa.array(values, pa.binary()).view(pa.string())


# === Replacement as in Spark ===

# Bytes of each class: ASCII, continuation bytes, lead bytes and their limits, invalid bytes.
BYTES = [0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF]


def has_surrogate(value: bytes) -> bool:
    return any(first == 0xED and 0xA0 <= second <= 0xBF for first, second in itertools.pairwise(value))


def test_invalid_bytes_are_replaced_as_in_python() -> None:
    compared = 0
    for length in range(1, 4):
        for value in map(bytes, itertools.product(BYTES, repeat=length)):
            if not has_surrogate(value):
                compared += 1
                assert as_shown(value) == value.decode("utf-8", "replace"), value.hex()
    assert compared > 5000


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xbf\xbf\xed\xb0\x80", "\ufffd\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xa0\xc3\xa9", "\ufffdé"),
        (b"a\xed", "a\ufffd"),
        (b"\xed\x9f\xbf", "\ud7ff"),
        (b"\xed\x80", "\ufffd"),
        (b"\xed\xc3\xa9", "\ufffdé"),
    ],
)
def test_encoded_surrogate_is_replaced_once(value: bytes, shown: str) -> None:
    """Java's decoder does the same; tests/spark compares with Spark."""
    assert as_shown(value) == shown


# === Errors and results ===

NUMBER = pa.field("n", pa.int64())
NESTINGS: dict[str, tuple[Callable[[pa.Array], pa.Array], str, Callable[[Any], Any]]] = {
    "flat": (lambda array: array, "c", lambda text: text),
    "struct": (lambda array: pa.StructArray.from_arrays([array], ["a b"]), "c.a b", lambda text: {"a b": text}),
    "list": (
        lambda array: pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array),
        "c.element", lambda text: [text],
    ),
    "pairs": (
        lambda array: pa.ListArray.from_arrays(
            pa.array(range(0, 2 * len(array) + 1, 2), pa.int32()),
            array.take(pa.array([place // 2 for place in range(2 * len(array))])),
        ),
        "c.element", lambda text: [text, text],
    ),
    "values": (
        lambda array: pa.MapArray.from_arrays(
            pa.array(range(len(array) + 1), pa.int32()), pa.array(["k"] * len(array)), array
        ),
        "c.value", lambda text: [("k", text)],
    ),
    "keys": (
        lambda array: pa.MapArray.from_arrays(
            pa.array(range(len(array) + 1), pa.int32()), array.fill_null("null"), pa.array([1] * len(array))
        ),
        "c.key", lambda text: [("null" if text is None else text, 1)],
    ),
    "deep": (
        lambda array: pa.ListArray.from_arrays(
            pa.array(range(len(array) + 1), pa.int32()), pa.StructArray.from_arrays([array, array], ["x", "y"])
        ),
        "c.element.x", lambda text: [{"x": text, "y": text}],
    ),
}  # fmt: skip


def as_table(column: pa.Array) -> pa.Table:
    return pa.table({"c": column, "n": pa.array(range(len(column)), pa.int64())})


@pytest.mark.parametrize("rows", [20, 6000], ids=["few", "many"])
@pytest.mark.parametrize("nesting", NESTINGS)
def test_invalid_text_is_an_error_or_replaced(make_table: MakeTable, nesting: str, rows: int) -> None:
    build, path, shown = NESTINGS[nesting]
    values: list[bytes | None] = [None if row % 5 == 2 else f"é{row}".encode() for row in range(rows)]
    values[13], values[15] = LATIN, b"\xff"
    content = as_table(build(texts(values)))
    table = make_table(content.schema)
    table.add(content, write={"row_group_size": max(8, rows // 3)})
    with pytest.raises(DataError, match=r"must be UTF-8, but row 13 of the file, counted from 0, has") as caught:
        table.read()
    assert f"Text in column {path!r} must" in str(caught.value)
    assert r"b'Stra\xdfe'. Ask the provider" in str(caught.value)
    assert "invalid_text='replace'" in str(caught.value)
    assert caught.value.file_id == "id-part-0.parquet"
    # Other columns, and rows of other row groups, can be read.
    assert table.read(columns=["n"]).num_rows == rows
    for selected in (None, ["c"]):
        replaced = table.read(options=REPLACE, columns=selected)["c"].to_pylist()
        assert replaced == [shown(None if value is None else as_shown(value)) for value in values]
    assert replaced[13] == shown(SHOWN)


def test_error_has_the_row_number_in_the_file(make_table: MakeTable) -> None:
    values: list[bytes | None] = [b"a"] * 500
    values[321] = b"\xc3("
    content = as_table(texts(values))
    table = make_table(content.schema)
    removed = [*range(0, 300, 2), 320]
    table.add(
        content,
        removed=(),
        deletion_vector=encode_inline(DeletionVector.from_positions(removed)),
        write={"row_group_size": 250},
    )
    for filter_ in (None, col("n") > 310, (col("n") > 100) & (col("c") != "b")):
        with pytest.raises(DataError, match=r"row 321 of the file, counted from 0, has b'\\xc3\('\."):
            table.read(filter=filter_)
        rows = table.read(filter=filter_, options=REPLACE)
        assert rows.filter(pa.compute.equal(rows["n"], 321))["c"].to_pylist() == ["\ufffd("]
    # Rows that the filter excludes are not checked.
    assert table.read(filter=col("n") > 330).num_rows == 169


def test_long_value_is_truncated_in_the_error(make_table: MakeTable) -> None:
    content = as_table(texts([b"x" * 70 + b"\xff"]))
    table = make_table(content.schema)
    table.add(content)
    with pytest.raises(DataError, match=rf"has b'{'x' * 60}'\.\.\.\. Ask"):
        table.read()


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.large_string()], ids=str)
@pytest.mark.parametrize("nesting", ["flat", "struct"])
def test_binary_column_of_a_file_is_checked_as_text(make_table: MakeTable, kind: pa.DataType, nesting: str) -> None:
    build, path, shown = NESTINGS[nesting]
    stored = pa.array([b"good", LATIN, None], pa.binary())
    stored = stored.cast(kind) if pa.types.is_binary(kind) else stored.cast(pa.large_binary()).view(kind)
    table = make_table(as_table(build(pa.array(["a"]))).schema)
    table.add(as_table(build(stored)))
    with pytest.raises(DataError, match=rf"Text in column '{path}' must be UTF-8, but row 1 of"):
        table.read()
    assert table.read(options=REPLACE)["c"].to_pylist() == [shown("good"), shown(SHOWN), shown(None)]


@pytest.mark.parametrize(
    "write",
    [
        {"use_dictionary": True},
        {"use_dictionary": False},
        {"use_dictionary": False, "column_encoding": {"c": "DELTA_BYTE_ARRAY"}},
        {"use_dictionary": False, "column_encoding": {"c": "DELTA_LENGTH_BYTE_ARRAY"}},
    ],
    ids=str,
)
def test_text_of_every_encoding_is_checked(make_table: MakeTable, write: dict[str, Any]) -> None:
    values: list[bytes | None] = [b"a", LATIN, None, LATIN, "é".encode()] * 1000
    content = as_table(texts(values))
    table = make_table(content.schema)
    table.add(content, write=write)
    with pytest.raises(DataError, match="row 1 of the file"):
        table.read()
    assert table.read(options=REPLACE)["c"].to_pylist() == ["a", SHOWN, None, SHOWN, "é"] * 1000


def test_text_of_a_dictionary_array_is_checked(make_table: MakeTable) -> None:
    values = texts([b"a", LATIN, None, LATIN])
    categories = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int32()), values.slice(0, 2))
    table = make_table(as_table(pa.array(["a"])).schema)
    table.add(as_table(categories))
    with pytest.raises(DataError, match="row 1 of the file"):
        table.read()
    assert table.read(options=REPLACE)["c"].to_pylist() == ["a", SHOWN, None, SHOWN]


def test_overflow_error_names_the_tables_type(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("c", pa.int32()), ("n", pa.int64())]))
    table.add(as_table(pa.array([2**40], pa.int64())))
    with pytest.raises(DataError, match="has a value that does not fit the table's type int32"):
        table.read()


def test_invalid_text_option_is_error_or_replace() -> None:
    assert ReadOptions().invalid_text is InvalidText.ERROR
    assert ReadOptions(invalid_text="Replace").invalid_text is InvalidText.REPLACE  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'invalid_text' must be one of 'error', 'replace', found 'ignore'"):
        ReadOptions(invalid_text="ignore")  # type: ignore[arg-type]


# === Filters ===


PARTS = [b"", b"a", b"b", b"z", b"\xc0", b"\xff", b"\xed\xa0\x80", "é".encode(), "\ufffd".encode(), "😀".encode()]
VALUES = st.tuples(st.sampled_from(PARTS), st.sampled_from(PARTS)).map(b"".join)
CONSTANTS = VALUES.map(as_shown)
# Invalid bytes that sort between two strings, while the replaced text does not.
BETWEEN = st.lists(st.none() | st.sampled_from([b"a", b"\xc0", b"a\xc0"]), min_size=1, max_size=5).map(
    lambda values: [b"", *values, "é".encode()]
)


@st.composite
def conditions(draw: st.DrawFn) -> Any:
    column, constant = col(draw(st.sampled_from(["c", "s.c"]))), draw(CONSTANTS)
    built = {
        "=": column == constant, "<>": column != constant, "<": column < constant, ">=": column >= constant,
        "in": column.is_in([constant, draw(CONSTANTS)]), "null": column.is_null(),
    }[draw(st.sampled_from(["=", "<>", "<", ">=", "in", "null"]))]  # fmt: skip
    return Not(built) if draw(st.booleans()) else built


@meets(matching=15, invalid=20, outside=4)
@given(
    values=st.lists(st.none() | VALUES, min_size=1, max_size=12) | BETWEEN,
    condition=conditions(),
    is_sorted=st.booleans(),
    by=st.sampled_from([1, 3, 100]),
)
@settings(max_examples=examples(400), deadline=None)
def test_filters_use_the_returned_text_and_ignore_statistics(
    shared_storage: Storage, values: list[bytes | None], condition: Any, is_sorted: bool, by: int
) -> None:
    """Bounds describe the bytes in the file; the text after replacement may be beyond them."""
    if is_sorted:
        values.sort(key=lambda value: value or b"")
    array = texts(values)
    content = as_table(array).append_column("s", pa.StructArray.from_arrays([array], ["c"]))
    shown = [None if value is None else as_shown(value) for value in values]
    expected = [row for row, text in enumerate(shown) if evaluate(condition, {"c": text, "s": {"c": text}}) is True]
    raw = [value for value in values if value is not None]
    met("matching", expected)
    met("invalid", any(as_shown(value).encode() != value for value in raw))
    try:
        # A writer that does not validate text has these bounds, if they are UTF-8.
        bounds = {"minValues": {"c": min(raw).decode()}, "maxValues": {"c": max(raw).decode()}} if raw else {}
    except UnicodeDecodeError:
        bounds = {}
    met("outside", bounds and any(not min(raw) <= as_shown(value).encode() <= max(raw) for value in raw))
    table = Table(shared_storage, metadata(content.schema))
    table.add(
        content,
        stats={"numRecords": len(values), "nullCount": {"c": values.count(None)}, **bounds},
        write={"row_group_size": by, "write_page_index": True, "data_page_size": 1, "write_batch_size": 1},
    )
    with pytest.MonkeyPatch.context() as patch:
        make_eager(patch, is_late=by == 100)
        if is_sorted:
            make_gentle(patch)
        report = ScanReport()
        found = rows_of(table.plan(filter=condition, options=REPLACE), report)
    assert found["n"].to_pylist() == expected
    assert found["c"].to_pylist() == [shown[row] for row in expected]


@pytest.mark.parametrize("where", ["log", "footer", "pages"])
@pytest.mark.parametrize("nested", [False, True], ids=["column", "field"])
def test_replaced_text_outside_the_bounds_is_found(make_table: MakeTable, where: str, nested: bool) -> None:
    """The bytes are within the bounds, but U+FFFD is above them."""
    values = [b"", b"\xc0", "é".encode(), *(["\U0010ffff".encode()] * 3 if where == "pages" else [])]
    array = texts(values)
    content = as_table(pa.StructArray.from_arrays([array], ["t"]) if nested else array)
    table = make_table(content.schema)
    bounds = {"minValues": {"c": {"t": ""} if nested else ""}, "maxValues": {"c": {"t": "é"} if nested else "é"}}
    table.add(
        content,
        stats={"numRecords": len(values), **bounds} if where == "log" else None,
        write={"write_page_index": True, "data_page_size": 1, "write_batch_size": 3},
    )
    condition = (col("c.t" if nested else "c") > "é") & (col("n") < 3)
    with pytest.MonkeyPatch.context() as patch:
        make_eager(patch)
        rows = rows_of(table.plan(filter=condition, options=REPLACE))
    assert rows["n"].to_pylist() == [1]
    long_list = col("c.t" if nested else "c").is_in([f"{number}" for number in range(200)] + ["\ufffd"])
    assert rows_of(table.plan(filter=long_list, options=REPLACE))["n"].to_pylist() == [1]
