"""A memory-efficient map for millions of names: it stores a hash of each instead of the text."""

from __future__ import annotations

import array
from collections.abc import Iterator

# Each part grows on its own, so growing needs little extra memory.
_PARTS = 64
_FIRST_WORDS = 32
_MANY_WORDS = 512

Fingerprint = tuple[int, int]


def fingerprint(name: str) -> Fingerprint:
    """Return a 128-bit hash of ``name``, unique within this process; the second word is not 0."""
    return hash(name), hash(f"{name}.") or 1


def fingerprints(names: list[str]) -> array.array[int]:
    """Return the words of the fingerprints of ``names``, one after the other."""
    words = _words(2 * len(names))
    words[::2] = array.array("q", map(hash, names))
    words[1::2] = array.array("q", [hash(f"{name}.") or 1 for name in names])
    return words


class Fingerprints:
    """A map from names to integers in 24 to 36 bytes per entry; texts need about 180. Not thread-safe.

    An item is the hash of a name and a number other than 0. The probability that two names have the same hash is 2^-64.
    """

    def __init__(self) -> None:
        # Open addressing in a ring; the second word of a free slot is 0.
        self._parts = [_words(_FIRST_WORDS) for _ in range(_PARTS)]
        self._left = [_room(_FIRST_WORDS)] * _PARTS

    def add(self, item: Fingerprint) -> int:
        """Add ``item`` and return 0, or return the number already stored for its name."""
        part = item[0] & (_PARTS - 1)
        words = self._parts[part]
        place = _place(words, item[0])
        if words[place + 1]:
            return words[place + 1]
        words[place], words[place + 1] = item
        self._left[part] -= 1
        if not self._left[part]:
            self._grow(part)
        return 0

    def get(self, first: int) -> int:
        """Return the number stored for the hash ``first``, 0 without one."""
        words = self._parts[first & (_PARTS - 1)]
        return words[_place(words, first) + 1]

    def __contains__(self, item: Fingerprint) -> bool:
        words = self._parts[item[0] & (_PARTS - 1)]
        return words[_place(words, item[0]) + 1] == item[1]

    def _grow(self, part: int) -> None:
        old = self._parts[part]
        self._parts[part] = new = _words(len(old) * 3 // 4 * 2)
        self._left[part] = _room(len(new)) - _room(len(old))
        for item in pairs(old) if len(old) < _MANY_WORDS else _moved(old, new):
            if item[1]:
                place = _place(new, item[0])
                new[place], new[place + 1] = item


def _moved(old: array.array[int], new: array.array[int]) -> list[Fingerprint]:
    """Move the items of ``old`` to ``new``, and return those that would lie beyond its end."""
    # Imported here, because a short listing does not need NumPy.
    import numpy as np

    items = np.frombuffer(old, np.int64).reshape(-1, 2)
    items = items[items[:, 1] != 0]
    places = np.frombuffer(new, np.int64).reshape(-1, 2)
    home = items[:, 0] // _PARTS % len(places)
    order = np.argsort(home, kind="stable")
    # In order of their hash slots, each item is at its slot or directly behind the previous item.
    rank = np.arange(len(items))
    at = np.maximum.accumulate(home[order] - rank) + rank
    fits = at < len(places)
    places[at[fits]] = items[order[fits]]
    return [(first, second) for first, second in items[order[~fits]].tolist()]


def _place(words: array.array[int], first: int) -> int:
    """Return the slot of the hash ``first``, or the free slot where it belongs."""
    end = len(words)
    place = first // _PARTS % (end >> 1) << 1
    while words[place + 1] and words[place] != first:
        place += 2
        if place == end:
            place = 0
    return place


def pairs(words: array.array[int]) -> Iterator[Fingerprint]:
    """Yield the fingerprints in ``words``."""
    return zip(words[::2], words[1::2], strict=True)


def _words(count: int) -> array.array[int]:
    return array.array("q", bytes(8 * count))


def _room(words: int) -> int:
    # Beyond two thirds, searches for a free slot get slow.
    return words // 3
