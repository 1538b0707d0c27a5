"""A directory of this machine whose entries are reached without following links.

A directory of downloads may come from an archive, or others may write into it. A link in it must not lead a download to
files outside of it, even if the link appears while the download runs. Therefore an entry is reached from its open
directory and not by a path. Windows has no such calls; there, each directory is compared before each use with the one
that was opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from typing import Any

from delta_sharing_client.errors import UsageError

# Windows has neither flag.
_NO_FOLLOW, _DIRECTORY = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_DIRECTORY", 0)

BY_DESCRIPTOR = bool(
    _NO_FOLLOW
    and _DIRECTORY
    and {os.open, os.stat, os.mkdir, os.rename, os.unlink, os.rmdir, os.utime} <= os.supports_dir_fd
)
"""Whether the system opens entries of an open directory."""

# A directory may allow its use without allowing its listing.
_OPENS = getattr(os, "O_PATH", os.O_RDONLY) | _DIRECTORY
# The errors of ``open`` without following links: for a link (on Linux and on BSD), a named pipe without a reader, a
# socket, and a directory.
_NOT_A_FILE = frozenset((errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EOPNOTSUPP, errno.EISDIR))
# Directories that lead elsewhere on Windows: symbolic links, and junctions.
_LINK_TAGS = frozenset((0xA000000C, 0xA0000003))


def is_link(facts: os.stat_result) -> bool:
    """Return whether ``lstat`` describes something that leads elsewhere: a symbolic link, or a junction on Windows."""
    return stat.S_ISLNK(facts.st_mode) or getattr(facts, "st_reparse_tag", 0) in _LINK_TAGS


def kind_of(facts: os.stat_result) -> str:
    """Return what ``lstat`` describes, for messages."""
    if is_link(facts):
        return "a link"
    return {stat.S_IFDIR: "a directory", stat.S_IFREG: "a file"}.get(stat.S_IFMT(facts.st_mode), "something else")


class LocalFolder:
    """An open directory; ``path`` is for messages, and is used only where the system has no descriptors of directories.

    All methods raise ``OSError`` if the system refuses, and ``UsageError`` if they meet a link, or something else than
    expected. Thread-safe, except for ``close``.
    """

    def __init__(self, path: str, descriptor: int, facts: os.stat_result, *, is_root: bool) -> None:
        self.path, self.facts = path, facts
        self._descriptor, self._is_root = descriptor, is_root

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> LocalFolder:
        """Open a directory. Links in ``path`` itself are followed, because the user named it."""
        text = os.path.abspath(path)
        if not BY_DESCRIPTOR:
            return cls(text, -1, os.stat(text), is_root=True)
        descriptor = os.open(text, _OPENS)
        return cls(text, descriptor, os.fstat(descriptor), is_root=True)

    def __enter__(self) -> LocalFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LocalFolder({self.path!r})"

    def close(self) -> None:
        """Close the directory."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def folder(self, name: str, *, create: bool = False) -> LocalFolder:
        """Open the subdirectory ``name``; ``FileNotFoundError`` if there is none, unless it is to be created."""
        if create:
            where, given = self._at(name)
            with contextlib.suppress(FileExistsError):
                os.mkdir(where, **given)
        path = os.path.join(self.path, name)
        facts = self.stat(name)
        if facts is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not stat.S_ISDIR(facts.st_mode) or is_link(facts):
            raise self.wrong(name, "directory", facts)
        if not BY_DESCRIPTOR:
            return LocalFolder(path, -1, facts, is_root=False)
        try:
            descriptor = os.open(name, _OPENS | _NO_FOLLOW, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
                raise self._replaced(name) from None
            raise
        return LocalFolder(path, descriptor, os.fstat(descriptor), is_root=False)

    def below(self, names: Sequence[str], *, create: bool = False) -> LocalFolder:
        """Open the directory at ``names``, one below the other; without names, open this directory again."""
        if not names:
            if not BY_DESCRIPTOR:
                return LocalFolder(self.path, -1, self.facts, is_root=self._is_root)
            return LocalFolder(self.path, os.dup(self._descriptor), self.facts, is_root=self._is_root)
        folder = self.folder(names[0], create=create)
        for name in names[1:]:
            with folder:
                inner = folder.folder(name, create=create)
            folder = inner
        return folder

    def stat(self, name: str) -> os.stat_result | None:
        """Return the status of an entry, of a link itself; ``None`` if there is no such entry."""
        where, given = self._at(name)
        try:
            return os.stat(where, follow_symlinks=False, **given) if given else os.lstat(where)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self) -> list[str]:
        """Return the names of all entries."""
        if not BY_DESCRIPTOR:
            return os.listdir(self._at("")[0])
        # The descriptor of the directory may be one that only serves to open entries.
        descriptor = os.open(".", os.O_RDONLY, dir_fd=self._descriptor)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def open_file(self, name: str, flags: int, mode: int = 0o666) -> int:
        """Open the regular file ``name`` with ``flags`` of ``os.open``, and return its descriptor.

        ``flags`` must not truncate the file, because it may have further names (hard links). Does not wait for the
        other end of a named pipe.
        """
        where, given = self._at(name)
        flags |= _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        # A new file never is at the end of a link.
        before = None if BY_DESCRIPTOR or flags & os.O_EXCL else self.stat(name)
        if before is not None and (is_link(before) or not stat.S_ISREG(before.st_mode)):
            raise self.wrong(name, "file", before)
        try:
            descriptor = os.open(where, flags, mode, **given)
        except OSError as error:
            facts = self.stat(name) if error.errno in _NOT_A_FILE else None
            if facts is None or (stat.S_ISREG(facts.st_mode) and not is_link(facts)):
                raise
            raise self.wrong(name, "file", facts) from None
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise self.wrong(name, "file", facts)
            now = None if BY_DESCRIPTOR else self.stat(name)
            if now is not None and (is_link(now) or not os.path.samestat(now, facts)):
                raise self._replaced(name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def create_file(self, name: str) -> int:
        """Create the file ``name`` for reading and writing, and return its descriptor. An existing file or link is
        replaced: its content stays, if it has other names."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            return self.open_file(name, flags)
        except FileExistsError:
            facts = self.stat(name)
            if facts is not None and stat.S_ISDIR(facts.st_mode) and not is_link(facts):
                raise self.wrong(name, "file", facts) from None
            self.unlink(name)
            return self.open_file(name, flags)

    def unlink(self, name: str) -> None:
        """Remove a file, or a link itself; nothing if there is none."""
        where, given = self._at(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(where, **given)

    def rmdir(self, name: str) -> None:
        """Remove an empty directory; nothing if there is none."""
        where, given = self._at(name)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(where, **given)

    def move(self, name: str, into: LocalFolder, new: str) -> None:
        """Move the entry ``name`` to the name ``new`` in another directory, where it replaces a file."""
        source, given = self._at(name)
        target, other = into._at(new)
        if given:
            os.replace(source, target, src_dir_fd=given["dir_fd"], dst_dir_fd=other["dir_fd"])
        else:
            os.replace(source, target)

    def set_time(self, name: str, seconds: float) -> None:
        """Set when a file was last written, if the system can represent the time."""
        where, given = self._at(name)
        with contextlib.suppress(OSError, OverflowError):
            if given:
                os.utime(where, (seconds, seconds), follow_symlinks=False, **given)
            else:
                os.utime(where, (seconds, seconds))

    def sync(self) -> None:
        """Write the names of the directory to the disk. Windows does so by itself."""
        if os.name == "posix":
            where, given = self._at("")
            descriptor = os.open(where or ".", os.O_RDONLY, **given)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def wrong(self, name: str, expected: str, facts: os.stat_result) -> UsageError:
        """Return the error for an entry that is not what was ``expected``."""
        found = kind_of(facts)
        return UsageError(
            f"Expected a {expected} or nothing at '{os.path.join(self.path, name)}', found "
            f"{'something else' if found == f'a {expected}' else found}. Remove it, or choose another directory."
        )

    def _replaced(self, name: str) -> UsageError:
        return UsageError(
            f"'{os.path.join(self.path, name)}' was replaced while it was used. Nothing was written through it; choose "
            "a directory that no other program changes."
        )

    def _at(self, name: str) -> tuple[str, dict[str, Any]]:
        """Return the first argument, and the keyword arguments, of a function of ``os`` for an entry."""
        if BY_DESCRIPTOR:
            return name, {"dir_fd": self._descriptor}
        now = os.stat(self.path) if self._is_root else os.lstat(self.path)
        if not os.path.samestat(now, self.facts) or (not self._is_root and is_link(now)):
            raise self._replaced("")
        return os.path.join(self.path, name) if name else self.path, {}
