"""Geometry, geography and nanosecond timestamps from files of several writers, in every library that supports them."""

from __future__ import annotations

import json
import pathlib
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import deltalake
import duckdb
import geopandas
import pandas as pd
import pyarrow as pa
import pyroaring
import pytest

import delta_sharing_client as ds
from delta_sharing_client.delta.data_types import PrimitiveType
from delta_sharing_client.spark.types import to_spark_type
from tests.regressions.hand_made import HandMadeTable
from tests.served import served

NANOS = pa.timestamp("ns", tz="UTC")
FIRST = 1_234_567_891_234_567_891


def point(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


def schema(*fields: tuple[str, str]) -> str:
    items = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    return json.dumps({"type": "struct", "fields": items})


@pytest.fixture
def places(tmp_path: pathlib.Path) -> Iterator[ds.SharedTable]:
    """A table of two files. Their statistics of geometries are corners of bounding boxes, which are no bounds for
    bytes."""
    table = HandMadeTable(tmp_path / "t").create(
        schema(("id", "long"), ("geom", "geometry(EPSG:3857)"), ("geog", "geography(OGC:CRS84, spherical)")),
        features=["geospatial"],
    )
    for rows, box in (([(1, 2.0), (2, None)], "POINT(2 -2)"), ([(3, 5.0)], "POINT(5 -5)")):
        content = pa.table(
            {
                "id": [number for number, _ in rows],
                "geom": [None if x is None else point(x, -x) for _, x in rows],
                "geog": pa.array([None if x is None else point(x, x) for _, x in rows], pa.binary()),
            }
        )
        nulls = sum(x is None for _, x in rows)
        stats = {
            "numRecords": len(rows),
            "minValues": {"geom": box, "geog": box},
            "maxValues": {"geom": box, "geog": box},
        }
        stats["nullCount"] = {"geom": nulls, "geog": nulls}
        add = table.file(content)
        add["add"]["stats"] = json.dumps(stats)
        table.commit(add)
    with served(table.root) as shared:
        yield shared


def test_geopandas_gets_the_coordinate_systems(places: ds.SharedTable) -> None:
    frame = places.scan(columns=["id", "geom"]).to_geopandas()
    assert isinstance(frame, geopandas.GeoDataFrame)
    assert frame.crs == "EPSG:3857"
    shown = dict(zip(frame["id"], frame["geom"], strict=True))
    assert (shown[1].x, shown[1].y, shown[2], shown[3].x) == (2.0, -2.0, None, 5.0)
    both = places.scan().to_geopandas()
    assert both["geog"].crs == "OGC:CRS84"

    with pytest.raises(ds.UsageError, match=r"No column of 's\.d\.t' holds a geometry"):
        places.scan(columns=["id"]).to_geopandas()


def test_duckdb_reads_geometry_and_geography(places: ds.SharedTable) -> None:
    relation = places.scan().to_duckdb()
    rows = {row[0]: bytes(row[1]) for row in relation.filter("geog IS NOT NULL").project("id, geog").fetchall()}
    assert rows == {1: point(2.0, 2.0), 3: point(5.0, 5.0)}
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    assert types["geog"] == "BLOB"
    if int(duckdb.__version__.split(".")[0]) >= 2:
        assert types["geom"].startswith("GEOMETRY")
    assert relation.filter("id = 3").project("id, geom").to_arrow_table().num_rows == 1


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("geom IS NULL", [2]),
        ("geog IS NOT NULL", [1, 3]),
        (f"geom = X'{point(5.0, -5.0).hex()}'", [3]),
        (f"geom <> X'{point(5.0, -5.0).hex()}'", [1]),
        (f"geom IN (X'{point(2.0, -2.0).hex()}', X'00')", [1]),
        (f"geog < X'{point(9.0, 9.0).hex()}'", [1, 3]),
    ],
)
def test_bounding_boxes_skip_no_row(places: ds.SharedTable, condition: str, expected: list[int]) -> None:
    assert sorted(places.scan(filter=condition).to_arrow()["id"].to_pylist()) == expected


