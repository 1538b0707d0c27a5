"""Values, filters and statistics of every Iceberg type, in every output, as the table in ``docs/types.md``
describes."""

from __future__ import annotations

import csv
import datetime
import functools
import json
import re
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyproj
import pytest
from pyiceberg import types as theirs
from pyiceberg.conversions import to_bytes

import delta_sharing_client as ds
from delta_sharing_client.delta.data_types import type_text
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.errors import UnsupportedFeatureError
from tests.iceberg.hand_made import HandMade
from tests.iceberg.server import iceberg_server
from tests.int96 import RAW, negative, write_int96
from tests.integration.test_types import documented
from tests.versions import PANDAS

pytestmark = [
    pytest.mark.skipif(PANDAS < 2, reason="the table has the time units of pandas 2"),
    pytest.mark.filterwarnings("ignore::delta_sharing_client.IncompleteReadWarning"),
]
AT = datetime.datetime(2024, 2, 29, 12, 34, 56, 789012)
UTC = datetime.timezone.utc
ZONED = (AT.replace(tzinfo=UTC), AT.replace(tzinfo=UTC) + datetime.timedelta(1))
NANOS = 1_709_210_096_789_012_345
POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
MINE = json.loads(pyproj.CRS.from_epsg(25832).to_json())
VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])


class Kind(NamedTuple):
    """A type: its row in the table of the docs, its type in files, two values, and the first value as an SQL
    literal."""

    name: str
    row: str
    stored: pa.DataType
    values: tuple[Any, Any]
    constant: str | None = None
    bounds: theirs.PrimitiveType | None = None


def _decimal(text: str, scale: int) -> Decimal:
    return Decimal(text).quantize(Decimal(1).scaleb(-scale))


KINDS = [
    Kind("boolean", "boolean", pa.bool_(), (False, True), "false", theirs.BooleanType()),
    Kind("int", "int", pa.int32(), (-3, 2**31 - 1), "-3", theirs.IntegerType()),
    Kind("long", "long", pa.int64(), (2**53 + 1, 2**63 - 1), str(2**53 + 1), theirs.LongType()),
    Kind("float", "float", pa.float32(), (1.5, 2.5), "1.5", theirs.FloatType()),
    Kind("double", "double", pa.float64(), (0.1, 1e300), "0.1", theirs.DoubleType()),
    *(
        Kind(
            f"decimal({digits}, {scale})", "decimal(P, S)", pa.decimal128(digits, scale),
            (_decimal("-0.01", scale), _decimal("7.25", scale)), "-0.01", theirs.DecimalType(digits, scale),
        )
        for digits, scale in ((3, 2), (9, 2), (10, 3), (18, 4), (19, 2), (38, 18))
    ),
    Kind("date", "date", pa.date32(), (AT.date(), datetime.date.max), "DATE '2024-02-29'", theirs.DateType()),
    Kind("timestamp", "timestamp", pa.timestamp("us"), (AT, AT + datetime.timedelta(1)),
         "TIMESTAMP_NTZ '2024-02-29 12:34:56.789012'", theirs.TimestampType()),
    Kind("timestamptz", "timestamptz", pa.timestamp("us", "UTC"), ZONED,
         "TIMESTAMP '2024-02-29 12:34:56.789012Z'", theirs.TimestamptzType()),
    Kind("timestamp_ns", "timestamp_ns", pa.timestamp("ns"), (NANOS, NANOS + 1)),
    Kind("timestamptz_ns", "timestamptz_ns", pa.timestamp("ns", "UTC"), (NANOS, NANOS + 1)),
    Kind("string", "string", pa.string(), ("a", "ä"), "'a'", theirs.StringType()),
    Kind("fixed[4]", "fixed[L]", pa.binary(4), (b"\0bcd", b"\xffbcd"), "X'00626364'", theirs.FixedType(4)),
    Kind("binary", "binary", pa.binary(), (b"", b"\xff\0"), "X''", theirs.BinaryType()),
    Kind("variant", "variant", VARIANT, tuple({"metadata": b"\1\0\0", "value": bytes([12, at])} for at in (7, 8))),
    Kind("geometry", "geometry(C)", pa.binary(), (POINT, POINT[:-1] + b"A")),
    Kind("geometry(srid:3857)", "geometry(C)", pa.binary(), (POINT, POINT[:-1] + b"A")),
    Kind("geometry(projjson:crs.mine)", "geometry(C)", pa.binary(), (POINT, POINT[:-1] + b"A")),
    Kind("geography(projjson:crs.mine, karney)", "geography(C, A)", pa.binary(), (POINT, POINT[:-1] + b"A")),
    Kind("geometry(projjson:crs.none)", "geometry(C)", pa.binary(), (POINT, POINT[:-1] + b"A")),
    Kind("geometry(projjson:crs.odd)", "geometry(C)", pa.binary(), (POINT, POINT[:-1] + b"A")),
    Kind("geography(srid:4326, karney)", "geography(C, A)", pa.binary(), (POINT, POINT[:-1] + b"A")),
    Kind("time", "time", pa.time64("us"), (AT.time(), datetime.time(13)), "TIME '12:34:56.789012'", theirs.TimeType()),
    Kind("uuid", "uuid", pa.binary(16), (uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes),
         f"'{uuid.UUID(int=1)}'", theirs.UUIDType()),
]  # fmt: skip
NAMES = {f"c{number}": kind for number, kind in enumerate(KINDS, 2)}


