"""The downloads for a local copy, from a storage that counts requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file
from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.replica import Copies
from tests.unit.storages import Table

MakeTable = Callable[..., Table]
NUMBERS = pa.table({"a": pa.array(range(5), pa.int64())})


def test_vectors_in_one_file_are_downloaded_in_one_request(make_table: MakeTable) -> None:
    table = make_table(NUMBERS.schema)
    removed = [[0], [1, 2], [4]]
    blob, placed = encode_file([DeletionVector.from_positions(rows) for rows in removed], "placeholder")
    url = table.storage.put("vectors", blob)
    for rows, at in zip(removed, placed, strict=True):
        vector = DeletionVectorDescriptor("p", url, at.size_in_bytes, at.cardinality, at.offset)
        table.add(NUMBERS, deletion_vector=vector, removed=rows)
    plan = table.plan()

    result = Copies(plan.context, ScanReport()).vectors(plan.tasks)

    assert [vector.positions().tolist() for vector in result] == removed
    assert len(table.storage.requested("vectors")) == 1


@pytest.mark.parametrize(("stated", "is_copied"), [(-1, True), (1 << 40, False), (0, False)])
def test_copy_accepts_an_unknown_size_but_not_a_wrong_one(
    make_table: MakeTable, tmp_path: Path, stated: int, is_copied: bool
) -> None:
    table = make_table(NUMBERS.schema)
    added = table.add(NUMBERS, name="f")
    table.adds[:] = [replace(added, action=replace(added.action, size=stated))]
    plan = table.plan()
    copies = Copies(plan.context, ScanReport())
    if is_copied:
        copies.files([(plan.tasks[0], tmp_path / "f")])
        assert (tmp_path / "f").read_bytes() == table.storage.files["f"]
    else:
        with pytest.raises(DataError, match="id-f"):
            copies.files([(plan.tasks[0], tmp_path / "f")])
        assert not list(tmp_path.iterdir())
        # If the log claims that the file is huge, only its tail is requested.
        assert table.storage.sent <= 1
