"""Columns that are missing from a data file or have no field ids (Iceberg, "Column Projection", "Name Mapping
Serialization").

Expected values follow the specification; ``tests/tables_iceberg`` has such files with the rows that Spark reads.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.errors import DataError
from tests.iceberg.hand_made import HandMade
from tests.iceberg.server import IcebergServer, iceberg_server

FIELDS = [
    {"id": 4, "name": "x", "required": False, "type": "long"},
    {"id": 5, "name": "y", "required": False, "type": "string"},
]
COLUMNS: list[dict[str, Any]] = [
    {"id": 1, "name": "a", "required": False, "type": "long"},
    {"id": 2, "name": "b", "required": False, "type": "string"},
    {"id": 3, "name": "s", "required": False, "type": {"type": "struct", "fields": FIELDS}},
    {"id": 6, "name": "at", "required": False, "type": "timestamp"},
    {"id": 7, "name": "day", "required": False, "type": "date"},
    {"id": 8, "name": "clock", "required": False, "type": "time"},
    {"id": 9, "name": "key", "required": False, "type": "uuid"},
]
SOURCES: dict[str, tuple[int, Any]] = {
    "b": (2, "string"), "x": (4, "long"), "at": (6, "long"), "day": (7, "int"),
    "clock": (8, {"type": "long", "logicalType": "time-micros", "adjust-to-utc": False}),
    "key": (9, {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}),
}  # fmt: skip
BEYOND = 253_402_300_800_000_000
"""The first microsecond of the year 10000."""


@pytest.fixture
def server() -> Iterator[IcebergServer]:
    with iceberg_server() as server:
        yield server


def _made(path: Path, **properties: str) -> HandMade:
    made = HandMade(path / "t", COLUMNS, properties=properties)
    for number, (name, (source, _)) in enumerate(SOURCES.items(), 1):
        field = {"name": name, "transform": "identity", "source-id": source, "field-id": 1000 + number}
        made.metadata["partition-specs"].append({"spec-id": number, "fields": [field]})
    return made


def _in_partition(made: HandMade, name: str, value: Any, rows: pa.Table) -> dict[str, Any]:
    number = list(SOURCES).index(name) + 1
    file = made.data_file(rows, partition={name: value})
    return made.manifest([file], spec_id=number, partition=[(name, 1000 + number, SOURCES[name][1])])


def _table(server: IcebergServer, made: HandMade) -> ds.SharedTable:
    server.share("t", made.metadata)
    return server.table()


# --- partition values ---


LACKING = pa.table(
    {"a": pa.array([1, 2], pa.int64()), "s": pa.array([{"y": "p"}, None], pa.struct([("y", pa.string())]))}
)


@pytest.mark.parametrize(
    ("name", "value", "column"),
    [
        ("x", 5, "s.x"),
        ("at", BEYOND, "at"),
        ("day", -800_000, "day"),
        ("clock", 86_400_000_000, "clock"),
    ],
)
def test_unusable_partition_value_for_a_column_is_refused(
    server: IcebergServer, tmp_path: Path, name: str, value: Any, column: str
) -> None:
    made = _made(tmp_path)
    made.commit([_in_partition(made, name, value, LACKING)])
    table = _table(server, made)

    # The other columns can be read; reading this column is an error that names the file.
    assert table.scan(columns=["a"]).to_arrow()["a"].to_pylist() == [1, 2]
    for read in (table.scan(), table.scan(columns=[column]), table.scan(columns=["a"], filter=f"{column} IS NOT NULL")):
        with pytest.raises(DataError, match=f"The file must have the partition column '{column}', but does not") as e:
            read.to_arrow()
        assert e.value.file_id is not None
        assert e.value.file_id.endswith(".parquet")


def test_missing_struct_with_a_partition_value_is_refused(server: IcebergServer, tmp_path: Path) -> None:
    made = _made(tmp_path)
    made.commit([_in_partition(made, "x", 5, LACKING.select(["a"]))])

    with pytest.raises(DataError, match=r"The file must have the partition column 's\.x'"):
        _table(server, made).scan().to_arrow()


@pytest.mark.parametrize(
    ("name", "value", "column", "expected"),
    [
        ("x", None, "s", [{"x": None, "y": "p"}, None]),
        ("b", None, "b", [None, None]),
        ("b", "__HIVE_DEFAULT_PARTITION__", "b", ["__HIVE_DEFAULT_PARTITION__"] * 2),
        ("b", "%20/'", "b", ["%20/'"] * 2),
        ("b", "", "b", ["", ""]),
        ("clock", 28_800_000_001, "clock", [datetime.time(8, 0, 0, 1)] * 2),
        ("key", b"\xff" * 16, "key", ["ffffffff-ffff-ffff-ffff-ffffffffffff"] * 2),
    ],
)
def test_missing_column_has_the_partition_value(
    server: IcebergServer, tmp_path: Path, name: str, value: Any, column: str, expected: list[Any]
) -> None:
    made = _made(tmp_path)
    made.commit([_in_partition(made, name, value, LACKING)])

    table = _table(server, made)
    assert table.scan(columns=[column]).to_arrow()[column].to_pylist() == expected
    if column != "s" and expected[0] is not None:
        shown = str(expected[0]).replace("'", "''")
        assert table.scan(columns=["a"], filter=f"{column} = '{shown}'").to_arrow()["a"].to_pylist() == [1, 2]
        assert table.scan(filter=f"{column} > '{shown}'").plan().skipped.by_partition == 1


def test_empty_partition_value_is_not_null(server: IcebergServer, tmp_path: Path) -> None:
    columns = [
        COLUMNS[0],
        {"id": 2, "name": "b", "required": False, "type": "binary"},
        {**COLUMNS[1], "id": 3, "name": "t"},
    ]
    made = HandMade(tmp_path / "t", columns)
    fields = [{"name": name, "transform": "identity", "source-id": number, "field-id": 1000 + number}
              for number, name in ((2, "b"), (3, "t"))]  # fmt: skip
    made.metadata["partition-specs"] = [{"spec-id": 0, "fields": fields}]
    values: list[dict[str, Any]] = [{"b": b"", "t": ""}, {"b": None, "t": None}, {"b": b"\0", "t": " "}]
    # The second file of each partition has the columns, too.
    rows = [pa.table({"a": [number]}) for number in range(3)]
    rows += [pa.table({"a": [number + 3], **{key: [value] for key, value in one.items() if value is not None}})
             for number, one in enumerate(values)]  # fmt: skip
    files = [made.data_file(one, partition=values[number % 3]) for number, one in enumerate(rows)]
    gone = made.equality_deletes(pa.table({"t": [""], "a": [3]}), ["t", "a"], partition=values[0])
    partition = [("b", 1002, "bytes"), ("t", 1003, "string")]
    made.commit([made.manifest(files, partition=partition)])
    table = _table(server, made)

    expected = [{"a": number, **values[number % 3]} for number in range(6)]
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: int(row["a"])) == expected
    for condition, wanted in (
        ("t = ''", [0, 3]), ("t IS NULL", [1, 4]), ("t IS NOT NULL", [0, 2, 3, 5]), ("t > ''", [2, 5]),
        ("b = X''", [0, 3]), ("b IS NULL", [1, 4]), ("t <> '' OR b > X''", [2, 5]), ("length(t) = 0", [0, 3]),
    ):  # fmt: skip
        assert sorted(table.scan(filter=condition).to_arrow()["a"].to_pylist()) == wanted, condition
    assert table.scan(filter="t = ''").plan().skipped.by_partition == 4
    made.commit([{**made.manifest(files, partition=partition), "sequence_number": 1},
                 made.manifest([gone], content=1, partition=partition)])  # fmt: skip
    assert sorted(_table(server, made).to_arrow()["a"].to_pylist()) == [0, 1, 2, 4, 5]


def test_null_partition_value_with_a_default_is_refused(server: IcebergServer, tmp_path: Path) -> None:
    made = _made(tmp_path)
    made.metadata["format-version"] = 3
    made.metadata["schemas"][0]["fields"][2]["type"]["fields"][0] = {**FIELDS[0], "initial-default": 9}
    made.commit([_in_partition(made, "x", None, LACKING)])

    with pytest.raises(DataError, match=r"The file must have the partition column 's\.x'"):
        _table(server, made).scan().to_arrow()


def test_partition_values_do_not_replace_values_in_the_file(server: IcebergServer, tmp_path: Path) -> None:
    made = _made(tmp_path)
    rows = pa.table({"a": [1], "b": [""], "s": [{"x": 5, "y": ""}], "at": pa.array([BEYOND], pa.timestamp("us"))})
    of_another_spec = made.manifest([made.data_file(LACKING)])
    made.commit([of_another_spec, *(_in_partition(made, name, rows[name][0].as_py() if name == "b" else value, rows)
                                    for name, value in (("b", ""), ("x", 5), ("at", BEYOND)))])  # fmt: skip
    table = _table(server, made)

    assert table.scan(columns=["b"]).to_arrow()["b"].to_pylist() == [None, None, "", "", ""]
    assert table.scan(columns=["s"]).to_arrow()["s"].to_pylist()[2:] == [{"x": 5, "y": ""}] * 3
    assert table.scan(columns=["a"], filter="s.x = 5 AND b = ''").to_arrow()["a"].to_pylist() == [1, 1, 1]


# --- names instead of ids ---


def _mapping(*fields: tuple[int, list[str], tuple[Any, ...]]) -> str:
    def listed(fields: tuple[Any, ...]) -> list[dict[str, Any]]:
        return [{"field-id": one[0], "names": one[1], "fields": listed(one[2])} for one in fields]

    return json.dumps(listed(fields))


MAPPING = _mapping((1, ["a", "A.a"], ()), (2, ["b"], ()), (3, ["s", "t"], ((4, ["x", "X"], ()), (5, ["y"], ()))))
NAMES = "schema.name-mapping.default"


def test_name_mapping_finds_columns_by_each_of_their_names(server: IcebergServer, tmp_path: Path) -> None:
    made = _made(tmp_path, **{NAMES: MAPPING})
    files = [
        made.data_file(pa.table({"t": [{"y": "p", "X": 1}], "A.a": [10]}), ids={}),
        made.data_file(pa.table({"b": ["q"], "s": [{"x": 2, "z": 0}], "B": ["other"]}), ids={}),
    ]
    made.commit([made.manifest(files)])
    table = _table(server, made)

    rows = table.scan(columns=["a", "b", "s"]).to_arrow().to_pylist()
    assert rows == [{"a": 10, "b": None, "s": {"x": 1, "y": "p"}}, {"a": None, "b": "q", "s": {"x": 2, "y": None}}]
    assert table.scan(columns=["s"], filter="s.x = 2").to_arrow().num_rows == 1


def test_name_mapping_applies_to_lists_and_maps(server: IcebergServer, tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [{"id": 20, "name": "now", "required": False, "type": "int"}]}
    columns: list[dict[str, Any]] = [
        {"id": 1, "name": "l", "required": False, "type": {
            "type": "list", "element-id": 2, "element-required": False, "element": inner}},
        {"id": 3, "name": "m", "required": False, "type": {
            "type": "map", "key-id": 4, "key": "string", "value-id": 5, "value-required": False,
            "value": {"type": "struct", "fields": [{"id": 21, "name": "now", "required": False, "type": "int"}]}}},
    ]  # fmt: skip
    names = _mapping(
        (1, ["l"], ((2, ["element"], ((20, ["then"], ()),)),)),
        (3, ["m"], ((4, ["key"], ()), (5, ["value"], ((21, ["then"], ()),)))),
    )
    made = HandMade(tmp_path / "t", columns, properties={NAMES: names})
    then = pa.struct([("then", pa.int32())])
    # Other writers use other names for the elements of lists and maps.
    lists = pa.list_(pa.field("array_element", then))
    rows = pa.table(
        {"l": pa.array([[{"then": 1}]], lists), "m": pa.array([[("k", {"then": 2})]], pa.map_("string", then))}
    )
    for kind in (lists, pa.large_list(then), pa.list_(then, 1)):
        made.commit([made.manifest([made.data_file(rows.set_column(0, "l", rows["l"].cast(kind)), ids={})])])

        returned = _table(server, made).scan().to_arrow().to_pylist()

        assert returned == [{"l": [{"now": 1}], "m": [("k", {"now": 2})]}]


@pytest.mark.parametrize("ids", [{"b": 1}, {"s.y": 5}])
def test_file_with_some_ids_is_not_read_by_names(server: IcebergServer, tmp_path: Path, ids: dict[str, int]) -> None:
    made = _made(tmp_path, **{NAMES: _mapping((2, ["b"], ()), (7, ["day"], ()))})
    rows = pa.table({"b": ["q"], "s": [{"y": "p"}], "day": pa.array([1], pa.date32())})
    made.commit([made.manifest([made.data_file(rows.select(["s", "day"]) if "s.y" in ids else rows, ids=ids)])])

    if "s.y" in ids:
        assert _table(server, made).scan(columns=["day"]).to_arrow().to_pylist() == [{"day": None}]
    else:
        with pytest.raises(DataError, match="Column 'a' must have the table's type int64"):
            _table(server, made).scan(columns=["a", "b"]).to_arrow()


@pytest.mark.parametrize("properties", [{}, {"owner": "x"}])
def test_file_without_ids_needs_a_name_mapping(
    server: IcebergServer, tmp_path: Path, properties: dict[str, str]
) -> None:
    made = _made(tmp_path, **properties)
    made.commit([made.manifest([made.data_file(LACKING, ids={})])])

    with pytest.raises(DataError, match="maps columns by field id, but the file has no field ids"):
        _table(server, made).scan().to_arrow()


def test_two_columns_of_a_file_with_one_id_are_refused(server: IcebergServer, tmp_path: Path) -> None:
    made = _made(tmp_path, **{NAMES: MAPPING})
    made.commit([made.manifest([made.data_file(pa.table({"s": [{"x": 1}], "t": [{"x": 2}]}), ids={})])])

    with pytest.raises(DataError, match="Column 's' must occur once in the file, but occurs 2 times"):
        _table(server, made).scan().to_arrow()


def test_equality_delete_columns_are_found_by_name(server: IcebergServer, tmp_path: Path) -> None:
    made = _made(tmp_path, **{NAMES: MAPPING})
    made.commit([made.manifest([made.data_file(pa.table({"a": [1, 2, 3], "b": ["p", "q", None]}), ids={})])])
    deletes = made.equality_deletes(pa.table({"A.a": [2]}), ["A.a"], ids={"A.a": 1})
    made.metadata["snapshots"][-1]["schema-id"] = 0
    unnamed = made.data_file(pa.table({"A.a": [3]}), ids={})
    by_name = {**unnamed, "content": 2, "equality_ids": [1]}
    first = made.manifest([made.data_file(pa.table({"a": [1, 2, 3]}), ids={})])
    made.commit([{**first, "sequence_number": 1}, made.manifest([deletes, by_name], content=1)])

    assert _table(server, made).scan(columns=["a"]).to_arrow()["a"].to_pylist() == [1]


def _with_deletes(made: HandMade, rows: pa.Table, deletes: pa.Table, name: str, ids: dict[str, int]) -> None:
    """Commit a data file in the partition ``b = 'p'``, and equality deletes for it."""
    partition = [("b", 1001, "string")]
    data = made.manifest([made.data_file(rows, partition={"b": "p"})], spec_id=1, partition=partition)
    made.commit([data])
    file = made.equality_deletes(deletes, [name], ids=ids, partition={"b": "p"})
    made.commit([data, made.manifest([file], content=1, spec_id=1, partition=partition)])


@pytest.mark.parametrize(("deleted", "left"), [("p", []), ("x", [1, 2])])
def test_equality_deletes_compare_the_partition_value(
    server: IcebergServer, tmp_path: Path, deleted: str, left: list[int]
) -> None:
    made = _made(tmp_path)
    rows = pa.table({"a": [1, 2], "b": ["x", "y"]})
    _with_deletes(made, rows, pa.table({"b": [deleted]}), "b", {"b": 2})

    returned = _table(server, made).scan(columns=["a", "b"]).to_arrow()
    assert returned.to_pylist() == [{"a": number, "b": "p"} for number in left]


def test_deletes_find_a_dropped_column_by_id_not_by_name(server: IcebergServer, tmp_path: Path) -> None:
    made = _made(tmp_path)
    # The dropped column 9 had the same name as the partition column.
    former = {"id": 9, "name": "b", "required": False, "type": "string"}
    made.metadata["schemas"].insert(0, {"type": "struct", "schema-id": 7, "fields": [former]})
    _with_deletes(made, pa.table({"a": [1, 2]}), pa.table({"b": ["p"]}), "b", {"b": 9})

    assert _table(server, made).scan(columns=["a"]).to_arrow()["a"].to_pylist() == [1, 2]
