"""Avro files that follow the specification are read, and damaged ones are an error."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from delta_sharing_client.errors import DataError
from delta_sharing_client.iceberg import avro
from delta_sharing_client.iceberg.avro import NamedField, read_avro
from mock_server.iceberg_avro import (
    MANIFEST_LIST_SCHEMA,
    SYNC,
    avro_block,
    avro_file,
    encode,
    manifest_schema,
)
from tests.quota import meets, met

CODECS = ["null", "deflate", "zstandard", "snappy"]
_LONGS = st.integers(-(2**63), 2**63 - 1)


def _record(*fields: tuple[int, Any]) -> dict[str, Any]:
    listed = [{"name": f"f{field_id}", "type": kind, "field-id": field_id} for field_id, kind in fields]
    return {"type": "record", "name": "r", "fields": listed}


ENTRY = {
    "status": 1,
    "sequence_number": None,
    "data_file": {
        "content": 0,
        "file_path": "s3://bucket/ä.parquet",
        "file_format": "PARQUET",
        "partition": {},
        "record_count": 7,
        "file_size_in_bytes": 100,
        "column_sizes": {1: 10, 2: 2**40},
        "lower_bounds": {1: b"\0\1", 300: b""},
        "split_offsets": [4, 2**33],
    },
}


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_read_by_field_id(codec: str) -> None:
    data = avro_file(manifest_schema(), [ENTRY] * 250, {"content": "data"}, codec=codec)

    opened = read_avro(data, "m.avro")
    records = list(opened.records)

    assert opened.properties["content"] == b"data"
    assert len(records) == 250
    assert records[0]["0"] == 1
    assert records[0]["3"] is None
    file = records[249]["2"]
    assert file["100"] == "s3://bucket/ä.parquet"
    assert file["108"] == {1: 10, 2: 2**40}
    assert file["125"] == {1: b"\0\1", 300: b""}
    assert file["132"] == [4, 2**33]
    assert file["142"] is None


def test_fields_without_an_id_are_skipped() -> None:
    data = avro_file(manifest_schema(), [ENTRY] * 3)

    records = list(read_avro(data, "m.avro", (108, 125, 132, 3)).records)

    assert all({"108", "125", "132"}.isdisjoint(record["2"]) and "3" not in record for record in records)
    assert records[2]["2"]["104"] == 100


@pytest.mark.parametrize("keys", [(), (1,), (300,), (1, 2, 300), (2**40,)])
@pytest.mark.parametrize("without", [(), (3, 108)])
def test_only_the_requested_keys_of_maps_are_read(keys: tuple[int, ...], without: tuple[int, ...]) -> None:
    data = avro_file(manifest_schema(), [ENTRY] * 3)
    whole = list(read_avro(data, "m.avro", without).records)

    records = list(read_avro(data, "m.avro", without, keys).records)

    assert len(records) == 3
    for record, complete in zip(records, whole, strict=True):
        chosen = {
            name: {key: item for key, item in value.items() if key in keys} if isinstance(value, dict) else value
            for name, value in complete["2"].items()
            if name != "102"
        }
        assert record == {**complete, "2": {**chosen, "102": complete["2"]["102"]}}


@pytest.mark.parametrize("size", [-1, 42, 63, 200, 2**40])
def test_skipped_value_with_an_impossible_length_is_refused(size: int) -> None:
    items = _record((7, "int"), (8, "bytes"))
    schema = _record((1, {"type": "array", "logicalType": "map", "items": items}))
    body = encode("long", 1) + encode("int", 7) + encode("long", size) + b"x" * 40 + encode("long", 0)
    data = avro_file(schema, [], codec="null") + avro_block(1, body, "null")

    for keys in (None, (), (7,)):
        with pytest.raises(DataError, match="damaged"):
            list(read_avro(data, "x", (), keys).records)


@meets(several=20)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "f1": _LONGS,
                "f2": st.none() | st.text(),
                "f3": st.floats(allow_nan=False),
                "f4": st.booleans(),
                "f5": st.lists(st.binary(max_size=9), max_size=5),
                "f6": st.dictionaries(st.integers(-(2**31), 2**31 - 1), _LONGS, max_size=5),
            }
        ),
        max_size=8,
    )
)
def test_values_of_every_type_round_trip(rows: list[dict[str, Any]]) -> None:
    pair = {"type": "record", "name": "kv", "fields": [
        {"name": "key", "type": "int", "field-id": 7}, {"name": "value", "type": "long", "field-id": 8},
    ]}  # fmt: skip
    schema = _record(
        (1, "long"), (2, ["null", "string"]), (3, "double"), (4, "boolean"),
        (5, {"type": "array", "items": "bytes"}), (6, {"type": "array", "logicalType": "map", "items": pair}),
    )  # fmt: skip

    found = list(read_avro(avro_file(schema, rows), "x").records)

    met("several", len(rows) > 1)
    assert found == [{name[1:]: value for name, value in row.items()} for row in rows]


def _outcome(data: bytes) -> list[Any] | DataError:
    try:
        return list(read_avro(data, "m.avro").records)
    except DataError as error:
        return error


@meets(refused=80)
@given(st.data())
def test_a_file_that_ends_early_is_refused(data: st.DataObject) -> None:
    whole = avro_file(manifest_schema(), [ENTRY] * 5, codec=data.draw(st.sampled_from(CODECS)), rows_in_block=2)
    cut = data.draw(st.integers(0, len(whole) - 1))

    found = _outcome(whole[:cut])

    if isinstance(found, DataError):
        met("refused")
        assert "m.avro" in str(found)
    else:
        # A file cut after a whole block is valid Avro; the counts in the manifest list reveal the missing records.
        assert len(found) in (0, 2, 4)
        assert whole[cut - 16 : cut] == SYNC


@meets(refused=50)
@given(st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(avro_file(manifest_schema(), [ENTRY] * 5, codec=data.draw(st.sampled_from(CODECS))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))

    found = _outcome(bytes(whole))

    if isinstance(found, DataError):
        met("refused")
        assert "m.avro" in str(found)
    else:
        assert len(found) <= len(whole)


@pytest.mark.parametrize("codec", CODECS)
def test_excessive_expansion_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MOST_BYTES", 1000)
    schema = _record((1, "string"))
    fits = avro_file(schema, [{"f1": "x" * 300}] * 3, codec=codec)
    bomb = avro_file(schema, [{"f1": "x" * 300}] * 4, codec=codec)

    assert len(list(read_avro(fits, "x").records)) == 3
    with pytest.raises(DataError, match="more than 1000 bytes"):
        list(read_avro(bomb, "x").records)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ({"type": "array", "items": "null"}, "items that take no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}, "items that take no bytes"),
        ({"type": "array", "items": {"type": "record", "name": "e", "fields": []}}, "items that take no bytes"),
        ({"type": "map", "values": "null"}, "items that take no bytes"),
        ("r", "names the type 'r'"),
        (["null", "r"], "names the type 'r'"),
        (["int", "string", "null"], "a union"),
        ({"type": "fixed", "name": "f"}, "without a size"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "names the type 'enum'"),
        (7, "neither a name nor an object"),
    ],
)
def test_schemas_that_iceberg_does_not_use_are_refused(kind: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read_avro(avro_file(_record((1, kind)), []), "x")


def test_deeply_nested_schemas_are_refused() -> None:
    kind: Any = "int"
    for depth in range(200):
        kind = _record((depth, kind))

    with pytest.raises(DataError, match="nests types too deeply"):
        read_avro(avro_file(kind, []), "x")


@pytest.mark.parametrize(("levels", "is_refused"), [(avro._MOST_NESTING, False), (avro._MOST_NESTING + 1, True)])
def test_schema_may_nest_as_deep_as_the_limit(levels: int, is_refused: bool) -> None:
    kind: Any = "int"
    value: Any = 7
    for depth in range(levels):
        kind = _record((depth, kind))
        value = {f"f{depth}": value}
    data = avro_file(kind, [value])
    if is_refused:
        with pytest.raises(DataError, match="nests types too deeply"):
            read_avro(data, "x")
        return
    (record,) = read_avro(data, "x").records
    for depth in reversed(range(levels)):
        record = record[str(depth)]
    assert record == 7  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("kind", ["bytes", "string"])
def test_value_longer_than_its_block_is_refused(kind: str) -> None:
    schema = _record((1, kind))
    start = avro_file(schema, [], codec="null")
    whole = encode(schema, {"f1": b"abc" if kind == "bytes" else "abc"})
    (record,) = read_avro(start + avro_block(1, whole, "null"), "x").records
    assert record == {"1": b"abc" if kind == "bytes" else "abc"}
    with pytest.raises(DataError, match="a record ends early"):
        list(read_avro(start + avro_block(1, whole[:-1], "null"), "x").records)


def test_fields_need_unique_ids() -> None:
    schema = _record((1, "int"), (1, "int"))
    with pytest.raises(DataError, match="two fields of the same 'field-id'"):
        read_avro(avro_file(schema, []), "x")
    del schema["fields"][0]["field-id"]
    with pytest.raises(DataError, match="without 'field-id'"):
        read_avro(avro_file(schema, []), "x")


def _without_ids(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_ids(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _without_ids(value) for name, value in schema.items() if name != "field-id"}


@pytest.mark.parametrize("names", ["all", "not f2", "not f5"])
def test_fields_without_ids_have_the_ids_of_their_names(names: str) -> None:
    """Records inside records, arrays, maps and unions, as in manifest lists and manifests."""
    inner = _record((5, ["null", "long"]))
    pair = {"type": "record", "name": "kv", "fields": [
        {"name": "key", "type": "int", "field-id": 7}, {"name": "value", "type": "long", "field-id": 8},
    ]}  # fmt: skip
    schema = _record(
        (1, "long"), (2, {**inner, "name": "plain"}), (3, ["null", {"type": "array", "items": inner}]),
        (4, {"type": "array", "logicalType": "map", "items": pair}), (6, {"type": "array", "items": "int"}),
    )  # fmt: skip
    row = {"f1": 9, "f2": {"f5": 8}, "f3": [{"f5": 7}, {"f5": None}], "f4": {1: 2}, "f6": [3]}
    below = {} if names == "not f5" else {"f5": NamedField(5)}
    given = {"f1": NamedField(1), "f2": NamedField(2, below), "f3": NamedField(3, below), "f4": NamedField(4)}
    given["f6"] = NamedField(6)
    if names == "not f2":
        del given["f2"]

    [found] = read_avro(avro_file(_without_ids(schema), [row]), "x", names=lambda _: given).records

    inside: list[dict[str, object]] = [{}, {}, {}] if names == "not f5" else [{"5": 8}, {"5": 7}, {"5": None}]
    expected = {"1": 9, "2": inside[0], "3": inside[1:], "4": {1: 2}, "6": [3]}
    if names == "not f2":
        del expected["2"]
    assert found == expected
    # An id in the file counts, whatever the name.
    [stated] = read_avro(avro_file(schema, [row]), "x", names=lambda _: {"f1": NamedField(77)}).records
    assert stated == {"1": 9, "2": {"5": 8}, "3": [{"5": 7}, {"5": None}], "4": {1: 2}, "6": [3]}


def test_wrong_record_count_or_block_marker_is_refused() -> None:
    schema = _record((1, "long"))
    start = avro_file(schema, [], codec="null")
    row = encode(schema, {"f1": 5})

    with pytest.raises(DataError, match="a record ends early"):
        list(read_avro(start + avro_block(2, row, "null"), "x").records)
    with pytest.raises(DataError, match="but its records end at byte 1"):
        list(read_avro(start + avro_block(1, row * 2, "null"), "x").records)
    with pytest.raises(DataError, match="does not end with the file's sync marker"):
        list(read_avro(start + avro_block(1, row, "null")[:-1] + b"?", "x").records)


def test_array_with_a_huge_count_is_refused() -> None:
    schema = _record((1, {"type": "array", "items": "int"}))
    start = avro_file(schema, [], codec="null")
    body = avro_block(1, encode("long", 2**40), "null")

    with pytest.raises(DataError, match="a record ends early"):
        list(read_avro(start + body, "x").records)


def test_array_blocks_with_byte_sizes_are_read() -> None:
    schema = _record((1, {"type": "array", "items": "int"}))
    items = encode("int", 5) + encode("int", 6)
    body = encode("long", -2) + encode("long", len(items)) + items + encode("long", 0)

    records = list(read_avro(avro_file(schema, [], codec="null") + avro_block(1, body, "null"), "x").records)

    assert records == [{"1": [5, 6]}]


def test_file_continues_after_an_empty_block() -> None:
    schema = _record((1, "int"))
    data = avro_file(schema, [], codec="null") + avro_block(0, b"", "null")
    data += avro_block(1, encode(schema, {"f1": 3}), "null")

    assert list(read_avro(data, "x").records) == [{"1": 3}]


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(DataError, match="its codec 'xz' is not one of"):
        read_avro(avro_file(_record((1, "int")), [], codec="xz"), "x")


def test_wrong_snappy_checksum_is_refused() -> None:
    schema = _record((1, "string"))
    data = avro_file(schema, [{"f1": "abc"}], codec="snappy")
    stored = struct.pack(">I", zlib.crc32(encode(schema, {"f1": "abc"})))
    assert stored in data

    with pytest.raises(DataError, match="cannot be decompressed"):
        list(read_avro(data.replace(stored, b"\0\0\0\0"), "x").records)


def test_manifest_list_is_read() -> None:
    summaries = [{"contains_null": True, "contains_nan": None, "lower_bound": b"a", "upper_bound": b"z"}]
    entry = {"manifest_path": "p", "manifest_length": 3, "partition_spec_id": 0, "content": 1, "sequence_number": 5,
             "min_sequence_number": 0, "added_snapshot_id": 9, "partitions": summaries}  # fmt: skip

    (records,) = read_avro(avro_file(MANIFEST_LIST_SCHEMA, [entry]), "x").records

    assert records["507"] == [{"509": True, "518": None, "510": b"a", "511": b"z"}]
    assert (records["500"], records["517"], records["515"], records["520"]) == ("p", 1, 5, None)
