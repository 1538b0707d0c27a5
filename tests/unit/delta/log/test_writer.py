"""Both deltalake and our reader can read the logs that we write for deltalake's tables."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    RowIdHighWaterMark,
    Transaction,
)
from delta_sharing_client.delta.log import writer
from delta_sharing_client.delta.log.commit import Commit
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.log_files import json_checksum
from delta_sharing_client.delta.log.log_lines import action_fields
from delta_sharing_client.delta.log.writer import append_commit, write_checkpoint, write_log
from delta_sharing_client.delta.snapshot import Snapshot, Want
from delta_sharing_client.errors import DataError, UsageError
from tests.versions import rows_of_deltalake

SCHEMA = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'
METADATA = Metadata(id="5fba94ed-9794-4965-ba6e-6ee3c0d22af9", schema_string=SCHEMA, configuration={})
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of six versions: four appends, a delete and an update, with change files."""
    root = tmp_path_factory.mktemp("source") / "table"
    for i in range(4):
        rows = pa.table({"a": [i * 3, i * 3 + 1, i * 3 + 2], "p": ["x", "y", "z"]})
        write_deltalake(root, rows, mode="append", partition_by=["p"], configuration=FEED)
    DeltaTable(root).delete("a = 4")
    DeltaTable(root).update(predicate="a = 7", updates={"a": "70"})
    return root


def _copy_data(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("_delta_log"))
    return target


def _rows(root: Path) -> list[int]:
    return sorted(rows_of_deltalake(DeltaTable(root), "a"))


@pytest.mark.parametrize("version", [0, 1, 3, 5])
def test_deltalake_reads_version_and_rows_of_a_written_snapshot(source: Path, tmp_path: Path, version: int) -> None:
    target = _copy_data(source, tmp_path / "copy")
    snapshot = DeltaLog.open(source).snapshot(version)
    write_log(target, snapshot)
    assert DeltaLog.open(target).latest_version() == version
    assert DeltaTable(target).version() == version
    assert _rows(target) == sorted(rows_of_deltalake(DeltaTable(source, version=version), "a"))
    back = DeltaLog.open(target).snapshot()
    assert (back.version, back.timestamp_ms) == (version, snapshot.timestamp_ms)
    assert (back.protocol, back.metadata) == (snapshot.protocol, snapshot.metadata)
    assert sorted(map(repr, back.files)) == sorted(map(repr, snapshot.files))


def test_signed_urls_are_refused_and_local_files_written(source: Path, tmp_path: Path) -> None:
    target = _copy_data(source, tmp_path / "copy")
    local = DeltaLog.open(source).snapshot()
    shared = [
        msgspec.structs.replace(file, path=f"https://host/{i}?X-Amz-Signature=5ecr3t")
        for i, file in enumerate(local.files)
    ]
    snapshot = Snapshot.from_actions(5, [Protocol(1), local.metadata, *shared])
    with pytest.raises(UsageError, match="signed") as caught:
        write_log(tmp_path / "refused", snapshot)
    assert "5ecr3t" not in str(caught.value)
    local_files = [msgspec.structs.replace(file, path=was.path) for file, was in zip(shared, local.files, strict=True)]
    log = write_log(target, dataclasses.replace(snapshot, files=local_files))
    assert _rows(target) == _rows(source)
    text = (log / f"{5:020}.json").read_text()
    assert not any(word in text for word in ("5ecr3t", "https"))
    assert [file.path for file in DeltaLog.open(target).snapshot().files] == [file.path for file in local.files]