@functools.cache
def rows() -> dict[str, str]:
    """Return the row in the table of ``docs/types.md`` for each Iceberg type."""
    lines = {name: line["Iceberg"] for name, line in documented().items() if line["Iceberg"] != "none"}
    return {name: row for row, names in lines.items() for name in names.split("`, `")}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.SharedTable]:
    columns = [{"id": 1, "name": "id", "required": False, "type": "long"}]
    columns += [
        {"id": int(name[1:]), "name": name, "required": False, "type": kind.name} for name, kind in NAMES.items()
    ]
    columns.append({"id": 100, "name": "nothing", "required": False, "type": "unknown"})
    properties = {"crs.mine": json.dumps(MINE), "crs.odd": "[]"}
    made = HandMade(tmp_path_factory.mktemp("types") / "t", columns, version=3, properties=properties)
    files = []
    for place in (0, 1):
        data = {"id": pa.array([place, place + 10], pa.int64())}
        data |= {name: pa.array([kind.values[place], None], kind.stored) for name, kind in NAMES.items()}
        bounds = {
            int(name[1:]): to_bytes(kind.bounds, kind.values[place]) for name, kind in NAMES.items() if kind.bounds
        }
        nulls = dict.fromkeys(range(1, len(KINDS) + 2), 1)
        files.append(made.data_file(pa.table(data), lower_bounds=bounds, upper_bounds=bounds, null_value_counts=nulls))
    made.commit([made.manifest(files)])
    with iceberg_server() as server:
        server.share("t", made.metadata)
        yield ds.SharingClient(server.profile).table("ice.n.t", format="iceberg")


def test_int96_with_negative_nanoseconds_is_exact(tmp_path: Path) -> None:
    """Iceberg's writers store no INT96, but a table may contain files that others wrote."""
    columns = [{"id": 1, "name": "t", "required": False, "type": "timestamptz"}]
    made = HandMade(tmp_path / "t", columns, version=2)
    moments = [datetime.datetime(1950, 6, 1, 12), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)]
    rows = pa.table({"t": pa.array(map(negative, moments), RAW)})
    made.commit([made.manifest([made.data_file(rows, write=write_int96)])])
    with iceberg_server() as server:
        server.share("t", made.metadata)
        table = ds.SharingClient(server.profile).table("ice.n.t", format="iceberg")
        for arrow in (table.to_arrow(), table.to_polars().to_arrow()):
            assert arrow["t"].cast(pa.timestamp("us")).to_pylist() == moments


def _cells(name: str) -> dict[str, str]:
    return documented()[rows()[NAMES[name].row]]


def test_every_documented_iceberg_type_is_tested() -> None:
    assert set(rows()) == {kind.row for kind in KINDS} | {"struct", "list", "map", "unknown"}


def _arrow(name: str) -> list[Any]:
    """Return the values of the four rows as an Arrow array."""
    kind = NAMES[name]
    if kind.name == "variant":
        return ["7", None, "8", None]
    if kind.name == "uuid":
        first, second = (str(uuid.UUID(bytes=value)) for value in kind.values)
        return [first, None, second, None]
    stored = pa.array([kind.values[0], None, kind.values[1], None], kind.stored)
    return (stored.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind.stored) else stored).to_pylist()


@pytest.mark.parametrize("name", NAMES)
def test_values_and_types_match_the_documentation(table: ds.SharedTable, name: str) -> None:
    scan, kind = table.scan(columns=[name]), NAMES[name]
    rows, frame, expected = scan.to_arrow(), scan.to_polars() if _is_shown(name) else None, _arrow(name)

    assert rows[name].to_pylist() == expected
    assert pa.table(scan).equals(rows)
    if kind.row == "variant":
        assert rows.schema.field(name).type == pa.string()
        return
    if not kind.name.startswith("decimal") or kind.name == "decimal(38, 18)":
        assert str(rows.schema.field(name).type) == _cells(name)["Arrow"]
        for backend, column in ((None, "pandas"), ("numpy_nullable", "numpy_nullable"), ("pyarrow", "pyarrow")):
            dtype = _cells(name)[column]
            assert str(scan.to_pandas(backend)[name].dtype) == (
                str(pd.Series(["x"]).dtype) if dtype == "str" else dtype
            )
        if frame is not None:
            assert str(frame.schema[name]) == _cells(name)["Polars"]
    assert rows.schema.field(name).type == {"fixed[4]": pa.binary(), "uuid": pa.string()}.get(kind.name, kind.stored)
    if frame is not None:
        assert frame.to_arrow()[name].cast(rows.schema.field(name).type).to_pylist() == expected


