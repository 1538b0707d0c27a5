from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.data_types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.delta.schema import (
    MAX_NESTING,
    from_arrow_schema,
    from_arrow_type,
    is_geometry,
    parse_schema,
    schema_to_json,
    to_arrow_schema,
    to_arrow_type,
)
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from tests.quota import meets, met

SIMPLE = [
    *("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date"),
    *("timestamp", "timestamp_ntz", "void", "variant", "char(5)", "varchar(9)", "string collate UNICODE"),
    *("interval day to second", "interval year", "interval year to month", "interval hour"),
]
names = st.text(min_size=1, max_size=8)
leaves: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from(SIMPLE).map(PrimitiveType),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s))),
)


def _structs(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    fields = st.builds(
        StructField,
        names,
        types,
        st.booleans(),
        st.dictionaries(st.text(max_size=5), st.one_of(st.integers(-5, 5), st.text(max_size=3), st.booleans())),
    )
    unique = st.lists(fields, max_size=4, unique_by=lambda field: field.name.lower())
    return unique.map(lambda items: StructType(tuple(items)))


types = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(ArrayType, inner, st.booleans()), st.builds(MapType, inner, inner, st.booleans()), _structs(inner)
    ),
    max_leaves=8,
)


def _schema(*fields: object) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def _field(name: str, type_: object, **extra: object) -> dict[str, object]:
    return {"name": name, "type": type_, "nullable": True, "metadata": {}, **extra}


@meets(nested=11, empty=1)
@given(_structs(types))
def test_schema_round_trips_through_json(schema: StructType) -> None:
    met("nested", any(isinstance(field.type, StructType) for field in schema.fields))
    met("empty", not schema.fields)
    text = schema_to_json(schema)
    assert parse_schema(text) == schema
    assert "\n" not in text
    assert pickle.loads(pickle.dumps(schema)) == schema


@meets(json=17, other=7)
@given(st.text(max_size=200) | st.recursive(st.none() | st.integers() | st.text(max_size=9), st.lists).map(json.dumps))
def test_text_that_is_not_a_schema_is_a_protocol_error(text: str) -> None:
    met("json" if text.startswith(("{", "[")) else "other")
    with pytest.raises(ProtocolError):
        parse_schema(text)


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ("decimal", DecimalType(10, 0)),
        ("decimal(38,38)", DecimalType(38, 38)),
        ("decimal( 5 , 2 )", DecimalType(5, 2)),
        ("null", PrimitiveType("void")),
        ({"type": "variant"}, PrimitiveType("variant")),
    ],
)
def test_other_spellings_of_a_type_are_read(spelled: object, expected: DataType) -> None:
    assert parse_schema(_schema(_field("c", spelled))).fields[0].type == expected


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("char(3)", "string"),
        ("string collate UTF8_LCASE", "string"),
        ("long", "long"),
        ("interval day", "day_time_interval"),
        ("interval month", "year_month_interval"),
    ],
)
def test_base_of_a_type_omits_its_parameters(name: str, base: str) -> None:
    assert PrimitiveType(name).base == base


