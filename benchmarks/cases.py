"""The cases, each with its table, connection, read and goal."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping

from benchmarks import data


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One comparison of several readers.

    Attributes
    ----------
    table:
        Creates (once) and returns the folder to serve; its only table has the folder's name.
    contenders:
        The measured readers, from ``workers.WORKERS``; the first is this client.
    reference:
        The physical limit for comparison: ``chunks`` (bytes of the needed column chunks and footers), ``table`` (bytes
        of all files) or ``line`` (seconds that the connection needs to transfer all files).
    action:
        The task of a worker: ``pandas``, ``batches``, ``first``, ``plan``, ``changes``, ``profile``, ``start`` (a whole
        process), or an action whose name starts with ``spark-``.
    server:
        The module of the server: ``mock_server``, or ``benchmarks.long_listing``, which uses only the folder's name.
    arguments:
        Columns, filter and limit of the read.
    latency, bandwidth:
        The connection's latency in seconds per response, and its bandwidth in bytes per second; 0 and ``None`` for the
        loopback interface without limits.
    goal:
        The goal in words; the module ``goals`` has it in numbers.
    baselines:
        Contenders that read a different table over the same connection.
    special:
        Additional arguments of some contenders; ``options`` are read options of the client.
    tls, faults:
        Whether the server uses HTTPS, and the faults that it simulates.
    once:
        Contenders that are so slow that they run only once.
    """

    name: str
    table: Callable[[], pathlib.Path]
    contenders: tuple[str, ...]
    goal: str
    reference: str | None = None
    action: str = "pandas"
    server: str = "mock_server"
    arguments: Mapping[str, object] = dataclasses.field(default_factory=dict)
    latency: float = 0.0
    bandwidth: int | None = None
    repeats: int = 4
    baselines: Mapping[str, Callable[[], pathlib.Path]] = dataclasses.field(default_factory=dict)
    special: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)
    tls: bool = False
    faults: tuple[str, ...] = ()
    once: tuple[str, ...] = ()


# The JVM connector is measured if the variable names its jar, which `bash scripts/peers` builds.
JVM_CONNECTOR = ("spark-jvm",) if os.environ.get("DELTA_SHARING_JVM_CONNECTOR") else ()
ALL = ("ours", "polars", "incumbent-delta", "incumbent-parquet", "local")
MEGA = 1_000_000


def full() -> pathlib.Path:
    return data.wide_table("full", files=16, rows=100_000)


def many() -> pathlib.Path:
    return data.wide_table("many", files=64, rows=10_000)


def one_small() -> pathlib.Path:
    return data.wide_table("one-small", files=1, rows=100)


def tiny_many() -> pathlib.Path:
    return data.wide_table("tiny-many", files=400, rows=1_900)


def tiny_crowd() -> pathlib.Path:
    return data.wide_table("tiny-crowd", files=5_000, rows=120, distinct=500)


def wide_columns() -> pathlib.Path:
    return data.text_table("wide-columns", files=42, rows=60_000, distinct=6)


def narrow_columns() -> pathlib.Path:
    return data.narrow_table("narrow-columns", files=42, rows=500_000, distinct=6)


