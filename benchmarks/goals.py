"""What each case must reach, as numbers: the figure that was found, and whether it is enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from benchmarks.measure import Measured, Result

_KB = 1000
_MB = 1_000_000


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One figure of a case in words, and whether it reaches its goal; ``None`` where it has none."""

    figure: str
    reached: bool | None

    def __str__(self) -> str:
        word = "measured" if self.reached is None else "reached" if self.reached else "NOT reached"
        return f"{word}: {self.figure}"


def verdicts(result: Result) -> list[Verdict]:
    """Return a verdict for each figure that the case promises."""
    return GOALS[result.case.name](result)


def _ratio(result: Result, other: str) -> float:
    return _of(result, other).median / result.measured[0].median


def _of(result: Result, contender: str) -> Measured:
    return next(one for one in result.measured if one.contender == contender)


def _faster(result: Result, other: str, times: float) -> Verdict:
    found = _ratio(result, other)
    return Verdict(f"{found:.1f}x as fast as {other} (goal: {times:g}x)", found >= times)


def _loopback(result: Result) -> list[Verdict]:
    found = 1 / _ratio(result, "local")
    return [
        Verdict(f"{found:.2f}x the time of local pyarrow (goal: 1.4x)", found <= 1.4),
        _faster(result, "incumbent-delta", 1),
        _faster(result, "incumbent-parquet", 1),
    ]


def _latency(result: Result) -> list[Verdict]:
    return [_faster(result, "incumbent-delta", 8), _faster(result, "incumbent-parquet", 70)]


def _bytes(most: float, of: str) -> Callable[[Result], list[Verdict]]:
    def check(result: Result) -> list[Verdict]:
        assert result.reference is not None
        found = result.measured[0].bytes / result.reference
        return [Verdict(f"{found:.3f} of the {result.reference / _MB:.2f} MB of {of} (goal: {most:g})", found <= most)]

    return check


def _limit(result: Result) -> list[Verdict]:
    found = result.measured[0].requests
    return [Verdict(f"{found} requests for data (goal: 4)", found <= 4)]


def _bandwidth(result: Result) -> list[Verdict]:
    assert result.reference is not None
    found = result.reference / result.measured[0].median
    return [Verdict(f"{found:.1%} of the line (goal: 90%)", found >= 0.9)]


def _plan(result: Result) -> list[Verdict]:
    ours = result.measured[0]
    speed, size = ours.rows / ours.median, ours.memory / ours.rows
    return [
        Verdict(f"{speed:,.0f} files/s (goal: 100,000)", speed >= 100_000),
        Verdict(f"{size:.0f} bytes of memory a file (goal: {_KB})", size < _KB),
    ]


def _first_row(result: Result) -> list[Verdict]:
    ours = result.measured[0]
    slower, size = 1 / _ratio(result, "ours-hundred"), ours.memory / _MB
    return [
        Verdict(f"{slower:.2f}x the time of a table of 100 files (goal: 1.5x)", slower <= 1.5),
        Verdict(f"{size:.0f} MB above an idle process (goal: 200)", size <= 200),
    ]


def _memory(result: Result) -> list[Verdict]:
    found = result.measured[0].memory / _MB
    return [Verdict(f"{found:.0f} MB above an idle process (goal: 400)", found < 400)]


def _vectors(result: Result) -> list[Verdict]:
    ours, without = result.measured[0], _of(result, "ours-undeleted")
    slower, more = ours.median / without.median, ours.requests - without.requests
    return [
        Verdict(f"{slower:.2f}x the time of the table without vectors (goal: 1.2x)", slower <= 1.2),
        Verdict(f"{more} more requests for {without.requests} files (goal: one each)", more <= without.requests),
    ]


def _changes(result: Result) -> list[Verdict]:
    ours, half = result.measured[0], _of(result, "ours-half")
    found = ours.median / half.median
    return [
        Verdict(f"{found:.2f}x the time of half the versions (goal: 2.2x)", found <= 2.2),
        _faster(result, "incumbent-delta", 1),
        _faster(result, "incumbent-parquet", 1),
    ]


def _cpu(result: Result) -> list[Verdict]:
    ours, few = result.measured[0], _of(result, "ours-few-rows")
    found = ours.calls / few.calls
    return [
        Verdict(
            f"{ours.calls:,} Python calls for {ours.rows:,} rows, {few.calls:,} for {few.rows:,} rows in as many "
            f"files: {found:.2f}x the calls for {ours.rows / few.rows:.0f}x the rows (goal: 1.5x)",
            found <= 1.5,
        )
    ]


def _spark_scan(result: Result) -> list[Verdict]:
    found = 1 / _ratio(result, "spark-local")
    return [Verdict(f"{found:.2f}x the time of spark.read.parquet on the local files (goal: 1.1x)", found <= 1.1)]


def _spark_query(result: Result) -> list[Verdict]:
    return [
        Verdict(f"{1 / _ratio(result, 'spark-local'):.2f}x the time of spark.read.parquet on the local files", None)
    ]


GOALS: dict[str, Callable[[Result], list[Verdict]]] = {
    "loopback-full": _loopback,
    "latency-many": _latency,
    "projection": _bytes(1.1, "needed chunks and footers"),
    "needle": _bytes(0.03, "the table"),
    "pages": _bytes(0.03, "the table"),
    "limit": _limit,
    "bandwidth": _bandwidth,
    "plan-100k": _plan,
    "plan-1m": _plan,
    "first-row-1m": _first_row,
    "stream-memory": _memory,
    "deletion-vectors": _vectors,
    "changes-1000": _changes,
    "cpu": _cpu,
    "spark-scan": _spark_scan,
    "spark-sum": _spark_query,
    "spark-count": _spark_query,
    "spark-many": _spark_scan,
}
"""By the name of the case; every case has one."""