def _is_shown(name: str) -> bool:
    """Whether Polars supports the column's type, apart from the metadata of a coordinate system."""
    return not NAMES[name].name.startswith("geo")


@pytest.mark.parametrize("name", [name for name in NAMES if _is_shown(name)])
def test_duckdb_returns_the_documented_type(table: ds.SharedTable, name: str) -> None:
    kind, scan = NAMES[name], table.scan(columns=[name])
    if kind.name == "timestamptz_ns" and duckdb.__version__.startswith("1."):
        with pytest.raises(UnsupportedFeatureError, match="Update DuckDB"):
            scan.to_duckdb()
        return
    relation = scan.to_duckdb()

    if kind.row not in ("variant", "decimal(P, S)") or kind.name == "decimal(38, 18)":
        assert str(relation.types[0]).replace('"', "") == _cells(name)["DuckDB"]
    arrow = scan.to_arrow()[name]
    assert relation.to_arrow_table()[name].cast(arrow.type).to_pylist() == arrow.to_pylist()


@pytest.mark.parametrize("name", [name for name in NAMES if NAMES[name].name.startswith("geo")])
def test_geoarrow_metadata_has_the_coordinate_system(table: ds.SharedTable, name: str) -> None:
    field = table.scan(columns=[name]).to_arrow().schema.field(name)
    content = json.loads(field.metadata[b"ARROW:extension:metadata"])

    marked = re.search(r"srid:(\d+)", NAMES[name].name)
    defined = re.search(r"projjson:crs.(\w+)", NAMES[name].name)
    if defined is not None:
        is_known = defined[1] == "mine"
        assert (content.get("crs"), content.get("crs_type")) == ((MINE, "projjson") if is_known else (None, None))
        frame = table.scan(columns=["id", name]).to_geopandas()
        assert frame.crs == (pyproj.CRS.from_epsg(25832) if is_known else None)
        assert f"{frame[name][0]}" == "POINT (1 2)"
        if is_known:
            shown = type_text(parse_schema(table.metadata().schema_string).find(name).type)
            assert shown in ("geometry({...})", "geography({...}, karney)")
    elif marked is None:
        assert (content["crs"], content["crs_type"]) == ("OGC:CRS84", "authority_code")
    else:
        assert (content["crs"], content["crs_type"]) == (marked[1], "srid")
    assert content.get("edges") == ("karney" if "karney" in NAMES[name].name else None)
    if hasattr(pl, "BaseExtension"):
        assert table.scan(columns=[name]).to_polars().height == 4


@pytest.mark.parametrize("name", NAMES)
def test_every_file_format_keeps_every_value(table: ds.SharedTable, name: str, tmp_path: Path) -> None:
    scan = table.scan(columns=["id", name])
    scan.to_csv(tmp_path / "t.csv")
    scan.to_jsonl(tmp_path / "t.jsonl")
    scan.to_parquet(tmp_path / "t.parquet")

    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        by_id = {row["id"]: row[name] for row in csv.DictReader(file)}
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text("utf-8").splitlines()]
    assert len(by_id) == 4
    assert by_id["0"] != by_id["1"]
    assert [line.get(name) is None for line in lines] == [False, True, False, True]
    assert lines[0][name] != lines[2][name]
    read = pa.parquet.read_table(tmp_path / "t.parquet")[name]
    assert read.to_pylist() == scan.to_arrow()[name].to_pylist()


@pytest.mark.parametrize("name", [name for name in NAMES if NAMES[name].constant])
def test_filters_select_rows_and_skip_files(table: ds.SharedTable, name: str) -> None:
    constant = NAMES[name].constant
    for condition, ids in (
        (f"{name} = {constant}", [0]),
        (f"{name} <= {constant}", [0]),
        (f"{name} > {constant}", [1]),
    ):
        scan = table.scan(columns=["id"], filter=condition)

        assert scan.to_arrow()["id"].to_pylist() == ids, condition
        # NaN is greater than every number, and bounds do not show whether a file has NaN, so no file is skipped.
        skips = 0 if ">" in condition and NAMES[name].name in ("float", "double") else 1
        assert scan.plan().skipped.by_statistics == skips, condition
    assert table.scan(columns=["id"], filter=f"{name} IS NULL").to_arrow()["id"].to_pylist() == [10, 11]


@pytest.mark.parametrize("name", NAMES)
def test_is_null_and_is_not_null_select_the_right_rows(table: ds.SharedTable, name: str) -> None:
    for condition, ids in ((f"{name} IS NULL", [10, 11]), (f"{name} IS NOT NULL", [0, 1])):
        assert table.scan(columns=["id"], filter=condition).to_arrow()["id"].to_pylist() == ids


def test_column_of_type_unknown_has_only_nulls(table: ds.SharedTable) -> None:
    returned = table.scan(columns=["nothing"]).to_arrow()

    assert returned["nothing"].to_pylist() == [None] * 4
    assert str(returned.schema.field("nothing").type) == documented()[rows()["unknown"]]["Arrow"]
    assert table.scan(columns=["id"], filter="nothing IS NOT NULL").to_arrow().num_rows == 0
