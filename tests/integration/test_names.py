"""Tables are looked up by index, and errors suggest the right spelling of a name."""

from __future__ import annotations

import functools
import operator
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

import delta_sharing_client as ds
import mock_server
from mock_server import catalog, demo

SHOP = ["orders", "products", "volume:documents", "model:churn", "skill:sales-report"]


@pytest.fixture
def client(serve_demo: Any) -> ds.SharingClient:
    return ds.SharingClient(serve_demo.profile_path)


def test_names_are_looked_up_by_index_and_offered_by_ipython(client: ds.SharingClient) -> None:
    assert client["demo"]["shop"]["orders"] == client.table("demo.shop.orders")
    assert client._ipython_key_completions_() == ["demo"]
    assert client["demo"]._ipython_key_completions_() == ["shop", "weather", "lake"]
    assert list(client["demo"]["shop"]) == SHOP
    assert repr(client["demo"]["shop"]) == "Contents(demo.shop)"


def test_keys_of_a_schema_state_the_kind_of_each_asset(client: ds.SharingClient) -> None:
    shop = client["demo"]["shop"]
    assert shop._ipython_key_completions_() == SHOP
    assert [repr(shop[key]) for key in shop] == [
        *("SharedTable(demo.shop.orders)", "SharedTable(demo.shop.products)", "Volume(demo.shop.documents)"),
        *("Model(demo.shop.churn)", "Skill(demo.shop.sales-report)"),
    ]
    assert shop["table:orders"] == shop["orders"]
    assert "Volume:Documents" in shop
    assert shop["Volume:Documents"] == shop["volume:documents"]
    assert "documents" not in shop
    html = shop._repr_html_()
    assert all(text in html for text in ("documents", "volume", "[&#x27;volume:documents&#x27;]"))
    with pytest.raises(
        ds.NotFoundError, match=r"There is a volume with this name: see 'client\.volume\(\)' or 'delta-sharing ls'"
    ):
        shop["documents"].version()
    with pytest.raises(ds.NotFoundError, match=r"Did you mean 'demo\.shop\.documents'\?"):
        assert shop["volume:document"].id


def test_table_names_that_look_like_prefixed_keys_are_found(tmp_path: pathlib.Path) -> None:
    demo.build(tmp_path)
    names = ["volume:x", "table:y", "volume:", "a:b"]
    tables = {f"s.d.{name}": tmp_path / "shop" / "orders" for name in names}
    with mock_server.running(tables=tables) as server, ds.SharingClient(server.profile) as client:
        schema = client["s"]["d"]
        assert list(schema) == ["table:volume:x", "table:table:y", "volume:", "a:b"]
        assert [schema[key].name.name for key in schema] == names
        assert [schema[key].version() for key in schema] == [6] * 4


def test_iteration_over_a_level_lists_its_names(client: ds.SharingClient, serve_demo: Any) -> None:
    serve_demo.reset_stats()
    assert list(client) == [name for name in client] == ["demo"]  # noqa: C416
    assert {share: {schema: list(client[share][schema]) for schema in client[share]} for share in client} == {
        "demo": {"shop": SHOP, "weather": ["readings"], "lake": ["refunds"]}
    }
    # Each loop sends one listing request, and nothing calls len().
    listed = dict.fromkeys(("tables", "volumes", "models", "skills"), 3)
    catalog = {"iceberg-config": 1, "iceberg-namespaces": 1, "iceberg-tables": 3}
    assert serve_demo.stats()["requests"] == {"shares": 3, "schemas": 1, **listed, **catalog}
    for level in (client, client["demo"], client["demo"]["shop"]):
        assert not hasattr(level, "__len__")


def test_membership_is_case_insensitive(client: ds.SharingClient) -> None:
    assert "demo" in client
    assert "DEMO" in client
    assert "shop" not in client
    assert "demo.shop" not in client
    assert "Shop" in client["demo"]
    assert "orders" not in client["demo"]
    assert "ORDERS" in client["Demo"]["SHOP"]
    assert "oders" not in client["demo"]["shop"]


@pytest.mark.parametrize("item", [0, None, ds.Share("demo"), ("demo", "shop")], ids=repr)
def test_lookup_refuses_keys_that_are_not_strings(client: ds.SharingClient, item: Any) -> None:
    for level in (client, client["demo"], client["demo"]["shop"]):
        with pytest.raises(ds.UsageError, match="Expected a name as a string before 'in', found"):
            assert item in level
        with pytest.raises(ds.UsageError, match=r"An? (share|schema|asset) needs a name, found"):
            level[item]


@pytest.mark.parametrize(
    ("path", "write"),
    [
        (["demo.shop.orders"], r"write client\.table\('demo\.shop\.orders'\)\.$"),
        (["a.b.c.d"], r"write client\.table\('a\.b\.c\.d'\)\.$"),
        (["demo.shop"], r"write client\['demo'\]\['shop'\]\.$"),
        (["demo", "shop.orders"], r"write client\.table\('demo\.shop\.orders'\)\.$"),
    ],
)
def test_error_for_a_name_of_several_parts_shows_the_call(
    client: ds.SharingClient, path: list[str], write: str
) -> None:
    with pytest.raises(ds.UsageError, match=write):
        functools.reduce(operator.getitem, path, client)


