"""Shared files as they are stored: whole data files onto the local disk, and decoded deletion vectors."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.download.queue import Downloads, forget_frames
from delta_sharing_client.download.range_request import Http
from delta_sharing_client.download.remote_file import Reader, RemoteFile, Stale, Transfers
from delta_sharing_client.download.report import ScanReport
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.scan.closing import Closing
from delta_sharing_client.scan.steps import start
from delta_sharing_client.scan.tasks import FileTask, ScanContext
from delta_sharing_client.scan.vectors import Vectors

TEMPORARY_SUFFIX = ".part"

# Held in memory between network and disk, once for each request in flight.
_PART = 4 * 1024 * 1024
# A file that is said to be larger is asked for its size first.
_BELIEVED = 1 << 30


class Copies:
    """Downloads for one plan; a context manager, whose end breaks off what is in flight."""

    def __init__(self, context: ScanContext, report: ScanReport) -> None:
        options = context.options
        self._context = context
        self._report = report
        transfers = Transfers()
        self._ahead = 2 * options.max_concurrent_requests
        self._downloads = Downloads(options.max_concurrent_requests)
        self._reader = Reader(
            context.files or Http(options, context.allow_http, context.table),
            context.urls,
            report,
            transfers,
            self._downloads.answered,
            self._downloads.refused,
            self._downloads.resting,
        )
        self._closing = Closing((transfers, self._downloads))

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.close()

    def files(self, wanted: Iterable[tuple[FileTask, Path]]) -> dict[Path, str]:
        """Download each task's data file to its path, byte for byte; return the checksum (``digest_of``) of each.

        A path exists only once its file is complete and on the disk: the bytes go to a name beside it first, which
        ends in ``TEMPORARY_SUFFIX``. Broken connections are resumed, lengths checked, several files go side by side.

        Raises
        ------
        DataError, TransportError, ProtocolError
            Naming table and file id; also if a file is not Parquet.
        UsageError
            The disk does not take the bytes.
        """
        missing = list(wanted)
        total = sum(task.size for task, _ in missing if task.size > 0)
        under_way: deque[_Download] = deque()
        digests: dict[Path, str] = {}

        report = self._report
        report.follow(lambda: (report.files, len(missing), min(report.bytes, total), total))

        def tick() -> None:
            if report.on_progress is not None and (progress := report.progress) is not None:
                report.on_progress(progress)

        def finish_first() -> None:
            first = under_way[0]
            try:
                digest = first.finish(tick)
            except Stale as stale:
                forget_frames(stale)
                first.discard()
                first = under_way[0] = self._begin(first.number, first.task, first.target, again=True)
                digest = first.finish(tick)
            digests[first.target] = digest
            under_way.popleft()
            self._report.add(files=1)

        try:
            for number, (task, target) in enumerate(missing):
                under_way.append(self._begin(number, task, target))
                if len(under_way) >= self._ahead:
                    finish_first()
            while under_way:
                finish_first()
        except OSError as error:
            raise UsageError(
                f"A file of the copy cannot be written ({error.strerror}): make room, or choose another directory.",
                table=self._context.table,
            ) from None
        finally:
            if under_way:
                self._closing.close()
            for download in under_way:
                download.discard()
        return digests

    def vectors(self, tasks: Sequence[FileTask]) -> list[DeletionVector]:
        """Return the deletion vectors of ``tasks``, all of which must have one; close ones come in one request.

        Raises
        ------
        DataError, TransportError, ProtocolError
            See ``Vectors.get``.
        """
        vectors = Vectors(self._context.table, self._reader, self._downloads, self._report)
        for task in tasks:
            vectors.note(task)
        found: list[Future[DeletionVector]] = []
        for number, task in enumerate(tasks):
            assert task.without is not None
            found.append(start(vectors.get(task.without, task, number)))
        return [future.result() for future in found]

    def _begin(self, number: int, task: FileTask, target: Path, *, again: bool = False) -> _Download:
        file = RemoteFile(
            self._reader,
            key=task.key,
            url=task.url,
            size=task.size,
            file_id=task.file_id,
            expiration_ms=0 if again else task.expiration_ms,
        )
        if file.size < 0 or file.size > _BELIEVED:
            # What a server says of a file costs it nothing; its store tells how much there is.
            total, _ = file.read_tail(1)
            file.check_total(total)
            file.size = total
        self._report.begin(file.size)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
        temporary.open("xb").close()

        def fill(part: ByteRange) -> None:
            data = file.read(part)
            with temporary.open("r+b") as stream:
                stream.seek(part.start)
                stream.write(data)

        parts = (
            self._downloads.submit((number, place), part.length, functools.partial(fill, part))
            for place, part in enumerate(_parts(file.size))
        )
        return _Download(number, task, file, temporary, target, parts, deque(islice(parts, self._ahead)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Download:
    number: int
    task: FileTask
    file: RemoteFile
    temporary: Path
    target: Path
    later: Iterator[Future[None]]
    under_way: deque[Future[None]]

    def finish(self, tick: Callable[[], None]) -> str:
        """Wait for the parts, each followed by a ``tick``, and give the file its name; return its checksum."""
        while self.under_way:
            self.under_way[0].result()
            self.under_way.popleft()
            self.under_way.extend(islice(self.later, 1))
            tick()
        try:
            pq.read_metadata(self.temporary)
        except pa.ArrowException:
            raise self.file.error(DataError, "it should be a Parquet file, but has no footer of one") from None
        # A name in a log must not outlive, in a power cut, the bytes that it stands for.
        with self.temporary.open("r+b") as stream:
            os.fsync(stream.fileno())
        digest = digest_of(self.temporary)
        os.replace(self.temporary, self.target)
        return digest

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while data := stream.read(_PART):
            digest.update(data)
    return digest.hexdigest()


def _parts(size: int) -> Iterator[ByteRange]:
    for first in range(0, size, _PART):
        yield ByteRange(first, min(first + _PART, size))
