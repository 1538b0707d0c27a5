"""Counts requests and bytes, for benchmarks and for tests that limit the number of requests."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

_SERVED = frozenset({200, 206, 416})


class Stats:
    """The counters of one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Set every counter to zero."""
        with self._lock:
            self._requests: Counter[str] = Counter()
            self._statuses: Counter[int] = Counter()
            self._bytes: Counter[str] = Counter()
            self._file_requests: Counter[str] = Counter()
            self._file_bytes: Counter[str] = Counter()
            self._clients: set[object] = set()
            self._active = 0
            self._most_active = 0

    def begin(self, kind: str, client: object = None) -> None:
        """Count a request of ``kind`` from ``client``, the peer address of its connection."""
        with self._lock:
            self._requests[kind] += 1
            if client is not None:
                self._clients.add(client)
            self._active += 1
            self._most_active = max(self._most_active, self._active)

    def end(self, kind: str, status: int, sent: int, file: str | None) -> None:
        """Count a response: its status, the bytes of its body and its data file.

        A file is counted only once a response has sent it, so a client without a signed URL cannot add names.
        """
        with self._lock:
            self._active = max(0, self._active - 1)
            self._statuses[status] += 1
            self._bytes[kind] += sent
            if file is not None and (status in _SERVED or file in self._file_requests):
                self._file_requests[file] += 1
                self._file_bytes[file] += sent

    @property
    def idle(self) -> bool:
        """Whether no response is in progress; a response ends once its last byte is sent and counted."""
        return self._active == 0

    def snapshot(self) -> dict[str, Any]:
        """Return all counters.

        These are ``requests`` and ``bytes`` of bodies by kind (``query``, ``metadata``, ``data`` ...),
        ``total_requests``, ``total_bytes``, ``statuses`` by HTTP status, ``files`` with the requests and bytes of each
        data file by its path in the URL, ``connections`` (the number of connections with requests), and
        ``most_concurrent``, the maximum number of concurrent requests.
        """
        with self._lock:
            return {
                "requests": dict(self._requests),
                "bytes": dict(self._bytes),
                "total_requests": sum(self._requests.values()),
                "total_bytes": sum(self._bytes.values()),
                "statuses": {str(status): count for status, count in self._statuses.items()},
                "files": {
                    name: {"requests": count, "bytes": self._file_bytes[name]}
                    for name, count in self._file_requests.items()
                },
                "connections": len(self._clients),
                "most_concurrent": self._most_active,
            }
