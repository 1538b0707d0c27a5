"""Reads from coroutines: on any loop, concurrently, and cancelled."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.run import loop
from delta_sharing_client.run.batches import AsyncBatches
from tests.unit.storages import Table, fast_options, metadata, running_storage, wait_for

ORDERS = "demo.shop.orders"


@pytest.fixture
def client(serve_demo: Any) -> ds.SharingClient:
    return ds.SharingClient(serve_demo.profile)


def idle() -> bool:
    return not asyncio.all_tasks(loop.current().loop)


def test_async_outputs_equal_blocking_outputs(client: ds.SharingClient) -> None:
    scan = client.table(ORDERS).scan(filter="amount > 100")
    first = client.table(ORDERS).scan(limit=3)

    async def read() -> None:
        async with scan.to_batches_async() as batches:
            rows = pa.Table.from_batches([batch async for batch in batches], await batches.schema())
        assert rows.equals(scan.to_arrow())
        assert (await scan.to_arrow_async()).equals(rows)
        assert (await scan.to_pandas_async()).equals(scan.to_pandas())
        assert (await scan.to_polars_async()).equals(scan.to_polars())
        assert await scan.count_async() == rows.num_rows > 0
        assert (await first.to_arrow_async()).num_rows == 3
        assert await client.list_shares_async() == client.list_shares()
        (share,) = client.list_shares()
        assert await client.list_schemas_async(share) == client.list_schemas(share)
        assert await client.list_tables_async("demo.shop") == client.list_tables("demo.shop")
        assert await client.list_all_tables_async() == client.list_all_tables()

    anyio.run(read, backend="asyncio")


@pytest.mark.parametrize("rows", [1_000, 100_000, 1, 2755])
def test_batches_have_the_requested_number_of_rows(client: ds.SharingClient, rows: int) -> None:
    scan = client.table(ORDERS).scan(columns=["order_id"])

    async def read() -> None:
        async with scan.to_batches_async(rows=rows) as batches:
            results = [batch async for batch in batches]
            with pytest.raises(StopAsyncIteration):
                await anext(batches)
        assert [batch.num_rows for batch in results] == [batch.num_rows for batch in scan.to_batches(rows=rows)]
        assert pa.Table.from_batches(results).equals(scan.to_arrow())

    asyncio.run(read())
    with pytest.raises(ds.UsageError, match="'rows' must be a whole number of 1 or more, found 0"):
        scan.to_batches_async(rows=0)


def test_read_in_batches_of_three_rows_ends_when_closed(slow: Table) -> None:
    async def read() -> None:
        batches = AsyncBatches(lambda: slow.plan(options=fast_options()), ScanReport(), rows=3)
        assert [(await anext(batches)).num_rows for _ in range(2)] == [3, 3]
        await batches.aclose()
        with pytest.raises(ds.UsageError, match="it was closed"):
            await anext(batches)

    asyncio.run(read())
    wait_for(idle)


def test_loops_in_two_threads_read_concurrently(client: ds.SharingClient) -> None:
    expected = client.table(ORDERS).scan().count()
    counts: list[int] = []

    async def read() -> None:
        scans = [client.table(ORDERS).scan() for _ in range(3)]
        tables = await asyncio.gather(*(scan.to_arrow_async() for scan in scans))
        counts.extend(table.num_rows for table in tables)
        async with scans[0].to_batches_async() as batches:
            counts.append(sum([batch.num_rows async for batch in batches]))

    threads = [threading.Thread(target=lambda: asyncio.run(read())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [expected] * 8


@pytest.fixture
def slow() -> Iterator[Table]:
    with running_storage() as storage:
        table = Table(storage, metadata(pa.schema([("id", pa.int64())])))
        for number in range(50):
            table.add(pa.table({"id": [number]}))
        storage.latency = 0.2
        yield table


async def take_all(batches: AsyncBatches) -> None:
    async for _ in batches:
        pass


@pytest.mark.parametrize("way", ["cancelled", "closed", "dropped", "timed out"])
def test_closing_a_read_cancels_requests_in_flight(slow: Table, way: str) -> None:
    plan = slow.plan(options=fast_options(max_concurrent_requests=2))

    async def read() -> None:
        batches = AsyncBatches(lambda: plan, ScanReport())
        await anext(batches)
        if way == "closed":
            await batches.aclose()
            with pytest.raises(ds.UsageError, match="it was closed"):
                await anext(batches)
        elif way == "dropped":
            del batches
            gc.collect()
        elif way == "timed out":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(take_all(batches), 0.3)
        else:
            task = asyncio.create_task(take_all(batches))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(read())
    wait_for(idle)
    assert len(slow.storage.requests) < 20


def test_cancelling_an_output_ends_the_read(serve_demo: Any) -> None:
    options = ds.ReadOptions(max_concurrent_requests=1)
    scan = ds.SharingClient(serve_demo.profile, options).table(ORDERS).scan()

    async def read() -> None:
        task = asyncio.create_task(scan.to_pandas_async())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(read())
    wait_for(idle)


def test_async_errors_equal_blocking_errors(client: ds.SharingClient) -> None:
    async def read() -> None:
        missing = client.table("demo.shop.nothing").scan()
        with pytest.raises(ds.NotFoundError):
            await missing.to_arrow_async()
        with pytest.raises(ds.NotFoundError):
            await anext(missing.to_batches_async())
        with pytest.raises(ds.NotFoundError):
            await client.list_schemas_async("nothing")

    asyncio.run(read())


def test_empty_async_read_ends_at_once(client: ds.SharingClient) -> None:
    async def read() -> list[pa.RecordBatch]:
        async with client.table(ORDERS).scan(limit=0).to_batches_async() as batches:
            return [batch async for batch in batches]

    assert asyncio.run(read()) == []


def test_unsupported_event_loop_is_an_error(client: ds.SharingClient) -> None:
    """Trio, for example, runs coroutines without an asyncio event loop."""
    scan = client.table(ORDERS).scan()
    for coroutine in (
        scan.to_arrow_async(),
        scan.count_async(),
        client.list_shares_async(),
        scan.to_batches_async().schema(),
        anext(scan.to_batches_async()),
    ):
        with pytest.raises(ds.UsageError, match=r"need an asyncio event loop.*trio\.to_thread\.run_sync"):
            coroutine.send(None)  # type: ignore[attr-defined]

    async def on_a_loop_that_runs_it_otherwise() -> None:
        # A loop is running, but this coroutine is not one of its tasks.
        coroutine, loop = scan.to_arrow_async(), asyncio.get_running_loop()
        outcome = loop.create_future()

        def step() -> None:
            try:
                coroutine.send(None)
            except BaseException as error:
                outcome.set_result(error)

        loop.call_soon(step)
        assert isinstance(await outcome, ds.UsageError)

    asyncio.run(on_a_loop_that_runs_it_otherwise())
