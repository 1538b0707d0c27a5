"""The goal of each case in numbers: compares the measured figures with the goals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from benchmarks.measure import Measured, Result

_KB = 1000
_MB = 1_000_000


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One figure of a case in words, and whether it reaches its goal (``None`` without a goal)."""

    figure: str
    reached: bool | None

    def __str__(self) -> str:
        word = "measured" if self.reached is None else "reached" if self.reached else "NOT reached"
        return f"{word}: {self.figure}"


def verdicts(result: Result) -> list[Verdict]:
    """Return a verdict for each measurement of the case."""
    return GOALS[result.case.name](result)


def _ratio(result: Result, other: str) -> float:
    return _of(result, other).median / result.measured[0].median


def _of(result: Result, contender: str) -> Measured:
    return next(one for one in result.measured if one.contender == contender)


def _faster(result: Result, other: str, times: float) -> Verdict:
    ratio = _ratio(result, other)
    return Verdict(f"{ratio:.1f}x as fast as {other} (goal: {times:g}x)", ratio >= times)


def _loopback(result: Result) -> list[Verdict]:
    ratio = 1 / _ratio(result, "local")
    return [
        Verdict(f"{ratio:.2f}x the time of local pyarrow (goal: 1.4x)", ratio <= 1.4),
        _faster(result, "polars", 1),
        _faster(result, "incumbent-delta", 1),
        _faster(result, "incumbent-parquet", 1),
    ]


def _latency(result: Result) -> list[Verdict]:
    return [
        _faster(result, "incumbent-delta", 8),
        _faster(result, "incumbent-parquet", 70),
        _faster(result, "polars", 1),
    ]


def _round_trips(result: Result) -> list[Verdict]:
    ours, fixed = result.measured[0], _of(result, "ours-fixed")
    least = 3 * result.case.latency + _of(result, "local").median
    actual, beside = ours.median / least, ours.median / fixed.median
    return [
        Verdict(f"{actual:.2f}x three round trips and local decoding (goal: 1.3x)", actual <= 1.3),
        Verdict(f"{beside:.2f}x the time with 16 requests in flight (goal: 1.05x)", beside <= 1.05),
        _faster(result, "polars", 1),
    ]


def _throttled(result: Result) -> list[Verdict]:
    ours, fixed = result.measured[0], _of(result, "ours-fixed")
    share, beside = ours.refused / ours.requests, ours.median / fixed.median
    return [
        # Some requests are refused until the client knows the server's limit; unit tests check the steady state.
        Verdict(f"{share:.1%} of {ours.requests} requests refused, the first ones included", None),
        Verdict(f"{beside:.2f}x the time with as many requests in flight as the server accepts", None),
    ]


def _tiny(times: float, processor: float | None = None) -> Callable[[Result], list[Verdict]]:
    def check(result: Result) -> list[Verdict]:
        results = [_faster(result, "polars", times)]
        if processor is not None:
            share = result.measured[0].processor / _of(result, "memory").processor
            figure = f"{share:.2f}x the processor time of pyarrow with the bytes in memory (goal: {processor:g}x)"
            results.append(Verdict(figure, share <= processor))
        return results

    return check


def _tls(result: Result) -> list[Verdict]:
    ours, plain = result.measured[0], _of(result, "ours-http")
    cost = ours.median / plain.median
    return [
        Verdict(f"{cost:.2f}x the time over http (goal: 1.3x)", cost <= 1.3),
        _faster(result, "polars", 1),
        _faster(result, "incumbent-delta", 1),
        Verdict(
            f"{ours.connections} connections, each with one handshake, for {ours.requests} requests for data", None
        ),
    ]


def _against_polars(check: Callable[[Result], list[Verdict]]) -> Callable[[Result], list[Verdict]]:
    def both(result: Result) -> list[Verdict]:
        ours, peer = result.measured[0], _of(result, "polars")
        share = ours.bytes / max(1, peer.bytes)
        fewer = Verdict(f"{share:.2f}x the bytes that polars reads (goal: 1x)", share <= 1)
        return [*check(result), fewer, _faster(result, "polars", 1)]

    return both


def _peak(result: Result) -> list[Verdict]:
    return [
        Verdict(
            f"{one.contender}: peak of {one.memory / one.frame:.2f}x the {one.frame / _MB:,.0f} MB of the frame"
            + ("" if one.contender == "polars" else " (goal: 1.25x)"),
            None if one.contender == "polars" else one.memory <= 1.25 * one.frame,
        )
        for one in result.measured
    ]


def _bytes(most: float, of: str) -> Callable[[Result], list[Verdict]]:
    def check(result: Result) -> list[Verdict]:
        assert result.reference is not None
        actual = result.measured[0].bytes / result.reference
        return [
            Verdict(f"{actual:.3f} of the {result.reference / _MB:.2f} MB of {of} (goal: {most:g})", actual <= most)
        ]

    return check


def _limit(result: Result) -> list[Verdict]:
    requests = result.measured[0].requests
    return [Verdict(f"{requests} requests for data (goal: 4)", requests <= 4)]


def _bandwidth(result: Result) -> list[Verdict]:
    assert result.reference is not None
    actual = result.reference / result.measured[0].median
    return [Verdict(f"{actual:.1%} of the line (goal: 90%)", actual >= 0.9)]


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
    actual = result.measured[0].memory / _MB
    return [Verdict(f"{actual:.0f} MB above an idle process (goal: 400)", actual < 400)]


