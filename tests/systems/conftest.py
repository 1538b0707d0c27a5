"""Tests of what differs between Linux, macOS and Windows: paths, signals, event loops, file locks.

These tests need only the installed package; a release runs them with its wheel on each system.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from delta_sharing_client import testing

ROWS = pa.table({"id": pa.array(range(1000), pa.int64()), "name": pa.array([f"größe {i}" for i in range(1000)])})


@pytest.fixture(scope="session")
def server() -> Iterator[testing.Server]:
    """A server with the table ``s.d.t``, whose 1,000 rows are ``ROWS``."""
    with testing.running({"s.d.t": ROWS}) as running:
        yield running


@pytest.fixture
def profile(server: testing.Server, tmp_path: Path) -> Path:
    """The profile, in a directory whose name has spaces, a ``#``, a ``%`` and non-ASCII letters."""
    folder = tmp_path / "Döner & 100 % #1 数"
    folder.mkdir()
    path = folder / "my share.share"
    path.write_bytes(server.profile_path.read_bytes())
    return path
