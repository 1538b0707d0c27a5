"""Credentials as options: in plain text in a classic session, split into two halves in Spark Connect."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles

from delta_sharing_client.errors import UsageError
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.spark import session_credentials

TOKEN = "planted-token-31c8"
FIELDS = {"endpoint": "https://sharing.example/api", "shareCredentialsVersion": "1", "bearerToken": TOKEN}
OAUTH = {
    "shareCredentialsVersion": 2,
    "type": "oauth_client_credentials",
    "endpoint": "https://sharing.example/api",
    "tokenEndpoint": "https://login.example/token",
    "clientId": "planted-client",
    "clientSecret": TOKEN,
}


class Classic:
    _sc = object()


class Connect:
    """A session that stores artifacts by name, as a Spark Connect server does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent: list[str] = []

    def addArtifacts(self, path: str, *, file: bool) -> None:
        assert file
        assert os.stat(path).st_mode & 0o077 == 0 or os.stat(Path(path).parent).st_mode & 0o077 == 0
        (self.folder / Path(path).name).write_bytes(Path(path).read_bytes())
        self.sent.append(path)


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(SparkFiles, "get", lambda name: str(tmp_path / name))
    return Connect(tmp_path)


def test_classic_session_has_the_credentials_in_its_options() -> None:
    session: Any = Classic()
    assert session_credentials.given_to(session, FIELDS) == FIELDS
    options = {"path": "a.b.c", "Endpoint": "https://sharing.example"}
    assert session_credentials.found_by(options) is options


@pytest.mark.parametrize("fields", [FIELDS, {**FIELDS, "bearerToken": "é" * 5000}, {"clientSecret": TOKEN}])
def test_neither_half_reveals_the_credentials(connect: Any, fields: dict[str, str]) -> None:
    given = session_credentials.given_to(connect, fields)

    (sent,) = connect.sent
    assert not os.path.exists(sent)
    half = (connect.folder / Path(sent).name).read_bytes()
    for part in (text for text in fields.values() if len(text) > 1):
        assert part.encode() not in half
        assert json.dumps(part)[1:-1].encode() not in half
        assert part not in str(given)
    found = session_credentials.found_by({"Path": "a.b.c", **given})
    assert found == {"path": "a.b.c", **{name.lower(): value for name, value in fields.items()}}


def test_same_credentials_are_sent_once_to_each_session(connect: Any, tmp_path: Path) -> None:
    first = session_credentials.given_to(connect, FIELDS)
    assert session_credentials.given_to(connect, dict(FIELDS)) == first
    assert session_credentials.given_to(connect, {**FIELDS, "bearerToken": "other"}) != first
    (tmp_path / "other").mkdir()
    other: Any = Connect(tmp_path / "other")
    second = session_credentials.given_to(other, FIELDS)
    assert second != first
    assert (len(connect.sent), len(other.sent)) == (2, 1)
    halves = [(one.folder / Path(one.sent[0]).name).read_bytes() for one in (connect, other)]
    assert halves[0] != halves[1]


def test_credentials_of_another_session_are_not_found(connect: Any) -> None:
    given = session_credentials.given_to(connect, FIELDS)
    os.remove(connect.folder / Path(connect.sent[0]).name)

    with pytest.raises(UsageError, match="were sent to another session") as caught:
        session_credentials.found_by({**given})
    assert str(connect.folder) not in str(caught.value)


@pytest.mark.parametrize(
    "value", ["", "../../etc/passwd:AAAA", f"delta-sharing-{'0' * 32}", f"delta-sharing-{'0' * 32}:A"]
)
def test_malformed_references_to_credentials_are_refused(connect: Any, value: str) -> None:
    (connect.folder / f"delta-sharing-{'0' * 32}").write_bytes(b"{}")

    with pytest.raises(UsageError, match="'credentials' is set by this data source itself"):
        session_credentials.found_by({"CREDENTIALS": value})


def test_sent_parts_are_encrypted_and_each_is_found(connect: Any) -> None:
    parts = [b"", TOKEN.encode(), bytes(range(256)) * 300, b"\0" * 64, TOKEN.encode()]
    sent = session_credentials.send_parts(connect, parts)

    (path,) = connect.sent
    assert not os.path.exists(path)
    content = (connect.folder / Path(path).name).read_bytes()
    assert len(content) == sum(map(len, parts))
    assert TOKEN.encode() not in content
    assert bytes(8) not in content  # no part is as it was, and no two parts have the same key stream
    assert content[: len(TOKEN)] != content[-len(TOKEN) :]
    pickled = pickle.dumps(sent.part)
    assert len(pickled) < 1000
    assert [pickle.loads(pickled)(number) for number in range(len(parts))] == parts
    assert TOKEN not in repr(sent)
    again = session_credentials.send_parts(connect, parts)
    assert again.part(1) == parts[1]
    assert (connect.folder / Path(connect.sent[1]).name).read_bytes() != content


@pytest.mark.parametrize("content", [b"[1]", b'{"a":1}'])
def test_artifact_of_another_type_is_refused(connect: Any, content: bytes) -> None:
    name = f"delta-sharing-{'0' * 32}"
    (connect.folder / name).write_bytes(content)
    pad = base64.b64encode(bytes(len(content))).decode()
    with pytest.raises(UsageError, match="'credentials' is set by this data source itself"):
        session_credentials.found_by({"credentials": f"{name}:{pad}"})


def test_half_of_other_credentials_is_refused(connect: Any) -> None:
    given = session_credentials.given_to(connect, FIELDS)
    (connect.folder / Path(connect.sent[0]).name).write_bytes(b"changed")

    with pytest.raises(UsageError, match="'credentials' is set by this data source itself"):
        session_credentials.found_by({**given})


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ({**FIELDS, "shareCredentialsVersion": 1}, FIELDS),
        (
            {**FIELDS, "shareCredentialsVersion": 1, "expirationTime": "2099-01-01T00:00:00Z"},
            {**FIELDS, "expirationTime": "2099-01-01T00:00:00Z"},
        ),
        (
            {**FIELDS, "shareCredentialsVersion": 2, "type": "bearer_token"},
            {**FIELDS, "shareCredentialsVersion": "2", "type": "bearer_token"},
        ),
        (OAUTH, {**OAUTH, "shareCredentialsVersion": "2"}),
        (
            {**FIELDS, "shareCredentialsVersion": 1, "icebergEndpoint": "https://sharing.example/iceberg"},
            {**FIELDS, "icebergEndpoint": "https://sharing.example/iceberg"},
        ),
        ({**OAUTH, "scope": "a b"}, {**OAUTH, "shareCredentialsVersion": "2", "scope": "a b"}),
        ({**OAUTH, "audience": "https://audience.example"}, None),
        ({**FIELDS, "shareCredentialsVersion": 1, "bearerToken": lambda: TOKEN}, None),
    ],
)
def test_profile_is_converted_to_options(profile: dict[str, object], expected: dict[str, str] | None) -> None:
    assert session_credentials.fields_of(Profile.load(profile)) == expected


@pytest.mark.spark
def test_spark_server_reports_missing_credentials(connect_url: str, lake: Any) -> None:
    """In a separate process without a JVM."""
    script = f"""if True:
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.remote({connect_url!r}).getOrCreate()
        frame = spark.read.format("deltaSharing").option("credentials", "delta-sharing-{"0" * 32}:AAAA")
        try:
            frame.load("share.schema.t").collect()
        except Exception as error:
            print(error)
        spark.stop()
    """
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert "does not have the credentials of this DataFrame or catalog" in run.stdout
