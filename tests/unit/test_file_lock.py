"""A file lock has one holder at a time, and a process forked while it is held does not hold it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from delta_sharing_client import file_lock
from delta_sharing_client.errors import UsageError
from delta_sharing_client.file_lock import FileLock
from delta_sharing_client.outputs.file_formats import FileFormat
from delta_sharing_client.outputs.file_writers import write_file


def test_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, "Taken."), pytest.raises(UsageError, match=r"Taken\."), FileLock(path, "Taken."):
        pass
    with FileLock(path, "Taken."):
        pass
    assert path.exists()


def test_lock_is_released_when_its_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = (
        "import os, sys, pathlib; from delta_sharing_client.file_lock import FileLock\n"
        "FileLock(pathlib.Path(sys.argv[1]), 'Taken.').__enter__(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", holder, str(path)], check=False).returncode == -signal.SIGKILL
    with FileLock(path, "Taken."):
        pass


@pytest.mark.alone
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_forked_process_does_not_hold_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, "Taken."):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with FileLock(path, "Taken."):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.alone
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_forked_process_leaving_the_block_does_not_unlock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, "Taken.") as held:
        child = os.fork()
        if child == 0:
            held.__exit__()
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(UsageError, match=r"Taken\."), FileLock(path, "Taken."):
            pass


@pytest.fixture(params=["ENOLCK", "EOPNOTSUPP", "ENOSYS", "EIO", "EINVAL"])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Fail like the operating system on a file system without locks."""
    number = getattr(errno, request.param)

    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(file_lock, "_lock", fail)
    return os.strerror(number)


def test_file_system_without_locks_is_reported(tmp_path: Path, no_locks: str) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    with pytest.raises(UsageError, match=r"lock' cannot be locked: (.*)\. Choose a directory") as caught:
        FileLock(tmp_path / "lock", "Taken.").__enter__()
    assert no_locks in str(caught.value)
    assert "Taken" not in str(caught.value)
    assert before is None or len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["EWOULDBLOCK", "EAGAIN", "EACCES", "EDEADLK"])
def test_error_of_a_held_lock_is_the_given_message(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors are those of flock, of its emulation on network file systems, and of Windows."""

    def fail(descriptor: int) -> None:
        raise OSError(getattr(errno, name), "held")

    monkeypatch.setattr(file_lock, "_lock", fail)
    with pytest.raises(UsageError, match=r"^Taken\.$"):
        FileLock(tmp_path / "lock", "Taken.").__enter__()


@pytest.mark.usefixtures("no_locks")
def test_without_locks_files_are_written(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2]})
    target = tmp_path / "rows.csv"
    assert write_file(table.to_batches(), table.schema, target, FileFormat.CSV) == 2
    assert target.read_text().split() == ['"a"', "1", "2"]
