"""Run the tests that cover a mutant, for one mutant after another: a plugin of pytest.

The tests are collected once. Each mutant is tried in a child that is forked off then: it puts the changed code into the
functions that exist already, runs the tests that reach the changed line, the quick ones first, and ends at the first
that fails. Tests that start processes of their own do not see the change there.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import gc
import importlib
import itertools
import json
import os
import resource
import signal
import sys
import threading
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.mutate.mutants import Mutant, mutants

MEMORY = 6 << 30
# A mutant may never end: a test has four times the seconds that it took, and these.
EXTRA_SECONDS = 8
# What reaches a line is tried for so long, the quick tests first.
MOST_SECONDS = 30


@dataclasses.dataclass
class Outcome:
    """What became of one mutant: ``killed``, ``hung``, ``survived``, ``uncovered`` or ``impossible``: no program."""

    mutant: Mutant
    verdict: str
    tests: int
    seconds: float


@dataclasses.dataclass
class Covered:
    """What one test needs: its seconds, and the lines it reaches by file."""

    item: pytest.Item
    seconds: float
    lines: dict[str, set[int]]


class Mutate:
    """Takes the place of pytest's loop over the tests."""

    def __init__(
        self, root: Path, files: list[Path], choose: Callable[[Mutant], bool], tell: Callable[[Outcome], None]
    ) -> None:
        self._root = root
        self._files = {str(path): path for path in files}
        self._choose = choose
        self._tell = tell
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = [item for item in session.items if not item.get_closest_marker("alone")]
        covered = self._baseline(items)
        functions = self._functions()
        for file, path in self._files.items():
            tree = ast.parse(path.read_text())
            # Each mutant changes the tree of its own process.
            for mutant in mutants(path, path.relative_to(self._root).as_posix(), tree):
                if self._choose(mutant):
                    tests = _quick([one for one in covered if mutant.line in one.lines.get(file, ())])
                    self._tell(self._try(mutant, tree, functions[file], tests))
        return True

    def _functions(self) -> defaultdict[str, list[types.FunctionType]]:
        """Return the functions of each file, after what they have cached is forgotten."""
        # A module that is imported by a test only would be imported unchanged.
        for path in self._files.values():
            module = path.relative_to(self._root.parent).with_suffix("")
            importlib.import_module(".".join(module.parts).removesuffix(".__init__"))
        gc.unfreeze()
        found = defaultdict(list)
        for value in gc.get_objects():
            if type(value) is types.FunctionType and value.__code__.co_filename in self._files:
                found[value.__code__.co_filename].append(value)
            elif isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()
        # A child that collects garbage would copy the memory that it looks at.
        gc.collect()
        gc.freeze()
        return found

    def _try(
        self, mutant: Mutant, tree: ast.Module, functions: list[types.FunctionType], tests: list[Covered]
    ) -> Outcome:
        begun = time.monotonic()
        if not tests:
            return Outcome(mutant, "uncovered", 0, 0)
        status = _in_child(lambda: self._verdict(mutant, tree, functions, tests))
        verdict = {0: "survived", 1: "killed", 3: "impossible"}.get(
            status, "hung" if status == -signal.SIGALRM else "killed"
        )
        return Outcome(mutant, verdict, len(tests), time.monotonic() - begun)

    def _verdict(
        self, mutant: Mutant, tree: ast.Module, functions: list[types.FunctionType], tests: list[Covered]
    ) -> int:
        mutant.apply()
        try:
            _put(compile(tree, str(mutant.path), "exec", dont_inherit=True), functions)
        except (SyntaxError, ValueError):  # a 'return' of a generator, or other variables of a closure
            return 3
        for one in tests:
            signal.alarm(EXTRA_SECONDS + int(4 * one.seconds))
            self._run(one.item)
            if self._failed:
                return 1
        return 0

    def _run(self, item: pytest.Item) -> None:
        plugins = item.config.pluginmanager
        if plugins.has_plugin("terminalreporter"):
            plugins.unregister(name="terminalreporter")
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def _baseline(self, items: list[pytest.Item]) -> list[Covered]:
        """Run all tests once, in a child: threads that they start would be missing in what is forked off later."""
        read, write = os.pipe()

        def trace() -> int:
            with os.fdopen(write, "w") as pipe:
                for number, item in enumerate(items):
                    self._failed = False
                    lines: defaultdict[str, set[int]] = defaultdict(set)
                    begun = time.monotonic()
                    with _traced(set(self._files), lines):
                        self._run(item)
                    entry = [number, time.monotonic() - begun, self._failed, {k: sorted(v) for k, v in lines.items()}]
                    pipe.write(json.dumps(entry) + "\n")
            return 0

        pid = _fork(trace)
        os.close(write)
        with os.fdopen(read) as pipe:
            entries = [json.loads(line) for line in pipe]
        os.waitpid(pid, 0)
        if len(entries) != len(items):
            raise pytest.UsageError(f"The tests ended after {len(entries)} of {len(items)}.")
        if failed := [items[number].nodeid for number, _, wrong, _ in entries if wrong]:
            raise pytest.UsageError(f"These tests fail without any change: {', '.join(failed[:5])}")
        return [
            Covered(items[number], seconds, {file: set(lines) for file, lines in reached.items()})
            for number, seconds, _, reached in entries
        ]