@pytest.fixture
def moments(tmp_path: pathlib.Path) -> Iterator[ds.SharedTable]:
    """A table with partitions by nanoseconds, one of them null, and with statistics in milliseconds, as delta-rs writes
    them."""
    table = HandMadeTable(tmp_path / "t").create(
        schema(("id", "long"), ("at", "timestamp_nanos"), ("wall", "timestamp_nanos_ntz"), ("p", "timestamp_nanos")),
        partition_by=["p"],
        features=["timestampNanos", "timestampNtz"],
    )
    for number, text in ((1, "1970-01-01T00:00:00.000001001Z"), (2, None), (3, "1970-01-01 00:00:00.000002")):
        content = pa.table(
            {
                "id": [number],
                "at": pa.array([FIRST + number], NANOS),
                "wall": pa.array([number * 1_000_000_000 + number], pa.timestamp("ns")),
            }
        )
        add = table.file(content, {"p": text})
        cut = {"at": "2009-02-13T23:31:31.234Z", "wall": f"1970-01-01 00:00:0{number}"}
        add["add"]["stats"] = json.dumps({"numRecords": 1, "minValues": cut, "maxValues": cut, "nullCount": {"at": 0}})
        table.commit(add)
    with served(table.root) as shared:
        yield shared


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("at > TIMESTAMP '2009-02-13 23:31:31.234567892Z'", [2, 3]),
        ("at = TIMESTAMP '2009-02-13 23:31:31.234567894Z'", [3]),
        ("at <= TIMESTAMP '2009-02-13 23:31:31.234567892Z'", [1]),
        ("at IN (TIMESTAMP '2009-02-13 23:31:31.234567893Z')", [2]),
        ("wall = TIMESTAMP_NTZ '1970-01-01 00:00:02.000000002'", [2]),
        ("wall >= TIMESTAMP_NTZ '1970-01-01 00:00:02.000000003'", [3]),
        ("wall < TIMESTAMP_NTZ '1970-01-01 00:00:01.000000001'", []),
        ("p = TIMESTAMP '1970-01-01 00:00:00.000001001Z'", [1]),
        ("p > TIMESTAMP '1970-01-01 00:00:00.000001001Z'", [3]),
        ("p IS NULL", [2]),
        ("at > p", [1, 3]),
        ("at > DATE '2009-02-13'", [1, 2, 3]),
        ("year(at) = 2009 AND day(wall) = 1", [1, 2, 3]),
    ],
)
def test_filters_distinguish_nanoseconds(moments: ds.SharedTable, condition: str, expected: list[int]) -> None:
    assert sorted(moments.scan(filter=condition).to_arrow()["id"].to_pylist()) == expected
    in_memory = moments.scan(filter=ds.col("id") > 0).to_pandas().sort_values("id")
    assert in_memory["at"].tolist() == [pd.Timestamp(FIRST + number, tz="UTC") for number in (1, 2, 3)]
    assert [value.value for value in in_memory["p"].dropna()] == [1001, 2000]


def test_filter_on_nanoseconds_skips_files(moments: ds.SharedTable) -> None:
    assert "files: 1 " in moments.scan(filter="wall >= TIMESTAMP_NTZ '1970-01-01 00:00:02.5'").explain()


