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


def figure(result: Result) -> str:
    """Return how ours relates to the case's reference, in words; empty without one."""
    ours = result.measured[0]
    if result.case.action == "plan":
        return f"{ours.rows / ours.median:,.0f} files/s, {ours.memory / max(ours.rows, 1):.0f} bytes of memory a file"
    if result.reference is None:
        return ""
    if result.case.reference == "line":
        return f"{result.reference / ours.median:.1%} of the line"
    return f"{ours.bytes / result.reference:.3f} of the {result.case.reference} ({result.reference / 1e6:.2f} MB)"


def table(result: Result) -> Table:
    """Return the case as a table for the terminal."""
    shown = Table(title=figure(result) or None, title_justify="left")
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
        if figure(result):
            lines += [f"Reached: {figure(result)}.", ""]
        lines += ["| " + " | ".join(_COLUMNS) + " |", "|---" + "|---:" * (len(_COLUMNS) - 1) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows(result)]
        lines += ["", f"Measured on {machine()}."]
        sections[result.case.name] = "\n".join(lines) + "\n"
    head = "# Results\n\nLast results of `python -m benchmarks --save`; every ratio is within one run.\n\n"
    RESULTS.write_text(head + "\n".join(sections.values()), "utf-8")


def machine() -> str:
    """Return cores, Python and the versions that matter, in one line."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES]
    asked = f"import importlib.metadata as m; print(m.version({INCUMBENT!r}))"
    peer = subprocess.run([incumbent_python(), "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"{', '.join(versions)}; incumbent {INCUMBENT} {peer}"
    )


def _saved() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    parts = re.split(r"(?m)^(?=## )", RESULTS.read_text(encoding="utf-8"))[1:]
    return {part.splitlines()[0].removeprefix("## "): part.rstrip("\n") + "\n" for part in parts}
