"""Limits how far a read runs ahead of its consumer."""

from __future__ import annotations

from typing import NamedTuple

_MB = 1024 * 1024


class _Step(NamedTuple):
    """The limits of one step: the compressed bytes of a piece of a file, the bytes of the memory budget, the files in
    progress, and the pieces in progress per file."""

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
    """Limits that start small and grow with each item that the consumer takes; with ``whole``, there are none.

    Must be used on one event loop.
    """

    def __init__(self, *, whole: bool) -> None:
        self._step = len(_STEPS) - 1 if whole else 0

    @property
    def is_full(self) -> bool:
        """Whether the limits are no longer in effect."""
        return self._step == len(_STEPS) - 1

    @property
    def piece(self) -> int:
        """The approximate compressed size of the next piece of a file, in bytes."""
        return _STEPS[self._step].piece

    def files(self, most: int) -> int:
        """Return how many files may be in progress, at most ``most``."""
        return min(most, _STEPS[self._step].files)

    def pieces(self, most: int) -> int:
        """Return how many pieces of a file may be in progress, at most ``most``."""
        return min(most, _STEPS[self._step].pieces)

    def budget(self, most: int) -> int:
        """Return how many bytes may be in use, at most ``most``."""
        return min(most, _STEPS[self._step].budget)

    def grow(self) -> None:
        """Raise the limits; called when the consumer has taken an item."""
        self._step = min(self._step + 1, len(_STEPS) - 1)
