"""``python -m benchmarks.tpch_spark [--scale 0.1]`` runs the 22 queries of TPC-H in Spark over shared tables.

Their rows are compared with DuckDB's over the same local files, with adaptive execution (AQE) and ANSI mode on and off,
and the downloaded bytes and requests of each query are printed. So are those of queries that skip partitions by values
that are known only at run time. Needs ``tpchgen-cli`` on the path or beside the interpreter.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

import delta_sharing_client as ds
import mock_server

FILES = {"lineitem": 8, "orders": 4, "partsupp": 2}
QUERIES = [query.strip() for query in pathlib.Path(__file__).with_name("tpch.sql").read_text().split(";")]
_DAYS, _ROWS = 8, 10_000
PRUNING = {
    "a constant": "SELECT sum(random_1) FROM fact WHERE day = 3",
    "a dimension that leaves one value": "SELECT sum(random_1) FROM fact JOIN days ON day = d WHERE name = 'd3'",
    "`IN` of a subquery": "SELECT sum(random_1) FROM fact WHERE day IN (SELECT d FROM days WHERE name = 'd3')",
    "a scalar subquery": "SELECT sum(random_1) FROM fact WHERE day = (SELECT max(d) FROM days WHERE name <= 'd3')",
    "a dimension that leaves nothing": "SELECT sum(random_1) FROM fact JOIN days ON day = d WHERE name = ''",
}


def write_tables(folder: pathlib.Path, scale: float) -> dict[str, pathlib.Path]:
    """Write the tables of TPC-H, and a table with ``_DAYS`` partitions and its dimension; return their folders."""
    tool = shutil.which(
        "tpchgen-cli", path=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    )
    if tool is None:
        raise SystemExit("tpchgen-cli is missing: pip install tpchgen-cli")
    subprocess.run([tool, "parquet", "-s", str(scale), "--output-dir", str(folder)], check=True, capture_output=True)
    tables = {path.stem: pq.read_table(path) for path in sorted(folder.glob("*.parquet"))}
    random = np.random.default_rng(7)
    tables["days"] = pa.table({"d": pa.array(range(_DAYS), pa.int32()), "name": [f"d{day}" for day in range(_DAYS)]})
    days = np.repeat(np.arange(_DAYS, dtype="int32"), _ROWS)
    columns = {f"random_{number}": random.random(len(days)) for number in range(10)}
    tables["fact"] = pa.table({"amount": random.integers(0, 1000, len(days)), **columns, "day": days})
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
        step = -(-len(table) // FILES.get(name, 1))
        for start in range(0, len(table), step):
            part = table.slice(start, step)
            write_deltalake(folder / name, part, mode="append", partition_by=["day"] if name == "fact" else None)
    return {name: folder / name for name in tables}


def is_equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal; an average of decimals has more digits in one engine than in the other."""
    if isinstance(left, (float, Decimal)) or isinstance(right, (float, Decimal)):
        return left is not None and right is not None and math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-6)
    return bool(left == right)


def is_same(rows: list[Any], expected: list[tuple[Any, ...]]) -> bool:
    """Return whether two lists have equal rows in the same order; a query without ``ORDER BY`` has one row."""
    return len(rows) == len(expected) and all(
        len(row) == len(other) and all(map(is_equal, row, other)) for row, other in zip(rows, expected, strict=True)
    )


def run(spark: Any, server: Any, asked: str) -> tuple[list[Any], float, dict[str, Any], dict[str, int]]:
    """Return the rows of a query, its seconds, and the bytes and requests by kind."""
    server.reset_stats()
    began = time.perf_counter()
    rows = [tuple(row) for row in spark.sql(asked).collect()]
    seconds = time.perf_counter() - began
    return rows, seconds, server.stats()["bytes"], server.stats()["requests"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1)
    scale = parser.parse_args().scale
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    wrong = []
    with tempfile.TemporaryDirectory(prefix="tpch-") as name, duckdb.connect() as local:
        folders = write_tables(pathlib.Path(name), scale)
        with mock_server.running({f"s.s.{table}": folder for table, folder in folders.items()}) as server:
            for table, folder in folders.items():
                local.sql(f"CREATE VIEW {table} AS SELECT * FROM '{folder}.parquet'")
            ds.attach(spark, server.profile_path, name="tpch")
            spark.sql("USE tpch.s.s")
            asked = {f"Q{number}": query for number, query in enumerate(QUERIES, 1)} | PRUNING
            sys.stdout.write("| query | MB | data | query | metadata | s |\n|---|---|---|---|---|---|\n")
            for aqe, ansi in itertools.product(("true", "false"), repeat=2):
                spark.conf.set("spark.sql.adaptive.enabled", aqe)
                spark.conf.set("spark.sql.ansi.enabled", ansi)
                for title, query in asked.items():
                    rows, seconds, sizes, requests = run(spark, server, query)
                    if not is_same(rows, local.sql(query).fetchall()):
                        wrong.append(f"{title} with AQE {aqe} and ANSI {ansi}")
                    if (aqe, ansi) == ("true", "true"):
                        counts = " | ".join(str(requests.get(kind, 0)) for kind in ("data", "query", "metadata"))
                        megabytes = sizes.get("data", 0) / 1e6
                        sys.stdout.write(f"| {title} | {megabytes:.2f} | {counts} | {seconds:.1f} |\n")
                        sys.stdout.flush()
    spark.stop()
    sys.stdout.write(f"{4 * len(asked)} queries, different from DuckDB: {wrong or 'none'}\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
