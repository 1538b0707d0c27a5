"""A file that is downloaded in parts, several in parallel, and resumed after an interruption."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delta_sharing_client.storage.place import StoredFile

_READ_BYTES = 256 * 1024
_NOTE = re.compile(rb"(\d{1,18})-(\d{1,18})")


class LargeFile:
    """A ``file`` that arrives in parts of ``part_bytes`` in the local file ``path``; a file next to it records the
    complete parts.

    If ``is_hashed``, the MD5 of the file is computed while parts arrive: from memory if all earlier parts have been
    hashed when a part arrives, or else from the local file.

    Attributes
    ----------
    replacements:
        How often the download was restarted because the store had a different version.
    is_stale:
        Whether the store has a different version.
    digests:
        The MD5s of the content that earlier attempts received.
    """

    def __init__(self, file: StoredFile, path: Path, part_bytes: int, replacements: int, *, is_hashed: bool) -> None:
        self.file, self.path, self.replacements = file, path, replacements
        self.is_stale = False
        self.digests: set[str] = set()
        self._part_bytes, self._is_hashed = part_bytes, is_hashed
        self._notes = path.with_suffix(".done")
        self._lock, self._hashing = threading.Lock(), threading.Lock()
        self._digest, self._hashed = hashlib.md5(usedforsecurity=False), 0
        self._done = self._noted() if path.exists() and path.stat().st_size == file.size else set()
        self._waiting = [start for start in self._starts() if start not in self._done]
        if not self._done:
            self.restart()

    @property
    def missing_bytes(self) -> int:
        """The size of the parts whose download has not started."""
        return sum(self.stop(start) - start for start in self._waiting)

    @property
    def is_complete(self) -> bool:
        """Whether all parts have arrived."""
        return len(self._done) == len(self._starts())

    def stop(self, start: int) -> int:
        """Return the end of the part at ``start``."""
        return min(start + self._part_bytes, self.file.size)

    def restart(self) -> None:
        """Start again without any part."""
        self._notes.unlink(missing_ok=True)
        with self.path.open("wb") as out:
            out.truncate(self.file.size)
        self._digest, self._hashed = hashlib.md5(usedforsecurity=False), 0
        self._done, self._waiting = set(), list(self._starts())

    def take(self) -> int | None:
        """Return the start of the next part to download, which now counts as started; ``None`` if there is none."""
        with self._lock:
            return self._waiting.pop(0) if self._waiting else None

    @contextlib.contextmanager
    def hashing(self, start: int) -> Iterator[Any]:
        """Yield the hash to update with the bytes of the part at ``start``; ``None`` if they cannot be hashed yet.

        The part must arrive in the ``with`` block, which must raise if not all of its bytes arrive.
        """
        if not (self._is_hashed and self._hashing.acquire(blocking=False)):
            yield None
            return
        try:
            if self._hashed != start:
                yield None
                return
            digest = self._digest.copy()
            yield digest
            self._digest, self._hashed = digest, self.stop(start)
        finally:
            self._hashing.release()

    def note(self, start: int) -> bool:
        """Record that the part at ``start`` is complete; return whether it was the last one."""
        with self._lock:
            with self._notes.open("ab", buffering=0) as out:
                out.write(f"{start}-{self.stop(start)}\n".encode())
            self._done.add(start)
            is_last = self.is_complete
        if not is_last and self._is_hashed and self._hashing.acquire(blocking=False):
            try:
                if self._is_hashed:
                    self._hash_done()
            finally:
                self._hashing.release()
        return is_last

    def digest(self) -> str:
        """Return the MD5 of the complete file."""
        with self._hashing:
            self._hash_done()
            return self._digest.hexdigest()

    def stop_hashing(self) -> None:
        """Compute the MD5 no further. Afterwards no thread reads the local file, so it may be moved."""
        with self._hashing:
            self._is_hashed = False

    def forget(self) -> None:
        """Remove the record of complete parts."""
        self._notes.unlink(missing_ok=True)

    def _hash_done(self) -> None:
        """Hash the parts that have arrived, in order, up to the first gap."""
        if self._hashed not in self._done:
            return
        with self.path.open("rb", buffering=0) as stream:
            stream.seek(self._hashed)
            while self._hashed in self._done:
                left = self.stop(self._hashed) - self._hashed
                while left and (data := stream.read(min(left, _READ_BYTES))):
                    self._digest.update(data)
                    left -= len(data)
                self._hashed = self.stop(self._hashed)

    def _starts(self) -> range:
        return range(0, self.file.size, self._part_bytes)

    def _noted(self) -> set[int]:
        """Return the starts of the parts that earlier runs received; the parts of those runs may have had a different
        size."""
        try:
            lines = self._notes.read_bytes().split(b"\n")[:-1]
        except OSError:
            return set()
        ranges = sorted((int(match[1]), int(match[2])) for match in map(_NOTE.fullmatch, lines) if match)
        done, missing = set(), 0
        # ``missing`` is the first byte, from the start of this part on, that has not arrived.
        for start in self._starts():
            missing = max(missing, start)
            while ranges and ranges[0][0] <= missing:
                missing = max(missing, ranges.pop(0)[1])
            if missing >= self.stop(start):
                done.add(start)
        return done
