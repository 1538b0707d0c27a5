"""Record the lines that a test and the processes it starts reach, in files in the directory ``$MUTATE_MARKS``.

As a pytest plugin it numbers the tests, and keeps only those with a Spark session. The watched modules of a copy of
the packages write into ``Marks``, in any process.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any

import pytest

FOLDER = "MUTATE_MARKS"
_LENGTH = 8


def _place(name: str) -> Path:
    return Path(os.environ[FOLDER], name)


class Marks:
    """The record of one module: ``marks[line] = True`` records that the current test reached the line."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._seen: set[tuple[bytes, int]] = set()
        # Both files are opened now: Spark may drop the variable from the environment later, and a fork keeps open
        # files.
        self._lines = os.open(_place("lines"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with _place("current").open("rb") as file:
            self._current = mmap.mmap(file.fileno(), _LENGTH, prot=mmap.PROT_READ)

    def __reduce__(self) -> tuple[type[Marks], tuple[str]]:
        # Spark pickles nested functions with the globals that they use.
        return Marks, (self._module,)

    def __setitem__(self, line: int, reached: bool) -> None:
        test = self._current[:]
        if (test, line) not in self._seen:
            self._seen.add((test, line))
            os.write(self._lines, f"{int(test)} {self._module} {line}\n".encode())


def prepare(folder: Path) -> None:
    """Create the files: no test has begun."""
    Path(folder, "current").write_bytes(b"0".zfill(_LENGTH))
    for name in ("lines", "tests"):
        Path(folder, name).touch()


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the passed tests: for each, its duration in seconds and the lines that it reached in each module."""
    reached: dict[int, dict[str, set[int]]] = {}
    for text in Path(folder, "lines").read_text().splitlines():
        number, module, line = text.split(" ")
        reached.setdefault(int(number), {}).setdefault(module, set()).add(int(line))
    tests = {}
    for text in Path(folder, "tests").read_text().splitlines():
        number, seconds, name = text.split(" ", 2)
        lines = {module: sorted(lines) for module, lines in reached.get(int(number), {}).items()}
        tests[name] = {"seconds": float(seconds), "lines": lines}
    return tests


class _Numbers:
    """Tell the watched modules which test is running."""

    def __init__(self) -> None:
        self._number = 0
        self._begun = 0.0
        self._failed = False
        with _place("current").open("r+b") as file:
            self._current = mmap.mmap(file.fileno(), _LENGTH)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if "spark" in getattr(item, "fixturenames", ())]

    def pytest_runtest_logstart(self) -> None:
        self._number += 1
        self._current[:] = str(self._number).zfill(_LENGTH).encode()
        self._begun, self._failed = time.monotonic(), False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or not report.passed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if not self._failed:
            with _place("tests").open("a") as file:
                file.write(f"{self._number} {time.monotonic() - self._begun:.2f} {nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin that numbers the tests of this run."""
    config.pluginmanager.register(_Numbers())
