"""Tables like those of other engines' public tests, made by hand: each is read right or refused by name."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
import mock_server
from tests.regressions.hand_made import Action, HandMadeTable

FORMATS = ("parquet", "delta")
LONGS = pa.schema([("a", pa.int64())])


@pytest.fixture
def table(tmp_path: pathlib.Path) -> HandMadeTable:
    return HandMadeTable(tmp_path / "s" / "d" / "t")


@contextmanager
def shared(table: HandMadeTable) -> Iterator[ds.SharedTable]:
    with (
        mock_server.running(tables=table.root.parent.parent.parent) as server,
        ds.SharingClient(server.profile, ds.ReadOptions(max_attempts=1)) as client,
    ):
        yield client.table("s.d.t")


def rows(table: HandMadeTable, wire: str = "delta", **scan: Any) -> list[dict[str, Any]]:
    with shared(table) as found:
        result: list[dict[str, Any]] = found.scan(response_format=wire, **scan).to_arrow().to_pylist()
        return result


def refusal(table: HandMadeTable, wire: str = "delta", **scan: Any) -> str:
    with shared(table) as found, pytest.raises(ds.DeltaSharingError) as error:
        found.scan(response_format=wire, **scan).to_arrow()
    return str(error.value)


def field(name: str, data_type: object, *, nullable: bool = True, **metadata: object) -> dict[str, object]:
    return {"name": name, "type": data_type, "nullable": nullable, "metadata": metadata}


def schema(*fields: dict[str, object]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def mapped(name: str, data_type: object, physical: str | None, number: int | None) -> dict[str, object]:
    keys = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number}
    return field(name, data_type, **{key: value for key, value in keys.items() if value is not None})


def one_file(table: HandMadeTable, rows: pa.Table, path: str = "x.parquet", **add: object) -> Action:
    """Write ``rows`` to ``path`` in the table and return an ``add`` that names it by that path."""
    local = table.root / path
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, local)
    facts = {"size": local.stat().st_size, "modificationTime": 0, "dataChange": True, "partitionValues": {}}
    return {"add": {"path": path, **facts, **add}}


# === The log ===


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.00000000000000000003.compacted.json",
        "00000000000000000003.checkpoint.parquet",
        "00000000000000000003.checkpoint.0000000001.0000000001.parquet",
        "00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        "00000000000000000003.crc",
        "_last_checkpoint",
    ],
)
@pytest.mark.filterwarnings("ignore:_last_checkpoint")
def test_empty_file_that_a_dead_writer_left_does_not_stand_for_commits(table: HandMadeTable, name: str) -> None:
    table.create(LONGS)
    for number in range(3):
        table.commit(table.file(pa.table({"a": [number]})))
    (table.root / "_delta_log" / name).touch()
    assert rows(table) == [{"a": 0}, {"a": 1}, {"a": 2}]


def test_line_of_two_actions_is_refused_instead_of_dropping_one(table: HandMadeTable) -> None:
    table.create(LONGS)
    first, second = table.file(pa.table({"a": [1]})), table.file(pa.table({"a": [2]}))
    table.commit(first)
    table.commit(second | table.removal(first))
    assert "must be one Delta action, found several" in refusal(table)


@pytest.mark.parametrize("spelling", ["./x.parquet", "x.parquet", "d/../x.parquet", "%78.parquet"])
def test_removed_file_is_gone_under_other_spellings_of_its_path(table: HandMadeTable, spelling: str) -> None:
    table.create(LONGS)
    table.commit(one_file(table, pa.table({"a": [1]})))
    table.commit({"remove": {"path": spelling, "dataChange": True, "deletionTimestamp": 1}})
    assert rows(table) == []


@pytest.mark.parametrize("path", ["/some/unqualified/absolute/path", "/some/unqualified/with%20space/p@%23h"])
@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_absolute_path_is_removed_by_its_file_uri(table: HandMadeTable, scheme: str, path: str) -> None:
    table.create(LONGS)
    facts = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    table.commit({"add": {"path": path, **facts}})
    table.commit({"remove": {"path": scheme + path, "dataChange": True, "deletionTimestamp": 1}})
    assert rows(table) == []


# === Column mapping ===


@pytest.mark.parametrize(
    ("mode", "fields", "message"),
    [
        ("name", [mapped("a", "long", None, 1)], "column 'a' must have a delta.columnMapping.physicalName"),
        ("id", [mapped("a", "long", "x", None)], "column 'a' must have a delta.columnMapping.id"),
        (
            "name",
            [mapped("a", "long", "x", 1), mapped("b", "long", "x", 2)],
            "columns 'a' and 'b' must not have the same delta.columnMapping.physicalName",
        ),
        (
            "id",
            [
                mapped("a", "long", "x", 1),
                mapped("s", {"type": "struct", "fields": [mapped("b", "long", "y", 1)]}, "s", 2),
            ],
            "columns 'a' and 's.b' must not have the same delta.columnMapping.id",
        ),
        (
            "name",
            [mapped("l", {"type": "array", "elementType": {"type": "struct", "fields": [field("b", "long")]}}, "x", 1)],
            "column 'l.element.b' must have a delta.columnMapping.physicalName",
        ),
    ],
)
def test_column_mapping_that_leaves_a_column_open_is_refused(
    table: HandMadeTable, mode: str, fields: list[dict[str, object]], message: str
) -> None:
    table.create(schema(*fields), properties={"delta.columnMapping.mode": mode}, features=["columnMapping"])
    table.commit(table.file(pa.table({"x": [1]})))
    assert message in refusal(table)
