"""Metadata that the specification does not allow, or that only old writers wrote, but whose meaning is certain, so that
Iceberg's library for Java reads it: manifests without ids or headers, and snapshots that list their manifests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.errors import DataError
from mock_server import iceberg_avro
from tests.iceberg import hand_made
from tests.iceberg.hand_made import HandMade
from tests.iceberg.server import IcebergServer, iceberg_server

COLUMNS = [
    {"id": 1, "name": "a", "required": False, "type": "long"},
    {"id": 2, "name": "b", "required": False, "type": "string"},
]
ROWS = pa.table({"a": pa.array([1, 2, 3, 4], pa.int64()), "b": ["x", "y", None, "z"]})


@pytest.fixture(scope="module")
def server() -> Iterator[IcebergServer]:
    with iceberg_server() as server:
        yield server


@pytest.fixture
def made(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "t", COLUMNS)


def _without_list(made: HandMade, paths: list[str]) -> None:
    """Let the snapshot list its manifests itself, as the first writers of version 1 did."""
    made.metadata["format-version"] = 1
    made.metadata["partition-specs"].append({"spec-id": 1, "fields": []})
    snapshot = made.metadata["snapshots"][-1]
    del snapshot["manifest-list"], snapshot["sequence-number"]
    snapshot["manifests"] = paths


def test_manifests_listed_in_the_snapshot_are_read(made: HandMade, server: IcebergServer) -> None:
    field = {"name": "p", "transform": "identity", "source-id": 1, "field-id": 1000}
    made.metadata["partition-specs"] = [{"spec-id": 0, "fields": [field]}]
    files = [{**made.data_file(ROWS.slice(start, 1)), "partition": {"p": ROWS["a"][start].as_py()}} for start in (0, 1)]
    manifests = [made.manifest([file], partition=[("p", 1000, "long")]) for file in files]
    made.commit(manifests)
    _without_list(made, [one["manifest_path"] for one in manifests])
    server.share("t", made.metadata)
    table = server.table()

    assert table.scan().to_arrow().to_pylist() == ROWS.slice(0, 2).to_pylist()
    second = ROWS["a"][1].as_py()
    assert table.scan(filter=f"a = {second}").to_arrow().to_pylist() == ROWS.slice(1, 1).to_pylist()
    assert table.scan(filter=f"a = {second}").plan().skipped.by_partition == 1


def test_contradictory_lists_of_manifests_are_refused(made: HandMade, server: IcebergServer) -> None:
    manifest = made.manifest([made.data_file(ROWS)])
    made.commit([manifest], summary={"operation": "append", "total-data-files": "1"})
    path = manifest["manifest_path"]
    for paths, reason in (([path, path], "twice"), ([], "may be truncated"), (None, "states neither")):
        made.metadata["snapshots"][-1] |= {"manifest-list": "x", "sequence-number": 1}
        _without_list(made, paths)  # type: ignore[arg-type]
        server.share("t", made.metadata)
        with pytest.raises(DataError, match=reason):
            server.table().scan().to_arrow()
    # Without the id in its header, the manifest may belong to either of two specs.
    file = Path(path.removeprefix("file://"))
    file.write_bytes(file.read_bytes().replace(b"partition-spec-id", b"partition-spec-no"))
    made.metadata["snapshots"][-1] |= {"manifests": [path]}
    server.share("t", made.metadata)
    with pytest.raises(DataError, match="must state one of the table's partition specs"):
        server.table().scan().to_arrow()
    del made.metadata["partition-specs"][1:]
    server.share("t", made.metadata)
    assert server.table().scan().count() == len(ROWS)


@pytest.mark.parametrize("ending", ["/", "//"])
def test_local_location_may_end_in_a_slash(made: HandMade, server: IcebergServer, ending: str) -> None:
    made.commit([made.manifest([made.data_file(ROWS)])])
    made.metadata["location"] += ending
    server.share("t", made.metadata)

    assert server.table().scan().count() == len(ROWS)


def _renamed(node: Any, *, without: tuple[str, ...]) -> Any:
    """Return an Avro schema without the attributes ``without``."""
    if isinstance(node, list):
        return [_renamed(item, without=without) for item in node]
    if isinstance(node, dict):
        return {key: _renamed(value, without=without) for key, value in node.items() if key not in without}
    return node


@pytest.mark.parametrize("name", ["p", "p of/a"])
def test_manifests_without_field_ids_are_read_by_name(
    made: HandMade, server: IcebergServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_avro = {"p": "p", "p of/a": "p_x20of_x2Fa"}[name]
    field = {"name": name, "transform": "identity", "source-id": 1, "field-id": 1000}
    made.metadata["partition-specs"] = [{"spec-id": 0, "fields": [field]}]
    ids = ("field-id", "element-id")
    schemas = {"manifest_schema": lambda partition=(): _renamed(iceberg_avro.manifest_schema(partition), without=ids),
               "MANIFEST_LIST_SCHEMA": _renamed(iceberg_avro.MANIFEST_LIST_SCHEMA, without=ids)}  # fmt: skip
    for attribute, value in schemas.items():
        monkeypatch.setattr(hand_made, attribute, value)
    values = [ROWS["a"][number].as_py() for number in (0, 1)]
    files = [{**made.data_file(ROWS.slice(number, 1)), "partition": {in_avro: values[number]}} for number in (0, 1)]
    gone = made.position_deletes([(files[0]["file_path"], 0)], partition={in_avro: values[0]})
    partition = [(in_avro, 1000, "long")]
    deletes = made.manifest([gone], partition=partition, content=1)
    made.commit([made.manifest(files, partition=partition), deletes])
    server.share("t", made.metadata)
    table = server.table()

    assert table.scan().to_arrow().to_pylist() == ROWS.slice(1, 1).to_pylist()
    assert table.scan(filter=f"a = {values[1]}").plan().skipped.by_partition == 1
    # Without the header, the names are those of the table's spec.
    path = Path(deletes["manifest_path"].removeprefix("file://"))
    path.write_bytes(path.read_bytes().replace(b"partition-spec", b"partition-spek"))
    assert table.scan().to_arrow().to_pylist() == ROWS.slice(1, 1).to_pylist()


@pytest.mark.parametrize("content", [0, 1])
def test_manifest_may_omit_its_content(made: HandMade, server: IcebergServer, content: int) -> None:
    data = made.data_file(ROWS)
    manifests = [made.manifest([data]), made.manifest([made.position_deletes([(data["file_path"], 0)])], content=1)]
    path = Path(manifests[content]["manifest_path"].removeprefix("file://"))
    path.write_bytes(path.read_bytes().replace(b"\x0econtent", b"\x0ecantent"))
    made.commit(manifests)
    server.share("t", made.metadata)

    assert server.table().scan().to_arrow().to_pylist() == ROWS.slice(1).to_pylist()
    made.commit([{**manifests[0], "content": 1, "sequence_number": 1}, {**manifests[1], "content": 0}])
    server.share("t", made.metadata)
    with pytest.raises(DataError, match=r"states the content|does not state"):
        server.table().scan().to_arrow()
