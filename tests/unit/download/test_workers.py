"""Threads that do calls: what the end of the interpreter waits for, and what it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import os, sys, time
from delta_sharing_client.download.workers import Workers
workers = Workers(2, "w", held={held})
def work():
    began.append(1)
    time.sleep(1.0)
    os.write(1, b"done\\n")
began = []
first, second = workers.submit((0,), 1, work), workers.submit((1,), 1, work)
third = workers.submit((2,), 1, work)
while len(began) < 2:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("held", "printed"),
    [
        ("lambda: 0", "done\ndone\n"),
        ("lambda: 2", ""),
        ("None", ""),
        # Two that enter a system call while they are waited for.
        ("lambda counts=iter([0, 1]): next(counts, 2)", ""),
    ],
)
def test_the_interpreter_waits_for_what_began_but_not_for_what_a_system_call_holds(held: str, printed: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(held=held)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (run.returncode, run.stdout, run.stderr) == (0, printed, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_process_does_not_wait_for_its_parents_work() -> None:
    fork = (
        SCRIPT.format(held="lambda: 0")
        + "if os.fork() == 0:\n    sys.exit(7)\nprint(os.wait()[1] >> 8, len(began), flush=True)\n"
    )
    began = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", fork],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert run.stdout == "7 2\ndone\ndone\n", run.stderr
    assert time.monotonic() - began < 30
