"""Where a log lies: the few things that reading one asks of a file system or an object store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from delta_sharing_client.delta.paths import resolve

LOG_DIRECTORY = "_delta_log"


class LogEntry(NamedTuple):
    """A file of a log directory; ``modified_ms`` is in milliseconds since the epoch."""

    name: str
    size: int
    modified_ms: int


class LogDirectory(Protocol):
    """The directory ``_delta_log`` of a table."""

    def entries(self) -> list[LogEntry]:
        """Return the files that lie directly in it; ``FileNotFoundError`` if there is no such directory."""

    def open(self, path: str) -> BinaryIO:
        """Open a file: a path of the log, percent-encoded, relative to the directory or absolute.

        Raises
        ------
        OSError
            ``FileNotFoundError`` where there is none; another where it cannot be read.
        DataError
            The path is none that the log may name.
        """

    def expect(self, paths: Sequence[str]) -> None:
        """Take note that these files are opened next, in this order: a store far away can have them under way."""


class LocalDirectory:
    """A ``LogDirectory`` on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[LogEntry]:
        """As ``LogDirectory.entries``."""
        try:
            return [_entry(entry) for entry in os.scandir(self.path)]
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from None

    def open(self, path: str) -> BinaryIO:
        """As ``LogDirectory.open``."""
        return resolve(self.path, path).open("rb")

    def expect(self, paths: Sequence[str]) -> None:
        """Nothing is far away here."""


def _entry(entry: os.DirEntry[str]) -> LogEntry:
    try:
        stat = entry.stat()
    except FileNotFoundError:
        # Cleaned up between listing and looking: opening it will say so if it is needed.
        return LogEntry(entry.name, -1, 0)
    # A time set through a float (os.utime) may lie some hundred nanoseconds below the millisecond that was meant.
    return LogEntry(entry.name, stat.st_size, (stat.st_mtime_ns + 1000) // 1_000_000)
