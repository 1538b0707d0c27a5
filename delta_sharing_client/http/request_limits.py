"""Ends REST requests whose response is not complete: by time limits, and by cancellation from another thread."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.http.network import Reach, Throughput
from delta_sharing_client.http.retry import Deadline, Transient
from delta_sharing_client.options import ReadOptions

# SO_LINGER with a timeout of zero.
_RESET = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


class RequestLimits:
    """Enforces the limits of one REST request; every wait for the bytes of its response goes through it.

    The headers must be complete within ``options.read_timeout`` after their first byte; for ``min_bytes_per_second``
    see ``Throughput``. ``deadline`` is the end of the operation, and ``interrupt`` cancels the operation. ``doing`` and
    ``table`` are for messages. ``reach`` has the addresses that the request may connect to.

    ``is_here`` is whether the request was sent to this machine; ``None`` before it is sent, and through a proxy.
    """

    def __init__(
        self,
        options: ReadOptions,
        deadline: Deadline,
        doing: str,
        table: str | None,
        interrupt: Interrupt | None = None,
        *,
        reach: Reach = Reach.ANY,
    ) -> None:
        self.options = options
        self.deadline = deadline
        self.doing = doing
        self.table = table
        self.reach = reach
        self.is_here: bool | None = None
        self._interrupt = interrupt
        self._timeout = options.read_timeout
        self._throughput = Throughput(options, doing, table)
        self._head_by: float | None = None
        self._in_head = True

    def check(self) -> None:
        """Raise ``TransportError`` after the deadline, or ``CancelledError`` if the operation was cancelled."""
        self.deadline.check(self.doing, self.table)
        if self._interrupt is not None:
            self._interrupt.check()

    def use(self, sock: socket.socket | None) -> None:
        """Register the socket of the request, which the interrupt shuts down; ``None`` after the request."""
        if self._interrupt is not None:
            self._interrupt.use(sock)

    def read(self, sock: socket.socket, read: Callable[[], int | None]) -> int | None:
        """Return ``read()``, which reads from ``sock``; raises ``TransportError`` or ``Transient``."""
        self.deadline.check(self.doing, self.table)
        began, left = time.monotonic(), self.deadline.within(self._timeout)
        if left < self._timeout:
            sock.settimeout(left)
        count = read()
        now = time.monotonic()
        if not self._in_head:
            self._throughput.note(count or 0, now - began)
            return count
        self._head_by = self._head_by or now + self._timeout
        if now > self._head_by:
            raise self._throughput.slow(f"the headers of the response are not complete after {self._timeout:g} s")
        return count

    def head_is_complete(self) -> None:
        self._in_head = False


class Interrupt:
    """Cancels the REST requests of one operation from another thread.

    The current request, waits between attempts, and all later requests raise ``CancelledError`` or a connection error.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def set(self) -> None:
        """Cancel the requests."""
        self._over.set()
        with self._lock:
            shut(self._socket)

    def check(self) -> None:
        """Raise ``CancelledError`` if the operation was cancelled."""
        if self._over.is_set():
            raise CancelledError

    def sleep(self, seconds: float) -> None:
        """Wait, or raise ``CancelledError`` as soon as the operation is cancelled."""
        if self._over.wait(seconds):
            raise CancelledError

    def use(self, sock: socket.socket | None) -> None:
        """Register the socket of the current request; ``None`` after the request."""
        with self._lock:
            self._socket = sock
            if self._over.is_set():
                shut(sock)


def shut(sock: Any) -> None:
    """Shut the connection down, so that a thread that reads from it wakes up."""
    # Shut down the socket below TLS, because TLS's own shutdown would free the session that another thread reads from.
    # For TLS inside a proxy's TLS, ``sock`` is a wrapper with the socket in ``socket``.
    plain = getattr(sock, "socket", sock)
    with contextlib.suppress(OSError, AttributeError):
        # With this option, close() informs the other side at once, which may be waiting to send more.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if isinstance(plain, socket.socket):
            socket.socket.shutdown(plain, socket.SHUT_RDWR)
        else:
            plain.shutdown(socket.SHUT_RDWR)


# === Failures of the HTTP libraries; ``failures`` is imported only after one ===


def library_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of the HTTP libraries, for ``except``, which calls this only after a failure."""
    from delta_sharing_client.http import failures

    return failures.LIBRARY_ERRORS


def network_failure(
    error: Exception, doing: str, table: str | None, *, receiving: bool = False
) -> Transient | DeltaSharingError:
    """Like ``failures.translated``; refused connections are retried only briefly, as the endpoint is probably wrong."""
    from delta_sharing_client.http import failures

    return failures.translated(error, doing, table, receiving=receiving, refused_briefly=True)
