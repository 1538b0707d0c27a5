"""The values of a request of the page have the right types, or the error names the input that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client import testing
from delta_sharing_client.browse.asked import Asked, Mistake, mistakes_of
from delta_sharing_client.errors import UsageError
from delta_sharing_client.protocol.names import AssetName

NAME = ["s", "d", "t"]


@pytest.mark.parametrize(
    ("method", "value", "expected"),
    [
        ("text", "a", "a"),
        ("text", "", ""),
        ("text", None, ""),
        ("number", 0, 0),
        ("number", 7, 7),
        ("number", None, None),
        ("flag", True, True),
        ("flag", False, False),
        ("flag", 1, False),
        ("flag", "true", False),
        ("flag", None, False),
        ("texts", ["a", ""], ["a", ""]),
        ("texts", [], []),
        ("texts", None, []),
    ],
)
def test_values_of_the_right_type(method: str, value: object, expected: object) -> None:
    found = getattr(Asked({"x": value}), method)("x")
    assert (found, type(found)) == (expected, type(expected))
    if value is None:
        assert getattr(Asked({}), method)("x") == expected


@pytest.mark.parametrize(
    ("method", "value", "problem"),
    [
        ("text", 7, "Expected 'x' to be a string, found int."),
        ("text", ["a"], "Expected 'x' to be a string, found list."),
        ("number", -1, "Expected 'x' to be an integer of 0 or more, found -1."),
        ("number", True, "Expected 'x' to be an integer of 0 or more, found True."),
        ("number", "7", "Expected 'x' to be an integer of 0 or more, found '7'."),
        ("number", 1.0, "Expected 'x' to be an integer of 0 or more, found 1.0."),
        ("texts", "a", "Expected 'x' to be a list of strings, found str."),
        ("texts", ["a", 7], "Expected 'x' to be a list of strings, found list."),
    ],
)
def test_values_of_a_wrong_type_are_refused(method: str, value: object, problem: str) -> None:
    with pytest.raises(UsageError) as found:
        getattr(Asked({"x": value}), method)("x")
    assert str(found.value) == problem


def test_full_name_has_three_parts() -> None:
    assert Asked({"name": NAME}).full_name == AssetName("s", "d", "t")
    for parts in ([], NAME[:2], [*NAME, "x"]):
        with pytest.raises(UsageError, match=f"share, schema and name, found {len(parts)} strings"):
            _ = Asked({"name": parts}).full_name


@pytest.mark.parametrize(
    ("text", "version"), [("", None), ("  ", None), (" 7 ", 7), ("007", 7), ("main", "main"), ("-1", "-1")]
)
def test_version_is_a_number_or_a_reference(text: str, version: object) -> None:
    assert Asked({"version": text}).version == version
    assert Asked({"timestamp": text}).timestamp == (text.strip() or None)


# === Reads ===


@pytest.fixture(scope="module")
def client() -> Iterator[ds.SharingClient]:
    rows = pa.table({"a.b": [1, 2, 3], "c": ["x", "y", "z"], "d": [1.0, 2.0, 3.0]})
    with testing.running({"s.d.t": rows}) as server, ds.SharingClient(server.profile) as client_:
        yield client_


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        ({}, {}, {"a.b": [1, 2, 3], "c": ["x", "y", "z"], "d": [1.0, 2.0, 3.0]}),
        ({"columns": ["a.b"]}, {}, {"a.b": [1, 2, 3]}),
        ({"columns": []}, {"most": 2}, {"a.b": [1, 2, 3], "c": ["x", "y", "z"]}),
        ({"columns": ["d"]}, {"most": 2}, {"d": [1.0, 2.0, 3.0]}),
        ({"columns": ["c"]}, {"limit": 2}, {"c": ["x", "y"]}),
        ({"columns": ["c"], "filter": " d > 1 "}, {}, {"c": ["y", "z"]}),
        ({"columns": ["c"], "version": "0"}, {}, {"c": ["x", "y", "z"]}),
    ],
)
def test_read_has_the_chosen_rows(client: Any, values: dict[str, Any], settings: Any, expected: Any) -> None:
    read = Asked({"name": NAME, **values}).read(client, **settings)
    assert read.to_arrow().to_pydict() == expected


def test_at_most_as_many_columns_are_read_as_are_shown(client: Any) -> None:
    asked = Asked({"name": NAME})
    assert [len(asked.read(client, most=most).to_arrow().schema) for most in (0, 1, 3, 4)] == [3, 1, 3, 3]


def test_changes_of_one_version_have_all_columns(client: Any) -> None:
    rows = Asked({"name": NAME, "changes": 0}).read(client, most=1).to_arrow()
    assert rows.schema.names[:3] == ["a.b", "c", "d"]
    assert rows["_change_type"].to_pylist() == ["insert"] * 3
    rows = Asked({"name": NAME, "changes": 0, "columns": ["c"], "filter": "d > 1"}).read(client, limit=1).to_arrow()
    assert rows["c"].to_pylist() == ["y"]


@pytest.mark.parametrize(
    ("values", "message", "field", "place"),
    [
        ({"filter": "  a >"}, None, "filter", (4, 5)),
        ({"filter": "  zz > 1"}, None, "filter", (2, 4)),
        ({"filter": "a > 1"}, "The filter is too long.", "filter", None),
        ({"filter": "a > 1"}, "Leave 'filter' out.", "filter", None),
        ({"timestamp": "x", "version": "1"}, "The timestamp of the version is wrong.", "timestamp", None),
        ({"version": "1"}, "The timestamp of the version is wrong.", "version", None),
        ({"timestamp": "x"}, "There is no such version.", None, None),
        ({"version": "1"}, "There is no such column.", None, None),
        ({}, "Leave 'filter' out, or the version, or the timestamp.", None, None),
    ],
)
def test_mistakes_name_the_input(
    client: Any, values: dict[str, str], message: str | None, field: str | None, place: tuple[int, int] | None
) -> None:
    asked = Asked({"name": NAME, **values})

    def fail() -> None:
        if message is not None:
            raise UsageError(message)
        asked.table(client).scan(filter=asked.text("filter").strip()).to_arrow()

    with pytest.raises((Mistake, UsageError)) as found, mistakes_of(asked):
        fail()
    mistake = found.value
    if field is None:
        assert isinstance(mistake, UsageError)
        return
    assert isinstance(mistake, Mistake)
    assert (mistake.field, mistake.span) == (field, place)
    assert str(mistake) == str(mistake.error)
