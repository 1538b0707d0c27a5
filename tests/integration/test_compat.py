"""``delta_sharing_client.compat`` has the names, exceptions and attributes that scripts for ``delta-sharing`` use."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import requests

import delta_sharing_client as ds
import delta_sharing_client.compat as delta_sharing
import mock_server
from mock_server import demo
from tests.versions import TIME_UNIT

V1 = {
    "shareCredentialsVersion": 1,
    "endpoint": "https://h/api/",
    "bearerToken": "planted",
    "expirationTime": "2030-01-01",
}
JWT = {
    "shareCredentialsVersion": 2,
    "type": "oauth_jwt_bearer_private_key_jwt",
    "endpoint": "https://localhost/delta-sharing/",
    "auth": {
        "tokenEndpoint": "https://login/token",
        "clientId": "clientId",
        "issuer": "issuer",
        "audience": "audience",
        "scope": "scope",
        "privateKey": {"privateKeyFile": "/path/to/key.pem", "keyId": "keyId", "algorithm": "RS256"},
    },
}


@pytest.fixture(scope="module")
def profile_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("compat")
    with mock_server.running(demo.build(folder / "tables")) as server:
        yield str(server.profile_path)


def test_calls_of_the_delta_sharing_readme_return_data(profile_file: str) -> None:
    client = delta_sharing.SharingClient(profile_file)
    assert client.list_all_tables()
    (share,) = client.list_shares()
    assert isinstance(share, delta_sharing.Share)
    schema = client.list_schemas(share)[0]
    assert all(isinstance(table, delta_sharing.Table) for table in client.list_tables(schema))

    table_url = profile_file + "#demo.shop.orders"
    assert len(delta_sharing.load_as_pandas(table_url, limit=10)) == 10
    assert len(delta_sharing.load_as_pandas(table_url, limit=10, version=1, use_delta_format=True)) == 10
    assert len(delta_sharing.load_table_changes_as_pandas(table_url, starting_version=1, ending_version=2)) > 0
    assert delta_sharing.get_table_version(table_url) == 6
    assert delta_sharing.get_table_metadata(table_url).id
    assert delta_sharing.get_table_protocol(table_url).min_reader_version >= 1


def test_commit_timestamp_has_the_type_of_delta_sharing(profile_file: str) -> None:
    url = profile_file + "#demo.shop.orders"
    millis = delta_sharing.load_table_changes_as_pandas(url, 1, 2)["_commit_timestamp"]
    stamps = delta_sharing.load_table_changes_as_pandas(url, 1, 2, use_delta_format=True)["_commit_timestamp"]

    assert (str(millis.dtype), str(stamps.dtype)) == ("int64", f"datetime64[{TIME_UNIT}, UTC]")
    assert (stamps.astype("int64") // {"us": 1000, "ns": 1_000_000}[TIME_UNIT]).tolist() == millis.tolist()
    assert stamps.dt.year.unique().tolist() == millis.astype("datetime64[ms]").dt.year.unique().tolist()
    table = delta_sharing.load_table_changes_as_arrow(url, 1, 2)
    assert table.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    assert delta_sharing.load_table_changes_as_arrow(url, 1, 2, columns=["status"]).column_names == ["status"]


def test_errors_have_the_classes_that_scripts_catch(profile_file: str) -> None:
    with pytest.raises(requests.HTTPError) as refused:
        delta_sharing.load_as_pandas(profile_file + "#demo.shop.gone")
    assert isinstance(refused.value, ds.NotFoundError)
    assert refused.value.response.status_code == 404
    assert "Did you mean" in str(refused.value)
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (type(copy), str(copy)) == (type(refused.value), str(refused.value))

    with pytest.raises(ValueError, match="upgrade"):
        delta_sharing.SharingClient(io.StringIO(json.dumps({**V1, "shareCredentialsVersion": 100})))
    profile = delta_sharing.DeltaSharingProfile.from_json({**V1, "endpoint": "http://127.0.0.1:9/"})
    client = delta_sharing.SharingClient(profile, ds.ReadOptions(max_attempts=1))
    with pytest.raises(requests.ConnectionError) as unreachable:
        client.list_shares()
    assert isinstance(unreachable.value, ds.TransportError)
    with pytest.raises(ValueError, match="columns"):
        delta_sharing.load_as_pandas(profile_file + "#demo.shop.orders", columns="id")


def test_refused_credentials_raise_an_http_error(profile_file: str) -> None:
    fields = json.loads(Path(profile_file).read_text()) | {"bearerToken": "wrong"}
    with pytest.raises(requests.HTTPError) as refused:
        delta_sharing.SharingClient(delta_sharing.DeltaSharingProfile.from_json(fields)).list_all_tables()
    assert isinstance(refused.value, ds.AuthError)
    assert refused.value.response.status_code == 401


def test_profile_has_the_fields_of_delta_sharing(tmp_path: Path) -> None:
    path = tmp_path / "my.share"
    path.write_text(json.dumps(V1))
    sources = [str(path), path, io.StringIO(json.dumps(V1)), io.BytesIO(json.dumps(V1).encode())]
    expected = delta_sharing.DeltaSharingProfile(1, "https://h/api", "planted", "2030-01-01")

    assert [delta_sharing.DeltaSharingProfile.read_from_file(source) for source in sources] == [expected] * 4
    assert delta_sharing.DeltaSharingProfile.from_json(json.dumps(V1)) == expected
    assert "planted" not in repr(expected)

    result = delta_sharing.DeltaSharingProfile.from_json(json.dumps(JWT))
    assert (result.type, result.client_id, result.issuer) == ("oauth_jwt_bearer_private_key_jwt", "clientId", "issuer")
    assert result.private_key == JWT["auth"]["privateKey"]  # type: ignore[index]
    assert result.load() == ds.Profile.load(JWT)


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({**V1, "endpoint": None}), json.dumps({**JWT, "type": "x"})])
def test_invalid_profile_raises_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="profile") as caught:
        delta_sharing.DeltaSharingProfile.from_json(text)
    assert isinstance(caught.value, ds.ProfileError)
    with pytest.raises(ValueError, match="upgrade"):
        delta_sharing.DeltaSharingProfile(100, "https://h")


def test_every_public_name_of_delta_sharing_exists() -> None:
    assert [name for name in delta_sharing.__all__ if not hasattr(delta_sharing, name)] == []


def test_table_objects_read_the_rows_of_the_loaders(profile_file: str) -> None:
    client = delta_sharing.SharingClient(profile_file)
    table = client.table("demo.shop.orders")
    url = profile_file + "#demo.shop.orders"
    hint = json.dumps({"op": "isNull", "children": [{"op": "column", "name": "order_id", "valueType": "long"}]})

    assert isinstance(table, delta_sharing.DeltaSharingTable)
    assert table.version() == 6
    assert table.to_pandas().equals(delta_sharing.load_as_pandas(url))
    assert table.snapshot(limit=10).to_pandas().equals(delta_sharing.load_as_pandas(url, limit=10))
    whole = delta_sharing.load_as_arrow(url, version=2)
    for wanted in (None, True):
        snapshot = table.snapshot(version=2, use_delta_format=wanted, convert_in_batches=True)
        assert snapshot.to_arrow().equals(whole)
        assert pa.Table.from_batches(snapshot.to_record_batches()).equals(whole)
        assert snapshot.to_record_batch_reader().read_all().equals(whole)
    plain = client.table("demo.weather.readings").snapshot(limit=5, use_delta_format=False)
    assert plain.to_pandas().equals(
        delta_sharing.load_as_pandas(profile_file + "#demo.weather.readings", 5, use_delta_format=False)
    )
    assert table.snapshot(jsonPredicateHints=hint).to_pandas().empty
    batches = table.snapshot().to_record_batches()
    assert next(batches).num_rows > 0
    batches.close()
    for listed in client.list_all_tables()[:1]:
        assert client.table(listed).version() >= 0


def test_change_objects_read_the_rows_of_the_loaders(profile_file: str) -> None:
    table = delta_sharing.SharingClient(profile_file).table("demo.shop.orders")
    url = profile_file + "#demo.shop.orders"

    for wanted in (None, True):
        changes = table.changes(starting_version=1, ending_version=2, use_delta_format=wanted)
        assert isinstance(changes, delta_sharing.TableChanges)
        expected = delta_sharing.load_table_changes_as_pandas(url, 1, 2, use_delta_format=wanted)
        assert changes.to_pandas().equals(expected)
        assert changes.to_arrow().equals(delta_sharing.load_table_changes_as_arrow(url, 1, 2, use_delta_format=wanted))
    limited = table.changes(1, limit=3, columns=["order_id"])
    assert limited.to_record_batch_reader().read_all().num_rows == limited.to_pandas().shape[0] == 3


def test_table_objects_raise_the_errors_that_scripts_catch(profile_file: str) -> None:
    gone = delta_sharing.SharingClient(profile_file).table("demo.shop.gone")
    asked = [
        gone.version,
        gone.metadata,
        gone.to_pandas,
        gone.snapshot(limit=1).to_arrow,
        lambda: next(gone.snapshot().to_record_batches()),
        gone.snapshot().to_record_batch_reader,
        gone.changes(1).to_pandas,
        gone.changes(1).to_arrow,
    ]
    for ask in asked:
        with pytest.raises(requests.HTTPError) as refused:
            ask()
        assert refused.value.response.status_code == 404
    with pytest.raises(ValueError, match="version"):
        gone.snapshot(version=1, timestamp="2024-01-01").to_pandas()
