"""The cursor file is read back as written, and an invalid file is refused with its name."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.follow.admission import BASE
from delta_sharing_client.follow.offsets import BEGINNING, Offset
from delta_sharing_client.follow.steps import CursorFile, State
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol.names import AssetName

TABLE = AssetName("share", "schema", "table")
END = Offset(
    table_id="abc",
    version=7,
    place=BASE,
    in_snapshot=False,
    first_version=3,
    from_snapshot=True,
    change_feed=True,
    response_format=ResponseFormat.DELTA,
    last_file=None,
    schema_hash="h",
)


@pytest.fixture
def cursor(tmp_path: pathlib.Path) -> CursorFile:
    return CursorFile(tmp_path / "orders.cursor", TABLE, "https://example.com/sharing")


@pytest.mark.parametrize("state", [State("a", 0, BEGINNING, END, 3), State("a", 4, END, None)])
def test_written_cursor_is_read_back(cursor: CursorFile, state: State) -> None:
    with cursor.held():
        cursor.write(state)
    assert cursor.read() == state
    assert sorted(os.listdir(cursor.path.parent)) == [".orders.cursor.lock", "orders.cursor"]


def test_new_cursor_has_a_new_id(cursor: CursorFile) -> None:
    one, other = cursor.read(), cursor.read()
    assert (one.number, one.committed, one.begun) == (0, BEGINNING, None)
    assert one.id != other.id
    assert not cursor.path.exists()


def test_cursor_matches_equivalent_names_and_endpoints(cursor: CursorFile) -> None:
    cursor.write(State("a", 4, END, None))
    same = CursorFile(cursor.path, AssetName("Share", "SCHEMA", "table"), "https://example.com/sharing/")
    assert same.read().number == 4
    other = CursorFile(cursor.path, TABLE, "https://example.org/sharing")
    with pytest.raises(UsageError, match=r"'share\.schema\.table' of 'https://example\.com/sharing', not to"):
        other.read()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (b"id,name\n1,2\n", "it is not JSON"),
        (b"\xff\xfe\x00", "it is not JSON"),
        (b"[1]", "it has no field 'cursor'"),
        (b'{"endpoint": "https://example.com"}', "it has no field 'cursor'"),
        ({"cursor": 2}, "its field 'cursor' is 2, not 1: upgrade this package"),
        ({"number": "4"}, "its field 'number' is missing or has the wrong type"),
        ({"committed": None}, "its field 'committed' is missing or has the wrong type"),
        ({"begun": BEGINNING.to_json()}, "its field 'begun' is not the end of a step"),
        ({"committed": {**END.to_json(), "tableVersion": "7"}}, "was not written by this package"),
        ({"committed": {**END.to_json(), "tableVersion": -1}}, "was not written by this package"),
        ({"committed": {**END.to_json(), "index": -2}}, "was not written by this package"),
        ({"committed": {**END.to_json(), "changeFeed": "\ud800"}}, "was not written by this package"),
        ({"committed": {**END.to_json(), "sourceVersion": 9}}, "'sourceVersion' 9"),
    ],
)
def test_invalid_cursor_is_refused_by_name(cursor: CursorFile, content: Any, message: str) -> None:
    cursor.write(State("a", 4, END, None))
    whole = json.loads(cursor.path.read_text())
    cursor.path.write_bytes(content if isinstance(content, bytes) else json.dumps({**whole, **content}).encode())
    with pytest.raises(UsageError, match=message) as caught:
        cursor.read()
    assert f"delete '{cursor.path}'" in str(caught.value)


@pytest.mark.parametrize("field", ["id", "number", "files", "committed", "begun"])
def test_missing_field_is_named(cursor: CursorFile, field: str) -> None:
    cursor.write(State("a", 4, END, None))
    whole = json.loads(cursor.path.read_text())
    del whole[field]
    cursor.path.write_text(json.dumps(whole))
    with pytest.raises(UsageError, match=f"'{field}'"):
        cursor.read()


def test_error_names_an_unreadable_or_unwritable_path(tmp_path: pathlib.Path) -> None:
    nowhere = CursorFile(tmp_path / "none" / "c", TABLE, "https://example.com")
    with pytest.raises(UsageError, match=r"Cannot write the cursor '.*none/c': No such file"), nowhere.held():
        pass
    folder = CursorFile(tmp_path, TABLE, "https://example.com")
    with pytest.raises(UsageError, match=r"Cannot read the cursor '.*': Is a directory"):
        folder.read()


def test_failed_write_leaves_the_cursor_unchanged(cursor: CursorFile, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor.write(State("a", 4, END, None))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("delta_sharing_client.durable.os.fsync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        cursor.write(State("a", 5, END, None))
    assert cursor.read().number == 4
