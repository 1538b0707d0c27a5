"""How far a read may go ahead of its consumer."""

from __future__ import annotations

from typing import NamedTuple

_MB = 1024 * 1024


class _Step(NamedTuple):
    """Compressed bytes of the next piece of a file, bytes of the budget, files and pieces of one that are under way."""

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
    """Little at first, and more with everything that is taken; of a read that is wanted ``whole`` all at once.

    For one event loop.
    """

    def __init__(self, *, whole: bool) -> None:
        self._step = len(_STEPS) - 1 if whole else 0

    @property
    def is_full(self) -> bool:
        """Whether nothing is held back."""
        return self._step == len(_STEPS) - 1

    @property
    def piece(self) -> int:
        """About how many compressed bytes the next piece of a file shall have."""
        return _STEPS[self._step].piece

    def files(self, most: int) -> int:
        """Return how many files may be under way where ``most`` are at full pace."""
        return min(most, _STEPS[self._step].files)

    def pieces(self, most: int) -> int:
        """Return how many pieces of a file may be under way where ``most`` are at full pace."""
        return min(most, _STEPS[self._step].pieces)

    def budget(self, most: int) -> int:
        """Return how many bytes the read may hold where ``most`` are for the full pace."""
        return min(most, _STEPS[self._step].budget)

    def grow(self) -> None:
        """Take note that the consumer wants more."""
        self._step = min(self._step + 1, len(_STEPS) - 1)
