"""Run tests in a copy of the packages, so that the processes they start import the changed modules too.

The tests with a Spark session reach most of their lines in Spark's Python workers. They run once with watched modules,
which record each line with the test that reached it; the records are cached until a test file or a watched module
changes.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tools.mutate import marks
from tools.mutate.mutants import watched

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("delta_sharing_client", "mock_server")
COPIED = (*PACKAGES, "pyspark_delta_sharing", "pyspark_delta_sharing_alias", "tests", "tools", "pyproject.toml")
PYTEST = (sys.executable, *["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tools.mutate.marks"])
CACHE = ROOT / ".mutate_cache" / "started.json"
# Wall-clock seconds for a whole run, and for the tests of one mutant.
ALL_SECONDS = 3600
MUTANT_SECONDS = 150
# A test failed, or a changed module cannot be imported. Other exit codes of pytest mean that no test was run.
FAILED = (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)


class StartedTests:
    """The tests of ``files`` that use a Spark session, for mutants of the ``modules``."""

    def __init__(self, files: Sequence[str], modules: Sequence[Path]) -> None:
        self._files = files
        self._modules = modules
        self._tests: dict[str, dict[str, Any]] | None = None
        self._killers: Counter[str] = Counter()

    def covers(self, module: Path) -> bool:
        """Return whether the lines of ``module`` are watched."""
        return module in self._modules

    def run(self, module: Path, statement: int, tree: ast.Module) -> tuple[str, int, int]:
        """Run the tests that reach the line ``statement`` of ``module``, with ``tree`` in place of the module.

        Returns the verdict, the number of these tests, and how many were omitted because they take too long.
        """
        if self._tests is None:
            self._tests = self._reached()
        name = str(module.relative_to(ROOT))
        own = f"tests/spark/test_{module.stem}.py::"
        # A test may change the session, such as its classes, which other tests of the module may notice.
        tests = [
            (test, facts["seconds"])
            for test, facts in self._tests.items()
            if _reaches(facts, name, statement) or test.startswith(own)
        ]
        tests.sort(key=lambda one: (-self._killers[one[0]], not _reaches(self._tests[one[0]], name, statement), one[1]))
        ends = itertools.accumulate(seconds for _, seconds in tests)
        chosen = [test for (test, _), end in zip(tests, ends, strict=True) if end <= MUTANT_SECONDS] or [
            test for test, _ in tests[:1]
        ]
        if not chosen:
            return "uncovered", 0, 0
        with tempfile.TemporaryDirectory(prefix="marks-") as folder:
            marks.prepare(Path(folder))
            status = _run_a_copy(chosen, {module: ast.unparse(tree)}, folder, "-x", seconds=10 * MUTANT_SECONDS)
            passed = marks.results(Path(folder))
        if status == 0:
            return "survived", len(tests), len(tests) - len(chosen)
        if status not in (None, *FAILED):
            sys.exit(f"pytest ended with {status}, so nothing is known about this mutant: {', '.join(chosen)}.")
        self._killers.update([test for test in chosen if test not in passed][:1])
        return "hung" if status is None else "killed", len(tests), 0

    def _reached(self) -> dict[str, dict[str, Any]]:
        """Return the tests that pass, each with its duration and the lines that it reaches."""
        key = _digest([*self._modules, *sorted(Path(ROOT, "tests", "spark").glob("*.py"))])
        cached = json.loads(CACHE.read_text()) if CACHE.exists() else {}
        if key not in cached:
            print("The lines that the tests with a Spark session reach are not recorded yet.", flush=True)
            changed = {path: _marked(path) for path in self._modules}
            with tempfile.TemporaryDirectory(prefix="marks-") as folder:
                marks.prepare(Path(folder))
                status = _run_a_copy(self._files, changed, folder, seconds=ALL_SECONDS)
                if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                    sys.exit(f"These tests cannot be run: {', '.join(self._files)}.")
                cached = {key: marks.results(Path(folder))}
            CACHE.parent.mkdir(exist_ok=True)
            CACHE.write_text(json.dumps(cached))
        result: dict[str, dict[str, Any]] = cached[key]
        return result


def _reaches(facts: Mapping[str, Any], module: str, statement: int) -> bool:
    return statement in facts["lines"].get(module, ())


def _digest(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _marked(path: Path) -> str:
    """Return the module's source, changed so that each statement inside a function records its line."""
    tree = watched(ast.parse(path.read_text()), "__reached__")
    made = f"from tools.mutate.marks import Marks\n__reached__ = Marks({str(path.relative_to(ROOT))!r})"
    # The module's docstring and its imports from __future__ must stay first.
    first = 1 + max(
        number
        for number, each in enumerate(tree.body)
        if number == 0 or (isinstance(each, ast.ImportFrom) and each.module == "__future__")
    )
    tree.body[first:first] = ast.parse(made).body
    return ast.unparse(tree)


def _run_a_copy(
    tests: Sequence[str], changed: Mapping[Path, str], folder: str, *options: str, seconds: float
) -> int | None:
    """Run tests in a copy with the ``changed`` modules; return pytest's exit code, or ``None`` if it does not end."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as copy:
        for path in (ROOT / name for name in COPIED):
            if path.is_dir():
                shutil.copytree(path, Path(copy, path.name), ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, copy)
        for path, text in changed.items():
            Path(copy, path.relative_to(ROOT)).write_text(text)
        own = {**os.environ, "PYTHONPATH": copy, marks.FOLDER: folder}
        own.pop("PYTHONDONTWRITEBYTECODE", None)
        process = subprocess.Popen(
            [*PYTEST, *options, *tests], cwd=copy, env=own,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and the JVM that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
