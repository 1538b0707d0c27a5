"""Requests that are cancelled from another thread, or are too slow."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from delta_sharing_client.errors import TransportError
from delta_sharing_client.http import request_limits
from delta_sharing_client.http.request_limits import Interrupt, RequestLimits
from delta_sharing_client.http.retry import Transient
from delta_sharing_client.options import ReadOptions

# The original method, which a fixture of this directory replaces during tests.
SLEEP = Interrupt.sleep


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        right.settimeout(30)
        yield left, right


def is_shut(other: socket.socket) -> bool:
    try:
        return other.recv(1) == b""
    except ConnectionError:
        return True


def test_interrupt_ends_a_wait_with_a_cancellation() -> None:
    interrupt = Interrupt()
    SLEEP(interrupt, 0)
    interrupt.check()
    timer = threading.Timer(0.05, interrupt.set)
    timer.start()
    with pytest.raises(CancelledError):
        SLEEP(interrupt, 300)
    timer.join()
    for call in (interrupt.check, lambda: SLEEP(interrupt, 0)):
        with pytest.raises(CancelledError):
            call()


def test_interrupt_shuts_down_the_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    interrupt = Interrupt()
    interrupt.use(left)
    left.sendall(b"x")
    assert right.recv(1) == b"x"
    interrupt.set()
    assert is_shut(right)


def test_socket_used_after_an_interrupt_is_shut_down(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    interrupt = Interrupt()
    interrupt.set()
    interrupt.use(left)
    assert is_shut(right)


def test_interrupt_keeps_the_socket_of_a_finished_request(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    interrupt = Interrupt()
    interrupt.use(left)
    interrupt.use(None)
    interrupt.set()
    left.sendall(b"x")
    assert right.recv(1) == b"x"


class Clock:
    """Stands for a deadline in ``left`` seconds, for the clock, and for the socket of a response."""

    def __init__(self, left: float = 1000) -> None:
        self.now, self.left = 0.0, left
        self.timeouts: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def check(self, doing: str, table: str | None) -> None:
        if self.left <= self.now:
            raise TransportError(f"{doing} took too long.", table=table)

    def within(self, seconds: float) -> float:
        return min(seconds, self.left - self.now)

    def settimeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)

    def taking(self, seconds: float, count: int | None = 10) -> Any:
        def read() -> int | None:
            self.now += seconds
            return count

        return read


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(request_limits, "time", clock)
    return clock


def limits_and_read(clock: Clock, **options: Any) -> Any:
    limits = RequestLimits(ReadOptions(read_timeout=20, **options), clock, "Listing", "s.d.t")  # type: ignore[arg-type]
    return limits, lambda seconds, count=10: limits.read(clock, clock.taking(seconds, count))  # type: ignore[arg-type]


def test_time_limit_of_the_header_starts_at_its_first_byte(clock: Clock) -> None:
    """The timeout of the socket limits the wait for the first byte."""
    _, read = limits_and_read(clock)
    assert read(19) == 10
    assert read(10) == 10
    assert read(10) == 10
    with pytest.raises(Transient, match="the headers of the response are not complete after 20 s"):
        read(0.1)
    assert clock.timeouts == []


def test_time_limit_of_the_header_does_not_apply_to_the_body(clock: Clock) -> None:
    limits, read = limits_and_read(clock, min_bytes_per_second=0)
    read(1)
    limits.head_is_complete()
    for _ in range(10):
        assert read(19) == 10
    assert read(1, None) is None


def test_body_slower_than_the_minimum_is_an_error(clock: Clock) -> None:
    limits, read = limits_and_read(clock, min_bytes_per_second=1000)
    read(0)
    limits.head_is_complete()

    def read_on() -> None:
        for _ in range(100):
            read(19)

    with pytest.raises(Transient):
        read_on()


def test_socket_timeout_is_at_most_the_remaining_time(clock: Clock) -> None:
    clock.left = 25.0
    limits, read = limits_and_read(clock, min_bytes_per_second=0)
    read(5)
    assert clock.timeouts == []
    limits.head_is_complete()
    read(10)
    assert clock.timeouts == []
    read(10)
    assert clock.timeouts == [10.0]
    with pytest.raises(TransportError, match="Listing took too long"):
        read(0)


def test_refused_connection_is_retried_for_less_than_a_minute() -> None:
    refused, reset = (
        request_limits.network_failure(kind(), "Asking", None) for kind in (ConnectionRefusedError, ConnectionError)
    )
    assert isinstance(refused, Transient)
    assert isinstance(reset, Transient)
    assert refused.max_seconds < min(60, reset.max_seconds)
