"""Strings in structs, lists and maps, in files with skipped pages.

The oracle is pyarrow, which reads the whole file.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from delta_sharing_client.decode import decoder
from delta_sharing_client.decode import page_choice as page_plan
from delta_sharing_client.decode.decoder import FileDecoder, ParquetBytes, Selection
from delta_sharing_client.decode.layout import Shape, lay_out
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.parquet.byte_ranges import ByteBlock, SparseFile, merge
from delta_sharing_client.parquet.footer import open_file
from delta_sharing_client.predicates.tree import col
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.storages import Storage, Table, fast_options, metadata, parquet_bytes

MakeTable = Callable[..., Table]
MB = 1024 * 1024

STEP = 40
PAGES = 5
ROWS = STEP * PAGES
WRITTEN = {"write_page_index": True, "data_page_size": 1, "write_batch_size": STEP, "row_group_size": ROWS}

TEXTS: dict[str, Callable[[int], str]] = {
    "short": lambda row: f"{row % 7}",
    "distinct": lambda row: f"{row:09}",
    "long": lambda row: f"{row % 40:04}" + "x" * (300 + row % 7),
    "huge": lambda row: f"{row % 3}" + "y" * 45_000,
    "one huge": lambda row: "z" * 300_000 if row == 77 else f"{row % 9}",
    "empty": lambda row: "",
}


@dataclasses.dataclass(frozen=True)
class Nesting:
    """A nested column with one string per row."""

    type: Callable[[pa.Field], pa.DataType]
    value: Callable[[int, str | None], Any]
    has_nulls: bool = False


def unless(condition: bool, value: Any) -> Any:
    return None if condition else value


NUMBER = pa.field("b", pa.int64(), False)
NESTINGS = {
    "flat": Nesting(lambda text: text.type, lambda row, text: text),
    "struct": Nesting(lambda text: pa.struct([text, NUMBER]), lambda row, text: {"a": text, "b": row}),
    "optional struct": Nesting(
        lambda text: pa.struct([text, NUMBER]),
        lambda row, text: unless(row % 11 == 5, {"a": text, "b": row}),
        has_nulls=True,
    ),
    "structs": Nesting(
        lambda text: pa.struct([pa.field("s", pa.struct([text]))]),
        lambda row, text: unless(row % 11 == 5, {"s": unless(row % 13 == 1, {"a": text})}),
        has_nulls=True,
    ),
    "list": Nesting(
        lambda text: pa.list_(text.with_name("element")),
        lambda row, text: unless(row % 11 == 5, [text] * (row % 3)),
        has_nulls=True,
    ),
    "list of structs": Nesting(
        lambda text: pa.list_(pa.field("element", pa.struct([text, NUMBER]))),
        lambda row, text: [{"a": text, "b": row}] * (row % 3),
    ),
    "struct of a list": Nesting(
        lambda text: pa.struct([text, pa.field("l", pa.list_(text.with_name("element")))]),
        lambda row, text: {"a": text, "l": [text] * (row % 3)},
    ),
    "map": Nesting(
        lambda text: pa.map_(pa.string(), text.with_name("value")),
        lambda row, text: unless(row % 11 == 5, [(f"k{row % 5}", text)] * (row % 2)),
        has_nulls=True,
    ),
}  # fmt: skip


def column(name: str, nesting: Nesting, kind: str, optional: bool, *, categories: bool) -> tuple[pa.Field, pa.Array]:
    """Return the table's field for a column, and its values in the file."""
    texts = [None if optional and row % 17 == 3 else TEXTS[kind](row) for row in range(ROWS)]
    values = [nesting.value(row, text) for row, text in enumerate(texts)]
    is_optional = optional or nesting.has_nulls
    field = pa.field(name, nesting.type(pa.field("a", pa.string(), optional)), is_optional)
    if not categories:
        return field, pa.array(values, field.type)
    indices = pa.dictionary(pa.int32(), pa.string())
    if nesting is NESTINGS["flat"]:
        return field, pa.array(values, pa.string()).cast(indices)
    stored = pa.StructArray.from_arrays(
        [pa.array(texts, pa.string()).cast(indices), pa.array(range(ROWS), pa.int64())],
        fields=[pa.field("a", indices, optional), NUMBER],
        mask=pa.array([value is None for value in values]) if nesting.has_nulls else None,
    )
    return field, stored


def written(columns: list[tuple[pa.Field, pa.Array]], **write: Any) -> bytes:
    fields = [pa.field(field.name, array.type, field.nullable) for field, array in columns]
    content = pa.Table.from_arrays([array for _, array in columns], schema=pa.schema(fields))
    return parquet_bytes(content, **WRITTEN, **write)


