"""Credentials from a catalog for an Iceberg table: how they are chosen and renewed, and that they are never shown."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaSharingError, ProtocolError, UnsupportedFeatureError
from tests.iceberg.server import IcebergServer, iceberg_server
from tests.iceberg.warehouse import rows_of
from tests.iceberg_corpus import BUCKET, IcebergTable, upload
from tests.s3 import REGION, Bucket, Guard, s3_bucket

TABLE = IcebergTable("lineage")
METADATA = dict(TABLE.metadata)
ROWS = rows_of(TABLE.rows())
SECRETS = ["planted-secret", "planted-token"]


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket(BUCKET) as bucket:
        upload([TABLE], bucket)
        yield bucket


@pytest.fixture
def guard(bucket: Bucket) -> Iterator[Guard]:
    guard = Guard(bucket)
    yield guard
    guard.close()


@pytest.fixture
def server() -> Iterator[IcebergServer]:
    with iceberg_server() as server:
        yield server


def _keys(guard: Guard, name: str, **more: str) -> dict[str, str]:
    return {
        "s3.access-key-id": name,
        "s3.secret-access-key": f"planted-secret-of-{name}",
        "s3.session-token": f"planted-token-of-{name}",
        "s3.endpoint": guard.endpoint,
        "s3.path-style-access": "true",
        "client.region": REGION,
        **more,
    }


def _credentials(guard: Guard, prefix: str, name: str, **more: str) -> dict[str, Any]:
    return {"prefix": prefix, "config": _keys(guard, name, **more)}


def _rows(table: ds.SharedTable) -> list[str]:
    return rows_of(table.scan(row_lineage=True).to_arrow())


def _used(guard: Guard) -> dict[str, set[str]]:
    """Return the directories of the table that were read with each key."""
    results: dict[str, set[str]] = {}
    for key, path in guard.requests:
        results.setdefault(key, set()).add(path.split("/")[2])
    return results


def test_credentials_in_the_table_configuration_are_used(guard: Guard, server: IcebergServer) -> None:
    guard.keys = {"table": ["lake/lineage/"]}
    server.share("t", METADATA, config=_keys(guard, "table"))

    assert _rows(server.table()) == ROWS
    assert _used(guard) == {"table": {"metadata", "data"}}


@pytest.mark.parametrize("turn", [1, -1])
def test_credentials_with_the_longest_prefix_are_used(guard: Guard, server: IcebergServer, turn: int) -> None:
    guard.keys = {"data": ["lake/lineage/data/"], "table": ["lake/lineage/metadata/"]}
    given = [
        _credentials(guard, "s3://lake", "bucket"),
        _credentials(guard, "s3://lake/lineage/data/", "data"),
        _credentials(guard, "s3://lake/line", "neighbour"),
        _credentials(guard, "s3://lake/lineage", "table"),
        _credentials(guard, "s3://lake/lineage/data/p=9/", "elsewhere"),
        _credentials(guard, "s3", "store"),
    ]
    server.share("t", METADATA, config=_keys(guard, "config"), storage_credentials=given[::turn])

    assert _rows(server.table()) == ROWS
    assert _used(guard) == {"data": {"data"}, "table": {"metadata"}}


def test_store_settings_and_credentials_may_come_separately(guard: Guard, server: IcebergServer) -> None:
    guard.keys = {"table": ["lake/lineage/"]}
    config = _keys(guard, "config")
    own = {name: value for name, value in _keys(guard, "table").items() if "key" in name or "token" in name}
    server.share("t", METADATA, config=config, storage_credentials=[{"prefix": TABLE.location, "config": own}])

    assert _rows(server.table()) == ROWS


def test_session_token_is_not_combined_with_other_keys(guard: Guard, server: IcebergServer) -> None:
    own = {"s3.access-key-id": "table", "s3.secret-access-key": "planted-secret"}
    credentials = [{"prefix": TABLE.location, "config": own}]
    server.share("t", METADATA, config=_keys(guard, "config"), storage_credentials=credentials)
    plan_files = _loaded(server)

    _, place = plan_files._opened(f"{TABLE.location}/data/x")
    assert set(place.renewal.current().secrets) == {"access_key_id", "secret_access_key"}


def _loaded(server: IcebergServer) -> Any:
    from delta_sharing_client.iceberg.shared_table import load_table

    table = server.table()
    return load_table(table.rest, table.name, table.options).files


@pytest.mark.parametrize("requests", [0, 1, 3, 5])
def test_credentials_that_expire_during_a_read_are_renewed(guard: Guard, server: IcebergServer, requests: int) -> None:
    guard.keys = {"key1": ["lake/lineage/"], "key2": ["lake/lineage/"]}
    guard.ends = {"key1": requests}
    loads: list[str] = []

    def before_load(name: str) -> None:
        loads.append(name)
        own = _credentials(guard, TABLE.location, f"key{len(loads)}")
        server.share("t", METADATA, storage_credentials=[own])

    server.share("t", METADATA)
    server.before_load = before_load

    assert _rows(server.table()) == ROWS
    assert len(loads) == 2
    assert sum(key == "key1" for key, _ in guard.requests) > requests
    assert "data" in _used(guard)["key2"]


def test_partition_in_another_process_gets_new_credentials(guard: Guard, server: IcebergServer) -> None:
    guard.keys = {"first": ["lake/lineage/"], "second": ["lake/lineage/"]}
    server.share("t", METADATA, storage_credentials=[_credentials(guard, TABLE.location, "first")])
    parts = [pickle.dumps(part) for part in server.table().scan().partitions(3)]
    guard.ends = {"first": 0}
    server.share("t", METADATA, storage_credentials=[_credentials(guard, TABLE.location, "second")])

    batches = [batch for part in parts for batch in pickle.loads(part).read()]
    assert pa.Table.from_batches(batches).num_rows == len(ROWS)


@pytest.mark.parametrize(
    ("config", "credentials", "error", "reason"),
    [
        ({}, [], ProtocolError, "must give credentials for the table's files in 's3://lake/lineage', found none"),
        ({"client.region": "x"}, [], ProtocolError, "'s3.access-key-id'"),
        ({"gcs.oauth2.token": "planted-token"}, [], ProtocolError, "'s3.access-key-id'.*'s3'"),
        ({"s3.access-key-id": "planted-secret"}, [], ProtocolError, "'s3.access-key-id'"),
        ({"s3.remote-signing-enabled": "true"}, [], UnsupportedFeatureError, "remote-signing"),
        ({}, [{"prefix": "s3://lake/lineage", "config": {}}], ProtocolError, "'s3.access-key-id'"),
        ({}, [{"prefix": 5, "config": {}}], ProtocolError, "does not have the form of an Iceberg REST catalog"),
        ({}, [{"prefix": "s3://lake/lineage"}], ProtocolError, "does not have the form of an Iceberg REST catalog"),
    ],
)
def test_error_names_the_missing_credentials(
    server: IcebergServer, config: dict[str, str], credentials: list[Any], error: type[Exception], reason: str
) -> None:
    server.share("t", METADATA, config=config, storage_credentials=credentials)

    with pytest.raises(error, match=reason) as caught:
        server.table().scan().to_arrow()
    assert not [secret for secret in SECRETS if secret in str(caught.value)]


def test_keys_that_may_not_read_are_an_error(guard: Guard, server: IcebergServer) -> None:
    server.share("t", METADATA, config=_keys(guard, "stranger"))

    with pytest.raises(DeltaSharingError, match=r"Ask the provider whether the credentials may read") as caught:
        server.table().scan().to_arrow()
    assert not [secret for secret in SECRETS if secret in str(caught.value)]


def test_catalog_credentials_appear_in_no_text(
    guard: Guard, server: IcebergServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    guard.keys = {"data": ["lake/lineage/data/"], "table": ["lake/lineage/metadata/"]}
    guard.ends = {"data": 3}
    given = [_credentials(guard, f"{TABLE.location}/data", "data"), _credentials(guard, TABLE.location, "table")]
    server.share("t", METADATA, config=_keys(guard, "config"), storage_credentials=given)
    table = server.table()
    with caplog.at_level(logging.DEBUG):
        plan = table.scan().plan()
        texts = [repr(plan), repr(plan.context), repr(plan.tasks), repr(plan.context.place), table.scan().explain()]
        texts += [plan._repr_html_(), repr(_loaded(server)), repr(table), repr(table.metadata())]
        # The keys for the data expire, and the catalog has no others.
        with pytest.raises(DeltaSharingError) as caught:
            table.scan().to_arrow()
    printed = capfd.readouterr()
    texts += [str(caught.value), repr(caught.value), repr(caught.value.__dict__), printed.out, printed.err]
    texts += [record.getMessage() for record in caplog.records if record.name.startswith("delta_sharing_client")]

    assert not [text for text in texts if any(secret in text for secret in SECRETS)]
