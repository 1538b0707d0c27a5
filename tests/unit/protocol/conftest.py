"""Fixtures of the tests of the protocol; ``wire`` defines the server and its replies."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from delta_sharing_client.http import sign_in
from delta_sharing_client.http.request_limits import Interrupt
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.rest import RestClient
from tests.unit.protocol.wire import TOKEN, FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()


@pytest.fixture(autouse=True)
def sleeps(sleeps: list[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record interruptible waits as well as sleeps."""
    monkeypatch.setattr(Interrupt, "sleep", lambda self, seconds: time.sleep(seconds))
    return sleeps


@pytest.fixture(autouse=True)
def empty_token_cache() -> None:
    sign_in._tokens.clear()


@pytest.fixture
def profile(server: FakeServer) -> Profile:
    return Profile.load({"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": TOKEN})


@pytest.fixture
def rest(profile: Profile) -> Iterator[RestClient]:
    client = RestClient(profile, ReadOptions(max_attempts=4, connect_timeout=2, read_timeout=2))
    yield client
    client.close()


@pytest.fixture
def table() -> AssetName:
    return AssetName("s", "d", "t")
