"""Names that were met, by the million: of each a few bytes are kept, which tell it from all others."""

from __future__ import annotations

import array
from collections.abc import Iterator

# Each part grows on its own, so that growing takes little memory beside what is there.
_PARTS = 64
_FIRST_WORDS = 32
_MANY_WORDS = 512

Fingerprint = tuple[int, int]


def fingerprint(name: str) -> Fingerprint:
    """Return 128 bits that tell ``name`` from every other, in this process; the second word is not 0."""
    return hash(name), hash(f"{name}.") or 1


def fingerprints(names: list[str]) -> array.array[int]:
    """Return the words of the fingerprints of ``names``, one after the other."""
    words = _words(2 * len(names))
    words[::2] = array.array("q", map(hash, names))
    words[1::2] = array.array("q", [hash(f"{name}.") or 1 for name in names])
    return words


class Fingerprints:
    """A map from names to what they stand for, in 24 to 36 bytes each, where texts take some 180. For one thread.

    An item is the hash of a name and a number that is not 0. Two names of one hash are one in 2^64.
    """

    def __init__(self) -> None:
        # Open addressing: items in a circle; the second word is 0 where nothing is.
        self._parts = [_words(_FIRST_WORDS) for _ in range(_PARTS)]
        self._left = [_room(_FIRST_WORDS)] * _PARTS

    def add(self, item: Fingerprint) -> int:
        """Take ``item`` in and return 0, or return what its name stands for already."""
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
    """Move what stands in ``old`` to ``new``, and return what would lie beyond its end."""
    # A short listing needs no NumPy.
    import numpy as np

    items = np.frombuffer(old, np.int64).reshape(-1, 2)
    items = items[items[:, 1] != 0]
    places = np.frombuffer(new, np.int64).reshape(-1, 2)
    home = items[:, 0] // _PARTS % len(places)
    order = np.argsort(home, kind="stable")
    # In order of their homes, each stands at home or right behind the one before.
    rank = np.arange(len(items))
    at = np.maximum.accumulate(home[order] - rank) + rank
    fits = at < len(places)
    places[at[fits]] = items[order[fits]]
    return [(first, second) for first, second in items[order[~fits]].tolist()]


def _place(words: array.array[int], first: int) -> int:
    """Return where the name of the hash ``first`` stands, or the free place where it belongs."""
    end = len(words)
    place = first // _PARTS % (end >> 1) << 1
    while words[place + 1] and words[place] != first:
        place += 2
        if place == end:
            place = 0
    return place


def pairs(words: array.array[int]) -> Iterator[Fingerprint]:
    """Yield the fingerprints whose words stand in ``words`` one after the other."""
    return zip(words[::2], words[1::2], strict=True)


def _words(count: int) -> array.array[int]:
    return array.array("q", bytes(8 * count))


def _room(words: int) -> int:
    # More than two thirds full, the way to a free place gets long.
    return words // 3
