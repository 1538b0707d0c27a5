"""The transfers of one download: many files in parallel, each of which gets its name only when it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from io import FileIO
from pathlib import Path
from typing import Any

from delta_sharing_client.assets.directory import Directory, refusal
from delta_sharing_client.assets.file_list import FileList
from delta_sharing_client.assets.notes import Note
from delta_sharing_client.assets.parts import LargeFile
from delta_sharing_client.assets.state import State
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.source import Refused, Version
from delta_sharing_client.retry import Deadline, Tries
from delta_sharing_client.run.loop import END_SECONDS, LISTEN_SECONDS
from delta_sharing_client.storage.place import StoredFile
from delta_sharing_client.storage.reading import Reading
from delta_sharing_client.threads import start

PART_BYTES = 16 * 1024 * 1024
"""Larger files are transferred in parts of at least this size, in parallel, and continued after an interruption."""

# The largest parts have this many times ``PART_BYTES``. A part costs a round trip, so large parts save time if there
# are enough of them for all threads.
_LARGEST_PARTS = 4
_FIRST_THREADS = 8
# More parts of large files in parallel are not faster, and take memory.
_MOST_PARTS = 16
# Seconds between two measurements of the speed, and the growth that justifies doubling the threads.
_LOOK_SECONDS, _GROWTH = 1.0, 1.2
# A small file takes about as much time as this many bytes of a large one.
_FILE_BYTES = 64 * 1024
# How often the download of a file is started if the file is replaced meanwhile or arrives with the wrong content.
_ATTEMPTS = 3
_MD5 = re.compile(r'"?([0-9a-f]{32})"?', re.IGNORECASE)
_READ_BYTES = 1024 * 1024


def content_md5(etag: str | None) -> str | None:
    """Return the MD5 in an ETag, if any. In S3 and similar stores, the ETag is the MD5 of the content, unless the file
    was uploaded in parts, or is encrypted with a customer's key or a key of the store's key service."""
    digest = _MD5.fullmatch(etag or "")
    return None if digest is None else digest[1].lower()


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
    """The download was cancelled; raised in its threads."""


class _Worker(threading.local):
    """The state of one thread: the temporary path of the small file that it receives."""

    temporary: str = ""


class Transfers:
    """Transfers ``files`` into the directory of ``state``.

    A thread transfers one file after another, and a large file part by part. When all files have been started, idle
    threads help with the parts of large ones. Threads are added while that makes the download faster.
    """

    def __init__(self, directory: Directory, state: State, source: str, files: FileList, report: ScanReport) -> None:
        self._directory, self._state, self._source, self._report = directory, state, source, report
        self._place, self._options = directory.place, directory.options
        self._root = str(state.directory)
        self._deadline = Deadline(self._options.total_timeout)
        self._large = [file for file in files if file.size > PART_BYTES]
        share = sum(file.size for file in self._large) // _MOST_PARTS
        self._part_bytes = PART_BYTES * min(max(1, -(-share // PART_BYTES)), _LARGEST_PARTS)
        self._files, self._total = iter(files), (files.count, files.bytes)
        # Large files that other threads may help with, and the number of files that may soon be added to them.
        self._begun: list[LargeFile] = []
        self._opening = 0
        self._turn = threading.Condition()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._worker = _Worker()
        self._made: set[str] = set()
        self._done_files, self._done_bytes = 0, 0
        # Whether an ETag that looks like an MD5 is one. This is assumed until the content proves that it is not.
        self._has_md5 = True
        report.follow(lambda: (self._done_files, self._total[0], self._done_bytes, self._total[1]))

    def run(self) -> None:
        """Transfer all files. Raises the first error, which ends the other transfers."""
        self._state.drop_parts({self._part_of(file) for file in self._large})
        parts = sum(file.size // self._part_bytes + 1 for file in self._large)
        most = min(self._options.max_concurrent_requests, self._total[0] - len(self._large) + min(parts, _MOST_PARTS))
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
            folder = self._state.folder_for(len(self._threads))
            thread = threading.Thread(target=self._work, args=(folder,), name="delta-sharing-download", daemon=True)
            start(thread)
            self._threads.append(thread)

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
                    # If the system allows no more threads, the running ones complete the download.
                    with contextlib.suppress(UsageError):
                        self._start(min(len(self._threads), most - len(self._threads)))

    def _amount(self) -> int:
        return self._report.bytes + self._done_files * _FILE_BYTES

    # === In the threads ===

    def _work(self, folder: Path) -> None:
        self._worker.temporary = os.path.join(folder, "file")
        try:
            while not self._stopped.is_set():
                file, large = self._next()
                if file is not None:
                    large = self._begin_listed(file)
                elif large is None:
                    return
                if large is not None:
                    self._help(large)
        except _Stopped:
            return
        except BaseException as error:
            with self._turn:
                self._error = self._error or error
                self._stopped.set()
                self._turn.notify_all()

    def _next(self) -> tuple[StoredFile | None, LargeFile | None]:
        """Return a file to start, or else one to help with; neither if nothing is left to do."""
        with self._turn:
            file = next(self._files, None)
            if file is not None:
                self._opening += file.size > PART_BYTES
                return file, None
            while True:
                self._begun = [large for large in self._begun if large.missing_bytes]
                if self._begun or not self._opening or self._stopped.is_set():
                    return None, max(self._begun, key=lambda large: large.missing_bytes, default=None)
                self._turn.wait(LISTEN_SECONDS)

    def _begin_listed(self, file: StoredFile) -> LargeFile | None:
        try:
            return self._begin(file)
        finally:
            if file.size > PART_BYTES:
                with self._turn:
                    self._opening -= 1
                    self._turn.notify_all()

    def _begin(self, file: StoredFile, replacements: int = 0) -> LargeFile | None:
        """Transfer a small file; return a large file whose parts must still be transferred, if any."""
        if file.etag is None:
            # The listing does not identify the version, and all bytes must come from one version.
            file = self._present(file)
        if file.size <= PART_BYTES:
            self._transfer(file)
            return None
        is_hashed = self._expected(file) is not None
        large = LargeFile(file, self._part_of(file), self._part_bytes, replacements, is_hashed=is_hashed)
        self._report.add(bytes=file.size - large.missing_bytes)
        if large.is_complete:
            self._complete(large)
            return None
        self._share(large)
        return large

    def _share(self, large: LargeFile) -> None:
        """Let other threads help with ``large``."""
        with self._turn:
            self._begun.append(large)
            self._turn.notify_all()

    def _help(self, large: LargeFile) -> None:
        while (start := large.take()) is not None:
            self._transfer_part(large, start)

    def _transfer(self, file: StoredFile) -> None:
        """Transfer a small file as a whole."""
        digests: set[str] = set()
        temporary = self._worker.temporary
        for _ in range(_ATTEMPTS):
            digest = hashlib.md5(usedforsecurity=False) if self._expected(file) is not None else None
            try:
                with open(temporary, "wb", buffering=0) as out:
                    self._receive(file, 0, file.size, out, digest)
            except Refused as refused:
                file = self._replacement(file, refused)
                continue
            if self._is_right(file, None if digest is None else digest.hexdigest(), digests):
                self._finish(file, temporary)
                return
        raise self._wrong(file)

    def _transfer_part(self, large: LargeFile, start: int) -> None:
        if large.is_stale:
            return
        file = large.file
        try:
            with large.path.open("r+b", buffering=0) as out, large.hashing(start) as digest:
                out.seek(start)
                self._receive(file, start, large.stop(start), out, digest)
        except Refused as refused:
            with self._lock:
                is_first, large.is_stale = not large.is_stale, True
            if is_first:
                new = self._replacement(file, refused)
                if large.replacements == _ATTEMPTS:
                    raise self._wrong(file) from None
                other = self._begin(new, large.replacements + 1)
                if other is not None:
                    self._help(other)
            return
        if large.note(start):
            self._complete(large)

    def _complete(self, large: LargeFile) -> None:
        digest = None
        if self._expected(large.file) is not None:
            digest = large.digest()
        else:
            large.stop_hashing()  # another thread that noted a part may be about to hash it
        if self._is_right(large.file, digest, large.digests):
            large.forget()
            self._finish(large.file, os.fspath(large.path))
        elif len(large.digests) == _ATTEMPTS:
            raise self._wrong(large.file)
        else:
            large.restart()
            self._share(large)
            self._help(large)

    def _expected(self, file: StoredFile) -> str | None:
        return content_md5(file.etag) if self._has_md5 else None

    def _is_right(self, file: StoredFile, digest: str | None, others: set[str]) -> bool:
        """Return whether the MD5 ``digest`` is right for ``file``; ``others`` has the MD5s of earlier attempts."""
        expected = self._expected(file)
        if expected is None or digest is None or digest == expected:
            return True
        if digest in others:
            # The content was the same twice, so this store's ETags look like MD5s but are not.
            self._has_md5 = False
            return True
        others.add(digest)
        return False

    def _receive(self, file: StoredFile, start: int, stop: int, out: FileIO, digest: Any) -> None:
        """Write the bytes from ``start`` to ``stop`` to ``out``, and update ``digest``, if any, with them."""
        reading = Reading(
            self._place,
            file.path,
            self._options,
            version=Version(file.etag or "", "", file.size),
            size=file.size,
            start=start,
            stop=stop,
            deadline=self._deadline,
            sleep=self._sleep,
        )
        for data in reading:
            self._check()
            if digest is not None:
                digest.update(data)
            written = out.write(data)
            while written < len(data):
                written += out.write(data[written:])
            self._report.add(bytes=len(data))

    def _finish(self, file: StoredFile, part: str) -> None:
        """Move the complete file ``part`` to its path, and record it."""
        target = f"{self._root}/{file.path}"
        if file.modified is not None:
            moment = file.modified.timestamp()
            with contextlib.suppress(OSError, OverflowError):
                os.utime(part, (moment, moment))
        facts = os.stat(part)
        self._check()
        try:
            folder = target.rpartition("/")[0]
            if folder not in self._made:
                os.makedirs(folder, exist_ok=True)
                self._made.add(folder)
            os.replace(part, target)
        except OSError as error:
            raise UsageError(f"The file '{file.path}' cannot be stored at '{target}': {error.strerror}.") from None
        if file.etag is not None:
            self._state.add(file.path, Note(self._source, file.etag, facts.st_size, facts.st_mtime_ns))
        with self._lock:
            self._done_files += 1
            self._done_bytes += file.size

    def _replacement(self, file: StoredFile, refused: Refused) -> StoredFile:
        """Return the facts of the version that replaced ``file``; raise if it was ``refused`` for another reason."""
        if refused.status not in (412, 416):
            raise refusal(self._directory.ref, file.path, refused) from None
        return self._present(file)

    def _present(self, file: StoredFile) -> StoredFile:
        tries = Tries(self._options, self._deadline, sleep=self._sleep)
        try:
            return tries.call(lambda: self._place.head(file.path))
        except Refused as gone:
            raise refusal(self._directory.ref, file.path, gone) from None

    def _wrong(self, file: StoredFile) -> DataError:
        return DataError(
            f"The file '{file.path}' of {self._directory.ref} has different content on each attempt, or was replaced "
            "during each attempt; try again later."
        )

    def _part_of(self, file: StoredFile) -> Path:
        return self._state.part(file.path, file.etag, file.size)

    def _sleep(self, seconds: float) -> None:
        self._stopped.wait(seconds)
        self._check()

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _Stopped
