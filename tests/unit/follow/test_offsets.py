"""Offsets have a stable and complete serialized form, and are refused for a different table or kind of read."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import asdict, replace

from delta_sharing_client.errors import UsageError
from delta_sharing_client.follow.admission import Position
from delta_sharing_client.follow.follow_request import CHECKPOINT
from delta_sharing_client.follow.offsets import BEGINNING, Offset, check_order, check_restart, parse_offset
from delta_sharing_client.options import ResponseFormat

OFFSET = Offset(
    table_id="abc",
    version=6,
    place=2,
    in_snapshot=False,
    first_version=0,
    from_snapshot=True,
    change_feed=False,
    response_format=ResponseFormat.DELTA,
    last_file="f2",
    schema_hash="0123",
)


def test_offset_is_serialized_with_a_fixed_key_order() -> None:
    assert json.dumps(OFFSET.to_json()) == (
        '{"sourceVersion": 1, "tableId": "abc", "tableVersion": 6, "index": 2, "isStartingVersion": false, '
        '"firstVersion": 0, "fromSnapshot": true, "changeFeed": false, "responseFormat": "delta", "lastFile": "f2", '
        '"schemaHash": "0123"}'
    )


def test_offset_is_parsed_with_keys_in_any_order() -> None:
    shuffled = dict(reversed(list(OFFSET.to_json().items())))
    assert parse_offset(shuffled, CHECKPOINT) == OFFSET
    assert parse_offset(json.loads(json.dumps(OFFSET.to_json())), CHECKPOINT) == OFFSET


def test_initial_offset_round_trips() -> None:
    assert parse_offset(BEGINNING.to_json(), CHECKPOINT) is BEGINNING
    assert json.dumps(BEGINNING.to_json()) == json.dumps(BEGINNING.to_json())


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"sourceVersion": 2}, "is not equal to supported reader version"),
        ({"sourceVersion": "string"}, "not a number"),
        ({"sourceVersion": None}, "not a number"),
        ({"tableVersion": "6"}, "not written by this package"),
        ({"index": True}, "not written by this package"),
        ({"responseFormat": "avro"}, "not written by this package"),
    ],
)
def test_malformed_offset_is_refused(change: dict[str, object], fragment: str) -> None:
    with pytest.raises(UsageError, match=fragment) as error:
        parse_offset({**OFFSET.to_json(), **change}, CHECKPOINT)
    assert "checkpoint" in str(error.value)


def test_offset_without_source_version_is_refused() -> None:
    content = OFFSET.to_json()
    del content["sourceVersion"]
    with pytest.raises(UsageError, match="is not equal to supported reader version"):
        parse_offset(content, CHECKPOINT)


@pytest.mark.parametrize("value", [None, "text", [1], 5])
def test_offset_must_be_a_json_object(value: object) -> None:
    with pytest.raises(UsageError, match="checkpoint"):
        parse_offset(value, CHECKPOINT)


def test_offset_of_the_jvm_connector_is_refused_by_name() -> None:
    legacy = {"sourceVersion": 1, "tableId": "abc", "tableVersion": 6, "index": -1, "isStartingVersion": False}
    with pytest.raises(UsageError, match="JVM connector"):
        parse_offset(legacy, CHECKPOINT)


def test_offset_of_another_table_is_refused_with_both_ids() -> None:
    with pytest.raises(UsageError, match=r"abc.*xyz.*delete the checkpoint.*restart"):
        check_restart(OFFSET, CHECKPOINT, table_id="xyz", change_feed=False)


def test_snapshot_offset_is_refused_by_a_change_feed() -> None:
    with pytest.raises(UsageError, match="readChangeFeed"):
        check_restart(OFFSET, CHECKPOINT, table_id="abc", change_feed=True)
    check_restart(OFFSET, CHECKPOINT, table_id="abc", change_feed=False)


@pytest.mark.parametrize(
    ("position", "in_snapshot"), [(Position(6, 1), False), (Position(5, 9), False), (Position(7), True)]
)
def test_end_before_start_is_refused(position: Position, in_snapshot: bool) -> None:
    end = OFFSET.at(position, in_snapshot=in_snapshot)
    with pytest.raises(UsageError, match="must not be before the start"):
        check_order(OFFSET, end, CHECKPOINT)


def test_end_at_or_after_start_is_accepted() -> None:
    snapshot = replace(OFFSET, in_snapshot=True)
    check_order(snapshot, OFFSET.at(Position(7)), CHECKPOINT)
    check_order(OFFSET, OFFSET, CHECKPOINT)
    check_order(Offset(**asdict(OFFSET)), OFFSET, CHECKPOINT)
