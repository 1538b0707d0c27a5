"""Spark streams whose tables change, and streams of large tables; every row is counted.

Runs the scenarios of ``tests/spark/running_streams.py``, and one that is too slow for the test suite: the snapshot
of a table of very many files with one row each, then its additions; and the same table from version 0.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.spark import running_streams
from tests.spark.conftest import SETTINGS, forked_workers, make_spark_home
from tests.spark.running_streams import SCENARIOS, Site
from tests.spark.streams import ID
from tests.tables import TableWriter, rows_of
from tools.soak.resources import PeakOfPython

HELP = "follow tables that change, and a table of 100,000 files, with Spark"

_COMMIT_FILES = 5_000
_STREAMS = {
    "snapshot": {"maxFilesPerTrigger": "20000"},
    "versions": {"startingVersion": "0", "maxFilesPerTrigger": "30000", "maxVersionsPerRpc": "7"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=100_000, help="files of the large table (default 100,000)")
    parser.add_argument("--rounds", type=int, default=1, help="how often the scenarios run (default 1)")
    parser.add_argument("--at-a-time", type=int, default=4, help="number of scenarios that run in parallel (default 4)")
    parser.add_argument("--only", nargs="*", choices=["many_files", *sorted(SCENARIOS)], metavar="SCENARIO")


def run(arguments: argparse.Namespace) -> int:
    names = arguments.only or ["many_files", *sorted(SCENARIOS)]
    chosen = [name for name in names if name in SCENARIOS]
    wrong = 0
    with (
        tempfile.TemporaryDirectory(prefix="streams-") as folder,
        forked_workers(Path(folder)),
        session(Path(folder)) as spark,
    ):
        for number in range(arguments.rounds if chosen else 0):
            place = Path(folder) / str(number)
            place.mkdir()
            began = time.monotonic()
            for name, error in running_streams.play(spark, place, chosen, arguments.at_a_time).items():
                wrong += error is not None
                sys.stdout.write(f"{name}: {'right' if error is None else 'WRONG'}\n")
                if error is not None:
                    traceback.print_exception(error, file=sys.stdout)
            sys.stdout.write(f"round {number + 1}: {time.monotonic() - began:.0f} s\n")
            sys.stdout.flush()
        if "many_files" in names:
            with contextlib.closing(Site(spark, Path(folder) / "many")) as site:
                wrong += _many_files(site, arguments.files)
    sys.stdout.write(f"{wrong} wrong\n")
    return 1 if wrong else 0


def _many_files(site: Site, files: int) -> int:
    """Follow a table of ``files`` files; return the number of streams that failed."""
    began = time.monotonic()
    table = site.write(ID)
    _add(table, 0, files)
    _tell(f"{files} files written", began)
    wrong = 0
    for name, options in _STREAMS.items():
        rest = _follow(site, name, options)
        wrong += _differs(name, rest, Counter(range(files)))
    _add(table, files, files + 1000)
    for name, options in _STREAMS.items():
        rest = _follow(site, name, options)
        wrong += _differs(f"{name}, what was added", rest, Counter(range(files, files + 1000)))
    return wrong


def _add(table: TableWriter, first: int, stop: int) -> None:
    for start in range(first, stop, _COMMIT_FILES):
        some = range(start, min(stop, start + _COMMIT_FILES))
        table.commit(add=[table.file(rows_of([number])) for number in some])


def _follow(site: Site, name: str, options: dict[str, str]) -> Counter[int]:
    began = time.monotonic()
    with PeakOfPython() as peak:
        stream = site.follow(name, trigger={"availableNow": True}, **options)
        error = stream.ends(3600)
    counts = Counter(row.id for _, rows in stream.calls for row in rows)
    _tell(f"{name}: {counts.total()} rows in {len(stream.calls)} batches {error}", began)
    sys.stdout.write(f"{name}: the largest process of Python took {peak.bytes / 1e6:.0f} MB\n")
    return counts


def _differs(name: str, read: Counter[int], expected: Counter[int]) -> bool:
    missing, extra = expected - read, read - expected
    for what, rows in (("missing", missing), ("too many", extra)):
        if rows:
            sys.stdout.write(f"{name}: WRONG: {rows.total()} {what}, such as {next(iter(rows))}\n")
    return bool(missing or extra)


def _tell(what: str, began: float) -> None:
    sys.stdout.write(f"{what}, {time.monotonic() - began:.0f} s at load {os.getloadavg()[0]:.1f}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def session(folder: Path, master: str = "local[2]", **settings: str) -> Iterator[Any]:
    """Create a session like the tests' session, but without the zipped PySpark, which each Python worker would
    compile."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = str(make_spark_home(folder / "spark"))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    builder: Any = SparkSession.builder.master(master).appName("soak")
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()
