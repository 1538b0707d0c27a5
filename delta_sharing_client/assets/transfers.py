"""The transfers of one download: many files at a time, each of which gets its name only when it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path

from delta_sharing_client.assets.directory import Directory, refusal
from delta_sharing_client.assets.file_list import FileList
from delta_sharing_client.assets.notes import Note
from delta_sharing_client.assets.parts import PART_BYTES, LargeFile, SmallFile
from delta_sharing_client.assets.state import State
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.fetch.file_target import Target, Workshop, download
from delta_sharing_client.fetch.place import StoredFile, Version
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.source import MOST_IN_ONE_RESPONSE, Attempt, Fetcher, RemoteFile, Stale
from delta_sharing_client.read.file_bytes import gather
from delta_sharing_client.run import loop

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

    def __init__(self, directory: Directory, state: State, source: str, files: FileList, report: ScanReport) -> None:
        self._directory, self._state, self._source, self._report = directory, state, source, report
        self._files, self._total = files, (files.count, files.bytes)
        self._root = str(state.directory)
        self._made: set[str] = set()
        self._done_files, self._done_bytes = 0, 0
        report.follow(lambda: (self._done_files, self._total[0], self._done_bytes, self._total[1]))

    def run(self) -> None:
        """Transfer all files. Raises the first error, which ends the other transfers."""
        self._state.drop_parts({self._state.part(f.path, f.etag, f.size) for f in self._files if f.size > PART_BYTES})
        loop.call(self._all())

    async def _all(self) -> None:
        fetcher = Fetcher(self._directory.place, report=self._report)
        shop = Workshop(loop.current().decoders.run)
        left = enumerate(self._files)

        async def transfer_next(worker: int) -> None:
            folder = await shop.run(lambda: self._state.folder_for(worker))
            for number, file in left:
                await self._one(fetcher, shop, number, file, os.path.join(folder, "file"))

        most = min(self._directory.options.max_concurrent_requests, self._total[0])
        await gather([transfer_next(worker) for worker in range(most)])

    async def _one(self, fetcher: Fetcher, shop: Workshop, number: int, file: StoredFile, temporary: str) -> None:
        for attempt in (Attempt.FIRST, Attempt.AGAIN, Attempt.AGAIN, Attempt.IN_ONE_RESPONSE):
            if attempt is Attempt.IN_ONE_RESPONSE and file.size > MOST_IN_ONE_RESPONSE:
                break
            if file.etag is None:
                # The listing does not identify the version, and all bytes must come from one version.
                file = await self._directory.stat_async(file.path)
            remote = self._remote(fetcher, number, file, attempt)
            with contextlib.suppress(Stale):
                await download(remote, self._target(file, remote, temporary), shop)
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

    def _target(self, file: StoredFile, remote: RemoteFile, temporary: str) -> Target:
        def keep(part: str) -> None:
            self._keep(file, remote.version.etag or file.etag, part)

        if file.size <= PART_BYTES:
            return SmallFile(temporary, keep)
        return LargeFile(file, self._state.part(file.path, file.etag, file.size), keep, self._report)

    def _keep(self, file: StoredFile, etag: str | None, part: str) -> None:
        """Move the complete file ``part`` to its path, and record it with the ETag of its version."""
        target = f"{self._root}/{file.path}"
        if file.modified is not None:
            moment = file.modified.timestamp()
            with contextlib.suppress(OSError, OverflowError):
                os.utime(part, (moment, moment))
        facts = os.stat(part)
        try:
            folder = target.rpartition("/")[0]
            if folder not in self._made:
                os.makedirs(folder, exist_ok=True)
                self._made.add(folder)
            os.replace(part, target)
        except OSError as error:
            raise UsageError(f"The file '{file.path}' cannot be stored at '{target}': {error.strerror}.") from None
        if etag is not None:
            self._state.add(file.path, Note(self._source, etag, facts.st_size, facts.st_mtime_ns))
