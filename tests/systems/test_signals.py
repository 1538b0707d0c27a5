"""Ctrl-C and killed processes on every system."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from delta_sharing_client import testing

WINDOWS = sys.platform == "win32"
# On Windows, a process in its own group ignores Ctrl-C; it can only be sent Ctrl-Break, for which Python has no
# handler. On other systems, a shell may have started the tests with Ctrl-C ignored.
BREAK = """
import signal, sys
signal.signal(getattr(signal, "SIGBREAK", signal.SIGINT), signal.default_int_handler)
"""
READ = f"""{BREAK}
import threading
import delta_sharing_client as ds
try:
    ds.load_as_pandas(sys.argv[1] + "#s.d.t")
except KeyboardInterrupt:
    print("interrupted", [thread.name for thread in threading.enumerate() if not thread.daemon])
    sys.exit(7)
"""


POOL = f"""{BREAK}
from concurrent.futures import ThreadPoolExecutor
import delta_sharing_client as ds
try:
    with ThreadPoolExecutor() as pool:
        reads = [pool.submit(ds.load_as_pandas, sys.argv[1] + "#s.d.t") for _ in range(2)]
        reads[0].result()
except KeyboardInterrupt:
    print("interrupted", [len(read.result()) > 0 for read in reads])
    sys.exit(7)
"""
COROUTINES = f"""{BREAK}
import asyncio, threading
import delta_sharing_client as ds
async def read_all():
    table = ds.SharingClient(sys.argv[1]).table("s.d.t")
    await asyncio.gather(*(table.scan().to_arrow_async() for _ in range(2)))
try:
    asyncio.run(read_all())
except KeyboardInterrupt:
    print("interrupted", [thread.name for thread in threading.enumerate() if not thread.daemon])
    sys.exit(7)
"""


@pytest.fixture
def slow(server: testing.Server) -> Iterator[testing.Server]:
    server.reset_stats()
    # Longer than the test waits, so that the test fails if Ctrl-C does not end the read before the response arrives.
    server.set_fault("slow=1000")
    yield server
    server.clear_faults()


@pytest.mark.parametrize("program", [READ, COROUTINES], ids=["main thread", "coroutines"])
def test_ctrl_c_ends_a_waiting_read(slow: testing.Server, program: str) -> None:
    process = _started([sys.executable, "-c", program, str(slow.profile_path)])
    _wait_for_a_request(slow)
    _interrupt(process)
    output, errors = process.communicate(timeout=120)

    assert process.returncode == 7, errors
    assert "interrupted ['MainThread']" in output


def test_ctrl_c_in_the_main_thread_keeps_reads_of_a_pool(slow: testing.Server) -> None:
    slow.clear_faults()
    slow.set_fault("slow=2")
    process = _started([sys.executable, "-c", POOL, str(slow.profile_path)])
    _wait_for_a_request(slow)
    _interrupt(process)
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 7, errors
    assert output.strip() == "interrupted [True, True]"


def test_ctrl_c_ends_the_command_without_traceback_or_file(slow: testing.Server, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    program = f"{BREAK}\nfrom delta_sharing_client.cli import main\nsys.exit(main(sys.argv[1:]))"
    arguments = ["-p", str(slow.profile_path), "read", "s.d.t", "--to", str(target)]
    process = _started([sys.executable, "-c", program, *arguments])
    _wait_for_a_request(slow)
    _interrupt(process)
    _, errors = process.communicate(timeout=60)

    assert process.returncode != 0
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_file_can_be_written_after_its_writer_was_killed(slow: testing.Server, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    arguments = ["-p", str(slow.profile_path), "read", "s.d.t", "--to", str(target)]
    command = [sys.executable, "-m", "delta_sharing_client.cli", *arguments]
    process = _started(command)
    _wait_for_a_request(slow)
    process.kill()
    process.communicate(timeout=60)
    slow.clear_faults()

    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def _wait_for_a_request(server: testing.Server) -> None:
    end = time.monotonic() + 60
    while not server.stats()["requests"]:
        assert time.monotonic() < end, "the read sent no request"
        time.sleep(0.05)
    time.sleep(0.2)  # gives the reading thread time to wait for the response


def _started(command: list[str]) -> subprocess.Popen[str]:
    # On Windows a signal is sent to a whole process group, which must not include pytest.
    options = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)} if WINDOWS else {}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # type: ignore


def _interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.CTRL_BREAK_EVENT if WINDOWS else signal.SIGINT)  # type: ignore[attr-defined,unused-ignore]
