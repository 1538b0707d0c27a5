"""Every type of ``docs/types.md`` has in every output the documented dtype, which does not depend on the returned rows.

There is one table for each type. Its column has ordinary values, has no rows, has only nulls, or is missing from an old
file; partition values are tested for types that allow them. It is read as a column and inside struct, array and map.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import gc
import json
import math
import pathlib
import re
import uuid
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from tests.int96 import RAW, negative
from tests.integration.kinds import BIG, KINDS, UTC, Kind
from tests.regressions.hand_made import HandMadeTable
from tests.versions import PANDAS, TAKES_VIEWS, TIME_UNIT

pytestmark = pytest.mark.filterwarnings("ignore:Discarding nonzero nanoseconds:UserWarning")
OLD_DUCKDB = duckdb.__version__.startswith("1.")

CASES = ("ordinary", "empty", "nulls", "missing")
BACKENDS = (None, "numpy_nullable", "pyarrow")
_AS_BYTES = (pa.binary(16), RAW)
NESTED_ROWS = {"s": "struct", "l": "array", "m": "map"}


@functools.cache
def documented() -> dict[str, dict[str, str]]:
    """Return the table of ``docs/types.md``: the cells of each row, by row and column."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "types.md").read_text("utf-8")
    lines = [re.split(r" +\| +", line.strip("| ")) for line in page.splitlines() if line.startswith("| ")]
    head = [cell.replace("`", "") for cell in lines[0]]
    rows = {line[0]: dict(zip(head, (cell.strip("`") for cell in line), strict=True)) for line in lines[1:]}
    # The page states this rule in a sentence.
    return {name: {**row, "pyarrow": f"{row['Arrow']}[pyarrow]"} for name, row in rows.items()}


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def shared(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.SharedTable]:
    folder = tmp_path_factory.mktemp("types")
    _write(kind, folder / "default" / "default" / "t")
    with mock_server.running(tables=folder) as server, ds.SharingClient(server.profile) as client:
        yield client.table("default.default.t")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- the table of the documentation ---


def test_every_documented_type_is_tested() -> None:
    # Variants have their own tests.
    assert {kind.row for kind in KINDS.values()} | {*NESTED_ROWS.values(), "variant"} == set(documented())


# --- Arrow ---


@pytest.mark.parametrize("response_format", ["delta", "parquet"])
def test_arrow_types_and_values_are_exact(shared: ds.SharedTable, kind: Kind, case: str, response_format: str) -> None:
    if kind.features and response_format == "parquet":
        with pytest.raises(ds.RequestError, match="delta"):
            shared.scan(response_format=response_format).to_arrow()
        return
    rows = _scan(shared, case, response_format=response_format).to_arrow()
    expected = _expected(kind, case)

    assert rows.schema.equals(expected.schema)
    assert {str(rows.schema.field(name).type) for name in _own_columns(kind)} == {_cell(kind, "Arrow")}
    assert repr(rows.to_pydict()) == repr(expected.to_pydict())


def test_every_arrow_output_gives_the_same_table(shared: ds.SharedTable, case: str) -> None:
    scan = _scan(shared, case)
    rows = scan.to_arrow()
    streamed = [pa.table(scan), scan.to_reader().read_all(), pa.Table.from_batches(scan.to_batches(), scan.schema)]

    for table in streamed:
        # In old versions of pyarrow, the C data interface loses the metadata of map values.
        assert table.schema.equals(rows.schema, check_metadata=TAKES_VIEWS)
        assert repr(table.to_pydict()) == repr(rows.to_pydict())


# --- pandas ---


@pytest.mark.parametrize("backend", BACKENDS)
def test_pandas_dtypes_match_the_docs_and_values_are_exact(
    shared: ds.SharedTable, kind: Kind, case: str, backend: str | None
) -> None:
    if (
        PANDAS < 2
        and kind.delta.startswith(("timestamp", "interval day"))
        and not _is_nanos(kind)
        and case == "ordinary"
        and backend != "pyarrow"
    ):
        with pytest.raises(ds.UnsupportedFeatureError, match="outside the range of pandas"):
            _scan(shared, case).to_pandas(backend)
        return
    frame = _scan(shared, case).to_pandas(backend)
    column = "pandas" if backend is None else backend
    expected = _expected(kind, case)

    assert frame.columns.tolist() == expected.column_names
    assert isinstance(frame.index, pd.RangeIndex)
    for name in _own_columns(kind):
        dtype = _pandas_cell(_cell(kind, column))
        assert str(frame[name].dtype) == dtype.replace("64[us", f"64[{TIME_UNIT}"), name
    assert str(frame["id"].dtype) == documented()["long"][column]
    if backend != "pyarrow":
        assert {str(frame[name].dtype) for name in NESTED_ROWS} == {"object"}
    for name in expected.column_names:
        # NumPy has no null, so floats, the strings of pandas 3 and lists of floats have NaN instead.
        as_nan = backend is None or name in NESTED_ROWS
        values = [_plain(value, as_nan=as_nan) for value in expected[name].to_pylist()]
        assert repr([_plain(value, as_nan=as_nan) for value in frame[name]]) == repr(values), name


