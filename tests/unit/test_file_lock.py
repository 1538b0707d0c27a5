"""A lock on a file: one holder at a time, and nobody who was only there when it was taken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.file_lock import FileLock


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, "Taken."), pytest.raises(UsageError, match=r"Taken\."), FileLock(path, "Taken."):
        pass
    with FileLock(path, "Taken."):
        pass
    assert path.exists()


def test_it_ends_with_its_process(tmp_path: Path) -> None:
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
def test_a_process_forked_off_meanwhile_does_not_hold_it(tmp_path: Path) -> None:
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
def test_a_process_forked_off_that_leaves_the_block_does_not_end_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, "Taken.") as held:
        child = os.fork()
        if child == 0:
            held.__exit__()
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(UsageError, match=r"Taken\."), FileLock(path, "Taken."):
            pass
