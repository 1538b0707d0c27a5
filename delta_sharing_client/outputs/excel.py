"""Writes rows to an Excel workbook (ECMA-376, .xlsx) in constant memory, with XlsxWriter.

A number becomes a numeric cell only if it has at most 15 digits, because Excel keeps no more. Other numbers, times with
parts of a millisecond, and dates that Excel does not have, become text. Text never becomes a formula or a link.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import pyarrow as pa

from delta_sharing_client import optional
from delta_sharing_client.errors import UsageError
from delta_sharing_client.outputs.file_formats import compact_json
from delta_sharing_client.outputs.json_values import json_values
from delta_sharing_client.read_base import Read

MOST_ROWS = 1_048_575
"""The maximum number of rows below the header."""
_MOST_COLUMNS = 16_384
_MOST_CHARACTERS = 32_767
_DIGITS = 15
# Excel treats 1900 as a leap year, so its numbers for the days before March 1900 are off by one.
_FIRST_DAY = datetime.date(1900, 3, 1)
_EPOCH = datetime.datetime(1899, 12, 30)
_DAY = 24 * 60 * 60 * 1000
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_NANOS_PER_MILLI = _NANOS["ms"]
# In a cell, _x0041_ means "A", and _x005F_ an underscore (ECMA-376, ST_Xstring). XlsxWriter escapes text that looks
# like this, and control characters, but of two escapes that share an underscore only the first. The underscores of such
# text are marked, and the marks are replaced when the workbook is complete.
_CONTROL = "\x00-\x08\x0b-\x1f\ufffe\uffff"
_SHARING = re.compile(f"_x[0-9a-fA-F]{{4}}(?:_x[0-9a-fA-F]{{4}}_|[{_CONTROL}])")
_ESCAPING = re.compile(f"_(?=x[0-9a-fA-F]{{4}}[_{_CONTROL}])")
_UNDERSCORE = b"_x005F_"
_SHEET = "xl/worksheets/sheet1.xml"
_PIECE = 1 << 20
# The maximum width of a column, and the number of rows that determine widths.
_WIDEST = 60
_MEASURED_ROWS = 1000
_INSTEAD = "Choose fewer with a filter or a limit, or write Parquet or CSV"


def check_fits(read: Read) -> None:
    """Raise ``UsageError`` if the log states more rows than a sheet holds, or XlsxWriter is not installed."""
    optional.load("xlsxwriter", "excel")
    _check_rows(read.plan().known_rows or 0)


def _check_rows(rows: int) -> None:
    if rows > MOST_ROWS:
        raise UsageError(
            f"An Excel sheet can have {MOST_ROWS:,} rows below its header, but there are at least {rows:,}. {_INSTEAD}."
        )


class _Form(NamedTuple):
    """The conversion of a column to cells: its Python values, and the number format of numeric cells."""

    values: Callable[[pa.Array], Iterable[Any]]
    number_format: str | None = None


class ExcelWriter(contextlib.AbstractContextManager["ExcelWriter"]):
    """Writes batches of ``schema`` to one sheet of a workbook in ``sink``: a context manager with ``write_batch``.

    Nothing is written to ``sink`` before the end. Raises ``UsageError`` if XlsxWriter is not installed (extra
    ``excel``), or the rows, columns or a string exceed what a sheet holds.
    """

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        package = optional.load("xlsxwriter", "excel")
        if len(schema) > _MOST_COLUMNS:
            raise UsageError(
                f"An Excel sheet can have {_MOST_COLUMNS:,} columns, but there are {len(schema):,}. Choose fewer."
            )
        headers = [f"{field.name} (UTC)" if _has_zone(field.type) else field.name for field in schema]
        for header in headers:
            _check_text(header, "The name of a column")
        self._sink = sink
        # The workbook is written to disk first, and copied to the sink once it is complete.
        self._folder = tempfile.TemporaryDirectory(prefix="delta-sharing-excel-")
        self._path = Path(self._folder.name, "rows.xlsx")
        self._book = package.Workbook(self._path, {"constant_memory": True, "tmpdir": self._folder.name})
        self._book.use_zip64()
        self._file_error = package.exceptions.FileCreateError
        self._sheet = self._book.add_worksheet("rows")
        self._names = schema.names
        self._forms = [_form(field.type) for field in schema]
        formats = {form.number_format for form in self._forms} - {None}
        self._formats = {text: self._book.add_format({"num_format": text}) for text in formats}
        self._row = 0
        # Marks of an underscore, and of nothing; no text can contain them by accident.
        self._marks = (f"{secrets.token_hex(16)}u", f"{secrets.token_hex(16)}n")
        self._is_marked = False
        self._widths = [len(header) for header in headers]
        bold = self._book.add_format({"bold": True})
        for place, header in enumerate(headers):
            self._write_text(0, place, header, bold)
        self._sheet.freeze_panes(1, 0)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write the rows of ``batch`` below the others."""
        _check_rows(self._row + batch.num_rows)
        columns = [form.values(array) for form, array in zip(self._forms, batch.columns, strict=True)]
        for row, values in enumerate(zip(*columns, strict=True), self._row + 1):
            for place, value in enumerate(values):
                if value is not None:
                    self._write(row, place, value)
        self._row += batch.num_rows

    def _write(self, row: int, place: int, value: Any) -> None:
        sheet = self._sheet
        if isinstance(value, str):
            _check_text(value, f"The text in the column '{self._names[place]}', row {row},")
            self._write_text(row, place, value)
        elif isinstance(value, bool):
            sheet.write_boolean(row, place, value)
        else:
            sheet.write_number(row, place, value, self._formats.get(self._forms[place].number_format))
        if row <= _MEASURED_ROWS:
            format_ = self._forms[place].number_format
            width = len(format_) if format_ is not None and not isinstance(value, str) else len(str(value))
            self._widths[place] = max(self._widths[place], width)

    def _write_text(self, row: int, place: int, text: str, *format_: Any) -> None:
        written = text
        if _SHARING.search(text):
            written = _ESCAPING.sub(self._marks[0], text)
        if text.startswith("<r>") and text.endswith("</r>"):
            # XlsxWriter would take it for the XML of a formatted string.
            written = self._marks[1] + written
        self._is_marked |= written is not text
        if self._sheet.write_string(row, place, written, *format_):
            raise UsageError(
                f"A text of {len(text):,} characters with escapes of the form _x0041_ does not fit into an Excel cell. "
                "Leave the column out, or write Parquet or CSV."
            )

    def _copy(self, workbook: BinaryIO) -> None:
        """Copy the complete workbook to the sink, without marks."""
        if not self._is_marked:
            shutil.copyfileobj(workbook, self._sink)
            return
        with zipfile.ZipFile(workbook) as source, zipfile.ZipFile(self._sink, "w", zipfile.ZIP_DEFLATED) as target:
            for entry in source.infolist():
                with source.open(entry) as packed, target.open(entry, "w", force_zip64=True) as sink:
                    if entry.filename == _SHEET:
                        self._replace_marks(packed, sink)
                    else:
                        shutil.copyfileobj(packed, sink)

    def _replace_marks(self, source: IO[bytes], sink: IO[bytes]) -> None:
        underscore, nothing = (mark.encode() for mark in self._marks)
        left = b""
        while piece := source.read(_PIECE):
            data = (left + piece).replace(underscore, _UNDERSCORE).replace(nothing, b"")
            # The end may be the beginning of a mark.
            kept = len(underscore) - 1
            sink.write(data[:-kept])
            left = data[-kept:]
        sink.write(left)

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        with self._folder:
            for place, width in enumerate(self._widths):
                self._sheet.set_column(place, place, min(width, _WIDEST) + 2)
            if self._names:
                self._sheet.autofilter(0, 0, self._row, len(self._names) - 1)
            # Also after an error, because this closes the files, which are removed next.
            try:
                self._book.close()
            except self._file_error as error:
                raise (error.args[0] if isinstance(error.args[0], OSError) else error) from None
            if kind is None:
                with self._path.open("rb") as workbook:
                    self._copy(workbook)