class SomePages:
    """A file of one row group, some of whose pages are read."""

    def __init__(self, blob: bytes, schema: pa.Schema, **options: int) -> None:
        self.blob = blob
        table = Table(Storage(), metadata(schema))
        table.add(blob)
        plan = table.plan(options=fast_options(**options))
        self.schema = plan.output_schema
        self.task = next(iter(plan.tasks))
        self.shape = Shape(plan.context)
        self.footer, _ = open_file(pa.py_buffer(blob))
        whole = SparseFile(len(blob), [ByteBlock(0, pa.py_buffer(blob))]).slice
        self.layout = page_plan.with_index(lay_out(self.shape, self.task, self.footer), 0, whole)
        self.index = self.layout.index[0]()

    def read(self, rows: page_plan.Rows) -> tuple[pa.Table, int]:
        """Return ``rows``, and the number of pages that were skipped."""
        pages = page_plan.group_pages(self.layout, 0, rows, self.index)
        layout = dataclasses.replace(self.layout, pages={0: pages})
        # The decoder has only the bytes of these pages.
        blocks = [ByteBlock(item.start, pa.py_buffer(self.blob[slice(*item)])) for item in merge(layout.ranges((0,)))]
        kept, replaced = page_plan.rebuild(layout, (0,), blocks, SparseFile(len(self.blob), blocks).slice)
        data = ParquetBytes(len(self.blob), kept, self.footer.metadata, replaced)
        decoder = FileDecoder(self.shape, self.task, layout, Selection(None, None), ScanReport())
        batches = list(decoder.batches(data, (0,), threads=False))
        skipped = sum(item.pages.number - len(item.kept) for item in pages.chunks.values())
        return pa.Table.from_batches(batches, self.schema), skipped


SUBSETS = [
    tuple((page * STEP, (page + 1) * STEP) for page in kept)
    for size in range(1, PAGES + 1)
    for kept in itertools.combinations(range(PAGES), size)
]


@meets(optional=8, required=8, huge=6, structs=8, categories=3, skipped=500)
@given(
    nesting=st.sampled_from(sorted(NESTINGS)),
    kind=st.sampled_from(sorted(TEXTS)) | st.just("huge"),
    optional=st.booleans(),
    categories=st.booleans(),
    write=st.fixed_dictionaries({
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "use_dictionary": st.sampled_from([True, True, False]),
        # Its writer may abandon a dictionary between two pages.
        "dictionary_pagesize_limit": st.sampled_from([1000, 200_000, 4 * MB]),
        "compression": st.sampled_from(["NONE", "zstd"]),
    }),
    in_flight=st.sampled_from([8 * MB, 256 * MB]),
)  # fmt: skip
@settings(max_examples=examples(75), deadline=None)
def test_rows_are_correct_whichever_pages_are_skipped(
    nesting: str, kind: str, optional: bool, categories: bool, write: dict[str, Any], in_flight: int
) -> None:
    categories = categories and nesting in ("flat", "struct", "optional struct")
    made = [
        column("c", NESTINGS[nesting], kind, optional, categories=categories),
        column("other", NESTINGS["flat"], "short", not optional, categories=False),
    ]
    schema = pa.schema([field for field, _ in made])
    blob = written(made, **write)
    oracle = pq.ParquetFile(pa.BufferReader(blob)).read().cast(schema)
    met("optional" if optional else "required")
    met("huge", kind == "huge")
    met("structs", "struct" in nesting)
    met("categories", categories)
    file = SomePages(blob, schema, max_bytes_in_flight=in_flight)
    for rows in SUBSETS:
        found, skipped = file.read(rows)
        met("skipped", skipped)
        wanted = pa.concat_tables(oracle.slice(start, stop - start) for start, stop in rows)
        assert found.cast(schema).equals(wanted)


# === Reads from a server ===


@pytest.mark.parametrize("start", [30_000, 150_000])
def test_filter_skips_pages_of_long_strings_in_a_struct(make_table: MakeTable, start: int) -> None:
    """The limits keep their defaults: the file is large enough to skip pages."""
    texts = [f"{number:04}" + "x" * (300 + number % 7) for number in range(2800)]
    rows = pa.array(range(200_000))
    structs = pa.StructArray.from_arrays([pa.array(texts * 72).slice(0, len(rows)), rows], ["a", "b"])
    content = pa.table({"id": rows, "s": structs})
    table = make_table(content.schema)
    table.add(
        content,
        write={"write_page_index": True, "dictionary_pagesize_limit": 2 * MB, "data_page_size": 64 * 1024},
    )
    report = ScanReport()
    matching = table.read(report, filter=(col("id") >= start) & (col("id") < start + 500))
    assert matching.equals(content.slice(start, 500).cast(matching.schema))
    assert report.pages_skipped > 10


def test_only_strings_of_kept_pages_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The strings are so long that the length of each one is measured."""
    measured: list[tuple[bool, list[float]]] = []
    text_lengths = decoder._text_lengths

    def spy(*arguments: Any) -> Any:
        lengths = text_lengths(*arguments)
        measured.append((arguments[3].indices_first, lengths.tolist()))
        return lengths

    monkeypatch.setattr(decoder, "_text_lengths", spy)
    for optional, replaced in ((True, True), (False, False)):
        columns = [column("c", NESTINGS["struct"], "huge", optional, categories=False)]
        schema = pa.schema([field for field, _ in columns])
        file = SomePages(written(columns), schema, max_bytes_in_flight=8 * MB)
        rows = (STEP, 2 * STEP)
        assert file.read((rows,))[0]["c"].to_pylist() == columns[0][1].to_pylist()[slice(*rows)]
        is_indices, lengths = measured.pop()
        assert is_indices is replaced
        texts = [value["a"] or "" for value in columns[0][1].to_pylist()]
        assert lengths == [len(text) if row in range(*rows) else 0 for row, text in enumerate(texts)]
    assert not measured
