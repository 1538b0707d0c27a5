"""Scenarios in which a table changes while a stream reads it, with the rows that each stream must deliver.

``test_running_streams`` runs them concurrently, because each waits ten seconds for a new version; ``python -m
tools.soak streams`` runs them together with longer ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import pathlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

import mock_server
from delta_sharing_client.redact import Secret
from tests.http_server import Exchange, HttpServer
from tests.spark.streams import FEED, ID, VECTORS
from tests.tables import TableWriter, rows_of

WAIT_SECONDS = 240
Rows = Counter[tuple[object, ...]]


class Following:
    """A running query that records each batch and its rows and then calls ``sink``."""

    def __init__(
        self, frame: Any, checkpoint: pathlib.Path, sink: Callable[[Any, int], None] | None, **trigger: object
    ) -> None:
        self.calls: list[tuple[int, list[Any]]] = []
        self._checkpoint = checkpoint
        self._sink = sink
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(checkpoint))
        self._query = writer.trigger(**(trigger or {"processingTime": "100 milliseconds"})).start()

    def _take(self, frame: Any, batch: int) -> None:
        self.calls.append((batch, frame.collect()))
        if self._sink is not None:
            self._sink(frame, batch)

    def rows(self) -> Rows:
        """Return the delivered rows and how often each was delivered."""
        return Counter(tuple(row) for _, rows in list(self.calls) for row in rows)

    def reaches(self, expected: Rows) -> None:
        """Wait until as many rows as in ``expected`` are delivered, and assert that they are equal."""
        self.until(lambda: self.rows().total() >= expected.total())
        assert self.rows() == expected, f"{self.rows()} instead of {expected}: {self._query.exception()}"

    def fails(self) -> str:
        """Wait for the error that ends the query, and return its message."""
        error = self.ends()
        assert error
        return error

    def ends(self, seconds: float = WAIT_SECONDS) -> str:
        """Wait until the query ends; return the message of its error, or an empty string."""
        self.until(lambda: False, seconds)
        error = self._query.exception()
        return "" if error is None else str(error)

    def until(self, done: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        """Wait until ``done()`` is true or the query ends."""
        deadline = time.monotonic() + seconds
        while not done() and self._query.isActive:
            assert time.monotonic() < deadline, f"no more rows arrived after {self.rows().total()}"
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the query after its last batch is committed."""
        done = self._checkpoint / "commits"
        self.until(lambda: not self.calls or (done / str(self.calls[-1][0])).exists())
        self._query.stop()


class Site:
    """The environment of one scenario: its table, a server, its streams, and the session."""

    def __init__(self, spark: Any, folder: pathlib.Path) -> None:
        self.spark = spark
        self.folder = folder
        self._open = contextlib.ExitStack()

    def write(self, schema: pa.Schema, **kwargs: Any) -> TableWriter:
        """Create the table and a server for it."""
        table = TableWriter(self.folder / "table", schema, **kwargs)
        self.server = self._open.enter_context(mock_server.running(tables={"share.schema.t": table.path}))
        self.profile = self.server.profile_path
        return table

    @property
    def url(self) -> str:
        """The URL of the shared table."""
        return f"{self.profile}#share.schema.t"

    def follow(
        self,
        checkpoint: str = "checkpoint",
        *,
        sink: Callable[[Any, int], None] | None = None,
        trigger: dict[str, object] | None = None,
        **options: object,
    ) -> Following:
        """Start a stream of the table."""
        given = {"queryTableVersionIntervalSeconds": "10", **{name: str(value) for name, value in options.items()}}
        frame = self.spark.readStream.format("deltaSharing").options(**given).load(self.url)
        following = Following(frame, self.folder / checkpoint, sink, **(trigger or {}))
        self._open.callback(following.stop)
        return following

    def close(self) -> None:
        """Stop the running streams and the server."""
        self._open.close()


def rows(*values: Sequence[object] | object) -> Rows:
    """Return rows of the given values; a value that is not a tuple is a row of one column."""
    return Counter(value if isinstance(value, tuple) else (value,) for value in values)