def _form(kind: pa.DataType) -> _Form:
    types = pa.types
    if types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind):
        return _Form(pa.Array.to_pylist)
    if types.is_integer(kind):
        return _Form(lambda array: map(_integer, array.to_pylist()))
    if types.is_floating(kind):
        return _Form(json_values)
    if types.is_decimal(kind):
        places = f".{'0' * kind.scale}" if kind.scale > 0 else ""
        return _Form(lambda array: map(_decimal, array.to_pylist()), f"0{places}")
    if types.is_date(kind):
        return _Form(_days, "yyyy-mm-dd")
    if types.is_timestamp(kind):
        return _Form(_moments, "yyyy-mm-dd hh:mm:ss.000")
    if types.is_time(kind):
        return _Form(_times, "hh:mm:ss.000")
    return _Form(lambda array: map(_as_text, json_values(array)))


def _integer(value: int | None) -> int | str | None:
    return value if value is None or abs(value) < 10**_DIGITS else str(value)


def _decimal(value: Decimal | None) -> float | str | None:
    if value is None:
        return None
    text = format(value, "f")
    return float(value) if len(re.sub(r"[-.]", "", text).strip("0")) <= _DIGITS else text


def _days(array: pa.Array) -> Iterable[object]:
    days = array.cast(pa.int32()).to_pylist()
    return _or_text(array, [_in_calendar(None if day is None else day + _EPOCH_DAYS) for day in days])


