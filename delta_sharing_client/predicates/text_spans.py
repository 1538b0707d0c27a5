"""Finds the position of a mistake in a filter's text."""

from __future__ import annotations

import re
from collections.abc import Callable

Span = tuple[int, int]
"""The position of the first character, and the position after the last one."""

# Literals and comments, which are not names; text in backticks is a name.
_NO_NAME = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_QUOTED = re.compile(r"'([^']{1,300})'")


class Rewritten:
    """A text in which the matches of a pattern were replaced, with the original positions of its characters."""

    def __init__(self, text: str, pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str]) -> None:
        parts: list[str] = []
        self._starts: list[int] = []
        self._stops: list[int] = []
        at = 0
        for match in pattern.finditer(text):
            new = replacement(match)
            parts += [text[at : match.start()], new]
            self._keep(at, match.start())
            self._starts += [match.start()] * len(new)
            self._stops += [match.end()] * len(new)
            at = match.end()
        self._keep(at, len(text))
        self.text = "".join([*parts, text[at:]])

    def _keep(self, start: int, stop: int) -> None:
        self._starts += range(start, stop)
        self._stops += range(start + 1, stop + 1)

    def span(self, start: int, stop: int) -> Span | None:
        """Return the original position of ``text[start:stop]``; ``None`` if it is empty or beyond the text."""
        stop = min(stop, len(self._stops))
        return (self._starts[start], self._stops[stop - 1]) if 0 <= start < stop else None


def span_of_name(text: str, message: str) -> Span | None:
    """Return the position in the filter ``text``, outside of literals, of the first name that ``message`` quotes and
    ``text`` contains; ``None`` if there is none."""
    names = Rewritten(text, _NO_NAME, lambda match: "\0" * len(match[0]))
    for quoted in _QUOTED.findall(message):
        # In the filter, the name may be in backticks, and a backtick in it is doubled.
        for name in (f"`{quoted.replace('`', '``')}`", quoted):
            name_match = re.search(rf"(?<![\w`]){re.escape(name)}(?![\w`])", names.text, re.IGNORECASE)
            if name_match is not None:
                return names.span(*name_match.span())
    return None
