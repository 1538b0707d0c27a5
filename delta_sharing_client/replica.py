"""Keeps a local Delta copy of a shared table up to date by downloading only new files.

The copy is a Delta table of its own::

    <directory>/
      _delta_log/                            versions 0, 1, 2 ...: one for each update that changed something
      data/<hash of server and file id>.parquet  data files, byte for byte
      vectors/deletion_vector_<uuid>.bin     deletion vectors, one per file

All paths in its log are relative, so the directory can be moved. The version of the shared table is in the log as the
transaction of the application ``APPLICATION``, and the checksum of each data file as its tag ``CHECKSUM``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from delta_sharing_client import durable
from delta_sharing_client.decode.file_bytes import gather
from delta_sharing_client.decode.vectors import Vectors
from delta_sharing_client.delta.actions import (
    AddFile,
    DeletionVectorDescriptor,
    Metadata,
    Protocol,
    RemoveFile,
    SharedFile,
    Transaction,
)
from delta_sharing_client.delta.data_types import StructType
from delta_sharing_client.delta.deletion_vectors import (
    DeletionVector,
    decode_file,
    encode_file,
    relative_path,
    z85_encode,
)
from delta_sharing_client.delta.log.commit import Commit
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.log_files import LOG_DIRECTORY
from delta_sharing_client.delta.log.log_lines import action_fields
from delta_sharing_client.delta.log.writer import UNFINISHED, add_checkpoint, append_commit, write_log
from delta_sharing_client.delta.paths import logical_file_key, shared_file_key, without_query
from delta_sharing_client.delta.schema import schema_to_json
from delta_sharing_client.delta.snapshot import Snapshot, Want
from delta_sharing_client.errors import DataError, ProtocolError, UsageError, check_memory
from delta_sharing_client.fetch.file_target import Workshop, download
from delta_sharing_client.fetch.place import Bytes, Checksum
from delta_sharing_client.fetch.report import ScanReport, add_counts, file_started, follow_progress
from delta_sharing_client.fetch.source import MOST_IN_ONE_RESPONSE, Attempt, Fetcher, RemoteFile, Stale
from delta_sharing_client.file_lock import FileLock
from delta_sharing_client.local_folder import is_link
from delta_sharing_client.local_paths import expanded
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange, split
from delta_sharing_client.plan.read_columns import check_nothing_left_out
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.plan.tasks import FileTask, ScanContext
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.run import loop
from delta_sharing_client.run.progress import progress_bar
from delta_sharing_client.sources.choosing import source_of
from delta_sharing_client.sources.planning import plan_copy

APPLICATION = "delta-sharing-client.replica"
CHECKSUM = "delta-sharing-client.sha256"

_DATA = "data"
_VECTORS = "vectors"
_LOCK = ".replica.lock"
_OURS = re.compile(r"[0-9a-f]{40}\.parquet|deletion_vector_[0-9a-f-]{36}\.bin")
_NAMESPACE = uuid.UUID("5d0b0f0c-7d52-5a3b-9d4e-6a1c2f8e4b17")
_CHECKPOINT_INTERVAL = 10
_TEMPORARY_SUFFIX = ".part"
# Each concurrent request holds up to this many bytes in memory between network and disk.
_PART = 4 * 1024 * 1024
# If a server states a larger size for a file, a request to the storage checks it first.
_BELIEVED = 1 << 30
# Properties that do not apply to a copy, because its commits are updates of the copy, not the commits of the table.
_NOT_COPIED = (
    "delta.enablechangedatafeed",
    "delta.enableincommittimestamps",
    "delta.incommittimestampenablement",
    "delta.coordinatedcommits",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replica:
    """A local copy after an update.

    Attributes
    ----------
    directory:
        The copy: a Delta table.
    version:
        Version of the shared table that the copy holds.
    local_version:
        Version of the copy itself; it grows by one with each update that changes something.
    num_files, size:
        The number of data files in the copy's current version, and their size in bytes.
    downloaded_files, downloaded_bytes:
        The number of data files that this update downloaded, and of all bytes that it downloaded, including deletion
        vectors.
    deleted_files:
        The number of old files that this update removed from the disk.
    """

    directory: Path
    version: int
    local_version: int
    num_files: int
    size: int
    downloaded_files: int
    downloaded_bytes: int
    deleted_files: int


def replicate(
    rest: RestClient,
    table: AssetName,
    directory: str | os.PathLike[str],
    read: ScanRequest,
    options: ReadOptions,
    *,
    retention: datetime.timedelta | None,
    repair: bool = False,
) -> Replica:
    """Make ``directory`` a copy of ``table``, or update the copy in it.

    See ``SharedTable.replicate``, also for the errors. ``read`` must ask for all rows.
    """
    if retention is not None and retention < datetime.timedelta(0):
        raise UsageError(f"'retention' must not be negative, found {retention}.")
    root = Path(os.path.abspath(expanded(directory)))
    try:
        root.mkdir(parents=True, exist_ok=True)
        _refuse_links(root)
        with FileLock(root / _LOCK, f"Another update of the copy in '{root}' is running: wait until it has ended."):
            return _update(rest, table, root, read, options, retention, repair)
    except OSError as error:
        raise UsageError(
            f"The copy in '{root}' cannot be written ({error.strerror}): free disk space, grant permission or choose "
            "another directory.",
            table=str(table),
        ) from None


def _refuse_links(root: Path) -> None:
    """Raise ``UsageError`` for a copy with links, which may lead out of its directory."""
    for name in (LOG_DIRECTORY, _DATA, _VECTORS, _LOCK):
        if os.path.lexists(root / name) and is_link(os.lstat(root / name)):
            raise UsageError(
                f"'{root / name}' is a link, but a copy must lie in its own directory: remove the link, or choose "
                "another directory."
            )


def _update(
    rest: RestClient,
    table: AssetName,
    root: Path,
    read: ScanRequest,
    options: ReadOptions,
    retention: datetime.timedelta | None,
    repair: bool,
) -> Replica:
    before = _current(root)
    # If no columns are given, columns of unknown types are refused below, so this read need not warn about them.
    columns = () if read.columns is None else read.columns
    source = source_of(rest.for_read(options), table, options)
    snapshot, shared, plan = plan_copy(source, dataclasses.replace(read, columns=columns))
    snapshot = _narrowed(snapshot, plan.context, read, f"The copy in '{root}'")
    if not snapshot.metadata.id:
        raise ProtocolError(
            f"A local copy needs the id of '{table}' (metaData.id), but the server sent none. Ask the data provider to "
            "share it.",
            table=str(table),
        )
    if before is not None and before.metadata.id != snapshot.metadata.id:
        raise UsageError(
            f"'{root}' holds a copy of the table with the id '{before.metadata.id}', but '{table}' has the id "
            f"'{snapshot.metadata.id}': choose another directory.",
            table=str(table),
        )
    report = ScanReport()
    with progress_bar(f"copying {table}", options.progress, report):
        fetch = _Fetch(root, before, plan.context, report, repair, server=rest.profile.endpoint)
        files = fetch.run(shared, plan.tasks)
    after = _commit(root, before, snapshot, files)
    horizon = 0 if retention is None else int(time.time() * 1000) - retention // datetime.timedelta(milliseconds=1)
    kept = [item for item in after.tombstones if (item.deletion_timestamp or 0) > horizon]
    if after is not before and after.version % _CHECKPOINT_INTERVAL == 0 and after.version > 0:
        add_checkpoint(root, dataclasses.replace(after, tombstones=kept))
    return Replica(
        directory=root,
        version=snapshot.version,
        local_version=after.version,
        num_files=len(after.files),
        size=sum(item.size for item in after.files),
        downloaded_files=report.files,
        downloaded_bytes=report.bytes,
        deleted_files=_clean(root, [*after.files, *kept]),
    )


def _narrowed(snapshot: Snapshot, context: ScanContext, read: ScanRequest, what: str) -> Snapshot:
    """Return ``snapshot`` with the schema of the copy: the columns that ``read`` names, and the partition columns."""
    schema = context.schema
    if read.columns is None or any(schema.find(name) is None for name in context.partition_columns):
        check_nothing_left_out(schema, what)
        return snapshot
    partitions = [field for name in context.partition_columns if (field := schema.find(name)) is not None]
    kept = {field.name: field for field in partitions}
    kept |= {column.name: column.field for column in context.output if column.field is not None}
    narrowed = StructType(tuple(kept[name] for name in schema.names if name in kept))
    return dataclasses.replace(snapshot, metadata=replace(snapshot.metadata, schema_string=schema_to_json(narrowed)))


class _Fetch:
    """The downloads of one update: the files and deletion vectors that the copy ``before`` lacks."""

    def __init__(
        self,
        root: Path,
        before: Snapshot | None,
        context: ScanContext,
        report: ScanReport,
        repair: bool,
        *,
        server: str,
    ) -> None:
        self._root = root
        self._server = server
        self._context = context
        self._report = report
        files: list[AddFile | RemoveFile] = [] if before is None else [*before.tombstones, *before.files]
        vectors = (item.deletion_vector for item in files)
        self._vectors = {vector.path_or_inline_dv: vector for vector in vectors if vector is not None}
        self._digests = {item.path: item.tags[CHECKSUM] for item in files if item.tags and CHECKSUM in item.tags}
        self._repair = repair

    def run(self, files: Sequence[SharedFile], tasks: Sequence[FileTask]) -> list[AddFile]:
        """Download the bytes of ``files`` that are missing, and return the files as entries of the copy's log."""
        paths = [f"{_DATA}/{_file_name(self._server, item)}" for item in files]
        copies = Copies(self._context, self._report)
        downloaded = copies.files(
            (task, self._root / path)
            for task, path in zip(tasks, paths, strict=True)
            if not self._has_file(path, task.size)
        )
        self._digests |= {path.relative_to(self._root).as_posix(): digest for path, digest in downloaded.items()}
        vectors = self._fetch_vectors(files, tasks, copies)
        return [
            replace(
                add,
                path=path,
                size=(self._root / path).stat().st_size,
                tags=self._tags(add, path),
                data_change=True,
                deletion_vector=vector,
            )
            for add, path, vector in zip((file.action for file in files), paths, vectors, strict=True)
            if isinstance(add, AddFile)
        ]

    def _has_file(self, path: str, size: int) -> bool:
        """Return whether the copy has the file, with this size (-1 if unknown). A repair also compares its checksum."""
        try:
            if (self._root / path).stat().st_size != size and size != -1:
                return False
        except FileNotFoundError:
            return False
        return not self._repair or self._digests.get(path) == _digest_of(self._root / path)

    def _has_vector(self, descriptor: DeletionVectorDescriptor) -> bool:
        try:
            if self._repair:
                decode_file((self._root / relative_path(descriptor)).read_bytes(), descriptor)
            return (self._root / relative_path(descriptor)).is_file()
        except (DataError, FileNotFoundError):
            return False

    def _tags(self, file: AddFile, path: str) -> dict[str, str | None] | None:
        # A copy made by an earlier release has no checksums; a repair adds them.
        digest = self._digests.get(path)
        return file.tags if digest is None else {**(file.tags or {}), CHECKSUM: digest}

    def _fetch_vectors(
        self, files: Sequence[SharedFile], tasks: Sequence[FileTask], copies: Copies
    ) -> list[DeletionVectorDescriptor | None]:
        descriptors: list[DeletionVectorDescriptor | None] = []
        missing: list[tuple[int, FileTask, uuid.UUID]] = []
        for place, (item, task) in enumerate(zip(files, tasks, strict=True)):
            descriptor = None if task.without is None else task.without.descriptor
            if descriptor is not None and descriptor.storage_type != "i":
                name = _vector_name(self._server, item)
                descriptor = self._vectors.get(_VECTORS + z85_encode(name.bytes))
                if descriptor is None or not self._has_vector(descriptor):
                    missing.append((place, task, name))
            descriptors.append(descriptor)
        vectors = copies.vectors([task for _, task, _ in missing])
        for (place, _, name), vector in zip(missing, vectors, strict=True):
            content, (descriptor,) = encode_file([vector], name, prefix=_VECTORS)
            path = self._root / relative_path(descriptor)
            temporary = _temporary(path)
            temporary.write_bytes(content)
            durable.rename(temporary, path)
            descriptors[place] = descriptor
        return descriptors


