"""What ``to_spark`` notices before it asks Spark for anything."""

from __future__ import annotations

import pathlib
import shlex
import sys
import types
from typing import Any

import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.spark.to_spark import check_workers


def session(program: str | None) -> Any:
    return types.SimpleNamespace(_sc=None if program is None else types.SimpleNamespace(pythonExec=program))


def interpreter(folder: pathlib.Path, *flags: str, before: str = "") -> str:
    path = folder / "python3"
    path.write_text(f'#!/bin/sh\n{before}\nexec {shlex.join([sys.executable, *flags])} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_workers_with_this_interpreter_or_one_that_has_the_package_or_that_cannot_be_seen_are_fine(
    tmp_path: pathlib.Path,
) -> None:
    check_workers(session(sys.executable))
    check_workers(session(None))
    root = shlex.quote(str(pathlib.Path(__file__).resolve().parents[2]))
    check_workers(session(interpreter(tmp_path, before=f"export PYTHONPATH={root}")))


@pytest.mark.parametrize(
    ("program", "lacks"),
    [
        (lambda folder: interpreter(folder, "-I", "-S"), "says: No module named"),
        (lambda folder: interpreter(folder, before="echo 3.7; exit 0"), "is Python 3.7"),
        (lambda folder: str(folder / "none"), "cannot be run"),
        (lambda folder: interpreter(folder, before="exit 3"), "cannot be run"),
    ],
)
def test_workers_that_cannot_read_are_told_before_planning(tmp_path: pathlib.Path, program: Any, lacks: str) -> None:
    path = program(tmp_path)
    with pytest.raises(UsageError, match="PYSPARK_PYTHON") as caught:
        check_workers(session(path))
    assert f"'{path}', which {lacks}" in caught.value.message
    assert f"'{sys.executable}'" in caught.value.message
