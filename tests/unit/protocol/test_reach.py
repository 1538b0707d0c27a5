"""A remote server cannot make recipients send requests to services on their own machines.

In these tests, 127.8.8.8 is the recipient's machine. The other loopback addresses, with the test servers, are remote.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.errors import AuthError, DeltaSharingError, ProtocolError
from delta_sharing_client.fetch.signed_urls import SignedUrls
from delta_sharing_client.fetch.source import Fetcher, RemoteFile
from delta_sharing_client.http import network, sessions
from delta_sharing_client.http.sessions import connected
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.run import loop
from tests.unit.protocol import wire
from tests.unit.storages import Storage, parquet_bytes

OWN = "127.8.8.8"
ROWS = pa.table({"a": [1, 2, 3]})
DATA = parquet_bytes(ROWS)
QUERY = "/shares/s/schemas/d/tables/t/query"


class Service:
    """A service on the recipient's machine. It counts the connections to it."""

    def __init__(self) -> None:
        self.connections = 0
        self._listener = socket.create_server((OWN, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Names:
    """A name server. Each lookup of a name returns its next list of addresses, and repeats the last list."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[list[str]]] = {}
        self._getaddrinfo = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        lists = self.addresses.get(name, [[name]])
        addresses = lists.pop(0) if len(lists) > 1 else lists[0]
        return [each for address in addresses for each in self._getaddrinfo(address, port, *args, **kwargs)]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    real = network.is_here

    def is_here(address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return real(address)
        return str(getattr(parsed, "ipv4_mapped", None) or parsed) == OWN

    monkeypatch.setattr(network, "is_here", is_here)
    monkeypatch.setattr(sessions, "is_here", is_here)
    network._judged.cache_clear()
    running = Service()
    yield running
    running.close()
    network._judged.cache_clear()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    return names


@pytest.fixture
def read(server: Any) -> Callable[..., list[int]]:
    def rows(endpoint: str | None = None, **fields: Any) -> list[int]:
        profile = {"shareCredentialsVersion": 1, "endpoint": endpoint or server.endpoint, "bearerToken": "t", **fields}
        options = ds.ReadOptions(max_attempts=2, connect_timeout=5, read_timeout=5)
        return ds.SharingClient(profile, options=options).table("s.d.t").scan().to_arrow()["a"].to_pylist()

    return rows


def one_file(url: str, **fields: object) -> Any:
    """Return the response to a query of a table with one file."""
    file = wire.delta_file("f", wrapper=fields.pop("wrapper", None), **{"path": url, "size": len(DATA), **fields})
    return wire.ndjson(*wire.delta_head(), file, capabilities="responseformat=delta")


def fetch(allowed: network.Allowed, url: str) -> bytes:
    fetcher = Fetcher(SignedUrls(ds.ReadOptions(), allowed, "t"))
    file = RemoteFile(fetcher, key="f", url=url, size=len(DATA), file_id="f")
    return bytes(loop.call(file.read(ByteRange(0, len(DATA)))).to_pybytes())


# Names that resolve to the recipient's machine, and spellings of its address.
HOSTS = ["inside.test", "evil.localhost", OWN, "127.526344", "2131232776", "[::ffff:127.8.8.8]"]


@pytest.fixture(params=HOSTS)
def own_host(request: pytest.FixtureRequest, names: Names, service: Service) -> str:
    for name in ("inside.test", "evil.localhost"):
        names.addresses[name] = [[OWN]]
    return f"{request.param}:{service.port}"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_data_file_is_read_from_this_machine(
    server: Any, read: Callable[..., list[int]], service: Service, own_host: str, scheme: str
) -> None:
    server.on("POST", QUERY, one_file(f"{scheme}://{own_host}/containers/create?sig=planted"))
    with pytest.raises(ProtocolError, match=r"this machine|unambiguous") as caught:
        read()
    assert caught.value.file_id == "f"
    assert "planted" not in str(caught.value)
    assert service.connections == 0


def test_no_deletion_vector_is_read_from_this_machine(
    server: Any, read: Callable[..., list[int]], service: Service, storage: Storage, own_host: str
) -> None:
    vector = {
        "storageType": "p",
        "pathOrInlineDv": f"http://{own_host}/v?sig=planted",
        "offset": 1,
        "sizeInBytes": 34,
        "cardinality": 1,
    }
    stats = json.dumps({"numRecords": 3})
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    head = wire.delta_head()
    head[0] = {"protocol": {"deltaProtocol": {**protocol, "writerFeatures": ["deletionVectors"]}}}
    file = wire.delta_file("f", path=storage.put("f", DATA), size=len(DATA), stats=stats, deletionVector=vector)
    server.on("POST", QUERY, wire.ndjson(*head, file, capabilities="responseformat=delta"))
    with pytest.raises(ProtocolError, match=r"this machine|unambiguous"):
        read()
    assert service.connections == 0


@pytest.mark.parametrize("sender", ["storage", "renewed URL", "server"])
def test_redirect_or_renewed_url_to_this_machine_is_refused(
    server: Any, read: Callable[..., list[int]], service: Service, own_host: str, sender: str
) -> None:
    url = f"http://{own_host}/shutdown"
    redirect, file = wire.Reply(307, b"", {"Location": url}), one_file(f"{server.endpoint}/f")
    server.on("GET", "/f", redirect if sender == "storage" else wire.Reply(403))
    server.on("POST", QUERY, *{"storage": [file], "renewed URL": [file, one_file(url)]}.get(sender, [redirect]))
    with pytest.raises(ProtocolError, match=r"this machine|unambiguous"):
        read()
    assert service.connections == 0


def test_token_endpoint_name_must_not_resolve_to_this_machine(
    server: Any, read: Callable[..., list[int]], service: Service, names: Names
) -> None:
    names.addresses["inside.test"] = [[OWN]]
    login = {"type": "oauth_client_credentials", "clientId": "c", "clientSecret": "planted"}
    fields = {"shareCredentialsVersion": 2, "tokenEndpoint": f"http://inside.test:{service.port}/containers", **login}
    with pytest.raises(DeltaSharingError, match="resolves to this machine") as caught:
        read(**fields)
    assert not isinstance(caught.value, AuthError)
    assert service.connections == 0


def test_catalog_name_must_not_resolve_to_this_machine(server: Any, service: Service, names: Names) -> None:
    names.addresses["inside.test"] = [[OWN]]
    catalog = f"http://inside.test:{service.port}/iceberg"
    profile = {
        "shareCredentialsVersion": 1,
        "endpoint": server.endpoint,
        "icebergEndpoint": catalog,
        "bearerToken": "t",
    }
    table = ds.SharingClient(profile, options=ds.ReadOptions(max_attempts=2)).table("s.d.t", format="iceberg")

    with pytest.raises(DeltaSharingError, match="resolves to this machine"):
        table.scan().to_arrow()
    assert service.connections == 0


def test_local_server_may_name_a_local_catalog(own_server: Any, names: Names) -> None:
    names.addresses["catalog.test"] = [["127.0.0.1"]]
    catalog = own_server.endpoint.replace("127.0.0.1", "catalog.test")
    endpoint = own_server.endpoint.replace("127.0.0.1", "sharing.test")
    profile = {"shareCredentialsVersion": 1, "endpoint": endpoint, "icebergEndpoint": catalog, "bearerToken": "t"}
    table = ds.SharingClient(profile, options=ds.ReadOptions(max_attempts=1)).table("s.d.t", format="iceberg")

    with pytest.raises(DeltaSharingError):
        table.scan().to_arrow()
    assert own_server.requests[0].path == "/v1/config"


def test_name_that_resolves_to_this_machine_later_is_refused(
    server: Any, read: Callable[..., list[int]], service: Service, storage: Storage, names: Names
) -> None:
    # Endpoint and data have the same host name, which first resolves to the server, then to a service on this machine.
    names.addresses["evil.test"] = [["127.0.0.1"], [OWN]]
    server.on("POST", QUERY, one_file(f"http://evil.test:{service.port}/shutdown"))
    with pytest.raises(ProtocolError, match="resolves to this machine"):
        read(server.endpoint.replace("127.0.0.1", "evil.test"))
    assert len(server.requests) == 1
    assert service.connections == 0


def test_forbidden_addresses_of_a_name_are_skipped(
    server: Any, read: Callable[..., list[int]], service: Service, storage: Storage, names: Names
) -> None:
    names.addresses["mixed.test"] = [[OWN, "127.0.0.1"]]
    storage.put("f", DATA)
    server.on("POST", QUERY, one_file(f"http://mixed.test:{storage.port}/f"))
    assert read() == [1, 2, 3]
    sock = connected("mixed.test", storage.port, 5, network.Reach.REMOTE)
    assert sock.getpeername() == ("127.0.0.1", storage.port)
    sock.close()
    with pytest.raises(network.OutOfReach):
        connected("inside.test" if "inside.test" in names.addresses else OWN, service.port, 5, network.Reach.REMOTE)
    assert service.connections == 0


def test_local_connection_is_not_reused_by_a_restricted_read(
    server: Any, service: Service, storage: Storage, names: Names
) -> None:
    """A read that may not connect to this machine does not reuse a connection of another read."""
    storage.put("f", DATA)
    names.addresses["data.test"] = [["127.0.0.1"]]
    url = f"http://data.test:{storage.port}/f"
    for _ in range(2):
        assert fetch(network.Allowed(http=True, loopback=True), url) == DATA
    assert storage.connections == 1
    assert fetch(network.Allowed(http=True), url) == DATA
    assert storage.connections == 2


# === A server on this machine ===


@pytest.fixture
def own_server(service: Service, server: Any, names: Names, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a server that runs on the recipient's machine, and to which some names resolve."""
    monkeypatch.setattr(network, "is_here", lambda address: address == "127.0.0.1")
    monkeypatch.setattr(sessions, "is_here", lambda address: address == "127.0.0.1")
    network._judged.cache_clear()
    names.addresses["sharing.test"] = names.addresses["x.localhost"] = [["127.0.0.1"]]
    return server


@pytest.mark.parametrize("host", ["127.0.0.1", "sharing.test", "x.localhost"])
@pytest.mark.parametrize("data_host", ["127.0.0.1", "localhost", "sharing.test", "x.localhost"])
def test_local_server_may_name_local_files(
    own_server: Any, read: Callable[..., list[int]], storage: Storage, host: str, data_host: str
) -> None:
    storage.put("f", DATA)
    own_server.on("POST", QUERY, one_file(f"http://{data_host}:{storage.port}/f"))
    assert read(own_server.endpoint.replace("127.0.0.1", host)) == [1, 2, 3]


def test_http_is_only_sent_to_addresses_of_this_machine(
    own_server: Any, service: Service, storage: Storage, names: Names
) -> None:
    """``allowed`` has the rules for an https endpoint on this machine."""
    names.addresses["evil.localhost"] = [[OWN]]  # not an address of this machine in this test
    storage.put("f", DATA)
    allowed = network.Allowed(loopback=True)
    assert fetch(allowed, f"http://x.localhost:{storage.port}/f") == DATA
    with pytest.raises(ProtocolError, match=r"evil\.localhost:.* is not this machine"):
        fetch(allowed, f"http://evil.localhost:{service.port}/f")
    assert service.connections == 0


def test_asynchronous_read_is_checked_too(server: Any, service: Service, names: Names) -> None:
    names.addresses["inside.test"] = [[OWN]]
    server.on("POST", QUERY, one_file(f"http://inside.test:{service.port}/f"))
    profile = {"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": "t"}

    async def read() -> pa.Table:
        return await ds.SharingClient(profile).table("s.d.t").scan().to_arrow_async()

    with pytest.raises(ProtocolError, match="resolves to this machine"):
        asyncio.run(read())
    assert service.connections == 0
