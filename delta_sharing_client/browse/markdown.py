"""Markdown of a provider as a tree of elements, of which the page makes nodes: no HTML is written or parsed."""

from __future__ import annotations

import posixpath
from typing import Any
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

_MOST_NODES = 20_000
_SCHEMES = frozenset(("http", "https", "mailto"))
# HTML in the text stays text. Without a limit, hostile nesting would exceed Python's stack.
_PARSER = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])
_LEAVES = {"hr": "hr", "hardbreak": "br", "code_inline": "code", "fence": "pre", "code_block": "pre"}

Node = list[Any]
"""A tag, a link (a URL, ``["file", path]`` or ``None``), and the content: texts and nodes."""


def tree_of(text: str, path: str) -> list[str | Node] | None:
    """Return the content of a Markdown document (CommonMark, with tables and strikethrough); ``None`` if it has more
    than 20,000 nodes.

    ``path`` is the path of the document, to which the links to files are relative. Only links to files, and to URLs
    with ``http:``, ``https:`` or ``mailto:``, are links; pictures are links, too.
    """
    root: Node = ["div", None]
    stack = [root]
    nodes = 0
    for block in _PARSER.parse(text):
        for token in (block.children or ()) if block.type == "inline" else (block,):
            nodes += 1
            if nodes > _MOST_NODES:
                return None
            # The paragraphs of a tight list are hidden.
            if token.hidden:
                continue
            if token.nesting < 0:
                stack.pop()
                continue
            node = _node(token, path)
            stack[-1].append(node)
            if token.nesting > 0:
                stack.append(node)  # type: ignore[arg-type]
    return root[2:]


def _node(token: Token, path: str) -> str | Node:
    if token.nesting > 0:
        return [token.tag, _target(str(token.attrs.get("href", "")), path) if token.tag == "a" else None]
    if token.type == "image":
        return ["a", _target(str(token.attrs.get("src", "")), path), f"Picture: {token.content or 'without a text'}"]
    if token.type in _LEAVES:
        return [_LEAVES[token.type], None, *([token.content] if token.content else [])]
    return "\n" if token.type == "softbreak" else token.content


def _target(link: str, path: str) -> str | list[str] | None:
    """Return the target of a link: a URL, a file beside the document at ``path``, or ``None`` if it is neither."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return None
    if parts.scheme or parts.netloc:
        return link if parts.scheme in _SCHEMES else None
    file = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(parts.path))) if parts.path else "."
    return None if file in (".", "..") or file.startswith(("/", "../")) else ["file", file]
