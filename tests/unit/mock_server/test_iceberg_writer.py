"""The writer of the demo's Iceberg table: all files of three commits conform to the specification."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import manifest

from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import decode_file
from delta_sharing_client.iceberg.avro import read_avro
from mock_server.iceberg_avro import manifest_list_schema, manifest_schema
from mock_server.iceberg_writer import IcebergWriter

FIELDS = [
    {"id": 1, "name": "id", "type": "long", "required": True},
    {"id": 7, "name": "day", "type": "string", "required": False},
]
SPEC = {"name": "day", "source-id": 7, "field-id": 1000, "transform": "identity"}
TIMES = [datetime.datetime(2026, 1, day, tzinfo=datetime.timezone.utc) for day in (1, 2, 3)]
MILLIS = [int(time.timestamp()) * 1000 for time in TIMES]


def rows(first: int, count: int, day: str) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "day": [day] * count})


def written(root: Path) -> tuple[IcebergWriter, list[int]]:
    """Write three commits, which add two files, rename a column and delete rows, and replace a file."""
    writer = IcebergWriter(root, FIELDS, SPEC, "string", seed=5)
    writer.comment("Orders.")
    writer.add(rows(0, 3, "a"), "a")
    writer.add(rows(3, 5, "b"), "b")
    ids = [writer.commit("append", TIMES[0])]
    writer.rename("id", "number")
    first, second = writer.files
    writer.delete({second: [4, 0]})
    writer.delete({first: [1], second: [2]})
    ids.append(writer.commit("delete", TIMES[1], tag="second"))
    kept = first.live_rows().rename_columns({"id": "number"})
    writer.remove(first)
    writer.add(kept, "a")
    ids.append(writer.commit("overwrite", TIMES[2]))
    return writer, ids


@pytest.fixture
def table(tmp_path: Path) -> tuple[Path, IcebergWriter, list[int]]:
    root = tmp_path / "first"
    return root, *written(root)


def at(uri: str) -> Path:
    return Path(urlsplit(uri).path)


def records(path: Path) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Return the records of an Avro file by field name, and the file's properties."""
    result = read_avro(path.read_bytes(), str(path))
    schema = json.loads(result.properties["avro.schema"])
    return [named(record, schema) for record in result.records], result.properties


def named(value: Any, schema: Any) -> Any:
    if isinstance(schema, list):
        schema = schema[1]
    if value is None or not isinstance(schema, dict) or schema["type"] != "record":
        return value
    return {field["name"]: named(value[str(field["field-id"])], field["type"]) for field in schema["fields"]}


def test_each_commit_writes_the_expected_metadata(table: tuple[Path, IcebergWriter, list[int]]) -> None:
    root, writer, ids = table
    metadata = [json.loads((root / "metadata" / f"v{number}.metadata.json").read_text()) for number in (1, 2, 3)]
    assert sorted(path.name for path in (root / "metadata").glob("*.json")) == [
        f"v{n}.metadata.json" for n in (1, 2, 3)
    ]
    sizes = [path.stat().st_size for path in map(at, (f.struct["file_path"] for f in writer.files))]
    renamed = [{**FIELDS[0], "name": "number"}, FIELDS[1]]
    snapshots = metadata[2]["snapshots"]
    files = {path: path.stat().st_size for path in (root / "data").glob("*.parquet")}
    assert [one.struct["file_size_in_bytes"] for one in writer.files] == sizes
    expected = [
        {
            "snapshot-id": ids[0],
            "sequence-number": 1,
            "timestamp-ms": MILLIS[0],
            "summary": {"operation": "append", "total-data-files": "2", "total-records": "8"},
            "schema-id": 0,
            "first-row-id": 0,
            "added-rows": 8,
        },
        {
            "snapshot-id": ids[1],
            "parent-snapshot-id": ids[0],
            "sequence-number": 2,
            "timestamp-ms": MILLIS[1],
            "summary": {"operation": "delete", "total-data-files": "2", "total-records": "4"},
            "schema-id": 1,
            "first-row-id": 8,
            "added-rows": 0,
        },
        {
            "snapshot-id": ids[2],
            "parent-snapshot-id": ids[1],
            "sequence-number": 3,
            "timestamp-ms": MILLIS[2],
            "summary": {"operation": "overwrite", "total-data-files": "2", "total-records": "4"},
            "schema-id": 1,
            "first-row-id": 8,
            "added-rows": 2,
        },
    ]
    for number, snapshot in enumerate(snapshots):
        assert at(snapshot.pop("manifest-list")) == root / "metadata" / f"snap-{ids[number]}.avro"
        size = int(snapshot["summary"].pop("total-files-size"))
        assert size == (sum(sizes) if number == 2 else sum(files.values()) - sizes[1])
    assert snapshots == expected
    assert len({*ids}) == 3
    for number, document in enumerate(metadata):
        last = number + 1
        uuid, location = document.pop("table-uuid"), document.pop("location")
        assert (len(uuid), uuid[14]) == (36, "4")
        assert at(location) == root
        assert [each["snapshot-id"] for each in document.pop("snapshots")] == ids[:last]
        branch = {"snapshot-id": ids[number], "type": "branch"}
        tags = {"second": {"snapshot-id": ids[1], "type": "tag"}} if number else {}
        assert document == {
            "format-version": 3,
            "last-sequence-number": last,
            "last-updated-ms": MILLIS[number],
            "next-row-id": (8, 8, 10)[number],
            "last-column-id": 7,
            "schemas": [
                {"type": "struct", "schema-id": 0, "fields": FIELDS},
                {"type": "struct", "schema-id": 1, "fields": renamed},
            ][: 2 if number else 1],
            "current-schema-id": 1 if number else 0,
            "partition-specs": [{"spec-id": 0, "fields": [SPEC]}],
            "default-spec-id": 0,
            "last-partition-id": 1000,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {"comment": "Orders."},
            "current-snapshot-id": ids[number],
            "snapshot-log": [
                {"snapshot-id": one, "timestamp-ms": time} for one, time in zip(ids[:last], MILLIS, strict=False)
            ],
            "refs": {"main": branch, **tags},
        }
    assert (writer.sequence_number, len(writer.files)) == (4, 2)


