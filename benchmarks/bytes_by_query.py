"""``python -m benchmarks.bytes_by_query [--page benchmarks/MEASUREMENTS.md]`` measures what common queries download.

A table of about 100 MB is read from the test server with ``attach`` and ``scan_polars``, by Polars alone over HTTP, and
by DuckDB alone from the local disk. For DuckDB, the bytes that its process reads are counted.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import http.server
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import write_deltalake

import delta_sharing_client as ds
import mock_server

FILES, ROWS = 6, 440_000
_BEGIN, _END = "<!-- bytes by query -->\n", "<!-- end of bytes by query -->"
_DAY = datetime.date(2024, 1, 3)
# For each name, a query of a table {t} in SQL, and the same query of a lazy frame.
QUERIES: dict[str, tuple[str, Callable[[pl.LazyFrame], pl.LazyFrame]]] = {
    "`SELECT * LIMIT 10`": ("SELECT * FROM {t} LIMIT 10", lambda frame: frame.head(10)),
    "`count(*)`": ("SELECT count(*) FROM {t}", lambda frame: frame.select(pl.len())),
    "`ORDER BY id DESC LIMIT 10`": (
        "SELECT id FROM {t} ORDER BY id DESC LIMIT 10",
        lambda frame: frame.select("id").top_k(10, by="id"),
    ),
    "the sum of a struct field": (
        "SELECT sum(o.x) FROM {t}",
        lambda frame: frame.select(pl.col("o").struct.field("x").sum()),
    ),
    "rows of one day": (
        f"SELECT sum(id) FROM {{t}} WHERE day = DATE '{_DAY}'",
        lambda frame: frame.filter(pl.col("day") == _DAY).select(pl.col("id").sum()),
    ),
    "`IN` of three ids": (
        "SELECT name FROM {t} WHERE id IN (5, 500000, 2000000)",
        lambda frame: frame.filter(pl.col("id").is_in([5, 500_000, 2_000_000])).select("name"),
    ),
    "`BETWEEN`": (
        "SELECT name FROM {t} WHERE id BETWEEN 500000 AND 500100",
        lambda frame: frame.filter(pl.col("id").is_between(500_000, 500_100)).select("name"),
    ),
    "`LIKE 'prefix%'`": (
        "SELECT count(*) FROM {t} WHERE name LIKE 'name 00003%'",
        lambda frame: frame.filter(pl.col("name").str.starts_with("name 00003")).select(pl.len()),
    ),
    "`min(id), max(id)`": (
        "SELECT min(id), max(id) FROM {t}",
        lambda frame: frame.select(pl.col("id").min().alias("a"), pl.col("id").max().alias("b")),
    ),
}


def write_table(folder: Path) -> None:
    """Write the table, which has ascending ids, one day per file, text, random bytes and a struct."""
    source = np.random.default_rng(7)
    for number in range(FILES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        columns = {
            "id": pa.array(ids),
            "name": pa.array([f"name {value:08}" for value in ids]),
            "amount": pa.array(source.random(ROWS)),
            "day": pa.array([datetime.date(2024, 1, 1 + number)] * ROWS),
            "note": pa.array([source.bytes(12) for _ in range(ROWS)]),
            "o": pa.array([{"x": int(value), "y": f"y {value % 1000}"} for value in ids]),
        }
        write_deltalake(folder, pa.table(columns), mode="append")


def measure(folder: Path) -> list[tuple[str, ...]]:
    """Return, for each query, its name and four numbers of bytes: ours with DuckDB, ours with Polars, DuckDB's own, and
    Polars' own."""
    results = []
    files = sorted(folder.glob("*.parquet"))
    with mock_server.running({"s.s.t": folder}) as server, _counting(folder) as (address, counted):
        frame = ds.scan_polars(f"{server.profile_path}#s.s.t")
        own = pl.scan_parquet([f"{address}/{file.name}" for file in files])
        connection, local = duckdb.connect(), duckdb.connect()
        ds.attach(connection, server.profile_path)
        paths = ", ".join(f"'{file}'" for file in files)

        def served(run: Callable[[], Any]) -> tuple[Any, int]:
            server.reset_stats()
            rows = run()
            return rows, server.stats()["bytes"].get("data", 0)

        for name, (sql, query) in QUERIES.items():
            rows, in_duckdb = served(connection.sql(sql.format(t="s.s.t")).fetchall)
            _, in_polars = served(query(frame).collect)
            before = _read_bytes()
            expected = local.sql(sql.format(t=f"read_parquet([{paths}])")).fetchall()
            on_disk = _read_bytes() - before
            counted.clear()
            query(own).collect()
            if sorted(rows) != sorted(expected) and "LIMIT 10" not in name:
                raise AssertionError(f"The query {name} returns different rows with this client.")
            results.append((name, *map(_megabytes, (in_duckdb, in_polars, on_disk, sum(counted)))))
    return results


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2g}" if count < 1e7 else f"{count / 1e6:.0f}"


def _read_bytes() -> int:
    # The bytes that this process has read with system calls, from the cache or the disk (Linux).
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])  # type: ignore[index]


@contextlib.contextmanager
def _counting(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Serve a folder over HTTP with support for range requests, and count the bytes of the bodies."""
    counted: list[int] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            content = (folder / self.path.rpartition("/")[2]).read_bytes()
            asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            first, last = 0, len(content) - 1
            if asked is not None:
                first = int(asked[1]) if asked[1] else len(content) - int(asked[2])
                last = min(last, int(asked[2])) if asked[1] and asked[2] else last
            body = content[first : last + 1]
            self.send_response(200 if asked is None else 206)
            if asked is not None:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            self.wfile.write(body)
            counted.append(len(body))

        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", counted
        server.shutdown()


def table(rows: list[tuple[str, ...]], size: float) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        f"Megabytes downloaded from a table of {size:.0f} MB in {FILES} files (`python -m benchmarks.bytes_by_query`):",
        "",
        "| query | `attach` | `scan_polars` | DuckDB, local files | Polars, the same files over HTTP |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="insert the table into this page, between its marks")
    page = parser.parse_args().page
    with tempfile.TemporaryDirectory(prefix="bytes-") as name:
        folder = Path(name) / "t"
        write_table(folder)
        size = sum(file.stat().st_size for file in folder.glob("*.parquet")) / 1e6
        section = table(measure(folder), size)
    sys.stdout.write(section)
    if page is not None:
        text = page.read_text("utf-8")
        before, rest = text.split(_BEGIN)
        page.write_text(f"{before}{_BEGIN}{section}{_END}{rest.split(_END)[1]}", "utf-8")


if __name__ == "__main__":
    main()
