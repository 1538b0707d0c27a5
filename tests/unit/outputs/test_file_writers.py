from __future__ import annotations

import csv
import decimal
import gzip
import io
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.errors import DataError, UnsupportedFeatureError, UsageError
from delta_sharing_client.outputs import file_writers
from delta_sharing_client.outputs.file_formats import BY_ENDING, FileFormat, format_of, is_compressed
from delta_sharing_client.outputs.file_writers import _TEMPORARY_SUFFIX, _temporary_prefix, write_file, write_stream
from delta_sharing_client.plan.read_columns import LEFT_OUT_KEY

SCHEMA = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string())), ("at", pa.timestamp("us", "UTC"))])
BATCHES = [
    pa.RecordBatch.from_pydict({"id": [1, None], "tags": [["a,b", None], None], "at": [0, 1]}, schema=SCHEMA),
    pa.RecordBatch.from_pydict({"id": [3], "tags": [[]], "at": [None]}, schema=SCHEMA),
]


@pytest.mark.parametrize(("name", "read"), [("t.parquet", pq.read_table), ("t.arrow", pa.ipc.open_file)])
def test_columnar_files_have_all_rows_and_the_schema(tmp_path: Path, name: str, read: object) -> None:
    target = tmp_path / name

    assert write_file(iter(BATCHES), SCHEMA, target, format_of(target)) == 3

    table = pq.read_table(target) if name.endswith("parquet") else pa.ipc.open_file(target).read_all()
    assert table == pa.Table.from_batches(BATCHES)


def test_csv_has_nested_values_and_timestamps_as_text() -> None:
    sink = io.BytesIO()

    write_stream(BATCHES, SCHEMA, sink, FileFormat.CSV)

    assert list(csv.reader(io.StringIO(sink.getvalue().decode()))) == [
        ["id", "tags", "at"],
        ["1", '["a,b",null]', "1970-01-01T00:00:00.000000Z"],
        ["", "", "1970-01-01T00:00:00.000001Z"],
        ["3", "[]", ""],
    ]


TYPED = pa.table(
    {
        'quo"ted': pa.array(['a"b', "", None, "x,y\n\r"]),
        "i": pa.array([1, None, -3, 2**63 - 1]),
        "b": pa.array([True, None, False, True]),
        "d": pa.array([0.1, float("nan"), None, float("-inf")]),
        "f": pa.array([0.1, float("inf"), 3.4e38, 16777216], pa.float32()),
        "n": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-0.01"), decimal.Decimal(0)]),
        "at": pa.array([0, 1, None, -1], pa.timestamp("us", "UTC")),
        "day": pa.array([0, None, -1, 3_000_000], pa.date32()),
        "bytes": pa.array([b"\x00\xff", b"", None, b"a"]),
        "took": pa.array([5, None, -7, 0], pa.duration("us")),
        "nested": pa.array(
            [{"f": [0.1, None]}, None, {"f": None}, {"f": []}], pa.struct([("f", pa.list_(pa.float32()))])
        ),
        "nothing": pa.nulls(4),
    }
)


def written(table: pa.Table, file_format: FileFormat) -> str:
    sink = io.BytesIO()
    write_stream(table.to_batches(max_chunksize=3), table.schema, sink, file_format)
    return sink.getvalue().decode()


def test_csv_and_json_have_the_same_texts() -> None:
    names, *lines = csv.reader(io.StringIO(written(TYPED, FileFormat.CSV), newline=""))
    assert names == TYPED.column_names
    for line, row in zip(lines, map(json.loads, written(TYPED, FileFormat.JSONL).splitlines()), strict=True):
        for text, value in zip(line, row.values(), strict=True):
            if value is None or isinstance(value, str):
                assert text == (value or "")
            elif isinstance(value, bool):
                assert text == str(value).lower()
            elif isinstance(value, (int, float)):
                assert text == repr(value)
            else:
                assert json.loads(text) == value


def test_csv_is_what_the_writer_of_pyarrow_writes() -> None:
    """Except for floating-point numbers, and for types that this package writes as text."""
    plain = TYPED.select(['quo"ted', "i", "b"])
    sink = io.BytesIO()
    with pa_csv.CSVWriter(sink, plain.schema) as writer:
        for batch in plain.to_batches():
            writer.write_batch(batch)
    assert written(plain, FileFormat.CSV) == sink.getvalue().decode()


