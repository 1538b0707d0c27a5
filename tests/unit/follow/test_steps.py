"""Follow a served table with a cursor: steps, repeated steps, and refused requests."""

from __future__ import annotations

import asyncio
import json
import logging
import pathlib
import pickle
import random
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.follow.follower import VersionClock
from delta_sharing_client.run.consumer import Consumer
from tests.tables import TableWriter, rows_of
from tools.soak.follow import kills

ID = pa.schema([("id", pa.int64())])
WIDER = pa.schema([("id", pa.int64()), ("extra", pa.string())])
FEED = {"delta.enableChangeDataFeed": "true"}
NOW = "available-now"


@pytest.fixture
def table(lake: Any) -> TableWriter:
    """A table: version 1 adds rows 1 and 2, each in its own file; version 3 removes row 1 and adds 3; version 5 adds
    4."""
    writer = TableWriter(lake.root / "t", ID, properties=FEED)
    files = [writer.file(rows_of([number])) for number in (1, 2)]
    writer.commit(add=files)
    writer.commit(metadata=True)
    writer.commit(add=[writer.file(rows_of([3]))], remove=[files[0]])
    writer.commit(metadata=True)
    writer.insert(rows_of([4]))
    return writer


@pytest.fixture
def cursor(tmp_path: pathlib.Path) -> pathlib.Path:
    # Spaces and brackets in the name of the file have no special meaning.
    return tmp_path / "t (1) [copy.cursor"


def shared(lake: Any, name: str = "t") -> ds.SharedTable:
    return ds.SharingClient(str(lake.server.profile_path)).table(f"share.schema.{name}")


def content(read: Any) -> list[tuple[int, str, int]]:
    rows = read.to_arrow().to_pylist()
    return sorted((row["id"], row["_change_type"], row["_commit_version"]) for row in rows)


def followed(lake: Any, cursor: pathlib.Path, **asked: Any) -> list[tuple[int, int, list[tuple[int, str, int]]]]:
    """Follow to the end and commit every step; return the versions and rows of each step."""
    results = []
    for changes in shared(lake).follow(cursor, trigger=NOW, **asked):
        assert changes.request.response_format.value == asked.get("response_format", "auto")
        results.append((changes.start_version, changes.end_version, content(changes)))
        changes.commit()
    return results


# --- steps ---


@pytest.mark.parametrize("wire", ["delta", "parquet"])
def test_snapshot_is_followed_by_each_change_once(
    lake: Any, table: TableWriter, cursor: pathlib.Path, wire: str
) -> None:
    snapshot = [(2, "insert", 5), (3, "insert", 5), (4, "insert", 5)]
    assert followed(lake, cursor, response_format=wire) == [(5, 5, snapshot)]
    assert followed(lake, cursor, response_format=wire) == []
    table.insert(rows_of([5]))
    table.insert(rows_of([6]))
    assert followed(lake, cursor, response_format=wire) == [(6, 7, [(5, "insert", 6), (6, "insert", 7)])]


