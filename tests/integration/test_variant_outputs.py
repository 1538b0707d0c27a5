"""Variants in their three forms and in every output: as columns, in structs, arrays and maps, null, and missing."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.options import ReadOptions, VariantAs
from tests.regressions.hand_made import HandMadeTable
from tests.unit.delta.variant_encoder import EMPTY, dictionary, encode, primitive

BIG = 9007199254740993
NAMES = ["a", "b"]
RAW = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
JSON_TYPES = {
    "v": pa.string(),
    "s": pa.struct([("v", pa.string())]),
    "l": pa.list_(pa.field("element", pa.string())),
    "m": pa.map_(pa.string(), pa.string()),
}
RAW_TYPES = {
    "v": RAW,
    "s": pa.struct([("v", RAW)]),
    "l": pa.list_(pa.field("element", RAW)),
    "m": pa.map_(pa.string(), RAW),
}


def raw(value: bytes, metadata: bytes = EMPTY) -> dict[str, bytes]:
    return {"metadata": metadata, "value": value}


# Each value as stored, as JSON text, and as a Python object (Parquet, "Variant Binary Encoding").
VALUES: list[tuple[Any, Any, Any]] = [
    (
        raw(encode({"a": BIG, "b": [1, None, "x"]}, NAMES), dictionary(NAMES)),
        f'{{"a":{BIG},"b":[1,null,"x"]}}',
        {"a": BIG, "b": [1, None, "x"]},
    ),
    (raw(primitive(0)), "null", None),
    (None, None, None),
    (raw(primitive(11, struct.pack("<i", -719162))), '"0001-01-01"', datetime.date(1, 1, 1)),
    (raw(primitive(10, bytes([2]) + (12345).to_bytes(16, "little"))), "123.45", Decimal("123.45")),
    (
        raw(primitive(13, struct.pack("<q", 253402300799999999))),
        None,
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.SharedTable]:
    folder = tmp_path_factory.mktemp("variants")
    variant = {"type": "variant"}
    types = {
        "which": "string",
        "v": "variant",
        "s": {"type": "struct", "fields": [{"name": "v", "type": "variant", "nullable": True, "metadata": {}}]},
        "l": {"type": "array", "elementType": variant, "containsNull": True},
        "m": {"type": "map", "keyType": "string", "valueType": variant, "valueContainsNull": True},
    }
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    table = HandMadeTable(folder / "default" / "default" / "t").create(
        json.dumps({"type": "struct", "fields": fields}), partition_by=["which"], features=["variantType"]
    )
    stored = [value for value, _, _ in VALUES]
    rows = pa.table({name: pa.array(column, RAW_TYPES[name]) for name, column in _columns(stored).items()})
    nulls = pa.table({name: pa.array([None, None], kind) for name, kind in RAW_TYPES.items()})
    table.commit(
        table.file(rows, {"which": "ordinary"}),
        table.file(nulls, {"which": "nulls"}),
        table.file(pa.table({"other": [1, 2]}), {"which": "missing"}),
    )
    with mock_server.running(tables=folder) as server, ds.SharingClient(server.profile) as client:
        yield client.table("default.default.t")


@pytest.fixture(params=["ordinary", "nulls", "missing", "empty"])
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("mode", VariantAs)
def test_arrow_has_json_text_or_the_stored_struct(shared: ds.SharedTable, case: str, mode: VariantAs) -> None:
    rows = _scan(shared, case, mode).to_arrow()
    types = RAW_TYPES if mode is VariantAs.STRUCT else JSON_TYPES

    assert {field.name: field.type for field in rows.schema if field.name != "which"} == types
    form = 0 if mode is VariantAs.STRUCT else 1
    expected = _expected(case, [row[form] for row in VALUES])
    for name in types:
        values = rows[name].to_pylist()
        if form and case == "ordinary":  # the unit tests of variants cover the text of timestamps
            values, expected[name] = _without_last(values, name), _without_last(expected[name], name)
        assert repr(values) == repr(expected[name]), name


@pytest.mark.parametrize("mode", VariantAs)
def test_variants_can_be_written_to_parquet(shared: ds.SharedTable, case: str, mode: VariantAs) -> None:
    rows = _scan(shared, case, mode).to_arrow()
    sink = io.BytesIO()
    pq.write_table(rows, sink)

    rows.validate(full=True)
    assert repr(pq.read_table(sink).to_pydict()) == repr(rows.to_pydict())


@pytest.mark.parametrize("backend", [None, "numpy_nullable", "pyarrow"])
def test_pandas_has_python_objects_if_they_are_chosen(shared: ds.SharedTable, case: str, backend: str | None) -> None:
    frame = _scan(shared, case, VariantAs.OBJECT).to_pandas(backend)

    assert {str(frame[name].dtype) for name in JSON_TYPES} == {"object"}
    expected = _expected(case, [row[2] for row in VALUES])
    for name in JSON_TYPES:
        assert repr([_plain(value) for value in frame[name]]) == repr([_plain(value) for value in expected[name]]), name


@pytest.mark.parametrize("mode", [VariantAs.JSON, VariantAs.STRUCT])
@pytest.mark.parametrize("backend", [None, "numpy_nullable", "pyarrow"])
def test_pandas_dtypes_of_variants_do_not_depend_on_rows(
    shared: ds.SharedTable, case: str, backend: str | None, mode: VariantAs
) -> None:
    dtypes = _scan(shared, case, mode).to_pandas(backend).dtypes.astype(str).to_dict()

    assert dtypes == _scan(shared, "ordinary", mode).to_pandas(backend).dtypes.astype(str).to_dict()
    if mode is VariantAs.JSON:
        assert dtypes["v"] == dtypes["which"]


@pytest.mark.parametrize("mode", VariantAs)
def test_polars_and_duckdb_read_the_same_as_arrow(shared: ds.SharedTable, case: str, mode: VariantAs) -> None:
    scan = _scan(shared, case, mode)
    ordinary = _scan(shared, "ordinary", mode)
    frame, relation = scan.to_polars(), scan.to_duckdb()

    assert frame.schema == ordinary.to_polars().schema
    assert list(map(str, relation.types)) == list(map(str, ordinary.to_duckdb().types))
    expected = scan.to_arrow()["v"].to_pylist()
    assert frame["v"].to_list() == expected
    assert [row[0] for row in relation.project("v").fetchall()] == expected


def test_filter_on_a_variant_column_is_refused(shared: ds.SharedTable) -> None:
    with pytest.raises(ds.UsageError, match="v"):
        shared.scan(filter="v = '1'").to_arrow()


def _columns(values: list[Any]) -> dict[str, list[Any]]:
    count = len(values)
    return {
        "v": values,
        "s": [*({"v": value} for value in values[1:]), None],
        "l": [values, None, [], *([[value] for value in values])][:count],
        "m": [*([("k", value), ("n", None)] for value in values[1:]), None],
    }


def _expected(case: str, values: list[Any]) -> dict[str, list[Any]]:
    rows = {"ordinary": None, "nulls": 2, "missing": 2, "empty": 0}[case]
    return _columns(values) if rows is None else {name: [None] * rows for name in JSON_TYPES}


def _without_last(column: list[Any], name: str) -> list[Any]:
    """Remove the rows with the last of ``VALUES`` from a column of ``_columns``."""
    if name == "l":
        return [column[0][:-1], *column[1:]]
    return column[:-1] if name == "v" else [*column[:-2], column[-1]]


def _scan(table: ds.SharedTable, case: str, mode: VariantAs) -> ds.Scan:
    options = dataclasses.replace(table.options, variant_as=mode)
    assert isinstance(options, ReadOptions)
    return table.scan(filter=f"which = '{case}'", options=options)


def _plain(value: Any) -> Any:
    if value is pd.NA:
        return None
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple | np.ndarray) else value
