"""Reads return the same rows with each shortcut switched off (or on, if it is off), and with all of them off."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from delta_sharing_client.decode import page_choice, whole_file
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.outputs.pandas import to_pandas
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.shortcuts import SHORTCUTS, Shortcuts
from tests.unit.storages import Storage, Table, fast_options, metadata
from tests.vectors import encode_inline

ROWS = 20_000
FIRST = 15_000
NAMES = [field.name for field in dataclasses.fields(Shortcuts)]
CONTENT = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "text": pa.array([None if i % 5 == 4 else f"text {i} {i * 7919 % 10_007}" for i in range(ROWS)]),
        "real": pa.array([i * 0.37 for i in range(ROWS)]),
        "flag": pa.array([i % 3 == 0 for i in range(ROWS)]),
        "list": pa.array([[i, None] if i % 2 else [] for i in range(ROWS)], pa.list_(pa.field("element", pa.int64()))),
    }
)
READS: dict[str, dict[str, Any]] = {
    "all": {},
    "needle": {"filter": (col("id") >= FIRST) & (col("id") < FIRST + 50)},
    "needle by text": {"filter": col("text") == "text 10000 3039"},
    "some columns": {"columns": ["text", "real"], "filter": col("id") > 19_900},
    "limit": {"limit": 100},
}


@pytest.fixture
def table(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Table:
    # The saved bytes are not considered, because such a small file would otherwise be read whole.
    for module, name in ((whole_file, "_SMALL"), (page_choice, "_LEAST"), (page_choice, "_WORK")):
        monkeypatch.setattr(module, name, 0)
    monkeypatch.setattr(page_choice, "_ROUND_TRIP", -(1 << 40))
    result = Table(storage, metadata(CONTENT.schema))
    gone = encode_inline(DeletionVector.from_positions([3, FIRST + 4, 19_999]))
    write = {"write_page_index": True, "row_group_size": 10_000, "data_page_size": 512, "use_dictionary": False}
    for _ in range(2):
        result.add(CONTENT, deletion_vector=gone, write=write)
    return result


def read(table: Table) -> tuple[dict[str, pa.Table], list[pd.DataFrame], ScanReport]:
    result, frames, reports = {}, [], {name: ScanReport() for name in READS}
    for name, request in READS.items():
        plan = table.plan(options=fast_options(), **request)
        result[name] = pa.Table.from_batches(Batches(plan, reports[name]), plan.output_schema)
        frames.append(to_pandas(plan.output_schema, Batches(plan), "numpy", plan.known_rows))
    return result, frames, reports["needle"]


@pytest.mark.parametrize("off", [*([name] for name in NAMES), NAMES], ids=[*NAMES, "all"])
def test_rows_are_the_same_without_each_shortcut(table: Table, monkeypatch: pytest.MonkeyPatch, off: list[str]) -> None:
    rows, frames, needle = read(table)
    for name in off:
        monkeypatch.setattr(SHORTCUTS, name, len(off) == 1 and not getattr(SHORTCUTS, name))
    plain_rows, plain_frames, without = read(table)
    assert plain_rows == rows
    assert rows["needle"]["id"].to_pylist() == 2 * [FIRST + i for i in range(50) if i != 4]
    for frame, plain in zip(frames, plain_frames, strict=True):
        pd.testing.assert_frame_equal(frame, plain)
    if "page_stubs" in off:
        # The switch has an effect: without page stubs more bytes are fetched.
        assert without.bytes > 2 * needle.bytes


@pytest.mark.parametrize("form", ["as it is", "in another order", "said to be required", "with notes", "renamed"])
def test_batch_has_the_reads_schema_whatever_the_files_schema(storage: Storage, form: str) -> None:
    content = pa.table({"id": pa.array(range(100), pa.int64()), "text": [f"text {i}" for i in range(100)]})
    written = {
        "as it is": content,
        "in another order": content.select(["text", "id"]),
        "said to be required": content.cast(
            pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
        ),
        "with notes": content.cast(
            pa.schema([pa.field("id", pa.int64(), metadata={"note": "x"}), ("text", pa.string())], {"of": "the file"})
        ),
        "renamed": content.rename_columns(["ID", "text"]),
    }[form]
    table = Table(storage, metadata(content.schema))
    table.add(written)
    plan = table.plan(options=fast_options())
    (result,) = Batches(plan)
    assert result.schema.equals(plan.output_schema, check_metadata=True)
    assert pa.Table.from_batches([result]).equals(content)