def _quick(tests: list[Covered]) -> list[Covered]:
    tests = sorted(tests, key=lambda one: one.seconds)
    ends = itertools.accumulate(one.seconds for one in tests)
    return [one for one, end in zip(tests, ends, strict=True) if end - one.seconds <= MOST_SECONDS]


class _traced:
    """Records the lines of some files that are executed, in every thread."""

    def __init__(self, files: set[str], lines: dict[str, set[int]]) -> None:
        self._files = files
        self._lines = lines

    def __enter__(self) -> None:
        threading.settrace(self._call)
        sys.settrace(self._call)

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _call(self, frame: types.FrameType, event: str, value: object) -> Any:
        file = frame.f_code.co_filename
        if file not in self._files:
            return None
        add = self._lines[file].add
        add(frame.f_lineno)

        def line(frame: types.FrameType, event: str, value: object) -> Any:
            add(frame.f_lineno)
            return line

        return line


def _put(module: types.CodeType, functions: Iterable[types.FunctionType]) -> None:
    """Give functions the code that a changed module has for them."""
    codes: dict[tuple[str, int], types.CodeType] = {}
    waiting = [module]
    while waiting:
        code = waiting.pop()
        codes[code.co_qualname, code.co_firstlineno] = code
        waiting += [value for value in code.co_consts if isinstance(value, types.CodeType)]
    for function in functions:
        function.__code__ = codes[function.__code__.co_qualname, function.__code__.co_firstlineno]


def _in_child(function: Callable[[], int]) -> int:
    _, status = os.waitpid(_fork(function), 0)
    return os.waitstatus_to_exitcode(status)


def _fork(function: Callable[[], int]) -> int:
    """Run ``function`` in a child that says nothing and ends with what it returns."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        status = function()
    finally:
        os._exit(status)


def run(tests: list[str], plugin: Mutate) -> int:
    """Collect ``tests`` and let ``plugin`` have them; properties draw the same values each time and shrink nothing."""
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    os.environ.pop("CI", None)
    sys.path.insert(0, os.getcwd())

    class Settings:
        def pytest_collection_finish(self) -> None:
            hypothesis.settings.register_profile(
                "mutate", deadline=None, derandomize=True, database=None, phases=phases,
                suppress_health_check=list(hypothesis.HealthCheck),
            )  # fmt: skip
            hypothesis.settings.load_profile("mutate")

    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0", *tests]
    return int(pytest.main([one for one in arguments if one], plugins=[plugin, Settings()]))
