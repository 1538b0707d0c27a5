"""Table names and header names are case-insensitive, whether the server or the user changes their case."""

from __future__ import annotations

import contextlib
import pathlib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from tests.http_server import Exchange, HttpServer
from tests.tables import TableWriter, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
NAME = "Share.Schema.Table"
by_name = pytest.mark.parametrize("name", ["share.schema.table", "SHARE.SCHEMA.TABLE", "sHARE.Schema.tABLE"])


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[mock_server.RunningServer]:
    writer = TableWriter(tmp_path / "table", SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
    writer.insert(writer.file(rows_of([1, 2])))
    writer.insert(writer.file(rows_of([3])))
    with mock_server.running(tables={NAME: writer.path}) as server:
        yield server


@pytest.fixture
def relay(server: mock_server.RunningServer) -> Iterator[Callable[[Callable[[str], str]], dict[str, Any]]]:
    """Return a function that starts a proxy of ``server`` and returns its profile. The proxy changes the case of header
    names in every response, also in those with data files."""

    def start(spell: Callable[[str], str]) -> dict[str, Any]:
        before = urlsplit(server.profile["endpoint"])

        def answer(exchange: Exchange) -> None:
            given = {name: text for name, text in exchange.headers.items() if name not in ("Host", "Connection")}
            request = urllib.request.Request(
                f"http://{before.netloc}{exchange.path}",
                exchange.content or None,
                {**given, "Accept-Encoding": "identity"},
                method=exchange.command,
            )
            try:
                answer = urllib.request.urlopen(request, timeout=30)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                content = answer.read().replace(before.netloc.encode(), result.host.encode())
            exchange.send_response_only(answer.status)
            for name, text in answer.headers.items():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    exchange.send_header(spell(name), text)
            exchange.send_header(spell("Content-Length"), str(len(content)))
            exchange.end_headers()
            exchange.wfile.write(content)

        result = stack.enter_context(HttpServer(answer))
        return {**server.profile, "endpoint": before._replace(netloc=result.host).geturl()}

    with contextlib.ExitStack() as stack:
        yield start


@by_name
@pytest.mark.parametrize("wire", ["parquet", "delta"])
def test_table_names_are_case_insensitive(server: mock_server.RunningServer, name: str, wire: str) -> None:
    with ds.SharingClient(server.profile) as client:
        table = client.table(name)

        assert sorted(table.scan(response_format=wire).to_arrow()["id"].to_pylist()) == [1, 2, 3]
        assert table.scan(filter="ID >= 2", columns=["Id"]).count() == 2
        assert table.changes(1, 2, response_format=wire).count() == 3
        assert table.version() == 2
        share, schema, _ = name.split(".")
        assert [found.name for found in client.list_schemas(share)] == ["Schema"]
        assert [str(found) for found in client.list_tables(f"{share}.{schema}")] == [NAME]
        assert [str(found) for found in client.list_all_tables(share)] == [NAME]
    assert len(ds.load_as_pandas(f"{server.profile_path}#{name}")) == 3


@by_name
def test_copies_and_duckdb_accept_names_in_any_case(
    server: mock_server.RunningServer, name: str, tmp_path: pathlib.Path
) -> None:
    with ds.SharingClient(server.profile) as client:
        assert client.table(NAME).scan().count() == 3
        client.table(NAME).replicate(tmp_path / "copy")

        again = client.table(name).replicate(tmp_path / "copy")

        assert again.downloaded_bytes == 0
        assert client.table(name).scan().to_arrow().num_rows == 3
        database = duckdb.connect()
        ds.attach(database, server.profile)
        assert database.sql(f"SELECT count(*) FROM {name}").fetchall() == [(3,)]


@pytest.mark.parametrize("spell", [str.lower, str.upper, str.swapcase], ids=lambda spell: spell.__name__)
@pytest.mark.parametrize("wire", ["parquet", "delta"])
def test_header_names_are_case_insensitive(
    relay: Callable[[Callable[[str], str]], dict[str, Any]], spell: Callable[[str], str], wire: str
) -> None:
    with ds.SharingClient(relay(spell)) as client:
        table = client.table(NAME)
        scan = table.scan(response_format=wire, filter="id >= 2")

        assert sorted(scan.to_arrow()["id"].to_pylist()) == [2, 3]
        assert table.version() == 2
        assert table.changes(1, 2, response_format=wire).count() == 3


def test_server_accepts_capabilities_in_any_case(server: mock_server.RunningServer) -> None:
    """The name of the header may be in any case, and so may its values."""
    for name, text in (
        ("DELTA-SHARING-CAPABILITIES", "RESPONSEFORMAT=DELTA;READERFEATURES=deletionVectors"),
        ("delta-sharing-capabilities", "ResponseFormat=Delta"),
    ):
        request = urllib.request.Request(
            f"{server.profile['endpoint'].rstrip('/')}/shares/SHARE/schemas/schema/tables/TABLE/metadata",
            headers={"authorization": f"bearer {server.profile['bearerToken']}", name: text},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert b"deltaProtocol" in answer.read()
