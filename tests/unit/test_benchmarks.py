"""How ``python -m benchmarks`` evaluates and reports results; nothing is measured here."""

from __future__ import annotations

import json
import pathlib
import sys
import threading
from typing import Any
from xml.etree import ElementTree

import pytest

import delta_sharing_client as ds
from benchmarks import __main__ as program
from benchmarks import drawing, goals, measure, results
from benchmarks.cases import CASES
from benchmarks.long_listing import ROWS, LongListing
from benchmarks.profiler import STAGES, profiled
from benchmarks.workers import WORKERS


def made(name: str, seconds: float = 1.0) -> measure.Result:
    """Return a result for the case, in which every peer takes ``seconds``."""
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
def test_every_case_reports_whether_its_goal_is_reached(name: str) -> None:
    assert set(CASES[name].contenders) <= set(WORKERS)
    for verdict in goals.verdicts(made(name)):
        if verdict.reached is None:
            assert str(verdict).startswith("measured: ")
        else:
            assert str(verdict).startswith(("reached: ", "NOT reached: "))
            assert "goal" in str(verdict)


def test_measurement_is_compared_with_its_goal() -> None:
    (verdict,) = goals.verdicts(made("bandwidth", 110.0))
    assert str(verdict) == "reached: 90.9% of the line (goal: 90%)"
    (verdict,) = goals.verdicts(made("bandwidth", 120.0))
    assert str(verdict) == "NOT reached: 83.3% of the line (goal: 90%)"


def test_run_prints_and_writes_its_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "run", lambda case: made(case.name))
    monkeypatch.setattr(results, "machine", lambda: "this machine")
    for name in ("RESULTS", "KEPT", "DRAWING", "ICEBERG"):
        monkeypatch.setattr(results, name, tmp_path / getattr(results, name).name)

    program.main(case=["limit", "cpu"], json_file=tmp_path / "found.json", save=True)

    printed = capsys.readouterr().out
    assert "reached: 4 requests for data (goal: 4)" in printed
    assert "x: 1.000 s, 100%" in printed
    result = json.loads((tmp_path / "found.json").read_text())
    assert [one["case"] for one in result["results"]] == ["limit", "cpu"]
    assert result["results"][0]["goals"] == [{"figure": "4 requests for data (goal: 4)", "reached": True}]
    assert result["results"][1]["measured"][0]["stages"] == {"x": 1}
    saved = (tmp_path / "RESULTS.md").read_text()
    assert "## limit" in saved
    assert "- x: 1.000 s, 100%" in saved
    assert "| limit | 1.000 | polars 1.00, incumbent-delta 1.00, incumbent-parquet 1.00 | 1 of 1 |" in saved
    # Earlier results are kept, in the order of the cases; equal figures give an identical chart.
    picture = (tmp_path / "results.svg").read_text()
    once, half = {"seconds": 1.0, "processor": 2.0}, {"seconds": 0.5, "processor": 0.25}
    turn = {"line": "local", "table": "9 files", "job": "plan", "medians": {"ours": once}, "ratios": {"x": half}}
    results.save_iceberg([turn, {**turn, "job": "arrow"}])
    results.save_iceberg([{**turn, "medians": {"ours": half}}])
    assert (
        "| 9 files | plan | local | 0.50 (0.25) | x 0.50 (0.25) |\n| 9 files | arrow | local | 1.00 (2.00)"
        in (tmp_path / "RESULTS.md").read_text()
    )
    program.main(case=["pages"], save=True)
    saved = (tmp_path / "RESULTS.md").read_text()
    assert saved.index("## pages") < saved.index("## limit") < saved.index("## cpu")
    program.main(case=["cpu"], repeats=1, save=True)
    assert (tmp_path / "RESULTS.md").read_text() == saved
    assert picture != (tmp_path / "results.svg").read_text()
    kept = list(json.loads((tmp_path / "results.json").read_text()).values())
    assert (tmp_path / "results.svg").read_text() == drawing.draw(kept)
    assert results.text(kept) == saved


def test_chart_has_a_bar_for_each_peer_scaled_by_its_ratio() -> None:
    def case(name: str, **seconds: float) -> dict[str, Any]:
        measured = [{"contender": who.replace("_", "-"), "median": value} for who, value in seconds.items()]
        return {"case": name, "measured": measured}

    picture = drawing.draw(
        [case("<a>", ours=1, polars=2, local=3), case("b", ours=2, polars=1, incumbent_delta=500), case("c", ours=1)]
    )

    root = ElementTree.fromstring(picture)
    widths = [float(bar.get("width", "")) for bar in root.findall(".//{*}rect") if bar.get("height") == "10"][3:]
    assert len(widths) == 3
    assert widths[0] == pytest.approx(widths[1], abs=0.2)  # twice as long and half as long: equal bars
    assert widths[2] > 6 * widths[0]  # cut at the end of the axis
    texts = [text.text for text in root.findall(".//{*}text")]
    assert {"<a>", "b", "2.0", "0.5", "250.0"} <= set(texts)
    assert "c" not in texts


@pytest.mark.parametrize("python", ["no-such-python", sys.executable], ids=["no program", "no package"])
def test_missing_incumbent_is_reported_in_one_sentence(
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


def test_profiler_counts_calls_of_all_threads() -> None:
    def called() -> None:
        return None

    def work() -> None:
        for _ in range(1000):
            called()

    with profiled() as profile:
        thread = threading.Thread(target=work)
        thread.start()
        work()
        thread.join()

    assert 2000 <= profile.calls < 2100
    assert sum(profile.seconds.values()) > 0


def test_profiler_stages_name_existing_files() -> None:
    root = pathlib.Path(ds.__file__).parent.parent
    own = [part for _, parts in STAGES for part in parts if part.startswith("delta_sharing_client/")]
    assert len(own) >= 6
    assert [part for part in own if not (root / part).exists()] == []


def test_long_listing_server_counts_its_requests(tmp_path: pathlib.Path) -> None:
    with LongListing() as listing:
        profile = tmp_path / "listing.share"
        profile.write_text(json.dumps(listing.profile))
        server = measure.Server(profile)
        server.reset()
        with ds.SharingClient(str(profile)) as client:
            assert client.table("bench.default.files-7").scan().to_arrow().num_rows == 7 * ROWS
        stats = server.stats()
    assert (stats["requests"], stats["bytes"]) == (7, 7 * len(listing.file))
