"""Directory access: the access modes in listings and metadata, who gets credentials, and what they allow."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
import pytest
from moto.server import ThreadedMotoServer

from delta_sharing_client.redact import Secret
from mock_server import catalog
from mock_server.access import _lies_in
from mock_server.config import from_yaml
from mock_server.errors import ConfigError
from mock_server.s3 import S3Settings
from tests.time_limits import HANGS
from tests.unit.mock_server.helpers import DELTA, Api, Lines, error_of, write_plain, write_vectors

TABLE = "shares/default/schemas/default/tables/plain"
CREDENTIALS = f"{TABLE}/temporary-table-credentials"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Settings]:
    """A local S3 server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield S3Settings(
            endpoint=f"http://{host}:{port}",
            region="us-east-1",
            access_key_id="planted-key",
            secret_access_key=Secret("planted-secret"),
        )
    finally:
        server.stop()


@pytest.fixture
def bucket(s3: S3Settings) -> Iterator[Any]:
    """An empty bucket on the local S3 server."""
    resource = boto3.resource("s3", endpoint_url=s3.endpoint, region_name=s3.region, **_keys(s3))
    bucket = resource.create_bucket(Bucket="tables")
    yield bucket
    bucket.objects.all().delete()
    bucket.delete()


def _upload(bucket: Any, root: Path, prefix: str) -> None:
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        bucket.upload_file(str(path), f"{prefix}/{path.relative_to(root).as_posix()}")


def test_table_is_shared_only_by_url_by_default(api: Api) -> None:
    (table,) = [item for item in api.get("shares/default/all-tables").json()["items"] if item["name"] == "plain"]
    assert (table["accessModes"], "location" in table) == (["url"], False)
    assert Lines(api.get(f"{TABLE}/metadata")).metadata["accessModes"] == ["url"]
    response = api.post(CREDENTIALS)
    assert error_of(response) == (400, "UNSUPPORTED_OPERATION")
    assert "shared by URL only" in response.json()["message"]


def test_local_directories_are_offered_to_local_clients(start: Callable[..., Api], tables: Path) -> None:
    api = start(local_directories=True, credentials_ttl=60)
    location = (tables / "plain").as_uri()
    (table,) = [item for item in api.get("shares/default/all-tables").json()["items"] if item["name"] == "plain"]
    assert (table["accessModes"], table["location"]) == (["url", "dir"], location)
    for capabilities in (None, DELTA):
        metadata = Lines(api.get(f"{TABLE}/metadata", capabilities)).metadata
        assert (metadata["accessModes"], metadata["location"]) == (["url", "dir"], location)
    answer = api.post(CREDENTIALS).json()["credentials"]
    assert answer.keys() == {"location", "expirationTime"}
    assert answer["location"] == location
    assert api.post(CREDENTIALS, {"location": f"{location}/"}).json()["credentials"]["location"] == location
    assert error_of(api.post(CREDENTIALS, {"location": tables.as_uri()})) == (400, "INVALID_PARAMETER_VALUE")
    assert error_of(api.post(CREDENTIALS, {"location": 5})) == (400, "MALFORMED_REQUEST")
    api.server.set_fault("expired-credentials:1")
    expired = api.post(CREDENTIALS).json()["credentials"]["expirationTime"]
    assert expired < answer["expirationTime"] - 60_000


def test_local_directories_are_not_offered_to_other_machines(start: Callable[..., Api]) -> None:
    with pytest.raises(ConfigError, match="only with its own users"):
        start(local_directories=True, host="0.0.0.0")


