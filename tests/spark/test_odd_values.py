"""Values in files of Spark that other libraries do not expect; Spark itself provides the expected results."""

from __future__ import annotations

import itertools
import pathlib
import shutil
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.decode.text import as_shown
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES
from tests.int96 import NANOS_PER_DAY, RAW, packed, write_int96
from tests.regressions.hand_made import HandMadeTable

# One byte from each class of bytes that UTF-8 decoders distinguish.
BYTES = [0x41, 0x80, 0x90, 0xA0, 0xBF, 0xC0, 0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xFF]
TEXTS = [bytes(each) for length in range(1, 4) for each in itertools.product(BYTES, repeat=length)] + [
    bytes(each) for each in itertools.product([0x80, 0x9F, 0xA0, 0xED, 0xF0, 0xF4], repeat=4)
]


def shared(folder: pathlib.Path) -> Any:
    return mock_server.running(tables={"s.s.t": folder})


def test_invalid_utf8_is_replaced_as_in_spark(spark: Any, tmp_path: pathlib.Path) -> None:
    rows = pa.table({"id": range(len(TEXTS)), "t": pa.array(TEXTS, pa.binary()).view(pa.string())})
    table = HandMadeTable(tmp_path / "t").create(rows.schema)
    table.commit(table.file(rows))
    [file] = (tmp_path / "t").glob("*.parquet")
    shown = [row.t for row in spark.read.parquet(str(file)).orderBy("id").collect()]
    assert [as_shown(text) for text in TEXTS] == shown
    with shared(tmp_path / "t") as server:
        found = ds.SharingClient(server.profile).table("s.s.t")
        options = ds.ReadOptions(invalid_text="replace")  # type: ignore[arg-type]
        scan = found.scan(options=options)
        assert scan.to_arrow()["t"].to_pylist() == shown
        assert scan.to_pandas()["t"].tolist() == shown
        assert scan.to_polars()["t"].to_list() == shown
        first = next(number for number, text in enumerate(TEXTS) if as_shown(text).encode() != text)
        with pytest.raises(ds.DataError, match=rf"Text in column 't' must be UTF-8, but row {first} of the file"):
            found.scan().to_arrow()
        if HAS_DATA_SOURCES:
            url = f"{server.profile_path}#s.s.t"
            frame = spark.read.format("deltaSharing").option("invalidText", "replace").load(url)
            assert [row.t for row in frame.orderBy("id").collect()] == shown
            with pytest.raises(Exception, match="must be UTF-8"):
                spark.read.format("deltaSharing").load(url).collect()


def test_int96_with_any_nanoseconds_is_read_as_in_spark(spark: Any, tmp_path: pathlib.Path) -> None:
    pairs = [(-7154, 10**9), (-7153, 10**9 - NANOS_PER_DAY), (0, -1000), (0, 2**62), (20_000, -(2**62)), (20_000, 0)]
    raw = [packed(days, nanos - nanos % 1000) for days, nanos in pairs]
    kind = pa.list_(RAW)
    rows = pa.table(
        {"id": range(len(raw)), "t": pa.array(raw, RAW), "l": pa.array([[value, None] for value in raw], kind)}
    )
    types = {"id": pa.int64(), "t": pa.timestamp("us", "UTC"), "l": pa.list_(pa.timestamp("us", "UTC"))}
    changes = {"delta.enableChangeDataFeed": "true"}
    table = HandMadeTable(tmp_path / "t").create(pa.schema(types.items()), properties=changes)
    table.commit(table.file(rows, write=write_int96))
    [file] = (tmp_path / "t").glob("*.parquet")
    query = "id", "unix_micros(t) AS t", "transform(l, each -> unix_micros(each)) AS l"
    shown = [tuple(row) for row in spark.read.parquet(str(file)).selectExpr(*query).orderBy("id").collect()]
    as_numbers = pa.schema({"id": pa.int64(), "t": pa.int64(), "l": pa.list_(pa.int64())}.items())
    with shared(tmp_path / "t") as server:
        found = ds.SharingClient(server.profile).table("s.s.t")
        for read in (found.scan(), found.changes(1)):
            for arrow in (read.to_arrow(), read.to_polars().to_arrow()):
                numbers = arrow.select(["id", "t", "l"]).cast(as_numbers)
                assert [tuple(row.values()) for row in numbers.to_pylist()] == shown
        if HAS_DATA_SOURCES:
            url = f"{server.profile_path}#s.s.t"
            for options in ({}, {"readChangeFeed": "true", "startingVersion": "1"}):
                frame = spark.read.format("deltaSharing").options(**options).load(url)
                assert [tuple(row) for row in frame.selectExpr(*query).orderBy("id").collect()] == shown


def test_ml_vectors_are_read_as_spark_stores_them(spark: Any, tmp_path: pathlib.Path) -> None:
    from pyspark.ml.linalg import Vectors

    vectors = [Vectors.dense([1.5, -2.0]), Vectors.sparse(5, [1, 4], [3.0, 4.0]), None, Vectors.sparse(3, [], [])]
    frame = spark.createDataFrame(
        [(number, vector, [vector]) for number, vector in enumerate(vectors)],
        _with_vectors(),
    )
    frame.coalesce(1).write.parquet(str(tmp_path / "written"))
    [file] = (tmp_path / "written").glob("*.parquet")
    schema = frame.schema.json()
    assert "VectorUDT" in schema
    table = HandMadeTable(tmp_path / "t").create(schema)
    shutil.copy(file, tmp_path / "t" / "f.parquet")
    add = {"path": "f.parquet", "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 0}
    table.commit({"add": {**add, "dataChange": True}})
    stored = [
        {"type": 1, "size": None, "indices": None, "values": [1.5, -2.0]},
        {"type": 0, "size": 5, "indices": [1, 4], "values": [3.0, 4.0]},
        None,
        {"type": 0, "size": 3, "indices": [], "values": []},
    ]
    assert pq.read_table(file).sort_by("id")["v"].to_pylist() == stored
    with shared(tmp_path / "t") as server:
        scan = ds.SharingClient(server.profile).table("s.s.t").scan()
        found = scan.to_arrow().sort_by("id")
        assert found["v"].to_pylist() == stored
        assert found["l"].to_pylist() == [[value] for value in stored]
        assert scan.where("v.size = 5").to_arrow()["id"].to_pylist() == [1]
        if HAS_DATA_SOURCES:
            rows = spark.read.format("deltaSharing").load(f"{server.profile_path}#s.s.t").orderBy("id").collect()
            assert [row.v and row.v.asDict() for row in rows] == stored


def _with_vectors() -> Any:
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import types

    return types.StructType([
        types.StructField("id", types.LongType()),
        types.StructField("v", VectorUDT()),
        types.StructField("l", types.ArrayType(VectorUDT())),
    ])  # fmt: skip
