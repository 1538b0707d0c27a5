"""The log of every golden table has the expected versions, live files, schemas and timestamps; no row is read."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client.delta.data_types import ColumnPath
from delta_sharing_client.delta.features import parquet_format_refusals
from delta_sharing_client.delta.log.delta_table import DeltaLog, VersionChecksumWarning
from delta_sharing_client.delta.log.writer import write_log
from delta_sharing_client.delta.paths import canonical_path
from delta_sharing_client.delta.schema import parse_schema, to_arrow_schema
from delta_sharing_client.errors import DeltaSharingError, UsageError
from tests.golden.corpus import GoldenTable, folder
from tests.unit.delta.log_builder import earliest_version

pytestmark = [
    pytest.mark.golden,
    pytest.mark.skipif(folder() is None, reason="DELTA_GOLDEN_TABLES names no folder of conformance tables"),
]

# Tables that are refused because of their log alone; others are refused when their data or deletion vectors are read.
LOG_REFUSALS = {
    "missing-schema",
    "unsupported-feature",
    "unsupported-protocol",
    "missing-metadata",
    "missing-protocol",
    "not-a-table",
    "log-gap",
}
# A file is added under one spelling of its path and removed under another. Delta Spark reads an empty table, and so do
# we.
EMPTY = {"canonicalized-paths-normal-a"}
EXPECTED_WARNINGS = {
    "crc-full",
    "corrupted-last-checkpoint-kernel",
    "dat-with_checkpoint.no-checkpoint-file",
    "v2-classic-checkpoint-json",
}


def _tables() -> list[GoldenTable]:
    root = folder()
    if root is None:
        return []
    return [
        GoldenTable(path.parent.name, path.parent, json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(root.glob("*/expected.json"))
    ]


TABLES = _tables()
READ = [table for table in TABLES if table.outcome != "refuse"]
# The log is valid; reads are refused, because no column of the table is supported (tests/golden/test_golden.py).
WITHOUT_A_COLUMN = {"table-with-geo"}
REFUSED = [
    table
    for table in TABLES
    if table.expected.get("refuse_kind") in LOG_REFUSALS and table.name not in WITHOUT_A_COLUMN
]


def _name(table: GoldenTable) -> str:
    return table.name


def _files(facts: Mapping[str, object], table: GoldenTable, version: int) -> int | None:
    count = facts.get("num_files")
    if table.name in EMPTY and version == table.latest_version:
        return 0
    return int(count) if count is not None else None  # type: ignore[call-overload]


@pytest.mark.parametrize("table", READ, ids=_name)
def test_every_golden_version_has_its_live_files_and_schema(table: GoldenTable, tmp_path: Path) -> None:
    log = DeltaLog.open(table.stage(tmp_path / "table"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        latest = log.snapshot()
    assert bool(caught) == (table.name in EXPECTED_WARNINGS), [str(item.message) for item in caught]
    assert latest.version == table.latest_version
    fields: Any = {"type": "struct", "fields": table.expected["schema"]}
    assert parse_schema(latest.metadata.schema_string) == parse_schema(json.dumps(fields))
    assert to_arrow_schema(latest.schema).names == latest.schema.names
    assert latest.metadata.partition_columns == table.expected["partition_columns"]
    expected = _files(table.expected, table, latest.version)
    assert expected is None or len(latest.files) == expected
    for version, facts in table.versions.items():
        if "refuse" in facts and version < (earliest := earliest_version(log)):
            with pytest.raises(DeltaSharingError, match=f"nearest version that can be rebuilt is {earliest}"):
                log.snapshot(version)
            continue
        snapshot = log.snapshot(version)
        expected = _files(facts, table, version)
        assert expected is None or len(snapshot.files) == expected, version
        columns: Sequence[str] | None = facts.get("columns")  # type: ignore[assignment]
        assert columns is None or snapshot.schema.names == list(columns), version


def test_checksum_mismatch_error_shows_both_values(tmp_path: Path) -> None:
    (table,) = (table for table in TABLES if table.name == "crc-full")
    with pytest.warns(VersionChecksumWarning) as caught:
        snapshot = DeltaLog.open(table.stage(tmp_path / "table")).snapshot(0)
    assert snapshot.files == []
    (message,) = [str(item.message) for item in caught]
    assert "The table 'table' does not match its version checksum '00000000000000000000.crc'" in message
    assert "'numFiles' must be 10, found 0." in message
    assert "'tableSizeBytes' must be 5259, found 0; " in message


@pytest.mark.parametrize("table", [t for t in READ if "active_files" in t.expected], ids=_name)
def test_live_files_of_the_log_are_the_expected_ones(table: GoldenTable, tmp_path: Path) -> None:
    log = DeltaLog.open(table.stage(tmp_path / "table"))
    listed: Sequence[Mapping[str, object]] = table.expected["active_files"]  # type: ignore[assignment]
    expected = [] if table.name in EMPTY else sorted((str(item["path"]), item["size"]) for item in listed)
    result = sorted((canonical_path(file.path), file.size) for file in log.snapshot(log.latest_version()).files)
    assert result == expected


@pytest.mark.parametrize("table", REFUSED, ids=_name)
def test_table_with_an_unsupported_log_is_refused(table: GoldenTable, tmp_path: Path) -> None:
    with pytest.raises(DeltaSharingError) as caught:
        _ = DeltaLog.open(table.stage(tmp_path / "table")).snapshot().schema
    assert len(str(caught.value)) > 20
    if table.expected["refuse_kind"] == "unsupported-feature":
        named = [*table.expected["protocol"]["readerFeatures"]]  # type: ignore[index]
        assert any(name in str(caught.value) for name in named)


@pytest.mark.parametrize("table", [t for t in TABLES if "timestamp_queries" in t.expected], ids=_name)
def test_golden_log_finds_the_version_of_a_timestamp(table: GoldenTable, tmp_path: Path) -> None:
    log = DeltaLog.open(table.stage(tmp_path / "table"))
    queries: Sequence[Mapping[str, Any]] = table.expected["timestamp_queries"]  # type: ignore[assignment]
    for query in queries:
        if "refuse" in query:
            with pytest.raises(UsageError, match="earliest version"):
                log.version_at(query["timestamp_ms"])
        else:
            expected = query.get("version", query.get("refuse_or_version"))
            assert log.version_at(query["timestamp_ms"]) == expected


@pytest.mark.parametrize("table", READ, ids=_name)
def test_log_written_again_has_the_same_content(table: GoldenTable, tmp_path: Path) -> None:
    log = DeltaLog.open(table.stage(tmp_path / "table"))
    snapshot = log.snapshot(log.latest_version())
    write_log(tmp_path / "copy", snapshot)
    back = DeltaLog.open(tmp_path / "copy").snapshot()
    assert sorted(map(repr, back.files)) == sorted(map(repr, snapshot.files))
    assert (back.version, back.schema, dict(back.transactions)) == (
        snapshot.version,
        snapshot.schema,
        dict(snapshot.transactions),
    )
    assert parquet_format_refusals(back.protocol, back.metadata) == parquet_format_refusals(
        snapshot.protocol, snapshot.metadata
    )


def test_struct_statistics_equal_the_statistics_of_commits(tmp_path: Path) -> None:
    names = {"v1-single-part-struct-stats-only", "v2-parquet-sidecars-struct-stats-only"}
    tables = [table for table in TABLES if table.name in names]
    assert len(tables) == len(names)
    for table in tables:
        log = DeltaLog.open(table.stage(tmp_path / table.name))
        committed: dict[ColumnPath, Any] = {}
        for commit in log.commits(0, log.latest_version()):
            committed.update({(add.path,): json.loads(add.stats or "null") for add in commit.adds})
        for file in log.snapshot(log.latest_version()).files:
            assert json.loads(file.stats or "null") == committed[(file.path,)]