@pytest.mark.parametrize(
    ("name", "base", "content"),
    [
        ("geometry", "geometry", {"crs": "OGC:CRS84", "crs_type": "authority_code"}),
        ("geometry(EPSG:4326)", "geometry", {"crs": "EPSG:4326", "crs_type": "authority_code"}),
        ("GEOMETRY( 3857 )", "geometry", {"crs": "EPSG:3857", "crs_type": "authority_code"}),
        ("geometry(ANY)", "geometry", {}),
        ("geometry(any)", "geometry", {}),
        ("geometry(EPSG:0)", "geometry", {}),
        ("geometry(srid:0)", "geometry", {}),
        ("geometry(SRID:3857)", "geometry", {"crs": "3857", "crs_type": "srid"}),
        ("geography(EPSG:4326)", "geography", {"crs": "EPSG:4326", "crs_type": "authority_code", "edges": "spherical"}),
        (
            "geography(OGC:CRS84, karney)",
            "geography",
            {"crs": "OGC:CRS84", "crs_type": "authority_code", "edges": "karney"},
        ),
        *(
            (name, "geography", {"crs": crs, "crs_type": "authority_code", "edges": edges})
            for name, crs, edges in [
                ("geography", "OGC:CRS84", "spherical"),
                ("geography(spherical)", "OGC:CRS84", "spherical"),
                ("geography(vincenty)", "OGC:CRS84", "vincenty"),
                ("geography( ViNcEnTy )", "OGC:CRS84", "vincenty"),
                ("geography(thomas)", "OGC:CRS84", "thomas"),
                ("geography(andoyer)", "OGC:CRS84", "andoyer"),
                ("geography(karney)", "OGC:CRS84", "karney"),
                ("geography( EPSG:3857 , vincenty  )", "EPSG:3857", "vincenty"),
                ("GEOGRAPHY(EPSG:4326,THOMAS)", "EPSG:4326", "thomas"),
                ("geography(4326)", "EPSG:4326", "spherical"),
                ("geography(karney:1)", "karney:1", "spherical"),
            ]
        ),
    ],
)
def test_geospatial_column_is_binary_with_geoarrow_metadata(name: str, base: str, content: dict[str, str]) -> None:
    schema = parse_schema(_schema(_field("id", "long"), _field("place", name)))
    assert schema.all_left_out == ()
    assert schema.fields[1].type == PrimitiveType(name)
    assert schema.fields[1].type.base == base
    field = to_arrow_schema(schema).field("place")
    assert field.type == pa.binary()
    assert field.metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"
    assert json.loads(field.metadata[b"ARROW:extension:metadata"]) == content
    nested = to_arrow_type(ArrayType(PrimitiveType(name)))
    assert nested.value_field.metadata == field.metadata
    assert is_geometry(field)
    assert is_geometry(nested.value_field)
    assert is_geometry(to_arrow_type(MapType(PrimitiveType("long"), PrimitiveType(name))).item_field)
    assert not is_geometry(to_arrow_schema(schema).field("id"))
    assert not is_geometry(pa.field("a", pa.binary(), metadata={"ARROW:extension:name": "geoarrow.point"}))


@pytest.mark.parametrize(
    "name",
    [
        *("bigint", "time(6)", "udt", "char", "", "day_time_interval", "year_month_interval"),
        *("interval", "interval second to day", "interval day to day", "interval day of hour", "interval day to"),
        *("period day", "period day to hour", "interval year to day", "interval day to year", "interval week"),
        *("geography(EPSG:4326, euclidean)", "geography(EPSG:4326,)", "geography(, karney)", "geography()"),
        *("geography(EPSG:4326, karney, thomas)", "geography(karney, EPSG:4326)", "geography(karney)x"),
    ],
)
def test_only_the_column_of_an_unknown_type_is_left_out(name: str) -> None:
    nested = {"type": "struct", "fields": [_field("inner", name), _field("other", "long")]}
    alone = {"type": "array", "elementType": {"type": "struct", "fields": [_field("inner", name)]}}
    schema = parse_schema(_schema(_field("outer", nested), _field("alone", alone), _field("a", "long")))
    assert schema.names == ["outer", "a"]
    assert schema.fields[0].type == StructType((StructField("other", PrimitiveType("long")),), schema.all_left_out[1:])
    assert [item.path for item in schema.all_left_out] == [("alone",), ("outer", "inner")]
    assert "'outer.inner'" in schema.all_left_out[1].reason
    assert schema.all_left_out[1].feature == name
    if name:
        assert schema.all_left_out[0].feature == name


