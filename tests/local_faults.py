"""Faults of a directory that is read: the faults of ``tests.fault_proxy`` that other programs or the system can cause
in a local directory."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

from delta_sharing_client.storage import local
from mock_server.faults import FaultSet, Target
from tests.fault_proxy import parse
from tests.object_stores import DIRECTORY, Request

MEANINGS = {
    "truncate-body": "the file is cut while it is read",
    "refused": "the system refuses access",
    "not-found": "the file was removed",
    "no-bucket": "the directory is not mounted",
    "changed": "the file is replaced after each request",
    "repeat-mark": "a link to its own directory",
    "outside": "a link to another directory",
}
"""The meaning of each fault for a directory."""
_LINK = "zz-link"


class LocalFaults:
    """The faults of the directory ``root``, in which ``contents`` are written by their paths. ``kind``, ``faults`` and
    ``set_fault`` are as those of a ``FaultProxy``."""

    kind = DIRECTORY
    endpoint = ""

    def __init__(self, root: pathlib.Path, contents: Mapping[str, bytes]) -> None:
        self.root = root
        self.requests: list[Request] = []
        self.elsewhere: list[Request] = []
        self.faults = FaultSet()
        self._contents = contents
        self._versions = 0
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._undo = contextlib.ExitStack()
        for path in contents:
            self._write(path, contents[path])

    def set_fault(self, text: str) -> None:
        """Activate a fault, as ``FaultProxy.set_fault`` does, in a directory without earlier faults.

        In addition to ``MEANINGS``, ``slow`` makes calls wait for the disk, at most until ``release``.
        """
        with self._lock:
            self._restore()
        self.faults.set(parse(text))

    def release(self) -> None:
        """End the waits for the disk."""
        self._released.set()

    def before_listing(self, folder: str) -> None:
        """Do to the directory ``folder``, which will be listed, what the active fault does."""
        path = pathlib.Path(folder)
        self._note(path, "list-type=2")
        self._wait(Target.API)
        with self._lock:
            self._restore()
            if self.faults.take("refused", Target.API):
                raise PermissionError(errno.EACCES, "planted", folder)
            if self.faults.take("no-bucket", Target.API):
                top = path if path.parent == self.root else next(one for one in path.parents if one.parent == self.root)
                self._hide(top)
            if self.faults.take("outside", Target.API):
                self._link(path, self.root / "elsewhere")
            if self.faults.take("repeat-mark", Target.API):
                self._link(path, path)

    @contextlib.contextmanager
    def around_opening(self, name: str) -> Iterator[None]:
        """Do to the file ``name``, which is opened in the block, what the active fault does."""
        path = pathlib.Path(name)
        self._note(path, "")
        self._wait(Target.DATA)
        with self._lock:
            self._restore()
            if self.faults.take("refused", Target.DATA):
                raise PermissionError(errno.EACCES, "planted", name)
            if self.faults.take("not-found", Target.DATA):
                raise FileNotFoundError(errno.ENOENT, "planted", name)
            yield
            key = path.relative_to(self.root).as_posix()
            if self.faults.take("changed", Target.DATA):
                self._versions += 1
                self._write(key, bytes((byte + self._versions) % 256 for byte in self._contents[key]))

    def while_reading(self, name: str) -> None:
        """Apply the active fault to the open file ``name``, after a part of it was read."""
        key = pathlib.Path(name).relative_to(self.root).as_posix()
        with self._lock:
            if self.faults.take("truncate-body", Target.DATA):
                os.truncate(name, len(self._contents[key]) // 2)
                self._undo.callback(self._write, key, self._contents[key])

    def _wait(self, target: Target) -> None:
        if fault := self.faults.take("slow", target):
            self._released.wait(fault.value)

    def _note(self, path: pathlib.Path, query: str) -> None:
        self.requests.append(Request(path.as_posix(), query, {}))

    def _restore(self) -> None:
        self._undo.pop_all().close()

    def _write(self, key: str, content: bytes) -> None:
        """Replace a file, so that those who have it open keep what they opened."""
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(content)
        # The time of an original never changes.
        os.utime(new, (self._versions + 1, self._versions + 1))
        new.replace(path)

    def _hide(self, folder: pathlib.Path) -> None:
        hidden = folder.with_name(f"{folder.name}-hidden")
        folder.rename(hidden)
        self._undo.callback(hidden.rename, folder)

    def _link(self, folder: pathlib.Path, target: pathlib.Path) -> None:
        (folder / _LINK).symlink_to(target)
        self._undo.callback((folder / _LINK).unlink)


_live: dict[str, LocalFaults] = {}


def _of(path: str) -> LocalFaults | None:
    return next((faults for root, faults in _live.items() if path.startswith(f"{root}{os.sep}")), None)


@contextlib.contextmanager
def local_faults(root: pathlib.Path, contents: Mapping[str, bytes]) -> Iterator[LocalFaults]:
    """Write ``contents`` into the new directory ``root``, which has faults during a ``with`` block in ``injected``."""
    faults = _live[str(root)] = LocalFaults(root, contents)
    try:
        yield faults
    finally:
        faults.release()
        del _live[str(root)]
        shutil.rmtree(root)


@contextlib.contextmanager
def injected() -> Iterator[None]:
    """Make the system's calls of ``LocalPlace`` fail as the active faults say."""
    opened, read = local._opened, local._LocalBody._read

    def open_file(path: str, flags: int) -> int:
        faults = _of(os.fspath(path))
        with contextlib.nullcontext() if faults is None else faults.around_opening(os.fspath(path)):
            return opened(path, flags)

    def read_part(body: Any) -> bytes:
        data, name = read(body), os.fspath(body._stream.name)
        if body._left and (faults := _of(name)) is not None:
            faults.while_reading(name)
        return data

    with (
        mock.patch.object(local, "_opened", open_file),
        mock.patch.object(local._LocalBody, "_read", read_part),
        mock.patch.object(local, "os", _System()),
    ):
        yield


class _System:
    """The module ``os`` as ``LocalPlace`` sees it: not the server, which is in the same process."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def scandir(self, path: Any) -> Any:
        faults = _of(os.fspath(path))
        if faults is not None:
            faults.before_listing(os.fspath(path))
        return os.scandir(path)