def test_share_with_dots_in_its_name_is_found(tmp_path: pathlib.Path) -> None:
    demo.build(tmp_path)
    shared = catalog.build([catalog.entry("a.b.c", "shop", "orders", tmp_path / "shop" / "orders")])
    with mock_server.running(tables=shared) as server:
        client = ds.SharingClient(server.profile_path)
        assert [client[share]["shop"]["orders"].version() for share in client] == [6]
        assert list(client["A.b.C"]) == ["shop"]


def test_head_returns_a_frame(client: ds.SharingClient) -> None:
    frame = client.table("demo.shop.orders").head(3, columns=["order_id"])
    assert (frame.shape, list(frame.columns)) == ((3, 1), ["order_id"])


@pytest.mark.parametrize(
    "use",
    [
        lambda table: table.version(),
        lambda table: table.metadata(),
        lambda table: table.scan().to_arrow(),
        lambda table: table.scan(filter="a = 1").to_arrow(),
        lambda table: table.changes(0).to_arrow(),
    ],
)
@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("demo.shop.oders", "Did you mean 'demo.shop.orders'?"),
        ("demo.shp.orders", "Did you mean 'demo.shop.orders'?"),
        ("dmo.shop.orders", "Did you mean 'demo.shop.orders'?"),
        ("x.y.z", "Use 'list_all_tables()' or 'delta-sharing tables' to list what is shared."),
    ],
)
def test_error_suggests_the_nearest_name(
    client: ds.SharingClient, name: str, advice: str, use: Callable[[ds.SharedTable], object]
) -> None:
    with pytest.raises(ds.NotFoundError) as raised:
        use(client.table(name))
    assert raised.value.message.count(advice) == 1


def test_profile_without_shares_is_reported(tmp_path: pathlib.Path) -> None:
    with mock_server.running(tables={}) as server, pytest.raises(ds.NotFoundError, match="Nothing is shared with this"):
        ds.SharingClient(server.profile).table("a.b.c").version()


@pytest.mark.parametrize(
    ("ask", "advice"),
    [
        (lambda client: client.list_schemas("dem"), "Did you mean 'demo'?"),
        (lambda client: client.get_share("dem"), "Did you mean 'demo'?"),
        (lambda client: client.list_tables("demo.shp"), "Did you mean 'demo.shop'?"),
        (lambda client: client.list_tables("dem.shop"), "Did you mean 'demo'?"),
        (lambda client: client.list_all_tables("dem"), "Did you mean 'demo'?"),
        (lambda client: client.list_tables("demo.xyz"), "These exist: demo.shop, demo.weather, demo.lake."),
        (lambda client: list(client["demo"]["weathr"]), "Did you mean 'demo.weather'?"),
    ],
)
def test_error_suggests_the_nearest_share_and_schema(
    client: ds.SharingClient, ask: Callable[[ds.SharingClient], object], advice: str
) -> None:
    with pytest.raises(ds.NotFoundError) as raised:
        ask(client)
    assert raised.value.message.count(advice) == 1


def test_existing_names_are_read_without_a_listing(client: ds.SharingClient, serve_demo: Any) -> None:
    serve_demo.reset_stats()
    client["demo"]["shop"]["orders"].version()
    assert set(serve_demo.stats()["requests"]) == {"table", "version"}
    with pytest.raises(ds.RequestError) as raised:
        client.table("demo.shop.orders").scan(version=99).to_arrow()
    assert "Did you mean" not in str(raised.value)


def test_history_counts_changes_across_schema_changes(client: ds.SharingClient) -> None:
    # Version 1 of the demo's orders renames a column, and the rows of a feed cannot span a rename.
    versions = client.table("demo.shop.orders").history()
    assert [(one.version, one.inserts, one.updates, one.deletes) for one in versions] == [
        (0, 2000, 0, 0),
        (2, 600, 0, 0),
        (3, 0, 0, 245),
        (4, 0, 87, 0),
        (6, 400, 0, 0),
    ]
    assert all(one.timestamp.tzinfo is not None for one in versions)
    assert str(versions[2]) == "version 3, 2026-01-08 08:00:00: 0 inserts, 0 updates, 245 deletes"
    with pytest.raises(ds.SchemaChangeError):
        client.table("demo.shop.orders").changes(0).to_arrow()
    assert client.table("demo.shop.orders").history(3, 4)[1].updates == 87


def test_history_of_a_missing_table_suggests_a_name(client: ds.SharingClient, serve_demo: Any) -> None:
    serve_demo.reset_stats()
    with pytest.raises(ds.NotFoundError, match=r"Did you mean 'demo\.shop\.orders'\?"):
        client.table("demo.shop.oders").history()
    requests = serve_demo.stats()["requests"]
    assert requests.pop("metadata") == 1
    formats = {"table", "iceberg-config", "iceberg-table", "iceberg-tables"}
    assert set(requests) <= {"shares", "all-tables", "volume", "model", "skill", *formats}
