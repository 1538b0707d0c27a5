"""Excel workbooks, read with openpyxl."""

from __future__ import annotations

import datetime
import decimal
import io
import math
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import openpyxl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.outputs import excel
from delta_sharing_client.outputs.file_formats import FileFormat
from delta_sharing_client.outputs.file_writers import write_file, write_stream
from tests.effort import examples
from tests.quota import meets, met

UTC = datetime.timezone.utc
WHOLE = datetime.datetime(2024, 2, 29, 23, 59, 59, 987_000)
BEFORE = datetime.datetime(1969, 12, 31, 23, 59, 59)
NANO = "1970-01-01T00:00:00.001000001"
MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 59, 987_999)


def sheet_of(table: pa.Table) -> Any:
    sink = io.BytesIO()
    assert write_stream(table.to_batches(max_chunksize=2), table.schema, sink, FileFormat.XLSX) == len(table)
    return openpyxl.load_workbook(io.BytesIO(sink.getvalue()))["rows"]


def cells(kind: pa.DataType, values: list[Any]) -> list[Any]:
    """Write one column to a sheet and return the cells below its header."""
    sheet = sheet_of(pa.table({"c": pa.array(values, kind)}))
    return [sheet.cell(row, 1).value for row in range(2, len(values) + 2)]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.bool_(), [True, None, False], [True, None, False]),
        (pa.int8(), [-128, 0, None], [-128, 0, None]),
        (pa.int64(), [10**15 - 1, 10**15, -(10**15)], [10**15 - 1, str(10**15), str(-(10**15))]),
        (pa.float32(), [0.1, None, 3e38], [0.1, None, 3e38]),
        (pa.float64(), [0.1, -1e-300, math.inf, math.nan], [0.1, -1e-300, "Infinity", "NaN"]),
        (
            pa.decimal128(38, 2),
            [decimal.Decimal("-12.50"), decimal.Decimal("1234567890123.45"), decimal.Decimal("12345678901234.56")],
            [-12.5, 1234567890123.45, "12345678901234.56"],
        ),
        (pa.decimal128(5, 0), [decimal.Decimal(7)], [7]),
        (
            pa.date32(),
            [datetime.date(2024, 2, 29), datetime.date(1900, 3, 1), datetime.date(1900, 2, 28), None],
            [datetime.datetime(2024, 2, 29), datetime.datetime(1900, 3, 1), "1900-02-28", None],
        ),
        (pa.date32(), [datetime.date(9999, 12, 31)], [datetime.datetime(9999, 12, 31)]),
        (pa.timestamp("us"), [MOMENT, None], ["2024-02-29T23:59:59.987999", None]),
        (pa.timestamp("us", "UTC"), [MOMENT, WHOLE], ["2024-02-29T23:59:59.987999Z", WHOLE]),
        (pa.timestamp("us"), [WHOLE, None, MOMENT], [WHOLE, None, "2024-02-29T23:59:59.987999"]),
        (pa.timestamp("ms", "UTC"), [WHOLE], [WHOLE]),
        (pa.timestamp("ns"), [1_000_000, 1_000_001, None], [datetime.datetime(1970, 1, 1, 0, 0, 0, 1000), NANO, None]),
        (pa.timestamp("us"), [BEFORE.replace(microsecond=1), BEFORE], ["1969-12-31T23:59:59.000001", BEFORE]),
        (pa.timestamp("us"), [datetime.datetime(1, 1, 1)], ["0001-01-01T00:00:00.000000"]),
        (pa.time64("us"), [datetime.time(23, 59, 59, 123_456), None], ["23:59:59.123456", None]),
        (pa.time64("us"), [datetime.time(23, 59, 59, 123_000)], [datetime.time(23, 59, 59, 123_000)]),
        (pa.binary(), [b"\x00\xff"], ["00ff"]),
        (pa.list_(pa.int64()), [[1, None], None], ["[1,null]", None]),
        (pa.struct([("a", pa.string())]), [{"a": "=1"}], ['{"a":"=1"}']),
        (pa.null(), [None], [None]),
    ],
    ids=str,
)
def test_cells_have_the_values_of_the_rows(kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    assert cells(kind, values) == expected


HOSTILE = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "{=1}",
    "http://h/",
    "mailto:a@b",
    "internal:A1",
    "_x0041_",
    "_x0041_x0042_",
    "_x0041_x0042_x0043_ and __x00e4__x00E4_x005F_",
    "_x0041_x0042",
    "_x0041\x01x0042_",
    "\x01x0041_x0042_",
    "_x005F_x0041_",
    "_x005f_x005F_x0041_x",
    "_x0041\r\ufffe_x0042\uffff",
    "<r><t>a</t></r>",
    "<r></r>",
    "<r>_x0041_x0042_</r>",
    "_X0041_x0041_",
    "_x00411_x0041_",
    "a\x01b\nc",
    " a ",
    "<b>&",
    "00123",
]


