"""What a process holds, and whether it gives it back in time."""

from __future__ import annotations

import _thread
import dataclasses
import os
import threading
import time
from pathlib import Path

import pyarrow as pa

from delta_sharing_client import connections

# Arrow keeps small things for itself.
_MEMORY_SLACK = 1_000_000


@dataclasses.dataclass(frozen=True)
class Resources:
    """Python's threads, sockets in use (idle ones in a connection pool are not), Arrow's bytes, and temporary files."""

    threads: int
    sockets: int
    bytes: int
    files: int

    @classmethod
    def now(cls, folder: Path) -> Resources:
        """Count this process's, and the temporary files below ``folder``."""
        return cls(
            threads=_thread._count(),
            sockets=_sockets() - _idle(),
            bytes=pa.total_allocated_bytes(),
            files=sum(".part" in path.name for path in folder.rglob("*")),
        )

    def more_than(self, before: Resources) -> str:
        """Say what is held that was not held ``before``; nothing if nothing is."""
        found = [
            f"{now - then} {name}"
            for name, now, then, slack in (
                ("threads", self.threads, before.threads, 0),
                ("sockets", self.sockets, before.sockets, 0),
                ("bytes", self.bytes, before.bytes, _MEMORY_SLACK),
                ("files", self.files, before.files, 0),
            )
            if now > then + slack
        ]
        return ", ".join(found)


def wait_until_back(before: Resources, folder: Path, deadline: float) -> str:
    """Wait until nothing is held beyond ``before``; return what still is at ``deadline`` (of ``time.monotonic``)."""
    while True:
        more = Resources.now(folder).more_than(before)
        if not more or time.monotonic() > deadline:
            return f"{more}; threads {[thread.name for thread in threading.enumerate()]}" if more else ""
        time.sleep(0.002)


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            continue
    return found


def _idle() -> int:
    """Return how many connections wait in the process's pools for their next request."""
    found = 0
    for manager in list(connections._pools.values()):
        for key in list(manager.pools.keys()):
            pool = manager.pools.get(key)
            waiting = list(pool.pool.queue) if pool is not None and pool.pool is not None else []
            found += sum(connection is not None and connection.sock is not None for connection in waiting)
    return found
