"""The state of the downloads into one directory, in its folder ``.delta-sharing``: which asset's download wrote each
file, and the parts of incomplete files.

A record is written as soon as a file is complete, and so survives if the process is killed later. The folder can be
deleted at any time: files are then compared by their content, or downloaded again.

Nothing here follows a link below the directory, trusts a line of the records that no download could have written, or
changes a file that another program may know by another name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from delta_sharing_client.assets.naming import STATE_FOLDER
from delta_sharing_client.assets.written_files import WrittenFile, WrittenFiles, line_of
from delta_sharing_client.errors import UsageError
from delta_sharing_client.file_lock import FileLock
from delta_sharing_client.local_folder import LocalFolder, is_link
from delta_sharing_client.part_file import JOURNAL_SUFFIX, Data, PartFile

_RECORDS, _PARTS, _LOCK = "files.jsonl", "parts", "lock"
# Incomplete large files, with the asset and the version in their names; and a folder of small files for each worker.
_PART = re.compile(rf"([0-9a-f]{{16}})-[0-9a-f]{{32}}(?:{re.escape(JOURNAL_SUFFIX)})?")
_WORKER = re.compile(r"[0-9]{1,6}")
_SMALL = "file"
# How many directories of the last files remain open.
_MOST_OPEN = 16


class Origin(NamedTuple):
    """Where the files of a download come from: an identification of the asset, and one of the location of its files,
    which differs between versions of a model. Both are digests, so that they reveal nothing."""

    asset: str
    source: str


class State:
    """The records and incomplete files of one directory, for downloads from ``origin``. Threads may finish files at the
    same time."""

    def __init__(self, directory: Path, origin: Origin) -> None:
        self.directory, self._origin = directory, origin
        self._written: WrittenFiles | None = None
        self._lock = threading.Lock()
        self._turn = threading.Condition()
        # How many threads use the open directories.
        self._users = 0
        self._out = -1
        self._root: LocalFolder | None = None
        self._folder: LocalFolder | None = None
        self._parts: LocalFolder | None = None
        self._workers: dict[int, LocalFolder] = {}
        self._parents: _Parents | None = None

    @property
    def written_files(self) -> WrittenFiles:
        """The records as they were when first used, or when ``writing`` began."""
        if self._written is None:
            self._written = self._read_written()
        return self._written

    def close(self) -> None:
        """Close the file of the records; the next use of ``records`` opens it again."""
        if self._written is not None:
            self._written.close()
            self._written = None

    # === What is here ===

    def local(self, path: str) -> os.stat_result | None:
        """Return the status of the local file; ``None`` if there is no regular file."""
        try:
            facts = os.lstat(f"{self.directory}/{path}")
        except (OSError, ValueError):
            return None
        return facts if stat.S_ISREG(facts.st_mode) else None

    def is_noted(self, path: str, etag: str | None, size: int) -> bool:
        """Return whether the local file has the content with this ETag and size."""
        record, local = self.written_files.get(path), self.local(path)
        return (
            record is not None
            and etag is not None
            and (record.source, record.etag, record.size) == (self._origin.source, etag, size)
            and local is not None
            and _is_as_recorded(local, record)
        )

    def written(self) -> Iterator[str]:
        """Iterate over the paths of files that downloads of this asset wrote, and that have not changed since."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._opened_root() as root:
            for path, record in self.written_files:
                if record.asset == self._origin.asset and _is_unchanged(root, path, record):
                    yield path

    def is_one_file(self, path: str, other: str) -> bool:
        """Return whether two paths lead to one local file, as they do if the disk ignores the case of names."""
        one, two = self.local(path), self.local(other)
        return one is not None and two is not None and os.path.samestat(one, two)

    # === Changes ===

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the directory for the ``with`` block; ``UsageError`` if another process has locked it, or if the folder
        of the state cannot be used. At the end, the incomplete files of this asset are deleted, unless the block
        raises."""
        with contextlib.ExitStack() as stack:
            try:
                self._begin(stack)
            except OSError as error:
                where = self.directory / STATE_FOLDER
                raise UsageError(
                    f"The state of downloads in '{where}' cannot be written: {error.strerror}. Choose another "
                    "directory."
                ) from None
            yield
            self._clear()

    def _begin(self, stack: contextlib.ExitStack) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        root = stack.enter_context(LocalFolder.open(self.directory))
        folder = stack.enter_context(root.folder(STATE_FOLDER, create=True))
        taken = f"Another download into '{self.directory}' is running: wait until it has ended."
        lock = self.directory / STATE_FOLDER / _LOCK
        stack.enter_context(FileLock(lock, taken, lambda: folder.open_file(_LOCK, os.O_RDWR | os.O_CREAT)))
        parts = stack.enter_context(folder.folder(_PARTS, create=True))
        _check_parts(parts)
        stack.callback(self._leave)
        self._root, self._folder, self._parts = root, folder, parts
        self._parents = _Parents(root, folder)
        self._tidy(folder)
        self._out = folder.open_file(_RECORDS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _clear(self) -> None:
        assert self._parts is not None
        assert self._folder is not None
        self.drop_parts(set())
        for folder in self._workers.values():
            folder.close()
        self._workers.clear()
        for name in filter(_WORKER.fullmatch, self._parts.names()):
            _drop_worker(self._parts, name)
        # Incomplete files of other assets stay, and so does what another program put there.
        with contextlib.suppress(OSError):
            self._folder.rmdir(_PARTS)

    @contextlib.contextmanager
    def _using(self) -> Iterator[_Parents]:
        """Keep the directories open during the block; ``UsageError`` if ``writing`` has ended."""
        with self._turn:
            if self._root is None or self._parents is None:
                raise UsageError(f"The download into '{self.directory}' has ended.")
            self._users += 1
            parents = self._parents
        try:
            yield parents
        finally:
            with self._turn:
                self._users -= 1
                self._turn.notify_all()

    def _leave(self) -> None:
        # A thread of a download that was cancelled may still store a file.
        with self._turn:
            self._root = None
            self._turn.wait_for(lambda: not self._users)
        with self._lock:
            out, self._out = self._out, -1
            workers, self._workers = self._workers, {}
        if out >= 0:
            os.close(out)
        if self._parents is not None:
            self._parents.close()
        for folder in workers.values():
            folder.close()
        self._folder = self._parts = self._parents = None
        self.close()

    def finish(self, part: PartFile, path: str, etag: str | None, modified: float | None) -> None:
        """Give a complete file its path, and record it. Raises ``UsageError`` if the path cannot be written."""
        folder, _, name = path.rpartition("/")
        try:
            with self._using() as parents, parents.opened(folder) as parent:
                facts = parent.stat(name)
                if facts is not None and not stat.S_ISREG(facts.st_mode):
                    raise parent.wrong(name, "file", facts)
                facts = part.finish(parent, name, modified=modified)
            asset, source = self._origin
            self._add(path, WrittenFile(asset, source, etag or "", facts.st_size, facts.st_mtime_ns))
        except OSError as error:
            where = f"{self.directory}/{path}"
            raise UsageError(f"The file '{path}' cannot be stored at '{where}': {error.strerror}.") from None

    def verified(self, path: str, etag: str, local: os.stat_result) -> None:
        """Record that the ``local`` file, which was here before, has the content with this ETag. It counts as written
        by a download only if it was."""
        before = self.written_files.get(path)
        asset = before.asset if before is not None else ""
        self._add(path, WrittenFile(asset, self._origin.source, etag, local.st_size, local.st_mtime_ns))

    def remove(self, path: str) -> bool:
        """Remove a file that a download of this asset wrote; return whether it was still there, without any change.
        Raises ``UsageError`` if it cannot be removed."""
        record = self.written_files.get(path)
        if record is None or record.asset != self._origin.asset:
            return False
        assert self._root is not None
        *folders, name = path.split("/")
        try:
            if not _is_unchanged(self._root, path, record):
                return False
            with self._root.below(folders) as parent:
                parent.unlink(name)
        except OSError as error:
            raise UsageError(f"The file '{self.directory}/{path}' cannot be removed: {error.strerror}.") from None
        self._add(path, None)
        return True

    def store(self, worker: int, data: Data, path: str, etag: str | None, modified: float | None) -> None:
        """Store a small file as a whole. Each worker has its own number: workers that write into one directory would
        wait for each other."""
        with self._using():
            with self._lock:
                folder = self._workers.get(worker)
                if folder is None:
                    assert self._parts is not None
                    folder = self._workers[worker] = self._parts.folder(str(worker), create=True)
            with PartFile(folder, _SMALL, len(data)) as part:
                part.write(0, data)
                self.finish(part, path, etag, modified)

    def large(self, path: str, etag: str | None, size: int, algorithm: str | None) -> PartFile:
        """Begin or continue a large file of this version, which the caller closes."""
        with self._using():
            assert self._parts is not None
            return PartFile(self._parts, self._part_name(path, etag, size), size, algorithm=algorithm, keeps=True)

    def restart(self, part: PartFile) -> None:
        """Forget all bytes of a large file."""
        with self._using():
            part.restart()

    def drop_parts(self, keep: set[tuple[str, str | None, int]]) -> None:
        """Delete the incomplete large files of this asset, except those with the path, ETag and size in ``keep``."""
        names = {self._part_name(*one) for one in keep}
        assert self._parts is not None
        for name in self._parts.names():
            match = _PART.fullmatch(name)
            if match and match[1] == self._origin.asset[:16] and name.removesuffix(JOURNAL_SUFFIX) not in names:
                self._parts.unlink(name)

    # === Inside the folder ===

    def _opened_root(self) -> LocalFolder:
        return LocalFolder.open(self.directory) if self._root is None else self._root.below(())

    def _part_name(self, path: str, etag: str | None, size: int) -> str:
        version = hashlib.sha256(f"{self._origin.source}\n{path}\n{etag}\n{size}".encode("utf-8", "surrogatepass"))
        return f"{self._origin.asset[:16]}-{version.hexdigest()[:32]}"

    def _read_written(self) -> WrittenFiles:
        try:
            with self._opened_root() as root, root.folder(STATE_FOLDER) as folder:
                return WrittenFiles(os.fdopen(folder.open_file(_RECORDS, os.O_RDONLY), "rb"))
        except OSError:
            # There is none. A download that cannot use the folder fails when it writes.
            return WrittenFiles(None)

    def _tidy(self, folder: LocalFolder) -> None:
        """Read the records again, after rewriting them with one line per file if necessary."""
        # Other processes may have added records until now.
        self.close()
        facts = folder.stat(_RECORDS)
        # The same file with another name, in a copy of the directory that consists of hard links, must not change.
        is_shared = facts is not None and facts.st_nlink > 1
        if self.written_files.is_tidy and not is_shared:
            return
        temporary = f"{_RECORDS}.new"
        with os.fdopen(folder.create_file(temporary), "wb") as out:
            self.written_files.write_tidy(out)
        # Windows cannot replace an open file.
        self.close()
        folder.move(temporary, folder, _RECORDS)

    def _add(self, path: str, record: WrittenFile | None) -> None:
        line = line_of(path, record)
        with self._lock:
            if self._out >= 0:
                os.write(self._out, line)


class _Parents:
    """The directories of the last files, which stay open because successive files often have the same directory."""

    def __init__(self, root: LocalFolder, state: LocalFolder) -> None:
        self._root, self._state = root, state
        self._lock = threading.Lock()
        # By path: the directory, and how many threads use it.
        self._open: OrderedDict[str, tuple[LocalFolder, int]] = OrderedDict()

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[LocalFolder]:
        """Yield the directory at ``path``, which is created if necessary."""
        with self._lock:
            if path not in self._open:
                self._open[path] = self._created(path), 0
            folder, users = self._open[path]
            self._open[path] = folder, users + 1
            self._open.move_to_end(path)
        try:
            yield folder
        finally:
            with self._lock:
                self._open[path] = folder, self._open[path][1] - 1
                idle = [name for name, (_, users) in self._open.items() if not users]
                for name in idle[: max(0, len(self._open) - _MOST_OPEN)]:
                    self._open.pop(name)[0].close()

    def close(self) -> None:
        """Close all directories."""
        for folder, _ in self._open.values():
            folder.close()
        self._open.clear()

    def _created(self, path: str) -> LocalFolder:
        folder = self._root.below(path.split("/") if path else (), create=True)
        # Some disks have further names for a directory, such as short names on FAT.
        if os.path.samestat(folder.facts, self._state.facts):
            folder.close()
            raise UsageError(f"The directory '{folder.path}' is reserved for the state of downloads.")
        return folder


def _is_as_recorded(facts: os.stat_result, record: WrittenFile) -> bool:
    return stat.S_ISREG(facts.st_mode) and (facts.st_size, facts.st_mtime_ns) == (record.size, record.mtime_ns)


def _is_unchanged(root: LocalFolder, path: str, record: WrittenFile) -> bool:
    """Return whether the file at ``path`` is as noted, and no link leads to it."""
    *folders, name = path.split("/")
    try:
        with root.below(folders) as parent:
            facts = parent.stat(name)
    except (OSError, UsageError):
        return False
    return facts is not None and _is_as_recorded(facts, record)


def _check_parts(parts: LocalFolder) -> None:
    """Raise ``UsageError`` unless everything with the name of an incomplete file is a file, and of a thread a
    folder."""
    for name in parts.names():
        is_folder = _WORKER.fullmatch(name) is not None
        facts = parts.stat(name) if is_folder or _PART.fullmatch(name) else None
        is_right = stat.S_ISDIR if is_folder else stat.S_ISREG
        if facts is not None and (is_link(facts) or not is_right(facts.st_mode)):
            raise parts.wrong(name, "directory" if is_folder else "file", facts)


def _drop_worker(parts: LocalFolder, name: str) -> None:
    # What another program put there stays.
    with contextlib.suppress(OSError):
        with parts.folder(name) as folder:
            folder.unlink(_SMALL)
        parts.rmdir(name)