def test_each_commit_writes_the_expected_manifests(table: tuple[Path, IcebergWriter, list[int]]) -> None:
    root, writer, ids = table
    # For each manifest: content, counts of added, existing and deleted files and rows, minimum sequence number.
    expected = [
        [(0, (2, 0, 0), (8, 0, 0), 1, 0)],
        [(0, (0, 2, 0), (0, 8, 0), 1, 8), (1, (2, 0, 0), (4, 0, 0), 2, None)],
        [(0, (1, 1, 1), (2, 5, 3), 1, 8), (1, (0, 1, 0), (0, 3, 0), 2, None)],
    ]
    # For each entry: status, sequence number, row count, first row id.
    entries = [
        [[(1, None, 3, None), (1, None, 5, None)]],
        [[(0, 1, 3, 0), (0, 1, 5, 3)], [(1, None, 1, None), (1, None, 3, None)]],
        [[(0, 1, 5, 3), (1, None, 2, None), (2, 1, 3, 0)], [(0, 2, 3, None)]],
    ]
    for number, snapshot_id in enumerate(ids):
        manifests, _ = records(root / "metadata" / f"snap-{snapshot_id}.avro")
        results = []
        for place, one in enumerate(manifests):
            path = at(one["manifest_path"])
            assert path.parent == root / "metadata"
            assert path.name.endswith("-m0.avro")
            assert one["manifest_length"] == path.stat().st_size
            assert one["partition_spec_id"] == 0
            assert (one["sequence_number"], one["added_snapshot_id"]) == (number + 1, snapshot_id)
            kinds = ("added", "existing", "deleted")
            counts = [tuple(one[f"{kind}_{what}_count"] for kind in kinds) for what in ("files", "rows")]
            results.append((one["content"], *counts, one["min_sequence_number"], one["first_row_id"]))
            listed, properties = records(path)
            assert {tuple(field["type"] for field in entry) for entry in maps(properties)} == {
                ("int", "long"),
                ("int", "bytes"),
            }
            held = [(each["status"], each["sequence_number"], *counted(each["data_file"])) for each in listed]
            assert held == entries[number][place]
            assert all(each["file_sequence_number"] == each["sequence_number"] for each in listed)
            assert {each["snapshot_id"] for each in listed} == {None}
            schema = json.loads(properties["schema"])
            assert (schema["schema-id"], schema["fields"][0]["name"]) == ((1, "number") if number else (0, "id"))
            assert json.loads(properties["partition-spec"]) == [SPEC]
            stated = {name: properties[name] for name in ("partition-spec-id", "format-version", "content")}
            assert stated == {
                "partition-spec-id": b"0",
                "format-version": b"3",
                "content": (b"data", b"deletes")[one["content"]],
            }
        assert results == expected[number]
    assert writer.files[0].first_row_id == 3


def test_manifest_schema_has_the_fields_of_pyicebergs_schema() -> None:
    def fields_of(record: dict[str, Any]) -> set[tuple[int, str, bool]]:
        return {(field["field-id"], field["name"], not isinstance(field["type"], list)) for field in record["fields"]}

    schema = manifest_schema()
    for record, theirs in (
        (manifest_list_schema(), manifest.MANIFEST_LIST_FILE_SCHEMAS[3]),
        (schema, manifest.MANIFEST_ENTRY_SCHEMAS[2]),
        (schema["fields"][-1]["type"], manifest.DATA_FILE_TYPE[3]),
    ):
        assert fields_of(record) == {(field.field_id, field.name, field.required) for field in theirs.fields}