def test_csv_is_read_by_duckdb_and_pandas(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(written(TYPED, FileFormat.CSV), encoding="utf-8", newline="")
    frame = pd.read_csv(tmp_path / "t.csv", dtype={"f": "float32"})
    assert repr(frame["d"].tolist()) == "[0.1, nan, nan, -inf]"
    assert frame["f"].to_numpy().tobytes() == TYPED["f"].to_numpy().tobytes()
    types = "{'d': 'DOUBLE', 'f': 'FLOAT', 'i': 'BIGINT'}"
    query = f"SELECT d, f, i FROM read_csv('{tmp_path / 't.csv'}', types={types}, strict_mode=false)"
    d, f, i = zip(*duckdb.sql(query).fetchall(), strict=True)
    assert (repr(d), i) == ("(0.1, nan, None, -inf)", (1, None, -3, 2**63 - 1))
    assert f == tuple(TYPED["f"].to_pylist())


@pytest.mark.parametrize("rows", [0, 3])
def test_csv_without_columns_has_a_line_for_each_row(rows: int) -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    sink = io.BytesIO()
    write_stream([batch], batch.schema, sink, FileFormat.CSV)
    assert sink.getvalue() == b"\n" * (rows + 1)


def test_json_lines_have_one_object_per_row() -> None:
    sink = io.BytesIO()

    write_stream(BATCHES, SCHEMA, sink, FileFormat.JSONL)

    assert [json.loads(line) for line in sink.getvalue().decode().splitlines()] == [
        {"id": 1, "tags": ["a,b", None], "at": "1970-01-01T00:00:00.000000Z"},
        {"id": None, "tags": None, "at": "1970-01-01T00:00:00.000001Z"},
        {"id": 3, "tags": [], "at": None},
    ]


def test_json_file_is_an_array_with_one_object_per_line() -> None:
    sink = io.BytesIO()

    assert write_stream(BATCHES, SCHEMA, sink, FileFormat.JSON) == 3

    rows = json.loads(sink.getvalue())
    assert [row["id"] for row in rows] == [1, None, 3]
    lines = sink.getvalue().decode().splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("[", "]", 5)


def test_failed_json_output_is_not_a_valid_array() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        raise DataError("The rest is missing.")

    sink = io.BytesIO()
    with pytest.raises(DataError):
        write_stream(broken(), SCHEMA, sink, FileFormat.JSON)
    with pytest.raises(json.JSONDecodeError):
        json.loads(sink.getvalue())


@pytest.mark.parametrize(("name", "file_format"), [("a.csv.gz", FileFormat.CSV), ("a.jsonl.gz", FileFormat.JSONL)])
def test_compressed_file_contains_the_same_text(tmp_path: Path, name: str, file_format: FileFormat) -> None:
    plain = io.BytesIO()
    write_stream(BATCHES, SCHEMA, plain, file_format)

    assert write_file(iter(BATCHES), SCHEMA, tmp_path / name, file_format) == 3

    assert gzip.decompress((tmp_path / name).read_bytes()) == plain.getvalue()


@pytest.mark.parametrize("file_format", list(FileFormat))
def test_empty_result_is_a_valid_file(tmp_path: Path, file_format: FileFormat) -> None:
    target = tmp_path / "empty"

    assert write_file([], SCHEMA, target, file_format) == 0

    if file_format is FileFormat.PARQUET:
        assert pq.read_schema(target) == SCHEMA
    if file_format is FileFormat.JSON:
        assert json.loads(target.read_text()) == []
    assert target.exists()
    assert stat.S_IMODE(target.stat().st_mode) & stat.S_IRUSR


@pytest.mark.parametrize("mask", [0o027, 0o022, 0o077])
def test_file_mode_follows_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_file(iter(BATCHES), SCHEMA, tmp_path / "t.csv", FileFormat.CSV)
    finally:
        result = os.umask(before)
    assert result == mask
    assert stat.S_IMODE((tmp_path / "t.csv").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("lasting", [True, False])
def test_only_durable_files_are_synced(tmp_path: Path, lasting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Path] = []
    replace = file_writers.durable.replace
    monkeypatch.setattr(file_writers.durable, "replace", lambda *names: waited.append(names[1]) or replace(*names))
    monkeypatch.delattr(signal, "SIGHUP")  # Windows has no such signal
    batch = pa.record_batch({"n": [1]})
    assert write_file([batch], batch.schema, tmp_path / "f.csv", FileFormat.CSV, lasting=lasting) == 1
    assert waited == [tmp_path / "f.csv"] * lasting
    assert [path.name for path in tmp_path.iterdir()] == ["f.csv"]


def test_failed_read_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "t.parquet"
    target.write_text("old")

    def broken() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        raise DataError("the second file is short")

    with pytest.raises(DataError, match="second file"):
        write_file(broken(), SCHEMA, target, FileFormat.PARQUET)

    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_error_of_an_unknown_suffix_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'t\.ods'.*\.parquet.*--format"):
        format_of(Path("t.ods"))


def test_error_names_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot write '.*nowhere/t\.csv': there is no directory '.*nowhere'"):
        write_file(BATCHES, SCHEMA, tmp_path / "nowhere" / "t.csv", FileFormat.CSV)


def test_error_without_a_message_is_described(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        raise OSError
        yield

    with pytest.raises(UsageError, match=r"Cannot write '.*t\.csv': the system refused it\. Choose another place\."):
        write_file(failing(), SCHEMA, tmp_path / "t.csv", FileFormat.CSV)


def test_path_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()

    with pytest.raises(UsageError, match="is a directory"):
        write_file(iter(BATCHES), SCHEMA, tmp_path / "t.csv", FileFormat.CSV)


@pytest.mark.parametrize("file_format", list(FileFormat))
def test_full_disk_is_reported_in_one_sentence(
    tmp_path: Path, file_format: FileFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # otherwise partly written .pyc files would remain
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = pa.RecordBatch.from_pydict({"id": range(10_000), "tags": [None] * 10_000, "at": [None] * 10_000}, SCHEMA)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(UsageError, match=r"Cannot write '.*t\.out': File too large\. Make room"):
            write_file([rows] * 20, SCHEMA, tmp_path / "t.out", file_format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert list(tmp_path.iterdir()) == []


WRITER = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests were started with (nohup)
from pathlib import Path
import pyarrow as pa
from delta_sharing_client.outputs.file_writers import write_file
from delta_sharing_client.outputs.file_formats import FileFormat

def batches():
    yield pa.RecordBatch.from_pydict({"id": [1]})
    print("begun", flush=True)
    time.sleep(60)

write_file(batches(), pa.schema([("id", pa.int64())]), Path(sys.argv[1]), FileFormat.CSV)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_next_process_removes_files_of_a_killed_process(tmp_path: Path, name: str) -> None:
    target = tmp_path / "t.csv"
    command = [sys.executable, "-c", WRITER, str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}) as run:
        assert run.stdout is not None
        run.stdout.readline()
        # Files of a running process are left alone.
        write_file(iter(BATCHES), SCHEMA, target, FileFormat.CSV)
        assert len(list(tmp_path.iterdir())) == 2
        run.send_signal(getattr(signal, name))
        code = run.wait()  # a process that ignores the signal exits with another code

    number = getattr(signal, name)
    assert code == (-number if name == "SIGKILL" else 128 + number)
    assert len(list(tmp_path.iterdir())) == (2 if name == "SIGKILL" else 1)
    write_file(iter(BATCHES), SCHEMA, target, FileFormat.CSV)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("length", [300, 5000])
def test_invalid_file_name_is_reported_in_one_sentence(tmp_path: Path, length: int) -> None:
    rows = pa.table({"a": [1]})
    with pytest.raises(UsageError, match=r"Cannot write '.*': File name too long\. Choose another place\."):
        write_file(rows.to_batches(), rows.schema, tmp_path / ("x" * length), FileFormat.CSV)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x" * 251 + ".csv", "\u00e4" * 125 + ".csv"])
def test_longest_name_is_written_and_its_temporary_file_removed(tmp_path: Path, name: str) -> None:
    rows = pa.table({"a": [1]})
    left = tmp_path / f"{_temporary_prefix(tmp_path / name)}old{_TEMPORARY_SUFFIX}"
    left.write_bytes(b"half")
    assert write_file(rows.to_batches(), rows.schema, tmp_path / name, FileFormat.CSV) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", [*BY_ENDING, ".PARQUET", ".Json", ".txt", ""])
def test_suffix_determines_format_and_compression(name: str) -> None:
    ending = BY_ENDING.get(name.lower())
    for packed in ("", ".gz", ".GZ"):
        target = Path(f"x{name}{packed}")
        if ending is None:
            with pytest.raises(UsageError, match="Cannot tell the format"):
                format_of(target)
            continue
        assert format_of(target) is ending
        if packed and ending in (FileFormat.CSV, FileFormat.JSONL, FileFormat.JSON):
            assert is_compressed(target, ending)
        elif packed:
            with pytest.raises(UsageError, match=f"format {ending.value} is not compressed as a whole"):
                is_compressed(target, ending)
        else:
            assert not is_compressed(target, ending)


def test_table_with_left_out_columns_is_not_written(tmp_path: Path) -> None:
    left_out = SCHEMA.with_metadata({LEFT_OUT_KEY: json.dumps({"x": "void"})})
    with pytest.raises(UnsupportedFeatureError, match="would be missing forever"):
        write_file(iter(BATCHES), left_out, tmp_path / "x.csv", FileFormat.CSV)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_terminating_signals_exit_the_program_cleanly(name: str) -> None:
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended, file_writers._ended_by_signals():
            signal.raise_signal(number)
        assert ended.value.code == 128 + number
        assert signal.getsignal(number) is signal.SIG_DFL
        # An ignored signal and one that the program handles are left alone, and so are all signals on another thread.
        for handler in (signal.SIG_IGN, lambda *_: None):
            signal.signal(number, handler)
            with file_writers._ended_by_signals():
                assert signal.getsignal(number) is handler
            assert signal.getsignal(number) is handler
        signal.signal(number, signal.SIG_DFL)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(within_signals, number).result() is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def within_signals(number: int) -> object:
    with file_writers._ended_by_signals():
        return signal.getsignal(number)
