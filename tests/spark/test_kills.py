"""Exactly-once delivery: queries killed at random points and restarted until they finish neither lose nor repeat
rows."""

from __future__ import annotations

import pathlib
import random
from collections import Counter
from typing import Any

import pytest

from delta_sharing_client.spark.datasource import HAS_LIMITS
from tests.effort import ALL
from tests.spark.streams import FEED, ID, Loaded, Sink, follow, limited, stream
from tests.tables import TableWriter, rows_of

pytestmark = pytest.mark.spark

# `python -m tools.soak spark-kills` kills whole processes, and more of them.
KILLS = 50 if ALL else 20
QUERY_KILLS = 12 if ALL else 6  # each run is a Spark query, so few are made


class Killed(Exception):
    """Raised to simulate the death of the process."""


class History:
    """A table that changes at random, and every row that a stream of its change feed or of its appends must
    deliver."""

    def __init__(self, path: pathlib.Path, seed: int, *, feed: bool) -> None:
        self.table = TableWriter(path, ID, properties=FEED)
        self.random = random.Random(seed)
        self.feed = feed
        self.next = 0
        self.expected: Counter[tuple[int, str]] = Counter()
        self.live: list[Any] = []

    def grow(self) -> None:
        """Commit a random change: inserts of several files, updates (if the feed is read), an OPTIMIZE or
        properties."""
        step = self.random.random()
        if step < 0.15:
            self.table.commit(metadata=True)
        elif step < 0.25:
            self.table.commit(add=[self.table.file(rows_of([0]))], data_change=False)
        elif self.feed and step < 0.5 and self.next:
            images = []
            for _ in range(self.random.randint(1, 3)):
                old, new = self.random.randrange(self.next), self._fresh()
                images += [
                    {"id": old, "_change_type": "update_preimage"},
                    {"id": new, "_change_type": "update_postimage"},
                ]
            half = 2 * self.random.randint(0, len(images) // 2)
            files = [self.table.change_file(part) for part in (images[:half], images[half:]) if part]
            self.table.commit(change=files, add=[self.table.file(rows_of([0]))])
            self.expected.update((row["id"], row["_change_type"]) for row in images)
        else:
            files = []
            for _ in range(self.random.randint(1, 4)):
                ids = [self._fresh() for _ in range(self.random.randint(1, 3))]
                files.append(self.table.file(rows_of(ids)))
                self.expected.update((i, "insert") for i in ids)
            self.table.commit(add=files)

    def _fresh(self) -> int:
        self.next += 1
        return self.next - 1


def found(rows: list[Any]) -> Counter[tuple[int, str]]:
    return Counter((row["id"], row.get("_change_type", "insert")) for row in map(dict_of, rows))


def dict_of(row: Any) -> dict[str, Any]:
    return row if isinstance(row, dict) else row.asDict()


# --- Spark's protocol simulated: fast, and it can be killed at any point ---


class Engine:
    """A stream with a checkpoint that is killed at random."""

    def __init__(self, lake: Any, checkpoint: pathlib.Path, options: dict[str, str], chance: random.Random) -> None:
        self.lake, self.checkpoint, self.options, self.chance = lake, checkpoint, options, chance
        self.sink = Sink()
        self.deaths = 0

    @property
    def has_committed(self) -> bool:
        return any(self.checkpoint.glob("commits/*"))

    def run(self) -> None:
        """One run of the query, until it has read everything or is killed."""
        Loaded(self.lake, **self.options).follow(self.checkpoint, self.sink, self._may_die)

    def _may_die(self) -> None:
        if self.chance.random() < 0.12:
            self.deaths += 1
            raise Killed


@limited
@pytest.mark.parametrize("wire", ["delta", "parquet"])
@pytest.mark.parametrize(
    "options",
    [
        {"maxFilesPerTrigger": "2"},
        {"startingVersion": "0", "maxFilesPerTrigger": "1", "maxVersionsPerRpc": "3"},
        {"startingVersion": "latest", "maxBytesPerTrigger": "1k"},
        {"readChangeFeed": "true", "maxFilesPerTrigger": "2", "maxVersionsPerRpc": "2"},
        {"readChangeFeed": "true", "startingVersion": "0", "maxBytesPerTrigger": "2k"},
    ],
)
def test_killed_reader_delivers_every_row_once(
    lake: Any, tmp_path: pathlib.Path, options: dict[str, str], wire: str
) -> None:
    seed = len(options) * 7 + len(wire)
    feed = "readChangeFeed" in options
    history = History(lake.root / "t", seed, feed=feed)
    for _ in range(6):
        history.grow()
    engine = Engine(lake, tmp_path / "c", {**options, "responseFormat": wire}, random.Random(seed + 1))
    if options.get("startingVersion") == "latest":
        while not engine.has_committed:
            try:
                engine.run()
            except Killed:
                continue
        history.expected.clear()
    elif "startingVersion" not in options:
        history.expected = Counter((row["id"], "insert") for row in _snapshot(lake))
    lives = 0
    while engine.deaths < KILLS or lives == 0:
        lives += 1
        if lives % 5 == 0:
            history.grow()
        try:
            engine.run()
        except Killed:
            continue
    history.grow()
    while True:
        try:
            engine.run()
            break
        except Killed:
            continue
    assert found(engine.sink.rows) == history.expected
    assert engine.deaths >= KILLS
    for rows in engine.sink.batches.values():
        images = Counter(row["_change_type"] for row in rows if "_change_type" in row)
        assert images["update_preimage"] == images["update_postimage"]


def _snapshot(lake: Any) -> list[dict[str, Any]]:
    import delta_sharing_client as ds

    return ds.load_as_arrow(lake.url("t"), columns=["id"]).to_pylist()


# --- real queries ---


@pytest.mark.timeout(900)
def test_killed_queries_deliver_every_row_once(spark: Any, lake: Any, tmp_path: pathlib.Path) -> None:
    """Each run dies at a random point: in the sink before or after the write, in a task, or during planning."""
    chance = random.Random(11)
    history = History(lake.root / "t", 5, feed=True)
    for _ in range(4):
        history.grow()
    sink, kills, lives = Sink(), 0, 0

    def dying(frame: Any, batch: int) -> None:
        where = chance.random()
        if where < 0.5:
            raise Killed("before the sink wrote")
        sink(frame, batch)
        if where < 0.8:
            raise Killed("after the sink wrote")

    while kills < QUERY_KILLS:
        lives += 1
        if lives % 4 == 0:
            history.grow()
        if chance.random() < 0.15:
            lake.server.set_fault(chance.choice(["error-in-stream:1", "corrupt-body:1", "401-first=1:1"]))
        try:
            frame = stream(spark, lake, readChangeFeed="true", startingVersion=0, maxFilesPerTrigger=2)
            follow(frame, tmp_path / "c", dying)  # type: ignore[arg-type]
        except Exception:
            kills += 1
        else:
            history.grow()
        finally:
            lake.server.clear_faults()
    # On PySpark before 4.2 a run with available-now ends after the replayed batch.
    for _ in range(1 if HAS_LIMITS else 2):
        follow(stream(spark, lake, readChangeFeed="true", startingVersion=0), tmp_path / "c", sink)
    assert found(sink.rows) == history.expected
    assert lives >= QUERY_KILLS
