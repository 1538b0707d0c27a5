"""Check the parts of the documentation that are generated from the code."""

from __future__ import annotations

import itertools
import os
from pathlib import Path


def check_generated(page: Path, name: str, expected: str) -> None:
    """Check that the marked part of ``page`` equals the generated text; with UPDATE_DOCS=1, write the text instead."""
    begin, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->\n"
    text = page.read_text()
    start = text.index(begin) + len(begin)
    if os.environ.get("UPDATE_DOCS"):
        text = text[:start] + expected + text[text.index(end) :]
        page.write_text(text)

    written, made = (part.splitlines(keepends=True) for part in (text[start : text.index(end)], expected))
    other = [lines for lines in itertools.zip_longest(written, made) if lines[0] != lines[1]]
    assert not other, f"{page.name} differs from the code: {other}"