def _commit(root: Path, before: Snapshot | None, shared: Snapshot, files: list[AddFile]) -> Snapshot:
    """Write the copy's next version, unless nothing changed, and return the copy's snapshot."""
    now = int(time.time() * 1000)
    transaction = Transaction(APPLICATION, shared.version, now)
    metadata = replace(shared.metadata, configuration=_copied_properties(shared.metadata))
    # Converted to the form that is read from a log; otherwise every update would seem to change the protocol.
    protocol = msgspec.convert(action_fields(shared.protocol), Protocol)
    if before is None:
        write_log(
            root,
            dataclasses.replace(
                shared,
                version=0,
                timestamp_ms=now,
                protocol=protocol,
                metadata=metadata,
                files=files,
                transactions={APPLICATION: transaction},
            ),
        )
        return _opened(root)
    old = {logical_file_key(item): item for item in before.files}
    new = {logical_file_key(item): item for item in files}
    commit = Commit(
        version=before.version + 1,
        timestamp_ms=max(now, before.timestamp_ms or 0),
        protocol=protocol if protocol != before.protocol else None,
        metadata=metadata if metadata != before.metadata else None,
        adds=tuple(item for key, item in new.items() if old.get(key) != item),
        removes=tuple(_removed(item, now) for key, item in old.items() if key not in new),
        transactions=(transaction,),
    )
    changed = commit.protocol or commit.metadata or commit.adds or commit.removes
    if not changed and before.transactions[APPLICATION].version == shared.version:
        return before
    append_commit(root, commit, protocol=protocol, metadata=metadata)
    return _opened(root)


