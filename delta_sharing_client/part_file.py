"""A file that arrives in pieces, in any order and on several threads, and gets its name only when it is complete."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import threading
from collections.abc import Iterator
from typing import Any, TypeAlias

from delta_sharing_client.local_folder import LocalFolder

Data: TypeAlias = "bytes | bytearray | memoryview"

JOURNAL_SUFFIX = ".done"
"""The suffix of the file that records which bytes of a file have arrived."""

RECORD_BYTES = 1024 * 1024
"""Arrived bytes are recorded in runs of at least this size; a process that is killed loses less than this for each
connection."""

_READ_BYTES = 256 * 1024
_RANGE = re.compile(rb"(\d{1,18})-(\d{1,18})")


class PartFile:
    """The content of one file while it arrives: ``size`` bytes, in the file ``name`` of ``folder``.

    Threads may write different ranges at the same time. All methods raise ``OSError`` if the disk refuses, and
    ``UsageError`` if there is a link or something else instead of a file.

    Parameters
    ----------
    algorithm:
        The checksum to compute with ``digest``, by the name in ``hashlib``. It is computed while bytes arrive.
    keeps:
        Record which bytes have arrived, so that a later ``PartFile`` with the same name, in this process or in the
        next, continues with them. The name must identify the version of the content.
    """

    def __init__(
        self, folder: LocalFolder, name: str, size: int, *, algorithm: str | None = None, keeps: bool = False
    ) -> None:
        self.name, self.size = name, size
        self._folder, self._algorithm, self._keeps = folder, algorithm, keeps
        self._lock, self._hashing = threading.Condition(), threading.Lock()
        # How many threads use the open files, which must not be closed meanwhile: their numbers could be reused.
        self._users, self._is_closing = 0, False
        self._journal = -1
        self._arrived = Ranges()
        # Runs of arrived bytes that are not recorded yet.
        self._unrecorded = Ranges()
        self._hash, self._hashed = self._new_hash(algorithm), 0
        self._descriptor = -1
        try:
            if not (keeps and self._continue()):
                self._create()
        except BaseException:
            self._close_now()
            raise

    def __enter__(self) -> PartFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The ranges that have not arrived, as pairs of start and stop."""
        with self._lock:
            return self._arrived.gaps(self.size)

    @property
    def is_complete(self) -> bool:
        """Whether all bytes have arrived."""
        return not self.missing

    def write(self, at: int, data: Data, *, is_hashed: bool = True) -> bool:
        """Write bytes at the position ``at``, and return whether they were the last that was missing. Ranges that are
        written at the same time must not overlap. ``is_hashed`` means that ``digest`` will be called."""
        view = memoryview(data).cast("B")
        stop = at + len(view)
        if not 0 <= at <= stop <= self.size:
            raise ValueError(f"The bytes {at} to {stop} are not in a file of {self.size} bytes.")
        with self._using():
            self._put(at, view)
            # Hashed from memory before the bytes count as arrived, or else another thread would read them.
            self._hash_memory(at, view, is_hashed=is_hashed)
            with self._lock:
                is_last = self._arrived.add(at, stop) == (0, self.size)
                if self._keeps:
                    start, end = self._unrecorded.add(at, stop)
                    if end - start >= RECORD_BYTES:
                        self._record(start, end)
                        self._unrecorded.remove(start, end)
            if is_hashed and self._hashed < at and stop % RECORD_BYTES < len(view):
                # From time to time, so that the last thread need not read the whole file.
                self._hash_disk(wait=False)
        return is_last

    def restart(self) -> None:
        """Forget all bytes. Nothing may be written meanwhile."""
        self._close_files(wait=True)
        self._arrived, self._unrecorded = Ranges(), Ranges()
        self._hash, self._hashed = self._new_hash(self._algorithm), 0
        self._create()

    def digest(self, algorithm: str | None = None) -> bytes:
        """Return the checksum of the content, which must be complete; ``algorithm`` is by default the one that is
        computed while bytes arrive."""
        with self._using():
            if algorithm not in (None, self._algorithm):
                with self._hashing:
                    self._algorithm, self._hash, self._hashed = algorithm, self._new_hash(algorithm), 0
            self._hash_disk(wait=True)
            if self._hash is None or self._hashed != self.size:
                raise ValueError("The checksum of an incomplete file was requested.")
            digest: bytes = self._hash.digest()
            return digest

    def finish(
        self, into: LocalFolder, name: str, *, modified: float | None = None, durable: bool = False
    ) -> os.stat_result:
        """Give the complete file its ``name`` in the directory ``into``, where it replaces a file, and return its
        status.

        With ``durable``, content and name are on the disk when this returns. ``modified`` becomes the time of the file.
        """
        if not self.is_complete:
            raise ValueError("An incomplete file cannot get its name.")
        if durable:
            with self._using():
                os.fsync(self._descriptor)
        # Windows cannot rename an open file.
        self._close_files(wait=True)
        if modified is not None:
            self._folder.set_time(self.name, modified)
        facts = self._folder.stat(self.name)
        if facts is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.name)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size != self.size:
            raise self._folder.wrong(self.name, "file", facts)
        self._folder.move(self.name, into, name)
        if durable:
            into.sync()
        if self._keeps:
            self._folder.unlink(self.name + JOURNAL_SUFFIX)
        return facts

    def close(self) -> None:
        """Close the file once no thread writes to it. Without ``keeps``, what has arrived is removed. May be called
        twice, and after ``finish``."""
        if self._descriptor < 0 or self._is_closing:
            return
        self._close_files(wait=False)
        if not self._keeps:
            self._folder.unlink(self.name)

    # === The files ===

    def _create(self) -> None:
        if self._keeps:
            self._folder.unlink(self.name + JOURNAL_SUFFIX)
        self._descriptor = self._folder.create_file(self.name)
        if self._keeps:
            os.truncate(self._descriptor, self.size)
            self._journal = self._folder.create_file(self.name + JOURNAL_SUFFIX)
            _write_all(self._journal, _boot() + b"\n")

    def _continue(self) -> bool:
        """Open the files of an earlier attempt, and return whether there are any to continue."""
        name = self.name + JOURNAL_SUFFIX
        file, journal = self._folder.stat(self.name), self._folder.stat(name)
        # A copy of the directory that consists of hard links must not change.
        if file is None or file.st_size != self.size or journal is None or {file.st_nlink, journal.st_nlink} != {1}:
            return False
        self._journal = self._folder.open_file(name, os.O_RDWR | os.O_APPEND)
        boot, _, text = _read_all(self._journal).partition(b"\n")
        if boot != _boot():
            # After a failure of the system, recorded bytes may be missing on the disk.
            self._close_now()
            return False
        for line in text.split(b"\n")[:-1]:
            match = _RANGE.fullmatch(line)
            if match and (start := int(match[1])) < (stop := int(match[2])) <= self.size:
                self._arrived.add(start, stop)
        # A process may have been killed while it wrote the last line.
        _write_all(self._journal, b"\n")
        self._descriptor = self._folder.open_file(self.name, os.O_RDWR)
        return True

    def _record(self, start: int, stop: int) -> None:
        _write_all(self._journal, _line(start, stop))

    def _put(self, at: int, view: memoryview) -> None:
        if hasattr(os, "pwrite"):
            while view:
                written = os.pwrite(self._descriptor, view, at)
                at, view = at + written, view[written:]
            return
        with self._lock:
            os.lseek(self._descriptor, at, os.SEEK_SET)
            _write_all(self._descriptor, view)

    def _get(self, at: int, length: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, length, at)
        with self._lock:
            os.lseek(self._descriptor, at, os.SEEK_SET)
            return os.read(self._descriptor, length)

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        with self._lock:
            if self._descriptor < 0 or self._is_closing:
                raise ValueError(f"The file '{self.name}' is closed.")
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._is_closing and not self._users:
                    self._close_now()
                self._lock.notify_all()

    def _close_files(self, *, wait: bool) -> None:
        """Close the files when no thread uses them, and ``wait`` for that."""
        with self._lock:
            if self._users and not wait:
                self._is_closing = True
                return
            self._lock.wait_for(lambda: not self._users)
            self._close_now()

    def _close_now(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        journal, self._journal = self._journal, -1
        try:
            if journal >= 0:
                with contextlib.suppress(OSError):
                    for start, stop in self._unrecorded:
                        _write_all(journal, _line(start, stop))
        finally:
            for one in (descriptor, journal):
                if one >= 0:
                    os.close(one)

    # === The checksum ===

    def _new_hash(self, algorithm: str | None) -> Any:
        return None if algorithm is None else hashlib.new(algorithm, usedforsecurity=False)

    def _hash_memory(self, at: int, view: memoryview, *, is_hashed: bool) -> None:
        if self._hash is None or not (self._hashed > at or (is_hashed and self._hashed == at)):
            return
        if self._hashing.acquire(blocking=self._hashed > at):
            try:
                if self._hashed > at:
                    # Bytes that had arrived are replaced.
                    self._hash, self._hashed = self._new_hash(self._algorithm), 0
                if is_hashed and self._hashed == at:
                    self._hash.update(view)
                    self._hashed = at + len(view)
            finally:
                self._hashing.release()

    def _hash_disk(self, *, wait: bool) -> None:
        """Hash what has arrived, up to the first gap."""
        if self._hash is None or not self._hashing.acquire(blocking=wait):
            return
        try:
            while True:
                with self._lock:
                    stop = self._arrived.stop_of(self._hashed)
                if stop <= self._hashed:
                    return
                data = self._get(self._hashed, min(stop - self._hashed, _READ_BYTES))
                if not data:
                    return
                self._hash.update(data)
                self._hashed += len(data)
        finally:
            self._hashing.release()


class Ranges:
    """A set of positions, as disjoint ranges in order. There are few of them: about one for each connection."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over pairs of start and stop."""
        return iter(list(self._ranges))

    def add(self, start: int, stop: int) -> tuple[int, int]:
        """Add a range, and return the range that now contains it."""
        if start >= stop:
            return start, stop
        touching = [one for one in self._ranges if one[0] <= stop and start <= one[1]]
        joined = min([start, *(one[0] for one in touching)]), max([stop, *(one[1] for one in touching)])
        self._ranges = sorted([joined, *(one for one in self._ranges if one not in touching)])
        return joined

    def remove(self, start: int, stop: int) -> None:
        """Remove a range that ``add`` returned."""
        self._ranges.remove((start, stop))

    def stop_of(self, at: int) -> int:
        """Return the end of the range that contains ``at``; ``at`` if none does."""
        return next((stop for start, stop in self._ranges if start <= at < stop), at)

    def gaps(self, size: int) -> list[tuple[int, int]]:
        """Return the ranges between 0 and ``size`` that are not in this set."""
        edges = [0, *(edge for one in self._ranges for edge in one), size]
        return [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop]


def _line(start: int, stop: int) -> bytes:
    return f"{start}-{stop}\n".encode()


def _write_all(descriptor: int, data: Data) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_all(descriptor: int) -> bytes:
    pieces = []
    while data := os.read(descriptor, _READ_BYTES):
        pieces.append(data)
    return b"".join(pieces)


def _boot() -> bytes:
    """Return an id of the run of the operating system, empty if it has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as stream:
            return stream.read(64).strip()
    except OSError:
        return b""
