"""The outputs of a read for coroutines, so that a web service can read tables without blocking its event loop."""

from __future__ import annotations

import abc
import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.tasks import Plan
from delta_sharing_client.run.batches import AsyncBatches, check_rows
from delta_sharing_client.run.loop import asynchronously
from delta_sharing_client.run.progress import progress_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from delta_sharing_client.protocol.names import AssetName


class AsyncOutputs(abc.ABC):
    """The asynchronous outputs of ``Read``."""

    table: AssetName
    options: ReadOptions
    _reports: list[ScanReport]

    @abc.abstractmethod
    def _stream(self, options: ReadOptions | None = None) -> Plan: ...

    @abc.abstractmethod
    def to_arrow(self) -> pa.Table: ...

    @abc.abstractmethod
    def to_pandas(self, dtype_backend: str | None = None) -> pd.DataFrame: ...

    @abc.abstractmethod
    def to_polars(self) -> pl.DataFrame: ...

    @abc.abstractmethod
    def count(self) -> int: ...

    def to_batches_async(self, *, rows: int | None = None) -> AsyncBatches:
        """Return the rows as an asynchronous iterator of Arrow record batches, like ``to_batches``.

        It works on any event loop, for one coroutine, and is an asynchronous context manager. ``aclose``, cancelling
        the waiting task, and dropping the iterator end the read. ``rows`` as for ``to_batches``. Errors as
        ``to_batches``.

        Examples
        --------
        >>> import asyncio
        >>> async def count(scan):
        ...     async with scan.to_batches_async() as batches:
        ...         return sum([batch.num_rows async for batch in batches])
        >>> asyncio.run(count(table.scan()))
        2755
        """
        check_rows(rows)
        report = ScanReport()
        self._reports[:] = [report]
        begin = functools.partial(progress_of, report, title=f"reading {self.table}", wanted=self.options.progress)
        return AsyncBatches(self._stream, report, begin, rows=rows)

    async def to_arrow_async(self) -> pa.Table:
        """Like ``to_arrow``, for a coroutine; runs on a thread. Cancelling it ends the read. Errors as ``to_arrow``."""
        return await asynchronously(self.to_arrow)

    async def to_pandas_async(self, dtype_backend: str | None = None) -> pd.DataFrame:
        """Like ``to_pandas``, for a coroutine. Errors as ``to_pandas``."""
        return await asynchronously(lambda: self.to_pandas(dtype_backend))

    async def to_polars_async(self) -> pl.DataFrame:
        """Like ``to_polars``, for a coroutine. Errors as ``to_polars``."""
        return await asynchronously(self.to_polars)

    async def count_async(self) -> int:
        """Like ``count``, for a coroutine. Errors as ``count``."""
        return await asynchronously(self.count)