# --- deletion vectors ---


def vectors(site: Site) -> None:
    """Deletion vectors exist in the first snapshot, and new ones are written during the stream."""
    table = site.write(ID, protocol=VECTORS["protocol"], properties={**VECTORS["properties"], **FEED})
    first, second = table.file(rows_of([0, 1, 2, 3])), table.file(rows_of([10, 11]))
    table.insert(first, second)
    table.commit(add=[first.deleting(1)], remove=[first])
    begun = rows(0, 2, 3, 10, 11)
    skipping = site.follow("skipping", skipChangeCommits="true", maxFilesPerTrigger=1)
    again = site.follow("again", ignoreChanges="true", maxFilesPerTrigger=1)
    feed = site.follow("feed", readChangeFeed="true", maxFilesPerTrigger=1)
    skipping.reaches(begun)
    again.reaches(begun)
    deadline = Counter({(i, "insert", 2): 1 for i in (0, 2, 3, 10, 11)})
    kinds_reach(feed, deadline)
    table.commit(add=[second.deleting(0)], remove=[second])
    table.commit(add=[first.deleting(1, 2)], remove=[first.deleting(1)])
    table.commit(add=[first], remove=[first.deleting(1, 2)])
    table.insert(rows_of([20]))
    skipping.reaches(begun + rows(20))
    again.reaches(begun + rows(11, 0, 3, 0, 1, 2, 3, 20))
    changes = [(10, "delete", 3), (2, "delete", 4), (1, "insert", 5), (2, "insert", 5), (20, "insert", 6)]
    kinds_reach(feed, deadline + Counter(changes))


def kinds_reach(feed: Following, expected: Rows) -> None:
    """Do the same as ``Following.reaches`` with the first three columns of a change feed of ``ID``."""
    feed.until(lambda: feed.rows().total() >= expected.total())
    assert Counter(row[:3] for row in feed.rows().elements()) == expected


# --- columns ---

_MAPPED: dict[str, Any] = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["columnMapping", "typeWidening"],
        "writerFeatures": ["columnMapping", "typeWidening"],
    },
    "properties": {"delta.columnMapping.mode": "name"},
}


def _column(name: str, kind: pa.DataType, physical: str, number: int) -> pa.Field:
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return pa.field(name, kind, metadata={key: json.dumps(value) for key, value in mapping.items()})


_KEY = _column("id", pa.int64(), "col-1", 1)
_NAME = _column("name", pa.string(), "col-2", 2)


def _evolving(site: Site, *columns: pa.Field) -> TableWriter:
    return site.write(pa.schema(columns), **_MAPPED)


def _becomes(table: TableWriter, *columns: pa.Field) -> int:
    table.schema = pa.schema(columns)
    return table.commit(metadata=True)


def renamed(site: Site) -> None:
    """A rename stops the stream permanently; a new checkpoint that starts at the version in the error neither misses
    nor repeats rows."""
    table = _evolving(site, _KEY, _NAME)
    table.insert([{"id": 1, "name": "a"}])
    stream = site.follow(startingVersion=0)
    stream.reaches(rows((1, "a")))
    table.insert([{"id": 2, "name": "b"}])
    version = _becomes(table, _KEY, _column("title", pa.string(), "col-2", 2))
    table.insert([{"id": 3, "title": "c"}])
    error = stream.fails()
    assert f"Detected incompatible schema change in version {version}: column 'name' was renamed to 'title'" in error
    assert stream.rows() == rows((1, "a"), (2, "b"))
    assert f"'startingVersion' {version} to go on from there." in site.follow(startingVersion=0).fails()
    site.follow("anew", startingVersion=version).reaches(rows((3, "c")))


