"""Realistic tables: TPC-H ``lineitem`` and ``orders``, as Spark writes them, and events with nested columns.

Random numbers are too easy for readers. Real columns repeat values, so writers use dictionaries for them.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import SEED, add, commit, head, made

SCALE = 1
_LINE_ITEM_FILES = 16
_ORDERS_FILES = 8
_EVENT_FILES = 8
_EVENT_ROWS = 150_000


def line_items() -> pathlib.Path:
    """Return ``lineitem``: 6 million rows of 16 columns in 16 files, 200 MB."""
    return made("lineitem", lambda root: _write_as_spark(root, "lineitem", _LINE_ITEM_FILES))


def plain_line_items() -> pathlib.Path:
    """Return ``lineitem`` as pyarrow writes it: without page checksums, page indexes and decimals as integers."""

    def write(root: pathlib.Path) -> None:
        paths = []
        for source in sorted((line_items() / "bench" / "default" / "lineitem").glob("*.parquet")):
            paths.append(root / source.name)
            pq.write_table(pq.read_table(source), paths[-1], compression="snappy")
        _commit(root, paths)

    return made("lineitem-plain", write)


def orders() -> pathlib.Path:
    """Return ``orders``: 1.5 million rows of 9 columns in 8 files."""
    return made("orders", lambda root: _write_as_spark(root, "orders", _ORDERS_FILES))


def _write_as_spark(root: pathlib.Path, table: str, files: int) -> None:
    """Write a table of TPC-H with Spark, so that it has dictionary pages, decimals as INT64, and page indexes."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as scratch:
        generator = pathlib.Path(sys.executable).with_name("tpchgen-cli")
        command = [str(generator), "parquet", "-s", str(SCALE), "--tables", table, "--output-dir", scratch]
        subprocess.run(command, check=True, capture_output=True)
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        try:
            rows = session.read.parquet(f"{scratch}/{table}.parquet")
            rows.coalesce(files).repartition(files).write.parquet(f"{scratch}/written")
        finally:
            session.stop()
        written = sorted(pathlib.Path(scratch, "written").glob("*.parquet"))
        paths = [root / f"part-{number:05d}.snappy.parquet" for number in range(len(written))]
        for source, path in zip(written, paths, strict=True):
            path.write_bytes(source.read_bytes())
    _commit(root, paths)


def events() -> pathlib.Path:
    """Return events of a web shop, with structs, lists and maps, text with few, some and many distinct values, and
    nulls."""

    def write(root: pathlib.Path) -> None:
        paths = [root / f"part-{number:05d}.parquet" for number in range(_EVENT_FILES)]
        for number, path in enumerate(paths):
            pq.write_table(_event_batch(number), path, compression="snappy", data_page_version="1.0")
        _commit(root, paths)

    return made("events", write)


def _event_batch(number: int) -> pa.Table:
    random, rows = np.random.default_rng([SEED, 4, number]), _EVENT_ROWS

    def choice(count: int, form: str, nulls: float = 0.0, length: int = rows) -> pa.Array:
        # A few of the values are frequent, as in real tables.
        places = np.minimum(random.zipf(1.3, length) - 1, count - 1).astype("int32")
        indices = pa.array(places, mask=random.random(length) < nulls)
        return pa.DictionaryArray.from_arrays(indices, [form.format(each) for each in range(count)]).cast(pa.string())

    lengths = random.integers(0, 5, rows)
    starts = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype("int32"))
    total = int(lengths.sum())
    item = pa.StructArray.from_arrays(
        [choice(5_000, "sku-{:06d}", length=total), pa.array(random.integers(1, 9, total).astype("int32"))],
        names=["sku", "quantity"],
    )
    user = pa.StructArray.from_arrays(
        [choice(40_000, "user-{}@example.org"), choice(60, "country {}", nulls=0.1)], names=["mail", "country"]
    )
    moments = np.sort(random.integers(0, 86_400_000_000, rows)) + (20_000 + number) * 86_400_000_000
    return pa.table(
        {
            "id": pa.array(np.arange(number * rows, (number + 1) * rows)),
            "at": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "kind": choice(12, "kind_{}"),
            "page": choice(3_000, "/catalogue/section-{0}/product-{0}", nulls=0.02),
            "session": pa.array([f"{each:016x}" for each in random.integers(0, 1 << 62, rows).tolist()]),
            "agent": choice(200, "Mozilla/5.0 (system {}; rv:128.0) Gecko/20100101 Firefox/128.0", nulls=0.3),
            "user": user,
            "items": pa.ListArray.from_arrays(starts, item),
            "price": pa.array(random.gamma(2.0, 20.0, rows), mask=random.random(rows) < 0.4),
        }
    )


def _commit(root: pathlib.Path, paths: list[pathlib.Path]) -> None:
    footers = [pq.read_metadata(path) for path in paths]
    adds = [add(path, footer.num_rows, {}) for path, footer in zip(paths, footers, strict=True)]
    commit(root, 0, [*head(pq.read_schema(paths[0]).remove_metadata()), *adds])
