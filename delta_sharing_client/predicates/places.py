"""Where in a filter's text a mistake is."""

from __future__ import annotations

import re
from collections.abc import Callable

Place = tuple[int, int]
"""The position of the first character, and the one after that of the last."""

# Literals and comments, which are no names; what is in backticks is one.
_NO_NAME = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_QUOTED = re.compile(r"'([^']{1,300})'")


class Rewritten:
    """A text in which the matches of a pattern were replaced, and where its characters were before."""

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

    def place(self, start: int, stop: int) -> Place | None:
        """Return where ``text[start:stop]`` was; ``None`` if it is empty or beyond the text."""
        stop = min(stop, len(self._stops))
        return (self._starts[start], self._stops[stop - 1]) if 0 <= start < stop else None


def place_of_name(text: str, message: str) -> Place | None:
    """Return where the first name that ``message`` has in quotation marks is in the filter ``text``, outside of its
    literals; ``None`` if there is none of them."""
    names = Rewritten(text, _NO_NAME, lambda match: "\0" * len(match[0]))
    for quoted in _QUOTED.findall(message):
        # Errors escape backticks as the filter does.
        for name in (f"`{quoted.replace('`', '``')}`", quoted):
            found = re.search(rf"(?<![\w`]){re.escape(name)}(?![\w`])", names.text, re.IGNORECASE)
            if found is not None:
                return names.place(*found.span())
    return None
