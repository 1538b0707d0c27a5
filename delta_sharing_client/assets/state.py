"""The folder ``.delta-sharing`` in a directory: which version of each file the directory holds, and parts of others.

Notes are lines of JSON, each appended when its file is complete. They survive a killed process, whose last line may be
torn. The folder can be deleted at any time: files are then compared by their content, or downloaded again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from delta_sharing_client.assets.naming import STATE_FOLDER
from delta_sharing_client.errors import UsageError
from delta_sharing_client.file_lock import FileLock

_NOTES, _PARTS, _LOCK = "files.jsonl", "parts", "lock"


class Note(NamedTuple):
    """A file as it was downloaded: its ``source`` and ETag, and size and time of the local file."""

    source: str
    etag: str
    size: int
    mtime_ns: int


class State:
    """The notes and partial files of one directory; threads may add notes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.folder = directory / STATE_FOLDER
        self.notes = _read(self.folder / _NOTES)
        self._lock = threading.Lock()
        self._out = -1

    def is_noted(self, path: str, source: str, etag: str | None, size: int) -> bool:
        """Whether the local file is the one that was downloaded from ``source`` with this ETag and size."""
        note = self.notes.get(path)
        return (
            note is not None
            and etag is not None
            and (note.source, note.etag, note.size) == (source, etag, size)
            and self.is_untouched(path)
        )

    def is_untouched(self, path: str) -> bool:
        """Whether the local file is as it was when it was noted."""
        note, local = self.notes.get(path), self.local(path)
        return (
            note is not None and local is not None and (local.st_size, local.st_mtime_ns) == (note.size, note.mtime_ns)
        )

    def local(self, path: str) -> os.stat_result | None:
        """Return the facts of the local file; ``None`` if there is no regular file."""
        try:
            found = os.lstat(self.directory / path)
        except (OSError, ValueError):
            return None
        return found if stat.S_ISREG(found.st_mode) else None

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the directory for a block; ``UsageError`` if another process does. Unless the block raises, no parts
        remain afterwards."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir()
        if not stat.S_ISDIR(os.lstat(self.folder).st_mode):
            raise UsageError(f"Expected a directory or nothing at '{self.folder}', found something else.")
        taken = f"Another download into '{self.directory}' is running; wait for its end."
        with FileLock(self.folder / _LOCK, taken):
            # Others may have written until now.
            self.notes = _read(self.folder / _NOTES)
            (self.folder / _PARTS).mkdir(exist_ok=True)
            self._compact()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
            self._out = os.open(self.folder / _NOTES, flags, 0o666)
            try:
                yield
                shutil.rmtree(self.folder / _PARTS)
            finally:
                with self._lock:
                    out, self._out = self._out, -1
                os.close(out)

    def add(self, path: str, note: Note) -> None:
        """Note a complete file."""
        line = _line(path, note)
        with self._lock:
            self.notes[path] = note
            if self._out >= 0:
                os.write(self._out, line)

    def forget(self, path: str) -> None:
        """Remove the note of a file that is removed; kept until the next download begins."""
        self.notes.pop(path, None)
        line = json.dumps([path]).encode() + b"\n"
        with self._lock:
            os.write(self._out, line)

    def part(self, path: str, etag: str | None, size: int) -> Path:
        """Return where the incomplete content of a file is collected; another version has another place."""
        digest = hashlib.sha256(f"{path}\n{etag}\n{size}".encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / _PARTS / digest[:32]

    def drop_parts(self, keep: set[Path]) -> None:
        """Remove incomplete content but that at ``keep`` and its neighbours with other endings."""
        for entry in list((self.folder / _PARTS).iterdir()):
            if entry.with_suffix("") not in keep:
                entry.unlink()

    def _compact(self) -> None:
        """Write one line for each note, in a new file."""
        temporary = self.folder / f"{_NOTES}.new"
        temporary.write_bytes(b"".join(_line(path, note) for path, note in self.notes.items()))
        os.replace(temporary, self.folder / _NOTES)


def _line(path: str, note: Note) -> bytes:
    return json.dumps([path, *note]).encode() + b"\n"


def _read(path: Path) -> dict[str, Note]:
    notes: dict[str, Note] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return notes
    for line in lines:
        try:
            name, *facts = json.loads(line)
            notes.pop(name, None)
            if facts:
                source, etag, size, mtime_ns = facts
                notes[name] = Note(str(source), str(etag), int(size), int(mtime_ns))
        except (ValueError, TypeError):
            # A process was killed while it wrote the line, or somebody edited it.
            continue
    return notes
