"""A table and a server of its own, for tests of one table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import delta_sharing_client as ds
import mock_server


@contextlib.contextmanager
def served(path: Path, options: ds.ReadOptions | None = None, **settings: Any) -> Iterator[ds.SharedTable]:
    """Share the table at ``path`` as ``s.d.t`` and yield it; ``settings`` are those of `mock_server.running`."""
    with (
        mock_server.running(tables={"s.d.t": path}, **settings) as server,
        ds.SharingClient(server.profile, options=options) as client,
    ):
        yield client.table("s.d.t")
