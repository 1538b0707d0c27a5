"""The jobs of ``benchmarks.turns`` and their contenders. Each job returns a short result, which must be the same for
all contenders.

As a script, ``jobs.py CONTENDER JOB`` is a worker that writes a result for each line of standard input.
"""

from __future__ import annotations

import datetime
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple


class Question(NamedTuple):
    """The served table: its profile, its full name and its local directory."""

    profile: dict[str, str]
    table: str
    folder: str

    def urls(self) -> list[str]:
        """Return the URLs of the table's files, as the server lists them."""
        import requests

        share, schema, name = self.table.split(".")
        url = f"{self.profile['endpoint'].rstrip('/')}/shares/{share}/schemas/{schema}/tables/{name}/query"
        headers = {"Authorization": f"Bearer {self.profile['bearerToken']}"}
        response = requests.post(url, json={}, headers=headers, timeout=60)
        response.raise_for_status()
        files = [json.loads(line).get("file") for line in response.text.splitlines()]
        return [file["url"] for file in files if file]

    def paths(self) -> list[str]:
        """Return the table's local files."""
        return sorted(map(str, Path(self.folder).glob("*.parquet")))


Answer = Callable[[Question], Any]
_Q1_DAY, _Q6_DAYS = datetime.date(1998, 9, 2), (datetime.date(1994, 1, 1), datetime.date(1995, 1, 1))
_Q1_SQL = """
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice * (1 - l_discount)), avg(l_discount), count(*)
FROM {} WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL ORDER BY ALL"""
_Q6_SQL = """
SELECT sum(l_extendedprice * l_discount) FROM {} WHERE l_shipdate >= DATE '1994-01-01'
AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24"""
_TOP_SQL = "SELECT l_orderkey, l_extendedprice FROM {} ORDER BY l_extendedprice DESC, l_orderkey LIMIT 10"
_TEXT = "l_shipmode = 'AIR'"
_TWO = ["first", "middle"]
_TEXT_COLUMNS = ["l_orderkey", "l_extendedprice", "l_shipmode"]


# --- this client ---


def _scan(question: Question, **choices: Any) -> Any:
    import delta_sharing_client as ds

    return ds.SharingClient(question.profile).table(question.table).scan(**choices)


def _lazy(question: Question) -> Any:
    import delta_sharing_client as ds

    return ds.scan_polars(ds.SharingClient(question.profile).table(question.table))


def _attached(question: Question, query: str) -> Any:
    import duckdb

    import delta_sharing_client as ds

    connection = duckdb.connect()
    ds.attach(connection, question.profile)
    return _rows_of(connection.sql(query.format(question.table)).fetchall())


def _local_duckdb(question: Question, query: str) -> Any:
    import duckdb

    return _rows_of(duckdb.connect().sql(query.format(f"read_parquet('{question.folder}/*.parquet')")).fetchall())


# --- queries of Polars ---


def _remote_polars(question: Question) -> Any:
    import polars as pl

    return pl.scan_parquet(question.urls())


def _q1(frame: Any) -> Any:
    import polars as pl

    price, discount = pl.col("l_extendedprice"), pl.col("l_discount")
    result = (
        frame.filter(pl.col("l_shipdate") <= _Q1_DAY)
        .group_by("l_returnflag", "l_linestatus")
        .agg(
            pl.col("l_quantity").sum().alias("quantity"),
            (price.cast(pl.Float64) * (1 - discount.cast(pl.Float64))).sum().alias("price"),
            discount.cast(pl.Float64).mean().alias("discount"),
            pl.len().alias("count"),
        )
        .sort("l_returnflag", "l_linestatus")
        .collect()
    )
    return _rows_of(result.rows())


def _q6(frame: Any) -> Any:
    import polars as pl

    day, discount = pl.col("l_shipdate"), pl.col("l_discount")
    result = (
        frame.filter(
            (day >= _Q6_DAYS[0])
            & (day < _Q6_DAYS[1])
            & (discount >= Decimal("0.05"))
            & (discount <= Decimal("0.07"))
            & (pl.col("l_quantity") < 24)
        )
        .select((pl.col("l_extendedprice").cast(pl.Float64) * discount.cast(pl.Float64)).sum())
        .collect()
    )
    return _rows_of(result.rows())


def _text(frame: Any) -> Any:
    import polars as pl

    return len(frame.filter(pl.col("l_shipmode") == "AIR").select(_TEXT_COLUMNS).collect())


def _top(frame: Any) -> Any:
    rows = frame.select("l_orderkey", "l_extendedprice").top_k(10, by="l_extendedprice").collect()
    return [len(rows)]


def _rows_of(rows: list[Any]) -> Any:
    """Return the rows as JSON values. Floats are rounded, because readers sum them in different orders."""
    return [[f"{float(value):.9g}" if isinstance(value, (float, Decimal)) else value for value in row] for row in rows]


# --- jobs ---


def _from_pyarrow(question: Question) -> int:
    import pyarrow.parquet as pq

    return pq.ParquetDataset(question.paths()).read().num_rows


def _from_deltalake(question: Question) -> int:
    import deltalake

    return deltalake.DeltaTable(question.folder).to_pyarrow_table().num_rows


def _incumbent(question: Question) -> int:
    import tempfile

    import delta_sharing

    with tempfile.TemporaryDirectory() as scratch:
        profile = Path(scratch, "profile.share")
        profile.write_text(json.dumps(question.profile), "utf-8")
        return len(delta_sharing.load_as_pandas(f"{profile}#{question.table}"))


