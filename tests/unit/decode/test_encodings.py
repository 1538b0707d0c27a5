"""Each kind of read is tested with files whose ``ARROW:schema`` states each type that a writer may choose.

deltalake's MERGE, UPDATE and DELETE state ``string_view`` and ``binary_view``, Polars large types, pandas dictionaries.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.delta.actions import AddCdcFile, AddFile, RemoveFile, SharedFile
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.outputs.pandas import to_pandas
from delta_sharing_client.plan.changes import plan_changes
from delta_sharing_client.plan.read_request import ChangesRequest
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.run.batches import Batches
from tests.unit.storages import Storage, Table, fast_options, metadata, rows_of, table_state
from tests.vectors import encode_inline, poisoned
from tests.versions import PYARROW

# pyarrow before 16 cannot write such files; test_old_readers.py tests that it reads them.
pytestmark = pytest.mark.skipif(
    not hasattr(pq.ParquetWriter, "add_key_value_metadata"), reason="this pyarrow does not write foreign Arrow schemas"
)
ROWS = 40
LOGICAL = pa.schema(
    [
        ("i", pa.int64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("l", pa.list_(pa.field("element", pa.string()))),
        ("n", pa.list_(pa.field("element", pa.int32()))),
        ("st", pa.struct([("x", pa.string()), ("y", pa.list_(pa.field("element", pa.string())))])),
        ("m", pa.map_(pa.string(), pa.string())),
    ]
)


def row(i: int) -> dict[str, Any]:
    text = None if i % 7 == 3 else f"text {i}" * (1 + i % 3)
    return {
        "i": i,
        "s": text,
        "b": None if text is None else text.encode(),
        "l": [text, "z"] if i % 5 else [],
        "n": [i, None],
        "st": None if i % 11 == 10 else {"x": text, "y": ["q", text]},
        "m": [("k", text)] if i % 3 else [],
    }


CONTENT = pa.Table.from_pylist([row(i) for i in range(ROWS)], LOGICAL)


def encoded(data_type: pa.DataType, text: pa.DataType, data: pa.DataType, lists: Callable[..., Any]) -> pa.DataType:
    """Return ``data_type`` with other types for its strings, binaries and lists."""
    types = pa.types
    if types.is_string(data_type):
        return text
    if types.is_binary(data_type):
        return data
    if types.is_list(data_type):
        return lists(encoded(data_type.value_type, text, data, lists))
    if types.is_map(data_type):
        return pa.map_(*(encoded(item, text, data, lists) for item in (data_type.key_type, data_type.item_type)))
    if types.is_struct(data_type):
        return pa.struct([(item.name, encoded(item.type, text, data, lists)) for item in data_type])
    return data_type


def dictionary(of: pa.DataType) -> pa.DataType:
    return pa.dictionary(pa.int32(), of)


ENCODINGS: dict[str, tuple[pa.DataType, pa.DataType, Callable[..., Any]]] = {
    "plain": (pa.string(), pa.binary(), pa.list_),
    "large": (pa.large_string(), pa.large_binary(), pa.large_list),
    "dictionaries": (dictionary(pa.string()), dictionary(pa.binary()), pa.list_),
    "run-end": (pa.run_end_encoded(pa.int32(), pa.string()), pa.run_end_encoded(pa.int32(), pa.binary()), pa.list_),
}
# pyarrow cannot put types that it lacks into a schema.
if hasattr(pa, "string_view"):
    ENCODINGS |= {
        "views": (pa.string_view(), pa.binary_view(), pa.list_),
        "dictionaries of views": (dictionary(pa.string_view()), dictionary(pa.binary_view()), pa.list_),
        "list views": (pa.string(), pa.binary(), pa.list_view),
        "large list views": (pa.large_string(), pa.large_binary(), pa.large_list_view),
    }
if hasattr(pa, "json_"):
    ENCODINGS |= {
        "json extension": (pa.json_(pa.string()), pa.binary(), pa.list_),
        "json extension of views": (pa.json_(pa.string_view()), pa.opaque(pa.binary_view(), "a", "b"), pa.list_),
    }


def written(encoding: str, content: pa.Table = CONTENT) -> bytes:
    """Return a file of ``content`` whose Arrow schema states other types.

    pyarrow does not write all of these types, so the schema is written into the metadata.
    """
    text, data, lists = ENCODINGS[encoding]
    claimed = []
    for item in content.schema:
        stated = encoded(item.type, text, data, lists)
        if encoding == "list views" and item.name == "n":
            stated = pa.list_(pa.int32(), 2)  # lists of fixed size are tested too
        claimed.append((item.name, stated))
    return with_arrow_schema(content, base64.b64encode(pa.schema(claimed).serialize().to_pybytes()))


def with_arrow_schema(content: pa.Table, text: bytes) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, content.schema, store_schema=False, write_page_index=True) as writer:
        writer.write_table(content, row_group_size=16)
        writer.add_key_value_metadata({"other": "ARROW:schema", "ARROW:schema": text.decode(), "z": "ARROW:schema"})
    return sink.getvalue()


@pytest.fixture(params=ENCODINGS)
def encoding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(storage: Storage, encoding: str) -> Table:
    table = Table(storage, metadata(LOGICAL))
    table.add(written(encoding))
    return table


def expected(keep: Callable[[int], bool] = lambda _: True, columns: list[str] | None = None) -> list[dict[str, Any]]:
    chosen = CONTENT if columns is None else CONTENT.select(columns)
    return [chosen.slice(i, 1).to_pylist()[0] for i in range(ROWS) if keep(i)]


def test_written_files_have_the_types_of_their_encoding(encoding: str) -> None:
    # Older versions of pyarrow read a view as a string.
    if encoding in ("views", "large", "dictionaries")[PYARROW < 22 :]:
        schema = pq.ParquetFile(pa.BufferReader(written(encoding))).schema_arrow
        assert schema.field("s").type == ENCODINGS[encoding][0]


def test_all_rows_are_read(table: Table) -> None:
    rows = table.read()
    assert rows.schema.equals(LOGICAL)
    assert rows.to_pylist() == expected()


@pytest.mark.parametrize("columns", [["s"], ["st.x"], ["l", "i"], ["st.y", "b"], []])
def test_selected_columns_are_read(table: Table, columns: list[str]) -> None:
    rows = table.read(columns=columns)
    if columns == ["st.x"]:
        assert rows["st"].to_pylist() == [None if r["st"] is None else {"x": r["st"]["x"]} for r in expected()]
    elif columns == ["st.y", "b"]:
        assert rows["b"].to_pylist() == [r["b"] for r in expected()]
    else:
        assert rows.num_rows == ROWS
        assert rows.to_pylist() == (expected(columns=columns) if columns else rows.to_pylist())


@pytest.mark.parametrize(
    ("predicate", "keep"),
    [
        (col("i").is_in([1, 3, 20]), lambda i: i in (1, 3, 20)),
        (col("s") == "text 0", lambda i: i == 0),
        (col("b") == b"text 0", lambda i: i == 0),
        (col("st.x") == "text 0", lambda i: i == 0),
        (col("s").is_null(), lambda i: i % 7 == 3),
    ],
    ids=["number", "text", "bytes", "nested", "null"],
)
def test_filters_find_their_rows(table: Table, predicate: Any, keep: Callable[[int], bool]) -> None:
    assert table.read(filter=predicate).to_pylist() == expected(keep)
    assert table.read(filter=predicate, columns=["i"])["i"].to_pylist() == [i for i in range(ROWS) if keep(i)]


def test_limit_returns_the_first_rows(table: Table) -> None:
    assert table.read(limit=5).to_pylist() == expected(lambda i: i < 5)
    assert table.read(limit=3, filter=col("i") > 20).to_pylist() == expected(lambda i: 20 < i < 24)


def test_deleted_rows_are_not_returned(storage: Storage, encoding: str) -> None:
    table = Table(storage, metadata(LOGICAL))
    gone = [0, 5, 17, 39]
    vector = encode_inline(DeletionVector.from_positions(gone))
    table.add(written(encoding, poisoned(CONTENT, gone)), deletion_vector=vector, removed=gone)
    assert table.read().to_pylist() == expected(lambda i: i not in (0, 5, 17, 39))
    assert table.read(columns=[]).num_rows == ROWS - 4
    assert table.read(filter=col("s").is_null()).to_pylist() == expected(lambda i: i % 7 == 3 and i != 17)


def test_pandas_frame_has_the_values_of_every_encoding(table: Table) -> None:
    plan = table.plan(filter=col("i") < 30)
    frame = to_pandas(plan.output_schema, Batches(plan), "numpy", plan.known_rows)
    assert frame["i"].tolist() == list(range(30))
    assert [None if value != value else value for value in frame["s"]] == [row(i)["s"] for i in range(30)]


def test_change_feed_has_the_rows(storage: Storage, encoding: str) -> None:
    blob = written(encoding)
    kinds = CONTENT.append_column("_change_type", pa.array(["update_postimage"] * ROWS))
    storage.put("plain", blob)
    storage.put("cdc", written(encoding, kinds))
    url, size = storage.url("plain", "a"), len(blob)
    gone = encode_inline(DeletionVector.from_positions([2, 4]))
    actions = [
        SharedFile(AddFile(url, size=size), "f", version=1, timestamp=5),
        SharedFile(RemoveFile(url, size=size), "f", version=2, timestamp=5),
        SharedFile(AddFile(url, size=size, deletion_vector=gone), "f", version=2, timestamp=5),
        SharedFile(AddCdcFile(storage.url("cdc", "c")), "c", version=3, timestamp=5),
    ]
    request = ChangesRequest(starting_version=0, filter=col("_commit_version") != 7)
    changes = rows_of(plan_changes(table_state(metadata(LOGICAL)), actions, request, fast_options()))
    kinds_by_id = list(zip(changes["i"].to_pylist(), changes["_change_type"].to_pylist(), strict=True))
    assert kinds_by_id == [
        *((i, "insert") for i in range(ROWS)),
        (2, "delete"),
        (4, "delete"),
        *((i, "update_postimage") for i in range(ROWS)),
    ]
    assert changes.select(LOGICAL.names).slice(0, ROWS).to_pylist() == expected()


def test_undecodable_arrow_schema_does_not_prevent_reading(storage: Storage) -> None:
    table = Table(storage, metadata(LOGICAL))
    table.add(with_arrow_schema(CONTENT, b"bm90IGFuIEFycm93IHNjaGVtYQ=="))
    assert table.read(filter=col("i") == 1).to_pylist() == expected(lambda i: i == 1)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_duration_keeps_the_unit_of_the_arrow_schema(storage: Storage, unit: str) -> None:
    schema = pa.schema([("d", pa.duration("us")), ("s", pa.string())])
    table = Table(storage, metadata(schema))
    content = pa.table({"d": pa.array([1000, None], pa.duration(unit)), "s": pa.array(["a", "b"], pa.large_string())})
    table.add(content)
    assert table.read()["d"].to_pylist() == content["d"].cast(pa.duration("us")).to_pylist()
