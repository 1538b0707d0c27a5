"""Programs that read through DuckDB, Polars and Arrow end during the read, normally or by Ctrl-C.

Each is a separate process over a table of several files. A program that reaches its end exits with status 0 and
prints nothing about a crash; a program that gets a single Ctrl-C at a random moment ends within a second, whatever its
server does.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

import mock_server

HELP = "end programs that read through engines, normally or by Ctrl-C"

_HANGS_SECONDS = 20.0
_PROGRAM = """
import sys
import duckdb, polars as pl, pyarrow.dataset, delta_sharing_client as ds
profile, name = sys.argv[1:]
scan = ds.SharingClient(profile).table(name).scan()
connection = duckdb.connect()
print("begins", flush=True)
{statement}
"""
_ATTACH = "ds.attach(connection, profile)\n"

# Programs that end before they have read all rows.
ENDS = {
    "duckdb: printed": _ATTACH + "print(str(connection.sql(f'SELECT * FROM {name} LIMIT 5')))",
    "duckdb: fetchmany": _ATTACH + "connection.execute(f'SELECT * FROM {name}').fetchmany(1)",
    "duckdb: fetchone of a filter": _ATTACH
    + "rows = connection.execute(f\"SELECT name FROM {name} WHERE name LIKE '%7'\"); rows.fetchone()",
    "duckdb: a cursor": _ATTACH + "cursor = connection.cursor(); cursor.execute(f'SELECT id FROM {name}').fetchmany(3)",
    "duckdb: a reader's first batch": _ATTACH
    + "rows = connection.execute(f'SELECT * FROM {name}').to_arrow_reader(100); rows.read_next_batch()",
    "duckdb: a relation of a dataset": "data = scan.to_dataset()\n"
    "connection.execute('SELECT * FROM data').fetchmany(2)",
    "duckdb: a relation of a reader": "data = scan.to_reader()\nconnection.execute('SELECT * FROM data').fetchmany(2)",
    "arrow: a dataset's first batch": "rows = scan.to_dataset().to_batches(); next(rows)",
    "arrow: pyarrow's own scanner": "scanner = scan.to_dataset().scanner(use_threads=True)\n"
    "rows = scanner.to_batches(); next(rows)",
    "polars: head": "print(scan.to_polars(lazy=True).head(3).collect())",
}
# Programs whose read of a whole table takes a long time.
READS = {
    "duckdb: fetchall": _ATTACH + "connection.execute(f'SELECT * FROM {name}').fetchall()",
    "duckdb: a sum": _ATTACH + "connection.execute(f'SELECT sum(id), max(name) FROM {name}').fetchall()",
    "duckdb: to Arrow": _ATTACH + "connection.execute(f'SELECT * FROM {name}').fetch_arrow_table()",
    "duckdb: a join": _ATTACH + "connection.sql(f'SELECT count(*) FROM {name} a JOIN {name} b USING (id)').fetchall()",
    "duckdb: a copy": _ATTACH + "connection.execute(f'CREATE TABLE copied AS SELECT * FROM {name}')",
    "duckdb: in parts": _ATTACH + "rows = connection.execute(f'SELECT * FROM {name}')\nwhile rows.fetchmany(9): pass",
    "arrow: a dataset's table": "scan.to_dataset().to_table()",
    "arrow: a dataset's batches": "for _ in scan.to_dataset().to_batches(): pass",
    "arrow: a reader": "scan.to_reader().read_all()",
    "polars: collect": "scan.to_polars(lazy=True).collect()",
    "polars: a sum": "scan.to_polars(lazy=True).select(pl.col('id').sum()).collect()",
    "polars: streaming": "scan.to_polars(lazy=True).select(pl.col('name').max()).collect(engine='streaming')",
}
_SERVERS: dict[str, dict[str, object]] = {
    "fast": {},
    "slow": {"latency": 0.05, "bandwidth": 1_000_000},
    "stuck": {"faults": ("slow=30@data",)},
}
_NAME = "share.schema.tabelle"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ends", type=int, default=200, help="number of programs that end (default 200)")
    parser.add_argument("--interrupts", type=int, default=200, help="number of programs that get Ctrl-C (default 200)")
    parser.add_argument("--within", type=float, default=1.0, help="seconds from Ctrl-C to the end (default 1)")


def run(arguments: argparse.Namespace) -> int:
    chance = random.Random(arguments.seed)
    failures: list[str] = []
    slowest: dict[str, float] = collections.defaultdict(float)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="engines-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        write_table(folder.joinpath(*_NAME.split(".")), files=6, rows=200_000)
        servers = {
            kind: stack.enter_context(mock_server.running(folder, process=True, **options))
            for kind, options in _SERVERS.items()
        }
        for number in range(arguments.ends):
            kind = list(ENDS)[number % len(ENDS)]
            failure = ended(ENDS[kind], servers["fast"].profile_path, _NAME)
            slowest["the end"] = max(slowest["the end"], failure[0])
            if failure[1]:
                failures.append(f"{kind}: {failure[1]}")
        for number in range(arguments.interrupts):
            kind, server = list(READS)[number % len(READS)], ("slow", "stuck")[number // len(READS) % 2]
            took, message = interrupted(READS[kind], servers[server].profile_path, _NAME, chance.random() * 2)
            slowest[f"Ctrl-C, {server}"] = max(slowest[f"Ctrl-C, {server}"], took)
            if message or took > arguments.within:
                failures.append(f"{kind} ({server}): over {took:.2f} s after Ctrl-C. {message}")
    for failure in failures:
        sys.stdout.write(f"FAILED {failure}\n")
    for kind, seconds in slowest.items():
        sys.stdout.write(f"{kind:16} the slowest took {seconds:.2f} s\n")
    total, seconds = arguments.ends + arguments.interrupts, time.monotonic() - began
    sys.stdout.write(f"{total} programs in {seconds:.0f} s, seed {arguments.seed}: {len(failures)} failed\n")
    return 1 if failures else 0


def write_table(folder: Path, files: int, rows: int) -> None:
    """Write a Delta table of ``files`` files of ``rows`` rows, with long and non-Latin text."""
    source = np.random.default_rng(1)
    folder.mkdir(parents=True)
    for number in range(files):
        ids = np.arange(number * rows, (number + 1) * rows)
        columns = {
            "id": pa.array(ids),
            "name": pa.array([f"Größe 名前 {value}" for value in ids]),
            "noise": pa.array([source.bytes(24) for _ in range(rows)]),
            "day": pa.array([datetime.date(2024, 1, 1 + number)] * rows),
            "o": pa.array([{"größe.x": int(value), "y": f"y{value % 10}"} for value in ids]),
        }
        write_deltalake(folder, pa.table(columns), mode="append")


def ended(statement: str, profile: Path, name: str) -> tuple[float, str]:
    """Run a program to its end; return the seconds since its first line of output, and the failure if any."""
    process = _program(statement, profile, name)
    began = time.monotonic()
    try:
        errors = process.communicate(timeout=_HANGS_SECONDS)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return _HANGS_SECONDS, "it did not end."
    # DuckDB's binding prints leaked objects at every exit, so only crashes and tracebacks count as failures.
    lines = [line for line in errors.splitlines() if "Fatal" in line or "Traceback" in line or "terminate" in line]
    return time.monotonic() - began, "" if process.returncode == 0 and not lines else f"{process.returncode}: {errors}"


def interrupted(statement: str, profile: Path, name: str, after: float) -> tuple[float, str]:
    """Send a program one Ctrl-C ``after`` seconds from its start; return how long it took to end, and the failure if
    any."""
    process = _program(statement, profile, name)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    try:
        errors = process.communicate(timeout=_HANGS_SECONDS)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return _HANGS_SECONDS, "it did not end."
    took = time.monotonic() - began
    # The engine may raise its own error instead, "Query interrupted".
    known = process.returncode in (1, -signal.SIGINT) and "Fatal" not in errors
    return took, "" if known else f"Status {process.returncode}: {errors}"


def _program(statement: str, profile: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PROGRAM.format(statement=statement), str(profile), name]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process
