"""Local Delta copies: what an update downloads, which files it keeps, and that readers never see a partial update."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import errno
import hashlib
import json
import os
import pathlib
import shutil
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client import replica
from delta_sharing_client.delta.actions import AddFile, SharedFile
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.writer import UNFINISHED
from delta_sharing_client.delta.snapshot import Want
from delta_sharing_client.fetch.http import Http
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.source import Attempt, RemoteFile, Stale
from delta_sharing_client.file_lock import FileLock
from delta_sharing_client.plan.tasks import FileTask
from delta_sharing_client.replica import APPLICATION, CHECKSUM
from tests import junctions
from tests.integration import spark_rows
from tests.memory import python_peak
from tests.regressions.hand_made import HandMadeTable
from tests.served import served
from tests.tables import TableWriter, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
WITH_VECTORS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}
QUICK = ds.ReadOptions(max_attempts=2, max_retry_seconds=1)
AT_ONCE = datetime.timedelta(0)
FORMATS = ("parquet", "delta")


class Shared:
    """A table that a test changes, the server that shares it, and its copy."""

    def __init__(self, writer: TableWriter, server: mock_server.RunningServer, table: ds.SharedTable) -> None:
        self.writer = writer
        self.server = server
        self.table = table


@pytest.fixture
def shared(tmp_path: pathlib.Path) -> Iterator[Shared]:
    writer = TableWriter(tmp_path / "shared", SCHEMA)
    with (
        mock_server.running(tables={"s.d.t": writer.path}) as server,
        ds.SharingClient(server.profile, options=QUICK) as client,
    ):
        yield Shared(writer, server, client.table("s.d.t"))


@pytest.fixture
def copy(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "copy"


def ids(directory: pathlib.Path, version: int | None = None) -> list[int]:
    """Return the column ``id`` of a copy, read with our client from a server that shares the copy."""
    with served(directory) as table:
        return sorted(table.scan(version=version).to_arrow()["id"].to_pylist())


def data_files(directory: pathlib.Path) -> set[str]:
    return {
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.suffix in (".parquet", ".bin")
    }


@pytest.mark.parametrize("wire", FORMATS)
def test_update_downloads_only_new_files(shared: Shared, copy: pathlib.Path, wire: str) -> None:
    first, second = shared.writer.file(rows_of([1, 2])), shared.writer.file(rows_of([3]))
    shared.writer.insert(first, second)
    begun = shared.table.replicate(copy, response_format=wire)
    shared.writer.commit(remove=[first], add=[shared.writer.file(rows_of([4, 5]))])
    shared.server.reset_stats()

    updated = shared.table.replicate(copy, response_format=wire)

    assert (begun.version, begun.local_version, begun.num_files, begun.downloaded_files) == (1, 0, 2, 2)
    assert (updated.version, updated.local_version, updated.num_files, updated.downloaded_files) == (2, 1, 2, 1)
    assert shared.server.stats()["requests"]["data"] == 1
    assert updated.size == sum(item.size for item in DeltaLog.open(copy).snapshot().files)
    assert ids(copy) == [3, 4, 5]
    assert ids(copy, version=0) == [1, 2, 3]


@pytest.mark.parametrize("wire", FORMATS)
def test_update_without_changes_writes_nothing(shared: Shared, copy: pathlib.Path, wire: str) -> None:
    shared.writer.insert(rows_of([1]))
    before = shared.table.replicate(copy, response_format=wire)
    files = sorted(copy.rglob("*"))

    after = shared.table.replicate(copy, response_format=wire)

    assert (after.local_version, after.downloaded_files, after.downloaded_bytes) == (before.local_version, 0, 0)
    assert sorted(copy.rglob("*")) == files


@pytest.mark.parametrize("wire", FORMATS)
def test_files_of_another_server_with_the_same_ids_are_not_kept(tmp_path: pathlib.Path, wire: str) -> None:
    """Two servers with the same names: the ids of the table and of its file are equal, and so are the sizes."""
    copy, steps = tmp_path / "copy", []
    for number, rows in enumerate(([1, 2], [3, 4])):
        writer = TableWriter(tmp_path / f"shared-{number}", SCHEMA, table_id="the same")
        writer.insert(writer.file(rows_of(rows), name="part-0.parquet"))
        with served(writer.path) as shared:
            steps.append(shared.replicate(copy, response_format=wire))
        assert ids(copy) == rows

    assert [(step.local_version, step.downloaded_files) for step in steps] == [(0, 1), (1, 1)]
    assert steps[0].size == steps[1].size
    assert ids(copy, version=0) == [1, 2]


def test_new_version_without_new_files_is_recorded(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.insert(rows_of([1]))
    shared.table.replicate(copy)
    shared.writer.commit()

    assert shared.table.replicate(copy).version == 2
    assert DeltaLog.open(copy).snapshot().transactions[APPLICATION].version == 2


def test_new_deletion_vector_downloads_no_data_file(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.commit(protocol=WITH_VECTORS)
    file = shared.writer.file(rows_of(range(10)))
    shared.writer.insert(file)
    shared.table.replicate(copy)
    shared.writer.commit(remove=[file], add=[file.deleting(0, 9)])
    assert shared.table.replicate(copy).downloaded_files == 0
    assert ids(copy) == list(range(1, 9))
    shared.writer.commit(remove=[file.deleting(0, 9)], add=[file])
    assert shared.table.replicate(copy).downloaded_files == 0
    assert ids(copy) == list(range(10))
    assert ids(copy, version=1) == list(range(1, 9))


# The fault changes the declared size of a file, so the declared size of the table is wrong as well.
@pytest.mark.filterwarnings("ignore::delta_sharing_client.IncompleteReadWarning")
def test_failed_download_leaves_the_copy_unchanged(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.insert(rows_of([1]))
    shared.table.replicate(copy)
    shared.writer.insert(rows_of([2]), rows_of([3]))
    for fault in ("truncate-body@data", "wrong-size=7", "503-first=99@data", "error-in-stream"):
        shared.server.set_fault(fault)
        with pytest.raises(ds.DeltaSharingError) as failure:
            shared.table.replicate(copy)
        shared.server.clear_faults()
        assert "X-Amz-Signature" not in str(failure.value)
        assert DeltaLog.open(copy).latest_version() == 0
        assert ids(copy) == [1]

    assert shared.table.replicate(copy).local_version == 1
    assert ids(copy) == [1, 2, 3]
    assert list(copy.rglob("*.part")) == []


def test_interrupted_download_is_resumed(shared: Shared, copy: pathlib.Path) -> None:
    file = shared.writer.file(rows_of([1]), size=300_000)
    shared.writer.insert(file)
    shared.server.set_fault("cut-connection-after=100000:1@data")

    done = shared.table.replicate(copy)

    assert done.downloaded_bytes == 300_000
    assert [path.read_bytes() for path in (copy / "data").iterdir()] == [(shared.writer.path / file.path).read_bytes()]


def test_expired_urls_are_renewed(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.insert(rows_of([1]))
    shared.server.set_fault("expire-urls-now:1")

    assert shared.table.replicate(copy).downloaded_files == 1


def test_downloaded_file_that_is_not_parquet_is_refused(shared: Shared, copy: pathlib.Path) -> None:
    file = shared.writer.file(rows_of([1]))
    shared.writer.insert(file)
    (shared.writer.path / file.path).write_bytes(b"<html>" + b" " * (file.size - 6))

    with pytest.raises(ds.DataError, match="Parquet") as refusal:
        shared.table.replicate(copy)

    assert refusal.value.file_id
    assert not list((copy / "data").iterdir())


def test_copy_is_an_independent_table_that_can_be_moved(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.properties.update({"delta.enableChangeDataFeed": "true", "delta.appendOnly": "true"})
    shared.writer.commit(metadata=True)
    shared.writer.insert(rows_of([1]))
    shared.table.replicate(copy, response_format="delta")

    moved = copy.rename(copy.parent / "moved")
    shutil.rmtree(shared.writer.path)

    assert ids(moved) == [1]
    snapshot = DeltaLog.open(moved).snapshot()
    assert dict(snapshot.metadata.properties) == {"delta.appendOnly": "true"}
    assert not any("://" in item.path or item.path.startswith("/") for item in snapshot.files)
    assert "X-Amz" not in "".join(path.read_text() for path in (moved / "_delta_log").glob("*.json"))


def test_in_commit_timestamps_and_row_ids_are_copied(tmp_path: pathlib.Path, copy: pathlib.Path) -> None:
    with served(spark_rows.SparkTable("pair-tracking-committime").path) as table:
        for version in range(table.version() + 1):
            table.replicate(copy, version=version)
        expected = table.scan(row_lineage=True).to_arrow()
    with served(copy) as shared:
        rows = shared.scan(row_lineage=True).to_arrow()

    assert rows.sort_by("_row_id").equals(expected.sort_by("_row_id"))
    assert "delta.enableInCommitTimestamps" not in DeltaLog.open(copy).snapshot().metadata.properties


def test_copy_can_go_back_to_an_older_version(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.insert(rows_of([1]))
    shared.writer.insert(rows_of([2]))
    shared.table.replicate(copy)

    back = shared.table.replicate(copy, version=1)

    assert (back.version, back.local_version) == (1, 1)
    assert ids(copy) == [1]


# --- old files ---


def test_removed_files_are_kept_for_the_retention(shared: Shared, copy: pathlib.Path) -> None:
    old = shared.writer.file(rows_of([1]))
    shared.writer.insert(old)
    shared.table.replicate(copy)
    kept = data_files(copy)
    shared.writer.commit(remove=[old], add=[shared.writer.file(rows_of([2]))])

    assert shared.table.replicate(copy).deleted_files == 0
    assert shared.table.replicate(copy, retention=None).deleted_files == 0
    assert ids(copy, version=0) == [1]
    assert shared.table.replicate(copy, retention=AT_ONCE).deleted_files == 1
    assert not kept & data_files(copy)
    assert ids(copy) == [2]


def test_deletion_vector_in_use_is_kept(tmp_path: pathlib.Path, copy: pathlib.Path) -> None:
    table = spark_rows.SparkTable("deletion-vectors")
    with served(table.path) as shared:
        for version in table.versions:
            shared.replicate(copy, version=version, retention=AT_ONCE)
            assert len(ids(copy)) == len(table.rows(version))

    files = DeltaLog.open(copy).snapshot().files
    vectors = [item.deletion_vector for item in files if item.deletion_vector is not None]
    assert len(list((copy / "data").iterdir())) == len(files)
    assert len(list((copy / "vectors").iterdir())) == len(vectors) > 0


def test_files_of_interrupted_updates_are_removed(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.insert(rows_of([1]))
    shared.table.replicate(copy)
    orphan, temporary = copy / "data" / f"{'0' * 40}.parquet", copy / "data" / ".x.parquet.1.part"
    unfinished = copy / "_delta_log" / f".{1:020}.json.{'0a' * 16}.tmp"
    foreign = copy / "data" / "mine.parquet"
    for path in (orphan, temporary, unfinished, foreign):
        path.write_bytes(b"left over")

    shared.table.replicate(copy)

    assert [path.exists() for path in (orphan, temporary, unfinished, foreign)] == [False, False, False, True]


def test_repair_fetches_files_that_changed_on_disk(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.insert(shared.writer.file(rows_of([1, 2])), shared.writer.file(rows_of([3])))
    shared.table.replicate(copy)
    (first, second) = sorted((copy / "data").iterdir())
    good = first.read_bytes()
    # the damaged file has the right length and is still valid Parquet
    first.write_bytes(good[:20] + bytes([good[20] ^ 1]) + good[21:])

    assert shared.table.replicate(copy).downloaded_files == 0
    mended = shared.table.replicate(copy, repair=True)

    assert (mended.downloaded_files, mended.local_version, first.read_bytes() == good) == (1, 0, True)
    assert shared.table.replicate(copy, repair=True).downloaded_files == 0
    second.write_bytes(b"short")
    assert shared.table.replicate(copy).downloaded_files == 1
    assert ids(copy) == [1, 2, 3]


def test_checksums_survive_checkpoints_and_tombstones(shared: Shared, copy: pathlib.Path) -> None:
    files = [shared.writer.file(rows_of([number])) for number in range(2)]
    shared.writer.insert(*files)
    for number in range(11):
        shared.writer.commit(add=[shared.writer.file(rows_of([10 + number]))], remove=files[:1] if number == 2 else [])
        shared.table.replicate(copy)

    assert list((copy / "_delta_log").glob("*.checkpoint.parquet"))
    snapshot = DeltaLog.open(copy).snapshot(want=Want.STATS | Want.TOMBSTONES)
    for item in (*snapshot.files, *snapshot.tombstones):
        assert item.tags is not None
        assert item.tags[CHECKSUM] == hashlib.sha256((copy / item.path).read_bytes()).hexdigest()
    assert shared.table.replicate(copy, repair=True, version=1).downloaded_files == 0


def test_repair_replaces_a_damaged_deletion_vector(tmp_path: pathlib.Path, copy: pathlib.Path) -> None:
    table = spark_rows.SparkTable("deletion-vectors")
    with served(table.path) as shared:
        shared.replicate(copy)
        expected = ids(copy)
        (vector, *_) = (copy / "vectors").iterdir()
        vector.write_bytes(bytes(len(vector.read_bytes())))
        with pytest.raises(ds.DataError):
            ids(copy)
        shared.replicate(copy, repair=True)

    assert ids(copy) == expected


def test_four_concurrent_updates_leave_a_correct_copy(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.insert(*(shared.writer.file(rows_of([number])) for number in range(6)))

    def update(number: int) -> str:
        try:
            return str(shared.table.replicate(copy).num_files)
        except ds.UsageError as error:
            return "refused" if "is running" in str(error) else str(error)

    for number in range(3):
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(update, range(4))) <= {str(6 + number), "refused"}
        assert shared.table.replicate(copy).num_files == 6 + number
        assert len(ids(copy)) == 6 + number
        shared.writer.insert(shared.writer.file(rows_of([10 + number])))


def test_false_size_of_ten_terabytes_is_refused_in_little_memory(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.insert(shared.writer.file(rows_of([1])))
    log = shared.writer.path / "_delta_log" / f"{1:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["size"] = 10**13
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def replicate() -> None:
        with pytest.raises(ds.DataError, match="10000000000000"):
            shared.table.replicate(copy)

    assert python_peak(replicate, times=3) < 20_000_000
    assert not list((copy / "data").glob("*") if (copy / "data").exists() else ())


def test_full_disk_is_reported_in_one_sentence(
    shared: Shared, copy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.writer.insert(shared.writer.file(rows_of([1])))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ds.UsageError, match=r"No space left on device.*free disk space"):
        shared.table.replicate(copy)
    monkeypatch.undo()

    assert not list(copy.rglob("*.part"))
    assert shared.table.replicate(copy).num_files == 1


def test_checkpoint_follows_every_tenth_version(shared: Shared, copy: pathlib.Path) -> None:
    files = []
    for number in range(12):
        files.append(shared.writer.file(rows_of([number])))
        shared.writer.commit(add=files[-1:], remove=files[-6:-5])
        shared.table.replicate(copy, retention=AT_ONCE if number == 8 else None)

    log = copy / "_delta_log"
    assert [path.name for path in log.glob("*.checkpoint.parquet")] == [f"{10:020}.checkpoint.parquet"]
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 10
    for version in range(10):
        (log / f"{version:020}.json").unlink()
    assert ids(copy) == [7, 8, 9, 10, 11]
    assert shared.table.replicate(copy).local_version == 11
    # The checkpoint has the tombstones of files that still exist; files removed before version 9 have been deleted.
    assert len(data_files(copy) - {f"_delta_log/{10:020}.checkpoint.parquet"}) == 8
    assert shared.table.replicate(copy, retention=AT_ONCE).deleted_files == 3


# --- refusals ---


def test_directory_with_another_table_is_refused(shared: Shared, copy: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shared.writer.insert(rows_of([1]))
    shared.table.replicate(copy)
    other = TableWriter(tmp_path / "other", SCHEMA)
    other.insert(rows_of([2]))
    with served(other.path) as another:
        with pytest.raises(ds.UsageError, match="another directory"):
            another.replicate(copy)
        with pytest.raises(ds.UsageError, match="Delta table that replicate did not create"):
            another.replicate(other.path)

    assert ids(copy) == [1]


def test_concurrent_update_is_refused(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.insert(rows_of([1]))
    shared.table.replicate(copy)

    with FileLock(copy / ".replica.lock", "taken"), pytest.raises(ds.UsageError, match="is running"):
        shared.table.replicate(copy)
    assert shared.table.replicate(copy).local_version == 0


def test_unwritable_directory_is_refused(shared: Shared, copy: pathlib.Path) -> None:
    copy.write_text("a file")

    with pytest.raises(ds.UsageError, match="cannot be written"):
        shared.table.replicate(copy)


def test_invalid_arguments_are_refused(shared: Shared, copy: pathlib.Path) -> None:
    with pytest.raises(ds.UsageError, match="negative"):
        shared.table.replicate(copy, retention=datetime.timedelta(days=-1))
    with pytest.raises(ds.UsageError, match="version"):
        shared.table.replicate(copy, version=1, timestamp="2024-01-01")
    assert not copy.exists()


@pytest.mark.parametrize("kind", ["link", "junction"])
@pytest.mark.parametrize("name", ["_delta_log", "data", "vectors", ".replica.lock"])
def test_copy_is_not_written_through_a_link(
    shared: Shared, copy: pathlib.Path, tmp_path: pathlib.Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "junction":
        junctions.imitate(monkeypatch.setattr)
    shared.writer.insert(rows_of([1]))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy.mkdir()
    (copy / name).symlink_to(elsewhere / "file" if name == ".replica.lock" else elsewhere)
    with pytest.raises(ds.UsageError, match="is a link"):
        shared.table.replicate(copy)
    assert list(elsewhere.iterdir()) == []


def test_directory_of_a_copy_may_be_a_symbolic_link(shared: Shared, tmp_path: pathlib.Path) -> None:
    shared.writer.insert(rows_of([1]))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    shared.table.replicate(tmp_path / "link")
    assert ids(tmp_path / "real") == [1]


# --- contents of a copy ---


def log_of(directory: pathlib.Path) -> list[dict[str, Any]]:
    """Return the actions of the last commit of a copy."""
    *_, last = sorted((directory / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in last.read_text().splitlines()]


def test_copy_of_some_columns_includes_partition_columns(tmp_path: pathlib.Path, copy: pathlib.Path) -> None:
    table = HandMadeTable(tmp_path / "t").create(
        pa.schema(
            [
                ("a", pa.int64()),
                ("b", pa.int64()),
                ("s", pa.struct([("x", pa.int64()), ("y", pa.int64())])),
                ("p", pa.string()),
            ]
        ),
        partition_by=["p"],
    )
    table.commit(table.file(pa.table({"a": [1], "b": [2], "s": [{"x": 3, "y": 4}]}), {"p": "v"}))
    with served(table.root) as shared:
        shared.replicate(copy, columns=["s.y", "a"])
        result = deltalake.DeltaTable(str(copy))
        assert [field.name for field in result.schema().fields] == ["a", "s", "p"]
        assert result.to_pyarrow_table().to_pylist() == [{"a": 1, "s": {"y": 4}, "p": "v"}]
        # The same version of the table is copied again, with other columns.
        shared.replicate(copy)
    assert deltalake.DeltaTable(str(copy)).to_pyarrow_table().to_pylist() == [
        {"a": 1, "b": 2, "s": {"x": 3, "y": 4}, "p": "v"}
    ]


def test_table_with_an_unknown_type_is_refused_without_a_warning(tmp_path: pathlib.Path, copy: pathlib.Path) -> None:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("a", "long"), ("h", "hologram"))
    ]
    table = HandMadeTable(tmp_path / "t").create(json.dumps({"type": "struct", "fields": fields}))
    table.commit(table.file(pa.table({"a": [1]})))
    with (
        served(table.root) as shared,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        with pytest.raises(ds.UnsupportedFeatureError, match="'h'"):
            shared.replicate(copy)


def test_table_without_an_id_is_refused(tmp_path: pathlib.Path, copy: pathlib.Path) -> None:
    table = HandMadeTable(tmp_path / "t").create(pa.schema([("a", pa.int64())]))
    described = table.metadata(pa.schema([("a", pa.int64())]))
    described["metaData"]["id"] = ""
    table.commit(described)
    with (
        served(table.root) as shared,
        pytest.raises(ds.ProtocolError, match=r"needs the id of 's\.d\.t'"),
    ):
        shared.replicate(copy)


def test_removal_has_all_fields_of_the_removed_file(tmp_path: pathlib.Path, copy: pathlib.Path) -> None:
    table = HandMadeTable(tmp_path / "t").create(
        pa.schema([("a", pa.int64()), ("p", pa.string())]),
        partition_by=["p"],
        properties={"delta.enableRowTracking": "true"},
        features=["deletionVectors"],
    )
    added = table.file(pa.table({"a": [1, 2]}), {"p": "v"}, removed=[0])
    added["add"] |= {"baseRowId": 5, "defaultRowCommitVersion": 1}
    table.commit(added)
    with served(table.root) as shared:
        shared.replicate(copy)
        (before,) = (action["add"] for action in log_of(copy) if "add" in action)
        table.commit(table.removal(added))
        shared.replicate(copy)
    # An inline deletion vector stays inline.
    assert before["deletionVector"] == added["add"]["deletionVector"]
    assert before["deletionVector"]["storageType"] == "i"
    assert not (copy / "vectors").exists()
    (gone,) = (action["remove"] for action in log_of(copy) if "remove" in action)
    kept = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    assert {name: gone.get(name) for name in kept} == {name: before[name] for name in kept}
    assert (gone["extendedFileMetadata"], gone["dataChange"]) == (True, True)
    assert gone["deletionTimestamp"] > 0


def test_parent_directories_of_a_copy_are_created(shared: Shared, copy: pathlib.Path) -> None:
    shared.writer.insert(rows_of([1]))
    shared.table.replicate(copy / "a" / "b")
    assert ids(copy / "a" / "b") == [1]


def test_local_file_is_kept_if_its_size_matches_or_is_unknown(shared: Shared, tmp_path: pathlib.Path) -> None:
    shared.writer.insert(rows_of([1]))
    fetch = replica._Fetch(tmp_path, None, shared.table.scan().plan().context, ScanReport(), repair=False, server="h")
    (tmp_path / "f").write_bytes(b"abc")
    assert [fetch._has_file("f", size) for size in (3, 4, 0, -1)] == [True, False, False, True]
    assert not fetch._has_file("g", -1)


def test_update_copies_changed_protocol_and_metadata(tmp_path: pathlib.Path, copy: pathlib.Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    table = HandMadeTable(tmp_path / "t").create(schema)
    with served(table.root) as shared:
        shared.replicate(copy, response_format="delta")
        features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
        protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
        wider = schema.append(pa.field("b", pa.string()))
        table.commit(protocol, table.metadata(wider, properties={"x": "y"}))
        shared.replicate(copy, response_format="delta")
    actions = {name: content for action in log_of(copy) for name, content in action.items()}
    assert {name: actions["protocol"][name] for name in protocol["protocol"]} == protocol["protocol"]
    assert actions["metaData"]["configuration"] == {"x": "y"}
    assert [field["name"] for field in json.loads(actions["metaData"]["schemaString"])["fields"]] == ["a", "b"]
    assert actions["txn"]["version"] == 1


def test_file_without_an_id_is_named_after_its_unsigned_url() -> None:
    def name(url: str, file_id: str | None = None) -> str:
        return replica._file_name("https://server", SharedFile(AddFile(url), file_id))

    assert name("https://h/f?sig=1") == name("https://h/f?sig=2") != name("https://h/g?sig=1")
    assert name("https://h/f?sig=1", "one") == name("https://h/g?sig=1", "one") != name("https://h/f?sig=1", "two")


def test_copy_may_be_in_the_home_directory(
    shared: Shared, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.writer.insert(rows_of([1]))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    assert shared.table.replicate("~/copy").directory == tmp_path / "home" / "copy"
    assert ids(tmp_path / "home" / "copy") == [1]


@pytest.mark.parametrize(("days", "kept"), [(0.6, True), (0.999, True), (1.001, False)])
def test_removed_file_is_deleted_after_its_retention(
    shared: Shared, copy: pathlib.Path, monkeypatch: pytest.MonkeyPatch, days: float, kept: bool
) -> None:
    file = shared.writer.file(rows_of([1]))
    shared.writer.insert(file)
    day = datetime.timedelta(days=1)
    shared.table.replicate(copy, retention=day)
    shared.writer.commit(remove=[file])
    shared.table.replicate(copy, retention=day)
    now = time.time()
    monkeypatch.setattr(replica.time, "time", lambda: now + days * 86_400)
    shared.writer.insert(rows_of([2]))
    updated = shared.table.replicate(copy, retention=day)
    assert (updated.deleted_files, len(list((copy / "data").iterdir()))) == ((0, 2) if kept else (1, 1))


def test_timestamps_of_commits_never_decrease(
    shared: Shared, copy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.writer.insert(rows_of([1]))
    shared.table.replicate(copy)
    (before,) = (action["commitInfo"]["timestamp"] for action in log_of(copy) if "commitInfo" in action)
    monkeypatch.setattr(replica.time, "time", lambda: 1_000_000.0)
    shared.writer.insert(rows_of([2]))
    assert shared.table.replicate(copy).local_version == 1
    (after,) = (action["commitInfo"]["timestamp"] for action in log_of(copy) if "commitInfo" in action)
    assert after in (before, before + 1)


def test_tags_of_a_file_are_kept_next_to_its_checksum(tmp_path: pathlib.Path, copy: pathlib.Path) -> None:
    table = HandMadeTable(tmp_path / "t").create(pa.schema([("a", pa.int64())]))
    added = table.file(pa.table({"a": [1]}))
    added["add"]["tags"] = {"x": "y"}
    table.commit(added)
    with served(table.root) as shared:
        shared.replicate(copy, response_format="delta")
    (stored,) = (action["add"] for action in log_of(copy) if "add" in action)
    content = (copy / stored["path"]).read_bytes()
    assert stored["tags"] == {"x": "y", CHECKSUM: hashlib.sha256(content).hexdigest()}
    assert stored["size"] == len(content)


# --- parts of a file ---


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let parts have 100 bytes, and record how many parts were being requested when each request was sent."""
    begun: list[int] = []
    get, running = Http.get, 0

    async def counted(http: Http, *arguments: Any) -> None:
        nonlocal running
        running += 1
        begun.append(running)
        try:
            for _ in range(50):
                await asyncio.sleep(0)
            await get(http, *arguments)
        finally:
            running -= 1

    monkeypatch.setattr(replica, "_PART", 100)
    monkeypatch.setattr(Http, "get", counted)
    return begun


