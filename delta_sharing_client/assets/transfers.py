"""The transfers of one download: many files at once, each complete under its name or not there."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path

from delta_sharing_client.assets.directory import Directory, refusal
from delta_sharing_client.assets.state import Note, State
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.source import Refused, Version
from delta_sharing_client.retry import Deadline, Tries
from delta_sharing_client.run.loop import END_SECONDS, LISTEN_SECONDS
from delta_sharing_client.storage.place import StoredFile
from delta_sharing_client.storage.reading import Reading

PART_BYTES = 16 * 1024 * 1024
"""Larger files are transferred in parts of this size, several at once, and continued after an interruption."""

_FIRST_THREADS, _MORE_THREADS = 16, 16
# Seconds between two looks at the speed, and the growth that justifies more threads.
_LOOK_SECONDS, _GROWTH = 1.0, 1.1
# A small file costs about as much as these bytes of a large one.
_FILE_BYTES = 64 * 1024
# How often a file is begun that is replaced meanwhile, or arrives with the wrong content.
_ATTEMPTS = 3
_MD5 = re.compile(r'"?([0-9a-f]{32})"?', re.IGNORECASE)
_READ_BYTES = 1024 * 1024


def content_md5(etag: str | None) -> str | None:
    """Return the MD5 that an ETag states: S3 and those like it use that of the content, unless it was uploaded in parts
    or the store encrypts it with keys of its own."""
    found = _MD5.fullmatch(etag or "")
    return None if found is None else found[1].lower()


def digest_of(path: Path) -> str | None:
    """Return the MD5 of a local file; ``None`` if it cannot be read."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with path.open("rb") as stream:
            while data := stream.read(_READ_BYTES):
                digest.update(data)
    except OSError:
        return None
    return digest.hexdigest()


class _Stopped(BaseException):
    """The download was ended; raised in its threads."""


