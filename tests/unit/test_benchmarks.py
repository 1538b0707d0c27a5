"""What ``python -m benchmarks`` promises about itself; nothing is measured here."""

from __future__ import annotations

import json
import pathlib
import sys
import threading

import pytest

import delta_sharing_client as ds
from benchmarks import __main__ as program
from benchmarks import goals, measure, results
from benchmarks.cases import CASES
from benchmarks.long_listing import ROWS, LongListing
from benchmarks.profiler import profiled
from benchmarks.workers import WORKERS


def made(name: str, seconds: float = 1.0) -> measure.Result:
    """Return a result of the case in which everyone takes ``seconds``."""
    measured = [
        measure.Measured(
            contender=contender,
            seconds=[seconds],
            rows=1000,
            requests=4,
            bytes=50,
            memory=1000,
            processor=0.5,
            connections=3,
            refused=1,
            frame=1000,
            calls=10,
            stages={"x": 1},
        )
        for contender in CASES[name].contenders
    ]
    return measure.Result(case=CASES[name], measured=measured, reference=100.0 if CASES[name].reference else None)


@pytest.mark.parametrize("name", CASES)
def test_every_case_says_whether_its_goal_is_reached(name: str) -> None:
    assert set(CASES[name].contenders) <= set(WORKERS)
    for verdict in goals.verdicts(made(name)):
        if verdict.reached is None:
            assert str(verdict).startswith("measured: ")
        else:
            assert str(verdict).startswith(("reached: ", "NOT reached: "))
            assert "goal" in str(verdict)


def test_a_figure_is_held_against_its_goal() -> None:
    (verdict,) = goals.verdicts(made("bandwidth", 110.0))
    assert str(verdict) == "reached: 90.9% of the line (goal: 90%)"
    (verdict,) = goals.verdicts(made("bandwidth", 120.0))
    assert str(verdict) == "NOT reached: 83.3% of the line (goal: 90%)"


def test_a_run_prints_and_writes_what_it_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "run", lambda case: made(case.name))
    monkeypatch.setattr(results, "machine", lambda: "this machine")
    monkeypatch.setattr(results, "RESULTS", tmp_path / "RESULTS.md")

    program.main(case=["limit", "cpu"], json_file=tmp_path / "found.json", save=True)

    printed = capsys.readouterr().out
    assert "reached: 4 requests for data (goal: 4)" in printed
    assert "x: 1.000 s, 100%" in printed
    found = json.loads((tmp_path / "found.json").read_text())
    assert [one["case"] for one in found["results"]] == ["limit", "cpu"]
    assert found["results"][0]["goals"] == [{"figure": "4 requests for data (goal: 4)", "reached": True}]
    assert found["results"][1]["measured"][0]["stages"] == {"x": 1}
    saved = (tmp_path / "RESULTS.md").read_text()
    assert "## limit" in saved
    assert "- x: 1.000 s, 100%" in saved


@pytest.mark.parametrize("python", ["no-such-python", sys.executable], ids=["no program", "no package"])
def test_a_missing_incumbent_is_one_clear_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, python: str
) -> None:
    (tmp_path / "delta_sharing.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(measure.INCUMBENT_PYTHON, python)
    measure.incumbent_python.cache_clear()
    try:
        with pytest.raises(program.typer.Exit) as ended:
            program.main(case=["limit"])
    finally:
        measure.incumbent_python.cache_clear()

    assert ended.value.exit_code == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Error"))
    assert line.startswith("Error: DELTA_SHARING_INCUMBENT_PYTHON should name the interpreter")


def test_the_profiler_counts_the_calls_of_all_threads() -> None:
    def called() -> None:
        return None

    def work() -> None:
        for _ in range(1000):
            called()

    with profiled() as found:
        thread = threading.Thread(target=work)
        thread.start()
        work()
        thread.join()

    assert 2000 <= found.calls < 2100
    assert sum(found.seconds.values()) > 0


def test_a_server_of_long_listings_counts_what_is_measured(tmp_path: pathlib.Path) -> None:
    with LongListing() as listing:
        profile = tmp_path / "listing.share"
        profile.write_text(json.dumps(listing.profile))
        server = measure.Server(profile)
        server.reset()
        with ds.SharingClient(str(profile)) as client:
            assert client.table("bench.default.files-7").scan().to_arrow().num_rows == 7 * ROWS
        found = server.stats()
    assert (found["requests"], found["bytes"]) == (7, 7 * len(listing.file))
