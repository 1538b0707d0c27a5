"""Small row groups are requested together and decoded together, with the rows and errors of each by itself."""

from __future__ import annotations

import functools
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.decode import decoder
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.thrift import Change, encode_number, rewritten, rewritten_list
from tests.unit.decode.eager import make_eager
from tests.unit.decode.opened import File
from tests.unit.storages import Storage, Table, fast_options, metadata

ROWS = 2_000
CONTENT = pa.table(
    {
        "n": pa.array(range(ROWS), pa.int64()),
        "text": [None if at % 7 == 0 else f"text {at % 50}" for at in range(ROWS)],
        **{f"x{each}": [at / (each + 1) for at in range(ROWS)] for each in range(9)},
    }
)
GONE = DeletionVector.from_positions([0, 99, 100, 101, 777, ROWS - 1])


def lengths(opened: File) -> list[int]:
    return [batch.num_rows for batch in opened.batches()]


def test_neighbouring_row_groups_share_a_batch() -> None:
    assert lengths(File(CONTENT, row_group_size=100)) == [1000, 1000]
    assert lengths(File(CONTENT, row_group_size=400)) == [800, 800, 400]
    assert lengths(File(CONTENT, row_group_size=600)) == [600, 600, 600, 200]


def test_skipped_row_groups_end_a_batch() -> None:
    opened = File(CONTENT, row_group_size=100, predicate=(col("n") < 250) | (col("n") >= 1_420))
    assert opened.layout.groups == (0, 1, 2, *range(14, 20))
    assert lengths(opened) == [250, 580]


@pytest.mark.parametrize("size", [70, 100, 333, 700])
@pytest.mark.parametrize("condition", [None, col("text") == "text 3", (col("n") > 95) & (col("n") < 1_905)])
def test_rows_have_their_positions_in_the_file(size: int, condition: Any) -> None:
    opened = File(CONTENT, row_group_size=size, predicate=condition, deleted=GONE)
    found = pa.Table.from_batches(opened.batches())
    gone = set(GONE.positions().tolist())
    kept = [row for row in CONTENT.to_pylist() if row["n"] not in gone]
    if condition is not None:
        is_text = "text" in str(condition)
        kept = [row for row in kept if (row["text"] == "text 3" if is_text else 95 < row["n"] < 1_905)]
    assert found.to_pylist() == kept


def test_text_that_may_be_repeated_limits_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_LEAST_IN_FLIGHT", 1)
    few = pa.table({"text": ["x" * 1_000] * ROWS})
    # A row group may take 100 rows x 1 kB, and three times the limit holds two of these.
    assert lengths(File(few, row_group_size=100, in_flight=80_000, batch_rows=1_000))[:2] == [200, 200]


def moved(blob: bytes, rows: dict[int, int]) -> bytes:
    """Return the file with another number of rows stated for some row groups."""
    size = int.from_bytes(blob[-8:-4], "little")

    def of_group(number: int) -> Change:
        value = encode_number(number)
        stated: Change = lambda data, at: value  # noqa: E731
        chunk = functools.partial(rewritten, changes={3: functools.partial(rewritten, changes={5: stated})})
        return functools.partial(rewritten, changes={1: functools.partial(rewritten_list, changes=chunk), 3: stated})

    groups = functools.partial(rewritten_list, changes={group: of_group(number) for group, number in rows.items()})
    footer = rewritten(blob[-8 - size : -8], 0, {4: groups})
    return blob[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_row_that_lies_in_the_next_row_group_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, CONTENT.schema, compression="none") as writer:
        for start, stop in ((0, 99), (99, 200), (200, 300)):
            writer.write_table(CONTENT.slice(start, stop - start))
    blob = moved(sink.getvalue(), {0: 100, 1: 100})
    with pytest.raises(DataError):
        File(blob, schema=CONTENT.schema).batches()
    # Decoded together, the row groups would not show it.
    monkeypatch.setattr(decoder, "most_decoded", lambda *_: 0)
    assert lengths(File(blob, schema=CONTENT.schema)) == [300]


def test_narrow_gaps_between_row_groups_are_downloaded(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    make_eager(monkeypatch)
    table = Table(storage, metadata(CONTENT.schema))
    table.add(CONTENT, write={"row_group_size": 100})
    plan = table.plan(columns=["n", "x1"], options=fast_options())
    with Batches(plan) as batches:
        assert pa.Table.from_batches(batches).equals(CONTENT.select(["n", "x1"]))
    assert len(storage.requests) == 3  # the footer in two parts, and all of the row groups
