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
from tools.fuzz import parquet as fuzz_parquet
from tools.fuzz.wire import TARGETS, Failed, fuzz, main, run_one, seeds

FOUND = Path(__file__).parent / "found"


def seed_of_this_run() -> int:
    """Return a fixed seed in CI, where a failure should come from a change; elsewhere a new seed for each run."""
    return 20261121 if os.environ.get("CI") else random.randrange(1 << 31)


@pytest.mark.parametrize("name", TARGETS)
def test_client_raises_only_our_errors_for_malformed_input(name: str) -> None:
    seed = seed_of_this_run()
    try:
        fuzz([name], seed=seed, inputs=250)
    except Failed as failure:
        pytest.fail(f"seed {seed}: {failure}")


@pytest.mark.parametrize("name", sorted(set(TARGETS) - {"failure"}))
def test_every_target_accepts_at_least_one_seed(name: str) -> None:
    assert any(run_one(name, data) for data in seeds(name))


def test_fuzzer_reports_a_failure_with_its_input(
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
    """A separate process reads the files, as damage may kill it."""
    lines: list[str] = []
    seed = seed_of_this_run()

    assert fuzz_parquet.supervise(30 if ALL else 4, seed, lines.append) == 0, "\n".join(lines)


@pytest.mark.parametrize("read", range(len(fuzz_parquet.READS)))
@pytest.mark.parametrize("path", sorted(FOUND.iterdir()), ids=lambda path: path.stem)
def test_files_that_once_crashed_the_process_are_handled(path: Path, read: int) -> None:
    arguments = ["--input", str(path), "--read", str(read)]
    done = subprocess.run(
        [sys.executable, "-m", "tools.fuzz.parquet", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("accepted\n", "refused\n")


def test_undamaged_data_files_are_accepted_by_every_read() -> None:
    for data in fuzz_parquet.seeds():
        assert all(fuzz_parquet.read_file(data, read) for read in range(len(fuzz_parquet.READS)))


def test_killed_fuzzer_process_counts_as_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Patched in this module only, as other threads use the clock, too.
    monkeypatch.setattr(fuzz_parquet, "sys", SimpleNamespace(executable="false"))
    monkeypatch.setattr(fuzz_parquet, "tempfile", SimpleNamespace(mkdtemp=lambda prefix: str(tmp_path)))
    monkeypatch.setattr(fuzz_parquet, "time", SimpleNamespace(monotonic=iter((0.0, 0.0, 9.0)).__next__))

    assert fuzz_parquet.supervise(2, 1, lambda line: None) == 1