def _moments(array: pa.Array) -> Iterable[object]:
    millis = _in_millis(array.cast(pa.int64()), array.type.unit)
    return _or_text(array, [_in_calendar(None if each is None else each / _DAY + _EPOCH_DAYS) for each in millis])


def _times(array: pa.Array) -> Iterable[object]:
    millis = _in_millis(array.cast(pa.time64("ns")).cast(pa.int64()), "ns")
    return _or_text(array, [None if each is None else each / _DAY for each in millis])


def _in_millis(numbers: pa.Array, unit: str) -> list[int | None]:
    """Return the numbers in milliseconds, ``None`` for nulls and for those that have parts of one.

    Excel shows no more, and rounds what it reads.
    """
    nanos = _NANOS[unit]
    values = numbers.to_pylist()
    return [
        None if value is None or value * nanos % _NANOS_PER_MILLI else value * nanos // _NANOS_PER_MILLI
        for value in values
    ]


def _in_calendar(serial: float | None) -> float | None:
    """Return Excel's number of a day or moment, ``None`` if Excel has none."""
    return serial if serial is not None and _FIRST_SERIAL <= serial < _END_SERIAL else None


def _or_text(array: pa.Array, serials: list[float | None]) -> Iterable[object]:
    """Return Excel's numbers for the values of ``array``, and text where there is none."""
    if serials.count(None) == array.null_count:
        return serials
    return [text if serial is None else serial for text, serial in zip(json_values(array), serials, strict=True)]


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else compact_json(value)


def _has_zone(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz)


def _check_text(text: str, where: str) -> None:
    # Excel counts the UTF-16 code units of a cell.
    if len(text) > _MOST_CHARACTERS // 2 and len(text.encode("utf-16-le")) // 2 > _MOST_CHARACTERS:
        raise UsageError(
            f"{where} must have at most {_MOST_CHARACTERS:,} characters to fit into an Excel cell, but has more. Leave "
            "the column out, or write Parquet or CSV."
        )


def _serial(day: datetime.date) -> int:
    return (day - _EPOCH.date()).days


_EPOCH_DAYS = _serial(datetime.date(1970, 1, 1))
_FIRST_SERIAL = _serial(_FIRST_DAY)
_END_SERIAL = _serial(datetime.date(9999, 12, 31)) + 1
