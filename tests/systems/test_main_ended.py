"""Reads after the main thread has ended: in threads that Python waits for, in ``atexit`` callbacks and in finalizers.

They return all rows. If no thread can be started any more, they raise our error and the process still exits.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import asyncio, atexit, os, sys, threading, traceback, weakref
import delta_sharing_client as ds
from delta_sharing_client import DeltaSharingError, ReadOptions, SharingClient, attach

table = SharingClient(sys.argv[1]).table("s.d.t")
shown = SharingClient(sys.argv[1], ReadOptions(progress=True))
main_ended = threading.main_thread().join

def duckdb_rows():
    import duckdb
    connection = duckdb.connect()
    attach(connection, sys.argv[1])
    return connection.sql("SELECT count(*) FROM s.d.t WHERE id >= 0").fetchall()[0][0]

def tell(name, result):
    # One call for a line: threads print at the same time.
    os.write(1, f"read: {name} {result}\\n".encode())

def read():
    for name, output in outputs.items():
        try:
            tell(name, output())
        except DeltaSharingError as error:
            tell(name, f"refused {error}")
        except BaseException:
            tell(name, traceback.format_exc().replace("\\n", " "))

class Last:
    def __del__(self):
        read()

outputs = {"arrow": lambda: table.scan().to_arrow().num_rows, "pandas": lambda: len(table.scan().to_pandas())}
"""
ALL = """
outputs |= {
    "filter": lambda: table.scan(filter="id >= 0").to_arrow().num_rows,
    "async": lambda: asyncio.run(table.scan().to_arrow_async()).num_rows,
    "batches": lambda: sum(batch.num_rows for batch in table.scan().to_batches(eager=False)),
    "dataset": lambda: table.scan().to_dataset().to_table(["id"]).num_rows,
    "duckdb": duckdb_rows,
    "polars": lambda: table.scan().to_polars(lazy=True).collect().height,
    "progress": lambda: shown.table("s.d.t").scan().to_arrow().num_rows,
}
"""
# The first read starts the threads and imports the modules that later reads need.
WARM = "table.scan(limit=1).to_arrow()\n"
PLACES = {
    "thread": ALL + "threading.Thread(target=lambda: (main_ended(), read())).start()",
    "used before": ALL + WARM + "threading.Thread(target=lambda: (main_ended(), read())).start()",
    "atexit": ALL + WARM + "atexit.register(read)",
    "pool": WARM
    + """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
for _ in range(4):
    pool.submit(read)""",
}
ENDED = {
    "finalizer": WARM + "weakref.finalize(table, read)",
    "global": WARM + "last = Last()",
    "cycle": WARM + "last = Last(); last.me = last",
    "first read": "last = Last()",
    "registered early": "import atexit; atexit.register(lambda: read())\n",
}


def run(server_profile: Path, text: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", text, str(server_profile)], capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stderr
    # Libraries may print other lines.
    return [line.removeprefix("read: ") for line in done.stdout.splitlines() if line.startswith("read: ")]


# Python 3.12 before 3.12.3 starts no thread after the main thread has ended.
STARTS_THREADS = not (3, 12) <= sys.version_info < (3, 12, 3)


@pytest.mark.parametrize("place", PLACES)
def test_reads_after_the_end_of_the_main_thread_are_complete(profile: Path, place: str) -> None:
    lines = run(profile, CHILD + PLACES[place])
    assert len(lines) == (8 if place == "pool" else 9), lines
    for line in lines:
        name, _, outcome = line.partition(" ")
        assert outcome == "1000" or (not STARTS_THREADS and outcome.startswith("refused")), (name, outcome)


@pytest.mark.parametrize("place", ENDED)
def test_reads_of_an_ending_interpreter_are_complete_or_refused(profile: Path, place: str) -> None:
    parts = (CHILD, ENDED[place])
    lines = run(profile, "".join(reversed(parts) if place == "registered early" else parts))
    assert [line.partition(" ")[0] for line in lines] == ["arrow", "pandas"], lines
    for line in lines:
        _, _, outcome = line.partition(" ")
        assert outcome == "1000" or outcome.startswith("refused The program is ending, so no read can begin."), lines


def test_reads_in_daemon_threads_do_not_crash_the_exit(profile: Path) -> None:
    text = (
        CHILD
        + WARM
        + """
begun = threading.Event()
def forever():
    while True:
        table.scan().to_pandas()
        begun.set()
for _ in range(3):
    threading.Thread(target=forever, daemon=True).start()
begun.wait(60)
"""
    )
    for _ in range(3):
        run(profile, text)
