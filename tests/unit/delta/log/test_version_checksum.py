from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client.delta.log.table import DeltaLog
from delta_sharing_client.delta.log.version_checksum import VersionChecksumWarning
from tests.unit.delta.log_builder import PROTOCOL, LogBuilder, add, metadata, vector


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    return LogBuilder(tmp_path / "table")


def checksum(**fields: Any) -> dict[str, Any]:
    base = {"tableSizeBytes": 20, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}
    deleted = {"numDeletedRecordsOpt": 2, "numDeletionVectorsOpt": 1}
    return {**base, **deleted, "metadata": metadata()["metaData"], "protocol": PROTOCOL["protocol"], **fields}


def table_with(builder: LogBuilder, *lines: dict[str, Any]) -> DeltaLog:
    builder.start(add("a"), add("b", deletionVector=vector("x")))
    builder.write(f"{0:020}.crc", *lines)
    return DeltaLog.open(builder.root)


def told(log: DeltaLog, version: int | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(log.snapshot(version).files) == 2
    assert all(item.category is VersionChecksumWarning for item in caught)
    return [str(item.message) for item in caught]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"txnId": "x", "fileSizeHistogram": {"fileCounts": [2]}, "allFiles": [], "setTransactions": []},
        {"numDeletedRecordsOpt": None, "numDeletionVectorsOpt": None},
        # The order of keys inside a schema, and what only a newer writer knows.
        {"metadata": {**metadata()["metaData"], "createdTime": 5, "new": True}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": [], "writerFeatures": []}},
    ],
)
def test_a_checksum_that_fits_says_nothing(builder: LogBuilder, fields: dict[str, Any]) -> None:
    assert told(table_with(builder, checksum(**fields))) == []


def test_fields_that_a_writer_left_out_are_not_compared(builder: LogBuilder) -> None:
    assert told(table_with(builder, {"numFiles": 2})) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"numFiles": 3}, "'numFiles' must be 3, found 2."),
        ({"tableSizeBytes": 19}, "'tableSizeBytes' must be 19, found 20."),
        ({"numMetadata": 2}, "'numMetadata' must be 2, found 1."),
        ({"numProtocol": 0}, "'numProtocol' must be 0, found 1."),
        ({"numDeletedRecordsOpt": 0}, "'numDeletedRecordsOpt' must be 0, found 2."),
        ({"numDeletionVectorsOpt": 0}, "'numDeletionVectorsOpt' must be 0, found 1."),
        ({"metadata": metadata(id="u")["metaData"]}, "'metadata.id' must be 'u', found 't'."),
        (
            {"metadata": metadata(partitionColumns=["a"])["metaData"]},
            "'metadata.partitionColumns' must be ['a'], found []",
        ),
        ({"metadata": metadata(configuration={"k": "v"})["metaData"]}, "must be {'k': 'v'}, found {}"),
        (
            {"metadata": metadata(json.dumps({"type": "struct", "fields": []}))["metaData"]},
            "'metadata.schemaString' must",
        ),
        (
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": ["x"],
                    "writerFeatures": ["x"],
                }
            },
            "'protocol' must be reader 3, writer 7, features ['x'], found reader 1, writer 2, features []",
        ),
        ({"numFiles": 3, "tableSizeBytes": 19}, "'tableSizeBytes' must be 19, found 20; 'numFiles' must be 3, found 2"),
    ],
)
def test_a_table_that_is_another_is_told_with_both_values(
    builder: LogBuilder, fields: dict[str, Any], message: str
) -> None:
    (found,) = told(table_with(builder, checksum(**fields)))

    assert found.startswith("The table 'table' is not what its version checksum '00000000000000000000.crc' says: ")
    assert message in found
    assert "the log of version 0" in found
    assert len(found) < 1200


@pytest.mark.parametrize("text", ["{", "[]", '{"numFiles": "2"}', '{"numFiles": -1}', "\xff", '{"a":' * 100_000])
def test_a_damaged_checksum_is_ignored_and_said_so(builder: LogBuilder, text: str) -> None:
    log = table_with(builder)
    (builder.directory / f"{0:020}.crc").write_bytes(text.encode("latin-1"))

    (found,) = told(log)

    assert "The version checksum '00000000000000000000.crc' of the table 'table' is ignored: " in found


def test_only_the_checksum_of_the_version_that_is_read_counts(builder: LogBuilder) -> None:
    log = table_with(builder, checksum(numFiles=3))
    builder.commit(1)
    builder.write(f".{1:020}.crc.crc", checksum(numFiles=5))
    builder.write(f".{1:020}.json.crc", checksum(numFiles=5))

    assert told(log, 1) == []
    assert len(told(log, 0)) == 1


def test_the_warning_can_be_made_an_error(builder: LogBuilder) -> None:
    log = table_with(builder, checksum(numFiles=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(VersionChecksumWarning, match="'numFiles' must be 3, found 2"):
            log.snapshot()
