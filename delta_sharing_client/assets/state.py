"""The folder ``.delta-sharing`` in a directory: records the version of each file, and holds parts of incomplete
files.

A note is written as soon as a file is complete, and so survives if the process is killed later. The folder can be
deleted at any time: files are then compared by their content, or downloaded again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from delta_sharing_client.assets.naming import STATE_FOLDER
from delta_sharing_client.assets.notes import Note, Notes, line_of
from delta_sharing_client.errors import UsageError
from delta_sharing_client.file_lock import FileLock

_NOTES, _PARTS, _LOCK = "files.jsonl", "parts", "lock"


class State:
    """The notes and partial files of one directory; threads may add notes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.folder = directory / STATE_FOLDER
        self._notes: Notes | None = None
        self._lock = threading.Lock()
        self._out = -1

    @property
    def notes(self) -> Notes:
        """The notes as they were when first used, or when ``writing`` began."""
        if self._notes is None:
            self._notes = Notes(self.folder / _NOTES)
        return self._notes

    def close(self) -> None:
        """Close the file of the notes; the next use of ``notes`` opens it again."""
        if self._notes is not None:
            self._notes.close()
            self._notes = None

    def is_noted(self, path: str, source: str, etag: str | None, size: int) -> bool:
        """Return whether the local file was downloaded from ``source`` with this ETag and size."""
        note = self.notes.get(path)
        return (
            note is not None
            and etag is not None
            and (note.source, note.etag, note.size) == (source, etag, size)
            and self._is_as(path, note)
        )

    def is_untouched(self, path: str) -> bool:
        """Return whether the local file has not changed since it was recorded."""
        note = self.notes.get(path)
        return note is not None and self._is_as(path, note)

    def _is_as(self, path: str, note: Note) -> bool:
        local = self.local(path)
        return local is not None and (local.st_size, local.st_mtime_ns) == (note.size, note.mtime_ns)

    def local(self, path: str) -> os.stat_result | None:
        """Return the status of the local file; ``None`` if there is no regular file."""
        try:
            facts = os.lstat(f"{self.directory}/{path}")
        except (OSError, ValueError):
            return None
        return facts if stat.S_ISREG(facts.st_mode) else None

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the directory for the ``with`` block; ``UsageError`` if another process has locked it. At the end, all
        parts are deleted, unless the block raises."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir()
        if not stat.S_ISDIR(os.lstat(self.folder).st_mode):
            raise UsageError(f"Expected a directory or nothing at '{self.folder}', found something else.")
        taken = f"Another download into '{self.directory}' is running: wait until it has ended."
        with FileLock(self.folder / _LOCK, taken):
            self._tidy()
            (self.folder / _PARTS).mkdir(exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
            self._out = os.open(self.folder / _NOTES, flags, 0o666)
            try:
                yield
                shutil.rmtree(self.folder / _PARTS)
            finally:
                with self._lock:
                    out, self._out = self._out, -1
                os.close(out)
                self.close()

    def add(self, path: str, note: Note | None) -> None:
        """Record a complete file, or, with ``None``, the removal of a file."""
        line = line_of(path, note)
        with self._lock:
            if self._out >= 0:
                os.write(self._out, line)

    def part(self, path: str, etag: str | None, size: int) -> Path:
        """Return the path for the incomplete content of a file; each version of the file has its own path."""
        digest = hashlib.sha256(f"{path}\n{etag}\n{size}".encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / _PARTS / digest[:32]

    def drop_parts(self, keep: set[Path]) -> None:
        """Delete incomplete content, except at the paths ``keep`` and at paths that add a suffix to them."""
        for entry in list((self.folder / _PARTS).iterdir()):
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.with_suffix("") not in keep:
                entry.unlink()

    def folder_for(self, number: int) -> Path:
        """Create a folder for the incomplete files of one thread, because threads that write into one directory wait
        for each other."""
        folder = self.folder / _PARTS / str(number)
        folder.mkdir(exist_ok=True)
        return folder

    def _tidy(self) -> None:
        """Read the notes again, after rewriting them with one line per file if necessary."""
        # Other processes may have added notes until now.
        self.close()
        if not self.notes.is_tidy:
            temporary = self.folder / f"{_NOTES}.new"
            self.notes.write_tidy(temporary)
            # Windows cannot replace an open file.
            self.close()
            os.replace(temporary, self.folder / _NOTES)