def dropped(site: Site) -> None:
    """A dropped column is null in the running stream and absent from a stream that starts later."""
    table = _evolving(site, _KEY, _NAME)
    table.insert([{"id": 1, "name": "a"}])
    stream = site.follow(startingVersion=0)
    stream.reaches(rows((1, "a")))
    _becomes(table, _KEY)
    table.insert(rows_of([2]))
    stream.reaches(rows((1, "a"), (2, None)))
    stream.stop()
    table.insert(rows_of([3]))
    site.follow(startingVersion=0).reaches(rows(3))


def added(site: Site) -> None:
    """An added column stops the stream once; the restarted stream includes it."""
    table = _evolving(site, _KEY)
    table.insert(rows_of([1]))
    stream = site.follow(startingVersion=0)
    stream.reaches(rows(1))
    table.insert(rows_of([2]))
    version = _becomes(table, _KEY, _NAME)
    table.insert([{"id": 3, "name": "c"}])
    assert f"schema change in version {version}: columns were added" in stream.fails()
    assert stream.rows() == rows(1, 2)
    again = site.follow(startingVersion=0)
    again.reaches(rows((3, "c")))
    table.insert([{"id": 4, "name": "d"}])
    again.reaches(rows((3, "c"), (4, "d")))


def widened(site: Site) -> None:
    """A widened column stops the stream once; the restarted stream uses the wider type, also for older files."""
    table = _evolving(site, _KEY, _column("number", pa.int32(), "col-2", 2))
    table.insert([{"id": 1, "number": 1}])
    stream = site.follow(startingVersion=0)
    stream.reaches(rows((1, 1)))
    table.insert([{"id": 2, "number": 2}])
    version = _becomes(table, _KEY, _column("number", pa.int64(), "col-2", 2))
    table.insert([{"id": 3, "number": 2**40}])
    error = stream.fails()
    assert f"schema change in version {version}: column 'number' was widened from integer to long; restart" in error
    assert stream.rows() == rows((1, 1), (2, 2))
    site.follow(startingVersion=0).reaches(rows((3, 2**40)))
    site.follow("anew", startingVersion=0).reaches(rows((1, 1), (2, 2), (3, 2**40)))


# --- starts ---


def late_start(site: Site) -> None:
    """A stream that starts at a future version waits for it."""
    table = site.write(ID)
    table.insert(rows_of([1]))
    stream = site.follow(startingVersion=3)
    stream.until(lambda: bool(stream.calls))
    stream.reaches(rows())
    for number in (2, 3, 4):
        table.insert(rows_of([number]))
    stream.reaches(rows(3, 4))


def start_without_files(site: Site) -> None:
    """A stream starts by timestamp among versions that change no data: an OPTIMIZE and changed properties."""
    begun = 1_600_000_000_000
    table = site.write(ID, timestamp_ms=begun)
    files = [table.file(rows_of([i])) for i in (1, 2)]
    table.commit(add=files, timestamp_ms=begun + 60_000)
    table.commit(add=[table.file(rows_of([1, 2]))], remove=files, data_change=False, timestamp_ms=begun + 120_000)
    table.commit(metadata=True, timestamp_ms=begun + 180_000)
    stream = site.follow(startingTimestamp="2020-09-13 12:28:30", maxVersionsPerRpc=1)
    once = site.follow("once", startingTimestamp="2020-09-13 12:28:30", trigger={"once": True})
    assert not once.ends()
    assert once.rows() == rows()
    stream.until(lambda: bool(stream.calls))
    table.insert(rows_of([3]))
    stream.reaches(rows(3))


# --- credentials ---


def token_renewed(site: Site) -> None:
    """The token and the signed URLs are replaced while the stream runs: driver and executors authenticate again."""
    table = site.write(ID)
    table.insert(rows_of([0]))
    with _token_endpoint(site.server) as endpoint:
        site.profile = site.folder / "signing-in.share"
        fields = {
            "shareCredentialsVersion": 2,
            "type": "oauth_client_credentials",
            "endpoint": site.server.endpoint,
            "tokenEndpoint": endpoint.url,
            "clientId": "me",
            "clientSecret": "hush",
        }
        site.profile.write_text(json.dumps(fields))
        stream = site.follow(startingVersion=0)
        stream.reaches(rows(0))
        for number in (1, 2):
            endpoint.renew()
            site.server.set_fault("expire-urls-now:1")
            table.insert(rows_of([number]))
            stream.reaches(rows(*range(number + 1)))
        stream.stop()
        assert endpoint.given >= 3