def test_nanosecond_table_of_delta_rs_is_read(tmp_path: pathlib.Path) -> None:
    fields = schema(("a", "timestamp_nanos"), ("b", "timestamp_nanos_ntz"), ("p", "timestamp_nanos"))
    table = deltalake.DeltaTable.create(str(tmp_path / "t"), deltalake.Schema.from_json(fields), partition_by=["p"])
    # delta-rs 1.6 truncates values to microseconds.
    content = pa.table(
        {
            "a": pa.array([FIRST // 1000 * 1000, None], NANOS),
            "b": pa.array([5000, -5000], pa.timestamp("ns")),
            "p": pa.array([7000, None], NANOS),
        }
    )
    deltalake.write_deltalake(table, content, mode="append")
    with served(tmp_path / "t") as shared:
        rows = shared.scan().to_arrow().sort_by("b")
        assert rows.equals(content.sort_by("b"))
        assert (
            shared.scan(filter="b > TIMESTAMP_NTZ '1970-01-01 00:00:00'").to_arrow()["p"].to_pylist()[0].value == 7000
        )


@pytest.mark.parametrize("name", ["timestamp_nanos", "timestamp_nanos_ntz"])
def test_spark_error_names_the_column_to_deselect(name: str) -> None:
    with pytest.raises(
        ds.UnsupportedFeatureError, match=f"Column 'at' has the type '{name}'.* leave it out with option"
    ):
        to_spark_type(PrimitiveType(name), "at")


def test_spark_gets_geometry_as_well_known_binary() -> None:
    kinds: Any = [to_spark_type(PrimitiveType(name), "g") for name in ("geometry", "geography(OGC:CRS84, karney)")]
    assert [kind.typeName() for kind in kinds] == ["binary", "binary"]


@pytest.mark.parametrize("offset", [{}, {"offset": 0}], ids=["no offset", "offset 0"])
def test_deletion_vector_at_offset_0_removes_its_rows(tmp_path: pathlib.Path, offset: dict[str, int]) -> None:
    """Delta log protocol, "Deletion Vector Descriptor Schema". The bytes were made with pyroaring and zlib."""
    table = HandMadeTable(tmp_path / "t").create(schema(("id", "long")), features=["deletionVectors"])
    bits = struct.pack("<I", 1_681_511_377) + pyroaring.BitMap64([1, 3]).serialize()
    (table.root / "vector.bin").write_bytes(struct.pack(">I", len(bits)) + bits + struct.pack(">I", zlib.crc32(bits)))
    add = table.file(pa.table({"id": [0, 1, 2, 3, 4]}))
    path = (table.root / "vector.bin").as_uri()
    vector = {"storageType": "p", "pathOrInlineDv": path, "sizeInBytes": len(bits), "cardinality": 2, **offset}
    table.commit({"add": add["add"] | {"deletionVector": vector}})
    with served(table.root) as shared:
        assert shared.scan().to_arrow()["id"].to_pylist() == [0, 2, 4]
        assert shared.scan(filter="id > 0").count() == 2
        # The copy has its own deletion vector at the usual location.
        shared.replicate(tmp_path / "copy")
    (commit,) = (tmp_path / "copy" / "_delta_log").glob("*.json")
    adds = [json.loads(line)["add"] for line in commit.read_text().splitlines() if '"add"' in line]
    assert [add["deletionVector"]["offset"] for add in adds] == [1]


def test_void_column_that_got_a_type_is_null_in_old_files(tmp_path: pathlib.Path) -> None:
    """Delta log protocol, "Void Type": the change needs no table feature, and data files never have a void column."""
    feed = {"delta.enableChangeDataFeed": "true"}
    table = HandMadeTable(tmp_path / "t").create(schema(("id", "long"), ("v", "void")), properties=feed)
    table.commit(table.file(pa.table({"id": [1]})))
    table.commit(table.metadata(schema(("id", "long"), ("v", "integer")), properties=feed))
    table.commit(table.file(pa.table({"id": [2], "v": pa.array([7], pa.int32())})))
    with served(table.root) as shared:
        assert shared.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "v": None}, {"id": 2, "v": 7}]
        assert shared.scan(filter="v IS NULL").to_arrow()["id"].to_pylist() == [1]
        changes = shared.changes(starting_version=1).to_arrow().sort_by("id")
        assert changes.select(["id", "v", "_commit_version"]).to_pylist() == [
            {"id": 1, "v": None, "_commit_version": 1},
            {"id": 2, "v": 7, "_commit_version": 3},
        ]
        values = []
        for step in shared.follow(tmp_path / "cursor", starting_version=1, trigger="available-now"):
            values += step.to_arrow().sort_by("id")["v"].to_pylist()
            step.commit()
        assert values == [None, 7]
