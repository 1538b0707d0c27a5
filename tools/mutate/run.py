"""A pytest plugin that takes one mutant after another and runs the tests that cover it.

The tests are collected once. Each mutant runs in a forked child: it replaces the code of the existing functions,
runs the tests that reach the changed statement, starting with those of the same module and the quick ones, and ends
at the first failure. Processes started by tests do not see the change: a mutant that survives may then run in a copy
of the packages (``copies.py``).

The lines that each test reaches are cached in ``.mutate_cache`` until the test or a reached function changes. A
failure of a test, which may be caused by load, is cached as well: delete the directory to run all tests again.
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
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.time_limits import slowness
from tools.mutate.copies import PACKAGES, ROOT, StartedTests
from tools.mutate.mutants import Mutant, made_by, mutants, parts, watched

MEMORY = 6 << 30
# A mutant may never end, so a test may take four times its usual processor seconds plus these.
EXTRA_SECONDS = 8
# A mutant may also wait for ever, which takes no processor time.
WAIT_SECONDS = 60
# The number of tests that one process runs to record the lines they reach.
TOGETHER = 150
# Processor seconds of an idle machine for the tests of the same module, and as many for all others that reach the
# line, quick ones first. A slow machine takes longer and runs the same tests.
MOST_SECONDS = 8
# Processor seconds for the remaining tests if a mutant survives the first ones.
MORE_SECONDS = 30
WATCH = "__reached__"
CACHE = ROOT / ".mutate_cache" / "parts.json"


@dataclasses.dataclass
class Outcome:
    """The result for one mutant: ``killed``, ``hung``, ``survived``, ``uncovered`` or ``impossible`` (not a valid
    program).

    ``untried`` tests reach it but were not run, because they take too long.
    """

    mutant: Mutant
    verdict: str
    tests: int
    seconds: float
    untried: int = 0


@dataclasses.dataclass
class Covered:
    """One test with its duration in seconds and, by file, the lines of the statements that it reaches."""

    item: pytest.Item
    seconds: float
    lines: dict[str, set[int]]


class Mutate:
    """Replace pytest's loop over the tests.

    ``watched`` are the files that may be changed; the tests that reach their lines are recorded. ``started`` are the
    tests that start processes, which run if a mutant survives the other tests.
    """

    def __init__(
        self,
        watched: Sequence[Path],
        choose: Callable[[Mutant], bool],
        tell: Callable[[Outcome], None],
        started: StartedTests,
    ) -> None:
        self._files = {str(path): path for path in watched}
        self._choose = choose
        self._tell = tell
        self._started = started
        self._failed = False
        self._slowness = slowness(time.process_time)
        self._caches: list[functools._lru_cache_wrapper[Any]] = []
        self._killers: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._reached: dict[str, dict[int, bool]] = {}
        # The lines that fixtures with a wider scope reached, by the fixture's base id and name.
        self._shared: dict[tuple[str, str], dict[str, dict[int, bool]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        before = {file: dict(lines) for file, lines in self._reached.items()}
        for lines in self._reached.values():
            lines.clear()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                own = {file: dict(lines) for file, lines in self._reached.items()}
                self._shared[fixturedef.baseid, fixturedef.argname] = own
            for file, lines in before.items():
                self._reached[file].update(lines)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = [item for item in session.items if not item.get_closest_marker("alone") and not _asks_for_a_jvm(item)]
        covered = self._baseline(items)
        functions = self._functions()
        for file, path in self._files.items():
            tree = ast.parse(path.read_text())
            # Each mutant changes a copy of the tree, because it runs in its own process.
            for mutant in mutants(path, name_of(path), tree):
                if self._choose(mutant):
                    reached = [one for one in covered if mutant.statement in one.lines.get(file, ())]
                    if made_by(tree, mutant.function):
                        # A value assigned at import depends on this function, and any function may read it.
                        reached = [one for one in covered if one.lines.get(file)]
                    outcome = self._tried(mutant, tree, functions[file], self._ordered(path, reached))
                    if self._started.covers(path) and outcome.verdict in ("survived", "uncovered"):
                        outcome = _in_a_copy(mutant, outcome, self._started)
                    self._tell(outcome)
        return True

    def _functions(self) -> defaultdict[str, list[types.FunctionType]]:
        """Return the functions of each file, after clearing all caches."""
        # Import all modules now, because a test that imports one later would import it unchanged.
        for path in self._files.values():
            importlib.import_module(_module_of(path))
        gc.unfreeze()
        result = defaultdict(list)
        self._caches = []
        for value in gc.get_objects():
            if type(value) is types.FunctionType and value.__code__.co_filename in self._files:
                result[value.__code__.co_filename].append(value)
            elif isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()
                if value.__module__.startswith(PACKAGES):
                    self._caches.append(value)
        # Frozen objects are skipped when a child collects garbage, so that it does not copy their memory pages.
        gc.collect()
        gc.freeze()
        return result

    def _ordered(self, path: Path, tests: list[Covered]) -> list[list[Covered]]:
        """Return the tests in three lists; tests that killed mutants of this file come first, then those with its
        name, then all others.

        The first list runs for every mutant, the second if it survives, and the third never.
        """
        killers = self._killers[str(path)]
        tests = sorted(tests, key=lambda one: (-killers[one.item.nodeid], one.seconds))
        own = [one for one in tests if killers[one.item.nodeid] or one.item.path.stem == f"test_{path.stem}"]
        others = [one for one in tests if one not in own]
        first = [*_affordable(own, MOST_SECONDS * self._slowness), *_affordable(others, MOST_SECONDS * self._slowness)]
        second = [one for one in tests if one not in first]
        rest = second[len(_affordable(second, MORE_SECONDS * self._slowness)) :]
        return [first, second[: len(second) - len(rest)], rest]

    def _tried(
        self, mutant: Mutant, tree: ast.Module, functions: list[types.FunctionType], tests: list[list[Covered]]
    ) -> Outcome:
        first, second, rest = tests
        outcome = self._try(mutant, tree, functions, first)
        if outcome.verdict == "survived" and second:
            begun = time.monotonic() - outcome.seconds
            outcome = self._try(mutant, tree, functions, second)
            outcome.seconds = time.monotonic() - begun
        outcome.tests = sum(map(len, tests))
        outcome.untried = len(rest) if outcome.verdict == "survived" else 0
        return outcome

    def _try(
        self, mutant: Mutant, tree: ast.Module, functions: list[types.FunctionType], tests: list[Covered]
    ) -> Outcome:
        begun = time.monotonic()
        if not tests:
            return Outcome(mutant, "uncovered", 0, 0)
        read, write = os.pipe()
        status = _in_child(lambda: self._verdict(mutant, tree, functions, tests, write))
        os.close(write)
        with os.fdopen(read) as pipe:
            # The numbers of the tests that started; if the mutant was killed, the last of them killed it.
            tried = pipe.read().split()
        verdict = {0: "survived", 3: "impossible"}.get(status, "killed")
        if status in (-signal.SIGALRM, -signal.SIGPROF):
            verdict = "hung"
        if verdict == "killed" and tried:
            self._killers[str(mutant.path)][tests[int(tried[-1])].item.nodeid] += 1
        return Outcome(mutant, verdict, len(tests), time.monotonic() - begun)

    def _verdict(
        self,
        mutant: Mutant,
        tree: ast.Module,
        functions: list[types.FunctionType],
        tests: list[Covered],
        note: int,
    ) -> int:
        mutant.apply()
        try:
            _put(compile(tree, str(mutant.path), "exec", dont_inherit=True), functions)
        except (SyntaxError, ValueError):  # e.g. a different number of closure variables
            return 3
        try:
            self._make_again(mutant, tree)
        except Exception:
            return 1
        for number, (one, following) in enumerate(itertools.pairwise([*tests, None])):
            assert one is not None
            os.write(note, b"%d " % number)
            signal.setitimer(signal.ITIMER_PROF, EXTRA_SECONDS + 4 * one.seconds)
            signal.alarm(WAIT_SECONDS + int(10 * one.seconds))
            self._run(one.item, following.item if following else None)
            if self._failed:
                return 1
        return 0

    def _make_again(self, mutant: Mutant, tree: ast.Module) -> None:
        """Recompute the values that a changed function computed at import."""
        for statement in made_by(tree, mutant.function):
            module = vars(sys.modules[_module_of(mutant.path)])
            made = dict(module)
            exec(compile(ast.Module([statement], []), str(mutant.path), "exec", dont_inherit=True), made)
            for name in (name for name, value in made.items() if name in module and module[name] is not value):
                if isinstance(module[name], dict):
                    module[name].clear()
                    module[name].update(made[name])
                else:
                    module[name] = made[name]

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> None:
        plugins = item.config.pluginmanager
        if plugins.has_plugin("terminalreporter"):
            plugins.unregister(name="terminalreporter")
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def _baseline(self, items: list[pytest.Item]) -> list[Covered]:
        """Return the lines that each test reaches. Tests without recorded lines are run first and left out if they
        fail."""
        cached = json.loads(CACHE.read_text()) if CACHE.exists() else {}

        def known(item: pytest.Item) -> bool:
            entry = cached.get(item.nodeid)
            return entry is not None and all(
                _digest(path, part) == digest
                for path, lines in entry["parts"].items()
                for part, (digest, *_) in lines.items()
            )

        unknown = [item for item in items if not known(item)]
        CACHE.parent.mkdir(exist_ok=True)
        while unknown:
            print(f"The lines that {len(unknown)} tests reach are not recorded yet.", flush=True)
            # A test that never ends is killed with its process; the other tests run in the next process.
            unknown = unknown[self._reach(unknown[:TOGETHER], cached) :]
            CACHE.write_text(json.dumps(cached))
        if failed := [item.nodeid for item in items if cached[item.nodeid]["failed"]]:
            print("These tests fail without any change and are left out:", *failed, sep="\n  ", flush=True)
        return [
            Covered(
                item, entry["seconds"], {str(ROOT / path): _lines(path, part) for path, part in entry["parts"].items()}
            )
            for item in items
            if not (entry := cached[item.nodeid])["failed"]
        ]

    def _reach(self, items: list[pytest.Item], cached: dict[str, Any]) -> int:
        """Run tests in a child, because their threads would be missing in processes forked later.

        Returns how many were run: all, or all up to and including one that never ended.
        """
        read, write = os.pipe()

        def trace() -> int:
            reached = self._reached = self._watch()
            with os.fdopen(write, "w") as pipe:
                for item, following in itertools.pairwise([*items, None]):
                    assert item is not None
                    self._failed = False
                    for lines in reached.values():
                        lines.clear()
                    # Clear the caches, because a cached result would keep the next test from reaching the lines that
                    # computed it.
                    for cache in self._caches:
                        cache.cache_clear()
                    begun = time.process_time()
                    signal.alarm(WAIT_SECONDS)
                    self._run(item, following)
                    signal.alarm(0)
                    for (place, name), shared in self._shared.items():
                        if name in getattr(item, "fixturenames", ()) and item.nodeid.startswith(place):
                            for file, lines in shared.items():
                                reached[file].update(lines)
                    results = {os.path.relpath(file, ROOT): sorted(lines) for file, lines in reached.items() if lines}
                    pipe.write(json.dumps([time.process_time() - begun, self._failed, results]) + "\n")
                    pipe.flush()
            return 0

        pid = _fork(trace)
        os.close(write)
        with os.fdopen(read) as pipe:
            results = [json.loads(line) for line in pipe]
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if len(results) < len(items):
            print(f"The process ended ({status}) in the test {items[len(results)].nodeid}.", flush=True)
            results.append([0, True, {}])
        for item, (seconds, failed, lines) in zip(items, results, strict=False):
            test = os.path.relpath(item.path, ROOT)
            function = ".".join(item.nodeid.partition("[")[0].split("::")[1:])
            own = {part: [_digest(test, part)] for part in ("", function)}
            cached[item.nodeid] = {
                "parts": {test: own, **{path: _by_part(path, reached) for path, reached in lines.items()}},
                "seconds": seconds,
                "failed": failed,
            }
        return len(results)

    def _watch(self) -> dict[str, dict[int, bool]]:
        """Let every function record the statements that it reaches; return the records of each file."""
        reached: dict[str, dict[int, bool]] = {}
        for file, functions in self._functions().items():
            lines = reached[file] = {}
            for function in functions:
                function.__globals__[WATCH] = lines
            tree = watched(ast.parse(Path(file).read_text()), WATCH)
            _put(compile(tree, file, "exec", dont_inherit=True), functions)
        return reached


def _asks_for_a_jvm(item: pytest.Item) -> bool:
    """Return whether the test uses a Spark session: it starts slowly, and its workers do not see the change."""
    return "spark" in getattr(item, "fixturenames", ())


def name_of(path: Path) -> str:
    """Return the prefix of the keys of a module's mutants."""
    return path.relative_to(ROOT).as_posix().removeprefix(f"{PACKAGES[0]}/")