class _TokenEndpoint:
    """A token endpoint: ``renew`` replaces the token that the server accepts, and the old one is refused."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._numbers = itertools.count()
        self.given = 0
        self.url = ""
        self.renew()

    def renew(self) -> None:
        self.token = f"token-{next(self._numbers)}"
        app = self._server.app
        app.config = dataclasses.replace(app.config, token=Secret(self.token))


@contextlib.contextmanager
def _token_endpoint(server: Any) -> Iterator[_TokenEndpoint]:
    endpoint = _TokenEndpoint(server)

    def answer(exchange: Exchange) -> None:
        endpoint.given += 1
        body = json.dumps({"access_token": endpoint.token, "expires_in": 3600}).encode()
        exchange.reply(200, body, {"Content-Type": "application/json"})

    with HttpServer(answer) as listening:
        endpoint.url = f"{listening.url}/token"
        yield endpoint


# --- repeated batches ---


class Died(Exception):
    """Raised in the sink to simulate the death of the driver."""


def replayed(site: Site, **options: object) -> None:
    """The sink fails after each batch and the table changes; the same batch is repeated with the same rows."""
    is_feed = "readChangeFeed" in options
    with_vectors = {"protocol": VECTORS["protocol"], "properties": {**VECTORS["properties"], **FEED}}
    table = site.write(ID, **with_vectors if is_feed else {})
    expected: Counter[object] = Counter()

    def grow() -> None:
        number = 100 * (table.version + 1)
        ids = [number, number + 1, number + 2]
        file = table.file(rows_of(ids))
        table.insert(file, rows_of([number + 10, number + 11]))
        expected.update([*ids, number + 10, number + 11])
        if is_feed:
            table.commit(add=[file.deleting(1)], remove=[file])
            expected.update([number + 1])
        else:
            table.commit(add=[table.file(rows_of(ids))], remove=[file], data_change=False)

    for _ in range(2):
        grow()
    times: dict[int, list[Rows]] = {}

    def die(frame: Any, batch: int) -> None:
        seen = times.setdefault(batch, [])
        seen.append(Counter(map(tuple, frame.collect())))
        if len(seen) == 1:
            raise Died

    for life in itertools.count():
        stream = site.follow(sink=die, trigger={"availableNow": True}, maxFilesPerTrigger=2, **options)
        if "Died" not in stream.ends():
            break
        if life < 2:
            grow()
    assert len(times) >= 4
    for batch, seen in times.items():
        assert len(seen) == 2, f"batch {batch} came {len(seen)} times"
        assert seen[0] == seen[1], f"batch {batch} differs when it is repeated: {seen}"
    assert Counter(row[0] for seen in times.values() for row in seen[0].elements()) == expected


# --- upserts ---


def upserted(site: Site) -> None:
    """A sink merges a change feed into another table by key and fails after writing: the result equals the source."""
    table = site.write(ID_VALUE, properties=FEED)
    live = Keyed(table)
    live.insert({i: f"v{i}" for i in range(6)})
    target = site.folder / "target"
    dying = {0, 1}

    def merge(frame: Any, batch: int) -> None:
        upsert(frame, batch, target)
        if batch in dying:
            dying.remove(batch)
            raise Died

    for step in range(3):
        stream = site.follow(
            sink=merge, trigger={"availableNow": True}, readChangeFeed="true", startingVersion=0, maxFilesPerTrigger=1
        )
        error = stream.ends()
        assert not error or "Died" in error
        live.update({1: f"new {step}", 100 + step: "x"})
        live.delete(2 if step == 0 else 100 + step - 1)
        live.insert({100 + step + 1: "y"})
    last = site.follow(sink=merge, trigger={"availableNow": True}, readChangeFeed="true", startingVersion=0)
    assert not last.ends()
    newest = max(target.glob("[0-9]*"), key=lambda path: int(path.name))
    found = {row.id: row.value for row in site.spark.read.parquet(str(newest)).collect()}
    assert found == live.rows
    assert not dying


ID_VALUE = pa.schema([("id", pa.int64()), ("value", pa.string())])


class Keyed:
    """A table of keys and values with a change feed, and its expected contents."""

    def __init__(self, table: TableWriter) -> None:
        self._table = table
        self.rows: dict[int, str] = {}

    def insert(self, new: dict[int, str]) -> None:
        new = {key: value for key, value in new.items() if key not in self.rows}
        self._commit([(key, value, "insert") for key, value in new.items()], {**self.rows, **new})

    def update(self, new: dict[int, str]) -> None:
        new = {key: value for key, value in new.items() if key in self.rows}
        images = [(key, self.rows[key], "update_preimage") for key in new]
        self._commit([*images, *((key, value, "update_postimage") for key, value in new.items())], {**self.rows, **new})

    def delete(self, key: int) -> None:
        if key in self.rows:
            rest = {other: value for other, value in self.rows.items() if other != key}
            self._commit([(key, self.rows[key], "delete")], rest)

    def _commit(self, changes: list[tuple[int, str, str]], after: dict[int, str]) -> None:
        if changes:
            change = [{"id": key, "value": value, "_change_type": kind} for key, value, kind in changes]
            added = [
                {"id": key, "value": value} for key, value, kind in changes if kind in ("insert", "update_postimage")
            ]
            self._table.commit(change=[self._table.change_file(change)], add=[self._table.file(added)] if added else [])
            self.rows = after


def upsert(frame: Any, batch: int, target: pathlib.Path) -> None:
    """Apply the changes in ``frame`` to the previous state and write it to ``target/<batch>``; a repeated call writes
    the same."""
    from pyspark.sql import Window, functions

    newest = Window.partitionBy("id").orderBy(functions.desc("_commit_version"))
    changes = (
        frame.where("_change_type <> 'update_preimage'")
        .withColumn("nth", functions.row_number().over(newest)).where("nth = 1")
    )  # fmt: skip
    after = changes.where("_change_type <> 'delete'").select("id", "value")
    before = [path for path in target.glob("[0-9]*") if int(path.name) < batch]
    if before:
        old = frame.sparkSession.read.parquet(str(max(before, key=lambda path: int(path.name))))
        after = after.unionByName(old.join(changes, "id", "left_anti"))
    after.coalesce(1).write.mode("overwrite").parquet(str(target / str(batch)))


SCENARIOS: dict[str, Callable[[Site], None]] = {
    "added": added,
    "dropped": dropped,
    "late_start": late_start,
    "renamed": renamed,
    "replayed_appends": lambda site: replayed(site, startingVersion=0),
    "replayed_changes": lambda site: replayed(site, startingVersion=0, readChangeFeed="true"),
    "replayed_parquet": lambda site: replayed(site, startingVersion=0, responseFormat="parquet"),
    "replayed_snapshot": replayed,
    "start_without_files": start_without_files,
    "token_renewed": token_renewed,
    "upserted": upserted,
    "vectors": vectors,
    "widened": widened,
}


def play(spark: Any, folder: pathlib.Path, names: Sequence[str], at_a_time: int) -> dict[str, BaseException | None]:
    """Run scenarios concurrently; return the failure of each, or ``None``."""

    def one(name: str) -> None:
        (folder / name).mkdir()
        with contextlib.closing(Site(spark, folder / name)) as site:
            SCENARIOS[name](site)

    with ThreadPoolExecutor(at_a_time) as pool:
        begun = {name: pool.submit(one, name) for name in names}
        return {name: future.exception() for name, future in begun.items()}