def test_file_is_downloaded_in_parts_two_at_a_time(shared: Shared, copy: pathlib.Path, at_once: list[int]) -> None:
    shared.writer.insert(rows_of(range(300)))
    options = dataclasses.replace(QUICK, max_concurrent_requests=2)
    shared.table.replicate(copy, options=options)
    (stored,) = (copy / "data").iterdir()
    (original,) = shared.writer.path.glob("*.parquet")
    assert stored.read_bytes() == original.read_bytes()
    assert len(at_once) == -(-original.stat().st_size // 100) > 10
    assert max(at_once) == 2
    assert ids(copy) == list(range(300))


def test_failed_part_fails_the_update(shared: Shared, copy: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared.writer.insert(rows_of([1]))

    async def broken(file: RemoteFile, part: Any) -> pa.Buffer:
        raise file.error(ds.DataError, "it is broken")

    monkeypatch.setattr(RemoteFile, "read", broken)
    with pytest.raises(ds.DataError, match="it is broken"):
        shared.table.replicate(copy)
    assert not (copy / "_delta_log").exists()
    assert not list((copy / "data").iterdir())


def test_file_that_changed_between_parts_is_read_again(
    shared: Shared, copy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.writer.insert(rows_of([1]))
    asked: list[Attempt] = []
    remote_file = FileTask.remote_file

    def opened(task: FileTask, fetcher: Any, *, attempt: Attempt, order: tuple[int, ...] = ()) -> RemoteFile:
        asked.append(attempt)
        file = remote_file(task, fetcher, attempt=attempt, order=order)
        if always or attempt is Attempt.FIRST:

            async def stale(part: Any) -> pa.Buffer:
                raise file.error(Stale, "it was changed")

            monkeypatch.setattr(
                type(file), "read", lambda self, part: stale(part) if self is file else read(self, part)
            )
        return file

    read = RemoteFile.read
    monkeypatch.setattr(FileTask, "remote_file", opened)
    always = False
    shared.table.replicate(copy)
    assert asked == [Attempt.FIRST, Attempt.AGAIN]
    assert len(list((copy / "data").iterdir())) == 1
    always = True
    with pytest.raises(ds.DataError, match="it was changed"):
        shared.table.replicate(copy.with_name("other"))


def test_listed_files_that_no_longer_exist_are_ignored(
    shared: Shared, copy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.writer.insert(rows_of([1]))
    shared.table.replicate(copy)
    listdir = os.listdir
    ghosts = {"_delta_log": f".{0:020d}.json.{'0' * 32}.tmp", "data": "0" * 40 + ".parquet"}

    def listed(path: Any) -> list[str]:
        names = listdir(path)
        return [*names, ghosts.get(pathlib.Path(path).name, ".x.part"), ".x.part"]

    monkeypatch.setattr(replica.os, "listdir", listed)
    assert UNFINISHED.fullmatch(ghosts["_delta_log"])
    shared.writer.insert(rows_of([2]))
    shared.table.replicate(copy, retention=AT_ONCE)
    assert ids(copy) == [1, 2]
