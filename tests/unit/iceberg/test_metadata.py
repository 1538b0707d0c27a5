"""How a snapshot and its schema are chosen, and how Iceberg schemas are converted to Delta schemas."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from delta_sharing_client.delta.data_types import DecimalType, MapType, PrimitiveType, StructType
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from delta_sharing_client.iceberg.metadata import TableMetadata, check_metadata, choose, first_since, name_mapping
from delta_sharing_client.iceberg.table_schema import schema_string
from delta_sharing_client.parquet.field_ids import MappedField


def _schema(schema_id: int, *names: str) -> dict[str, Any]:
    fields = [{"id": at, "name": name, "required": False, "type": "long"} for at, name in enumerate(names, 1)]
    return {"type": "struct", "schema-id": schema_id, "fields": fields}


def _snapshot(number: int, **fields: Any) -> dict[str, Any]:
    return {"snapshot-id": number * 10, "sequence-number": number, "timestamp-ms": number * 1000, **fields}


def _metadata(**fields: Any) -> TableMetadata:
    document = {
        "format-version": 2,
        "location": "s3://bucket/t",
        "schemas": [_schema(0, "a"), _schema(1, "a", "b")],
        "current-schema-id": 1,
        "snapshots": [
            _snapshot(2, **{"schema-id": 1}),
            _snapshot(1, **{"schema-id": 0}),
            _snapshot(3, **{"schema-id": 1}),
        ],
        "current-snapshot-id": 20,
        "snapshot-log": [{"snapshot-id": 10, "timestamp-ms": 1000}, {"snapshot-id": 20, "timestamp-ms": 2000}],
        "refs": {
            "main": {"snapshot-id": 20, "type": "branch"},
            "old": {"snapshot-id": 10, "type": "tag"},
            "side": {"snapshot-id": 10, "type": "branch"},
        },
        **fields,
    }
    return msgspec.json.decode(json.dumps(document), type=TableMetadata)


def _chosen(metadata: TableMetadata, version: Any = None, timestamp: str | None = None) -> tuple[int | None, int]:
    snapshot = choose(metadata, version, timestamp)
    return (None if snapshot.snapshot is None else snapshot.snapshot.snapshot_id), snapshot.schema["schema-id"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, (20, 1)),
        ("main", (20, 1)),
        (10, (10, 0)),
        ("old", (10, 0)),
        ("side", (10, 1)),
        (30, (30, 1)),
    ],
)
def test_version_selects_a_snapshot(version: Any, expected: tuple[int, int]) -> None:
    assert _chosen(_metadata(), version) == expected


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [("1970-01-01T00:00:01Z", 10), ("1970-01-01T00:00:01.999Z", 10), ("1970-01-01T00:00:02Z", 20), ("2030-01-01", 20)],
)
def test_timestamp_selects_a_snapshot(timestamp: str, expected: int) -> None:
    assert _chosen(_metadata(), None, timestamp)[0] == expected


def test_snapshot_times_are_used_without_a_snapshot_log() -> None:
    assert _chosen(_metadata(**{"snapshot-log": None}), None, "1970-01-01T00:00:03Z")[0] == 30


def test_time_before_the_first_snapshot_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"no snapshot at 1970-01-01 00:00:00\.500 UTC: its first known one was committed at"
    ):
        choose(_metadata(), None, "1970-01-01T00:00:00.5Z")


@pytest.mark.parametrize("version", [11, "nope", "10"])
def test_unknown_versions_are_refused(version: Any) -> None:
    with pytest.raises(UsageError, match="The table has 'main', 'old', 'side', 10, 20, 30"):
        choose(_metadata(), version, None)


def test_expired_snapshots_are_refused() -> None:
    metadata = _metadata(snapshots=[_snapshot(2)])
    with pytest.raises(UsageError, match=r"The snapshot 10, which was current at .* has expired"):
        choose(metadata, None, "1970-01-01T00:00:01Z")
    with pytest.raises(ProtocolError, match="The reference 'old' names the snapshot 10"):
        choose(metadata, "old", None)


def test_table_without_commits_has_no_snapshot() -> None:
    for current in (None, -1):
        metadata = _metadata(**{"current-snapshot-id": current, "snapshots": None, "snapshot-log": None, "refs": None})
        assert _chosen(metadata) == (None, 1)
        with pytest.raises(UsageError, match="it has no snapshot"):
            choose(metadata, None, "2024-01-01")
        with pytest.raises(UsageError, match="The table has no snapshot"):
            choose(metadata, 5, None)


def test_contradictory_metadata_is_refused() -> None:
    with pytest.raises(ProtocolError, match="must list its current snapshot 20"):
        choose(_metadata(snapshots=[]), None, None)
    with pytest.raises(ProtocolError, match="must list its current schema 7"):
        choose(_metadata(**{"current-schema-id": 7}), None, None)
    with pytest.raises(ProtocolError, match="has the schema 9"):
        choose(_metadata(snapshots=[_snapshot(1, **{"schema-id": 9}), _snapshot(2)]), 10, None)


def test_metadata_of_version_1_has_one_schema_and_spec() -> None:
    field = {"source-id": 1, "name": "p", "transform": "identity"}
    metadata = _metadata(
        **{"format-version": 1, "schema": _schema(0, "x"), "schemas": None, "current-schema-id": None},
        **{"partition-spec": [field]},
    )

    assert metadata.current_schema["fields"][0]["name"] == "x"
    assert [one.name for one in metadata.specs[0].fields] == ["p"]


@pytest.mark.parametrize("version", [0, 4, 99])
def test_unknown_format_versions_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"version {version} of the Iceberg format"):
        check_metadata(_metadata(**{"format-version": version}))


def test_first_snapshot_since_a_time_is_found() -> None:
    first = first_since(_metadata(), "1970-01-01T00:00:01.5Z")

    assert first is not None
    assert first.snapshot_id == 20
    assert first_since(_metadata(), "2030-01-01") is None


NAMES = "schema.name-mapping.default"


def test_name_mapping_lists_a_field_under_each_of_its_names() -> None:
    text = '[{"names": ["a", "b"], "field-id": 1, "fields": [{"names": ["x"], "field-id": 2}]}, {"names": ["c"]}]'

    mapped = MappedField(1, {"x": MappedField(2, {})})
    assert name_mapping({}) is None
    assert name_mapping({NAMES: text}) == {"a": mapped, "b": mapped, "c": MappedField(None, {})}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "must have a list of fields in JSON"),
        ('[{"field-id": 1}]', "must have a list of fields in JSON"),
        ('[{"names": ["a"], "field-id": 1}, {"names": ["b", "a"], "field-id": 2}]', "found several for 'a'"),
        ('[{"names": ["a"], "fields": ' * 200 + "[]" + "}]" * 200, "nested at most 100 levels deep"),
        ("[" * 100_000, "must have a list of fields in JSON"),
    ],
)
def test_a_malformed_name_mapping_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        name_mapping({NAMES: text})


@pytest.mark.parametrize(("levels", "is_refused"), [(100, False), (101, True)])
def test_name_mapping_may_nest_as_deep_as_the_limit(levels: int, is_refused: bool) -> None:
    text = '[{"names": ["a"], "fields": ' * (levels - 1) + '[{"names": ["a"], "field-id": 7}]' + "}]" * (levels - 1)
    if is_refused:
        with pytest.raises(ProtocolError, match="nested at most 100 levels deep"):
            name_mapping({NAMES: text})
        return
    mapped = name_mapping({NAMES: text})
    for _ in range(levels - 1):
        assert mapped is not None
        mapped = mapped["a"].below
    assert mapped == {"a": MappedField(7, {})}


@pytest.mark.parametrize("version", [-1, "-1"])
def test_version_before_the_first_commit_has_no_snapshot(version: int | str) -> None:
    assert _chosen(_metadata(), version) == (None, 1)


def test_reference_may_be_named_like_a_version() -> None:
    metadata = _metadata(refs={"-1": {"snapshot-id": 10, "type": "tag"}})
    assert _chosen(metadata, "-1") == (10, 0)
    assert _chosen(metadata, -1) == (None, 1)


# --- schemas ---


def _parsed(*columns: dict[str, Any]) -> StructType:
    return parse_schema(schema_string({"type": "struct", "fields": list(columns)}))


def _column(kind: Any, **fields: Any) -> dict[str, Any]:
    return {"id": 5, "name": "c", "required": False, "type": kind, **fields}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("boolean", "boolean"), ("int", "integer"), ("long", "long"), ("float", "float"), ("double", "double"),
        ("date", "date"), ("timestamp", "timestamp_ntz"), ("timestamptz", "timestamp"), ("string", "string"),
        ("timestamp_ns", "timestamp_nanos_ntz"), ("timestamptz_ns", "timestamp_nanos"), ("binary", "binary"),
        ("fixed[16]", "binary"), ("fixed[ 3 ]", "binary"), ("unknown", "void"), ("variant", "variant"),
        ("geometry", "geometry"), ("geometry(srid:4326)", "geometry(srid:4326)"),
        ("geography ( OGC:CRS84 , karney)", "geography( OGC:CRS84 , karney)"),
    ],
)  # fmt: skip
def test_types_are_converted_to_delta_types(kind: str, expected: str) -> None:
    (column,) = _parsed(_column(kind)).fields

    assert column.type == PrimitiveType(expected)
    assert (column.field_id, column.nullable) == (5, True)


def test_decimals_and_comments_are_converted() -> None:
    (column,) = _parsed(_column("decimal( 9 , 2 )", required=True, doc="a price")).fields

    assert (column.type, column.nullable) == (DecimalType(9, 2), False)
    assert column.metadata["comment"] == "a price"


def test_nested_types_keep_their_ids_and_nullability() -> None:
    inner = {"type": "struct", "fields": [{"id": 9, "name": "x", "required": True, "type": "int"}]}
    kind = {"type": "map", "key-id": 6, "key": "string", "value-id": 7, "value-required": True,
            "value": {"type": "list", "element-id": 8, "element-required": False, "element": inner}}  # fmt: skip
    (column,) = _parsed(_column(kind)).fields

    assert isinstance(column.type, MapType)
    assert not column.type.value_contains_null
    assert column.type.value.contains_null  # type: ignore[union-attr] # it is an array
    assert column.type.value.element.fields[0].field_id == 9  # type: ignore[union-attr] # it is a struct


@pytest.mark.parametrize("kind", ["interval", "short", "byte", "decimal", "time(9)"])
def test_columns_of_unknown_types_are_omitted(kind: str) -> None:
    schema = _parsed(_column(kind), {"id": 6, "name": "d", "required": False, "type": "int"})

    assert schema.names == ["d"]
    assert schema.left_out[0].path == ("c",)
    assert kind in schema.left_out[0].type


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ({"name": "c", "type": "int"}, "a field id"),
        (_column("int", id=-1), "a field id"),
        (_column("int", id=2147483540), "a field id"),
        (_column("int", required="yes"), "true or false as 'required'"),
        ({"id": 1, "type": "int"}, "fields with a name and a type"),
        (_column(7), "a type: a name or an object"),
        (_column({"type": "tuple"}), "'struct', 'list' or 'map'"),
        (_column({"type": "struct"}), "a list of fields"),
        (_column("variant", **{"initial-default": 1}), "default value of column .* must be null"),
    ],
)
def test_malformed_schemas_are_refused(column: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        _parsed(column)


def test_deeply_nested_schemas_are_refused() -> None:
    kind: Any = "int"
    for _ in range(200):
        kind = {"type": "list", "element-id": 6, "element-required": False, "element": kind}

    with pytest.raises(ProtocolError, match="at most 100 levels deep"):
        _parsed(_column(kind))


def test_defaults_of_nested_types_are_refused() -> None:
    kind = {"type": "list", "element-id": 6, "element-required": False, "element": "int"}
    with pytest.raises(UnsupportedFeatureError, match="of a nested type has a default value"):
        _parsed(_column(kind, **{"initial-default": [1]}))
