"""Reads when the system has no threads or file descriptors left, and in a process that was forked during a read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from tests.effort import sample

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has neither fork nor limits of processes")

ROWS = 2755


def run(program: str, profile: str, *arguments: object) -> list[Any]:
    """Run ``program`` and decode the JSON lines that it prints. It can call ``load()``, which reads the table, and
    ``described()``, which returns the result or the error."""
    head = """
        import json, os, sys, threading, time
        import delta_sharing_client as ds

        def load():
            options = ds.ReadOptions(max_attempts=2, max_retry_seconds=1)
            table = ds.SharingClient(sys.argv[1]).table("demo.shop.orders")
            return table.scan(options=options).to_arrow().num_rows

        def described():
            try:
                return load()
            except BaseException as error:
                is_ours = isinstance(error, sys.modules["delta_sharing_client.errors"].DeltaSharingError)
                return [is_ours, type(error).__name__, str(error)]
    """
    text = textwrap.dedent(head) + textwrap.dedent(program)
    command = [sys.executable, "-c", text, profile, *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


# --- open files ---

FEW_FILES = """
    import resource

    if sys.argv[2] == "warm":
        load()
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(int(sys.argv[3])):
        os.close(held.pop())
    print(json.dumps(described()), flush=True)
    for one in held:
        os.close(one)
    print(json.dumps(described()))
"""


@pytest.mark.parametrize(
    ("state", "left"),
    sample([("cold", 0), ("cold", 1), ("cold", 2), ("cold", 3), ("cold", 8), ("warm", 2), ("warm", 0)], 2),
)
def test_read_without_file_descriptors_raises_our_error(serve_demo: Any, state: str, left: int) -> None:
    """The process can open ``left`` more files, which imports, the event loop, the profile and connections need."""
    result, later = run(FEW_FILES, serve_demo.profile_path, state, left)
    if result != ROWS:
        is_ours, _, message = result
        assert is_ours, result
        assert "Too many open files" in message
    assert later == ROWS


# --- forks ---

# The thread ``reading`` imports the module ``slow``, which takes some time.
SLOW_IMPORT = """
    import importlib.machinery, signal

    entered, may_go = threading.Event(), threading.Event()

    class Slow:
        def find_spec(name, path, target=None):
            if name != slow or threading.current_thread() is not reading:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            execute = spec.loader.exec_module

            def slowly(module):
                entered.set()
                may_go.wait(seconds)
                execute(module)

            spec.loader.exec_module = slowly
            return spec

    sys.meta_path.insert(0, Slow)
"""
DURING_THE_FIRST_READ = (
    SLOW_IMPORT
    + """
    slow, seconds = sys.argv[2], float(sys.argv[3])
    results = []
    reading = threading.Thread(target=lambda: results.append(described()), name="reading")
    reading.start()
    assert entered.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(60)  # it must not hang
        print(json.dumps(described()), flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    may_go.set()
    reading.join()
    print(json.dumps(results[0]))
    print(status)
"""
)

MODULES = [
    "delta_sharing_client.client",
    "delta_sharing_client.sources.planning",
    "requests",
    "pyarrow.parquet",
]


@pytest.mark.parametrize("module", sample(MODULES, 2))
def test_child_forked_during_the_first_read_can_read(serve_demo: Any, module: str) -> None:
    in_child, in_parent, status = run(DURING_THE_FIRST_READ, serve_demo.profile_path, module, 1)
    assert (in_child, in_parent, status) == (ROWS, ROWS, 0)


def test_read_in_a_child_forked_during_an_import_fails(serve_demo: Any) -> None:
    program = "from delta_sharing_client import forks\nforks._LONGEST_WAIT = 0.1\n"
    in_child, in_parent, status = run(
        program + textwrap.dedent(DURING_THE_FIRST_READ), serve_demo.profile_path, "requests", 60
    )
    assert (in_parent, status) == (ROWS, 0)
    assert in_child[:2] == [True, "UsageError"]
    assert "was forked while another thread of its parent was starting a read" in in_child[2]


def test_fork_does_not_wait_for_imports_of_other_threads(serve_demo: Any) -> None:
    program = (
        "from delta_sharing_client import forks\nforks._LONGEST_WAIT = 900.0\n"
        + textwrap.dedent(SLOW_IMPORT)
        + textwrap.dedent("""
            slow, seconds = "colorsys", None
            reading = threading.Thread(target=lambda: __import__(slow))
            reading.start()
            assert entered.wait(60)
            signal.alarm(60)
            child = os.fork()
            if not child:
                print(json.dumps(described()), flush=True)
                os._exit(0)
            print(os.waitpid(child, 0)[1])
            may_go.set()
        """)
    )
    assert run(program, serve_demo.profile_path) == [ROWS, 0]


# --- threads ---


def test_read_without_new_threads_raises_our_error(serve_demo: Any) -> None:
    program = """
        import asyncio

        def no(*args, **kwargs):
            raise RuntimeError("can't start new thread")

        async def in_coroutine():
            table = ds.SharingClient(sys.argv[1]).table("demo.shop.orders")
            try:
                return (await table.scan().to_arrow_async()).num_rows
            except ds.DeltaSharingError as error:
                return str(error)

        if sys.argv[2] == "warm":
            load()
        start, threading._start_new_thread = threading._start_new_thread, no
        print(json.dumps(described()))
        print(json.dumps(asyncio.run(in_coroutine())))
        threading._start_new_thread = start
        print(json.dumps(described()))
    """
    for state in ("cold", "warm"):
        result, in_coroutine, later = run(program, serve_demo.profile_path, state)
        assert result[:2] == [True, "UsageError"]
        for message in (result[2], in_coroutine):
            assert "No thread can be started" in message
        assert later == ROWS
