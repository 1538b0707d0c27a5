"""Limits how far a read runs ahead of its consumer."""

from __future__ import annotations

from typing import NamedTuple

_MB = 1024 * 1024


class _Step(NamedTuple):
    """Limits: compressed bytes per piece of a file, bytes of the budget, files, and pieces per file in progress."""

    piece: int
    budget: int
    files: int
    pieces: int


_STEPS = (
    _Step(_MB, 4 * _MB, 1, 1),
    _Step(4 * _MB, 32 * _MB, 4, 1),
    _Step(16 * _MB, 96 * _MB, 16, 4),
    _Step(1 << 62, 1 << 62, 1 << 62, 1 << 62),
)


class Pace:
    """Limits that start small and grow with each item that the consumer takes; ``whole``: no limits from the start.

    For one event loop.
    """

    def __init__(self, *, whole: bool) -> None:
        self._step = len(_STEPS) - 1 if whole else 0

    @property
    def is_full(self) -> bool:
        """Whether the limits are no longer in effect."""
        return self._step == len(_STEPS) - 1

    @property
    def piece(self) -> int:
        """The approximate number of compressed bytes of the next piece of a file."""
        return _STEPS[self._step].piece

    def files(self, most: int) -> int:
        """Return the number of files in progress, at most ``most``."""
        return min(most, _STEPS[self._step].files)

    def pieces(self, most: int) -> int:
        """Return the number of pieces of a file in progress, at most ``most``."""
        return min(most, _STEPS[self._step].pieces)

    def budget(self, most: int) -> int:
        """Return the number of bytes in use, at most ``most``."""
        return min(most, _STEPS[self._step].budget)

    def grow(self) -> None:
        """Raise the limits, because the consumer has taken an item."""
        self._step = min(self._step + 1, len(_STEPS) - 1)
