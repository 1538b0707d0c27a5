"""Fixtures of the unit tests; ``storages`` and ``raw_server`` define their parts."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme

import delta_sharing_client as ds
from benchmarks.long_listing import LongListing
from tests.unit.raw_server import Deaf, Raw
from tests.unit.storages import Storage, Table, fast_options, metadata, running_storage


@pytest.fixture
def storage() -> Iterator[Storage]:
    with running_storage() as found:
        yield found


@pytest.fixture(scope="module")
def shared_storage() -> Iterator[Storage]:
    """A storage for property tests, whose examples share the fixtures of their test."""
    with running_storage() as found:
        yield found


@pytest.fixture
def make_table(storage: Storage) -> Callable[..., Table]:
    """Create an empty shared table; keywords are table properties with ``__`` for a dot."""

    def make(schema: pa.Schema | str, partition_columns: Sequence[str] = (), **configuration: str) -> Table:
        properties = {key.replace("__", "."): value for key, value in configuration.items()}
        return Table(storage, metadata(schema, partition_columns, properties))

    return make


@pytest.fixture
def listed() -> Iterator[Callable[..., tuple[LongListing, Callable[[int], ds.SharedTable]]]]:
    """Start a server with long listings; return it and a function that returns a table with a given number of
    files."""
    with contextlib.ExitStack() as stack:

        def start(retry_seconds: float = 2.0, **options: Any) -> tuple[LongListing, Callable[[int], ds.SharedTable]]:
            server = stack.enter_context(LongListing(**options))
            chosen = fast_options(max_attempts=3, max_retry_seconds=retry_seconds, read_timeout=40.0)
            client = stack.enter_context(ds.SharingClient(server.profile, options=chosen))
            return server, lambda files: client.table(f"s.s.files-{files}")

        yield start


# --- a server of raw bytes ---


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


@pytest.fixture(params=["plain", "tls"])
def raw(request: pytest.FixtureRequest, authority: trustme.CA) -> Iterator[Raw]:
    context = None
    if request.param == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "many.test").configure_cert(context)
    server = Raw(context)
    yield server
    server.close()


@pytest.fixture
def many_addresses(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of ``raw`` with a host name that has three addresses; the first two never respond."""
    host, _, port = raw.url.rpartition("/")[2].partition(":")
    deaf = [Deaf(f"127.0.0.{number}", int(port)) for number in (2, 3)]
    asked = socket.getaddrinfo

    def look_up(name: Any, *args: Any, **kwargs: Any) -> Any:
        if name not in ("many.test", b"many.test"):
            return asked(name, *args, **kwargs)
        return [each for address in ("127.0.0.2", "127.0.0.3", host) for each in asked(address, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield raw.url.replace(host, "many.test")
    for each in deaf:
        each.close()


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The durations for which the test's thread called sleep without sleeping; other threads really sleep."""
    slept: list[float] = []
    sleep = time.sleep

    def record(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            slept.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", record)
    return slept