def test_appended_commit_has_an_in_commit_timestamp(tmp_path: Path) -> None:
    metadata = msgspec.structs.replace(METADATA, configuration={"delta.enableInCommitTimestamps": "true"})
    protocol = Protocol(1, 7, None, ["inCommitTimestamp"])
    write_log(tmp_path, Snapshot.from_actions(3, [protocol, metadata], timestamp_ms=5_000))
    later = msgspec.structs.replace(metadata, description="later")
    commit = Commit(4, 6_000, metadata=later, adds=(AddFile("a", size=1),), removes=(RemoveFile("b"),))
    append_commit(str(tmp_path), commit, protocol=protocol, metadata=later)
    opened = DeltaLog.open(tmp_path)
    assert [commit_read.timestamp_ms for commit_read in opened.commits(3, 4)] == [5_000, 6_000]
    assert [len(opened.snapshot(version).files) for version in (3, 4)] == [0, 1]
    assert opened.snapshot().metadata == later
    assert DeltaTable(tmp_path).version() == 4
    with pytest.raises(UsageError, match="already has"):
        append_commit(tmp_path, commit, protocol=protocol, metadata=later)


def test_missing_partition_value_is_written_as_null(tmp_path: Path) -> None:
    name = json.loads(METADATA.schema_string)["fields"][0]["name"]
    metadata = msgspec.structs.replace(METADATA, partition_columns=[name])
    write_log(tmp_path, Snapshot.from_actions(0, [Protocol(1), metadata, AddFile("a", size=1)]))
    commit = Commit(
        1,
        None,
        adds=(AddFile("b", {name: "1"}, size=1), AddFile("e", {name.upper(): "1"}, size=1)),
        removes=(RemoveFile("a", partition_values={}), RemoveFile("c")),
        cdcs=(AddCdcFile("d", size=1),),
    )
    append_commit(tmp_path, commit, protocol=Protocol(1), metadata=metadata)
    lines = [
        json.loads(line)
        for number in (0, 1)
        for line in (tmp_path / f"_delta_log/{number:020}.json").read_text().splitlines()
    ]
    files = [line.get("add") or line.get("remove") or line.get("cdc") for line in lines]
    values = [(file["path"], file.get("partitionValues")) for file in files if file is not None]
    null = {name: None}
    # A partition value is found even if the case of its column name differs.
    written = [("b", {name: "1"}), ("e", {name.upper(): "1"})]
    assert values == [("a", null), ("a", null), ("c", None), *written, ("d", null)]


VECTOR = DeletionVectorDescriptor("p", "https://host/dv?sig=5ecr3t", 4, 1, 9)


def test_deletion_vector_at_a_signed_url_is_refused(tmp_path: Path) -> None:
    snapshot = Snapshot.from_actions(0, [Protocol(1), METADATA, AddFile("a", size=1, deletion_vector=VECTOR)])
    with pytest.raises(UsageError, match="deletion vector") as caught:
        write_log(tmp_path, snapshot)
    assert "5ecr3t" not in str(caught.value)
    assert not list(tmp_path.glob("_delta_log/*"))


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (Protocol(1), {"minReaderVersion": 1, "minWriterVersion": 1}),
        (Protocol(2, 5), {"minReaderVersion": 2, "minWriterVersion": 5}),
        (
            Protocol(3, 0, ["deletionVectors"]),
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"],
            },
        ),
        (
            Protocol(1, 7, None, ["rowTracking", "domainMetadata"]),
            {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]},
        ),
    ],
)
def test_protocol_is_written_with_both_versions(tmp_path: Path, protocol: Protocol, expected: dict[str, Any]) -> None:
    log = write_log(tmp_path, Snapshot.from_actions(0, [protocol, METADATA]))
    lines = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    assert next(line["protocol"] for line in lines if "protocol" in line) == expected
    written = next(line["metaData"] for line in lines if "metaData" in line)
    assert {"format", "partitionColumns", "configuration"} <= set(written)


