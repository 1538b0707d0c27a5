"""``SharingClient`` over the fake server."""

from __future__ import annotations

import pytest

from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import UsageError
from delta_sharing_client.protocol.listing import Table


def test_sharing_client_takes_names_and_values(server, profile, wire):
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
        assert wire.token not in repr(client)
