"""Feed damaged Parquet files to the scan engine, which must return rows or raise a DeltaSharingError that names table
and file.

    python -m tools.fuzz.parquet --seconds 60               # workers in separate processes, restarted if they die
    python -m tools.fuzz.parquet --input FILE --read 1      # one file, as kept after a failure

A worker process reads thousands of damaged files through ``run.engine``; only the HTTP request itself is replaced.
These count as failures: any other exception, a process that dies, an input that takes more than ``SLOW`` seconds of
processor time or hangs for ``HANG`` seconds, and memory beyond ``MEMORY`` bytes. The exit code is 1 after a failure.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import faulthandler
import io
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.actions import AddFile, Metadata, Protocol, SharedFile
from delta_sharing_client.delta.schema import from_arrow_schema, schema_to_json
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.fetch.http import Http
from delta_sharing_client.fetch.place import Body, DataRequest, Span, Version
from delta_sharing_client.fetch.signed_urls import SignedUrls
from delta_sharing_client.http.network import ONLY_HTTPS
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.plan.read_request import ScanRequest, TableState
from delta_sharing_client.plan.snapshot_files import plan_snapshot
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.run.batches import Batches
from tests.time_limits import Stopwatch
from tests.versions import parquet_settings

SLOW = 5.0
HANG = 90.0
MEMORY = 6 << 30
TABLE, FILE_ID = "share.schema.fuzzed", "fuzzed-file"
URL = "https://storage.example/part-0.parquet?X-Amz-Signature=secret"
OPTIONS = ReadOptions(max_attempts=1, max_concurrent_requests=2, progress=False)
# Ways to read: everything, a few columns, filters that use the statistics of row groups, and only a few rows.
READS: list[dict[str, Any]] = [
    {},
    {"columns": (("l",), ("t",))},
    {"filter": parse_filter("i > 3 AND t < 'k' AND d >= 0.5 AND e > DATE '2000-01-01'")},
    {"filter": parse_filter("n <= 7.25 OR z < TIMESTAMP '2001-01-01 00:00:00'"), "columns": (("s", "x"),)},
    {"limit": 3},
]


# --- one file ---


class _Memory:
    """An open response over bytes in memory instead of a socket."""

    version = Version('"one"')
    checksum = modified = None

    def __init__(self, data: bytes, span: Span) -> None:
        self.span = span
        self._data = data

    async def read(self) -> bytes:
        data, self._data = self._data, b""
        return data


@contextmanager
def storage_with(data: bytes) -> Iterator[None]:
    """Respond to every range request with ``data`` while the block runs."""

    async def answer(self: Http, request: DataRequest, take: Callable[[Body], Awaitable[None]]) -> None:
        requested = request.wanted
        if requested is None:
            start, stop = 0, len(data)
        elif isinstance(requested, ByteRange):
            start, stop = requested.start, min(requested.stop, len(data))
        else:
            start, stop = max(0, len(data) - requested), len(data)
        await take(_Memory(data[start:stop], Span(start, stop, len(data))))

    real, Http.get = Http.get, answer  # type: ignore[method-assign]
    try:
        yield
    finally:
        Http.get = real  # type: ignore[method-assign]


def read_file(data: bytes, read: int, schema: pa.Schema | None = None) -> bool:
    """Read one file in one of ``READS``; return whether it was accepted.

    Raises
    ------
    AssertionError
        It failed with anything but a ``DeltaSharingError`` that names table and file, or it showed a signature.
    """
    text = schema_to_json(from_arrow_schema(SCHEMA if schema is None else schema))
    metadata = Metadata("00000000-0000-0000-0000-000000000001", text)
    file = SharedFile(AddFile(path=URL, size=len(data)), FILE_ID)
    place = SignedUrls(OPTIONS, ONLY_HTTPS, TABLE)
    table = TableState(name=TABLE, version=0, protocol=Protocol(1), metadata=metadata, place=place)
    plan = plan_snapshot(table, [file], ScanRequest(**READS[read % len(READS)]), OPTIONS)
    clock = Stopwatch(time.process_time)
    error: DeltaSharingError | None = None
    with storage_with(data):
        try:
            for batch in Batches(plan):
                assert batch.schema.equals(plan.output_schema)
                batch.validate(full=True)
        except DeltaSharingError as caught:
            error = caught
    assert clock.within(SLOW), "too slow"
    if error is not None:
        assert error.table == TABLE, f"no table in {error!r}"
        assert error.file_id == FILE_ID, f"no file in {error!r}"
        assert "secret" not in str(error)
    return error is None


# --- files to damage ---

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("t", pa.string()),
        ("d", pa.float64()),
        ("b", pa.bool_()),
        ("e", pa.date32()),
        ("n", pa.decimal128(20, 3)),
        ("z", pa.timestamp("us", tz="UTC")),
        ("y", pa.binary()),
        ("s", pa.struct([("x", pa.int32()), ("t", pa.string())])),
        ("l", pa.list_(pa.field("element", pa.int64()))),
        ("m", pa.map_(pa.string(), pa.float32())),
    ]
)


def seeds() -> list[bytes]:
    """Return valid files that differ in compression, encodings, pages and row groups."""
    stamp = datetime.datetime(2024, 5, 6, tzinfo=datetime.timezone.utc)
    rows = [
        {
            "i": number * 3,
            "t": None if number % 5 == 0 else "abcdefghijk"[: number % 11],
            "d": number / 2,
            "b": number % 2 == 0,
            "e": datetime.date(2020, 1, 1) + datetime.timedelta(number),
            "n": decimal.Decimal(number) / 8 if number % 3 else None,
            "z": stamp + datetime.timedelta(seconds=number),
            "y": bytes([number % 256]) * (number % 4),
            "s": None if number % 4 == 0 else {"x": number, "t": "s"},
            "l": None if number % 6 == 0 else list(range(number % 4)),
            "m": [("k", 1.5), ("q", None)] if number % 2 else [],
        }
        for number in range(40)
    ]
    table = pa.Table.from_pylist(rows, SCHEMA)
    ways: list[dict[str, Any]] = [
        {"compression": "none", "use_dictionary": False},
        {"compression": "snappy", "row_group_size": 15},
        {"compression": "zstd", "data_page_version": "2.0", "write_page_checksum": True},
        {"compression": "gzip", "data_page_size": 64, "use_dictionary": ["t"]},
        {"compression": "lz4", "use_deprecated_int96_timestamps": True, "write_page_index": True},
        {
            "compression": "none",
            "use_dictionary": False,
            "column_encoding": {"i": "DELTA_BINARY_PACKED", "t": "DELTA_BYTE_ARRAY", "d": "BYTE_STREAM_SPLIT"},
        },
    ]
    results = []
    for way in ways:
        sink = io.BytesIO()
        pq.write_table(table, sink, **parquet_settings(**way))
        results.append(sink.getvalue())
    return results


def damage(data: bytes, random_: random.Random) -> bytes:
    """Return ``data`` with a few random changes, half of the time in its footer, which contains all positions."""
    damaged = bytearray(data)
    footer = max(0, len(data) - 8 - int.from_bytes(data[-8:-4], "little")) if len(data) > 12 else 0
    for _ in range(random_.choice((1, 1, 1, 2, 4, 16))):
        low, high = random_.choice(((0, len(damaged)), (footer, len(damaged)), (4, max(5, footer))))
        at = random_.randrange(low, max(low + 1, min(high, len(damaged))))
        size = random_.choice((1, 1, 1, 2, 4, 8))
        kind = random_.randrange(6)
        if kind <= 1:
            damaged[at : at + 1] = bytes([damaged[at] ^ 1 << random_.randrange(8)]) if at < len(damaged) else b""
        elif kind == 2:
            damaged[at : at + size] = random_.randbytes(size)
        elif kind == 3:
            damaged[at : at + size] = random_.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * size
        elif kind == 4 and random_.random() < 0.3:
            del damaged[at : at + size]
        else:
            other = random_.randrange(len(damaged))
            damaged[at : at + size] = damaged[other : other + size]
    if random_.random() < 0.05:
        del damaged[random_.randrange(len(damaged)) :]
    elif random_.random() < 0.5 and len(damaged) == len(data):
        damaged[-4:] = b"PAR1"  # otherwise half of the files would be refused for their last bytes
        damaged[-8:-4] = data[-8:-4]
    return bytes(damaged)


# --- running ---


def work(folder: Path, seed: int, seconds: float) -> int:
    """Read damaged files until the time is over; the current file is kept in ``folder`` in case this process dies."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    random_ = random.Random(seed)
    corpus = seeds()
    current, note = folder / "input.parquet", folder / "read"
    for read in range(len(READS)):
        assert all(read_file(data, read) for data in corpus)
    fed = accepted = 0
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        data, read = damage(random_.choice(corpus), random_), random_.randrange(len(READS))
        current.write_bytes(data)
        note.write_text(str(read))
        faulthandler.dump_traceback_later(HANG, exit=True)
        accepted += read_file(data, read)
        fed += 1
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.write(f"{fed} files, {accepted} accepted\n")
    return 0


