"""The outputs of a read for coroutines: a web service reads tables without blocking its event loop."""

from __future__ import annotations

import abc
import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.tasks import ScanPlan, ScanStream
from delta_sharing_client.run.batches import AsyncBatches, asynchronously
from delta_sharing_client.run.progress import progress_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from delta_sharing_client.protocol.names import TableName


class AsyncOutputs(abc.ABC):
    """What ``Read`` adds to its outputs for coroutines."""

    table: TableName
    options: ReadOptions
    _reports: list[ScanReport]

    @abc.abstractmethod
    def _stream(self, options: ReadOptions | None = None) -> ScanPlan | ScanStream: ...

    @abc.abstractmethod
    def to_arrow(self) -> pa.Table: ...

    @abc.abstractmethod
    def to_pandas(self, dtype_backend: str | None = None) -> pd.DataFrame: ...

    @abc.abstractmethod
    def to_polars(self) -> pl.DataFrame: ...

    @abc.abstractmethod
    def count(self) -> int: ...

    def to_batches_async(self) -> AsyncBatches:
        """Return the rows as an asynchronous iterator of Arrow record batches, as ``to_batches`` does.

        It works on any event loop, for one coroutine, and is an asynchronous context manager. ``aclose``, cancelling
        whoever waits for a batch, and dropping the iterator end the read. Errors as ``to_batches``, the server's too.

        Examples
        --------
        >>> import asyncio
        >>> from delta_sharing_client import SharingClient
        >>> async def count(scan):
        ...     async with scan.to_batches_async() as batches:
        ...         return sum([batch.num_rows async for batch in batches])
        >>> asyncio.run(count(SharingClient("demo.share").table("demo.shop.orders").scan()))
        2755
        """
        report = ScanReport()
        self._reports[:] = [report]
        begin = functools.partial(progress_of, report, title=f"reading {self.table}", wanted=self.options.progress)
        return AsyncBatches(self._stream, report, begin)

    async def to_arrow_async(self) -> pa.Table:
        """As ``to_arrow``, for a coroutine, on a thread; cancelling it ends the read. Errors as ``to_arrow``."""
        return await asynchronously(self.to_arrow)

    async def to_pandas_async(self, dtype_backend: str | None = None) -> pd.DataFrame:
        """As ``to_pandas``, for a coroutine. Errors as ``to_pandas``."""
        return await asynchronously(lambda: self.to_pandas(dtype_backend))

    async def to_polars_async(self) -> pl.DataFrame:
        """As ``to_polars``, for a coroutine. Errors as ``to_polars``."""
        return await asynchronously(self.to_polars)

    async def count_async(self) -> int:
        """As ``count``, for a coroutine. Errors as ``count``."""
        return await asynchronously(self.count)