def unescaped(text: str) -> str:
    """Decode a cell's text (ECMA-376 part 1, 22.4.2.4 and 22.9.2.19): each _xHHHH_, from left to right."""
    return re.sub("_x([0-9a-fA-F]{4})_", lambda match: chr(int(match[1], 16)), text)


def test_text_is_not_interpreted_by_excel() -> None:
    sheet = sheet_of(pa.table({"=1": pa.array(HOSTILE)}))
    results = [sheet.cell(row, 1) for row in range(2, len(HOSTILE) + 2)]
    assert {cell.data_type for cell in results} == {"s"} | {cell.data_type for cell in results if cell.value is None}
    assert [cell.hyperlink for cell in results] == [None] * len(HOSTILE)
    assert [unescaped(cell.value) for cell in results] == HOSTILE
    assert (sheet.cell(1, 1).value, sheet.cell(1, 1).data_type) == ("=1", "s")


PIECES = ["_", "_x0041", "_x0041_", "x005F_", "_x0041_x0042_", "\x01", "\r", "<r>", "</r>", "a"]


@meets(sharing=5, plain=5)
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=5))
def test_any_sequence_of_escapes_is_read_as_written(parts: list[str]) -> None:
    text = "".join(parts)
    met("sharing", "_x0041_x" in text)
    met("plain", "_x" not in text)
    sheet = sheet_of(pa.table({text: ["", text]}))
    assert [unescaped(sheet.cell(row, 1).value or "") for row in (1, 2, 3)] == [text, "", text]


def test_marked_workbook_is_read_across_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excel, "_PIECE", 7)
    texts = ["_x0041_x0042_", "<r></r>", "ä" * 100]
    assert [unescaped(cell) for cell in cells(pa.string(), texts)] == texts


def test_text_that_its_escapes_make_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match=r"A text of 32,766 characters with escapes .* does not fit"):
        cells(pa.string(), ["_x0041_x0042_" * 2520 + "abcdef"])


def test_header_is_frozen_and_has_a_filter_and_the_time_zone() -> None:
    moments = pa.array([MOMENT], pa.timestamp("us", "UTC"))
    sheet = sheet_of(pa.table({"at": moments, "local": moments.cast(pa.timestamp("us")), "d": ["x" * 100]}))
    assert [cell.value for cell in sheet[1]] == ["at (UTC)", "local", "d"]
    assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("A2", "A1:C2")
    assert sheet_of(pa.table({"n": range(5)})).auto_filter.ref == "A1:A6"
    at = pa.array([WHOLE], pa.timestamp("us", "UTC"))
    assert sheet_of(pa.table({"at": at}))["A2"].number_format == "yyyy-mm-dd hh:mm:ss.000"
    assert [int(sheet.column_dimensions[name].width) for name in "AC"] == [29, 62]


@pytest.mark.parametrize("columns", [["n"], []])
def test_too_many_rows_are_refused_and_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: list[str]
) -> None:
    monkeypatch.setattr(excel, "MOST_ROWS", 3)
    batch = pa.record_batch({"n": [1, 2]}).select(columns)
    with pytest.raises(UsageError, match="can have 3 rows below its header, but there are at least 4"):
        write_file([batch, batch], batch.schema, tmp_path / "t.xlsx", FileFormat.XLSX)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "is_refused"), [("a" * 32_767, False), ("a" * 32_768, True), ("😀" * 16_384, True)])
def test_text_too_long_for_a_cell_is_refused(text: str, is_refused: bool) -> None:
    if not is_refused:
        assert cells(pa.string(), [text]) == [text]
        return
    with pytest.raises(UsageError, match="'c', row 1, must have at most 32,767 characters"):
        cells(pa.string(), [text])


def test_too_large_table_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(rows: int | None) -> None:
        excel.check_fits(cast("Any", SimpleNamespace(plan=lambda: SimpleNamespace(known_rows=rows))))

    for rows in (None, 0, 1_048_575):
        check(rows)
    with pytest.raises(UsageError, match="at least 1,048,576"):
        check(1_048_576)
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    for needs in (lambda: check(0), lambda: excel.ExcelWriter(io.BytesIO(), pa.schema([("n", pa.int8())]))):
        with pytest.raises(UsageError, match=r"delta-sharing-client\[excel\]"):
            needs()


def test_too_many_columns_are_refused() -> None:
    with pytest.raises(UsageError, match="can have 16,384 columns, but there are 16,385"):
        excel.ExcelWriter(io.BytesIO(), pa.schema([(str(n), pa.int8()) for n in range(16_385)]))


def test_failed_read_leaves_no_workbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        raise DataError("The rest is missing.")

    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    with pytest.raises(DataError, match="The rest"):
        write_file(broken(), pa.schema([("n", pa.int64())]), tmp_path / "t.xlsx", FileFormat.XLSX)
    assert [path.name for path in tmp_path.rglob("*")] == ["scratch"]