@pytest.mark.parametrize(("first", "second"), [("a", "a"), ("Name", "nAME"), ("É", "é")])
def test_column_names_are_unique_regardless_of_case(first: str, second: str) -> None:
    with pytest.raises(ProtocolError, match="unique"):
        parse_schema(_schema(_field(first, "long"), _field(second, "long")))
    inner = {"type": "struct", "fields": [_field(first, "long"), _field(second, "long")]}
    with pytest.raises(ProtocolError, match="unique"):
        parse_schema(_schema(_field("outer", {"type": "array", "elementType": inner, "containsNull": True})))


@pytest.mark.parametrize("depth", [150, 5_000, 200_000])
def test_deeply_nested_schema_is_refused_without_recursion_error(depth: int) -> None:
    deep = '{"type":"array","containsNull":true,"elementType":' * depth + '"long"' + "}" * depth
    text = '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":' + deep + "}]}"
    with pytest.raises(ProtocolError, match="deep"):
        parse_schema(text)


@pytest.mark.parametrize(
    "field",
    [
        {"type": "long"},
        {"name": 1, "type": "long"},
        {"name": "a"},
        _field("a", 5),
        _field("a", {"type": "array"}),
        _field("a", {"type": "struct", "fields": {}}),
        _field("a", "long", nullable="yes"),
        _field("a", "long", metadata=[]),
        _field("a", {"type": "array", "elementType": "long", "containsNull": 1}),
        *(_field("a", f"decimal({digits})") for digits in ("39,0", "0,0", "5,6", "5,-1")),
        "a",
    ],
)
def test_invalid_field_is_refused(field: object) -> None:
    with pytest.raises(ProtocolError):
        parse_schema(_schema(field))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"type":"struct"}', "The table's schema must have a list of fields, because it is a struct, found None."),
        (_schema(5), "The table's schema must have fields with a name and a type each, found 5."),
        (
            _schema(_field("a", {"type": "struct", "fields": [{"name": "b"}]})),
            "Column 'a' must have fields with a name and a type each, found {'name': 'b'}.",
        ),
        (
            _schema(_field("a", {"type": "array", "elementType": ["x" * 76]})),
            f"Column 'a.element' must have a type (a name, or an object with a type), found ['{'x' * 76}'].",
        ),
        (
            _schema(_field("a", {"type": "map", "keyType": "long", "valueType": 5})),
            "Column 'a.value' must have a type (a name, or an object with a type), found 5.",
        ),
        (
            _schema(_field("a", {"type": "map", "keyType": ["x" * 77], "valueType": "long"})),
            f"Column 'a.key' must have a type (a name, or an object with a type), found ['{'x' * 75}....",
        ),
    ],
)
def test_schema_error_names_the_column_and_its_type(text: str, message: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_schema(text)
    assert caught.value.message == message


def test_columns_are_found_regardless_of_case() -> None:
    schema = parse_schema(_schema(_field("Alpha", "long"), _field("beta", "string")))
    assert schema.find("ALPHA") is schema.fields[0]
    assert schema.find("gamma") is None
    assert schema.names == ["Alpha", "beta"]
    assert [field.name for field in schema] == schema.names
    assert len(schema) == 2


def test_column_metadata_has_physical_name_and_id() -> None:
    metadata = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 7, "comment": "x"}
    field = parse_schema(_schema(_field("a", "long", metadata=metadata), _field("b", "long"))).fields
    assert (field[0].physical_name, field[0].field_id, field[0].metadata["comment"]) == ("col-1", 7, "x")
    assert (field[1].physical_name, field[1].field_id) == ("b", None)


@pytest.mark.parametrize(
    ("type_", "metadata", "expected"),
    [
        ("string", {"__COLLATIONS": {"c": "spark.UTF8_LCASE"}}, "spark.UTF8_LCASE"),
        ("string", {"__COLLATIONS": {"c": "spark.UTF8_BINARY"}}, None),
        ("string collate UNICODE_CI", {}, "UNICODE_CI"),
        ("string", {}, None),
    ],
)
def test_collation_of_a_column_is_parsed(type_: str, metadata: dict[str, object], expected: str | None) -> None:
    assert parse_schema(_schema(_field("c", type_, metadata=metadata))).fields[0].collation == expected


