"""Every source of a table answers in the same way: the test matrix of a format and of a way of access.

A new format, or a new way to the files, adds a line to ``KINDS`` and its table to ``shared``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.delta.actions import SharedFile
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.run.partitions import partition
from delta_sharing_client.sources.choosing import source_of
from delta_sharing_client.sources.planning import plan, plan_copy, table_schema
from delta_sharing_client.sources.table_source import HeadRequest, Purpose, TableSource, Window
from delta_sharing_client.sources.traits import Trait, lack
from tests.compositions.tables import write_iceberg
from tests.tables import TableWriter, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


class Kind(NamedTuple):
    """The table to read, the options that choose its source, and how its bytes are then read."""

    table: str
    options: ds.ReadOptions = ds.ReadOptions()
    response_format: ds.ResponseFormat = ds.ResponseFormat.AUTO
    access: str = "by URL"


BY_URL, BY_DIRECTORY = ds.ReadOptions(access_mode="url"), ds.ReadOptions(access_mode="dir", max_attempts=1)
ICEBERG = "the Iceberg table's own files, in "
KINDS = {
    "server, parquet": Kind("delta", BY_URL, ds.ResponseFormat.PARQUET),
    "server, delta": Kind("delta", BY_URL, ds.ResponseFormat.DELTA),
    "log": Kind("open", BY_DIRECTORY, access="the table's directory, file:"),
    "iceberg": Kind("iceberg", ds.ReadOptions(table_format="iceberg"), access=ICEBERG),
    "either format, delta": Kind("delta"),
    "either format, iceberg": Kind("iceberg", access=ICEBERG),
    "either access": Kind("delta", BY_DIRECTORY, access="by URL, because the table's directory cannot be read"),
}


class Subject(NamedTuple):
    """A way to ask for a new source, with the ids in each version of the table, and what only some tables have."""

    kind: Kind
    name: AssetName
    open: Callable[..., TableSource]
    ids: Mapping[int, list[int]]

    @property
    def latest(self) -> int:
        return list(self.ids)[-1]

    @property
    def table_format(self) -> ds.TableFormat:
        return ds.TableFormat.ICEBERG if self.kind.table == "iceberg" else ds.TableFormat.DELTA

    def request(self, **asked: Any) -> ScanRequest:
        return ScanRequest(response_format=self.kind.response_format, **asked)


def _delta(root: Path) -> dict[int, list[int]]:
    writer = TableWriter(root, SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
    first = writer.file(rows_of([1, 2]))
    writer.insert(first, writer.file(rows_of([3])))
    writer.commit(remove=[first], add=[writer.file(rows_of([2, 20]))])
    writer.insert(writer.file(rows_of([4, 5])))
    return {0: [], 1: [1, 2, 3], 2: [2, 3, 20], 3: [2, 3, 4, 5, 20]}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[ds.SharingClient, Any]]]:
    root = tmp_path_factory.mktemp("sources")
    ids = _delta(root / "delta")
    iceberg = {
        snapshot: sorted(row["id"] for row in rows)
        for snapshot, rows in write_iceberg(root / "iceberg").snapshots.items()
    }
    with (
        mock_server.running({"s.t.delta": root / "delta", "s.t.iceberg": root / "iceberg"}) as server,
        mock_server.running({"s.t.open": root / "delta"}, local_directories=True) as opened,
        ds.SharingClient(server.profile) as client,
        ds.SharingClient(opened.profile) as with_directories,
    ):
        tables = {"delta": (client, ids), "iceberg": (client, iceberg), "open": (with_directories, ids)}
        yield tables.__getitem__


@pytest.fixture(params=KINDS)
def subject(request: pytest.FixtureRequest, shared: Callable[[str], Any]) -> Subject:
    kind = KINDS[request.param]
    client, ids = shared(kind.table)
    name = AssetName("s", "t", kind.table)

    def opened(name: AssetName = name) -> TableSource:
        return source_of(client._rest.for_read(kind.options), name, kind.options)

    return Subject(kind, name, opened, ids)


def _ids(found: Any) -> list[int]:
    with Batches(found) as batches:
        return sorted(value for batch in batches for value in batch.column("id").to_pylist())


def test_head_and_version_describe_the_latest_state(subject: Subject) -> None:
    source = subject.open()
    head = source.head(HeadRequest(response_format=subject.kind.response_format))
    assert (head.version, head.table_format) == (subject.latest, subject.table_format)
    assert source.version() == subject.latest
    assert table_schema(subject.open(), subject.request()).names[0] == "id"


def test_every_version_has_its_rows(subject: Subject) -> None:
    for version, ids in subject.ids.items():
        for purpose in (Purpose.READ, Purpose.PLAN):
            found = plan(subject.open(), subject.request(version=version), purpose)
            assert found.access.startswith(subject.kind.access)
            assert found.context.version == version
            assert _ids(found.whole() if purpose is Purpose.PLAN else found) == ids
        assert table_schema(subject.open(), subject.request(version=version)).equals(found.output_schema)


def test_filter_and_limit_select_rows(subject: Subject) -> None:
    ids = subject.ids[subject.latest]
    least = ids[len(ids) // 2]
    found = plan(subject.open(), subject.request(filter=parse_filter(f"id >= {least}")))
    assert _ids(found) == [each for each in ids if each >= least]
    some = _ids(plan(subject.open(), subject.request(limit=3)))
    assert len(some) == 3
    assert set(some) <= set(ids)
    assert _ids(plan(subject.open(), subject.request(columns=["id"], filter=parse_filter("id < 0")))) == []


def test_plan_is_read_in_another_process(subject: Subject) -> None:
    whole = plan(subject.open(), subject.request(), Purpose.PLAN).whole()
    parts = pickle.loads(pickle.dumps(partition(whole, 3)))
    assert (
        sorted(value for part in parts for batch in part.read() for value in batch.column("id").to_pylist())
        == (subject.ids[subject.latest])
    )


def test_closed_listing_lists_nothing_more(subject: Subject) -> None:
    found = plan(subject.open(), subject.request())
    found.close()
    assert list(found.every_file()) == []
    files = subject.open().files(subject.request(), Purpose.READ)
    assert next(files.blocks)
    files.close()
    assert next(files.blocks, None) is None
    begun = plan(subject.open(), subject.request())
    assert next(begun.every_file())
    begun.close()
    assert list(begun.every_file()) == []


def test_changes_are_listed_or_refused(subject: Subject) -> None:
    request = ChangesRequest(starting_version=1, response_format=subject.kind.response_format)
    lacking = lack(subject.table_format, Trait.CHANGES)
    for purpose in (Purpose.READ, Purpose.PLAN):
        if lacking is None:
            found = plan(subject.open(), request, purpose)
            assert found.access.startswith(subject.kind.access)
            with Batches(found) as batches:
                rows = [row for batch in batches for row in batch.to_pylist()]
            changed = sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in rows)
            assert changed == [
                (1, "insert", 1), (1, "insert", 2), (1, "insert", 3), (2, "delete", 1), (2, "delete", 2),
                (2, "insert", 2), (2, "insert", 20), (3, "insert", 4), (3, "insert", 5),
            ]  # fmt: skip
        else:
            with pytest.raises(ds.UnsupportedFeatureError) as refused:
                plan(subject.open(), request, purpose)
            assert str(lacking.error(subject.name)).partition(" (")[0] in str(refused.value)


def test_window_has_its_versions_or_is_refused(subject: Subject) -> None:
    lacking = lack(subject.table_format, Trait.FOLLOWING)
    for first, last, feed in ((2, None, False), (2, 3, False), (2, 3, True)):

        def window(first: int = first, last: int | None = last, feed: bool = feed) -> Window:
            wanted = subject.kind.response_format
            return subject.open().window(first, last, feed=feed, response_format=wanted)

        if lacking is not None:
            with pytest.raises(ds.UnsupportedFeatureError, match=lacking.what):
                window()
            continue
        found = window()
        state = found.state_with(ds.ReadOptions(batch_rows=7))
        assert (found.head.version, state.version, state.place.options.batch_rows) == (2, 2, 7)
        files = [file for block in found.blocks for file in block if isinstance(file, SharedFile)]
        actions = sorted((file.version or 0, type(file.action).__name__) for file in files)
        if last is None:
            assert len(actions) == 2
        else:
            assert actions == [(2, "AddFile"), (2, "RemoveFile"), (3, "AddFile")]
    if lacking is not None:
        with pytest.raises(ds.UnsupportedFeatureError, match=lacking.what):
            subject.open().version(operation=Operation.STREAMING)
        with pytest.raises(ds.UnsupportedFeatureError, match=lacking.what):
            subject.open().head(HeadRequest(operation=Operation.STREAMING))


def test_copy_has_every_file_or_is_refused(subject: Subject) -> None:
    lacking = lack(subject.table_format, Trait.COPY)
    if lacking is None:
        snapshot, files, whole = plan_copy(subject.open(), subject.request())
        assert (snapshot.version, len(files)) == (subject.latest, 3)
        assert [task.file_id for task in whole.tasks] == [file.file_id for file in files]
        assert len(snapshot.files) == len(files)
    else:
        with pytest.raises(ds.UnsupportedFeatureError, match=lacking.what):
            plan_copy(subject.open(), subject.request())


def test_commits_are_those_of_the_versions(subject: Subject) -> None:
    commits = subject.open().commits(0, None)
    assert commits is None or [commit.version for commit in commits] == list(subject.ids)
    if lack(subject.table_format, Trait.VERSION_ORDER) is not None:
        with pytest.raises(ds.UnsupportedFeatureError, match="no order of versions"):
            subject.open().commits(1, None)


def test_wrong_requests_are_refused_by_name(subject: Subject) -> None:
    with pytest.raises(ds.UsageError, match="'nobody' is not in the table"):
        plan(subject.open(), subject.request(columns=["nobody"]))
    with pytest.raises((ds.UsageError, ds.RequestError)):
        plan(subject.open(), subject.request(version=98))


def test_missing_table_is_named(subject: Subject) -> None:
    source = subject.open(AssetName("s", "t", "absent"))
    with pytest.raises(ds.NotFoundError) as missing:
        plan(source, subject.request())
    assert missing.value.table == "s.t.absent"
    with pytest.raises(ds.NotFoundError), source.about():
        source.version()