class Transfers:
    """Transfers ``files`` into the directory of ``state``.

    Threads take jobs from one queue: a small file, or a part of a large one. Their number grows while that makes the
    download faster.
    """

    def __init__(
        self, directory: Directory, state: State, source: str, files: Sequence[StoredFile], report: ScanReport
    ) -> None:
        self._directory, self._state, self._source, self._report = directory, state, source, report
        self._deadline = Deadline(directory.options.total_timeout)
        self._files = deque(files)
        self._jobs: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._made: set[Path] = set()
        self._done_files, self._done_bytes = 0, 0
        # Whether ETags that look like an MD5 are one; unknown until the first difference.
        self._has_md5 = True
        total = len(files), sum(file.size for file in files)
        report.follow(lambda: (self._done_files, total[0], self._done_bytes, total[1]))

    def run(self) -> None:
        """Transfer all files. Raises the first error, which ends the other transfers."""
        large = [file for file in self._files if file.size > PART_BYTES]
        self._state.drop_parts({self._part_of(file) for file in large})
        jobs = len(self._files) + sum(file.size // PART_BYTES for file in large)
        most = min(self._directory.options.max_concurrent_requests, jobs)
        try:
            self._start(min(most, _FIRST_THREADS))
            self._wait(most)
        finally:
            self._stopped.set()
            for thread in self._threads:
                thread.join(END_SECONDS / len(self._threads))
        if self._error is not None:
            raise self._error

    def _start(self, count: int) -> None:
        for _ in range(count):
            thread = threading.Thread(target=self._work, name="delta-sharing-download", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _wait(self, most: int) -> None:
        best, waited, before = 0.0, 0.0, self._amount()
        is_growing = len(self._threads) < most
        while any(thread.is_alive() for thread in self._threads) and self._error is None:
            for thread in self._threads:
                if thread.is_alive():
                    thread.join(LISTEN_SECONDS)
                    break
            waited += LISTEN_SECONDS
            if is_growing and waited >= _LOOK_SECONDS:
                amount = self._amount()
                rate, before, waited = (amount - before) / waited, amount, 0.0
                is_growing = rate > best * _GROWTH and len(self._threads) < most
                best = max(best, rate)
                if is_growing:
                    self._start(min(_MORE_THREADS, most - len(self._threads)))

    def _amount(self) -> int:
        return self._report.bytes + self._done_files * _FILE_BYTES

    # === In the threads ===

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                job()
        except _Stopped:
            return
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
            self._stopped.set()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._stopped.is_set():
                return None
            if self._jobs:
                return self._jobs.popleft()
            if not self._files:
                return None
            return functools.partial(self._begin, self._files.popleft())

    def _begin(self, file: StoredFile, replacements: int = 0) -> None:
        """Transfer a small file, or queue the parts of a large one."""
        if file.etag is None:
            # The listing does not tell versions apart; all bytes must be of one.
            file = self._present(file)
        if file.size <= PART_BYTES:
            self._transfer(file)
            return
        large = _LargeFile(file, self._part_of(file), replacements)
        self._report.add(bytes=file.size - large.missing_bytes)
        self._queue(large)

    def _queue(self, large: _LargeFile) -> None:
        with self._lock:
            self._jobs.extend(functools.partial(self._transfer_part, large, start) for start in large.missing)
        if not large.missing:
            self._complete(large)

    def _transfer(self, file: StoredFile) -> None:
        """Transfer a small file as a whole."""
        digests: set[str] = set()
        for _ in range(_ATTEMPTS):
            part = self._part_of(file)
            try:
                with part.open("wb", buffering=0) as out:
                    digest = self._receive(file, 0, file.size, out)
            except Refused as refused:
                file = self._replacement(file, refused)
                continue
            if self._is_right(file, digest, digests):
                self._finish(file, part)
                return
        raise self._wrong(file)

    def _transfer_part(self, large: _LargeFile, start: int) -> None:
        if large.is_stale:
            return
        file = large.file
        try:
            with large.part.open("r+b", buffering=0) as out:
                out.seek(start)
                self._receive(file, start, min(start + PART_BYTES, file.size), out)
        except Refused as refused:
            with self._lock:
                is_first, large.is_stale = not large.is_stale, True
            if is_first:
                new = self._replacement(file, refused)
                if large.replacements == _ATTEMPTS:
                    raise self._wrong(file) from None
                self._begin(new, large.replacements + 1)
            return
        if large.note(start):
            self._complete(large)

    def _complete(self, large: _LargeFile) -> None:
        digest = digest_of(large.part) if self._expected(large.file) is not None else None
        if self._is_right(large.file, digest or "", large.digests):
            large.forget()
            self._finish(large.file, large.part)
        elif len(large.digests) == _ATTEMPTS:
            raise self._wrong(large.file)
        else:
            large.restart()
            self._queue(large)

    def _expected(self, file: StoredFile) -> str | None:
        return content_md5(file.etag) if self._has_md5 else None

    def _is_right(self, file: StoredFile, digest: str, others: set[str]) -> bool:
        """Whether content with this MD5 is that of ``file``; ``others`` are the MD5 of earlier attempts."""
        expected = self._expected(file)
        if expected in (None, digest):
            return True
        if digest in others:
            # The same content twice: this store has ETags that look like an MD5 and are none.
            self._has_md5 = False
            return True
        others.add(digest)
        return False

    def _receive(self, file: StoredFile, start: int, stop: int, out: FileIO) -> str:
        """Write the bytes from ``start`` to ``stop``. Return the MD5 of a small file, if one is expected."""
        digest = hashlib.md5(usedforsecurity=False)
        is_checked = file.size <= PART_BYTES and self._expected(file) is not None
        reading = Reading(
            self._directory.place,
            file.path,
            self._directory.options,
            version=Version(file.etag or "", "", file.size),
            size=file.size,
            start=start,
            stop=stop,
            deadline=self._deadline,
            sleep=self._sleep,
        )
        for data in reading:
            self._check()
            if is_checked:
                digest.update(data)
            left = data
            while left:
                left = left[out.write(left) :]
            self._report.add(bytes=len(data))
        return digest.hexdigest() if is_checked else ""

    def _finish(self, file: StoredFile, part: Path) -> None:
        """Give a complete file its name."""
        target = self._state.directory / file.path
        if file.modified is not None:
            moment = file.modified.timestamp()
            with contextlib.suppress(OSError, OverflowError):
                os.utime(part, (moment, moment))
        facts = os.stat(part)
        self._check()
        try:
            if target.parent not in self._made:
                target.parent.mkdir(parents=True, exist_ok=True)
                self._made.add(target.parent)
            os.replace(part, target)
        except OSError as error:
            raise UsageError(f"The file '{file.path}' cannot be stored at '{target}': {error.strerror}.") from None
        if file.etag is not None:
            self._state.add(file.path, Note(self._source, file.etag, facts.st_size, facts.st_mtime_ns))
        with self._lock:
            self._done_files += 1
            self._done_bytes += file.size

    def _replacement(self, file: StoredFile, refused: Refused) -> StoredFile:
        """Return the facts of the version that replaced ``file``; raises unless that is why it was ``refused``."""
        if refused.status not in (412, 416):
            raise refusal(self._directory.ref, file.path, refused) from None
        return self._present(file)

    def _present(self, file: StoredFile) -> StoredFile:
        tries = Tries(self._directory.options, self._deadline, sleep=self._sleep)
        try:
            return tries.call(lambda: self._directory.place.head(file.path))
        except Refused as gone:
            raise refusal(self._directory.ref, file.path, gone) from None

    def _wrong(self, file: StoredFile) -> DataError:
        return DataError(
            f"The file '{file.path}' of {self._directory.ref} arrives with other content each time, or is replaced all "
            "the time; try again later."
        )

    def _part_of(self, file: StoredFile) -> Path:
        return self._state.part(file.path, file.etag, file.size)

    def _sleep(self, seconds: float) -> None:
        self._stopped.wait(seconds)
        self._check()

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _Stopped


class _LargeFile:
    """A file that is transferred in parts into ``part``. A file beside it notes which parts are complete."""

    def __init__(self, file: StoredFile, part: Path, replacements: int) -> None:
        self.file, self.part, self.replacements = file, part, replacements
        self.is_stale = False
        self.digests: set[str] = set()
        self._notes = part.with_suffix(".done")
        self._lock = threading.Lock()
        starts = range(0, file.size, PART_BYTES)
        done = self._noted() if part.exists() and part.stat().st_size == file.size else set()
        self.missing = [start for start in starts if start not in done]
        if not done:
            self.restart()

    @property
    def missing_bytes(self) -> int:
        """The size of the missing parts."""
        return sum(min(PART_BYTES, self.file.size - start) for start in self.missing)

    def restart(self) -> None:
        """Begin again with nothing."""
        self._notes.unlink(missing_ok=True)
        with self.part.open("wb") as out:
            out.truncate(self.file.size)
        self.missing = list(range(0, self.file.size, PART_BYTES))

    def note(self, start: int) -> bool:
        """Note a complete part; return whether it was the last one."""
        with self._lock:
            with self._notes.open("ab", buffering=0) as out:
                out.write(f"{start}\n".encode())
            self.missing.remove(start)
            return not self.missing

    def forget(self) -> None:
        """Remove the notes."""
        self._notes.unlink(missing_ok=True)

    def _noted(self) -> set[int]:
        try:
            lines = self._notes.read_bytes().split(b"\n")[:-1]
        except OSError:
            return set()
        return {int(line) for line in lines if line.isdigit()}
