"""Plans which byte ranges of a file to request, and represents a file of which only some bytes were downloaded."""

from __future__ import annotations

import bisect
import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from delta_sharing_client.errors import DataError

# Each of many concurrent requests costs about as much as downloading this many bytes.
GAP = 64 * 1024
# Gaps up to this size are always downloaded: with small row groups, there are thousands of them, and a request each
# would take several times as long.
WASTE_EACH = 16 * 1024
# To save requests, larger gaps are downloaded too, as long as their bytes are at most this fraction of the needed
# bytes ...
WASTE_SHARE = 0.05
# ... or this much, if that is more.
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
    ranges: Iterable[ByteRange],
    *,
    gap: int = GAP,
    waste_share: float = WASTE_SHARE,
    waste_floor: int = WASTE_FLOOR,
    waste_each: int = WASTE_EACH,
) -> list[ByteRange]:
    """Return ranges that cover ``ranges`` with fewer requests.

    Gaps up to ``waste_each`` are closed. Of the others up to ``gap``, the smallest are closed first, as long as their
    bytes are at most the fraction ``waste_share`` of the needed ones, or ``waste_floor`` if that is more.
    """
    needed = merge(ranges)
    if len(needed) < 2:
        return needed
    budget = max(waste_floor, waste_share * sum(item.length for item in needed))
    closed: set[int] = set()
    gaps = sorted((right.start - left.stop, index) for index, (left, right) in enumerate(itertools.pairwise(needed)))
    for width, index in gaps:
        if width > waste_each:
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
    """Split ``item`` into equal parts of about ``part`` bytes, none larger than 1.5 times that."""
    count = max(1, round(item.length / part)) if part > 0 else 1
    if count == 1:
        return [item]
    edges = [item.start + item.length * index // count for index in range(count + 1)]
    return [ByteRange(start, stop) for start, stop in itertools.pairwise(edges)]


def subtract(ranges: Iterable[ByteRange], held: Sequence[ByteRange]) -> list[ByteRange]:
    """Return the parts of ``ranges`` that ``held`` does not cover."""
    rest = merge(ranges)
    for have in held:
        pieces: list[ByteRange] = []
        for item in rest:
            left = ByteRange(item.start, min(item.stop, have.start))
            right = ByteRange(max(item.start, have.stop), item.stop)
            pieces += [piece for piece in (left, right) if piece.length > 0]
        rest = pieces
    return rest


class ByteBlock(NamedTuple):
    """Bytes of a file from position ``start`` on."""

    start: int
    data: pa.Buffer

    @property
    def stop(self) -> int:
        return self.start + int(self.data.size)


class SparseFile(io.RawIOBase):
    """A read-only file of ``size`` bytes that contains only ``blocks``.

    The Parquet reader reads from it, without copies. A read of missing bytes raises ``DataError``, because zeros in
    their place would decode to wrong rows. ``replaced`` has rebuilt column chunks, by start and length, which are read
    instead of the bytes in the file.
    """

    def __init__(
        self, size: int, blocks: Iterable[ByteBlock], replaced: Mapping[tuple[int, int], pa.Buffer] | None = None
    ) -> None:
        super().__init__()
        self._size = size
        self._replaced = replaced or {}
        self._blocks = sorted(blocks, key=lambda block: block.start)
        self._starts = [block.start for block in self._blocks]
        self._position = 0

    def slice(self, start: int, length: int) -> pa.Buffer:
        """Return ``length`` bytes from ``start`` on; they are copied if they lie in several blocks."""
        if (replaced := self._replaced.get((start, length))) is not None:
            return replaced
        # The bytes are nearly always in the last block that starts before them, but blocks may overlap.
        for index in range(bisect.bisect_right(self._starts, start) - 1, -1, -1):
            block = self._blocks[index]
            if start + length <= block.stop:
                return block.data.slice(start - block.start, length)
        return self._joined(start, length)

    def _joined(self, start: int, length: int) -> pa.Buffer:
        joined, at = bytearray(), start
        for block in self._blocks:
            if block.start <= at < block.stop:
                part = block.data.slice(at - block.start, min(block.stop, start + length) - at)
                joined += memoryview(part)
                at += part.size
        if at == start + length:
            return pa.py_buffer(bytes(joined))
        raise DataError(f"Bytes {start} to {start + length} of a data file are needed, but were not downloaded.")

    # === Methods for pyarrow.PythonFile ===

    def read_buffer(self, nbytes: int | None = -1) -> pa.Buffer:
        left = max(0, self._size - self._position)
        length = left if nbytes is None or nbytes < 0 else min(nbytes, left)
        data = self.slice(self._position, length)
        self._position += length
        return data

    def read(self, nbytes: int | None = -1) -> bytes:
        return self.read_buffer(nbytes).to_pybytes()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
