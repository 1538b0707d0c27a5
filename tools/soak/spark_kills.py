"""Spark drivers are killed during streams and restarted until they finish; no row may be lost or repeated.

Each driver runs the streams of some modes and is killed with SIGKILL together with its Python workers, at a random
moment, or after its sinks wrote a batch and before Spark commits it; the tables grow meanwhile. In one run the
server of one mode is down for a minute, and the stream must continue afterwards. A repeated batch must have the same
rows, and uncommitted batches must be repeated. Then the streams run to the end of their tables, and the rows in
their sinks are compared with the written ones. Needs PySpark 4.2 or newer and a JDK.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mock_server
from tests.spark.conftest import SETTINGS, make_spark_home
from tests.spark.streams import FEED, ID
from tests.tables import TableWriter, rows_of

HELP = "kill the drivers of Spark streams, and compare the rows"

_START_SECONDS = 300.0
_END_SECONDS = 420.0
_COMMITS_BEFORE = 25
_HELD = 0.4  # the fraction of runs that end after the sinks have written a batch and before Spark commits it
# The number of commits to each table: enough for the whole soak test, but few enough that streams do not fall far
# behind.
_COMMITS_IN_ALL, _COMMITS_IN_ALL_BY_HAND = 600, 1500
Row = tuple[int, str]


@dataclasses.dataclass(frozen=True)
class Mode:
    """A stream with one option or circumstance. ``at_end`` has options for the last run, which replace limits that
    would make it slow."""

    options: Mapping[str, str]
    at_end: Mapping[str, str]
    server: str = "steady"
    remote: bool = False

    @property
    def is_feed(self) -> bool:
        return "readChangeFeed" in self.options


_MANY = {"maxFilesPerTrigger": "500"}
MODES = {
    "parquet": Mode({"responseFormat": "parquet", "startingVersion": "0", "maxFilesPerTrigger": "2"}, _MANY),
    "bytes": Mode({"startingVersion": "0", "maxBytesPerTrigger": "1k"}, {"maxBytesPerTrigger": "1m"}),
    "feed from a snapshot": Mode({"readChangeFeed": "true", "maxFilesPerTrigger": "2"}, _MANY),
    "inside the snapshot": Mode({"maxFilesPerTrigger": "1"}, _MANY),
    "outage": Mode({"startingVersion": "0", "maxFilesPerTrigger": "2", "maxOutage": "5m"}, _MANY, "failing"),
    "expiring": Mode({"startingVersion": "0", "maxFilesPerTrigger": "3"}, _MANY, "expiring"),
    "connect": Mode({"startingVersion": "0", "maxFilesPerTrigger": "2"}, _MANY, remote=True),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=50, help="kills of a stream, over all modes (default 50)")
    parser.add_argument("--outage", type=float, default=60.0, help="seconds for which a server is stopped (default 60)")
    parser.add_argument(
        "--seconds", type=float, default=1800.0, help="seconds after which no driver is killed (default 1800)"
    )
    parser.add_argument(
        "--by-hand",
        action="store_true",
        help="replace Spark by a process that calls the stream readers like Spark; much faster",
    )
    parser.add_argument("--modes", nargs="*", choices=sorted(MODES), default=sorted(MODES), metavar="MODE")


def run(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="spark-kills-") as folder:
        soak = _Soak(arguments, Path(folder))
        try:
            soak.run()
        finally:
            soak.close()
        return soak.report()


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Wait until ``done()`` is true, for at most ``seconds``; return whether it is."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class _Table:
    """A randomly growing table, and the rows that each of its versions adds to the snapshot and to the stream."""

    def __init__(self, path: Path, chance: random.Random, mode: Mode, most: int) -> None:
        self._writer = TableWriter(path, ID, properties=FEED if mode.is_feed else None)
        self._chance = chance
        self._feed = mode.is_feed
        self._most = most
        self._next = 0
        self._lock = threading.Lock()
        self.snapshot: list[list[int]] = [[]]
        self.tail: list[list[Row]] = [[]]

    def grow(self) -> None:
        """Commit inserts of several files, updates (of a feed), an OPTIMIZE or settings, unless the table is long
        enough."""
        with self._lock:
            if len(self.tail) >= self._most:
                return
            step = self._chance.random()
            if step < 0.08:
                self._writer.commit(metadata=True)
                self._note([], [])
            elif step < 0.16:
                rewritten = self._fresh(1)
                self._writer.commit(add=[self._writer.file(rows_of(rewritten))], data_change=False)
                self._note(rewritten, [])
            elif self._feed and step < 0.5:
                self._update()
            else:
                groups = [self._fresh(self._chance.randint(1, 3)) for _ in range(self._chance.randint(1, 3))]
                self._writer.commit(add=[self._writer.file(rows_of(ids)) for ids in groups])
                ids = [i for group in groups for i in group]
                self._note(ids, [(i, "insert") for i in ids])

    def expected(self, first: int, last: int | None, *, from_snapshot: bool) -> Counter[Row]:
        """Return the rows of a stream from version ``first`` to version ``last``, or to the end."""
        counts: Counter[Row] = Counter()
        last = len(self.tail) - 1 if last is None else last
        if from_snapshot and last >= first:
            counts.update((i, "insert") for ids in self.snapshot[: first + 1] for i in ids)
            first += 1
        for rows in self.tail[first : last + 1]:
            counts.update(rows)
        return counts

    def _update(self) -> None:
        rewritten, images = self._fresh(1), []
        for old in self._fresh(self._chance.randint(1, 3)):
            images += [{"id": old, "_change_type": "update_preimage"}, {"id": old, "_change_type": "update_postimage"}]
        half = 2 * self._chance.randint(0, len(images) // 2)
        files = [self._writer.change_file(part) for part in (images[:half], images[half:]) if part]
        self._writer.commit(change=files, add=[self._writer.file(rows_of(rewritten))])
        self._note(rewritten, [(int(str(row["id"])), str(row["_change_type"])) for row in images])

    def _note(self, snapshot: list[int], tail: list[Row]) -> None:
        self.snapshot.append(snapshot)
        self.tail.append(tail)

    def _fresh(self, count: int) -> list[int]:
        self._next += count
        return list(range(self._next - count, self._next))


class _Server:
    """A server with a fixed address that can be stopped and restarted."""

    def __init__(self, tables: Mapping[str, Path], **options: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._options = {"port": free.getsockname()[1], "token": "soak-token", **options}
        self._tables = dict(tables)
        self._running = contextlib.ExitStack()
        self.server: Any = None

    def start(self) -> None:
        self.server = self._running.enter_context(mock_server.running(tables=self._tables, **self._options))

    def stop(self) -> None:
        self._running.close()


class _Soak:
    """The tables, the servers, the runs of the drivers, and the counts of what happened."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments = arguments
        self._chance = random.Random(arguments.seed)
        self._folder = folder
        self._spark_home = make_spark_home(folder / "spark")
        self._modes = {name: MODES[name] for name in MODES if name in arguments.modes}
        self._places = {name: folder / name.replace(" ", "-") for name in self._modes}
        most = _COMMITS_IN_ALL_BY_HAND if arguments.by_hand else _COMMITS_IN_ALL
        self._tables = {
            name: _Table(self._places[name] / "table", random.Random(f"{arguments.seed} {name}"), mode, most)
            for name, mode in self._modes.items()
        }
        for name, table in self._tables.items():
            (self._places[name] / "out").mkdir()
            for _ in range(_COMMITS_BEFORE):
                table.grow()
        self._servers = {
            "steady": self._serve("steady"),
            "failing": self._serve("failing"),
            "expiring": self._serve("expiring", url_ttl=3.0),
        }
        self._profiles: dict[str, Path] = {}
        for name, server in self._servers.items():
            server.start()
            # A copy of the profile, because the server deletes its own when it stops.
            self._profiles[name] = folder / f"{name}.share"
            self._profiles[name].write_text(json.dumps(server.server.profile))
        self._over = threading.Event()
        self._grower = threading.Thread(target=self._grow, daemon=True)
        self._grower.start()
        self.counts: dict[str, Counter[str]] = collections.defaultdict(Counter)
        self.wrong: list[str] = []
        # The batches that a sink has written and Spark has not committed; each of them must be repeated.
        self._held: dict[str, set[int]] = collections.defaultdict(set)

    def run(self) -> None:
        began, drivers = time.monotonic(), itertools.cycle(self._drivers())
        while sum(counts["kills"] for counts in self.counts.values()) < self._arguments.kills:
            if self.wrong or time.monotonic() - began > self._arguments.seconds:
                break
            self._life(next(drivers))
        self._over.set()
        self._grower.join()
        for names in self._drivers():
            self._last_life(names)

    def close(self) -> None:
        self._over.set()
        for server in self._servers.values():
            server.stop()

    def report(self) -> int:
        total: Counter[str] = Counter()
        for name, counts in self.counts.items():
            total.update(counts)
            sys.stdout.write(f"{name}: {_shown(counts)}\n")
        sys.stdout.write(f"all: {_shown(total)}\n")
        for line in self.wrong:
            sys.stdout.write(f"WRONG {line}\n")
        sys.stdout.write(f"{len(self.wrong)} wrong, seed {self._arguments.seed}\n")
        return 1 if self.wrong else 0

    def _drivers(self) -> list[list[str]]:
        """Return the modes of each of the two drivers, which run in turn. A driver has several streams, because a JVM
        needs more resources than a stream."""
        names = [name for name, mode in self._modes.items() if not (mode.remote and self._arguments.by_hand)]
        return [group for group in (names[0::2], names[1::2]) if group]

    def _serve(self, kind: str, **options: Any) -> _Server:
        names = [name for name, mode in self._modes.items() if mode.server == kind] or list(self._modes)[:1]
        return _Server({_served(name): self._places[name] / "table" for name in names}, **options)

    def _grow(self) -> None:
        pause = 0.2 if self._arguments.by_hand else 1.0
        for turn in itertools.count():
            if self._over.wait(pause):
                return
            for table in self._tables.values():
                table.grow()
            if turn % 5 == 0:
                self._servers["expiring"].server.expire_urls()

    # --- runs ---

    def _life(self, names: list[str]) -> None:
        before = {name: self._batches(name) for name in names}
        if self._chance.random() < _HELD:
            self._held_life(names)
            return
        # Some drivers are killed while their streams start.
        begun = self._chance.choice([1, len(names), len(names), len(names)])
        with self._driver(names) as driver:
            wait_until(
                lambda: sum(self._batches(name) > before[name] for name in names) >= begun or driver.poll() is not None,
                _START_SECONDS,
            )
            if "outage" in names and not self.counts["outage"]["outages"] and self._batches("outage"):
                self._outlast(driver)
            time.sleep(self._chance.random() * (0.5 if self._arguments.by_hand else 3))
            self._kill(driver, names)
        self._note_life(names, before)

    def _held_life(self, names: list[str]) -> None:
        """Kill a driver after all its sinks have written a batch that Spark has not committed."""
        before = {name: self._batches(name) for name in names}
        marks = [(self._places[name] / "out" / "hold", self._places[name] / "out" / "held") for name in names]
        for hold, _ in marks:
            hold.touch()
        with self._driver(names) as driver:
            wait_until(lambda: all(held.exists() for _, held in marks) or driver.poll() is not None, _START_SECONDS)
            self._kill(driver, names)
        for name, (hold, held) in zip(names, marks, strict=True):
            hold.unlink()
            if held.exists():
                held.unlink()
                last = max(self._log(name, "offsets"))
                if last in self._log(name, "commits"):
                    self.wrong.append(f"{name}: batch {last} was committed before its sink was done")
                self._held[name].add(last)
                self.counts[name]["held before the commit"] += 1
        self._note_life(names, before)

    def _kill(self, driver: subprocess.Popen[bytes], names: list[str]) -> None:
        ended = [f"{name}: {self._failure(name)}" for name in names if self._failure(name)]
        if driver.poll() is not None or ended:
            self.wrong.append(f"streams ended by themselves: {ended}")
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()

    def _note_life(self, names: list[str], before: Mapping[str, int]) -> None:
        for name in names:
            counts, offsets, commits = self.counts[name], self._log(name, "offsets"), self._log(name, "commits")
            counts["kills"] += 1
            counts["batches"] += self._batches(name) - before[name]
            if offsets:
                counts["between offset and commit"] += len(offsets) > len(commits)
                counts["inside the snapshot"] += bool(self._offset(name, max(offsets)).get("isStartingVersion"))
            else:
                counts["before the first offset"] += 1
            sys.stdout.write(f"{name}: {_shown(counts)}\n")
        sys.stdout.flush()

    def _outlast(self, driver: subprocess.Popen[bytes]) -> None:
        """Stop the server during the stream, and check that the stream continues when the server is back."""
        server = self._servers["failing"]
        server.stop()
        time.sleep(self._arguments.outage)
        before = self._batches("outage")
        server.start()
        went_on = wait_until(lambda: self._batches("outage") > before or driver.poll() is not None, 120)
        self.counts["outage"]["outages"] += 1
        if not went_on:
            self.wrong.append("outage: the stream did not go on when the server was back")

    def _last_life(self, names: list[str]) -> None:
        with self._driver(names, last=True) as driver:
            if wait_until(lambda: self._is_over(driver, names), _END_SECONDS):
                time.sleep(5)  # a repeated batch may arrive late
        for name in names:
            if self._failure(name):
                self.wrong.append(f"{name}: the stream failed: {self._failure(name)}")
            if not self._log(name, "offsets"):
                self.wrong.append(f"{name}: nothing was read")
                continue
            self._compare(name)

    def _is_over(self, driver: subprocess.Popen[bytes], names: list[str]) -> bool:
        return not any(map(self._missing, names)) or driver.poll() is not None or any(map(self._failure, names))

    def _compare(self, name: str) -> None:
        result, expected, due = self._rows(name), self._expected(name), self._expected(name, committed=True)
        self.counts[name]["rows"] = sum(result.values())
        again = {int(path.stem) for path in (self._places[name] / "out").glob("*.again")}
        self.counts[name]["batches that came twice, the same"] = len(again)
        if self._held[name] - again:
            self.wrong.append(f"{name}: batches {sorted(self._held[name] - again)} did not come again")
        if due != expected:
            self.wrong.append(f"{name}: not at the end of its table after {_END_SECONDS:.0f} s; compared up to there")
        for what, rows in (("lost", due - result), ("doubled or strange", result - expected)):
            if rows:
                self.wrong.append(f"{name}: {what} {sum(rows.values())} rows, such as {next(iter(rows))}")

    @contextlib.contextmanager
    def _driver(self, names: list[str], *, last: bool = False) -> Iterator[subprocess.Popen[bytes]]:
        streams = []
        for name in names:
            mode = self._modes[name]
            at_end = mode.at_end if last else {}
            streams.append(
                {
                    "url": f"{self._profiles[mode.server]}#{_served(name)}",
                    "options": {**mode.options, "queryTableVersionIntervalSeconds": "10", **at_end},
                    "checkpoint": str(self._places[name] / "checkpoint"),
                    "out": str(self._places[name] / "out"),
                    "remote": mode.remote,
                }
            )
        asked = {"streams": streams, "settings": SETTINGS, "by_hand": self._arguments.by_hand}
        python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
        environment = {**os.environ, **python, "SPARK_HOME": str(self._spark_home)}
        # Hundreds of Python workers would each compile every module they import.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with open(self._folder / "drivers.log", "ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tools.soak.spark_driver", json.dumps(asked)],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        try:
            yield driver
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()

    # --- contents of the sinks ---

    def _batches(self, name: str) -> int:
        return len(list((self._places[name] / "out").glob("*.json")))

    def _log(self, name: str, folder: str) -> list[int]:
        path = self._places[name] / "checkpoint" / folder
        return [int(file.name) for file in path.glob("*") if file.name.isdigit()] if path.is_dir() else []

    def _offset(self, name: str, batch: int) -> dict[str, Any]:
        text = (self._places[name] / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()
        offset: dict[str, Any] = json.loads(text[-1])
        return offset

    def _rows(self, name: str) -> Counter[Row]:
        files = (self._places[name] / "out").glob("*.json")
        return Counter((i, kind) for file in files for i, kind in json.loads(file.read_text()))

    def _expected(self, name: str, *, committed: bool = False) -> Counter[Row]:
        """Return the rows that a stream must deliver; with ``committed``, only those of the versions that it has
        committed completely."""
        resolved = [self._offset(name, batch) for batch in sorted(self._log(name, "offsets"))]
        first = next(offset for offset in resolved if offset["tableId"] is not None)
        last = None
        if committed:
            done = self._offset(name, max(self._log(name, "commits")))
            last = -1 if done.get("isStartingVersion") else done["tableVersion"] - 1
        return self._tables[name].expected(first["firstVersion"], last, from_snapshot=first["fromSnapshot"])

    def _missing(self, name: str) -> Counter[Row]:
        if not self._log(name, "offsets"):
            return Counter({(-1, "nothing read"): 1})
        return self._expected(name) - self._rows(name)

    def _failure(self, name: str) -> str:
        path = self._places[name] / "out" / "failure"
        return path.read_text()[-2000:] if path.exists() else ""


def _served(name: str) -> str:
    return f"share.schema.{name.replace(' ', '_')}"


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
