"""Manifest lists and manifests: inherited values, the deletes of a file, and contradictory metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.errors import DataError, UnsupportedFeatureError
from delta_sharing_client.iceberg.deletes import NO_DELETES, DeleteIndex, partition_key
from delta_sharing_client.iceberg.manifests import Content, File, Manifest, read_manifest, read_manifest_list
from delta_sharing_client.iceberg.metadata import PartitionField, PartitionSpec
from delta_sharing_client.iceberg.partition_types import PartitionTypes, Undecoded
from delta_sharing_client.iceberg.positions import read_positions, union
from mock_server.iceberg_avro import MANIFEST_LIST_SCHEMA, avro_file, manifest_schema
from tests.iceberg.hand_made import HandMade

PARTITIONS = PartitionTypes({0: PartitionSpec(0, []), 1: PartitionSpec(1, [])}, {})
COLUMNS = [{"id": 1, "name": "a", "required": False, "type": "long"}]


def _file(number: int, records: int = 10, **fields: Any) -> dict[str, Any]:
    return {
        "content": 0,
        "file_path": f"s3://b/{number}.parquet",
        "file_format": "PARQUET",
        "partition": {},
        "record_count": records,
        "file_size_in_bytes": 100,
        **fields,
    }


@pytest.fixture
def made(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "t", COLUMNS)


def _read(made: HandMade, files: list[dict[str, Any]], **fields: Any) -> list[File]:
    entry = {"sequence_number": 7, "min_sequence_number": 0, **made.manifest(files, **fields)}
    (manifest,) = read_manifest_list(avro_file(MANIFEST_LIST_SCHEMA, [entry]), "list.avro")
    data = Path(manifest.path.removeprefix("file://")).read_bytes()
    return list(read_manifest(data, manifest, statistics=range(1, 10), partitions=PARTITIONS))


def test_added_files_inherit_the_sequence_number(made: HandMade) -> None:
    files = _read(made, [_file(1), _file(2, sequence_number=3), _file(3, status=0, sequence_number=2)])

    assert [file.sequence_number for file in files] == [7, 3, 2]


def test_existing_file_without_a_sequence_number_is_refused(made: HandMade) -> None:
    with pytest.raises(DataError, match="an existing file has no sequence number"):
        _read(made, [_file(1, status=0)])
    # Files of format version 1 have no sequence number; they are older than any delete.
    assert [file.sequence_number for file in _read(made, [_file(1, status=0)], sequence_number=0)] == [0]


def test_deleted_entries_are_left_out(made: HandMade) -> None:
    files = _read(made, [_file(1), _file(2, status=2, sequence_number=1), _file(3)])

    assert [file.path for file in files] == ["s3://b/1.parquet", "s3://b/3.parquet"]


def test_first_row_ids_are_those_of_the_specifications_example(made: HandMade) -> None:
    # These are the values of the "Row lineage example" in the specification.
    files = [
        _file(1, 25, status=0, sequence_number=1, first_row_id=800),
        _file(2, 50),
        _file(3, 50),
    ]

    assert [file.first_row_id for file in _read(made, files, first_row_id=1000)] == [800, 1000, 1050]


def test_existing_files_without_a_first_row_id_inherit_one(made: HandMade) -> None:
    files = [
        _file(1, 5, status=2, sequence_number=1),
        _file(2, 10, status=0, sequence_number=1),
        _file(3, 7, first_row_id=3),
        _file(4, 20),
    ]

    assert [file.first_row_id for file in _read(made, files, first_row_id=100)] == [100, 3, 110]


def test_files_have_no_row_ids_if_the_manifest_has_none(made: HandMade) -> None:
    assert [file.first_row_id for file in _read(made, [_file(1), _file(2, first_row_id=5)])] == [None, None]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"added_files_count": 3}, "states 3 added files, but the file has 2"),
        ({"existing_files_count": 1}, "states 1 existing files, but the file has 0"),
        ({"manifest_length": 10**6}, "states 1000000 bytes, but the file has"),
        ({"content": 1}, "its header does not state that it lists files"),
    ],
)
def test_contradictory_manifest_lists_are_refused(made: HandMade, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        _read(made, [_file(1), _file(2)], **fields)
    assert ".avro" in str(caught.value)


def test_file_counts_of_a_manifest_may_be_missing(made: HandMade) -> None:
    assert len(_read(made, [_file(1)], added_files_count=None, existing_files_count=None)) == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"record_count": -1}, "does not have the form that Iceberg defines"),
        ({"file_size_in_bytes": -5}, "does not have the form that Iceberg defines"),
        ({"content": 9}, "does not have the form that Iceberg defines"),
        ({"content": 1}, "files of the content POSITION_DELETES"),
    ],
)
def test_invalid_entries_are_refused(made: HandMade, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        _read(made, [{**_file(1), **fields}])


def test_an_unknown_status_is_refused() -> None:
    data = avro_file(manifest_schema(), [{"status": 3, "data_file": _file(1)}])
    manifest = Manifest(path="m.avro", length=len(data), spec_id=0)

    with pytest.raises(DataError, match="found the status 3"):
        list(read_manifest(data, manifest, statistics=range(1, 10), partitions=PARTITIONS))


def test_partition_spec_of_a_manifest_is_checked(made: HandMade) -> None:
    made.metadata["partition-specs"].append({"spec-id": 1, "fields": []})
    with pytest.raises(DataError, match="states the partition spec 0, but the file has b'1'"):
        _read(made, [_file(1)], spec_id=1, partition_spec_id=0)


def test_encrypted_files_and_manifests_are_refused(made: HandMade) -> None:
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        _read(made, [_file(1, key_metadata=b"k")])
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        _read(made, [_file(1)], key_metadata=b"k")


def test_manifest_listed_twice_is_refused() -> None:
    entry = {"manifest_path": "m.avro", "manifest_length": 1, "partition_spec_id": 0, "content": 0,
             "sequence_number": 1, "min_sequence_number": 1, "added_snapshot_id": 1}  # fmt: skip
    with pytest.raises(DataError, match=r"lists the manifest 'm\.avro' twice"):
        read_manifest_list(avro_file(MANIFEST_LIST_SCHEMA, [entry, entry]), "list.avro")


# --- the deletes that apply (Iceberg, "Scan Planning") ---

SPECS = {
    0: PartitionSpec(0, []),
    1: PartitionSpec(1, [PartitionField("p", "identity", 1, field_id=1000)]),
    2: PartitionSpec(2, [PartitionField("p", "void", 1, field_id=1000)]),
}


def _live(path: str, sequence_number: int, **fields: Any) -> File:
    results: dict[str, Any] = {
        "path": path, "format": "parquet", "size": 1, "records": 1, "content": Content.DATA, "spec_id": 1,
        "partition": {"1000": 5}, "sequence_number": sequence_number, "first_row_id": None, "null_counts": None,
        "lower": None, "upper": None, "equality_ids": (), "referenced_data_file": None, "content_offset": None,
        "content_size": None, **fields,
    }  # fmt: skip
    return File(**results)


def _positions(sequence_number: int, **fields: Any) -> File:
    return _live(f"pos{sequence_number}", sequence_number, content=Content.POSITION_DELETES, **fields)


def _equality(sequence_number: int, **fields: Any) -> File:
    ids = {"equality_ids": (1,), **fields}
    return _live(f"eq{sequence_number}", sequence_number, content=Content.EQUALITY_DELETES, **ids)


def _vector(sequence_number: int, path: str = "d", **fields: Any) -> File:
    place = {"format": "puffin", "referenced_data_file": path, "content_offset": 4, "content_size": 40, **fields}
    return _positions(sequence_number, **place)


def _applied(data: File, *deletes: File) -> list[str]:
    result = DeleteIndex(deletes, SPECS).of(data)
    return [one.path for one in (*([result.vector] if result.vector else ()), *result.positions, *result.equality)]


def test_deletes_apply_by_sequence_number() -> None:
    data = _live("d", 5)

    assert _applied(data, _positions(4), _positions(5), _positions(6)) == ["pos5", "pos6"]
    assert _applied(data, _equality(4), _equality(5), _equality(6)) == ["eq6"]


def test_deletes_apply_within_their_partition() -> None:
    data = _live("d", 5)

    assert _applied(data, _positions(6, partition={"1000": 6}), _equality(6, partition={"1000": 6})) == []
    assert _applied(data, _positions(6, partition={"1000": None}), _equality(6, partition={"1000": None})) == []
    # The same value in a different spec is a different partition.
    assert _applied(data, _positions(6, spec_id=2), _equality(6, spec_id=0, partition={})) == ["eq6"]


def test_unpartitioned_equality_deletes_apply_everywhere() -> None:
    data = _live("d", 5)

    assert _applied(data, _equality(6, spec_id=0, partition={})) == ["eq6"]
    assert _applied(data, _equality(6, spec_id=2, partition={"1000": None})) == ["eq6"]
    assert _applied(data, _positions(6, spec_id=0, partition={})) == []


def test_a_deletion_vector_replaces_position_deletes() -> None:
    data = _live("d", 5)

    assert _applied(data, _positions(6), _vector(5), _equality(6)) == ["pos5", "eq6"]
    assert _applied(_live("e", 5), _positions(6), _vector(5)) == ["pos6"]


def test_deletes_of_a_file_apply_only_to_it() -> None:
    named = _positions(6, referenced_data_file="d")
    bounded = _positions(7, lower={2147483546: b"c"}, upper={2147483546: b"e"})

    assert _applied(_live("d", 5), named, bounded) == ["pos6", "pos7"]
    assert _applied(_live("e2", 5), named, bounded) == []


def test_index_without_delete_files_gives_no_deletes() -> None:
    assert DeleteIndex([], SPECS).of(_live("d", 5)) is NO_DELETES


@pytest.mark.parametrize(
    ("deletes", "reason"),
    [
        ([_vector(5), _vector(6)], "a second deletion vector"),
        ([_vector(4)], "older than its data file"),
        ([_vector(6, partition={"1000": 6})], "its partition differs from that of its data file"),
        ([_positions(6, referenced_data_file="d", spec_id=2)], "its partition differs from that of its data file"),
        ([_vector(6, content_offset=None)], "its offset and its size"),
        ([_vector(6, content_size=7)], "at least 8 bytes, found 7"),
        ([_equality(6, equality_ids=())], "the columns that it compares"),
    ],
)
def test_contradictory_deletes_are_refused(deletes: list[File], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        DeleteIndex(deletes, SPECS).of(_live("d", 5))


@pytest.mark.parametrize("name", ["avro", "orc"])
def test_delete_files_in_other_formats_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"delete files in the format '{name}'"):
        DeleteIndex([_positions(6, format=name)], SPECS)


def test_partitions_compare_floats_by_bits() -> None:
    keys = [partition_key(_live("d", 1, partition={"1000": value}), SPECS[1]) for value in (0.0, -0.0, float("nan"))]

    assert len(set(keys)) == 3
    assert partition_key(_live("d", 1, partition={"1000": float("nan")}), SPECS[1]) == keys[2]


def test_partition_value_of_another_type_equals_no_deletes() -> None:
    strange = _live("d", 5, partition={"1000": Undecoded("text")})

    with pytest.raises(DataError, match="not of the type of its column") as caught:
        DeleteIndex([_equality(6)], SPECS).of(strange)
    assert caught.value.file_id == "d"
    assert DeleteIndex([], SPECS).of(strange) is NO_DELETES


# --- position delete files ---


def _position_file(made: HandMade, rows: list[tuple[str, int]]) -> bytes:
    file = made.position_deletes(rows)
    return Path(file["file_path"].removeprefix("file://")).read_bytes()


def test_positions_are_grouped_by_data_file(made: HandMade) -> None:
    rows = [("a", 5), ("b", 1), ("a", 0), ("a", 5), ("c", 2**40)]

    positions = read_positions(_position_file(made, rows), 5, "p.parquet")

    assert [list(vector.positions()) for name in "abc" if (vector := positions.of(name)) is not None] == [
        [0, 5],
        [1],
        [2**40],
    ]
    assert positions.of("d") is None
    first, second = positions.of("a"), positions.of("b")
    assert first is not None
    assert second is not None
    assert list(union([first, second]).positions()) == [0, 1, 5]


def test_contradictory_position_delete_files_are_refused(made: HandMade) -> None:
    data = _position_file(made, [("a", 5)])
    with pytest.raises(DataError, match="states 2 rows, but the file has 1"):
        read_positions(data, 2, "p.parquet")
    with pytest.raises(DataError, match="0 or more, found -1"):
        read_positions(_position_file(made, [("a", -1)]), 1, "p.parquet")
    with pytest.raises(DataError, match="ends with 'PAR1'") as caught:
        read_positions(data[: len(data) // 2], 1, "p.parquet")
    assert caught.value.file_id == "p.parquet"


def test_columns_of_position_deletes_are_found_by_id(made: HandMade) -> None:
    """A column that only has the name of another is not that column, if the writer gave ids."""
    data = _position_file(made, [("a", 5)])
    table = pq.read_table(pa.BufferReader(data))
    ids = {name: table.schema.field(name).metadata for name in ("file_path", "pos")}

    def written(with_ids: set[str]) -> bytes:
        fields = [table.schema.field(name).with_metadata(ids[name] if name in with_ids else None) for name in ids]
        sink = pa.BufferOutputStream()
        pq.write_table(table.select(list(ids)).cast(pa.schema(fields)), sink)
        return bytes(sink.getvalue())

    for with_ids in ({"file_path", "pos"}, set()):
        vector = read_positions(written(with_ids), 1, "p.parquet").of("a")
        assert vector is not None
        assert list(vector.positions()) == [5]
    for with_ids, missing in (({"file_path"}, "pos"), ({"pos"}, "file_path")):
        with pytest.raises(DataError, match=f"it has no column '{missing}'"):
            read_positions(written(with_ids), 1, "p.parquet")


def test_position_delete_files_need_both_columns(made: HandMade) -> None:
    file = made.equality_deletes(pa.table({"a": pa.array([1], pa.int64())}), ["a"])
    data = Path(file["file_path"].removeprefix("file://")).read_bytes()
    with pytest.raises(DataError, match="it has no column 'file_path'"):
        read_positions(data, 1, "p.parquet")
