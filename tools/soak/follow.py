"""Followers of a growing table are killed at random moments and restarted, and must deliver every change.

Each run is a process that stores the steps of ``table.follow`` in a directory, one file for each step, records what
it received, and commits. In the end every row of the snapshot and every change is stored once, and each repeated
step is marked as such and has the same versions and rows.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import delta_sharing_client as ds
import mock_server
from tests.tables import DataFile, TableWriter, rows_of

HELP = "kill followers of a table, and compare the rows that they stored"

NAME = "share.schema.table"
_FEED = {"delta.enableChangeDataFeed": "true"}
_LIFE_SECONDS = 60.0
Row = tuple[int, int, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this soak test."""
    parser.add_argument("--kills", type=int, default=100, help="how many followers are killed (default 100)")
    parser.add_argument("--versions", type=int, default=400, help="maximum version of the table (default 400)")


def run(arguments: argparse.Namespace) -> int:
    """Run the soak test and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="soak-follow-") as folder:
        counts, wrong = kills(Path(folder), arguments.kills, arguments.versions, arguments.seed)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    for line in wrong:
        print(f"WRONG {line}")
    print(f"{len(wrong)} wrong, seed {arguments.seed}")
    return 1 if wrong else 0


def kills(folder: Path, count: int, versions: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Kill ``count`` followers; return how often each phase was interrupted, and the failures."""
    chance = random.Random(seed)
    table = _Table(folder / "table", random.Random(seed), versions)
    for _ in range(10):
        table.grow()
    counts: Counter[str] = collections.Counter()
    with mock_server.running(tables={NAME: folder / "table"}, url_ttl=5.0) as server, table.growing():
        for _ in range(count):
            counts[_life(folder, str(server.profile_path), chance)] += 1
        table.over.set()
        with _follower(folder, str(server.profile_path), last=True) as process:
            code = process.wait(300)
    if code:
        return counts, [f"the last follower ended with status {code}: {(folder / 'log').read_text()[-2000:]}"]
    return counts, _wrong(folder, table, counts)


# --- the table ---


