"""Each kind of difference between two schemas is reported once, and equal schemas have no difference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delta_sharing_client.delta.actions import Metadata
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.delta.schema_changes import SchemaChangeKind, first_difference
from delta_sharing_client.delta.widening import holds


def column(name: str, kind: Any = "long", nullable: bool = True, physical: str | None = None) -> dict[str, Any]:
    metadata = {} if physical is None else {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": 1}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(columns)}


def array(element: Any, nulls: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": nulls}


def mapping(value: Any, nulls: bool = True) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": nulls}


def table(*columns: dict[str, Any], partitions: tuple[str, ...] = (), mapped: bool = False) -> Metadata:
    return Metadata(
        id="t",
        schema_string=json.dumps(struct(*columns)),
        partition_columns=list(partitions),
        configuration={"delta.columnMapping.mode": "name"} if mapped else {},
    )


A = column("a")
DIFFERENCES = [
    (SchemaChangeKind.GONE, table(A, column("b")), table(A), "column 'b' was dropped or renamed"),
    (SchemaChangeKind.RESPELLED, table(A), table(column("A")), "column 'a' is now spelled 'A'"),
    (SchemaChangeKind.ADDED, table(A), table(A, column("b")), "column 'b' was added"),
    (
        SchemaChangeKind.ADDED_NOT_NULL,
        table(A),
        table(A, column("b", nullable=False)),
        "column 'b' was added as NOT NULL",
    ),
    (SchemaChangeKind.NOT_NULL, table(A), table(column("a", nullable=False)), "column 'a' became NOT NULL"),
    (SchemaChangeKind.WIDENED, table(column("a", "integer")), table(A), "column 'a' was widened from integer to long"),
    (
        SchemaChangeKind.RETYPED,
        table(A),
        table(column("a", "integer")),
        "column 'a' changed its type from long to integer",
    ),
    (
        SchemaChangeKind.RETYPED,
        table(A),
        table(column("a", struct(A))),
        "column 'a' changed its type from long to struct",
    ),
    (
        SchemaChangeKind.REPARTITIONED,
        table(A),
        table(A, partitions=("a",)),
        "the partition columns changed from [] to ['a']",
    ),
    (
        SchemaChangeKind.ELEMENTS_NOT_NULL,
        table(column("a", array("long"))),
        table(column("a", array("long", False))),
        "the elements of column 'a' became NOT NULL",
    ),
    (
        SchemaChangeKind.VALUES_NOT_NULL,
        table(column("a", mapping("long"))),
        table(column("a", mapping("long", False))),
        "the values of column 'a' became NOT NULL",
    ),
    (
        SchemaChangeKind.DROPPED,
        table(column("a", physical="p"), mapped=True),
        table(column("b", physical="q"), mapped=True),
        "column 'a' was dropped",
    ),
    (
        SchemaChangeKind.REPLACED,
        table(column("a", physical="p"), mapped=True),
        table(column("a", physical="q"), mapped=True),
        "column 'a' was dropped, and another column with that name was added",
    ),
    (
        SchemaChangeKind.RENAMED,
        table(column("a", physical="p"), mapped=True),
        table(column("b", physical="p"), mapped=True),
        "column 'a' was renamed to 'b'",
    ),
    (
        SchemaChangeKind.GONE,
        table(column("s", array(mapping(struct(A, column("x")))))),
        table(column("s", array(mapping(struct(A))))),
        "column 's.element.value.x' was dropped or renamed",
    ),
]


@pytest.mark.parametrize(("kind", "old", "new", "message"), DIFFERENCES, ids=lambda value: getattr(value, "name", None))
def test_difference_is_reported_only_if_its_kind_is_requested(
    kind: SchemaChangeKind, old: Metadata, new: Metadata, message: str
) -> None:
    assert str(first_difference(old, new, {kind})) == message
    others = set(SchemaChangeKind) - {kind, SchemaChangeKind.ADDED}
    assert first_difference(old, new, others) is None
    assert first_difference(old, old, set(SchemaChangeKind)) is None
    assert first_difference(new, new, set(SchemaChangeKind)) is None


def test_every_kind_of_difference_is_tested() -> None:
    assert {kind for kind, *_ in DIFFERENCES} == set(SchemaChangeKind)


@pytest.mark.parametrize("modes", [(True, False), (False, True)])
def test_columns_are_compared_by_name_without_column_mapping(modes: tuple[bool, bool]) -> None:
    old, new = table(column("a", physical="p"), mapped=modes[0]), table(column("a", physical="q"), mapped=modes[1])
    assert first_difference(old, new, set(SchemaChangeKind)) is None


def test_partition_columns_may_differ_in_case() -> None:
    old, new = table(A, partitions=("a",)), table(column("A"), partitions=("A",))
    assert first_difference(old, new, {SchemaChangeKind.REPARTITIONED}) is None
    assert first_difference(new, old, {SchemaChangeKind.REPARTITIONED}) is None


def test_rename_does_not_hide_other_changes() -> None:
    old = table(column("a", "long", physical="p"), mapped=True)
    new = table(column("b", "integer", physical="p"), mapped=True)
    assert (
        str(first_difference(old, new, {SchemaChangeKind.RETYPED}))
        == "column 'a' changed its type from long to integer"
    )


RELAXED = [
    (column("a", nullable=False), column("a")),
    (column("a", array("long", nulls=False)), column("a", array("long"))),
    (column("a", mapping("long", nulls=False)), column("a", mapping("long"))),
    (column("a", array("long", nulls=False)), column("a", array("long", nulls=False))),
    (column("a", mapping("long", nulls=False)), column("a", mapping("long", nulls=False))),
]


@pytest.mark.parametrize(("old", "new"), RELAXED)
def test_not_null_column_may_become_nullable(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert first_difference(table(old), table(new), set(SchemaChangeKind)) is None


FORMS: dict[str, Any] = {
    "long": "long",
    "decimal(20,0)": "decimal(20,0)",
    "struct": struct(A),
    "array": array("long"),
    "map": mapping("long"),
}


@pytest.mark.parametrize("before", FORMS)
@pytest.mark.parametrize("after", FORMS)
def test_changed_type_is_reported_with_its_path(before: str, after: str) -> None:
    """The type of a column, field, element, value or key changes."""
    for parent, path in [
        (lambda inner: inner, "a"),
        (lambda inner: struct(column("x", inner)), "a.x"),
        (array, "a.element"),
        (mapping, "a.value"),
        (lambda inner: {**mapping("long"), "keyType": inner}, "a.key"),
    ]:
        old, new = (table(column("a", parent(FORMS[name]))) for name in (before, after))
        difference = first_difference(old, new, set(SchemaChangeKind))
        if before == after:
            assert difference is None
        else:
            verb = "was widened" if (before, after) == ("long", "decimal(20,0)") else "changed its type"
            assert str(difference) == f"column '{path}' {verb} from {before} to {after}"


# From the section "Supported Type Changes" of the protocol, without changes to decimals.
WIDER = {
    *(("byte", wide) for wide in ("short", "integer", "long", "double")),
    *(("short", wide) for wide in ("integer", "long", "double")),
    *(("integer", wide) for wide in ("long", "double")),
    ("float", "double"),
    ("date", "timestamp_ntz"),
}
PRIMITIVES = [
    *("byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"),
    *("string", "binary", "boolean"),
]


def parsed(*types: Any) -> list[Any]:
    return [
        field.type
        for field in parse_schema(json.dumps(struct(*(column(f"c{n}", t) for n, t in enumerate(types))))).fields
    ]


@pytest.mark.parametrize("old", PRIMITIVES)
def test_types_are_widened_according_to_the_protocol(old: str) -> None:
    held = {new for new in PRIMITIVES if holds(*parsed(new, old))}
    assert held == {old} | {wide for narrow, wide in WIDER if narrow == old}


@pytest.mark.parametrize(("old", "digits"), [("byte", 3), ("short", 5), ("integer", 10), ("long", 20)])
@pytest.mark.parametrize("scale", [0, 2])
def test_decimal_holds_integers_that_fit(old: str, digits: int, scale: int) -> None:
    exact, short = f"decimal({digits + scale},{scale})", f"decimal({digits + scale - 1},{scale})"
    assert holds(*parsed(exact, old))
    assert not holds(*parsed(short, old))
    assert not holds(*parsed(old, exact))


@pytest.mark.parametrize("new", [*PRIMITIVES, "decimal(5,2)", "variant", struct(A), array("long"), mapping("long")])
def test_void_may_become_any_type_but_no_type_becomes_void(new: Any) -> None:
    void, other = parsed("void", new)
    assert holds(other, void)
    assert not holds(void, other)
    assert holds(void, void)
    old, changed = table(column("a", "void")), table(column("a", new))
    shown = new if isinstance(new, str) else new["type"]
    assert str(first_difference(old, changed, set(SchemaChangeKind))) == f"column 'a' was widened from void to {shown}"
    assert (
        str(first_difference(changed, old, set(SchemaChangeKind)))
        == f"column 'a' changed its type from {shown} to void"
    )


@pytest.mark.parametrize(
    ("old", "new", "is_held"),
    [
        ("geography", "geography(OGC:CRS84, spherical)", True),
        ("geography(vincenty)", "geography(OGC:CRS84, VINCENTY)", True),
        ("geography(vincenty)", "geography(karney)", False),
        ("geography(EPSG:4326)", "geography", False),
        ("geometry(EPSG:3857)", "geometry(EPSG:4326)", False),
        ("geometry", "geography", False),
        ("geometry", "binary", False),
        ("binary", "geometry", False),
        ("varchar(5)", "string", True),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(11,4)", False),
    ],
)
def test_new_type_parameters_must_hold_all_old_values(old: str, new: str, is_held: bool) -> None:
    assert holds(*parsed(new, old)) is is_held


@pytest.mark.parametrize(
    "old", ["float", "double", "string", "date", "boolean", struct(A), array("long"), mapping("long")]
)
def test_only_integers_and_decimals_widen_to_decimals(old: Any) -> None:
    decimal, other = parsed("decimal(38,0)", old)
    assert not holds(decimal, other)
    assert not holds(other, decimal)