# === Arrow types ===

# pyarrow has string views since 16.
NEWEST_TEXT = getattr(pa, "string_view", pa.large_string)()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("string", pa.string()),
        ("char(4)", pa.string()),
        ("string collate UNICODE", pa.string()),
        ("long", pa.int64()),
        ("integer", pa.int32()),
        ("short", pa.int16()),
        ("byte", pa.int8()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("boolean", pa.bool_()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("timestamp_nanos", pa.timestamp("ns", "UTC")),
        ("timestamp_nanos_ntz", pa.timestamp("ns")),
        ("variant", pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])),
        ("void", pa.null()),
        ("interval day to second", pa.duration("us")),
        ("interval year to month", pa.int32()),
    ],
)
def test_each_primitive_has_its_arrow_type(name: str, expected: pa.DataType) -> None:
    assert to_arrow_type(PrimitiveType(name)) == expected


def test_void_is_always_nullable_in_arrow() -> None:
    """Arrow's null type is nullable. A read refuses void columns that are not nullable."""
    void = PrimitiveType("void")
    arrow = to_arrow_schema(
        StructType(
            (
                StructField("v", void, nullable=False),
                StructField("l", ArrayType(void, contains_null=False)),
                StructField("m", MapType(PrimitiveType("string"), void, value_contains_null=False)),
                StructField("s", StructType((StructField("v", void, nullable=False),)), nullable=False),
            )
        )
    )
    assert arrow == pa.schema(
        [
            pa.field("v", pa.null()),
            pa.field("l", pa.list_(pa.field("element", pa.null()))),
            pa.field("m", pa.map_(pa.string(), pa.null())),
            pa.field("s", pa.struct([pa.field("v", pa.null())]), nullable=False),
        ]
    )
    with pytest.raises(UnsupportedFeatureError, match="keys of type void") as refused:
        to_arrow_type(MapType(void, PrimitiveType("string")))
    assert refused.value.feature == "void as the type of keys"


def test_nesting_and_nullability_round_trip_through_arrow() -> None:
    schema = StructType(
        (
            StructField("id", PrimitiveType("long"), nullable=False),
            StructField("d", DecimalType(38, 18)),
            StructField("list", ArrayType(PrimitiveType("string"), contains_null=False)),
            StructField("map", MapType(PrimitiveType("integer"), ArrayType(PrimitiveType("date")), False)),
            StructField("s", StructType((StructField("x", PrimitiveType("timestamp_ntz"), nullable=False),))),
        )
    )
    arrow = to_arrow_schema(schema)
    assert not arrow.field("id").nullable
    assert not arrow.field("list").type.value_field.nullable
    assert not arrow.field("map").type.item_field.nullable
    assert arrow.field("list").type.value_field.name == "element"
    assert (arrow.field("map").type.key_field.name, arrow.field("map").type.item_field.name) == ("key", "value")
    assert from_arrow_schema(arrow) == schema


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.uint8(), PrimitiveType("short")),
        (pa.uint32(), PrimitiveType("long")),
        (pa.uint64(), DecimalType(20, 0)),
        (pa.large_string(), PrimitiveType("string")),
        (NEWEST_TEXT, PrimitiveType("string")),
        (pa.binary(4), PrimitiveType("binary")),
        (pa.dictionary(pa.int8(), pa.string()), PrimitiveType("string")),
        (pa.timestamp("ns", tz="Asia/Tokyo"), PrimitiveType("timestamp")),
        (pa.timestamp("ms"), PrimitiveType("timestamp_ntz")),
        (pa.large_list(pa.int8()), ArrayType(PrimitiveType("byte"), True)),
        (pa.decimal256(20, 2), DecimalType(20, 2)),
        (pa.duration("s"), PrimitiveType("interval day to second")),
    ],
)
def test_other_arrow_types_become_the_nearest_delta_types(arrow: pa.DataType, expected: object) -> None:
    assert from_arrow_type(arrow) == expected


