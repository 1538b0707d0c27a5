"""A short run of the fuzzers of responses and of data files in every test run; long runs are started by hand."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.effort import ALL
from tests.fuzz import fuzz_parquet
from tests.fuzz.fuzz_wire import TARGETS, Failed, fuzz, main, run_one, seeds

FOUND = Path(__file__).parent / "found"


def seed_of_this_run() -> int:
    """Return a fixed seed in CI, where a failure should come from a change; elsewhere a new seed for each run."""
    return 20261121 if os.environ.get("CI") else random.randrange(1 << 31)


@pytest.mark.parametrize("name", TARGETS)
def test_malformed_inputs_raise_only_our_errors(name: str) -> None:
    seed = seed_of_this_run()
    try:
        fuzz([name], seed=seed, inputs=250)
    except Failed as failure:
        pytest.fail(f"seed {seed}: {failure}")


@pytest.mark.parametrize("name", sorted(set(TARGETS) - {"failure"}))
def test_undamaged_inputs_are_valid(name: str) -> None:
    assert any(run_one(name, data) for data in seeds(name))


def test_failure_is_reported_with_its_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(data: bytes) -> None:
        raise KeyError("no such key")

    monkeypatch.setitem(TARGETS, "schema", broken)
    assert main(["--target", "schema", "--seconds", "1", "--seed", "1"]) == 1
    shown = capsys.readouterr().out
    assert "KeyError" in shown
    assert "--target schema --input" in shown


def test_damaged_data_files_give_rows_or_name_the_file() -> None:
    """In a separate process, as damage may kill it."""
    lines: list[str] = []
    seed = seed_of_this_run()

    assert fuzz_parquet.supervise(30 if ALL else 4, seed, lines.append) == 0, "\n".join(lines)


@pytest.mark.parametrize("read", range(len(fuzz_parquet.READS)))
@pytest.mark.parametrize("path", sorted(FOUND.iterdir()), ids=lambda path: path.stem)
def test_files_that_once_killed_the_process(path: Path, read: int) -> None:
    arguments = ["--input", str(path), "--read", str(read)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.fuzz_parquet", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("accepted\n", "refused\n")


def test_undamaged_files_are_valid_in_every_read() -> None:
    for data in fuzz_parquet.seeds():
        assert all(fuzz_parquet.read_file(data, read) for read in range(len(fuzz_parquet.READS)))


def test_killed_process_counts_as_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only in this module, as other threads use the clock, too.
    monkeypatch.setattr(fuzz_parquet, "sys", SimpleNamespace(executable="false"))
    monkeypatch.setattr(fuzz_parquet, "tempfile", SimpleNamespace(mkdtemp=lambda prefix: str(tmp_path)))
    monkeypatch.setattr(fuzz_parquet, "time", SimpleNamespace(monotonic=iter((0.0, 0.0, 9.0)).__next__))

    assert fuzz_parquet.supervise(2, 1, lambda line: None) == 1