def test_steps_from_a_version_equal_a_read_of_its_changes(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    for most, steps in ((1, [(0, 2), (3, 4), (5, 5)]), (2, [(0, 2), (3, 4), (5, 5)]), (3, [(0, 4), (5, 5)])):
        cursor.unlink(missing_ok=True)
        result = followed(lake, cursor, starting_version=0, max_files=most)
        assert [(start, end) for start, end, _ in result] == steps
        for start, end, rows in result:
            assert rows == content(shared(lake).changes(start, end))


def test_large_snapshot_is_split_and_its_last_part_marked(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    rows, marks = [], []
    for changes in shared(lake).follow(cursor, trigger=NOW, max_bytes=1):
        assert (changes.start_version, changes.end_version, changes.is_snapshot) == (5, 5, True)
        rows += content(changes)
        marks.append((changes.number, changes.completes_version))
        changes.commit()
    assert sorted(rows) == content(shared(lake).follow(cursor.with_name("other")).__iter__().__next__())
    assert marks == [(0, False), (1, False), (2, True)]


def test_backlog_is_split_between_versions(lake: Any, cursor: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID, properties=FEED)
    for number in range(230):
        # There are more empty versions in a row than one request covers.
        table.commit(metadata=True) if number % 150 else table.insert(rows_of([number]), rows_of([-number]))
    steps = followed(lake, cursor, starting_version=0, max_files=1)
    assert [(start, end) for start, end, _ in steps] == [(0, 99), (100, 199)]
    assert [row[:2] for _, _, rows in steps for row in rows] == [(0, "insert")] * 2 + [
        (-150, "insert"),
        (150, "insert"),
    ]
    assert json.loads(cursor.read_text())["committed"]["tableVersion"] == 231


def test_uncommitted_step_of_several_requests_is_repeated(lake: Any, cursor: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID, properties=FEED)
    table.insert(rows_of([1]))
    steps = iter(shared(lake).follow(cursor, starting_version=0, every=1))
    next(steps).commit()
    for _ in range(120):
        table.commit(metadata=True)
    table.insert(rows_of([2]), rows_of([3]))
    result = next(steps)
    again = next(iter(shared(lake, "t").follow(cursor.with_name("copy"), starting_version=0)))
    assert (result.start_version, result.end_version, result.count()) == (2, 122, 2)
    assert (again.start_version, again.end_version, again.count()) == (0, 99, 1)
    del steps
    again = next(iter(shared(lake).follow(cursor)))
    assert (again.start_version, again.end_version, again.is_repeat, again.count()) == (2, 122, True, 2)


def test_start_at_latest_is_fixed_at_the_first_call(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    assert followed(lake, cursor, starting_version="latest") == []
    table.insert(rows_of([5]))
    assert followed(lake, cursor, starting_version="latest") == [(6, 6, [(5, "insert", 6)])]


def test_start_at_a_timestamp_selects_a_version(lake: Any, cursor: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID, properties=FEED, timestamp_ms=1_000_000_000_000)
    for number in (1, 2):
        table.commit(add=[table.file(rows_of([number]))], timestamp_ms=1_000_000_000_000 + number * 86_400_000)
    assert followed(lake, cursor, starting_timestamp="2001-09-11") == [(2, 2, [(2, "insert", 2)])]


def test_empty_table_has_a_snapshot_without_rows(lake: Any, cursor: pathlib.Path) -> None:
    TableWriter(lake.root / "t", ID, properties=FEED)
    assert followed(lake, cursor) == [(0, 0, [])]
    assert followed(lake, cursor) == []


def test_columns_and_filter_apply_to_all_steps(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    asked = {"columns": ["_change_type", "id"], "filter": "id >= 3", "trigger": NOW}
    results = []
    for changes in shared(lake).follow(cursor, starting_version=0, **asked):
        results += changes.to_arrow().to_pylist()
        changes.commit()
    assert results == [{"_change_type": "insert", "id": 3}, {"_change_type": "insert", "id": 4}]


def test_changes_have_the_methods_of_a_read(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    changes = next(iter(shared(lake).follow(cursor)))
    assert sorted(changes.to_pandas()["id"]) == sorted(changes.to_polars()["id"]) == [2, 3, 4]
    assert changes.count() == sum(batch.num_rows for batch in changes.to_batches()) == 3
    assert changes.where("id > 3").select("id").to_arrow().to_pylist() == [{"id": 4}]
    assert changes.limit(1).to_arrow().num_rows == 1
    assert pa.table(changes).num_rows == 3
    assert changes.schema.names == ["id", "_change_type", "_commit_version", "_commit_timestamp"]
    assert repr(changes) == "FollowedChanges(share.schema.t, starting_version=5, ending_version=5)"
    with pytest.raises(ds.UsageError, match="readStream"):
        changes.to_spark()


def test_async_for_gives_the_same_steps(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    async def run() -> list[tuple[int, int]]:
        results = []
        async for changes in shared(lake).follow(cursor, starting_version=0, max_files=1, trigger=NOW):
            results.append((changes.end_version, (await changes.to_arrow_async()).num_rows))
            changes.commit()
        return results

    assert asyncio.run(run()) == [(2, 2), (4, 2), (5, 1)]
    table.insert(rows_of([5]))
    assert followed(lake, cursor) == [(6, 6, [(5, "insert", 6)])]


def test_loop_waits_for_versions_and_ends_at_break(
    lake: Any, table: TableWriter, cursor: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds
        if len(waits) == 3:
            table.insert(rows_of([5]))

    clock = [0.0]
    monkeypatch.setattr(Consumer, "pause", lambda self, seconds: sleep(seconds))
    monkeypatch.setattr(
        VersionClock.__init__, "__defaults__", (lambda: clock[0], *VersionClock.__init__.__defaults__[1:])
    )
    results = []
    for changes in shared(lake).follow(cursor, every=30):
        results.append(content(changes))
        changes.commit()
        if len(results) == 2:
            break
    assert results[1] == [(5, "insert", 6)]
    assert waits == [30.0] * 3
    assert followed(lake, cursor) == []


# --- repeated steps ---


def test_uncommitted_step_is_repeated_with_the_same_versions(
    lake: Any, table: TableWriter, cursor: pathlib.Path
) -> None:
    first = next(iter(shared(lake).follow(cursor, starting_version=1)))
    assert not first.is_repeat
    before = content(first)
    table.insert(rows_of([5]))
    # The step has begun, so new arguments do not change it.
    again = next(iter(shared(lake).follow(cursor, max_files=1)))
    assert (again.id, again.start_version, again.end_version, again.is_repeat) == (first.id, 1, 5, True)
    assert content(again) == before
    again.commit()
    assert followed(lake, cursor) == [(6, 6, [(5, "insert", 6)])]


def test_snapshot_part_is_repeated_after_a_table_change(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    parts = []
    for changes in shared(lake).follow(cursor, max_files=1):
        parts.append(content(changes))
        if len(parts) == 2:
            break
        changes.commit()
    table.insert(rows_of([5]))
    steps = followed(lake, cursor, max_files=1)
    assert steps[0] == (5, 5, parts[1])
    assert sorted(row for rows in (parts[0], *(rows for _, _, rows in steps)) for row in rows) == [
        (2, "insert", 5),
        (3, "insert", 5),
        (4, "insert", 5),
        (5, "insert", 6),
    ]


def test_snapshot_part_with_other_files_is_not_repeated(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    next(iter(shared(lake).follow(cursor, max_files=2)))
    state = json.loads(cursor.read_text())
    state["begun"]["lastFile"] = "another"
    cursor.write_text(json.dumps(state))
    with pytest.raises(ds.DataError, match="has the file 'another' at index 1 of version 5, but the server now has"):
        next(iter(shared(lake).follow(cursor, max_files=2)))


def test_next_step_before_the_commit_of_the_last_is_refused(
    lake: Any, table: TableWriter, cursor: pathlib.Path
) -> None:
    steps = iter(shared(lake).follow(cursor, max_files=1))
    next(steps)
    with pytest.raises(ds.UsageError, match=r"The changes of step 0 were not committed\. Once they are stored, call"):
        next(steps)


def test_commit_is_idempotent_and_works_after_the_loop(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    changes = next(iter(shared(lake).follow(cursor)))
    changes.commit()
    changes.commit()
    table.insert(rows_of([5]))
    assert followed(lake, cursor) == [(6, 6, [(5, "insert", 6)])]
    before = cursor.read_bytes()
    changes.commit()
    assert cursor.read_bytes() == before


def test_step_committed_by_another_program_is_refused(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    ours = next(iter(shared(lake).follow(cursor)))
    cursor.unlink()
    theirs = next(iter(shared(lake).follow(cursor)))
    with pytest.raises(ds.UsageError, match="was advanced by another program"):
        ours.commit()
    theirs.commit()


def test_random_crashes_neither_lose_nor_repeat_rows(lake: Any, tmp_path: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID, properties=FEED)
    chance, repeats = random.Random(7), 0
    for round_ in range(6):
        cursor, stored = tmp_path / f"{round_}.cursor", dict[str, Any]()
        start = None if round_ % 2 else chance.randrange(table.version + 1)
        for life in range(8):
            for _ in range(chance.randint(0, 3)):
                table.insert(*(rows_of([table.version * 10 + n]) for n in range(chance.randint(1, 3))))
            last = life == 7
            asked = {"max_files": 1000 if last else chance.randint(1, 4), "starting_version": start}
            for changes in shared(lake).follow(cursor, trigger=NOW, **asked):
                result = (changes.start_version, changes.end_version, changes.is_snapshot, content(changes))
                assert changes.is_repeat == (changes.id in stored)
                assert stored.setdefault(changes.id, result) == result
                repeats += changes.is_repeat
                if not last and chance.random() < 0.4:
                    break
                changes.commit()
        rows = sorted(row for step in stored.values() for row in step[3])
        if start is not None:
            assert rows == content(shared(lake).changes(start))
        else:
            version = next(iter(stored.values()))[0]
            ids = shared(lake).scan(version=version).to_arrow()["id"].to_pylist()
            tail = content(shared(lake).changes(version + 1)) if version < table.version else []
            assert rows == sorted([(one, "insert", version) for one in ids] + tail)
    assert repeats > 5


def test_killed_processes_neither_lose_nor_repeat_rows(tmp_path: pathlib.Path) -> None:
    """Only a few processes are killed here; ``python -m tools.soak follow`` kills a hundred."""
    counts, wrong = kills(tmp_path, 3, 60, seed=5)
    assert wrong == []
    assert counts["rows"] > 0


# --- changes between steps ---


def test_added_columns_and_widened_types_are_followed(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    steps = iter(shared(lake).follow(cursor, every=1))
    next(steps).commit()
    table.insert(rows_of([5]))
    table.schema = WIDER
    table.commit(metadata=True)
    table.insert([{"id": 6, "extra": "x"}])
    results = []
    for changes in steps:
        results += changes.to_arrow().to_pylist()
        changes.commit()
        if len(results) == 2:
            break
    steps.close()  # type: ignore[attr-defined]
    assert [(row["id"], row.get("extra")) for row in results] == [(5, None), (6, "x")]


def test_incompatible_schema_change_is_refused_with_a_remedy(
    lake: Any, table: TableWriter, cursor: pathlib.Path
) -> None:
    followed(lake, cursor)
    table.insert(rows_of([5]))
    table.schema = pa.schema([("name", pa.string())])
    table.commit(metadata=True)
    with pytest.raises(ds.SchemaChangeError, match=r"in version 7: .*'id'.*'starting_version' 7.*version 6.* left out"):
        followed(lake, cursor)
    cursor.unlink()
    assert followed_versions(lake, cursor, starting_version=7) == []


def followed_versions(lake: Any, cursor: pathlib.Path, **asked: Any) -> list[int]:
    results = []
    for changes in shared(lake).follow(cursor, trigger=NOW, **asked):
        results.append(changes.end_version)
        changes.commit()
    return results


def test_unreadable_column_is_refused_if_it_is_read(
    lake: Any, cursor: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("tests.tables", fromlist=["_TYPES"])._TYPES, pa.large_binary(), "hologram")
    table = TableWriter(lake.root / "t", pa.schema([("id", pa.int64()), ("h", pa.large_binary())]), properties=FEED)
    table.insert([{"id": 1, "h": None}])
    with pytest.raises(ds.UnsupportedFeatureError, match=r"A copy of 'share\.schema\.t' leaves out .*'h'.*hologram"):
        followed_versions(lake, cursor)
    assert followed_versions(lake, cursor, columns=["id"]) == [1]


@pytest.mark.parametrize("running", [True, False])
def test_recreated_table_is_refused(lake: Any, table: TableWriter, cursor: pathlib.Path, running: bool) -> None:
    steps = iter(shared(lake).follow(cursor, every=1, trigger=None if running else NOW))
    next(steps).commit()
    table.path.rename(table.path.with_name("old"))
    TableWriter(table.path, ID, properties=FEED).insert(rows_of([9]))
    if not running:
        steps = iter(shared(lake).follow(cursor))
    with pytest.raises(ds.UsageError, match=r"belongs to the table with id .* recreated.*delete '.*copy\.cursor'"):
        next(steps)


def test_removed_history_is_reported(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    next(iter(shared(lake).follow(cursor, starting_version=1, max_files=1))).commit()
    for version in range(4):
        (table.path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(ds.DataError, match=r"needs the versions 3 to 5, but the server refuses.*'starting_version'"):
        followed(lake, cursor)


def test_repeated_step_with_missing_files_is_refused(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    next(iter(shared(lake).follow(cursor, starting_version=1)))
    state = json.loads(cursor.read_text())
    cursor.write_text(json.dumps({**state, "files": state["files"] + 1}))
    with pytest.raises(ds.DataError, match=r"had 6 files when they were returned first, but have 5 now"):
        followed(lake, cursor)


@pytest.mark.parametrize("taken", ["to_arrow", "to_batches", "to_batches_async", "partitions", "to_parquet"])
def test_deleted_file_error_suggests_a_remedy(
    lake: Any, table: TableWriter, cursor: pathlib.Path, tmp_path: pathlib.Path, taken: str
) -> None:
    changes = next(iter(shared(lake).follow(cursor)))
    for file in table.path.glob("*.parquet"):
        file.unlink()

    async def asynchronously() -> None:
        async for _ in changes.to_batches_async():
            pass

    takes = {
        "to_arrow": changes.to_arrow,
        "to_batches": lambda: list(changes.to_batches()),
        "to_batches_async": lambda: asyncio.run(asynchronously()),
        "partitions": lambda: [list(pickle.loads(pickle.dumps(part)).read()) for part in changes.partitions(1)],
        "to_parquet": lambda: changes.to_parquet(tmp_path / "step.parquet"),
    }
    with pytest.raises(ds.DataError, match=r"rows are lost here.*delete '.*copy\.cursor'.*, with 'starting_version'"):
        takes[taken]()


def test_deleted_table_error_suggests_a_remedy(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    steps = iter(shared(lake).follow(cursor, every=1))
    next(steps).commit()
    table.path.rename(table.path.with_name("elsewhere"))
    with pytest.raises(ds.NotFoundError, match=r"Follow the table again.*delete '.*copy\.cursor'"):
        next(steps)


def test_follow_waits_for_a_server_outage(
    lake: Any, table: TableWriter, cursor: pathlib.Path, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    steps = iter(shared(lake).follow(cursor, every=1, max_outage=60))
    next(steps).commit()
    asked = VersionClock.latest
    answers = [0]

    def silent(clock: Any) -> int:
        answers[0] += 1
        known, ask = clock.known, clock.ask
        if answers[0] <= 2:
            clock.ask = lambda: (_ for _ in ()).throw(ds.TransportError("Nobody answers."))
        try:
            return asked(clock)
        finally:
            clock.ask = ask
            assert clock.known >= known

    monkeypatch.setattr(VersionClock, "latest", silent)
    table.insert(rows_of([5]))
    with caplog.at_level(logging.WARNING):
        assert content(next(steps)) == [(5, "insert", 6)]
    assert "The server does not respond" in caplog.text


# --- requests ---


def test_cursor_in_use_or_of_another_table_is_refused(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    TableWriter(lake.root / "u", ID, properties=FEED)
    steps = iter(shared(lake).follow(cursor))
    changes = next(steps)
    with pytest.raises(ds.UsageError, match=r"The cursor '.*' is in use"):
        next(iter(shared(lake).follow(cursor)))
    link = cursor.with_name("link")
    link.symlink_to(cursor)
    with pytest.raises(ds.UsageError, match=r"The cursor '.*' is in use"):
        next(iter(shared(lake).follow(link)))
    changes.commit()
    steps.close()  # type: ignore[attr-defined]
    with pytest.raises(ds.UsageError, match=r"belongs to the table 'share\.schema\.t' of 'http.*', not to 'share\.sc"):
        next(iter(shared(lake, "u").follow(cursor)))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"trigger": "once"}, "'trigger' must be 'available-now'"),
        ({"every": 0}, "'every' must be a number of 1 or more, found 0"),
        ({"every": float("nan")}, "'every' must be a number"),
        ({"max_files": 0}, "'max_files' must be a number of 1 or more"),
        ({"max_bytes": "1"}, "'max_bytes' must be a number of 1 or more, found '1'"),
        ({"max_outage": -1}, "'max_outage' must be a number of 0 or more"),
        ({"starting_version": "first"}, "'starting_version' must be an integer of 0 or more, or 'latest'"),
        ({"starting_version": -1}, "'starting_version' must be"),
        ({"starting_version": 1, "starting_timestamp": "2020-01-01"}, "not both"),
        ({"options": ds.ReadOptions(access_mode=ds.AccessMode.DIR)}, "only be followed by URL"),
    ],
)
def test_invalid_requests_are_refused(lake: Any, cursor: pathlib.Path, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ds.UsageError, match=message):
        shared(lake).follow(cursor, **asked)


def test_refused_start_creates_no_cursor(lake: Any, table: TableWriter, cursor: pathlib.Path) -> None:
    for asked in ({"columns": ["ident"]}, {"filter": "ident > 1"}):
        with pytest.raises(ds.UsageError, match=r"'ident' is not in the table"):
            next(iter(shared(lake).follow(cursor, **asked)))
        assert not cursor.exists()
    with pytest.raises(ds.NotFoundError) as caught:
        next(iter(shared(lake, "nope").follow(cursor)))
    assert "follow the table again" not in str(caught.value)
    assert not cursor.exists()