def test_commit_is_written_with_all_its_actions(tmp_path: Path) -> None:
    write_log(tmp_path, Snapshot.from_actions(0, [Protocol(1), METADATA], timestamp_ms=5))
    metadata = msgspec.structs.replace(METADATA, configuration={"k": "v"}, partition_columns=[])
    commit = Commit(
        1,
        7,
        Protocol(1, 2),
        metadata,
        (AddFile("a", {}, 0, 5, False),),
        (RemoveFile("r", data_change=False),),
        (AddCdcFile("c", {}, 3),),
        (Transaction("app", 4),),
        (DomainMetadata("d", "{}"),),
    )
    append_commit(tmp_path, commit, protocol=Protocol(1, 2), metadata=metadata)
    (commit_read,) = DeltaLog.open(tmp_path).commits(1, 1)
    assert dataclasses.replace(commit_read, commit_info=None) == commit


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (Protocol(3, 7), {"readerFeatures": [], "writerFeatures": []}),
        (Protocol(3, 7, ["a", "b"], ["c", "a"]), {"readerFeatures": ["a", "b"], "writerFeatures": ["c", "a", "b"]}),
    ],
)
def test_reader_features_are_also_listed_as_writer_features(protocol: Protocol, expected: dict[str, Any]) -> None:
    assert action_fields(protocol) == {"minReaderVersion": 3, "minWriterVersion": 7, **expected}


@pytest.mark.parametrize("configuration", [None, {}, {"a": "b"}])
def test_metadata_without_a_configuration_gets_an_empty_one(configuration: dict[str, str] | None) -> None:
    fields = action_fields(msgspec.structs.replace(METADATA, configuration=configuration))
    assert fields["configuration"] == (configuration or {})


def test_maps_are_passed_to_arrow_as_pairs() -> None:
    """PyArrow 14 does not accept dicts for maps."""
    fields = {"path": "a", "partitionValues": {"p": None}, "tags": {"t": "1"}, "configuration": {}, "size": 3}
    pairs = {"path": "a", "partitionValues": [("p", None)], "tags": [("t", "1")], "configuration": [], "size": 3}
    assert writer._arrow_ready(fields) == pairs
    nested = {"format": {"provider": "parquet", "options": {"o": "1"}}, "tags": None}
    assert writer._arrow_ready(nested) == {"format": {"provider": "parquet", "options": [("o", "1")]}, "tags": None}


def test_checkpoint_holds_every_field_of_an_action(tmp_path: Path) -> None:
    vector = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 1, 9)
    file = AddFile("a", {"p": None}, 3, 5, False, "{}", {"t": "1"}, vector, base_row_id=7)
    gone = RemoveFile("b", False, 8, extended_file_metadata=True, partition_values={"p": "1"}, size=2)
    actions = [Protocol(1, 2), METADATA, file, gone, Transaction("app", 4), DomainMetadata("d", "{}")]
    assert write_checkpoint(tmp_path / "x.parquet", actions) == (6, 1)
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    non_null = [{name: value for name, value in row.items() if value is not None} for row in rows]
    assert [list(row) for row in non_null] == [
        ["protocol"], ["metaData"], ["add"], ["remove"], ["txn"], ["domainMetadata"]
    ]  # fmt: skip
    for row, action in zip(non_null, actions, strict=True):
        (struct,) = row.values()
        expected = writer._arrow_ready(action_fields(action))
        assert {name: value for name, value in struct.items() if value is not None} == {
            name: value for name, value in expected.items() if value is not None
        }


def test_last_checkpoint_has_a_valid_checksum(tmp_path: Path) -> None:
    log = write_log(str(tmp_path), Snapshot.from_actions(3, [Protocol(1), METADATA, AddFile("a", size=1)]))
    text = (log / "_last_checkpoint").read_text()
    hint = json.loads(text)
    assert (hint["version"], hint["size"], hint["numOfAddFiles"]) == (3, 3, 1)
    assert hint["sizeInBytes"] == (log / f"{3:020}.checkpoint.parquet").stat().st_size
    assert hint["checksum"] == json_checksum(text)


def test_existing_log_entry_is_never_overwritten(tmp_path: Path) -> None:
    snapshot = Snapshot.from_actions(0, [Protocol(1), METADATA])
    log = write_log(tmp_path, snapshot)
    before = (log / f"{0:020}.json").read_bytes()
    with pytest.raises(UsageError, match=r"00000\.json"):
        write_log(tmp_path, Snapshot.from_actions(0, [Protocol(1), METADATA, AddFile("a", size=1)]))
    assert (log / f"{0:020}.json").read_bytes() == before
    assert [path.name for path in log.iterdir()] == [f"{0:020}.json"]