# --- Polars and DuckDB ---


def test_polars_dtypes_match_the_docs_and_values_are_exact(shared: ds.SharedTable, kind: Kind, case: str) -> None:
    if kind.delta.startswith("geo") and not hasattr(pl, "BaseExtension"):
        with pytest.raises(ds.UnsupportedFeatureError, match="Update Polars"):
            _scan(shared, case).to_polars()
        return
    frame = _scan(shared, case).to_polars()
    expected = _expected(kind, case)

    assert {str(frame.schema[name]) for name in _own_columns(kind)} == {_cell(kind, "Polars")}
    for name in expected.column_names:
        # Polars returns Python datetimes, which have no nanoseconds.
        by_arrow = name != "m" and _is_nanos(kind)
        rows = frame.to_arrow()[name].to_pylist() if by_arrow else frame[name].to_list()
        values = expected[name].to_pylist()
        if name == "m":
            rows, values = [_pairs(value) for value in rows], [_pairs(value) for value in values]
            if _is_nanos(kind):
                continue
        assert repr([_plain(value) for value in rows]) == repr([_plain(value) for value in values]), name


def test_duckdb_types_match_the_docs_and_values_are_exact(shared: ds.SharedTable, kind: Kind, case: str) -> None:
    if OLD_DUCKDB and kind.delta == "timestamp_nanos":
        with pytest.raises(ds.UnsupportedFeatureError, match="Update DuckDB"):
            _scan(shared, case).to_duckdb()
        return
    relation = _scan(shared, case).to_duckdb()
    if case == "ordinary":  # the relation must keep its data after the scan is freed
        gc.collect()
    expected = _expected(kind, case)
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))

    # DuckDB before version 2 has no null type and reports INTEGER.
    older = {"INTEGER": "NULL"} if kind.arrow == pa.null() else {}
    # DuckDB before version 2 has no geometry type either.
    older |= {"BLOB": "GEOMETRY"} if OLD_DUCKDB and kind.delta.startswith("geometry") else {}
    results = {types[name].replace('"', "") for name in _own_columns(kind)}
    assert {older.get(name, name) for name in results} == {_cell(kind, "DuckDB")}
    own = _own_columns(kind)
    # A relation can be read twice.
    for name in (*own, own[0]):
        # Timestamps are compared as microseconds, so that Python's time zones do not matter.
        micros = not _is_nanos(kind) and (pa.types.is_timestamp(kind.arrow) or pa.types.is_duration(kind.arrow))
        if _is_nanos(kind):
            selected = [(value,) for value in relation.project(name).to_arrow_table()[name].to_pylist()]
        else:
            selected = relation.project(f"epoch_us({name})" if micros else name).fetchall()
        values = expected[name].cast(pa.int64()) if micros else expected[name]
        assert repr([_plain(row[0]) for row in selected]) == repr([_plain(v) for v in values.to_pylist()]), name
    assert relation.aggregate("count(*)").fetchall() == [(expected.num_rows,)]


# --- written and expected values ---


def _is_nanos(kind: Kind) -> bool:
    return pa.types.is_timestamp(kind.arrow) and kind.arrow.unit == "ns"


def _partitioned(kind: Kind) -> bool:
    return bool(kind.partitions)


def _own_columns(kind: Kind) -> list[str]:
    return ["p", "c"] if _partitioned(kind) else ["c"]