def _module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def _parts(path: str) -> dict[str, tuple[str, range]]:
    place = ROOT / path
    return parts(place.read_text()) if place.is_file() else {}


def _digest(path: str, part: str) -> str | None:
    return _parts(path).get(part, (None,))[0]


def _by_part(path: str, lines: list[int]) -> dict[str, list[Any]]:
    """Group the lines by function: for each, return its digest and the lines relative to its first one."""
    results: dict[str, list[Any]] = {"": [_digest(path, "")]}
    for part, (digest, span) in _parts(path).items():
        if inside := [line - span.start for line in lines if line in span]:
            results[part] = [digest, *inside]
    return results


def _lines(path: str, reached: dict[str, list[Any]]) -> set[int]:
    """Return the absolute lines from what ``_by_part`` returned, for the current text of the file."""
    return {_parts(path)[part][1].start + line for part, (_, *lines) in reached.items() for line in lines}


def _affordable(tests: list[Covered], most: float) -> list[Covered]:
    ends = itertools.accumulate(one.seconds for one in tests)
    return [one for one, end in zip(tests, ends, strict=True) if end - one.seconds <= most]


def _put(module: types.CodeType, functions: Iterable[types.FunctionType]) -> None:
    """Replace the code of functions with their code in a changed module."""
    codes: defaultdict[tuple[str, int], list[types.CodeType]] = defaultdict(list)
    waiting = [module]
    while waiting:
        code = waiting.pop()
        codes[code.co_qualname, code.co_firstlineno].append(code)
        waiting += [value for value in code.co_consts if isinstance(value, types.CodeType)]
    for function in functions:
        result = codes[function.__code__.co_qualname, function.__code__.co_firstlineno]
        # Two lambdas on one line cannot be distinguished, so they keep their code; no mutant changes a lambda alone.
        if len(result) == 1:
            function.__code__ = result[0]


def _in_a_copy(mutant: Mutant, before: Outcome, tests: StartedTests) -> Outcome:
    """Run ``tests`` on a mutant that the other tests did not kill, and return the combined outcome."""
    begun = time.monotonic() - before.seconds
    tree = ast.parse(mutant.path.read_text())
    next(one for one in mutants(mutant.path, name_of(mutant.path), tree) if one.key == mutant.key).apply()
    verdict, count, untried = tests.run(mutant.path, mutant.statement, tree)
    if verdict == "uncovered":
        return before
    return Outcome(mutant, verdict, before.tests + count, time.monotonic() - begun, before.untried + untried)


def _in_child(function: Callable[[], int]) -> int:
    _, status = os.waitpid(_fork(function), 0)
    return os.waitstatus_to_exitcode(status)


def _fork(function: Callable[[], int]) -> int:
    """Start ``function`` in a child without output; return the child's id. Its exit code is the function's result."""
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
    """Collect ``tests`` and pass them to ``plugin``. Property tests draw the same values each time and are not
    shrunk."""
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
