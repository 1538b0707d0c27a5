"""Measures later reads: each contender is one process that continues to run; the order is random.

    python -m benchmarks.turns [--repeats N] [--line loopback|tls|20ms|50ms|200ms] [--tables LIST] [--output KIND]

The cases of ``python -m benchmarks`` measure first reads, each in a new process; this measures the reads after the
first. ``plain`` lists the files, downloads each with one request of aiohttp, decodes them in two threads, and does
nothing else: it has the cost of a reader without retries, bounds, checks, deletion vectors or filters. Everything is
imported before a clock starts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# Number of files, rows per file.
TABLES = {"16x12MB": (16, 100_000), "64x1.2MB": (64, 10_000), "400x250kB": (400, 2_000)}
LINES: dict[str, dict[str, Any]] = {
    "loopback": {},
    "tls": {"tls": True},
    **{f"{each}ms": {"latency": each / 1000} for each in (20, 50, 200)},
}
CONTENDERS = ("ours", "plain", "polars")
Read = Callable[[dict[str, str], str, bool], int]


def ours(profile: dict[str, str], table: str, frame: bool) -> int:
    import delta_sharing_client as ds

    scan = ds.SharingClient(profile).table(table).scan()
    return len(scan.to_pandas()) if frame else scan.to_arrow().num_rows


def plain(profile: dict[str, str], table: str, frame: bool) -> int:
    import aiohttp
    import pyarrow as pa
    import pyarrow.parquet as pq

    bundle = os.environ.get("REQUESTS_CA_BUNDLE")
    trusted: Any = ssl.create_default_context(cafile=bundle) if bundle else True
    decoders = ThreadPoolExecutor(2)

    def decode(data: bytes) -> pa.Table:
        return pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False)

    async def read() -> pa.Table:
        files = _listed(profile, table)
        connector = aiohttp.TCPConnector(limit=64, ssl=trusted)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, read_bufsize=1 << 20) as session:

            async def fetch(url: str, size: int) -> pa.Table:
                async with session.get(url, headers={"Range": f"bytes=0-{size - 1}"}) as answer:
                    data = await answer.read()
                return await asyncio.get_running_loop().run_in_executor(decoders, decode, data)

            return pa.concat_tables(await asyncio.gather(*(fetch(*file) for file in files)))

    found = asyncio.run(read())
    return len(found.to_pandas(split_blocks=True, self_destruct=True)) if frame else found.num_rows


def polars(profile: dict[str, str], table: str, frame: bool) -> int:
    import polars as pl

    found = pl.scan_parquet([url for url, _ in _listed(profile, table)]).collect()
    return len(found)


def _listed(profile: dict[str, str], table: str) -> list[tuple[str, int]]:
    import requests

    share, schema, name = table.split(".")
    url = f"{profile['endpoint'].rstrip('/')}/shares/{share}/schemas/{schema}/tables/{name}/query"
    headers = {"Authorization": f"Bearer {profile['bearerToken']}"}
    answer = requests.post(url, json={}, headers=headers, timeout=60)
    answer.raise_for_status()
    files = [json.loads(line).get("file") for line in answer.text.splitlines()]
    return [(file["url"], file["size"]) for file in files if file]


def work(contender: str, frame: bool) -> None:
    """Run the reads on standard input, one per line; print seconds, processor seconds and rows of each."""
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    read: Read = {"ours": ours, "plain": plain, "polars": polars}[contender]
    for line in sys.stdin:
        job = json.loads(line)
        began, used = time.perf_counter(), _processor()
        rows = read(job["profile"], job["table"], frame)
        sys.stdout.write(json.dumps([time.perf_counter() - began, _processor() - used, rows]) + "\n")
        sys.stdout.flush()


def _processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(line: str, tables: list[str], repeats: int, frame: bool) -> None:
    """Print a line for each of ``tables``: median seconds and processor seconds of each contender, and the
    median ratios of a turn."""
    from benchmarks import data
    from mock_server import running

    served = {f"s.s.t{place}": _place(data, name) for place, name in enumerate(tables)}
    with running(tables=served, **LINES[line]) as server:
        environment = dict(os.environ)
        if line == "tls":
            environment |= {"REQUESTS_CA_BUNDLE": str(server.ca_path), "SSL_CERT_FILE": str(server.ca_path)}
        workers = {name: _worker(name, frame, environment) for name in CONTENDERS}
        for table, name in zip(served, tables, strict=True):
            job = json.dumps({"profile": dict(server.profile), "table": table})
            found: dict[str, list[list[float]]] = {contender: [] for contender in CONTENDERS}
            for turn in range(repeats + 1):
                for contender in random.sample(CONTENDERS, len(CONTENDERS)):
                    answer = _ask(workers[contender], job)
                    if turn:  # the first turn is a warm-up
                        found[contender].append(answer)
            _report(line, name, frame, found)
        for worker in workers.values():
            worker.stdin.close()
            worker.wait()


def _place(data: Any, name: str) -> Path:
    files, rows = TABLES[name]
    table = f"turns-{name.replace('.', '-')}"
    return data.wide_table(table, files, rows) / "bench" / "default" / table


def _worker(contender: str, frame: bool, environment: dict[str, str]) -> Any:
    command = [sys.executable, "-m", "benchmarks.turns", "--work", contender, "--output", "frame" if frame else "arrow"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def _ask(worker: Any, job: str) -> list[float]:
    worker.stdin.write(job + "\n")
    worker.stdin.flush()
    answer: list[float] = json.loads(worker.stdout.readline())
    return answer


def _report(line: str, name: str, frame: bool, found: dict[str, list[list[float]]]) -> None:
    rows = {answer[2] for answers in found.values() for answer in answers}
    assert len(rows) == 1, f"the contenders read different numbers of rows: {rows}"
    seconds = {contender: statistics.median(answer[0] for answer in answers) for contender, answers in found.items()}
    used = {contender: statistics.median(answer[1] for answer in answers) for contender, answers in found.items()}
    told = ", ".join(f"{contender} {seconds[contender]:.3f} s ({used[contender]:.2f})" for contender in CONTENDERS)
    to_plain, to_polars = _ratio(found, "plain"), _ratio(found, "polars")
    kind = "frame" if frame else "Arrow"
    sys.stdout.write(f"{line} {name} to {kind}: {told}; {to_plain:.2f} x plain, {to_polars:.2f} x Polars\n")
    sys.stdout.flush()


def _ratio(found: dict[str, list[list[float]]], other: str) -> float:
    """Return the median of the ratios within each turn: the machine's speed changes from turn to turn."""
    return statistics.median(mine[0] / theirs[0] for mine, theirs in zip(found["ours"], found[other], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--line", choices=LINES, action="append")
    parser.add_argument("--tables", default=",".join(TABLES), help="of " + ", ".join(TABLES))
    parser.add_argument("--output", choices=["frame", "arrow"], default="frame")
    parser.add_argument("--work", choices=CONTENDERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.output == "frame")
        return
    for line in given.line or LINES:
        measure(line, given.tables.split(","), given.repeats, given.output == "frame")


if __name__ == "__main__":
    main()
