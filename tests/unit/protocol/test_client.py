"""``SharingClient`` with a server of prepared replies."""

from __future__ import annotations

import json

import pytest

import delta_sharing_client as ds
from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import UsageError
from delta_sharing_client.protocol.names import Table
from tests.unit.protocol import wire


def test_client_accepts_names_and_listed_objects(server, profile):
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "a.b"}]}))
    server.on("GET", "/shares/a.b", wire.as_json({"share": {"name": "a.b"}}))
    server.on("GET", "/shares/a.b/schemas", wire.as_json({"items": [{"name": "d"}]}))
    server.on("GET", "/shares/a.b/schemas/d/tables", wire.as_json({"items": [{"name": "t"}]}))
    server.on("GET", "/shares/a.b/all-tables", wire.as_json({"items": [{"name": "t", "schema": "d"}]}))

    with SharingClient(profile) as client:
        (share,) = client.list_shares()
        assert client.get_share(share) == client.get_share("a.b") == share
        (schema,) = client.list_schemas(share)
        assert client.list_schemas("a.b") == [schema]
        assert client.list_tables(schema) == client.list_tables("a.b.d") == [Table("t", "a.b", "d")]
        assert client.list_all_tables() == client.list_all_tables("a.b") == [Table("t", "a.b", "d")]
        with pytest.raises(UsageError, match=r"share\.schema"):
            client.list_tables("d")
        assert wire.TOKEN not in repr(client)


@pytest.mark.parametrize(
    "load",
    [
        lambda url, options: ds.load_as_pandas(url, options=options),
        lambda url, options: ds.load_as_arrow(url, options=options),
        lambda url, options: ds.load_table_changes_as_pandas(url, 0, options=options),
        lambda url, options: ds.SharingClient(url.partition("#")[0]).table("s.d.t").scan(options=options).to_arrow(),
        lambda url, options: ds.SharingClient(url.partition("#")[0]).table("s.d.t").changes(0).plan(options),
    ],
)
def test_options_of_a_read_apply_to_its_server_requests(server, tmp_path, load):
    for method, path in (("POST", "query"), ("GET", "changes")):
        server.on(method, f"/shares/s/schemas/d/tables/t/{path}", wire.error(503, "X"))
    path = tmp_path / "my.share"
    fields = {"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": "t"}
    path.write_text(json.dumps(fields))

    with pytest.raises(ds.RequestError) as caught:
        load(f"{path}#s.d.t", ds.ReadOptions(max_attempts=1))
    assert len(server.requests) == 1
    assert f"QueryId-{caught.value.query_id}" in server.requests[0].headers["user-agent"]