CASES = {
    case.name: case
    for case in (
        Case(
            name="loopback-full",
            table=full,
            contenders=ALL,
            once=("incumbent-parquet",),
            goal="within 1.4x of local pyarrow; faster than Polars and both modes of the incumbent",
        ),
        Case(
            name="latency-many",
            table=many,
            contenders=ALL,
            latency=0.05,
            repeats=3,
            once=("incumbent-delta", "incumbent-parquet"),
            goal="8x faster than the incumbent's delta mode, 70x than its parquet mode, faster than Polars",
        ),
        *(
            Case(
                name=f"latency-many-{milliseconds}ms",
                table=many,
                contenders=("ours", "ours-fixed", "polars", "local"),
                latency=milliseconds / 1000,
                special={"ours-fixed": {"options": {"max_concurrent_requests": 16}}},
                repeats=3,
                goal="within 1.3x of three round trips and local decoding; no slower than 16 requests in flight",
            )
            for milliseconds in (20, 200)
        ),
        Case(
            name="throttled",
            table=tiny_many,
            contenders=("ours", "ours-fixed"),
            latency=0.02,
            faults=("throttle=8@data",),
            special={"ours-fixed": {"options": {"max_concurrent_requests": 8}}},
            repeats=2,
            goal="a server that takes 8 requests at a time: at most 5% refused once that is known; within 1.1x of 8",
        ),
        *(
            Case(
                name=name,
                table=table,
                contenders=contenders,
                latency=latency,
                goal=goal,
                repeats=2 if table is tiny_crowd else 3,
                once=("incumbent-delta",),
            )
            for name, table, latency, contenders, goal in (
                (
                    "tiny-many",
                    tiny_many,
                    0.0,
                    ("ours", "polars", "memory", "incumbent-delta"),
                    "no slower than Polars; 1.3x the processor time of pyarrow with the bytes in memory",
                ),
                (
                    "tiny-many-50ms",
                    tiny_many,
                    0.05,
                    ("ours", "polars", "incumbent-delta"),
                    "4x as fast as Polars",
                ),
                (
                    "tiny-crowd",
                    tiny_crowd,
                    0.0,
                    ("ours", "polars", "memory"),
                    "no slower than Polars; 1.3x the processor time of pyarrow with the bytes in memory",
                ),
            )
        ),
        *(
            Case(
                name=f"{name}-tls",
                table=table,
                contenders=("ours", "polars", "incumbent-delta", "ours-http"),
                latency=latency,
                tls=True,
                baselines={"ours-http": table},
                repeats=3,
                once=("incumbent-delta",),
                goal=goal,
            )
            for name, table, latency, goal in (
                (
                    "loopback-full",
                    full,
                    0.0,
                    "over https: 1.3x the time over http; faster than Polars and the incumbent",
                ),
                ("latency-many", many, 0.05, "over https: faster than Polars and the incumbent"),
                ("tiny-many", tiny_many, 0.0, "over https: 1.3x the time over http; no slower than Polars"),
            )
        ),
        Case(
            name="projection",
            table=full,
            contenders=("ours", "polars"),
            reference="chunks",
            arguments={"columns": ["id", "city"]},
            latency=0.05,
            bandwidth=50 * MEGA,
            repeats=3,
            goal="bytes within 1.1x of the needed column chunks and footers; fewer than Polars, in no more time",
        ),
        Case(
            name="needle",
            table=lambda: data.wide_table("needle", files=16, rows=100_000, row_groups=10),
            contenders=("ours", "polars"),
            reference="table",
            arguments={"filter": "id = 1234567"},
            latency=0.05,
            bandwidth=50 * MEGA,
            repeats=3,
            goal="under 3% of the table's bytes; fewer than Polars, in no more time",
        ),
        Case(
            name="pages",
            table=lambda: data.wide_table("pages", files=1, rows=1_600_000, page_index=True),
            contenders=("ours", "polars"),
            reference="table",
            arguments={"filter": "id = 1234567"},
            latency=0.05,
            bandwidth=50 * MEGA,
            repeats=3,
            goal="under 3% of the table's bytes, which are one row group",
        ),
        Case(
            name="limit",
            table=many,
            contenders=("ours", "polars", "incumbent-delta", "incumbent-parquet"),
            arguments={"limit": 10},
            latency=0.05,
            repeats=3,
            goal="at most 4 requests for data",
        ),
        Case(
            name="bandwidth",
            table=lambda: data.wide_table("line", files=16, rows=104_000),
            contenders=("ours",),
            reference="line",
            bandwidth=50 * MEGA,
            repeats=3,
            goal="90% of the line (200 MB at 50 MB/s)",
        ),
        Case(
            name="plan-100k",
            table=lambda: data.listed_table("plan-100k", 100_000),
            contenders=("ours", "incumbent-parquet"),
            action="plan",
            repeats=3,
            goal="100,000 files/s; under 1 kB of memory a file",
        ),
        Case(
            name="plan-1m",
            table=lambda: data.listed_table("plan-1m", 1_000_000),
            contenders=("ours",),
            action="plan",
            repeats=1,
            goal="100,000 files/s; under 1 kB of memory a file",
        ),
        Case(
            name="first-row-1m",
            table=lambda: pathlib.Path("files-1000000"),
            server="benchmarks.long_listing",
            contenders=("ours", "ours-hundred"),
            baselines={"ours-hundred": lambda: pathlib.Path("files-100")},
            action="first",
            repeats=9,
            goal="first batch of a million files within 1.5x the time for 100 files, in 200 MB",
        ),
        Case(
            name="stream-memory",
            table=lambda: data.wide_table("stream", files=170, rows=100_000, distinct=16),
            contenders=("ours",),
            action="batches",
            repeats=1,
            goal="peak under 400 MB above an idle process, over 2 GB",
        ),
        *(
            Case(
                name=f"peak-{name}",
                table=table,
                contenders=("ours-pandas", "ours-arrow", "ours-polars", "polars"),
                action="frame",
                special={f"ours-{output}": {"output": output} for output in ("pandas", "arrow", "polars")},
                repeats=1,
                goal="peak of memory at most 1.25x the frame, which has 2 GB",
            )
            for name, table in (("wide", wide_columns), ("narrow", narrow_columns))
        ),
        Case(
            name="deletion-vectors",
            table=lambda: data.deleted_table("deleted", files=16, rows=100_000, fraction=0.1),
            contenders=("ours", "ours-undeleted", "incumbent-delta"),
            baselines={"ours-undeleted": full},
            repeats=5,
            goal="within 1.2x of the same data without deletion vectors; at most one more request per file",
        ),
        *(
            Case(
                name=f"spark-{name}",
                table=table,
                contenders=("spark-ours", "spark-local", *JVM_CONNECTOR),
                action=f"spark-{name}",
                repeats=2,
                goal=goal,
            )
            for name, table, goal in (
                ("scan", full, "full scan in 1.1x the time of local files, and 4x as fast as the JVM connector"),
                ("sum", full, "sum of one column, 1.4x as fast as the JVM connector"),
                ("count", full, "filtered count, 2.8x as fast as the JVM connector"),
                (
                    "many",
                    many,
                    "small files in 1.1x the time of local ones, 2.8x as fast as the JVM connector",
                ),
            )
        ),
        Case(
            name="spark-wide",
            table=data.fifty_columns,
            contenders=("spark-ours", "spark-options", "spark-plain", "spark-local", *JVM_CONNECTOR),
            action="spark-wide",
            repeats=2,
            goal="pushed down, a filtered sum downloads what options do (of 50 columns), in 1.2x the time",
        ),
        Case(
            name="changes-1000",
            table=lambda: data.history_table("changes", versions=1000, rows=200),
            contenders=("ours", "ours-half", "memory", "incumbent-delta", "incumbent-parquet"),
            special={"ours-half": {"ending_version": 500}},
            action="changes",
            repeats=3,
            once=("incumbent-delta", "incumbent-parquet"),
            goal="linear in versions; 1.5x pyarrow with the bytes in memory; faster than both modes of the incumbent",
        ),
        Case(
            name="startup",
            table=one_small,
            contenders=(
                "start-load",
                "start-client",
                "start-import",
                "start-pandas",
                "start-libraries",
                "start-help",
                "start-version",
                "start-ls",
            ),
            action="start",
            repeats=7,
            goal="a small load 1.45x the import of pandas and pyarrow, ls 0.35x; --help and --version 0.2 s",
        ),
        Case(
            name="cpu",
            table=full,
            contenders=("ours", "ours-few-rows"),
            baselines={"ours-few-rows": lambda: data.wide_table("few", files=16, rows=10_000)},
            action="profile",
            repeats=1,
            goal="loopback-full under a profiler: where the time goes, and no Python-level loop over rows",
        ),
    )
}
