"""File locks exclude other processes on every system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.file_lock import FileLock

HOLDER = """
import pathlib, sys
from delta_sharing_client.file_lock import FileLock
with FileLock(pathlib.Path(sys.argv[1]), "Taken."):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "größe 100 %.lock"


def _holder(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "held"
    return process


def test_lock_of_another_process_is_refused_until_its_end(lock: Path) -> None:
    holder = _holder(lock)
    with pytest.raises(UsageError, match=r"Taken\."), FileLock(lock, "Taken."):
        pass
    holder.communicate("", timeout=60)

    with FileLock(lock, "Taken."):
        pass


def test_killed_process_releases_its_lock(lock: Path) -> None:
    holder = _holder(lock)
    holder.kill()
    holder.communicate(timeout=60)

    with FileLock(lock, "Taken."):
        pass


def test_second_lock_of_the_same_process_is_refused(lock: Path) -> None:
    with FileLock(lock, "Taken."), pytest.raises(UsageError, match=r"Taken\."), FileLock(lock, "Taken."):
        pass