def _current(root: Path) -> Snapshot | None:
    """Return the copy in ``root``, or ``None``."""
    log = root / LOG_DIRECTORY
    if not log.is_dir() or all(entry.name.startswith(".") for entry in log.iterdir()):
        return None
    snapshot = _opened(root)
    if APPLICATION not in snapshot.transactions:
        raise UsageError(f"'{root}' holds a Delta table that replicate did not create: choose another directory.")
    return snapshot


def _opened(root: Path) -> Snapshot:
    return DeltaLog.open(root).snapshot(want=Want.STATS | Want.TOMBSTONES)


def _copied_properties(metadata: Metadata) -> dict[str, str]:
    return {name: value for name, value in metadata.properties.items() if not name.lower().startswith(_NOT_COPIED)}


def _file_name(server: str, file: SharedFile) -> str:
    """Return a name that depends on the file id, which means the same file in every response of ``server`` (protocol,
    "File"). Another server may use the same ids, also those of the table, for other files."""
    named = json.dumps([server, file.file_id or without_query(file.action.path)])
    return f"{hashlib.sha256(named.encode()).hexdigest()[:40]}.parquet"


def _vector_name(server: str, file: SharedFile) -> uuid.UUID:
    key = shared_file_key(file)
    return uuid.uuid5(_NAMESPACE, repr((_file_name(server, file), key[1])))