def _field(name: str, data_type: object, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": data_type, "nullable": nullable, "metadata": {}}


def _write(kind: Kind, root: pathlib.Path) -> None:
    struct = {"type": "struct", "fields": [_field("x", kind.delta)]}
    array = {"type": "array", "elementType": kind.delta, "containsNull": True}
    mapping = {"type": "map", "keyType": "string", "valueType": kind.delta, "valueContainsNull": True}
    own = [_field("p", kind.delta)] if _partitioned(kind) else []
    fields = [_field("which", "string"), *own, _field("id", "long"), _field("c", kind.delta)]
    fields += [_field("s", struct), _field("l", array), _field("m", mapping)]
    schema = json.dumps({"type": "struct", "fields": fields})
    keys = ["which", *(["p"] if own else [])]
    table = HandMadeTable(root).create(schema, partition_by=keys, features=kind.features)
    nothing = {"p": None} if own else {}
    files = [
        table.file(_stored(kind, _rows(kind)), {"which": "ordinary", **({"p": text} if own else {})}, **kind.write)
        for text in kind.partitions or [None]
    ]
    files.append(table.file(_stored(kind, _null_rows(kind)), {"which": "nulls", **nothing}, **kind.write))
    files.append(table.file(pa.table({"id": [BIG, None]}), {"which": "missing", **nothing}))
    table.commit(*files)


def _rows(kind: Kind) -> pa.Table:
    values = [*kind.values, None]
    columns: dict[str, list[Any]] = {
        "id": [BIG, *([None] * (len(values) - 1))],
        "c": values,
        "s": [*({"x": value} for value in values[1:]), None],
        "l": [values, None, [], *([value] for value in values[3:])][: len(values)],
        "m": [[("a", value), ("b", None)] for value in values[1:]] + [None],
    }
    return _typed(kind, columns, len(values))


def _null_rows(kind: Kind) -> pa.Table:
    return _typed(kind, {name: [None, None] for name in ("id", "c", "s", "l", "m")}, 2)


def _typed(kind: Kind, columns: dict[str, list[Any]], rows: int) -> pa.Table:
    types = {
        "id": pa.int64(),
        "c": kind.arrow,
        "s": pa.struct([("x", kind.arrow)]),
        "l": pa.list_(pa.field("element", kind.arrow)),
        "m": pa.map_(pa.string(), kind.arrow),
    }
    padded = {name: (values + [None] * rows)[:rows] for name, values in columns.items()}
    return pa.table({name: pa.array(padded[name], types[name]) for name in types})


def _stored(kind: Kind, rows: pa.Table) -> pa.Table:
    if kind.arrow == pa.null():
        return rows.select(["id"])  # no Delta writer stores a void column
    if kind.stored is None:
        return rows
    if kind.stored in _AS_BYTES:
        columns = {name: _with_bytes(values) for name, values in rows.to_pydict().items()}
        return _typed(dataclasses.replace(kind, arrow=kind.stored), columns, len(rows))
    # A view keeps the stored numbers; a cast might round them.
    values = rows["c"].combine_chunks().view(kind.stored)
    return rows.select(["id"]).append_column("c", values)


def _with_bytes(value: Any) -> Any:
    """Convert the UUIDs and times in a value to the bytes in Parquet."""
    if isinstance(value, str) and len(value) == 36:
        return uuid.UUID(value).bytes
    if isinstance(value, datetime.datetime):
        return negative(value)
    if isinstance(value, dict):
        return {name: _with_bytes(item) for name, item in value.items()}
    return type(value)(map(_with_bytes, value)) if isinstance(value, (list, tuple)) else value


def _expected(kind: Kind, case: str) -> pa.Table:
    """Return the expected result of reading ``case``."""
    if case == "ordinary":
        pieces = [_with_keys(kind, _visible(kind, _rows(kind)), case, value) for value in _partition_values(kind)]
        return pa.concat_tables(pieces)
    if case == "nulls":
        return _with_keys(kind, _null_rows(kind), case, None)
    missing = _typed(kind, {"id": [BIG, None], "c": [], "s": [], "l": [], "m": []}, 2)
    table = _with_keys(kind, missing, "missing", None)
    return table if case == "missing" else table.slice(0, 0)


def _visible(kind: Kind, rows: pa.Table) -> pa.Table:
    """Remove the nested fields that ``_stored`` does not write."""
    if kind.arrow != pa.null() and kind.stored in (None, *_AS_BYTES):
        return rows
    return _typed(
        kind, {"id": rows["id"].to_pylist(), "c": rows["c"].to_pylist(), "s": [], "l": [], "m": []}, len(rows)
    )


def _partition_values(kind: Kind) -> list[Any]:
    return list(kind.partitions.values()) or [None]


def _with_keys(kind: Kind, rows: pa.Table, case: str, value: object) -> pa.Table:
    if _partitioned(kind):
        rows = rows.add_column(0, "p", pa.array([value] * len(rows), kind.arrow))
    return rows.add_column(0, "which", pa.array([case] * len(rows), pa.string()))


def _scan(table: ds.SharedTable, case: str, **how: Any) -> ds.Scan:
    return table.scan(filter=f"which = '{case}'", **how)


# --- comparison ---


def _cell(kind: Kind, column: str) -> str:
    return documented()[kind.row][column]


def _pandas_cell(cell: str) -> str:
    # The documentation names the string type of pandas 3; pandas 2 uses objects.
    return str(pd.Series(["x"]).dtype) if cell == "str" else cell


def _pairs(value: Any) -> Any:
    """Convert a map of Polars to a dict; versions without a map type return lists of structs."""
    if value is None or isinstance(value, dict):
        return value
    return dict((item["key"], item["value"]) if isinstance(item, dict) else item for item in value)


def _plain(value: Any, *, as_nan: bool = False) -> Any:
    """Convert a value of an output to a common form; with ``as_nan``, null and NaN become equal."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, np.datetime64) and not np.isnat(value) and np.datetime_data(value)[0] == "ns":
        value = pd.Timestamp(value)
    if isinstance(value, pd.Timestamp) and PANDAS >= 2 and value.unit == "ns":
        return f"{value.value} ns"
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else _plain(value.item())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None if as_nan else "NaN"
    if isinstance(value, pd.Timestamp):
        value = value.to_pydatetime()
    if isinstance(value, pd.Timedelta):
        value = value.to_pytimedelta()
    if isinstance(value, datetime.datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, dict):
        return {name: _plain(item, as_nan=as_nan) for name, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item, as_nan=as_nan) for item in value]
    return value
