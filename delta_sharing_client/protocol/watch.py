"""What ends a request of REST before its answer is complete: the limits of its time, and another thread."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

from delta_sharing_client.network import Throughput
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.retry import Deadline

# To linger, for no time.
_RESET = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


class Watch:
    """Holds one answer of REST to the limits of its time; what waits for its bytes asks here.

    Parameters
    ----------
    options:
        ``read_timeout``: after its first byte the head of the answer must be complete within it.
        ``min_bytes_per_second``: see ``Throughput``.
    deadline:
        That of the operation.
    doing, table:
        For messages.
    """

    def __init__(self, options: ReadOptions, deadline: Deadline, doing: str, table: str | None) -> None:
        self._timeout = options.read_timeout
        self._throughput = Throughput(options, doing, table)
        self._deadline = deadline
        self._doing = doing
        self._table = table
        self._head_by: float | None = None
        self._in_head = True

    def read(self, sock: socket.socket, read: Callable[[], int | None]) -> int | None:
        """Return ``read()``, which takes bytes from ``sock``; raises ``TransportError`` or ``Transient``."""
        self._deadline.check(self._doing, self._table)
        began, left = time.monotonic(), self._deadline.within(self._timeout)
        if left < self._timeout:
            sock.settimeout(left)
        count = read()
        now = time.monotonic()
        if not self._in_head:
            self._throughput.note(count or 0, now - began)
            return count
        self._head_by = self._head_by or now + self._timeout
        if now > self._head_by:
            raise self._throughput.slow(f"the head of the answer is not complete after {self._timeout:g} s")
        return count

    def head_is_complete(self) -> None:
        self._in_head = False


class Interrupt:
    """Ends the REST requests of one operation, from another thread: the one under way, what waits to try again, and
    all later ones raise ``CancelledError``, or an error of the connection."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def set(self) -> None:
        """End them."""
        self._over.set()
        with self._lock:
            shut(self._socket)

    def check(self) -> None:
        """Raise ``CancelledError`` once the operation is over."""
        if self._over.is_set():
            raise CancelledError

    def sleep(self, seconds: float) -> None:
        """Wait so long, or raise ``CancelledError`` as soon as the operation is over."""
        if self._over.wait(seconds):
            raise CancelledError

    def use(self, sock: socket.socket | None) -> None:
        """Take note of the socket that the request under way waits for; ``None`` once it has ended."""
        with self._lock:
            self._socket = sock
            if self._over.is_set():
                shut(sock)


def shut(sock: Any) -> None:
    """Have both sides see the connection end."""
    # Below TLS, whose own shutdown takes the reading thread's session away. A proxy's TLS in TLS wraps a socket.
    plain = getattr(sock, "socket", sock)
    with contextlib.suppress(OSError, AttributeError):
        # Closed, it then tells the other side at once, which may be waiting for room to send more.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if isinstance(plain, socket.socket):
            socket.socket.shutdown(plain, socket.SHUT_RDWR)
        elif plain is not None:
            plain.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def sending(watch: Watch, interrupt: Interrupt | None = None) -> Iterator[None]:
    """Have ``watch`` hold the answer to the request that this thread sends in the block, and ``interrupt`` end it."""
    under_way.watch, under_way.interrupt = watch, interrupt
    try:
        yield
    finally:
        under_way.watch = under_way.interrupt = None


class _Sending(threading.local):
    """What holds for the request that a thread sends."""

    watch: Watch | None = None
    interrupt: Interrupt | None = None

    def use(self, sock: socket.socket | None) -> None:
        if self.interrupt is not None:
            self.interrupt.use(sock)


under_way = _Sending()
