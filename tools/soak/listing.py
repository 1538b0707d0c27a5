"""Read a table of millions of files completely, batch by batch, and check how much memory this takes.

The server generates each line when it sends it. The selected column is a partition column in the listing, so the
listing and the read itself are measured, not ten million requests.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import delta_sharing_client as ds
from benchmarks.long_listing import ROWS
from benchmarks.workers import peak_bytes
from tools.soak.resources import resident_bytes

HELP = "read a table of ten million files, and print how much memory this takes"

_MEGABYTE = 1_000_000
# These few bytes per file are needed to detect duplicates; no other memory may grow with the listing.
_BYTES_A_FILE = 64
_SLACK = 150 * _MEGABYTE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=10_000_000, help="files of the table (default ten million)")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time, and print the figures so far")
    parser.add_argument("--filter", help="condition on 'id' or 'number'; 'id' is read from the files")
    parser.add_argument("--changes", action="store_true", help="read the change feed that adds the files")
    parser.add_argument("--only-list", action="store_true", help="plan every file as it is listed, and read none")


def run(arguments: argparse.Namespace) -> int:
    files, rows, reported = arguments.files, 0, 0
    with serving() as profile, ds.SharingClient(str(profile)) as client:
        client.table("s.s.files-1000").scan(columns=["number"]).to_arrow()
        table = client.table(f"s.s.files-{files}")
        asked: dict[str, Any] = {"columns": ["number"], "filter": arguments.filter}
        scan = table.changes(0, **asked) if arguments.changes else table.scan(**asked)
        idle, began = resident_bytes(), time.monotonic()
        with contextlib.closing(_listed(scan) if arguments.only_list else _read(scan)) as counts:
            for count in counts:
                if rows == 0:
                    sys.stdout.write(f"the first rows after {time.monotonic() - began:.2f} s\n")
                rows += count
                if rows // ROWS // _MEGABYTE > reported:
                    reported = rows // ROWS // _MEGABYTE
                    _tell(reported * _MEGABYTE, idle, began)
                if time.monotonic() - began > arguments.seconds:
                    files = rows // ROWS
                    break
    _tell(files, idle, began)
    peak = peak_bytes() - idle
    allowed = _SLACK + _BYTES_A_FILE * files
    wrong = [f"{peak / _MEGABYTE:.0f} MB is more than {allowed / _MEGABYTE:.0f} MB"] if peak > allowed else []
    if arguments.filter is None and rows != ROWS * files and files == arguments.files:
        wrong.append(f"{rows} rows, and not {ROWS * files}")
    sys.stdout.write("".join(f"FAILED: {each}\n" for each in wrong))
    return 1 if wrong else 0


def _read(scan: ds.Scan | ds.Changes) -> Generator[int, None, None]:
    """Yield the number of rows of each batch."""
    with scan.to_batches() as batches:
        for batch in batches:
            yield batch.num_rows


def _listed(scan: ds.Scan | ds.Changes) -> Generator[int, None, None]:
    """Yield the number of rows of each file of the plan."""
    with contextlib.closing(scan._stream()) as stream:
        for task in stream.every_file():
            yield task.num_records or 0


def _tell(files: int, idle: int, began: float) -> None:
    peak = peak_bytes()
    seconds = time.monotonic() - began
    now, most = (resident_bytes() - idle) / _MEGABYTE, (peak - idle) / _MEGABYTE
    sys.stdout.write(
        f"{files:>10,} files: {seconds:.0f} s, {files / seconds:,.0f} a second; {now:.0f} MB above an idle process, "
        f"{most:.0f} MB at most\n"
    )
    sys.stdout.flush()


@contextlib.contextmanager
def serving() -> Iterator[Path]:
    """Run a server of long listings in a separate process; yield its profile."""
    with tempfile.TemporaryDirectory(prefix="long-listing-") as folder:
        profile = Path(folder) / "listing.share"
        command = [sys.executable, "-m", "benchmarks.long_listing", "--profile-out", str(profile)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            try:
                deadline = time.monotonic() + 60
                while not profile.exists():
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError("the server did not start")
                    time.sleep(0.02)
                yield profile
            finally:
                process.terminate()
