"""Small files with large content: memory stays below a multiple of ``max_bytes_in_flight``, or the file is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from delta_sharing_client.decode import decoder, whole_file
from delta_sharing_client.decode.align import FileColumn
from delta_sharing_client.errors import DataError, OutOfMemoryError
from delta_sharing_client.parquet import footer
from delta_sharing_client.parquet.reader import open_reader
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.shortcuts import SHORTCUTS
from tests.unit.storages import Storage, Table, fast_options, metadata

IN_FLIGHT = 8 * 1024 * 1024
# The maximum memory as a multiple of the option: for bytes and rows in flight, and a batch in each decoder.
MULTIPLE = 3
# The pools are kept: a decoder may free its last batch after the test, and Arrow does not keep a buffer's pool alive.
_pools: list[pa.MemoryPool] = []


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[pa.MemoryPool]:
    monkeypatch.setattr(SHORTCUTS, "tight_memory", False)  # so that one pool counts all memory
    before = pa.default_memory_pool()
    own = pa.proxy_memory_pool(before)
    _pools.append(own)
    pa.set_memory_pool(own)
    yield own
    pa.set_memory_pool(before)


def texts() -> pa.Table:
    return pa.table({"c": pa.array(["x" * 10_000] * 8_000)})


def nested_texts() -> pa.Table:
    return pa.table({"c": pa.array([[None, "x" * 10_000]] * 8_000)})


def one_long_text() -> pa.Table:
    return pa.table({"c": pa.array(["x" * 1_000_000, *("y" * (i % 7) for i in range(3_000))] * 40)})


def lists() -> pa.Table:
    return pa.table({"c": pa.array([[0] * 20_000], pa.list_(pa.int64())).take(pa.array([0] * 500))})


def numbers() -> pa.Table:
    return pa.table({"c": pa.array([7]).take(pa.array([0] * 10_000_000, pa.int32()))})


@pytest.mark.parametrize("content", [texts, nested_texts, one_long_text, lists, numbers])
@pytest.mark.parametrize("request_", [{}, {"filter": col("c").is_not_null()}], ids=["all", "filter"])
def test_highly_compressed_data_is_read_in_small_batches(
    storage: Storage, pool: pa.MemoryPool, content: Callable[[], pa.Table], request_: dict[str, Any]
) -> None:
    rows_written = content()
    table = Table(storage, metadata(rows_written.schema))
    add = table.add(rows_written, write={"compression": "zstd"})
    rows, size = rows_written.num_rows, rows_written.nbytes
    assert size > 100 * (add.action.size or size)
    assert size > 4 * IN_FLIGHT
    del rows_written
    before = pool.bytes_allocated()
    options = fast_options(max_bytes_in_flight=IN_FLIGHT)
    rows_read = peak = 0
    for batch in Batches(table.plan(options=options, **request_)):
        rows_read += batch.num_rows
        peak = max(peak, pool.bytes_allocated() - before)
    assert rows_read == rows
    assert peak < MULTIPLE * IN_FLIGHT


def test_page_that_expands_past_the_memory_limit_is_refused(storage: Storage) -> None:
    content = pa.table({"c": pa.array(["x" * 50_000_000])})
    table = Table(storage, metadata(content.schema))
    table.add(content, write={"compression": "zstd", "use_dictionary": False})
    with pytest.raises(DataError, match=r"A page of the column 'c' unpacks to 500.* bytes.*'max_bytes_in_flight'.*id-"):
        list(Batches(table.plan(options=fast_options(max_bytes_in_flight=IN_FLIGHT))))
    assert sum(batch.num_rows for batch in Batches(table.plan())) == 1


def test_oversized_footer_is_refused_before_it_is_fetched(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footer, "MAX_FOOTER", 1000)
    content = pa.table({f"c{i}": [i] for i in range(200)})
    table = Table(storage, metadata(content.schema))
    table.add(content)
    with pytest.raises(DataError, match=r"The Parquet footer must have at most 1000 bytes, found \d+"):
        table.read(columns=["c1"])


def arrow_errors() -> list[type[Exception]]:
    kinds, pending = set(), [pa.ArrowException]
    while pending:
        kinds.add(kind := pending.pop())
        pending += kind.__subclasses__()
    return sorted(kinds | {OSError, MemoryError}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", arrow_errors(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("place", ["opening", "decoding", "decoding all", "converting", "footer"])
def test_every_arrow_error_becomes_our_error(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], place: str
) -> None:
    table = Table(storage, metadata(pa.schema([("c", pa.string())])))
    table.add(pa.table({"c": ["one"]}))
    opened: list[Any] = []

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise kind("of Arrow")

    def counted(*args: Any, **kwargs: Any) -> Any:
        opened.append(args)
        if place == "footer" or (place == "opening" and len(opened) == 2):
            fails()
        reader = open_reader(*args, **kwargs)
        if place == "decoding all" or (place == "decoding" and len(opened) == 2):
            return mock.Mock(metadata=reader.metadata, schema_arrow=reader.schema_arrow, iter_batches=fails)
        return reader

    if place in ("opening", "decoding"):
        monkeypatch.setattr(whole_file, "_LARGEST_WHOLE", 0)  # reads the footer first and opens the file again later
    if place == "converting":
        monkeypatch.setattr(FileColumn, "apply", fails)
    else:
        monkeypatch.setattr(footer, "open_reader", counted)
        monkeypatch.setattr(decoder, "open_reader", counted)
    lacks_memory = issubclass(kind, MemoryError)
    words = "refused memory" if lacks_memory else "of Arrow"
    with pytest.raises(OutOfMemoryError if lacks_memory else DataError) as caught:
        table.read()
    assert re.search(rf"{words}.*\(table share.schema.t, file id-part-0.parquet\)", str(caught.value))
