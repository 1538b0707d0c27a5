"""Valid and invalid read requests."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from delta_sharing_client.plan.read_columns import ICEBERG_LINEAGE_FIELDS
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, as_of_now, version_number
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import Literal, col
from delta_sharing_client.predicates.values import Day
from tests.unit.storages import metadata, table_state


@pytest.mark.parametrize("name", ["limit", "version"])
@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), (0, 0), (7, 7), (np.int64(7), 7), (np.uint8(0), 0), (np.int32(2), 2)]
)
def test_numpy_integers_are_accepted_as_limit_and_version(name: str, value: Any, expected: int | None) -> None:
    count = getattr(ScanRequest(**{name: value}), name)
    assert count == expected
    assert type(count) is type(expected)


@pytest.mark.parametrize("name", ["limit", "version"])
@pytest.mark.parametrize("value", [-1, np.int64(-1), True, False, np.bool_(True), 1.0, "1", np.float64(2)])
def test_invalid_limit_or_version_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"^'{name}' must be an integer of 0 or more"):
        # Iceberg tables have the version -1.
        version_number(ScanRequest(**{name: value}).version) if name == "version" else ScanRequest(limit=value)


@pytest.mark.parametrize("name", ["starting_version", "ending_version", "limit"])
def test_versions_and_limit_of_a_feed_are_integers(name: str) -> None:
    request = ChangesRequest(**{"starting_version": 0, name: np.int64(3)})
    assert type(getattr(request, name)) is int
    with pytest.raises(UsageError, match=f"'{name}' must be"):
        ChangesRequest(**{"starting_version": 0, name: -1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of starting_version"),
        ({"starting_version": 0, "starting_timestamp": "2024-01-01"}, "exactly one of starting_version"),
        ({"ending_version": 1}, "exactly one of starting_version"),
        ({"starting_version": 0, "ending_version": 0, "ending_timestamp": "2024-01-01"}, "not both"),
        ({"starting_version": 2, "ending_version": 1}, "'ending_version' 1 is before 'starting_version' 2"),
    ],
)
def test_range_has_one_start_and_at_most_one_end_after_it(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ChangesRequest(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"starting_version": 0},
        {"starting_version": 0, "ending_version": 0},
        {"starting_version": 2, "ending_version": 2},
        {"starting_version": 2, "ending_version": 3},
        {"starting_timestamp": "2024-01-01", "ending_version": 1},
        {"starting_timestamp": "2024-01-01", "ending_timestamp": "2023-01-01"},
        {"starting_version": 4, "ending_timestamp": "2024-01-01"},
    ],
)
def test_valid_version_range_is_accepted_unchanged(arguments: Any) -> None:
    request = ChangesRequest(**arguments)
    assert {name: getattr(request, name) for name in arguments} == arguments


def test_a_snapshot_has_a_version_or_a_timestamp() -> None:
    with pytest.raises(UsageError, match="not both"):
        ScanRequest(version=0, timestamp="2024-01-01")
    assert ScanRequest(timestamp="2024-01-01").version is None


def test_added_columns_depend_on_the_request() -> None:
    def added(request: ScanRequest | ChangesRequest) -> list[str]:
        return [field.name for field in request.added_fields]

    assert added(ScanRequest()) == []
    assert added(ScanRequest(row_lineage=True)) == ["_row_id", "_row_commit_version"]
    iceberg_fields = ["_row_id", "_last_updated_sequence_number"]
    assert added(ScanRequest(row_lineage=True, lineage_fields=ICEBERG_LINEAGE_FIELDS)) == iceberg_fields
    assert added(ScanRequest(lineage_fields=ICEBERG_LINEAGE_FIELDS)) == []
    assert added(ChangesRequest(starting_version=0)) == ["_change_type", "_commit_version", "_commit_timestamp"]
    assert added(ChangesRequest(starting_version=0, of_view=True)) == ["_change_type", "_commit_timestamp"]


def test_names_and_filters_are_bound_to_the_schema() -> None:
    table = table_state(metadata(pa.schema([("Id", pa.int64()), ("s", pa.struct([("X", pa.int32())]))])))
    request = ScanRequest(columns=["ID", "s.x"], filter=col("iD") > 1, limit=3).bound(table.schema)
    assert (request.columns, str(request.filter), request.limit) == ((("Id",), ("s", "X")), "Id > 1", 3)
    changes = ChangesRequest(starting_version=4, columns=["_commit_version"], filter=col("_change_type") == "insert")
    assert changes.bound(table.schema).columns == (("_commit_version",),)
    for wrong in (ScanRequest(columns=["_commit_version"]), ScanRequest(filter=col("_row_id") == 1)):
        with pytest.raises(UsageError, match="not in the table"):
            wrong.bound(table.schema)


def test_error_of_an_invalid_schema_names_the_table() -> None:
    state = table_state(metadata("no schema"))
    with pytest.raises(ProtocolError) as caught:
        _ = state.schema
    assert caught.value.table == "share.schema.t"


def test_partition_columns_are_spelled_as_in_the_schema() -> None:
    state = table_state(metadata(pa.schema([("Id", pa.int64()), ("Day", pa.string())]), ["day"]))
    assert state.partition_columns == ("Day",)


@pytest.mark.parametrize(
    ("arguments", "is_refused"),
    [
        ({"columns": ["NEW"]}, True),
        ({"columns": [("s", "new")]}, True),
        ({"columns": ["s.new.below"]}, True),
        ({"columns": ["a"], "filter": col("new").is_null()}, True),
        ({"columns": ["a"]}, False),
        ({"columns": ["s"]}, False),
        ({"columns": ["newer", "s.newer"]}, False),
        ({"filter": col("newer") > 1}, False),
        ({}, False),
    ],
    ids=str,
)
def test_column_of_an_unknown_type_is_refused_if_selected(arguments: Any, is_refused: bool) -> None:
    def fields(*kinds: tuple[str, Any]) -> list[dict[str, Any]]:
        return [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds]

    columns = [("New", "fromTheFuture"), ("newer", "long")]
    nested = {"type": "struct", "fields": fields(*columns)}
    text = json.dumps({"type": "struct", "fields": fields(("a", "long"), *columns, ("s", nested))})
    schema = table_state(metadata(text)).schema
    if is_refused:
        with pytest.raises(UnsupportedFeatureError, match="fromTheFuture"):
            ScanRequest(**arguments).bound(schema)
    else:
        ScanRequest(**arguments).bound(schema)


@pytest.mark.parametrize(
    ("text", "is_refused"), [('a = "new"', True), ('a = "NEW"', True), ('a = "s.b"', False), ("a = 'new'", False)]
)
def test_double_quoted_name_of_a_left_out_column_is_refused(text: str, is_refused: bool) -> None:
    columns = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("a", "string"), ("new", "fromTheFuture"))
    ]
    schema = table_state(metadata(json.dumps({"type": "struct", "fields": columns}))).schema
    request = ScanRequest(filter=parse_filter(text))
    if is_refused:
        with pytest.raises(UsageError, match="name of a column, 'new', in double quotes"):
            request.bound(schema)
    else:
        request.bound(schema)


@pytest.mark.parametrize("text", ["v = 1", "v.value IS NULL", "NOT (s.V = 'x')", "length(v.metadata) > 1", "v <=> v"])
def test_condition_on_a_variant_is_refused_by_name(text: str) -> None:
    variant = {"name": "v", "type": "variant", "nullable": True, "metadata": {}}
    nested = {**variant, "name": "s", "type": {"type": "struct", "fields": [variant]}}
    schema = table_state(metadata(json.dumps({"type": "struct", "fields": [variant, nested]}))).schema
    with pytest.raises(UsageError, match=r"The column '(s\.V|v)' is a variant, which"):
        ScanRequest(filter=parse_filter(f"v IS NULL AND {text}")).bound(schema)
    assert (
        ScanRequest(filter=parse_filter("v IS NULL OR s.v IS NOT NULL OR s IS NULL")).bound(schema).filter is not None
    )


def test_current_date_is_fixed_for_the_whole_read() -> None:
    assert as_of_now(ScanRequest()) == ScanRequest()
    before, after = (datetime.datetime.now(datetime.timezone.utc).date() for _ in range(2))
    fixed = as_of_now(ScanRequest(filter=parse_filter("d = current_date()"))).filter
    assert fixed is not None
    today = fixed.right  # type: ignore[attr-defined]
    assert isinstance(today, Literal)
    assert isinstance(today.value, Day)
    days = [(date - datetime.date(1970, 1, 1)).days for date in (before, after)]
    assert days[0] <= today.value.days <= days[1] + 1