def maps(properties: dict[str, bytes]) -> list[list[dict[str, Any]]]:
    """Return each map as a dict (Iceberg, Appendix A: an Avro map with integer keys is an array of records)."""
    data_file = json.loads(properties["avro.schema"])["fields"][-1]["type"]
    kinds = [field["type"][1] for field in data_file["fields"] if isinstance(field["type"], list)]
    return [kind["items"]["fields"] for kind in kinds if isinstance(kind, dict) and kind.get("logicalType") == "map"]


def counted(data_file: dict[str, Any]) -> tuple[int, int | None]:
    return data_file["record_count"], data_file["first_row_id"]


def test_each_commit_writes_the_expected_data_and_deletes(table: tuple[Path, IcebergWriter, list[int]]) -> None:
    root, _, ids = table
    manifests, _ = records(root / "metadata" / f"snap-{ids[1]}.avro")
    data, vectors = ([one["data_file"] for one in records(at(each["manifest_path"]))[0]] for each in manifests)
    assert [pq.read_table(at(one["file_path"])).to_pylist() for one in data] == [
        rows(0, 3, "a").to_pylist(),
        rows(3, 5, "b").to_pylist(),
    ]
    for one, day in zip(data, "ab", strict=True):
        path = at(one["file_path"])
        assert (path.parent.name, path.suffix) == ("data", ".parquet")
        assert (one["content"], one["file_format"], one["partition"]) == (0, "PARQUET", {"day": day})
        assert one["file_size_in_bytes"] == path.stat().st_size
        fields = pq.read_schema(path)
        assert [fields.field(name).metadata[b"PARQUET:field_id"] for name in ("id", "day")] == [b"1", b"7"]
    assert [one["partition"] for one in vectors] == [{"day": "a"}, {"day": "b"}]
    assert len({one["file_path"] for one in vectors}) == 1
    puffin = at(vectors[0]["file_path"]).read_bytes()
    size = int.from_bytes(puffin[-12:-8], "little")
    assert (puffin[:4], puffin[-size - 16 : -size - 12], puffin[-8:]) == (b"PFA1", b"PFA1", b"\0\0\0\0PFA1")
    footer = json.loads(puffin[-size - 12 : -12])
    assert footer["properties"] == {}
    for one, target, blob, places in zip(vectors, data, footer["blobs"], ([1], [0, 2, 4]), strict=True):
        assert (one["content"], one["file_format"], one["record_count"]) == (1, "PUFFIN", len(places))
        assert one["file_size_in_bytes"] == len(puffin)
        assert one["referenced_data_file"] == target["file_path"]
        start, length = one["content_offset"], one["content_size_in_bytes"]
        # As in a Delta deletion vector file, whose first byte is a version.
        vector = decode_file(
            b"\x01" + puffin[start : start + length],
            DeletionVectorDescriptor("p", "x", length - 8, len(places), 1),
        )
        assert vector.positions().tolist() == places
        assert blob == {
            "type": "deletion-vector-v1",
            "fields": [2147483645],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": start,
            "length": length,
            "properties": {"referenced-data-file": target["file_path"], "cardinality": str(len(places))},
        }
    # Rows keep their ids and their last updated sequence numbers.
    manifests, _ = records(root / "metadata" / f"snap-{ids[2]}.avro")
    added = [one["data_file"] for one in records(at(manifests[0]["manifest_path"]))[0] if one["status"] == 1]
    file = pq.read_table(at(added[0]["file_path"]))
    assert file.to_pylist() == [
        {"number": 0, "day": "a", "_row_id": 0, "_last_updated_sequence_number": 1},
        {"number": 2, "day": "a", "_row_id": 2, "_last_updated_sequence_number": 1},
    ]
    results = {field.name: field.metadata[b"PARQUET:field_id"] for field in file.schema}
    assert results == {
        "number": b"1",
        "day": b"7",
        "_row_id": b"2147483540",
        "_last_updated_sequence_number": b"2147483539",
    }


def test_same_input_writes_identical_files(table: tuple[Path, IcebergWriter, list[int]], tmp_path: Path) -> None:
    root, writer, ids = table
    again, result = written(tmp_path / "t")
    assert result == ids
    names = [sorted(str(path.relative_to(top)) for path in top.rglob("*")) for top in (root, tmp_path / "t")]
    assert names[0] == names[1]
    assert [file.live_rows().to_pylist() for file in again.files] == [
        file.live_rows().to_pylist() for file in writer.files
    ]
    assert again.files[0].live_rows().column("_row_id").to_pylist() == [4, 6]
    assert again.files[0].live_rows().column("_last_updated_sequence_number").to_pylist() == [1, 1]
