"""Runs a case on its output, and returns the result in the form of ``cases.expected``."""

from __future__ import annotations

import asyncio
import csv
import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

import delta_sharing_client as ds
from tests.compositions.cases import KEYS, TOP, Asked, Case, normal
from tests.compositions.tables import Rows


def read_of(table: ds.SharedTable, asked: Asked) -> Any:
    options = ds.ReadOptions() if asked.batch_rows is None else ds.ReadOptions(batch_rows=asked.batch_rows)
    common: dict[str, Any] = {"columns": asked.columns, "limit": asked.limit, "options": options}
    if asked.condition is not None:
        common["filter"] = asked.condition.sql("scan")
    if asked.start is not None:
        read: Any = table.changes(asked.start, asked.end, **common)
    else:
        read = table.scan(version=asked.version, row_lineage=asked.row_lineage, **common)
    return read if asked.second is None else read.where(asked.second.sql("scan"))


class Runner:
    """Runs cases; ``folder`` is for the files that outputs write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._connection = duckdb.connect()
        # One thread, so that a limit takes the first rows.
        self._connection.execute("SET TimeZone = 'UTC'; SET threads = 1")

    def close(self) -> None:
        self._connection.close()

    def results(self, case: Case, read: Any) -> list[Any]:
        """Return the result, twice if the case asks for it: of one query that is run twice, where an engine has
        such."""
        run = {
            "polars-lazy": self._polars_lazy,
            "dataset": self._dataset,
            "duckdb": self._duckdb,
            "spark": self._spark,
        }.get(case.output)
        query = (lambda: self._eager(case, read)) if run is None else run(case, read)
        return [query() for _ in range(2 if case.is_twice else 1)]

    # === Engines ===

    def _polars_lazy(self, case: Case, read: Any) -> Any:
        whole = frame = read.to_polars(lazy=True)
        for step in case.steps:
            if step.condition is not None:
                frame = frame.filter(step.condition.polars())
            else:
                frame = frame.head(step.rows) if step.kind == "head" else frame.select(step.columns)
        column = pl.col("id")
        match case.end:
            case "rows":
                return lambda: [normal(row) for row in frame.collect().iter_rows(named=True)]
            case "count":
                return lambda: frame.select(pl.len()).collect().item()
            case "sums":
                sums = frame.select(pl.len().alias("c"), column.sum().alias("s"), column.min().alias("m"))
                return lambda: _sums(sums.collect().row(0))
            case "groups":
                groups = frame.group_by(column % 4).agg(pl.len())
                return lambda: sorted(groups.collect().rows())
            case "top":
                return lambda: frame.sort("id", descending=True).head(TOP).collect()["id"].to_list()
        other = pl.LazyFrame({"id": KEYS}) if case.end == "keys" else whole.select("id")
        return lambda: Counter(frame.select("id").join(other, on="id").collect()["id"].to_list())

    def _dataset(self, case: Case, read: Any) -> Any:
        dataset, query = read.to_dataset(), {}
        conditions = [step.condition.arrow() for step in case.steps if step.condition is not None]
        if len(conditions) > 1:
            for one in conditions[1:]:
                dataset = dataset.filter(one)
        if conditions:
            query["filter"] = conditions[0]
        last = case.steps[-1] if case.steps else None
        if last is not None and last.kind == "select":
            query["columns"] = list(last.columns)
        if last is not None and last.kind == "head":
            run = lambda: dataset.head(last.rows, **query)  # noqa: E731
        elif case.end == "count":
            return lambda: dataset.count_rows(**query)
        else:
            run = lambda: pa.Table.from_batches(  # noqa: E731
                dataset.to_batches(**query), dataset.scanner(**query).projected_schema
            )
        return (lambda: run().num_rows) if case.end == "count" else lambda: _rows(run())

    def _duckdb(self, case: Case, read: Any) -> Any:
        relation = read.to_duckdb(self._connection)
        relation.create_view("shared", replace=True)
        query = "SELECT * FROM shared"
        for step in case.steps:
            if step.condition is not None:
                query = f"SELECT * FROM ({query}) WHERE {step.condition.sql('duckdb')}"
            elif step.kind == "head":
                query = f"SELECT * FROM ({query}) LIMIT {step.rows}"
            else:
                query = f"SELECT {', '.join(step.columns)} FROM ({query})"
        other = "(VALUES " + ", ".join(f"({key})" for key in KEYS) + ") AS keys(id)"
        ends = {
            "count": f"SELECT count(*) FROM ({query})",
            "sums": f"SELECT count(*), sum(id)::BIGINT, min(id) FROM ({query})",
            "groups": f"SELECT id % 4, count(*) FROM ({query}) GROUP BY ALL ORDER BY ALL",
            "top": f"SELECT id FROM ({query}) ORDER BY id DESC LIMIT {TOP}",
            "keys": f"SELECT id FROM ({query}) JOIN {other} USING (id)",
            "self": f"SELECT id FROM ({query}) JOIN (SELECT id FROM shared) USING (id)",
        }
        if case.end == "rows":
            return lambda: _rows(self._connection.sql(query).to_arrow_table())
        run = lambda: self._connection.execute(ends[case.end]).fetchall()  # noqa: E731
        match case.end:
            case "count":
                return lambda: run()[0][0]
            case "sums":
                return lambda: run()[0]
            case "groups":
                return run
            case "top":
                return lambda: [row[0] for row in run()]
        return lambda: Counter(row[0] for row in run())

    def _spark(self, case: Case, read: Any) -> Any:
        """Plan and read as Spark does: the driver with what Spark pushes, the executors with pickled partitions. Spark
        filters and limits the rows again."""
        from delta_sharing_client.spark import session_credentials
        from delta_sharing_client.spark.datasource import DeltaSharingAlias
        from delta_sharing_client.spark.source_options import SparkOptions, limits, request_options

        conditions = [step.condition for step in case.steps if step.condition is not None]
        pushed: dict[str, Any] = {"predicates": [one for one in (each.spark() for each in conditions) if one]}
        last = case.steps[-1] if case.steps else None
        if last is not None and last.kind == "head" and not conditions:
            pushed["limit"] = last.rows
        inline = session_credentials.fields_of(read.rest.profile)
        assert inline is not None
        options = {
            **request_options(read.request),
            **limits(read.options),
            "parallelism": 3,
            "pushed": json.dumps(pushed),
        }
        given = {name: str(value) for name, value in options.items() if value is not None}
        parsed = SparkOptions.parse({**given, **inline, "path": str(read.table)})
        source = DeltaSharingAlias({}, parsed)
        schema = source.schema()
        needed = None
        if last is not None and last.kind == "select":
            needed = {*last.columns, *(name for one in conditions for name in one.columns)}
            schema = type(schema)([field for field in schema.fields if field.name in needed])

        def run() -> Any:
            reader = source.batch_reader(schema)
            parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions()]
            rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
            for step in case.steps:
                rows = step.apply(rows, "spark")
            return len(rows) if case.end == "count" else [normal(row) for row in rows]

        return run

    # === Outputs without an engine ===

    def _eager(self, case: Case, read: Any) -> Any:
        file = self._folder / "rows"
        match case.output:
            case "arrow":
                return _rows(read.to_arrow())
            case "reader":
                return _rows(read.to_reader().read_all())
            case "batches":
                with read.to_batches(rows=3) as batches:
                    parts = list(batches)
                assert all(part.num_rows == 3 for part in parts[:-1])
                return [row for part in parts for row in _rows(part)]
            case "pandas":
                return _of_pandas(read.to_pandas(), read.schema)
            case "pandas-arrow":
                return _rows(pa.Table.from_pandas(read.to_pandas(dtype_backend="pyarrow"), preserve_index=False))
            case "polars":
                return [normal(row) for row in read.to_polars().iter_rows(named=True)]
            case "partitions":
                parts = [pickle.loads(pickle.dumps(part)) for part in read.partitions(4)]
                return [row for part in parts for batch in part.read() for row in _rows(batch)]
            case "async":
                return _rows(asyncio.run(read.to_arrow_async()))
            case "capsule":
                return _rows(pa.table(read))
            case "count":
                return read.count()
            case "parquet":
                read.to_parquet(file)
                return _rows(pq.read_table(file))
            case "arrow-file":
                read.to_ipc(file)
                with pa.memory_map(str(file)) as opened:
                    return _rows(pyarrow.ipc.open_file(opened).read_all())
            case "jsonl":
                read.to_jsonl(file)
                rows = map(json.loads, file.read_text("utf-8").splitlines())
                return [(row.get("id"), *row) for row in rows]
            case "csv":
                read.to_csv(file)
                with file.open(encoding="utf-8", newline="") as lines:
                    return len(list(csv.reader(lines))) - 1  # without the header
        raise AssertionError(case.output)


def visible(case: Case, result: Any) -> Any:
    """Return the part of an expected result that the output shows in a form that can be compared."""
    if case.output == "jsonl":
        return [(dict(row).get("id"), *(name for name, _ in row)) for row in result]
    if case.output == "csv":
        return len(result)
    if case.output == "pandas":
        return [tuple((name, _plain(value)) for name, value in row) for row in result]
    return result


def _rows(table: Any) -> Rows:
    return [normal(row) for row in table.to_pylist()]


def _sums(row: tuple[Any, ...]) -> tuple[Any, ...]:
    # In Polars, the sum of no rows is 0.
    return (row[0], row[1] if row[0] else None, row[2])


def _of_pandas(frame: Any, schema: pa.Schema) -> list[Any]:
    rows = frame.to_dict("records")
    dates = {field.name for field in schema if pa.types.is_date(field.type)}
    return [
        tuple((name, _plain(normal(value.date() if name in dates and hasattr(value, "date") else value)))
              for name, value in row.items())
        for row in rows
    ]  # fmt: skip


def _plain(value: Any) -> Any:
    """Return a value of a column; NumPy dtypes do not distinguish a null from NaN."""
    if isinstance(value, (tuple, list)) or getattr(value, "ndim", 0):
        return tuple(map(_plain, value))
    if value == "NaN" or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.item() if hasattr(value, "item") else value
