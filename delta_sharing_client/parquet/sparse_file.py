"""A file of which only some bytes are here, as the Python file that the Parquet reader reads from."""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from delta_sharing_client.errors import DataError


class Block(NamedTuple):
    """Bytes of a file from position ``start`` on."""

    start: int
    data: pa.Buffer

    @property
    def stop(self) -> int:
        return self.start + int(self.data.size)


class SparseFile(io.RawIOBase):
    """A read-only file of ``size`` bytes that holds ``blocks`` and refuses to read anything else.

    Reads are slices of the blocks without a copy. A read that touches a byte which was not fetched raises
    ``DataError``: zeros in its place would decode to wrong rows. ``replaced`` are reads that are answered with other
    bytes than the file's, by start and length: column chunks of which only some pages were fetched.
    """

    def __init__(
        self, size: int, blocks: Iterable[Block], replaced: Mapping[tuple[int, int], pa.Buffer] | None = None
    ) -> None:
        super().__init__()
        self._size = size
        self._replaced = replaced or {}
        self._blocks = sorted(blocks, key=lambda block: block.start)
        self._starts = [block.start for block in self._blocks]
        self._position = 0

    def slice(self, start: int, length: int) -> pa.Buffer:
        """Return ``length`` bytes from ``start`` on, which must lie in one block."""
        if (replaced := self._replaced.get((start, length))) is not None:
            return replaced
        # The nearest block nearly always; where blocks overlap, it may be one before.
        for index in range(bisect.bisect_right(self._starts, start) - 1, -1, -1):
            block = self._blocks[index]
            if start + length <= block.stop:
                return block.data.slice(start - block.start, length)
        raise DataError(f"Bytes {start} to {start + length} of a data file are needed but were not planned to be read.")

    # === What pyarrow.PythonFile calls ===

    def read_buffer(self, nbytes: int | None = -1) -> pa.Buffer:
        length = self._size - self._position if nbytes is None or nbytes < 0 else nbytes
        length = max(0, min(length, self._size - self._position))
        data = self.slice(self._position, length) if length else pa.py_buffer(b"")
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

    def size(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