def _vectors(result: Result) -> list[Verdict]:
    ours, without = result.measured[0], _of(result, "ours-undeleted")
    slower, more = ours.median / without.median, ours.requests - without.requests
    return [
        Verdict(f"{slower:.2f}x the time of the table without vectors (goal: 1.2x)", slower <= 1.2),
        Verdict(f"{more} more requests for {without.requests} files (goal: one each)", more <= without.requests),
    ]


def _changes(result: Result) -> list[Verdict]:
    ours, half, memory = result.measured[0], _of(result, "ours-half"), _of(result, "memory")
    actual, beside = ours.median / half.median, ours.median / memory.median
    return [
        Verdict(f"{actual:.2f}x the time of half the versions (goal: 2.2x)", actual <= 2.2),
        Verdict(f"{beside:.2f}x the time of pyarrow with the bytes in memory (goal: 1.5x)", beside <= 1.5),
        _faster(result, "incumbent-delta", 1),
        _faster(result, "incumbent-parquet", 1),
    ]


def _startup(result: Result) -> list[Verdict]:
    processor = {one.contender.removeprefix("start-"): one.processor for one in result.measured}
    load, ls = (processor[name] / processor["pandas"] for name in ("load", "ls"))
    return [
        Verdict(f"a first small load: {load:.2f}x the processor time of pandas and pyarrow (goal: 1.45)", load <= 1.45),
        Verdict(f"ls: {ls:.2f}x (goal: 0.35)", ls <= 0.35),
        *(
            Verdict(f"--{name}: {processor[name]:.2f} s of processor (goal: 0.2)", processor[name] <= 0.2)
            for name in ("help", "version")
        ),
        Verdict(
            f"import {processor['import']:.2f} s, a client {processor['client']:.2f} s, pandas and pyarrow "
            f"{processor['pandas']:.2f} s, with requests and aiohttp {processor['libraries']:.2f} s of processor",
            None,
        ),
    ]


def _cpu(result: Result) -> list[Verdict]:
    ours, few = result.measured[0], _of(result, "ours-few-rows")
    actual = ours.calls / few.calls
    return [
        Verdict(
            f"{ours.calls:,} Python calls for {ours.rows:,} rows, {few.calls:,} for {few.rows:,} rows in as many "
            f"files: {actual:.2f}x the calls for {ours.rows / few.rows:.0f}x the rows (goal: 1.5x)",
            actual <= 1.5,
        )
    ]


def _spark(times: float, local: float | None = None) -> Callable[[Result], list[Verdict]]:
    """Return a check that compares with the JVM connector, if measured, and with Spark's own reader on local files."""

    def found(result: Result) -> list[Verdict]:
        ratio, goal = 1 / _ratio(result, "spark-local"), "" if local is None else f" (goal: {local}x)"
        figure = f"{ratio:.2f}x the time of spark.read.parquet on the local files{goal}"
        return [Verdict(figure, None if local is None else ratio <= local), *_faster_than_jvm(result, times)]

    return found


def _faster_than_jvm(result: Result, times: float) -> list[Verdict]:
    is_measured = any(one.contender == "spark-jvm" for one in result.measured)
    return [_faster(result, "spark-jvm", times)] if is_measured else []


def _spark_wide(result: Result) -> list[Verdict]:
    pushed, options = result.measured[0], _of(result, "spark-options")
    time = 1 / _ratio(result, "spark-options")
    # The bytes include a first query, which starts the workers before the clock starts.
    plain = 1 / _ratio(result, "spark-plain")
    return [
        Verdict(
            f"{pushed.bytes / 2e6:.2f} MB, options {options.bytes / 2e6:.2f} MB (goal: 1.1x)",
            pushed.bytes <= 1.1 * options.bytes,
        ),
        Verdict(f"{time:.2f}x the time with options (goal: 1.2x), {plain:.2f}x the time with neither", time <= 1.2),
        *_faster_than_jvm(result, 1),
    ]


GOALS: dict[str, Callable[[Result], list[Verdict]]] = {
    "loopback-full": _loopback,
    "latency-many": _latency,
    "latency-many-20ms": _round_trips,
    "latency-many-200ms": _round_trips,
    "throttled": _throttled,
    "tiny-many": _tiny(1, 1.3),
    "tiny-many-50ms": _tiny(4),
    "tiny-crowd": _tiny(1, 1.3),
    "loopback-full-tls": _tls,
    "latency-many-tls": _tls,
    "tiny-many-tls": _tls,
    "projection": _against_polars(_bytes(1.1, "needed chunks and footers")),
    "needle": _against_polars(_bytes(0.03, "the table")),
    "pages": _against_polars(_bytes(0.03, "the table")),
    "peak-wide": _peak,
    "peak-narrow": _peak,
    "limit": _limit,
    "bandwidth": _bandwidth,
    "plan-100k": _plan,
    "plan-1m": _plan,
    "first-row-1m": _first_row,
    "stream-memory": _memory,
    "deletion-vectors": _vectors,
    "changes-1000": _changes,
    "startup": _startup,
    "cpu": _cpu,
    "spark-scan": _spark(4, 1.1),
    "spark-sum": _spark(1.4),
    "spark-count": _spark(2.8),
    "spark-many": _spark(2.8, 1.1),
    "spark-wide": _spark_wide,
}
"""The check for each case, by the name of the case. Every case has an entry."""