def supervise(seconds: float, seed: int, report: Callable[[str], object]) -> int:
    """Run workers one after another; return how many failed. The last input of each failed worker is kept."""
    failures = 0
    stop = time.monotonic() + seconds
    while (left := stop - time.monotonic()) > 1:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-parquet-"))
        command = [sys.executable, "-m", "tools.fuzz.parquet", "--worker", str(folder)]
        done = subprocess.run(
            [*command, "--seed", str(seed), "--seconds", str(left)], capture_output=True, text=True, check=False
        )
        report(f"seed {seed}: {done.stdout.strip()}")
        if done.returncode:
            failures += 1
            report(f"FAILED with exit code {done.returncode}; its input lies in {folder}\n{done.stderr[-3000:]}")
        else:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        seed += 1
    return failures


def main(arguments: list[str] | None = None) -> int:
    """Run the program that the module docstring describes."""
    parser = argparse.ArgumentParser(description="Feed damaged Parquet files to the scan engine.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--worker", type=Path, help="used by the program itself: a folder for the current input")
    parser.add_argument("--input", type=Path, help="read this file once")
    parser.add_argument("--read", type=int, default=0, help="the index of the way to read it")
    options = parser.parse_args(arguments)
    if options.input is not None:
        accepted = read_file(options.input.read_bytes(), options.read)
        sys.stdout.write("accepted\n" if accepted else "refused\n")
        return 0
    if options.worker is not None:
        return work(options.worker, options.seed, options.seconds)
    return 1 if supervise(options.seconds, options.seed, lambda line: sys.stdout.write(line + "\n")) else 0


if __name__ == "__main__":
    raise SystemExit(main())
