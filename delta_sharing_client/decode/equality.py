"""Finds the rows that equality deletes delete by their values (Iceberg, "Equality Delete Files").

A row is deleted if its values in the delete columns equal those of a row in a delete file. Null equals null, NaN equals
NaN, and zeros of different sign differ. Each column's values are replaced by numbers, so that all rows of a file are
compared at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.decode.align import Aligner
from delta_sharing_client.decode.layout import delete_column
from delta_sharing_client.decode.missing_columns import nulls
from delta_sharing_client.delta.actions import EqualityDeletesRef
from delta_sharing_client.delta.column_mapping import ColumnMappingMode
from delta_sharing_client.delta.data_types import WAS_UNKNOWN_KEY
from delta_sharing_client.errors import DataError, about_file, check_memory
from delta_sharing_client.fetch.report import Timed
from delta_sharing_client.fetch.source import Fetcher, RemoteFile
from delta_sharing_client.options import VariantAs
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.footer import open_file
from delta_sharing_client.parquet.reader import ARROW_ERRORS, open_reader
from delta_sharing_client.plan.tasks import FileTask, ScanContext


class DeletedValues:
    """The rows of delete files that have the same columns. Finds the rows of a data file that equal none of them."""

    def __init__(self, ids: tuple[int, ...], columns: Sequence[pa.Array]) -> None:
        self.ids = ids
        # The distinct values of each column. For each later column also the distinct pairs of two numbers: one for the
        # values of all columns before it, and one for its own value.
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        codes: pa.Array | None = None
        for column in map(comparable, columns):
            self._values.append(values := pc.unique(column))
            own = _codes(column, values)
            if codes is not None:
                pair = _pair(codes, own, len(values))
                self._pairs.append(pc.unique(pair))
                own = _codes(pair, self._pairs[-1])
            codes = own

    def kept(self, columns: Sequence[pa.Array]) -> pa.BooleanArray:
        """Return which rows of a data file stay; ``columns`` are their values in the delete columns."""
        first, *others = (
            _codes(comparable(column), values) for column, values in zip(columns, self._values, strict=True)
        )
        codes = first
        for own, values, pairs in zip(others, self._values[1:], self._pairs, strict=True):
            codes = pc.index_in(_pair(codes, own, len(values)), value_set=pairs, skip_nulls=True)
        return pc.is_null(codes)


def _codes(column: pa.Array, values: pa.Array) -> pa.Array:
    """Return the position of each row's value in ``values``, null if it is not there."""
    return pc.index_in(column, value_set=values, skip_nulls=False)


def _pair(before: pa.Array, own: pa.Array, count: int) -> pa.Array:
    """Return one number for each pair of positions; the second position of each pair is below ``count``."""
    return pc.add(pc.multiply(before.cast(pa.int64()), pa.scalar(count, pa.int64())), own.cast(pa.int64()))


def comparable(array: pa.Array) -> pa.Array:
    """Convert an array so that Arrow treats two values as equal exactly if equality deletes do."""
    if not pa.types.is_floating(array.type):
        return array
    # Floats are compared by their bits, because Arrow's hashing decides whether zeros of different sign are equal.
    bits = pa.int32() if array.type == pa.float32() else pa.int64()
    one = pa.scalar(np.nan, array.type)
    return pc.if_else(pc.is_nan(array), one, array).view(bits)


class EqualityDeletes:
    """Downloads and decodes the delete files of a read, each once. Must be used on one event loop."""

    def __init__(self, context: ScanContext, fetcher: Fetcher) -> None:
        self._context = context
        self._fetcher = fetcher
        self._files: dict[str, asyncio.Future[pa.Table]] = {}
        self._values: dict[tuple[object, ...], asyncio.Future[DeletedValues]] = {}

    async def of(self, task: FileTask, number: int) -> list[DeletedValues]:
        """Return the values that delete rows of ``task``, one item for each set of delete columns.

        ``number`` is the task's position in the read.

        Raises ``DataError`` for a damaged delete file, and the errors of the storage.
        """
        by_ids: dict[tuple[int, ...], list[EqualityDeletesRef]] = {}
        for ref in task.equality:
            by_ids.setdefault(ref.ids, []).append(ref)
        deletes = []
        for ids, refs in by_ids.items():
            key = (ids, *(ref.url for ref in refs))
            if key not in self._values:
                self._values[key] = asyncio.ensure_future(self._combined(ids, refs, number))
            deletes.append(await self._values[key])
        return deletes

    async def _combined(self, ids: tuple[int, ...], refs: Sequence[EqualityDeletesRef], number: int) -> DeletedValues:
        for ref in refs:
            if ref.url not in self._files:
                self._files[ref.url] = asyncio.ensure_future(self._fetch(ref, number))
        tables = [await self._files[ref.url] for ref in refs]

        def combine() -> DeletedValues:
            columns = [
                pa.concat_arrays([table.column(place).chunk(0) for table in tables]) for place in range(len(ids))
            ]
            return DeletedValues(ids, columns)

        return await asyncio.to_thread(combine)

    async def _fetch(self, ref: EqualityDeletesRef, number: int) -> pa.Table:
        file = RemoteFile(self._fetcher, key=ref.url, url=ref.url, size=ref.size, file_id=ref.file_id, order=(number,))
        with Timed(self._fetcher.report, "fetch"):
            data = await file.read(ByteRange(0, ref.size))
        with about_file(self._context.table, ref.file_id):
            return await asyncio.to_thread(self._decoded, data, ref)

    def _decoded(self, data: pa.Buffer, ref: EqualityDeletesRef) -> pa.Table:
        try:
            return self._columns(data, ref)
        except ARROW_ERRORS as error:
            check_memory(error)
            raise DataError("The equality delete file is damaged: its Parquet data cannot be decoded.") from None

    def _columns(self, data: pa.Buffer, ref: EqualityDeletesRef) -> pa.Table:
        footer, _ = open_file(data)
        if footer.metadata.num_rows != ref.records:
            raise DataError(
                f"The manifest states {ref.records} rows for the equality delete file, but the file's footer states "
                f"{footer.metadata.num_rows}."
            )
        names = self._context.name_mapping
        aligner = Aligner(footer.arrow, ColumnMappingMode.ID, VariantAs.STRUCT, names=names, int96=footer.int96)
        items = [delete_column(self._context, field_id) for field_id in ref.ids]
        files = [aligner.column(item) for item in items]
        for field_id, item, file in zip(ref.ids, items, files, strict=True):
            if not file.leaves and not item.metadata.get(WAS_UNKNOWN_KEY):
                raise DataError(f"The equality delete file has no column with the field id {field_id}.")
        leaves = sorted({leaf for file in files for leaf in file.leaves})
        tops = {top: place for place, top in enumerate(sorted({file.top for file in files if file.leaves}))}
        reader = open_reader(pa.BufferReader(data), footer.metadata)
        groups = list(range(footer.metadata.num_row_groups))
        table = reader.read_row_groups(groups, column_indices=leaves)
        columns = [
            leaf_of(file.apply(_whole(table.column(tops[file.top]))) if file.leaves else nulls(ref.records, file.type))
            for file in files
        ]
        return pa.table(columns, names=[str(field_id) for field_id in ref.ids])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def leaf_of(array: pa.Array) -> pa.Array:
    """Return the values of the only leaf column of the nested structs in ``array``; null where a struct is null."""
    while pa.types.is_struct(array.type):
        array = pc.struct_field(array, [0])
    return array
