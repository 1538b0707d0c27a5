"""The transfers of one download: many files at a time, each of which gets its name only when it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from delta_sharing_client.assets.directory import Directory, refusal
from delta_sharing_client.assets.file_list import FileList
from delta_sharing_client.assets.state import State
from delta_sharing_client.decode.file_bytes import gather
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.fetch.file_target import Workshop, download
from delta_sharing_client.fetch.place import Bytes, Checksum, StoredFile, Version
from delta_sharing_client.fetch.report import ScanReport, add_counts, follow_progress
from delta_sharing_client.fetch.source import MOST_IN_ONE_RESPONSE, Attempt, Fetcher, RemoteFile, Stale
from delta_sharing_client.parquet.byte_ranges import ByteRange, split
from delta_sharing_client.part_file import PartFile
from delta_sharing_client.run import loop

PART_BYTES = 4 * 1024 * 1024
"""Larger files arrive in parts of this size, in parallel, and are continued after an interruption."""

_MD5 = re.compile(r'"?([0-9a-f]{32})"?', re.IGNORECASE)
_READ_BYTES = 1024 * 1024


def content_md5(file: StoredFile) -> str | None:
    """Return the MD5 that a listing states, or seems to state: in S3, the ETag is the MD5 of the content, unless the
    file was uploaded in parts, or is encrypted with a customer's key or a key of the store's key service."""
    digest = _MD5.fullmatch(file.etag or "")
    return file.md5 or (None if digest is None else digest[1].lower())


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


class Transfers:
    """Transfers ``files`` into the directory of ``state``."""

    def __init__(self, directory: Directory, state: State, files: FileList, report: ScanReport) -> None:
        self._directory, self._state, self._report = directory, state, report
        self._files, self._total = files, (files.count, files.bytes)
        self._done_files, self._done_bytes = 0, 0
        follow_progress(report, lambda: (self._done_files, self._total[0], self._done_bytes, self._total[1]))

    def run(self) -> None:
        """Transfer all files. Raises the first error, which ends the other transfers."""
        self._state.drop_parts({(file.path, file.etag, file.size) for file in self._files if file.size > PART_BYTES})
        try:
            loop.cancellable(self._all)
        except OSError as error:
            where, ref = self._state.directory, self._directory.ref
            raise UsageError(f"The files of {ref} cannot be stored in '{where}': {error.strerror}.") from None

    async def _all(self) -> None:
        fetcher = Fetcher(self._directory.place, report=self._report)
        shop = Workshop(loop.current().decoders.run)
        left = enumerate(self._files)

        async def transfer_next(worker: int) -> None:
            for number, file in left:
                await self._one(fetcher, shop, number, file, worker)

        most = min(self._directory.options.max_concurrent_requests, self._total[0])
        await gather([transfer_next(worker) for worker in range(most)])

    async def _one(self, fetcher: Fetcher, shop: Workshop, number: int, file: StoredFile, worker: int) -> None:
        for attempt in (Attempt.FIRST, Attempt.AGAIN, Attempt.AGAIN, Attempt.IN_ONE_RESPONSE):
            if attempt is Attempt.IN_ONE_RESPONSE and file.size > MOST_IN_ONE_RESPONSE:
                break
            if file.etag is None:
                # The listing does not identify the version, and all bytes must come from one version.
                stated, file = file, await self._directory.stat_async(file.path)
                if file.size != stated.size:
                    raise DataError(
                        f"Expected {stated.size} bytes in the file '{file.path}' of {self._directory.ref}, but the "
                        f"storage has {file.size} bytes."
                    )
            remote = self._remote(fetcher, number, file, attempt)
            target = self._target(file, remote, worker)
            with contextlib.suppress(Stale), contextlib.closing(target):
                await download(remote, target, shop)
                self._done_files += 1
                self._done_bytes += file.size
                return
            file = await self._directory.stat_async(file.path)
        raise DataError(
            f"The file '{file.path}' of {self._directory.ref} was replaced during each attempt to download it; try "
            "again later."
        )

    def _remote(self, fetcher: Fetcher, number: int, file: StoredFile, attempt: Attempt) -> RemoteFile:
        directory = self._directory
        return RemoteFile(
            fetcher,
            key=file.path,
            url=file.path,
            size=file.size,
            file_id=None,
            attempt=attempt,
            version=Version(file.etag or "", "", file.size),
            order=(number,),
            name=f"the file '{file.path}' of {directory.ref}",
            refusal=lambda refused: refusal(directory.ref, file.path, refused),
        )

    def _target(self, file: StoredFile, remote: RemoteFile, worker: int) -> _SmallFile | _LargeFile:
        def current() -> StoredFile:
            # With the ETag of the version that arrived.
            return msgspec.structs.replace(file, etag=remote.version.etag or file.etag)

        if file.size <= PART_BYTES:
            return _SmallFile(self._state, worker, current)
        return _LargeFile(self._state, file, current, self._report)


class _SmallFile:
    """A file that arrives at once: a ``fetch.file_target.Target``. ``worker`` has no other file at the time."""

    def __init__(self, state: State, worker: int, current: Callable[[], StoredFile]) -> None:
        self._state, self._worker, self._current = state, worker, current
        self._data: Bytes = b""

    def missing(self, size: int) -> Sequence[ByteRange]:
        return [ByteRange(0, size)] if size else []

    def write(self, at: int, pieces: Sequence[Bytes], *, is_hashed: bool) -> None:
        (self._data,) = pieces

    def finish(self, checksum: Checksum | None) -> bool:
        data, self._data = self._data, b""
        if checksum is not None and hashlib.new(checksum.algorithm, data, usedforsecurity=False).digest() != (
            checksum.digest
        ):
            return False
        file = self._current()
        self._state.store(self._worker, data, file.path, file.etag, _seconds(file))
        return True

    def close(self) -> None:
        self._data = b""


class _LargeFile:
    """A file that arrives in parts: a ``fetch.file_target.Target``."""

    def __init__(self, state: State, file: StoredFile, current: Callable[[], StoredFile], report: ScanReport) -> None:
        self._state, self._file, self._current, self._report = state, file, current, report
        self._part: PartFile | None = None

    def missing(self, size: int) -> Sequence[ByteRange]:
        if self._part is None:
            self._part = self._state.large(self._file.path, self._file.etag, size, "md5")
        missing = [ByteRange(*span) for span in self._part.missing]
        add_counts(self._report, bytes=size - sum(span.length for span in missing))
        return [part for span in missing for part in split(span, PART_BYTES)]

    def write(self, at: int, pieces: Sequence[Bytes], *, is_hashed: bool) -> None:
        assert self._part is not None
        for data in pieces:
            self._part.write(at, data, is_hashed=is_hashed)
            at += len(data)

    def finish(self, checksum: Checksum | None) -> bool:
        part = self._part
        assert part is not None
        if checksum is not None and part.digest(checksum.algorithm) != checksum.digest:
            self._state.restart(part)
            return False
        file = self._current()
        self._state.finish(part, file.path, file.etag, _seconds(file))
        return True

    def close(self) -> None:
        if self._part is not None:
            self._part.close()


def _seconds(file: StoredFile) -> float | None:
    return None if file.modified is None else file.modified.timestamp()