def test_table_in_s3_is_read_by_urls_and_by_credentials(
    s3: S3Settings, bucket: Any, tmp_path: Path, start: Callable[..., Api], tables: Path
) -> None:
    _upload(bucket, tables / "plain", "warehouse/plain")
    _upload(bucket, tables / "vectors", "warehouse/vectors")
    shared = catalog.from_mapping({"plain": "s3://tables/warehouse/plain/", "vectors": "s3://tables/warehouse/vectors"})
    api = start(shared, s3=s3)
    (table,) = [item for item in api.get("shares/default/all-tables").json()["items"] if item["name"] == "plain"]
    assert (table["accessModes"], table["location"]) == (["url", "dir"], "s3://tables/warehouse/plain")

    answers = [api.query("plain"), api.query("vectors", DELTA), api.changes("vectors", "startingVersion=0", DELTA)]
    paths = {unquote(urlsplit(url).path) for lines in answers for url in lines.urls}
    assert all(api.fetch(url).content.startswith(b"PAR1") for lines in answers for url in lines.urls)
    assert all(path.startswith("/tables/warehouse/") for path in paths)
    vector = answers[1].files[0]["file"]["deltaSingleAction"]["add"]["deletionVector"]
    assert api.fetch(vector["pathOrInlineDv"]).status_code == 200

    credentials = api.post(CREDENTIALS).json()["credentials"]
    given = credentials["awsTempCredentials"]
    assert given.keys() == {"accessKeyId", "secretAccessKey", "sessionToken"}
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        region_name=s3.region,
        aws_access_key_id=given["accessKeyId"],
        aws_secret_access_key=given["secretAccessKey"],
        aws_session_token=given["sessionToken"],
    )
    listed = client.list_objects_v2(Bucket="tables", Prefix="warehouse/plain/_delta_log/")
    assert {item["Key"].rsplit("/", 1)[1] for item in listed["Contents"]} >= {"00000000000000000000.json"}


def test_files_with_special_characters_are_fetched_from_s3(
    s3: S3Settings, bucket: Any, start: Callable[..., Api], tables: Path
) -> None:
    _upload(bucket, tables / "odd", "a b/ü")
    api = start(catalog.from_mapping({"odd": "s3://tables/a b/ü"}), s3=s3)
    urls = api.query("odd").urls
    assert len(urls) == 7
    assert all(api.fetch(url).content.startswith(b"PAR1") for url in urls)


def test_s3_commit_is_visible_and_a_deleted_table_is_refused(
    s3: S3Settings, bucket: Any, tmp_path: Path, start: Callable[..., Api]
) -> None:
    write_plain(tmp_path / "plain")
    _upload(bucket, tmp_path / "plain", "t")
    api = start(catalog.from_mapping({"plain": "s3://tables/t"}), s3=s3)
    assert api.query("plain").version == 3
    commit = {"commitInfo": {"timestamp": 1_800_000_000_000, "operation": "WRITE"}}
    bucket.put_object(Key="t/_delta_log/00000000000000000004.json", Body=json.dumps(commit).encode())
    assert api.query("plain").version == 4
    bucket.objects.all().delete()
    assert error_of(api.post(f"{TABLE}/query")) == (400, "RESOURCE_DOES_NOT_EXIST")


def test_queries_of_a_directory_only_table_are_refused(
    s3: S3Settings, bucket: Any, tmp_path: Path, start: Callable[..., Api]
) -> None:
    write_plain(tmp_path / "plain")
    _upload(bucket, tmp_path / "plain", "t")
    config = tmp_path / "server.yaml"
    config.write_text(
        f"""
shares:
- name: default
  schemas:
  - name: default
    tables:
    - {{name: plain, location: "s3://tables/t", historyShared: true, accessModes: [dir],
       auxiliaryLocations: ["s3://tables/more/"], displayName: Plain}}
s3: {{endpoint: "{s3.endpoint}", region: us-east-1, accessKeyId: planted-key, secretAccessKey: planted-secret}}
temporaryCredentialsTimeoutSeconds: 60
"""
    )
    settings = from_yaml(config)
    assert "planted-secret" not in repr(settings)
    api = start(settings.catalog, s3=settings.s3)
    (table,) = api.get("shares/default/all-tables").json()["items"]
    assert table["auxiliaryLocations"] == ["s3://tables/more"]
    assert (table["displayName"], table["accessModes"]) == ("Plain", ["dir"])
    for response in (api.post(f"{TABLE}/query"), api.get(f"{TABLE}/changes?startingVersion=0")):
        assert error_of(response) == (400, "UNSUPPORTED_OPERATION")
        assert "directory access only" in response.json()["message"]
    assert Lines(api.get(f"{TABLE}/metadata")).metadata["auxiliaryLocations"] == ["s3://tables/more"]
    assert (
        api.post(CREDENTIALS, {"location": "s3://tables/more"}).json()["credentials"]["location"] == "s3://tables/more"
    )


