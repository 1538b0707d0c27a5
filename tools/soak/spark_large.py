"""Spark plans a table of millions of files and counts its rows; the memory of the driver's Python, the tasks and the
time are measured.

The server generates each line when it sends it. The counted column is in the listing, so that no file is fetched:
the plan and its serialization are measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.long_listing import ROWS
from tools.soak.listing import serving
from tools.soak.resources import PeakOfPython
from tools.soak.streams import session

HELP = "plan and count a table of a million files with Spark, and print how much memory this takes"

# The memory that the driver's Python may take: for a small table, and in addition for each file.
_IDLE = 250_000_000
_BYTES_A_FILE = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=1_000_000, help="files of the table (default a million)")
    parser.add_argument("--only-plan", action="store_true", help="plan the table, and do not count its rows")
    parser.add_argument("--driver-memory", default="6g", help="heap of the JVM (default 6g)")


def run(arguments: argparse.Namespace) -> int:
    settings = {"spark.driver.memory": arguments.driver_memory}
    with (
        tempfile.TemporaryDirectory(prefix="spark-large-") as folder,
        serving() as profile,
        session(Path(folder), **settings) as spark,
    ):
        url = f"{profile}#s.s.signed-{arguments.files}"
        frame = spark.read.format("deltaSharing").option("columns", "number").load(url)
        wrong = _plan(spark, frame, arguments.files)
        if not arguments.only_plan:
            wrong += _count(frame, arguments.files)
    sys.stdout.write("".join(f"FAILED: {each}\n" for each in wrong))
    return 1 if wrong else 0


def _plan(spark: Any, frame: Any, files: int) -> list[str]:
    began = time.monotonic()
    with PeakOfPython() as peak:
        parts = frame._jdf.queryExecution().executedPlan().collectLeaves().head().batch().planInputPartitions()
    _tell(f"planned {files:,} files as {len(parts):,} tasks", began)
    heap = spark.sparkContext._jvm.org.apache.spark.util.SizeEstimator.estimate(parts)
    sys.stdout.write(
        f"the driver's Python took {_shown(peak.bytes)} at most, the tasks take {_shown(heap)} of the JVM, "
        f"{heap / len(parts) / 1000:,.0f} kB each\n"
    )
    sys.stdout.flush()
    allowed = _IDLE + _BYTES_A_FILE * files
    return [f"{_shown(peak.bytes)} is more than {_shown(allowed)}"] if peak.bytes > allowed else []


def _count(frame: Any, files: int) -> list[str]:
    began = time.monotonic()
    with PeakOfPython() as peak:
        rows = frame.where("number >= 0").count()
    _tell(f"counted {rows:,} rows; a Python took {_shown(peak.bytes)} at most", began)
    return [] if rows == ROWS * files else [f"{rows} rows, and not {ROWS * files}"]


def _shown(size: int) -> str:
    return f"{size / 1_000_000:,.0f} MB"


def _tell(what: str, began: float) -> None:
    sys.stdout.write(f"{what}: {time.monotonic() - began:.0f} s at load {os.getloadavg()[0]:.1f}\n")
    sys.stdout.flush()
