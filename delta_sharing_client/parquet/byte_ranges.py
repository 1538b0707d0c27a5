"""Which bytes to ask for: half-open ranges, joined where a gap costs less than a request."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# A request in flight among many costs about as much as this many bytes at common latencies and bandwidths.
GAP = 64 * 1024
# Of the bytes that are needed, at most this share may be read in vain for the sake of fewer requests ...
WASTE_SHARE = 0.05
# ... except that this much always may.
WASTE_FLOOR = 8 * 1024


class ByteRange(NamedTuple):
    """Bytes ``start`` (included) to ``stop`` (excluded) of a file."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


def merge(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Return the union of ``ranges``, sorted; those that touch or overlap become one."""
    merged: list[ByteRange] = []
    for item in sorted(ranges):
        if item.length <= 0:
            continue
        if merged and item.start <= merged[-1].stop:
            merged[-1] = ByteRange(merged[-1].start, max(merged[-1].stop, item.stop))
        else:
            merged.append(item)
    return merged


def coalesce(
    ranges: Iterable[ByteRange], *, gap: int = GAP, waste_share: float = WASTE_SHARE, waste_floor: int = WASTE_FLOOR
) -> list[ByteRange]:
    """Return ranges that cover ``ranges`` in fewer requests.

    The smallest gaps are closed first, none wider than ``gap``, as long as all bytes read in vain stay below
    ``waste_share`` of the needed ones (or below ``waste_floor``).
    """
    needed = merge(ranges)
    if len(needed) < 2:
        return needed
    budget = max(waste_floor, int(waste_share * sum(item.length for item in needed)))
    closed: set[int] = set()
    gaps = sorted((right.start - left.stop, index) for index, (left, right) in enumerate(itertools.pairwise(needed)))
    for width, index in gaps:
        if width > gap or width > budget:
            break
        budget -= width
        closed.add(index)
    joined = [needed[0]]
    for index, item in enumerate(needed[1:]):
        if index in closed:
            joined[-1] = ByteRange(joined[-1].start, item.stop)
        else:
            joined.append(item)
    return joined


def split(item: ByteRange, part: int) -> list[ByteRange]:
    """Cut ``item`` into equal parts of about ``part`` bytes, none larger than 1.5 times that."""
    count = max(1, round(item.length / part)) if part > 0 else 1
    edges = [item.start + item.length * index // count for index in range(count + 1)]
    return [ByteRange(start, stop) for start, stop in itertools.pairwise(edges)]


def subtract(ranges: Iterable[ByteRange], held: Sequence[ByteRange]) -> list[ByteRange]:
    """Return the parts of ``ranges`` that none of ``held`` covers."""
    rest = merge(ranges)
    for have in held:
        pieces: list[ByteRange] = []
        for item in rest:
            left = ByteRange(item.start, min(item.stop, have.start))
            right = ByteRange(max(item.start, have.stop), item.stop)
            pieces += [piece for piece in (left, right) if piece.length > 0]
        rest = pieces
    return rest