@pytest.mark.parametrize("arrow", [pa.time64("us"), pa.decimal256(50, 2), pa.month_day_nano_interval()])
def test_arrow_type_without_a_delta_type_is_refused(arrow: pa.DataType) -> None:
    with pytest.raises(UsageError, match="Arrow type"):
        from_arrow_type(arrow)


@pytest.mark.parametrize("kind", ["struct", "array", "map"])
def test_types_nest_at_most_100_levels(kind: str) -> None:
    def nested(levels: int) -> str:
        node: object = "long"
        for _ in range(levels):
            node = {
                "struct": {"type": "struct", "fields": [{"name": "a", "type": node, "nullable": True, "metadata": {}}]},
                "array": {"type": "array", "elementType": node, "containsNull": True},
                "map": {"type": "map", "keyType": "string", "valueType": node, "valueContainsNull": True},
            }[kind]
        column = {"name": "a", "type": node, "nullable": True, "metadata": {}}
        return json.dumps({"type": "struct", "fields": [column]})

    assert parse_schema(nested(99)).names == ["a"]
    with pytest.raises(ProtocolError, match="at most 100 levels deep"):
        parse_schema(nested(100))


# From Spark's ``df.schema.json()``: a column of ``pyspark.ml.linalg.Vectors``.
VECTOR = {
    "type": "udt",
    "class": "org.apache.spark.ml.linalg.VectorUDT",
    "pyClass": "pyspark.ml.linalg.VectorUDT",
    "sqlType": {
        "type": "struct",
        "fields": [
            {"name": "type", "type": "byte", "nullable": False, "metadata": {}},
            {"name": "size", "type": "integer", "nullable": True, "metadata": {}},
            {
                "name": "indices",
                "type": {"type": "array", "elementType": "integer", "containsNull": False},
                "nullable": True,
                "metadata": {},
            },
        ],
    },
}


def test_user_defined_type_is_read_as_its_sql_type() -> None:
    plain = {"type": "udt", "pyClass": "module.Class", "serializedClass": "...", "sqlType": "double"}
    schema = parse_schema(
        _schema(
            _field("v", VECTOR),
            _field("p", plain),
            _field("a", {"type": "array", "elementType": plain, "containsNull": True}),
            _field("m", {"type": "map", "keyType": "string", "valueType": VECTOR, "valueContainsNull": False}),
            _field("s", {"type": "struct", "fields": [_field("v", {**plain, "sqlType": plain})]}),
        )
    )
    assert not schema.all_left_out
    vector = pa.struct(
        [
            pa.field("type", pa.int8(), False),
            pa.field("size", pa.int32()),
            pa.field("indices", pa.list_(pa.field("element", pa.int32(), False))),
        ]
    )
    assert to_arrow_schema(schema).types == [
        vector,
        pa.float64(),
        pa.list_(pa.float64()),
        pa.map_(pa.string(), pa.field("value", vector, False)),
        pa.struct([("v", pa.float64())]),
    ]


@pytest.mark.parametrize("sql_type", [None, 7, {}, {"fields": []}])
def test_user_defined_type_needs_a_sql_type(sql_type: object) -> None:
    with pytest.raises(ProtocolError, match="Column 'v' must have a type"):
        parse_schema(_schema(_field("v", {**VECTOR, "sqlType": sql_type})))
    unknown = parse_schema(_schema(_field("v", {**VECTOR, "sqlType": "bigint"}), _field("a", "long")))
    assert [item.path for item in unknown.all_left_out] == [("v",)]


def test_nesting_of_user_defined_types_is_limited() -> None:
    node: object = "long"
    for _ in range(MAX_NESTING + 1):
        node = {"type": "udt", "sqlType": node}
    with pytest.raises(ProtocolError, match="nest types at most"):
        parse_schema(_schema(_field("v", node)))
