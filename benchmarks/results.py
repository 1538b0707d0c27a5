"""Stores results in ``results.json``, and creates ``RESULTS.md`` and ``results.svg`` only from the stored figures."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import textwrap
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks import drawing
from benchmarks.cases import CASES
from benchmarks.goals import Verdict, verdicts
from benchmarks.measure import INCUMBENT, Result, incumbent_python

RESULTS = pathlib.Path(__file__).parent / "RESULTS.md"
KEPT = RESULTS.with_name("results.json")
DRAWING = RESULTS.with_name("results.svg")
TURNS = RESULTS.with_name("turns.json")
ICEBERG = RESULTS.with_name("iceberg.json")
DOWNLOADS = RESULTS.with_name("downloads.json")
_COLUMNS = (
    *("contender", "seconds (median)", "spread", "ratio to ours", "processor seconds", "data requests", "MB read"),
    "MB of memory",
)
_PACKAGES = ("pyarrow", "pandas", "polars", "requests", "pyroaring", "msgspec")


def rows(result: Result) -> list[tuple[str, ...]]:
    """Return a row of strings for each contender; ``ratio`` is its time divided by ours."""
    ours = result.measured[0].median
    return [
        (
            one.contender,
            f"{one.median:.3f}",
            f"{one.spread:.3f}",
            f"{one.median / ours:.2f}",
            f"{one.processor:.3f}",
            str(one.requests),
            f"{one.bytes / 1e6:.2f}",
            f"{one.memory / 1e6:.0f}",
        )
        for one in result.measured
    ]


def shares(result: Result) -> list[str]:
    """Return our processor time in each stage, one line per stage, longest first; empty without a profile."""
    stages = result.measured[0].stages
    total = sum(stages.values())
    ordered = sorted(stages.items(), key=lambda item: -item[1])
    return [f"{stage}: {seconds:.3f} s, {seconds / total:.0%}" for stage, seconds in ordered]


def table(result: Result) -> Table:
    """Return the case as a table for the terminal."""
    shown = Table()
    for column in _COLUMNS:
        shown.add_column(column, justify="left" if column == "contender" else "right")
    for row in rows(result):
        shown.add_row(*row)
    return shown


def facts(result: Result) -> dict[str, Any]:
    """Return the figures of a case that are stored."""
    return {
        "case": result.case.name,
        "goal": result.case.goal,
        "reference": result.reference,
        "goals": [dataclasses.asdict(verdict) for verdict in verdicts(result)],
        "shares": shares(result),
        "rows": rows(result),
        "measured": [dataclasses.asdict(one) | {"median": one.median} for one in result.measured],
    }


def overview(kept: Sequence[dict[str, Any]]) -> Table:
    """Return one table of all cases: our seconds, the time of each other reader divided by ours, and the goals that
    were reached."""
    shown = Table(title="Seconds, and times of the others as multiples of ours")
    for column in ("case", "ours", "others", "goals"):
        shown.add_column(column, justify="right" if column == "ours" else "left")
    for row in _overview(kept):
        shown.add_row(*row)
    return shown


def _overview(kept: Sequence[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    results = []
    for case in kept:
        ours, *others = case["measured"]
        ratios = ", ".join(f"{one['contender']} {one['median'] / ours['median']:.2f}" for one in others)
        goals = [goal["reached"] for goal in case["goals"] if goal["reached"] is not None]
        reached = f"{sum(goals)} of {len(goals)}" if goals else "-"
        results.append((case["case"], f"{ours['median']:.3f}", ratios, reached))
    return results


def save(results: Sequence[Result]) -> None:
    """Store the cases and rewrite ``RESULTS.md`` and ``results.svg``; the results of other cases are kept."""
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    for result in results:
        kept[result.case.name] = facts(result) | {"machine": machine()}
    # The results are sorted like the cases; results of deleted cases are removed.
    kept = {name: kept[name] for name in CASES if name in kept}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    RESULTS.write_text(text(list(kept.values())), "utf-8")
    DRAWING.write_text(drawing.draw(list(kept.values())), "utf-8")


def text(kept: Sequence[dict[str, Any]]) -> str:
    """Return the text of ``RESULTS.md``: a table of all cases, and a section for each case."""
    lines = ["# Results", "", *_real_tables(), *_iceberg(), *_downloads()]
    lines += [
        "## First reads",
        "",
        "Last results of `python -m benchmarks --save`; every ratio compares times of the same run.",
        "",
    ]
    lines += ["![Times of the other readers as multiples of ours](results.svg)", ""]
    lines += [
        "| case | ours, seconds | times of the others, as multiples of ours | goals reached |",
        "|---|---:|---|---|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in _overview(kept)] + [""]
    for case in kept:
        lines += [f"### {case['case']}", "", f"Goal: {case['goal']}.", ""]
        lines += [f"- {Verdict(**goal)}" for goal in case["goals"]] + [""]
        lines += ["| " + " | ".join(_COLUMNS) + " |", "|---" + "|---:" * (len(_COLUMNS) - 1) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in case["rows"]]
        if case["shares"]:
            lines += [
                "",
                "Processor seconds by stage, summed over all threads, including the overhead of the profiler:",
                "",
            ]
            lines += [f"- {share}" for share in case["shares"]]
        lines += ["", f"Measured on {case['machine']}.", ""]
    return "\n".join(lines)


def save_turns(turns: Sequence[dict[str, Any]]) -> None:
    """Store the figures of ``benchmarks.turns`` and rewrite ``RESULTS.md``. Figures of other jobs and connections are
    kept."""
    _save_turns(TURNS, turns)


def save_iceberg(turns: Sequence[dict[str, Any]]) -> None:
    """Like ``save_turns``, for ``benchmarks.iceberg`` and ``benchmarks.iceberg_planning``."""
    _save_turns(ICEBERG, turns)


def _save_turns(path: pathlib.Path, turns: Sequence[dict[str, Any]]) -> None:
    kept = {_turn(each): each for each in json.loads(path.read_text("utf-8"))} if path.exists() else {}
    kept |= {_turn(each): each | {"machine": machine()} for each in turns}
    path.write_text(json.dumps(list(kept.values()), indent=1) + "\n", "utf-8")
    RESULTS.write_text(text(list(json.loads(KEPT.read_text("utf-8")).values())), "utf-8")


def _turn(figures: dict[str, Any]) -> tuple[str, str, str]:
    return figures["table"], figures["job"], figures["line"]


def _real_tables() -> list[str]:
    """Return the section about the tables of ``benchmarks.tpch``."""
    if not TURNS.exists():
        return []
    document = json.loads(TURNS.read_text("utf-8"))
    about = (
        "Last results of `python -m benchmarks.turns --save`: medians of rounds in random order, by processes that "
        "keep running. `lineitem` is the TPC-H table with 6 million rows, as Spark writes it. Processor seconds are in "
        "parentheses. `before` is this client before the work on these tables began. `lineitem` has no rows for Polars "
        "frames: they were measured with Polars' own reader, which was taken out since then."
    )
    lines = ["## Realistic tables", "", *textwrap.wrap(about, 110, break_on_hyphens=False), ""]
    return [*lines, *_table_of_turns(document)]


def _iceberg() -> list[str]:
    """Return the section about Iceberg tables."""
    if not ICEBERG.exists():
        return []
    document = json.loads(ICEBERG.read_text("utf-8"))
    about = (
        "Last results of `python -m benchmarks.iceberg --save` and `python -m benchmarks.iceberg_planning --save`: "
        "medians of rounds. `lineitem` is the TPC-H table with 6 million rows in 16 files; all columns are read into "
        "Arrow. `ours-delta` is this client with the same files as a Delta table. The job `plan` lists the data files "
        "of a table, or the files that a filter needs, each time in a new process. Processor seconds are in "
        "parentheses."
    )
    lines = ["## Iceberg tables", "", *textwrap.wrap(about, 110, break_on_hyphens=False), ""]
    return [*lines, *_table_of_turns(document)]


def _table_of_turns(turns: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| table | job | connection | ours, seconds | our time as a multiple of |", "|---|---|---|---:|---|"]
    for each in turns:
        ours = each["medians"]["ours"]
        others = ", ".join(
            f"{name} {ratio['seconds']:.2f} ({ratio['processor']:.2f})" for name, ratio in each["ratios"].items()
        )
        cells = each["table"], each["job"], each["line"], f"{ours['seconds']:.2f} ({ours['processor']:.2f})", others
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", f"Measured on {turns[-1]['machine']}.", ""]


def save_downloads(results: Sequence[dict[str, Any]]) -> None:
    """Store the figures of ``benchmarks.downloads`` and rewrite ``RESULTS.md``. Figures of other cases are kept."""
    kept = {each["case"]: each for each in json.loads(DOWNLOADS.read_text("utf-8"))} if DOWNLOADS.exists() else {}
    kept |= {each["case"]: each | {"machine": machine()} for each in results}
    DOWNLOADS.write_text(json.dumps(list(kept.values()), indent=1) + "\n", "utf-8")
    RESULTS.write_text(text(list(json.loads(KEPT.read_text("utf-8")).values())), "utf-8")


def _downloads() -> list[str]:
    """Return the section about the files of volumes."""
    if not DOWNLOADS.exists():
        return []
    document = json.loads(DOWNLOADS.read_text("utf-8"))
    about = (
        "Last results of `python -m benchmarks.downloads --save`: medians of rounds in random order, each in a new "
        "process, from one S3 server on the same machine. `obstore-tasks` and `obstore-threads` are plain loops "
        "with the fastest number of tasks or threads. Processor seconds and the peak memory of the process are in "
        "parentheses."
    )
    lines = ["## Files of a volume", "", *textwrap.wrap(about, 110, break_on_hyphens=False), ""]
    lines += [
        "| case | ours | our time as a multiple of | of the fastest in a round, and of its processor time | goal |",
        "|---|---|---|---:|---:|",
    ]
    for each in document:
        ours, *_ = (shown for name, shown in _shown(each) if name == "ours")
        others = "; ".join(
            f"{name} {each['contenders'][name]['ratio']:.2f}: {shown}" for name, shown in _shown(each) if name != "ours"
        )
        ratios, goals = (each["ratio"], each["processor_ratio"]), each["goal"]
        cells = each["title"], ours, others, *(", ".join(f"{one:.2f}" for one in pair) for pair in (ratios, goals))
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", f"Measured on {document[-1]['machine']}.", ""]


def _shown(case: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, f"{one['seconds']:.2f} s ({one['processor']:.2f} s, {one['peak_bytes'] / 1e6:.0f} MB)")
        for name, one in case["contenders"].items()
    ]


def machine() -> str:
    """Return one line with the number of cores and the versions of Python and of the relevant packages."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES]
    asked = f"import importlib.metadata as m; print(m.version({INCUMBENT!r}))"
    try:
        command = [incumbent_python(), "-c", asked]
        peer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except RuntimeError:
        peer = "not at hand"  # no case needed the incumbent; otherwise its absence would have been an error
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"{', '.join(versions)}; incumbent {INCUMBENT} {peer}"
    )
