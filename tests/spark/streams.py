"""Tables like those in the JVM connector's streaming suites, and streaming queries that collect their batches."""

from __future__ import annotations

import json
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from delta_sharing_client.spark.datasource import HAS_LIMITS, DeltaSharingSource
from tests.tables import TableWriter, rows_of

limited = pytest.mark.skipif(
    not HAS_LIMITS, reason="PySpark before 4.2 tells a Python source no limits: available-now is one batch there"
)
"""For tests of several micro-batches in one query."""
ID = pa.schema([("id", pa.int64())])
FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "changeDataFeed"],
    },
    "properties": {"delta.enableDeletionVectors": "true"},
}


def changed_table(path: pathlib.Path) -> TableWriter:
    """Like ``cdf_table_cdf_enabled``: v1 three rows in three files, v2 one deleted, v3 one updated, v4 and v5
    settings.

    Ids 1, 2, 3; 2 is deleted; 3 becomes 30. Files have about one kilobyte.
    """
    table = TableWriter(path, ID)
    files = [table.file(rows_of([i]), size=1030) for i in (1, 2, 3)]
    table.commit(add=files)
    table.commit(remove=[files[1]])
    table.commit(add=[table.file(rows_of([30]), size=1100)], remove=[files[2]])
    table.commit(metadata=True)
    table.commit(metadata=True)
    return table


def feed_table(path: pathlib.Path) -> TableWriter:
    """Like ``streaming_cdf_table``: v1 two rows, v2 three, v3 four change files with eight, v4 two removed files with
    four."""
    table = TableWriter(path, ID, properties=FEED)
    table.commit(add=[table.file(rows_of([1, 2]), size=750)])
    table.commit(add=[table.file(rows_of([3, 4, 5]), size=760)])
    added = [table.file(rows_of(ids), size=size) for ids, size in (([10, 11], 900), ([12, 13], 910))]
    images = [
        table.change_file(
            [{"id": old, "_change_type": "update_preimage"}, {"id": old + 100, "_change_type": "update_postimage"}],
            size=size,
        )
        for old, size in ((1, 1200), (2, 1210), (3, 1220), (4, 1230))
    ]
    table.commit(add=added, change=images)
    table.commit(remove=added)
    return table


class Sink:
    """An idempotent sink: a repeated batch replaces the earlier one."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.calls = 0

    def __call__(self, frame: Any, batch: int) -> None:
        self.calls += 1
        self.batches[batch] = frame.collect()

    @property
    def sizes(self) -> list[int]:
        """Return the row counts of the non-empty batches."""
        return [len(rows) for _, rows in sorted(self.batches.items()) if rows]

    @property
    def rows(self) -> list[Any]:
        """Return all rows in order of batches."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    @property
    def ids(self) -> list[int]:
        """Return the column ``id`` of all rows, sorted."""
        return sorted(row.id for row in self.rows)


def stream(spark: Any, lake: Any, table: str = "t", **options: object) -> Any:
    """Return the streaming frame of a table."""
    reader = spark.readStream.format("deltaSharing")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(lake.url(table))


class Loaded:
    """The streaming frame of a table without Spark: the source as Spark pickles it after the call of ``schema()``."""

    def __init__(self, lake: Any, table: str = "t", **options: object) -> None:
        given = {name: str(value) for name, value in options.items()}
        source = DeltaSharingSource({"path": lake.url(table), **given})
        self.schema = source.schema()
        self._sent = pickle.dumps(source)

    def follow(self, checkpoint: pathlib.Path, sink: Sink, step: Callable[[], None] = lambda: None) -> None:
        """Do what a query of Spark with available-now does: replay the batch that was not committed, then read
        batch after batch until there is nothing new. ``step`` is called where the query may be killed."""
        reader: Any = pickle.loads(self._sent).streamReader(self.schema)
        for folder in ("offsets", "commits"):
            (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        known = [json.loads(text) for text in offsets(checkpoint)]
        reader.prepareForTriggerAvailableNow()
        if known and not (checkpoint / "commits" / f"{len(known) - 1}").exists():
            self._run(reader, checkpoint, known, sink, step)
        while True:
            start = known[-1] if known else reader.initialOffset()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            step()
            if known and end == start:
                return
            (checkpoint / "offsets" / f"{len(known)}").write_text(json.dumps(end))
            known.append(json.loads(json.dumps(end)))
            step()
            self._run(reader, checkpoint, known, sink, step)

    @staticmethod
    def _run(reader: Any, checkpoint: pathlib.Path, known: list[Any], sink: Sink, step: Callable[[], None]) -> None:
        batch, rows = len(known) - 1, []
        partitions = reader.partitions(known[-2] if batch else reader.initialOffset(), known[-1])
        step()
        remote = pickle.loads(pickle.dumps(reader))
        for partition in partitions:
            for found in remote.read(pickle.loads(pickle.dumps(partition))):
                rows += [Row(**row) for row in found.to_pylist()]
            step()
        sink.batches[batch] = rows
        step()
        (checkpoint / "commits" / f"{batch}").touch()
        reader.commit(known[-1])


def follow(frame: Any, checkpoint: pathlib.Path, sink: Sink | None = None, **trigger: object) -> Sink:
    """Run a query over all available data and return the contents of the sink; errors of the query are raised."""
    sink = Sink() if sink is None else sink
    if isinstance(frame, Loaded):
        frame.follow(checkpoint, sink)
        return sink
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    try:
        assert query.awaitTermination(120), "the query did not end"
    finally:
        query.stop()
    return sink


def forget(checkpoint: pathlib.Path, batches: int, *, commits_only: bool = False) -> None:
    """Remove the last batches from a checkpoint, as if the query had been killed before they were committed."""
    for folder in ("commits",) if commits_only else ("commits", "offsets"):
        files = sorted(
            (path for path in (checkpoint / folder).iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
        )
        for path in files[-batches:]:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def offsets(checkpoint: pathlib.Path) -> list[str]:
    """Return the offsets in a checkpoint, as serialized by the source, in order of batches."""
    found = sorted((int(path.name), path) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
    return [path.read_text().splitlines()[-1] for _, path in found]
