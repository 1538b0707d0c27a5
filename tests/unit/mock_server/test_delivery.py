"""How responses are sent: all of them share the bandwidth, and each is delayed by the latency."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from mock_server.connection import Connection, ServingProtocol
from mock_server.table_writer import TableWriter
from mock_server.throttle import Throttle
from tests.time_limits import Stopwatch
from tests.unit.mock_server.helpers import Api, Protocol, at, table

RATE = 400_000


def large_table(root: Path) -> Path:
    """Write two incompressible files of about 100 kB each."""
    writer = TableWriter(root / "t")
    numbers = [(number * 2_654_435_761) ** 3 % 2**63 for number in range(12_000)]
    files = [writer.add(pa.table({"id": pa.array(part, pa.int64())}), time=at(0)) for part in (numbers, numbers[::-1])]
    writer.commit([Protocol(1, 2), table("t"), *files], "WRITE", at(0))
    return root


def seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def together(api: Api, urls: list[str]) -> int:
    sizes: list[int] = []
    threads = [threading.Thread(target=lambda url=url: sizes.append(len(api.fetch(url).content))) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(sizes)


def test_bandwidth_limits_the_sum_of_all_responses(start: Callable[..., Api], tmp_path: Path) -> None:
    own = start(large_table(tmp_path), bandwidth=RATE)
    urls = own.query("t").urls
    clock = Stopwatch()

    total = together(own, urls)

    assert total > 150_000
    assert clock.within(total / RATE + 1.0)
    assert clock.took > total / RATE * 0.9
    assert own.server.stats()["bytes"]["data"] == total


def test_latency_delays_responses_in_parallel(start: Callable[..., Api]) -> None:
    own = start(latency=0.15)
    urls = own.query("odd").urls
    assert seconds(lambda: own.get("shares")) >= 0.15
    own.server.reset_stats()
    assert seconds(lambda: together(own, urls)) >= 0.15
    assert own.server.stats()["most_concurrent"] > 1


def test_throttle_keeps_its_rate_after_idle_time() -> None:
    async def run() -> Stopwatch:
        throttle = Throttle(100_000)
        await asyncio.sleep(0.05)  # idle time must not be made up for by sending faster later
        clock = Stopwatch()
        await asyncio.gather(*(throttle.wait(1000) for _ in range(10)))
        assert clock.within(0.3)
        return clock

    assert asyncio.run(run()).took >= 0.099


def test_large_file_arrives_whole_with_and_without_a_limit(start: Callable[..., Api], tmp_path: Path) -> None:
    root = large_table(tmp_path)
    free, limited = start(root), start(root, bandwidth=5_000_000)
    for left, right in zip(free.query("t").urls, limited.query("t").urls, strict=True):
        content = free.fetch(left).content
        assert content[:4] == content[-4:] == b"PAR1"
        assert limited.fetch(right).content == content
        assert limited.fetch(right, Range="bytes=-50000").content == content[-50000:]


def test_header_and_body_are_sent_without_nagle_delay(
    start: Callable[..., Api], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With Nagle's algorithm the body would wait 40 ms for the acknowledgement of the header.
    results = []
    made = ServingProtocol.connection_made

    def connection_made(self: ServingProtocol, transport: asyncio.Transport) -> None:
        made(self, transport)
        results.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(ServingProtocol, "connection_made", connection_made)
    own = start(large_table(tmp_path))
    own.fetch(own.query("t").urls[0])
    assert results
    assert all(results)


@pytest.mark.parametrize(("disconnected", "closing"), [(True, False), (False, True), (True, True)])
def test_no_file_is_sent_to_a_disconnected_client(tmp_path: Path, disconnected: bool, closing: bool) -> None:
    protocol = types.SimpleNamespace(
        cycle=types.SimpleNamespace(disconnected=disconnected),
        transport=types.SimpleNamespace(is_closing=lambda: closing),
    )

    async def send() -> None:
        with (tmp_path / "file").open("wb+", buffering=0) as file:
            await Connection(protocol).send_file(file, 0, 1)  # type: ignore[arg-type]

    with pytest.raises(ConnectionResetError, match="the client has closed the connection"):
        asyncio.run(send())
