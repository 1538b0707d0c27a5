"""Markdown becomes a tree of elements, in which only safe links are links, within limits."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.browse import markdown
from delta_sharing_client.browse.markdown import tree_of
from tests.hostile import HOSTILE
from tests.quota import meets, met
from tests.time_limits import SOON, Stopwatch

SIZE = 256 * 1024
PLACE = "guide/SKILL.md"


def every_node(parts: Any) -> list[Any]:
    nodes = [part for part in parts if isinstance(part, list)]
    return nodes + [inner for node in nodes for inner in every_node(node[2:])]


def texts(parts: Any) -> str:
    return "".join(part if isinstance(part, str) else texts(part[2:]) for part in parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("# A *b*", [["h1", None, "A ", ["em", None, "b"]]]),
        ("a\nb  \nc", [["p", None, "a", "\n", "b", ["br", None], "c"]]),
        ("- a\n- b", [["ul", None, ["li", None, "a"], ["li", None, "b"]]]),
        ("```sh\n<b>\n```\n\n***", [["pre", None, "<b>\n"], ["hr", None]]),
        ("`<i>` ~~x~~", [["p", None, ["code", None, "<i>"], " ", ["s", None, "x"]]]),
        ("<script>alert(1)</script>\n", [["p", None, "<script>alert(1)</script>"]]),
        ("<!-- for the assistant only -->", [["p", None, "<!-- for the assistant only -->"]]),
        (
            "|a|\n|-|\n|1|",
            [
                [
                    "table",
                    None,
                    ["thead", None, ["tr", None, ["th", None, "a"]]],
                    ["tbody", None, ["tr", None, ["td", None, "1"]]],
                ]
            ],
        ),
    ],
)
def test_document_becomes_a_tree(text: str, expected: Any) -> None:
    assert tree_of(text, PLACE) == expected


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("https://example.org/a?b#c", "https://example.org/a?b#c"),
        ("HTTP://example.org", "HTTP://example.org"),
        ("mailto:a@example.org", "mailto:a@example.org"),
        ("data:image/png;base64,AA", None),
        ("ftp://example.org", None),
        ("blob:null/1", None),
        ("//example.org/a", None),
        ("#part", None),
        ("?a", None),
        ("references/a%20b.md#part", ["file", "guide/references/a b.md"]),
        ("../README.md", ["file", "README.md"]),
        ("./../guide", ["file", "guide"]),
        ("../../etc/passwd", None),
        ("%2e%2e/%2e%2e/etc/passwd", None),
        ("/etc/passwd", None),
        ("..", None),
        ("http://[1:2]/", None),
    ],
)
def test_only_safe_links_have_a_target(link: str, target: Any) -> None:
    assert tree_of(f"[x](<{link}>)", PLACE) == [["p", None, ["a", target, "x"]]]
    assert tree_of(f"![x](<{link}>)", PLACE) == [["p", None, ["a", target, "Picture: x"]]]


@pytest.mark.parametrize("link", ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "vbscript:x", "file:///etc/passwd"])
def test_link_that_runs_something_stays_text(link: str) -> None:
    for text in (f"[x]({link})", f"<{link}>", f"[x][y]\n\n[y]: {link}"):
        assert not [node for node in every_node(tree_of(text, PLACE)) if node[0] == "a"]


WORDS = st.sampled_from(
    [*HOSTILE, "javascript:alert(1)", "https://a/b", "../x", "\n", "`", "*", "> ", "- ", "|", "<", "\\"]
)
LINKS = st.builds("{}[{}]({}{})".format, st.sampled_from(["", "!", "\n\n"]), WORDS, st.sampled_from(["", "<"]), WORDS)


@meets(links=10, code=10)
@given(st.lists(WORDS | LINKS | WORDS.map("`{}`".format) | st.text(max_size=5), max_size=12).map("".join))
def test_any_text_has_only_safe_links(text: str) -> None:
    nodes = every_node(tree_of(text, PLACE))
    for _, target, *inside in nodes:
        if isinstance(target, list):
            assert target[0] == "file"
            assert not target[1].startswith(("/", ".."))
        elif target is not None:
            assert urlsplit(target).scheme in ("http", "https", "mailto")
        assert all(isinstance(one, (str, list)) for one in inside)
    met("links", any(node[1] for node in nodes))
    met("code", any(node[0] == "code" for node in nodes))


@pytest.mark.parametrize(
    "piece", ["[", "![", "[a](b", "*a ", "*_", "`", "> ", "- ", "1. ", "<", "&#", "|", "[a]: ", "\\", "a|\n-|\n", "\t"]
)
def test_hostile_document_is_parsed_soon(piece: str) -> None:
    clock = Stopwatch()
    tree = tree_of((piece * SIZE)[:SIZE], PLACE)
    assert clock.within(2 * SOON)
    assert tree is None or every_node(tree) or not piece.strip()


def test_document_with_too_many_nodes_has_no_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "_MOST_NODES", 4)
    assert tree_of("*a* b", PLACE) is None
    monkeypatch.setattr(markdown, "_MOST_NODES", 7)
    assert texts(tree_of("*a* b", PLACE)) == "a b"