def _counted_by_polars(question: Question) -> int:
    import polars as pl

    return int(_lazy(question).select(pl.len()).collect().item())


def _copied(question: Question) -> int:
    import tempfile

    import delta_sharing_client as ds

    with tempfile.TemporaryDirectory() as scratch:
        copy = ds.SharingClient(question.profile).table(question.table).replicate(Path(scratch, "copy"))
        return copy.num_files


def _files_alone(question: Question) -> int:
    """Write the table's files from memory to the disk, as a copy does."""
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        for number, path in enumerate(question.paths()):
            written = Path(scratch, f"{number}.part")
            with written.open("wb") as stream:
                stream.write(Path(path).read_bytes())
                stream.flush()
                os.fsync(stream.fileno())
            written.rename(written.with_suffix(".parquet"))
    return len(question.paths())


def _fed(question: Question) -> int:
    import delta_sharing_client as ds

    return len(ds.SharingClient(question.profile).table(question.table).changes(1).to_pandas())


def _from_memory(question: Question) -> Iterator[Any]:
    import io

    import pyarrow.parquet as pq

    for path in question.paths():
        yield pq.read_table(io.BytesIO(Path(path).read_bytes())).to_pandas()


def _two_of_file(question: Question) -> int:
    import pyarrow.parquet as pq

    (path,) = question.paths()
    return pq.read_table(path, columns=_TWO).num_rows


def _column(frame: Any) -> int:
    return len(frame.select("l_extendedprice").collect())


JOBS: dict[str, dict[str, Answer]] = {
    "arrow": {
        "ours": lambda question: _scan(question).to_arrow().num_rows,
        "polars": lambda question: len(_remote_polars(question).collect()),
        "pyarrow-local": _from_pyarrow,
        "deltalake-local": _from_deltalake,
    },
    "pandas": {"ours": lambda question: len(_scan(question).to_pandas()), "incumbent": _incumbent},
    "pandas-pyarrow": {
        "ours": lambda question: len(_scan(question).to_pandas(dtype_backend="pyarrow")),
        "polars": lambda question: len(_remote_polars(question).collect()),
    },
    "polars": {
        "ours": lambda question: len(_scan(question).to_polars()),
        "polars": lambda question: len(_remote_polars(question).collect()),
    },
    "q1": {
        "ours": lambda question: _q1(_lazy(question)),
        "polars": lambda question: _q1(_remote_polars(question)),
    },
    "q6": {
        "ours": lambda question: _q6(_lazy(question)),
        "polars": lambda question: _q6(_remote_polars(question)),
    },
    "q1-duckdb": {
        "ours": lambda question: _attached(question, _Q1_SQL),
        "duckdb-local": lambda question: _local_duckdb(question, _Q1_SQL),
    },
    "q6-duckdb": {
        "ours": lambda question: _attached(question, _Q6_SQL),
        "duckdb-local": lambda question: _local_duckdb(question, _Q6_SQL),
    },
    "text": {
        "ours": lambda question: _scan(question, columns=_TEXT_COLUMNS, filter=_TEXT).to_arrow().num_rows,
        "polars": lambda question: _text(_remote_polars(question)),
    },
    "top": {
        "ours": lambda question: _top(_lazy(question)),
        "polars": lambda question: _top(_remote_polars(question)),
    },
    "column": {
        "ours": lambda question: _scan(question, columns=["l_extendedprice"]).to_arrow().num_rows,
        "polars": lambda question: _column(_remote_polars(question)),
    },
    "count": {
        "ours": lambda question: _scan(question).count(),
        "by-polars": _counted_by_polars,
        "by-duckdb": lambda question: _attached(question, "SELECT count(*) FROM {}")[0][0],
    },
    "copy": {"ours": _copied, "files-alone": _files_alone},
    "feed": {"ours": _fed, "memory": lambda question: sum(len(rows) for rows in _from_memory(question))},
    "two-columns": {
        "ours": lambda question: _scan(question, columns=_TWO).to_arrow().num_rows,
        "pyarrow-local": _two_of_file,
    },
}
_WHOLE_TABLES = ("arrow", "pandas", "pandas-pyarrow", "polars", "copy")
_ONLY = {"count": ("plan-100k",), "feed": ("changes",), "two-columns": ("1000-row-groups", "1000-columns")}
"""The tables of jobs that use neither any table nor ``lineitem``."""


def fits(job: str, table: str) -> bool:
    """Return whether the job uses the table; queries use only ``lineitem``. The files of ``plan-100k`` do not exist."""
    if job in _ONLY:
        return table.removesuffix("-checked") in _ONLY[job]
    return (job in _WHOLE_TABLES and table != "plan-100k") or table in ("lineitem", "lineitem-plain")


def contenders(job: str) -> list[str]:
    """Return the contenders of the job, ours first."""
    return list(JOBS[job])


def work(contender: str, job: str) -> None:
    """For each line on standard input, write seconds, processor seconds and the result."""
    import requests  # noqa: F401

    if contender == "incumbent":
        import delta_sharing  # noqa: F401
    else:
        import duckdb  # noqa: F401
        import pandas  # noqa: F401
        import polars  # noqa: F401
        import pyarrow.parquet  # noqa: F401
    answer = JOBS[job][contender]
    for line in sys.stdin:
        question = Question(**json.loads(line))
        began, used = time.perf_counter(), _processor()
        result = answer(question)
        measured = {"seconds": time.perf_counter() - began, "processor": _processor() - used, "result": result}
        sys.stdout.write(json.dumps(measured) + "\n")
        sys.stdout.flush()


def _processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    work(*sys.argv[1:])