def test_table_without_full_history_has_no_directory_access(start: Callable[..., Api], tables: Path) -> None:
    (entry,) = catalog.from_mapping({"plain": tables / "plain"}).tables
    api = start(catalog.build([replace(entry, start_version=1)]), local_directories=True)
    assert Lines(api.get(f"{TABLE}/metadata")).metadata["accessModes"] == ["url"]
    assert error_of(api.post(CREDENTIALS)) == (400, "UNSUPPORTED_OPERATION")


def test_server_does_not_start_when_the_store_is_unreadable(
    s3: S3Settings, bucket: Any, start: Callable[..., Api]
) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read from S3: the store responded 'NoSuchBucket'\."):
        start({"t": "s3://missing/t"}, s3=s3)
    with pytest.raises(ConfigError, match="there is neither a _delta_log"):
        start({"t": "s3://tables/nothing"}, s3=s3)


def test_tables_added_after_the_start_are_served(start: Callable[..., Api], tmp_path: Path) -> None:
    write_plain(tmp_path / "plain")
    api = start(tmp_path)
    write_vectors(tmp_path / "vectors")
    names = _wait_for(api, {"plain", "vectors"})
    assert names == {"plain", "vectors"}
    assert api.fetch(api.query("vectors", DELTA).urls[0]).status_code == 200
    (tmp_path / "half").mkdir()
    (tmp_path / "plain").rename(tmp_path / "moved")
    assert _wait_for(api, {"moved", "vectors"}) == {"moved", "vectors"}
    assert api.post(f"{TABLE}/query").status_code == 404


def _wait_for(api: Api, wanted: set[str]) -> set[str]:
    deadline = time.monotonic() + HANGS
    while True:
        names = {item["name"] for item in api.get("shares/default/all-tables").json()["items"]}
        if names == wanted or time.monotonic() > deadline:
            return names
        time.sleep(0.1)


def _keys(s3: S3Settings) -> dict[str, str]:
    assert s3.access_key_id is not None
    assert s3.secret_access_key is not None
    return {"aws_access_key_id": s3.access_key_id, "aws_secret_access_key": s3.secret_access_key.reveal()}


def test_missing_boto3_error_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text(
        "shares: [{name: s, schemas: [{name: d, tables: [{name: t, location: 's3://b/t'}]}]}]\n"
    )
    program = (
        "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None\nfrom mock_server.command import app; app()"
    )
    command = [sys.executable, "-c", program, "--config", str(tmp_path / "server.yaml")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2
    assert "pip install 'delta-sharing-client[server-s3]'" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("address", "lies"),
    [
        ("s3://b/t", True),
        ("s3://b/t/a", True),
        ("s3://b/t/a/b.bin", True),
        ("s3://b/t/", False),
        ("s3://b/t//a", False),
        ("s3://b/t/a/../b", False),
        ("s3://b/t/%2e%2e/u", False),
        ("s3://b/t/./a", False),
        ("s3://b/tu", False),
        ("s3://b", False),
        ("s3://other/t/a", False),
    ],
)
def test_location_contains_itself_and_normal_paths_below_it(address: str, lies: bool) -> None:
    assert _lies_in(address, "s3://b/t") is lies
