"""Measures the processor time of a read by stage, over all threads, and counts the calls of Python functions.

The module imports only the standard library, because it runs in the measured process.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

# A function belongs to the first stage that lists a part of its source path; C code belongs to the stage of its Python
# caller.
STAGES = (
    ("pandas conversion", ("delta_sharing_client/outputs/pandas.py", "/pandas/", "/numpy/", "pandas_compat.py")),
    ("Parquet decoding", ("delta_sharing_client/decode/", "delta_sharing_client/parquet/", "/pyarrow/")),
    (
        "sockets and HTTP",
        (
            "delta_sharing_client/fetch/",
            "/aiohttp/",
            "/yarl/",
            "/multidict/",
            "/urllib3/",
            "/requests/",
            "/http/",
            "/email/",
            "/socket.py",
            "/ssl.py",
        ),
    ),
    (
        "scheduling",
        ("delta_sharing_client/run/", "/asyncio/", "/selectors.py", "/threading.py", "/concurrent/", "/queue.py"),
    ),
    ("asking and planning", ("delta_sharing_client/",)),
)
OTHER = "everything else"


class Profile:
    """The result: ``calls`` of Python functions, and processor ``seconds`` by stage."""

    def __init__(self) -> None:
        self.calls = 0
        self.seconds: dict[str, float] = {}


@contextmanager
def profiled() -> Iterator[Profile]:
    """Profile this thread, and threads that start in the ``with`` block. The profile is complete after the block."""
    profile = Profile()
    threads: list[_Thread] = []
    lock = threading.Lock()

    def begin(frame: FrameType, event: str, argument: object) -> None:
        thread = _Thread()
        with lock:
            threads.append(thread)
        sys.setprofile(thread.note)
        thread.note(frame, event, argument)

    threading.setprofile(begin)
    sys.setprofile(begin)
    try:
        yield profile
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        with lock:
            ended = list(threads)
        for thread in ended:
            profile.calls += thread.calls
            for stage, seconds in list(thread.seconds.items()):
                profile.seconds[stage] = profile.seconds.get(stage, 0.0) + seconds


class _Thread:
    def __init__(self) -> None:
        self.calls = 0
        self.seconds: dict[str, float] = {}
        self._now = ""
        self._since = time.thread_time()
        self._stages: dict[CodeType, str] = {}

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Add the time since the last event to the stage of the function that was running."""
        if event == "call":
            self.calls += 1
            running: FrameType | None = frame
        elif event == "return":
            running = frame.f_back
        else:
            return
        now = time.thread_time()
        if self._now:
            self.seconds[self._now] = self.seconds.get(self._now, 0.0) + now - self._since
        self._now = OTHER if running is None else self._stage(running.f_code)
        self._since = time.thread_time()

    def _stage(self, code: CodeType) -> str:
        result = self._stages.get(code)
        if result is None:
            path = code.co_filename.replace("\\", "/")
            matching = (stage for stage, parts in STAGES if any(part in path for part in parts))
            result = self._stages[code] = next(matching, OTHER)
        return result
