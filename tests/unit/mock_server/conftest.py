"""Fixtures: a server that shares tables written for these tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mock_server
from mock_server.running import RunningServer
from tests.unit.mock_server.helpers import Api, write_feed, write_odd, write_plain, write_vectors


@pytest.fixture(scope="package")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    for write in (write_plain, write_vectors, write_feed, write_odd):
        write(root / write.__name__.removeprefix("write_"))
    return root


@pytest.fixture(scope="package")
def shared_server(tables: Path) -> Iterator[RunningServer]:
    with mock_server.running(tables) as server:
        yield server


@pytest.fixture
def api(shared_server: RunningServer) -> Iterator[Api]:
    yield Api(shared_server)
    shared_server.clear_faults()


@pytest.fixture
def start(tables: Path) -> Iterator[Callable[..., Api]]:
    """Start a separate server that shares the same tables or others."""
    with contextlib.ExitStack() as stack:
        yield lambda where=None, **options: Api(stack.enter_context(mock_server.running(where or tables, **options)))
