"""Limits of an assistant's calls."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.mcp.limits import (
    NOTE,
    Limits,
    fitting,
    marked,
    page,
    rows_result,
    shortened,
)


def test_limits_are_whole_numbers_from_one() -> None:
    assert (Limits().rows, Limits().megabytes, Limits().seconds, Limits().characters) == (200, 100, 60, 60_000)
    for name in ("rows", "megabytes", "seconds", "characters"):
        assert getattr(Limits(**{name: 1}), name) == 1
        with pytest.raises(UsageError, match=f"'{name}' must be a whole number of 1 or more, found 0"):
            Limits(**{name: 0})


def test_result_is_refused_only_beyond_its_characters() -> None:
    result = {"a": "<" * 3}
    text = '{"a":"\\u003c\\u003c\\u003c"}'
    assert marked(result, len(text)) == f"{NOTE}\n<provider-data>\n{text}\n</provider-data>"
    assert json.loads(text) == result
    with pytest.raises(UsageError, match=f"has {len(text)} characters, more than {len(text) - 1}"):
        marked(result, len(text) - 1)


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "", "x" * 1000, ["x" * 990], {"a": "b"}, 10**1200])
def test_value_that_is_not_long_is_unchanged(value: object) -> None:
    assert shortened(value) == value


@pytest.mark.parametrize(
    ("value", "text", "size"),
    [("x" * 1001, "x", "1,001"), (["y" * 1000], '["yyy', "1,004"), ({"k": "z" * 1000}, '{"k":"z', "1,008")],
)
def test_long_value_is_cut_and_says_so(value: object, text: str, size: str) -> None:
    cut = shortened(value)
    assert isinstance(cut, str)
    assert cut.startswith(text)
    assert cut.endswith(f" [cut: {size} characters]")
    assert len(cut) == 1000 + len(f" [cut: {size} characters]")


def test_rows_are_cut_at_the_limit_and_only_then_said_to_be() -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "y" * 1001]})
    everything = rows_result(table.to_batches(max_chunksize=2), table.schema, 3)
    assert everything == {
        "columns": ["a: int64", "b: string"],
        "rows": [[1, "x"], [2, None], [3, shortened("y" * 1001)]],
    }
    assert rows_result(table.to_batches(max_chunksize=2), table.schema, 2) == {
        "columns": ["a: int64", "b: string"],
        "rows": [[1, "x"], [2, None]],
        "cut": "These are the first 2 rows; there are more.",
    }


ITEMS = [{"n": number} for number in range(10)]


@pytest.mark.parametrize("is_counted", [True, False])
@pytest.mark.parametrize(("most", "characters"), [(3, 1000), (10, 1000), (11, 1000), (1000, 24), (1000, 1), (4, 30)])
def test_pages_of_a_list_have_each_item_once(is_counted: bool, most: int, characters: int) -> None:
    seen: list[Any] = []
    offset, pages = 0, 0
    while True:
        shown: Any = page("items", ITEMS if is_counted else iter(ITEMS), offset, most, characters)
        assert 0 < len(shown["items"]) <= most
        assert len(shown["items"]) == 1 or sum(len('{"n":0},') for _ in shown["items"]) <= characters
        seen += shown["items"]
        pages += 1
        if "cut" not in shown:
            break
        offset = len(seen)
        counted = "There are more"
        if is_counted:
            counted = f"These are {len(seen) - len(shown['items']) + 1} to {len(seen)} of 10"
        assert shown["cut"] == f"{counted}; continue with offset {len(seen)}."
    assert seen == ITEMS
    assert pages == -(-10 // max(1, min(most, characters // 8)))


def test_offset_beyond_a_list_is_its_end() -> None:
    assert page("items", ITEMS, 10, 3, 1000) == {"items": []}
    assert page("items", ITEMS, 99, 3, 1000) == {"items": []}
    with pytest.raises(UsageError, match="'offset' must be 0 or more, found -1"):
        page("items", ITEMS, -1, 3, 1000)


@pytest.mark.parametrize("text", ["", "x", "<" * 100, "a" * 100, "é<\n" * 40, "x" * 50 + "<" * 50, "<" * 50 + "x" * 50])
@pytest.mark.parametrize("most", [1, 10, 100, 1000])
def test_text_is_cut_to_the_length_of_its_json(text: str, most: int) -> None:
    shown = fitting(text, most)
    length = len(json.dumps(shown, ensure_ascii=False).replace("<", "\\u003c"))
    assert text.startswith(shown)
    assert shown == text or length <= most or len(shown) == 1
    assert len(shown) >= min(1, len(text))
    # Little is left out.
    assert shown == text or length >= most / 8 or most < 100