def _removed(file: AddFile, now: int) -> RemoveFile:
    return RemoveFile(
        path=file.path,
        deletion_timestamp=now,
        extended_file_metadata=True,
        partition_values=file.partition_values,
        size=file.size,
        tags=file.tags,
        deletion_vector=file.deletion_vector,
        base_row_id=file.base_row_id,
        default_row_commit_version=file.default_row_commit_version,
    )


def _temporary(path: Path) -> Path:
    """Return an unused name in the folder of ``path``; the folder is created if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}{_TEMPORARY_SUFFIX}")


def _clean(root: Path, needed: Sequence[AddFile | RemoveFile]) -> int:
    """Delete the copy's files that ``needed`` does not name, including leftovers of interrupted updates; return the
    number of deleted files."""
    paths = {path for item in needed for path in _paths(item)}
    deleted = 0
    for name in os.listdir(root / LOG_DIRECTORY):
        if UNFINISHED.fullmatch(name):
            (root / LOG_DIRECTORY / name).unlink(missing_ok=True)
    for folder in (_DATA, _VECTORS):
        if not (root / folder).is_dir():
            continue
        for name in os.listdir(root / folder):
            if name.startswith(".") and name.endswith(_TEMPORARY_SUFFIX):
                (root / folder / name).unlink(missing_ok=True)
            elif _OURS.fullmatch(name) and f"{folder}/{name}" not in paths:
                (root / folder / name).unlink(missing_ok=True)
                deleted += 1
    return deleted


def _paths(action: AddFile | RemoveFile) -> Iterator[str]:
    yield action.path
    if action.deletion_vector is not None and action.deletion_vector.storage_type == "u":
        yield relative_path(action.deletion_vector)


# === Downloads ===


class Copies:
    """Gets the files of one plan as they are stored: downloads data files to disk, and decodes deletion vectors."""

    def __init__(self, context: ScanContext, report: ScanReport) -> None:
        self._context = context
        self._report = report
        self._most = context.options.max_concurrent_requests

    def files(self, wanted: Iterable[tuple[FileTask, Path]]) -> dict[Path, str]:
        """Download each task's data file unchanged to its path, and return the checksum (``_digest_of``) of each file.

        A path exists only once its file is complete and on disk: the bytes are first written to a temporary name that
        ends in ``_TEMPORARY_SUFFIX``. Interrupted downloads are resumed, lengths are checked, and several files are
        downloaded concurrently. Raises ``DataError`` (also for a file that is not Parquet), ``TransportError`` and
        ``ProtocolError`` with table and file id, and ``UsageError`` if the disk cannot be written.
        """
        missing = list(wanted)
        total = sum(task.size for task, _ in missing if task.size > 0)
        report = self._report
        follow_progress(report, lambda: (report.files, len(missing), min(report.bytes, total), total))
        try:
            digests = loop.call(self._files(missing))
        except OSError as error:
            raise UsageError(
                f"A file of the copy cannot be written ({error.strerror}): free disk space or choose another "
                "directory.",
                table=self._context.table,
            ) from None
        return {target: digest for (_, target), digest in zip(missing, digests, strict=True)}

    def vectors(self, tasks: Sequence[FileTask]) -> list[DeletionVector]:
        """Return the deletion vectors of ``tasks``, each of which must have one. One request downloads vectors that lie
        close together in a file. Raises the errors of ``Vectors.get``."""

        async def found() -> list[DeletionVector]:
            vectors = Vectors(self._context.table, self._context.fetcher(self._report))
            for task in tasks:
                vectors.note(task)
            return await gather(
                [vectors.get(task.without, task, number) for number, task in enumerate(tasks) if task.without]
            )

        return loop.call(found())

    async def _files(self, missing: Sequence[tuple[FileTask, Path]]) -> list[str]:
        fetcher, left, digests = self._context.fetcher(self._report), iter(enumerate(missing)), [""] * len(missing)
        shop = Workshop(loop.current().decoders.run)

        async def copy_next() -> None:
            for number, (task, path) in left:
                digests[number] = await self._copy(fetcher, shop, task, path, number)
                add_counts(self._report, files=1)

        await gather([copy_next() for _ in range(min(self._most, len(missing)))])
        return digests

    async def _copy(self, fetcher: Fetcher, shop: Workshop, task: FileTask, path: Path, number: int) -> str:
        target = _CopiedFile(path)
        attempt = Attempt.FIRST
        try:
            while True:
                file = task.remote_file(fetcher, attempt=attempt, order=(number, 0))
                try:
                    await self._check_size(file)
                    await download(file, target, shop)
                except Stale as stale:
                    if attempt is Attempt.IN_ONE_RESPONSE or (attempt and file.size > MOST_IN_ONE_RESPONSE):
                        raise stale.ended() from None
                    attempt = Attempt(attempt + 1)
                except pa.ArrowException as error:
                    check_memory(error)
                    raise file.error(DataError, "it should be a Parquet file, but has no Parquet footer") from None
                else:
                    return target.digest
        finally:
            target.drop()

    async def _check_size(self, file: RemoteFile) -> None:
        if file.size < 0 or file.size > _BELIEVED:
            # The size that a server states may be wrong; the storage reports the real one.
            total, _ = await file.read_tail(1)
            file.check_total(total)
            file.size = total
        file_started(self._report, file.size)


class _CopiedFile:
    """A data file of the copy that arrives in parts: a ``fetch.file_target.Target``. ``digest`` is its checksum."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = _temporary(path)
        self.digest = ""

    def missing(self, size: int) -> Sequence[ByteRange]:
        self._temporary.open("wb").close()
        return split(ByteRange(0, size), _PART) if size else []

    def write(self, at: int, pieces: Sequence[Bytes], *, is_hashed: bool) -> None:
        with self._temporary.open("r+b") as stream:
            stream.seek(at)
            stream.writelines(pieces)

    def finish(self, checksum: Checksum | None) -> bool:
        if checksum is not None and _digest_of(self._temporary, checksum.algorithm) != checksum.digest.hex():
            return False
        pq.read_metadata(self._temporary)
        self.digest = _digest_of(self._temporary)
        # After a power failure, the log must not name a file whose bytes were lost.
        durable.rename(self._temporary, self._path)
        return True

    def drop(self) -> None:
        """Remove what has arrived of an incomplete file."""
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


def _digest_of(path: Path, algorithm: str = "sha256") -> str:
    """Return the checksum of a file, by default SHA-256, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
