"""A fast ``python`` for Spark, which starts hundreds of workers: each is forked from a process that has imported
everything.

``python forked_python.py serve SOCKET`` is that process. ``python forked_python.py run SOCKET ARGUMENT ...`` runs in
place of ``python ARGUMENT ...`` and represents the forked process: it forwards streams, environment and exit code,
and the forked process ends with it.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import socket
import sys
from collections.abc import Callable

_LENGTH = 8
_SECONDS_TO_END = 5
_REPORTS = {"handle_worker_exception", "send_accumulator_updates"}
_MODULES = (
    "delta_sharing_client.spark.datasource",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
)


def run(path: str, arguments: list[str]) -> int:
    """Run ``python ARGUMENT ...`` in a forked process and return its exit code."""
    if arguments[:1] != ["-m"]:
        os.execv(sys.executable, [sys.executable, *arguments])
    said = "\0".join([os.getcwd(), str(len(arguments)), *arguments, *(f"{k}={v}" for k, v in os.environ.items())])
    whole = said.encode(errors="surrogateescape")
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        socket.send_fds(line, [len(whole).to_bytes(_LENGTH, "big")], [0, 1, 2])
        line.sendall(whole)
        return int(line.recv(_LENGTH) or b"1")


def serve(path: str) -> None:
    """Fork processes as requested on the socket ``path`` until the standard input ends."""
    import gc
    import importlib

    del sys.path[0]  # modules of this directory must not be imported
    for name in _MODULES:
        importlib.import_module(name)
    _save_what_is_measured()
    gc.collect()
    gc.freeze()  # PySpark collects garbage after each task, which would traverse all these modules
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the watching children are not waited for
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        os.write(1, b"ready\n")
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            line, _ = listener.accept()
            if not os.fork():
                listener.close()
                _watch(line)
                return
            line.close()


def _save_what_is_measured() -> None:
    """Make coverage save its data before a worker reports to Spark that it is done, because Spark may then kill it at
    once."""
    coverage = sys.modules.get("coverage")
    running = coverage and coverage.Coverage.current()
    if running:
        for module in [module for name, module in sys.modules.items() if name.startswith("pyspark.")]:
            for name in _REPORTS & vars(module).keys():
                setattr(module, name, functools.partial(_report, running.save, getattr(module, name)))


def _report(save: Callable[[], None], report: Callable[..., None], *arguments: object) -> None:
    save()
    report(*arguments)


def _watch(line: socket.socket) -> None:
    """Fork one process and send its exit code. End it if the requesting process ends first."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, streams, _, _ = socket.recv_fds(line, _LENGTH, 3)
    whole = b""
    while len(whole) < int.from_bytes(length, "big"):
        whole += line.recv(1 << 16)
    folder, count, *said = whole.decode(errors="surrogateescape").split("\0")
    child = os.fork()
    if not child:
        line.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _become(folder, said[: int(count)], dict(one.split("=", 1) for one in said[int(count) :]))
        return
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(child)
    if ended not in select.select([ended, line], [], [])[0]:
        os.kill(child, signal.SIGTERM)
        if not select.select([ended], [], [], _SECONDS_TO_END)[0]:
            os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    line.send(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def _become(folder: str, arguments: list[str], environment: dict[str, str]) -> None:
    import runpy

    # os._exit ends the process as quickly as the default handler does, but lets coverage save its data.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    _, module, *rest = arguments
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        sys.exit(run(sys.argv[2], sys.argv[3:]))
    serve(sys.argv[2])