def test_file_of_unknown_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="size"):
        write_log(tmp_path, Snapshot.from_actions(0, [Protocol(1), METADATA, AddFile("a")]))


def test_domain_metadata_transactions_and_row_id_mark_are_kept(tmp_path: Path) -> None:
    domain = DomainMetadata("delta.clustering", '{"clusteringColumns":[]}')
    actions = [Protocol(1, 7, None, ["domainMetadata"]), METADATA, domain, RowIdHighWaterMark(9), Transaction("app", 4)]
    write_log(tmp_path, Snapshot.from_actions(2, actions))
    back = DeltaLog.open(tmp_path).snapshot()
    assert back.domain_metadata == {"delta.clustering": domain}
    assert back.transactions == {"app": Transaction("app", 4)}
    assert back.row_id_high_water_mark == RowIdHighWaterMark(9)


def test_log_files_have_the_mode_of_the_umask(tmp_path: Path) -> None:
    log = write_log(tmp_path, Snapshot.from_actions(2, [Protocol(1), METADATA]))
    plain = tmp_path / "plain"
    plain.touch()
    assert {path.stat().st_mode for path in log.iterdir()} == {plain.stat().st_mode}


@pytest.mark.parametrize("taken", [False, True])
def test_log_entry_is_published_whole_without_hard_links(
    tmp_path: Path, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: object, target: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "x.json"
    if taken:
        path.write_text("theirs")
        with pytest.raises(UsageError, match=r"already has the file 'x\.json'"), writer._published(path) as temporary:
            temporary.write_text("ours")
    else:
        with writer._published(path) as temporary:
            temporary.write_text("ours")
    assert path.read_text() == ("theirs" if taken else "ours")
    assert list(tmp_path.iterdir()) == [path]


def test_incomplete_log_entry_is_removed(tmp_path: Path) -> None:
    def write() -> None:
        with writer._published(tmp_path / "x.json") as temporary:
            temporary.write_text("half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_alone_restores_the_snapshot(tmp_path: Path) -> None:
    actions = [Protocol(1, 2), METADATA, AddFile("a", {}, 1), AddFile("b", {}, 2), Transaction("app", 4)]
    write_log(tmp_path, Snapshot.from_actions(0, actions))
    commit = Commit(1, 5_000, None, None, adds=(AddFile("c", {}, 3),), removes=(RemoveFile("a", deletion_timestamp=7),))
    append_commit(tmp_path, commit, protocol=Protocol(1, 2), metadata=METADATA)
    before = DeltaLog.open(tmp_path).snapshot(want=Want.STATS | Want.TOMBSTONES)
    writer.add_checkpoint(str(tmp_path), before)
    log = tmp_path / "_delta_log"
    for name in log.glob("*.json"):
        name.unlink()
    after = DeltaLog.open(tmp_path).snapshot(want=Want.STATS | Want.TOMBSTONES)
    assert (after.version, list(after.files)) == (1, list(before.files))
    assert [file.path for file in after.tombstones] == ["a"]
    assert after.transactions == {"app": Transaction("app", 4)}
    assert [name.name for name in sorted(log.iterdir())] == [f"{1:020}.checkpoint.parquet", "_last_checkpoint"]


@pytest.mark.parametrize(
    ("timestamp", "info"),
    [(None, {"operation": "DELTA SHARING"}), (5_000, {"operation": "DELTA SHARING", "timestamp": 5_000})],
)
def test_commit_begins_with_commit_info(tmp_path: Path, timestamp: int | None, info: dict[str, Any]) -> None:
    log = write_log(tmp_path, Snapshot.from_actions(0, [Protocol(1, 2), METADATA]))
    append_commit(tmp_path, Commit(1, timestamp), protocol=Protocol(1, 2), metadata=METADATA)
    path = log / f"{1:020}.json"
    assert json.loads(path.read_text().splitlines()[0]) == {"commitInfo": info}
    if timestamp is not None:
        assert path.stat().st_mtime_ns == timestamp * 1_000_000
