"""Spark reads with separate executors, ``local-cluster[2,1,1024]``, and every row is counted.

``load_as_spark`` and ``format("deltaSharing")`` read a table with and without push-down; streams and change feeds
follow it. The command prints the bytes and the time of a narrow query with push-down, relative to the same query
without push-down.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import delta_sharing_client as ds
import mock_server
from tests.spark.streams import FEED, VECTORS
from tests.tables import TableWriter
from tools.soak.streams import session

HELP = "read with two executors of a local cluster, with and without push-down, and compare every row"

_SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("text", pa.string()), ("part", pa.string())])
_NARROW = "part = 'p3' AND a >= 500"
_TURNS = 5
Rows = Counter[tuple[object, ...]]
_Read = Callable[[], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=40, help="files of the table (default 40)")
    parser.add_argument("--rows", type=int, default=5000, help="rows of a file (default 5000)")


def run(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="spark-cluster-") as name:
        folder = Path(name)
        table = _Table(folder / "table", arguments)
        with (
            mock_server.running(tables={"share.schema.t": folder / "table"}) as server,
            session(folder, master="local-cluster[2,1,1024]") as spark,
        ):
            reads = _Reads(spark, server, folder, table)
            wrong = [*reads.batches(), *reads.changes(), *reads.streams()]
            executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    wrong += [] if executors == 2 else [f"there were {executors} executors, and not 2"]
    sys.stdout.write("".join(f"WRONG: {each}\n" for each in wrong) + f"{len(wrong)} wrong\n")
    return 1 if wrong else 0


class _Table:
    """A table with a change feed: one commit for each file, then deletions of some rows by deletion vectors."""

    def __init__(self, path: Path, arguments: argparse.Namespace) -> None:
        draw = random.Random(arguments.seed)
        properties = {**VECTORS["properties"], **FEED}
        writer = TableWriter(path, _SCHEMA, partition_by=["part"], protocol=VECTORS["protocol"], properties=properties)
        self.inserted: Rows = Counter()
        self.deleted: Rows = Counter()
        for number in range(arguments.files):
            rows = [
                {"id": number * arguments.rows + i, "a": draw.randrange(1000), "text": draw.randbytes(60).hex()}
                for i in range(arguments.rows)
            ]
            rows = [{**row, "part": f"p{number % 8}"} for row in rows]
            file = writer.file(rows)
            writer.insert(file)
            self.inserted.update(tuple(row.values()) for row in rows)
            if number % 5 == 0:
                writer.commit(add=[file.deleting(1, 7)], remove=[file])
                self.deleted.update(tuple(rows[position].values()) for position in (1, 7))
        self.live = self.inserted - self.deleted


class _Reads:
    """The reads of one session, through every entry point. Each method returns its failures."""

    def __init__(self, spark: Any, server: Any, folder: Path, table: _Table) -> None:
        ds.add_spark_jar(spark)
        self._spark, self._server, self._folder, self._table = spark, server, folder, table
        self._url = f"{server.profile_path}#share.schema.t"

    def batches(self) -> list[str]:
        load = lambda: ds.load_as_spark(self._url, spark=self._spark)  # noqa: E731
        read = lambda: self._spark.read.format("deltaSharing").load(self._url)  # noqa: E731
        wrong = []
        narrow = Counter(
            {(row[0], row[2]): 1 for row in self._table.live if row[3] == "p3" and int(str(row[1])) >= 500}
        )
        for name, way in (("load_as_spark", load), ("format", read)):
            for pushes in (True, False):
                frame = self._made(way, pushes)
                wrong += _differs(f"{name}, push-down {pushes}", _rows(frame), self._table.live)
                query = frame.where(_NARROW).select("id", "text")
                if ("PushedFilters" in query._jdf.queryExecution().toString()) != pushes:
                    wrong.append(f"{name}: the plan does not show push-down {pushes}")
                wrong += _differs(f"{name}, narrow, push-down {pushes}", _rows(query), narrow)
            wrong += _differs(f"{name}, joined", _rows(self._joined(way)), Counter({(len(narrow),): 1}))
            self._compare(name, way)
        return wrong

    def changes(self) -> list[str]:
        kinds = ((self._table.inserted, "insert"), (self._table.deleted, "delete"))
        expected = Counter({(*row, kind): count for rows, kind in kinds for row, count in rows.items()})
        reader = self._spark.read.format("deltaSharing").option("readChangeFeed", "true").option("startingVersion", 0)
        load = lambda: ds.load_table_changes_as_spark(self._url, starting_version=0, spark=self._spark)  # noqa: E731
        wrong = []
        for name, way in (("changes, load_as_spark", load), ("changes, format", lambda: reader.load(self._url))):
            for pushes in (True, False):
                result = self._made(way, pushes).drop("_commit_version", "_commit_timestamp")
                wrong += _differs(f"{name}, push-down {pushes}", _rows(result), expected)
        return wrong

    def streams(self) -> list[str]:
        feed = Counter({(*row, "insert"): count for row, count in self._table.inserted.items()})
        feed.update({(*row, "delete"): count for row, count in self._table.deleted.items()})
        wrong = self._follow("stream", self._table.inserted, skipChangeCommits="true", startingVersion="0")
        wrong += self._follow("stream of the snapshot", self._table.live)
        return wrong + self._follow("stream of changes", feed, readChangeFeed="true", startingVersion="0")

    def _follow(self, name: str, expected: Rows, **options: str) -> list[str]:
        frame = self._spark.readStream.format("deltaSharing").options(maxFilesPerTrigger="8", **options).load(self._url)
        counts: Rows = Counter()
        columns = [column for column in frame.columns if column not in ("_commit_version", "_commit_timestamp")]
        writer = frame.writeStream.foreachBatch(lambda batch, _: counts.update(_rows(batch.select(*columns))))
        query = writer.option("checkpointLocation", str(self._folder / name)).trigger(availableNow=True).start()
        query.awaitTermination()
        return _differs(name, counts, expected)

    def _made(self, way: _Read, pushes: bool) -> Any:
        self._spark.conf.set("spark.delta.sharing.pushDown", str(pushes).lower())
        try:
            return way()
        finally:
            self._spark.conf.unset("spark.delta.sharing.pushDown")

    def _joined(self, way: _Read) -> Any:
        near, far = self._made(way, True).where(_NARROW), self._made(way, False)
        return near.join(far, "id").groupBy().count()

    def _compare(self, name: str, way: _Read) -> None:
        """Print the cost of a narrow query with push-down, relative to the same query without push-down."""
        taken: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
        for _ in range(_TURNS):
            for pushes in random.sample([True, False], 2):
                before, began = self._server.stats()["bytes"]["data"], time.monotonic()
                self._made(way, pushes).where(_NARROW).groupBy().sum("a").collect()
                fetched = self._server.stats()["bytes"]["data"] - before
                taken[pushes].append((time.monotonic() - began, fetched))
        near, far = ([statistics.median(part) for part in zip(*taken[pushes], strict=True)] for pushes in (True, False))
        sys.stdout.write(
            f"{name}: a narrow query takes {near[0]:.2f} s with push-down, {far[0]:.2f} s without, ratio "
            f"{near[0] / far[0]:.2f}; {near[1] / 1e6:.2f} and {far[1] / 1e6:.2f} MB, ratio {near[1] / far[1]:.3f}; "
            f"load {os.getloadavg()[0]:.1f}\n"
        )
        sys.stdout.flush()


def _rows(frame: Any) -> Rows:
    return Counter(map(tuple, frame.collect()))


def _differs(name: str, read: Rows, expected: Rows) -> list[str]:
    sys.stdout.write(f"{name}: {read.total()} rows\n")
    sides = (("missing", expected - read), ("too many", read - expected))
    return [f"{name}: {rows.total()} {what}, such as {next(iter(rows))}" for what, rows in sides if rows]
