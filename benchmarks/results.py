"""Numbers as tables, for the terminal and for ``RESULTS.md``."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
from collections.abc import Sequence

from rich.table import Table

from benchmarks.goals import verdicts
from benchmarks.measure import INCUMBENT, Result, incumbent_python

RESULTS = pathlib.Path(__file__).parent / "RESULTS.md"
_COLUMNS = ("contender", "seconds (median)", "spread", "ratio to ours", "data requests", "MB read", "MB of memory")
_PACKAGES = ("pyarrow", "pandas", "requests", "pyroaring", "msgspec")


def rows(result: Result) -> list[tuple[str, ...]]:
    """Return one row of text per contender; ``ratio`` is its time over ours."""
    ours = result.measured[0].median
    return [
        (
            one.contender,
            f"{one.median:.3f}",
            f"{one.spread:.3f}",
            f"{one.median / ours:.2f}",
            str(one.requests),
            f"{one.bytes / 1e6:.2f}",
            f"{one.memory / 1e6:.0f}",
        )
        for one in result.measured
    ]


def shares(result: Result) -> list[str]:
    """Return where ours spent the processor, a line per stage, most first; empty without a profile."""
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


def save(results: Sequence[Result]) -> None:
    """Put the cases into ``RESULTS.md``; cases that were not run now stay as they were."""
    sections = _saved()
    for result in results:
        lines = [f"## {result.case.name}", "", f"Goal: {result.case.goal}.", ""]
        lines += [f"- {verdict}" for verdict in verdicts(result)] + [""]
        lines += ["| " + " | ".join(_COLUMNS) + " |", "|---" + "|---:" * (len(_COLUMNS) - 1) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows(result)]
        if shares(result):
            lines += ["", "Seconds of the processor by stage, over all threads, with what the profiler adds:", ""]
            lines += [f"- {share}" for share in shares(result)]
        lines += ["", f"Measured on {machine()}."]
        sections[result.case.name] = "\n".join(lines) + "\n"
    head = "# Results\n\nLast results of `python -m benchmarks --save`; every ratio is within one run.\n\n"
    RESULTS.write_text(head + "\n".join(sections.values()), "utf-8")


def machine() -> str:
    """Return cores, Python and the versions that matter, in one line."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES]
    asked = f"import importlib.metadata as m; print(m.version({INCUMBENT!r}))"
    try:
        command = [incumbent_python(), "-c", asked]
        peer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except RuntimeError:
        peer = "not at hand"  # the cases that were run did not need it
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"{', '.join(versions)}; incumbent {INCUMBENT} {peer}"
    )


def _saved() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    parts = re.split(r"(?m)^(?=## )", RESULTS.read_text(encoding="utf-8"))[1:]
    return {part.splitlines()[0].removeprefix("## "): part.rstrip("\n") + "\n" for part in parts}
