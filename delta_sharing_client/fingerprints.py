"""A memory-efficient map for millions of names: it stores a hash of each name instead of the name."""

from __future__ import annotations

import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# Each sorted array is at least this many times as long as the next one, so there are few of them.
_RATIO = 8


def hashes(names: Iterable[str]) -> array.array[int]:
    """Return a 64-bit hash for each of ``names``, stable within this process."""
    return array.array("q", map(hash, names))


def second_hashes(names: Iterable[str]) -> array.array[int]:
    """Return a second 64-bit hash for each of ``names``, different from ``hashes`` and never 0."""
    return array.array("q", [hash(f"{name}.") or 1 for name in names])


class Fingerprints:
    """A map from 64-bit hashes to 64-bit numbers other than 0, in 16 bytes per entry. Not thread-safe.

    Add many names at a time, because each call sorts. The probability that two given names have the same hash is 2^-64.
    """

    def __init__(self) -> None:
        # Pairs of sorted hashes and their numbers.
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, names: array.array[int], numbers: array.array[int]) -> None:
        """Add a number for each hash; the first number added for a hash counts."""
        # Imported here, because a short listing does not need NumPy.
        import numpy as np

        if not names:
            return
        keys, values = np.array(names, np.int64), np.array(numbers, np.int64)
        while self._runs and len(self._runs[-1][0]) < _RATIO * len(keys):
            older, their_values = self._runs.pop()
            keys, values = np.concatenate([older, keys]), np.concatenate([their_values, values])
        order = np.argsort(keys, kind="stable")  # merges the parts, which are sorted
        keys = keys[order]
        self._runs.append((keys, values[order]))

    def has_any(self, names: Iterable[str]) -> bool:
        """Return whether one of the names has a number."""
        # The hashes are sorted, so that successive searches touch the same regions of memory.
        return bool(self._runs) and bool(self.get(array.array("q", sorted(hashes(names)))).any())

    def number(self, name: str) -> int:
        """Return the number of a name; 0 if it has none."""
        return int(self.get(hashes([name]))[0]) if self._runs else 0

    def get(self, names: array.array[int]) -> np.ndarray:
        """Return the number for each hash; 0 for a hash without a number."""
        import numpy as np

        searched = np.array(names, np.int64)
        result = np.zeros(len(searched), np.int64)
        for keys, values in reversed(self._runs):
            at = np.searchsorted(keys, searched)
            at[at == len(keys)] = 0
            hit = keys[at] == searched
            if hit.any():
                result[hit] = values[at[hit]]
        return result
