"""The HTML of our objects in notebooks is valid and informative, and escapes text from servers."""

from __future__ import annotations

import datetime
import html.parser
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client.notebook import BarCell, ListedInNotebook, html_facts, html_rows
from delta_sharing_client.protocol.names import Share, Table
from delta_sharing_client.table import VersionChanges, _VersionList


class Checked(html.parser.HTMLParser):
    """A parser that collects the text and refuses unclosed tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.bars: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self._open.append(tag)
        if tag == "div":
            self.bars.append(dict(attrs)["style"])

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def shown(value: Any) -> Checked:
    return Checked(value._repr_html_())


def test_server_text_is_escaped() -> None:
    hostile = "<script>alert(1)</script>\u202e\x1b[2J"
    result = shown(ListedInNotebook([Table(hostile, "s", "d"), Table("t", "s", "d", display_name=hostile)]))
    assert result.tags == {"p", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert "<script>alert(1)</script>\\u202e\\x1b[2J" in result.words


def test_listing_omits_empty_columns() -> None:
    result = shown(ListedInNotebook([Share("a"), Share("b", comment="of b", properties={"k": "v"})]))
    assert result.words == ["2 listed", "name", "comment", "properties", "a", "b", "of b", "k: v"]
    assert ListedInNotebook([Share("a")]) == [Share("a")]
    assert shown(ListedInNotebook[Share]()).words == ["The list is empty."]


def test_long_listings_are_truncated_with_a_note() -> None:
    result = Checked(html_rows("many", ["n"], [[number] for number in range(1250)]))
    assert result.words[-1] == "1050 more are not shown."


def test_html_omits_unknown_properties() -> None:
    result = Checked(html_facts("t", {"a": None, "b": (), "c": 0, "d": 1234567, "e": ["x", "y"], "f": True}))
    assert result.words == ["t", "c", "0", "d", "1,234,567", "e", "x, y", "f", "True"]


@pytest.mark.parametrize(("share", "width"), [(0.0, 0), (1e-9, 1), (0.5, 60), (1.0, 120), (7.0, 120)])
def test_bar_width_is_proportional_to_the_fraction(share: float, width: int) -> None:
    assert f"width: {width}px" in BarCell(share).to_html()


def test_versions_show_time_and_size_of_changes() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    result = shown(_VersionList([VersionChanges(3, moment, 10, 0, 5)]))
    assert "2026-01-02 03:04:05+00:00" in result.words
    assert [bar.partition("width: ")[2] for bar in result.bars] == ["120px", "0px", "60px"]


def test_notebook_objects_have_html_representations(serve_demo: Any) -> None:
    client = ds.SharingClient(serve_demo.profile)
    table = client["demo"]["shop"]["orders"]
    scan = table.scan(columns=["order_id"], filter="amount > 100")
    assert "client.list_all_tables()" in shown(client).words
    assert shown(client["demo"]).words[-3:] == ["shop", "weather", "lake"]
    assert {"demo.shop.orders", "order_id", "int64"} <= set(shown(table).words)
    assert {"Share demo", "Schema shop"} == {
        shown(client.list_schemas("demo")[0]).words[0],
        shown(client.list_shares()[0]).words[0],
    }
    assert "Table orders" in shown(client.list_tables("demo.shop")[0]).words
    (refused,) = [word for word in shown(client.table("demo.shop.order")).words if "Did you mean" in word]
    assert "demo.shop.orders" in refused
    assert "order_id" in shown(table.metadata()).words
    assert "amount > 100" in shown(scan).words
    assert "files to read" in shown(scan.plan()).words
    assert len(scan.to_arrow())
    assert "requests" in shown(scan).words
    assert "Cost of the read" in shown(scan.report).words
    token = serve_demo.profile["bearerToken"]
    texts = [value._repr_html_() for value in (client, table, scan, scan.plan(), scan.report)]
    assert not any(token in text or "X-Amz" in text or "?" in text for text in texts)
