"""A file of an asset as a seekable stream of bytes that reads ahead."""

from __future__ import annotations

import io
from concurrent.futures import Future
from typing import Any

from delta_sharing_client.assets.directory import Directory
from delta_sharing_client.fetch.place import StoredFile
from delta_sharing_client.fetch.source import MOST_IN_ONE_RESPONSE, Stale
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.run import loop
from delta_sharing_client.run.consumer import Consumer

_BUFFER_BYTES = 64 * 1024
# After a seek, little is read, because it may be for a footer or an index; sequential reading reads more each time.
_FIRST_BLOCK, _LARGEST_BLOCK = 256 * 1024, 8 * 1024 * 1024


class OpenFile(io.BufferedReader):
    """A buffered ``FileStream``. ``close`` also ends a ``read`` that waits on another thread."""

    def __init__(self, stream: FileStream) -> None:
        self._stream = stream
        super().__init__(stream, _BUFFER_BYTES)

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._stream.size

    def close(self) -> None:
        # The buffer's own method would wait for the reading thread.
        self._stream.end()
        super().close()


class FileStream(io.RawIOBase):
    """The bytes of ``file``, all of one version. At most two blocks of up to 8 MiB are in memory, or the whole file, of
    up to 64 MiB, if its first bytes already have another version than ``file``: it was replaced after it was opened, or
    the store states another version in each response. For one thread at a time."""

    def __init__(self, directory: Directory, file: StoredFile) -> None:
        super().__init__()
        self._directory = directory
        self._file = file
        self.name = file.path
        self._at = 0
        self._start, self._block = 0, memoryview(b"")
        self._length = _FIRST_BLOCK
        self._ahead: tuple[int, Future[memoryview]] | None = None
        self._has_begun = False
        self._whole: memoryview | None = None
        self._consumer = Consumer(f"The stream of the file '{file.path}'")

    def __repr__(self) -> str:
        return f"FileStream({self.name!r})"

    def __reduce__(self) -> Any:
        raise TypeError("An open file cannot be pickled; pickle the asset, and open the file where it is read.")

    @property
    def mode(self) -> str:
        """Always ``rb``."""
        return "rb"

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._file.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}
        if whence not in bases:
            raise ValueError(f"Expected 0, 1 or 2 for 'whence', found {whence!r}.")
        target = bases[whence] + offset
        if target < 0:
            raise ValueError(f"Expected a position of 0 or more, found {target}.")
        self._at = target
        return target

    def readinto(self, buffer: Any) -> int:
        self._check_open()
        view = memoryview(buffer).cast("B")
        if not view or self._at >= self.size:
            return 0
        if not self._is_loaded():
            self._load()
        data = self._block[self._at - self._start :][: len(view)]
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._check_open()
        have = (
            self._block[self._at - self._start :] if self._start <= self._at < self._start + len(self._block) else b""
        )
        start = self._at + len(have)
        rest = self._read(start, self.size) if start < self.size else b""
        self._at = max(self._at, self.size)
        return b"".join((have, rest)) if have else bytes(rest)

    def end(self) -> None:
        """End a read that waits for bytes, from any thread, with a ``UsageError``, and refuse later ones."""
        self._consumer.close()

    def close(self) -> None:
        if not self.closed:
            self.end()
            ahead, self._ahead, self._block, self._whole = self._ahead, None, memoryview(b""), None
            if ahead is not None:
                ahead[1].cancel()
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("The file is closed.")

    def _is_loaded(self) -> bool:
        return self._start <= self._at < self._start + len(self._block)

    def _load(self) -> None:
        """Load the block at the current position; if reading is sequential, also request the block after it."""
        at, is_next = self._at, self._at == self._start + len(self._block) and self._at > 0
        self._length = min(2 * self._length, _LARGEST_BLOCK) if is_next else _FIRST_BLOCK
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == at:
            data = self._result(ahead[1])
        else:
            if ahead is not None:
                ahead[1].cancel()
            data = self._read(at, at + self._length)
        self._start, self._block = at, data
        following = at + len(data)
        if is_next and following < self.size:
            self._ahead = following, loop.begin(self._bytes(following, following + self._length))

    def _read(self, start: int, stop: int) -> memoryview:
        return self._result(loop.begin(self._bytes(start, stop)))

    def _result(self, coming: Future[memoryview]) -> memoryview:
        try:
            with self._consumer.turn():
                data = self._consumer.result(coming)
                self._has_begun = True
                return data
        finally:
            coming.cancel()

    async def _bytes(self, start: int, stop: int) -> memoryview:
        file, stop = self._file, min(stop, self.size)
        if self._whole is None:
            try:
                return await self._directory.read(file.path, file, ByteRange(start, stop), once=True)
            except Stale as stale:
                # Bytes that were returned cannot be taken back.
                if self._has_begun or self.size > MOST_IN_ONE_RESPONSE:
                    raise stale.ended() from None
            self._whole = await self._directory.read(file.path, file, ByteRange(0, self.size))
        return self._whole[start:stop]
