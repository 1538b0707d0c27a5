"""Scans, change feeds and copies from a failing server, through a proxy that cuts, delays, throttles and corrupts
connections.

In every case a read returns exactly the rows of the table or raises a ``DeltaSharingError``.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import random
import socket
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import delta_sharing_client as ds
import mock_server
from tests.tables import TableWriter, rows_of

HELP = "read from a failing server through a failing proxy, and compare the rows"

# The faults of the server that a client can notice; over plain HTTP it cannot notice a flipped byte of data.
_SERVER_FAULTS = (
    "503-first=2", "500-first=1", "429-retry-after=0:2", "401-first=1", "slow=0.2:3", "truncate-body=0.5:2",
    "cut-connection-after=200:2", "wrong-content-length=1:1", "close-delimited:2", "cut-chunked:2", "gzip:3",
    "cut-gzip=0.5:1", "ignore-range:3", "no-etag:4", "weak-etag:4", "expire-urls-now:1", "no-expiration:2",
    "missing-stats:2", "wrong-size=1:1", "drop-end-stream:1", "error-in-stream=1:1", "redirect=1000:2", "bad-chunk:1",
    "extra-metadata:1", "throttle=1:3", "trickle=0.02:1",
)  # fmt: skip
_OPTIONS = ds.ReadOptions(
    max_attempts=6, max_retry_seconds=8.0, read_timeout=2.0, connect_timeout=2.0, total_timeout=30.0, progress=False
)
_HANGS_SECONDS = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=30.0, help="duration (default 30)")
    parser.add_argument("--count", type=int, default=1_000_000, help="maximum number of reads")


def run(arguments: argparse.Namespace) -> int:
    chance = random.Random(arguments.seed)
    counts: collections.Counter[str] = collections.Counter()
    refusals: collections.Counter[str] = collections.Counter()
    end = time.monotonic() + arguments.minutes * 60
    with tempfile.TemporaryDirectory() as folder, _world(Path(folder)) as world:
        while time.monotonic() < end and counts["reads"] < arguments.count:
            number = counts["reads"]
            kind, outcome, faults, seconds = world.one(random.Random(chance.random()), number)
            counts["reads"] += 1
            counts["faults"] += faults
            counts[f"{kind}s"] += 1
            verdict = outcome if outcome in ("right", "wrong") else "refused"
            right = "recovered" if faults else "clean"
            counts[right if verdict == "right" else verdict] += 1
            if verdict == "refused":
                refusals[outcome] += 1
            if verdict == "wrong" or seconds > _HANGS_SECONDS:
                print(f"seed {arguments.seed}, read {number}: {kind} {outcome} after {seconds:.1f} s, {faults} faults")
            counts["slow"] += seconds > _HANGS_SECONDS
            counts["longest"] = max(counts["longest"], round(seconds))
    for name in ("reads", "faults", "clean", "recovered", "refused", "wrong", "slow", "longest"):
        print(f"{name:>10} {counts[name]}")
    print("  by kind", {name: counts[name] for name in ("scans", "filters", "feeds", "copys")})
    print("  refused", dict(refusals.most_common()))
    return 1 if counts["wrong"] or counts["slow"] else 0


# --- reads ---

_TABLES = ("plain", "vectors", "partitioned", "many")


def _write_tables(folder: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("value", pa.float64())])
    rows = [{"id": i, "text": f"row {i} " * 3, "value": i / 7} for i in range(4000)]
    plain = TableWriter(folder / "plain", schema, properties={"delta.enableChangeDataFeed": "true"})
    for start in range(0, 4000, 1000):
        plain.insert(rows[start : start + 1000])
    vectors = TableWriter(
        folder / "vectors",
        schema,
        protocol={
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        },
    )
    vectors.insert(*(vectors.file(rows[start : start + 500], deleting=(1, 7, 300)) for start in range(0, 2000, 500)))
    partitioned = TableWriter(
        folder / "partitioned",
        pa.schema([("id", pa.int64()), ("part", pa.string())]),
        partition_by=["part"],
        properties={"delta.enableChangeDataFeed": "true"},
    )
    for name in "abc":
        partitioned.insert(rows_of(range(300), part=name))
    many = TableWriter(folder / "many", schema)
    many.insert(*(many.file(rows[start : start + 20]) for start in range(0, 1600, 20)))


@dataclasses.dataclass
class _World:
    folder: Path
    server: Any
    proxy: _Proxy
    expected: dict[tuple[str, str], list[Any]]

    def one(self, chance: random.Random, number: int) -> tuple[str, str, int, float]:
        """Run one read; return its kind, its result (``right``, ``wrong`` or the class of the error), the number of
        faults and the seconds."""
        name, response_format = chance.choice(_TABLES), chance.choice(("delta", "parquet", "auto"))
        kind, read = chance.choice(_READS)
        if kind == "feed" and name in ("vectors", "many"):
            name = "plain"
        if name == "vectors":
            response_format = "delta"
        self.server.clear_faults()
        of_server = chance.sample(_SERVER_FAULTS, chance.choice((0, 0, 1, 1, 2)))
        for fault in of_server:
            self.server.set_fault(fault)
        self.proxy.begin(chance)
        began = time.monotonic()
        profile = {**self.server.profile, "endpoint": self.proxy.endpoint(self.server.profile["endpoint"])}
        try:
            with warnings.catch_warnings(), ds.SharingClient(profile, _OPTIONS) as client:
                warnings.simplefilter("ignore")
                table = client.table(f"s.s.{name}")
                place = self.folder / f"place-{number % 40}"
                result = sorted(read(table, response_format, place), key=repr)
            outcome = "right" if result == self.expected[kind, name] else "wrong"
        except ds.DeltaSharingError as error:
            outcome = type(error).__name__
        return kind, outcome, self.proxy.faults + len(of_server), time.monotonic() - began


def _scan(table: ds.SharedTable, response_format: str, place: Path) -> list[Any]:
    return table.scan(response_format=response_format).to_arrow().to_pylist()


def _filter(table: ds.SharedTable, response_format: str, place: Path) -> list[Any]:
    scan = table.scan(["id"], "id >= 100 AND id < 1200", response_format=response_format)
    return [row for batch in scan.to_batches() for row in batch.to_pylist()]


def _feed(table: ds.SharedTable, response_format: str, place: Path) -> list[Any]:
    feed = table.changes(1, response_format=response_format)
    return [{**row, "_commit_timestamp": None} for row in feed.to_arrow().to_pylist()]


def _copy(table: ds.SharedTable, response_format: str, place: Path) -> list[Any]:
    directory = place / f"copy-{table.name.name}-{response_format}"
    table.replicate(directory, response_format=response_format)
    # The copy is read from a second server, which has no faults.
    with mock_server.running(tables={"c.c.c": directory}) as server, ds.SharingClient(server.profile) as client:
        return client.table("c.c.c").scan().to_arrow().to_pylist()


Read = Callable[[ds.SharedTable, str, Path], list[Any]]
_READS: tuple[tuple[str, Read], ...] = (
    ("scan", _scan), ("scan", _scan), ("filter", _filter), ("feed", _feed), ("copy", _copy),
)  # fmt: skip


@contextlib.contextmanager
def _world(folder: Path) -> Iterator[_World]:
    tables = folder / "tables"
    tables.mkdir()
    _write_tables(tables)
    with mock_server.running(tables={f"s.s.{name}": tables / name for name in _TABLES}) as server:
        port = int(server.profile["endpoint"].split(":")[2].split("/")[0])
        with ds.SharingClient(server.profile) as client, _Proxy(port) as proxy:
            world = _World(folder, server, proxy, {})
            for kind, read in dict(_READS).items():
                for name in _TABLES:
                    if kind != "feed" or name in ("plain", "partitioned"):
                        rows = read(client.table(f"s.s.{name}"), "auto", folder / "expected")
                        world.expected[kind, name] = sorted(rows, key=repr)
            yield world


# --- the proxy ---


class _Proxy:
    """Forwards connections to ``port``; the random generator of the current read chooses the fault of each
    connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._chance = random.Random(0)
        self._lock = threading.Lock()
        self.faults = 0

    def __enter__(self) -> _Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def endpoint(self, of_server: str) -> str:
        """Return the server's endpoint with the port of the proxy."""
        return of_server.replace(f":{self._port}/", f":{self._listening.getsockname()[1]}/")

    def begin(self, chance: random.Random) -> None:
        """Choose the next faults with ``chance``, and set the count of faults to zero."""
        with self._lock:
            self._chance, self.faults = chance, 0
            self._rate = chance.choice((0.0, 0.1, 0.3, 0.6))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _draw(self) -> tuple[str, float]:
        with self._lock:
            if self._chance.random() >= self._rate:
                return "none", 0
            self.faults += 1
            fault = self._chance.choice(("cut", "reset", "delay", "throttle", "garble", "refuse"))
            return fault, self._chance.random()

    def _serve(self, client: socket.socket) -> None:
        fault, size = self._draw()
        with client, contextlib.suppress(OSError):
            if fault == "refuse":
                _reset(client)
                return
            if fault == "delay":
                time.sleep(size * 1.5)
            with socket.create_connection(("127.0.0.1", self._port)) as server:
                upward = threading.Thread(target=_pump, args=(client, server), daemon=True)
                upward.start()
                self._downward(server, client, fault, size)
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                    server.shutdown(socket.SHUT_RDWR)

    def _downward(self, server: socket.socket, client: socket.socket, fault: str, size: float) -> None:
        # The stream ends anywhere from 30 bytes to a megabyte.
        end, sent = int(10 ** (1.5 + size * 4.5)), 0
        while data := server.recv(16_384):
            if fault == "garble" and sent == 0:
                data = _garbled(data, size)
            if fault in ("cut", "reset") and sent + len(data) > end:
                client.sendall(data[: max(0, end - sent)])
                if fault == "reset":
                    _reset(client)
                return
            if fault == "throttle":
                for start in range(0, len(data), 4096):
                    client.sendall(data[start : start + 4096])
                    time.sleep(0.005 * size)
            else:
                client.sendall(data)
            sent += len(data)


def _garbled(data: bytes, size: float) -> bytes:
    """Flip a bit of the status line, so that the response is not HTTP or has another status."""
    place = int(size * min(12, len(data)))
    return data[:place] + bytes([data[place] ^ 0x15]) + data[place + 1 :]


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(16_384):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