class _Table:
    """A randomly growing table with a change feed, and a record of the changes of each version."""

    def __init__(self, path: Path, chance: random.Random, most: int) -> None:
        self._writer = TableWriter(path, pa.schema([("id", pa.int64())]), properties=_FEED)
        self._chance = chance
        self._most = most
        self._next = 0
        self._files: list[tuple[DataFile, list[int]]] = []
        self.changes: list[list[Row]] = [[]]
        self.rows: list[list[int]] = [[]]
        self.over = threading.Event()

    @contextlib.contextmanager
    def growing(self) -> Iterator[None]:
        """Let the table grow while the block runs."""
        thread = threading.Thread(target=self._grow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.over.set()
            thread.join()

    def grow(self) -> None:
        """Commit an insert, a delete of a file or a row, an update, an OPTIMIZE or settings."""
        step, version = self._chance.random(), self._writer.version + 1
        place = self._chance.randrange(len(self._files)) if len(self._files) > 5 else None
        if step < 0.1:
            self._writer.commit(metadata=True)
            self._note([])
        elif step < 0.2 and place is not None:
            file, ids = self._files.pop(place)
            rewritten = self._writer.file(rows_of(ids))
            self._writer.commit(add=[rewritten], remove=[file], data_change=False)
            self._files.append((rewritten, ids))
            self._note([])
        elif step < 0.35 and place is not None:
            file, ids = self._files.pop(place)
            self._writer.commit(remove=[file])
            self._note([(version, one, "delete") for one in ids])
        elif step < 0.6 and place is not None:
            file, ids = self._files.pop(place)
            new = [1_000_000 + one for one in ids]
            images = [(one, "update_preimage") for one in ids] + [(one, "update_postimage") for one in new]
            change = self._writer.change_file([{"id": one, "_change_type": kind} for one, kind in images])
            rewritten = self._writer.file(rows_of(new))
            self._writer.commit(add=[rewritten], remove=[file], change=[change])
            self._files.append((rewritten, new))
            self._note([(version, one, kind) for one, kind in images])
        else:
            groups = [self._fresh() for _ in range(self._chance.randint(1, 3))]
            files = [self._writer.file(rows_of(ids)) for ids in groups]
            self._writer.commit(add=files)
            self._files += zip(files, groups, strict=True)
            self._note([(version, one, "insert") for ids in groups for one in ids])

    def expected(self, snapshot: int) -> Counter[Row]:
        """Return the rows that a follower must have delivered if its snapshot was version ``snapshot``."""
        counts = Counter((snapshot, one, "insert") for one in self.rows[snapshot])
        for changed in self.changes[snapshot + 1 :]:
            counts.update(changed)
        return counts

    def _grow(self) -> None:
        while not self.over.wait(0.1) and len(self.changes) < self._most:
            self.grow()

    def _note(self, changed: list[Row]) -> None:
        self.changes.append(changed)
        self.rows.append([one for _, ids in self._files for one in ids])

    def _fresh(self) -> list[int]:
        count = self._chance.randint(1, 4)
        self._next += count
        return list(range(self._next - count, self._next))


# --- runs ---


def _life(folder: Path, profile: str, chance: random.Random) -> str:
    """Run a follower for some steps and kill it; return the phase in which it was killed."""
    journal = folder / "journal"
    before, moves = _size(journal), chance.randint(0, 4)
    with _follower(folder, profile) as process:
        deadline = time.monotonic() + _LIFE_SECONDS
        # Some followers are killed before their first request.
        while moves and process.poll() is None and time.monotonic() < deadline:
            if _size(journal) != before:
                before, moves = _size(journal), moves - 1
            time.sleep(0.002)
        time.sleep(chance.random() * 0.05)
        if process.poll() is not None:
            return f"ended by themselves with status {process.returncode}"
        process.send_signal(signal.SIGKILL)
        process.wait()
    state = json.loads(cursor.read_text()) if (cursor := folder / "cursor").exists() else None
    if state is None or (state["number"] == 0 and state["begun"] is None):
        return "killed before the first step"
    return "killed within a step" if state["begun"] else "killed between steps"


@contextlib.contextmanager
def _follower(folder: Path, profile: str, *, last: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tools.soak.follow", str(folder), profile, "last" if last else ""],
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def follow(folder: Path, profile: str, last: bool) -> None:
    """Follow the table in one run: record each step in the journal, and then store it in its own file."""
    (folder / "out").mkdir(exist_ok=True)
    table = ds.SharingClient(profile).table(NAME)
    trigger = "available-now" if last else None
    with open(folder / "journal", "a", encoding="utf-8") as journal:
        for changes in table.follow(folder / "cursor", every=1, max_files=5, trigger=trigger):
            rows = changes.to_arrow()
            names = ("_commit_version", "id", "_change_type")
            content = [list(row) for row in zip(*(rows[name].to_pylist() for name in names), strict=True)]
            step = [changes.id, changes.start_version, changes.end_version, changes.is_snapshot, sorted(content)]
            print(json.dumps({"handed": step, "repeat": changes.is_repeat}), file=journal, flush=True)
            target = folder / "out" / f"{changes.number}.json"
            target.with_suffix(".part").write_text(json.dumps(step), encoding="utf-8")
            os.replace(target.with_suffix(".part"), target)
            time.sleep(random.random() * 0.1)
            changes.commit()
            print(json.dumps({"committed": changes.id}), file=journal, flush=True)


# --- results ---


def _wrong(folder: Path, table: _Table, counts: Counter[str]) -> list[str]:
    wrong = [what for what in counts if what.startswith("ended")]
    steps = sorted((int(path.stem), json.loads(path.read_text())) for path in (folder / "out").glob("*.json"))
    result: Counter[Row] = Counter((row[0], row[1], row[2]) for _, step in steps for row in step[4])
    counts["steps"], counts["rows"] = len(steps), sum(result.values())
    expected = table.expected(steps[0][1][1])
    for what, rows in (("lost", expected - result), ("doubled or strange", result - expected)):
        if rows:
            wrong.append(f"{sum(rows.values())} rows {what}, such as {next(iter(rows))}")
    handed: dict[str, list[object]] = {}
    committed: set[str] = set()
    for line in (folder / "journal").read_text().splitlines():
        event = json.loads(line)
        if "committed" in event:
            committed.add(event["committed"])
            continue
        name = event["handed"][0]
        counts["handed out again"] += name in handed
        if name in committed:
            wrong.append(f"step {name} came again after it was committed")
        if name in handed and not event["repeat"]:
            wrong.append(f"step {name} came again, but was not marked as a repeat")
        if handed.setdefault(name, event["handed"]) != event["handed"]:
            wrong.append(f"step {name} came again with other versions or rows")
    last = 0
    for _, step in steps[1:]:
        if not step[3] and last and step[1] != last + 1:
            wrong.append(f"step {step[0]} begins with version {step[1]} after {last}")
        last = step[2]
    return wrong


if __name__ == "__main__":
    follow(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "last")
