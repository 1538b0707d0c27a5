"""Every kind of line in a response, with all its fields, and every fault that damages a body."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import tempfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    DeletionVectorDescriptor,
    Metadata,
    Protocol,
    RemoveFile,
)
from delta_sharing_client.delta.actions import (
    Format as FileFormat,
)
from mock_server.app import SharingServer
from mock_server.capabilities import FileIdHash, Format
from mock_server.delivery import _Sending
from mock_server.faults import FaultSet, Target
from mock_server.s3 import S3Grant, S3Settings, S3Tables, _split, policy_of
from mock_server.signing import Use
from mock_server.table_apis import _page_end
from mock_server.throttle import Throttle
from mock_server.wire import Change, Quirks, Renderer, end_stream_line, query_status_line

ROOT = Path("/tables/t")


class Granted:
    """A signer that returns unsigned URLs, which show what they are for."""

    expires_ms = 77

    def signer(self, use: Use) -> Callable[[str], str]:
        return lambda path: f"{use.value}:{path}"


def renderer(form: Format = Format.DELTA, id_hash: FileIdHash = FileIdHash.DELTA, **quirks: Any) -> Renderer:
    access = {"accessModes": ["url"]}
    return Renderer(ROOT, form, id_hash, cast("Any", Granted()), Quirks(**quirks), access)


def line(data: bytes) -> Any:
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    return json.loads(data)


def sha(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()


VALUES = {"p": "1", "q": None}
VECTOR = DeletionVectorDescriptor("p", "file:///tables/t/dv%20x.bin", 40, 2, 1)
ADD = AddFile(
    path="a/b%20c.parquet", partition_values=VALUES, size=10, modification_time=5, data_change=True, stats='{"n":1}',
    tags={"k": "v"}, deletion_vector=VECTOR, base_row_id=3, default_row_commit_version=4, clustering_provider="z",
)  # fmt: skip
REMOVE = RemoveFile(
    path="r", data_change=True, size=20, deletion_timestamp=6, extended_file_metadata=True, partition_values=VALUES,
    stats="{}", tags={"k": None}, deletion_vector=VECTOR, base_row_id=7, default_row_commit_version=8,
)  # fmt: skip
CDC = AddCdcFile(path="c", partition_values=VALUES, size=30, data_change=False, tags={"t": "u"})
SENT = {"storageType": "p", "pathOrInlineDv": "dv:dv x.bin", "sizeInBytes": 40, "cardinality": 2, "offset": 1}


def test_file_line_has_all_fields_of_the_log() -> None:
    add = {
        "path": "add:a/b c.parquet", "partitionValues": VALUES, "size": 10, "modificationTime": 5, "dataChange": True,
        "stats": '{"n":1}', "tags": {"k": "v"}, "deletionVector": SENT, "baseRowId": 3, "defaultRowCommitVersion": 4,
        "clusteringProvider": "z",
    }  # fmt: skip
    file = {
        "id": sha("a/b c.parquet"), "deltaSingleAction": {"add": add}, "size": 10,
        "deletionVectorFileId": sha("dv x.bin"), "expirationTimestamp": 77,
    }  # fmt: skip
    assert line(renderer().adds([ADD], None, None)) == {"file": file}
    assert line(renderer().adds([ADD], 9, 8)) == {"file": file | {"version": 9, "timestamp": 8}}
    assert line(renderer().change(Change(ADD, 9, 8))) == {"file": file | {"version": 9, "timestamp": 8}}
    assert renderer().adds([ADD, ADD], None, None) == 2 * renderer().adds([ADD], None, None)
    plain = {
        "url": "add:a/b c.parquet", "id": hashlib.md5(b"a/b c.parquet").hexdigest(), "partitionValues": VALUES,
        "size": 10, "stats": '{"n":1}', "expirationTimestamp": 77,
    }  # fmt: skip
    parquet = renderer(Format.PARQUET, FileIdHash.PARQUET)
    assert line(parquet.adds([ADD], None, None)) == {"file": plain}
    assert line(parquet.adds([ADD], 9, 8)) == {"file": plain | {"version": 9, "timestamp": 8}}
    assert line(parquet.change(Change(ADD, 9, 8))) == {"add": plain | {"version": 9, "timestamp": 8}}
    assert parquet.adds([ADD, ADD], None, None) == 2 * parquet.adds([ADD], None, None)


def test_change_line_has_all_fields_of_the_log() -> None:
    remove = {
        "path": "remove:r", "dataChange": True, "size": 20, "deletionTimestamp": 6, "extendedFileMetadata": True,
        "partitionValues": VALUES, "stats": "{}", "tags": {"k": None}, "deletionVector": SENT, "baseRowId": 7,
        "defaultRowCommitVersion": 8,
    }  # fmt: skip
    common = {"version": 9, "timestamp": 8, "expirationTimestamp": 77}
    assert line(renderer().change(Change(REMOVE, 9, 8))) == {
        "file": {"id": sha("r"), "deltaSingleAction": {"remove": remove}, "size": 20,
                 "deletionVectorFileId": sha("dv x.bin"), **common}
    }  # fmt: skip
    cdc = {"path": "cdc:c", "partitionValues": VALUES, "size": 30, "dataChange": False, "tags": {"t": "u"}}
    assert line(renderer().change(Change(CDC, 9, 8))) == {
        "file": {"id": sha("c"), "deltaSingleAction": {"cdc": cdc}, "size": 30, **common}
    }
    bare = RemoveFile(path="r", data_change=False)
    assert line(renderer().change(Change(bare, 9, None))) == {
        "file": {
            "id": sha("r"), "deltaSingleAction": {"remove": {"path": "remove:r", "dataChange": False, "size": 0}},
            "size": 0, "version": 9, "expirationTimestamp": 77,
        }
    }  # fmt: skip
    parquet = renderer(Format.PARQUET)
    for action, kind, use, size in ((REMOVE, "remove", "remove", 20), (CDC, "cdf", "cdc", 30)):
        file = {
            "url": f"{use}:{action.path}",
            "id": sha(action.path),
            "partitionValues": VALUES,
            "size": size,
            **common,
        }
        assert line(parquet.change(Change(action, 9, 8))) == {kind: file}
    assert line(parquet.change(Change(bare, 9, 8)))["remove"]["partitionValues"] == {}
    assert line(parquet.change(Change(bare, 9, 8)))["remove"]["size"] == 0


def test_deletion_vectors_are_sent_inline_or_as_urls() -> None:
    def sent(*vector: Any) -> Any:
        add = AddFile(path="a", partition_values={}, size=1, modification_time=1, data_change=True,
                      deletion_vector=DeletionVectorDescriptor(*vector) if vector else None)  # fmt: skip
        file = line(renderer().adds([add], None, None))["file"]
        return file["deltaSingleAction"]["add"].get("deletionVector"), file.get("deletionVectorFileId")

    assert sent() == (None, None)
    inline = ("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6)
    assert sent(*inline)[1] is None
    assert sent(*inline)[0]["pathOrInlineDv"] == inline[1]
    result, file_id = sent("u", "ab^-aqEH.-t@S}K{vb[*k^", 36, 2, 4)
    name = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert (result["pathOrInlineDv"], result["storageType"], file_id) == (f"dv:{name}", "p", sha(name))
    assert (result["sizeInBytes"], result["cardinality"], result["offset"]) == (36, 2, 4)
    elsewhere = sent("p", "file:///other/dv.bin", 36, 2, 4)
    assert (elsewhere[0]["pathOrInlineDv"], elsewhere[1]) == ("dv:/other/dv.bin", sha("/other/dv.bin"))


def test_path_of_a_file_is_decoded_and_relative_to_the_table() -> None:
    for path, expected in (
        ("a/b", "a/b"),
        ("a%2Fb", "a/b"),
        ("file:///tables/t/x", "x"),
        ("file:///tables/tt/x", "/tables/tt/x"),
        ("a..b", "a..b"),
        ("x/a:b", "x/a:b"),
    ):
        assert renderer()._locate(path, str) == (expected, sha(expected))
    odd = renderer()._locate("a\udcff", str)
    assert odd == ("a\udcff", hashlib.sha256(b"a\xff").hexdigest())
    s3 = renderer()
    s3._is_s3 = True
    assert s3._locate("s3://b/a%20b", str)[0] == "s3://b/a%20b"


SCHEMA = (
    '{"type":"struct","fields":[{"name":"a","type":{"type":"array","elementType":{"type":"struct","fields":[{"name":"x",'
    '"type":"long","nullable":true,"metadata":{"comment":"in","other":1}}]},"containsNull":true},"nullable":true,'
    '"metadata":null},{"name":"b","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":1}}]}'
)
METADATA = Metadata(
    id="i",
    schema_string=SCHEMA,
    partition_columns=["b"],
    configuration={"delta.enableChangeDataFeed": "True", "k": "v"},
    name="n",
    description="d",
    format=FileFormat("parquet", {"o": "1"}),
    created_time=5,
)


def test_metadata_line_has_all_fields_of_the_log() -> None:
    content = {
        "id": "i", "name": "n", "description": "d", "format": {"provider": "parquet", "options": {"o": "1"}},
        "schemaString": SCHEMA, "partitionColumns": ["b"],
        "configuration": {"delta.enableChangeDataFeed": "True", "k": "v"}, "createdTime": 5,
    }  # fmt: skip
    modes = {"accessModes": ["url"]}
    facts = {"version": 1, "size": 2, "numFiles": 3}
    assert line(renderer().metadata(METADATA)) == {"metaData": {"deltaMetadata": content, **modes}}
    assert line(renderer().metadata(METADATA, version=1, size=2, files=3)) == {
        "metaData": {"deltaMetadata": content, **facts, **modes}
    }
    assert line(renderer().metadata(METADATA, version=0, size=0, files=0))["metaData"].keys() >= facts.keys()
    bare = Metadata(id="i", schema_string="{}")
    assert line(renderer().metadata(bare)) == {
        "metaData": {
            "deltaMetadata": {
                "id": "i", "format": {"provider": "parquet", "options": {}}, "schemaString": "{}",
                "partitionColumns": [], "configuration": {},
            },
            **modes,
        }
    }  # fmt: skip
    public = json.loads(SCHEMA)
    public["fields"][0]["type"]["elementType"]["fields"][0]["metadata"] = {"comment": "in"}
    public["fields"][0]["metadata"] = public["fields"][1]["metadata"] = {}
    result = line(renderer(Format.PARQUET).metadata(METADATA, version=1, size=2, files=3))["metaData"]
    assert json.loads(result.pop("schemaString")) == public
    assert result == {
        "id": "i", "name": "n", "description": "d", "format": {"provider": "parquet"}, "partitionColumns": ["b"],
        "configuration": {"enableChangeDataFeed": "true"}, **facts, **modes,
    }  # fmt: skip
    assert line(renderer(Format.PARQUET).metadata(bare))["metaData"]["configuration"] == {}


def test_protocol_line_has_features_and_version() -> None:
    full = Protocol(3, 7, ["r"], ["w"])
    content = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["r"], "writerFeatures": ["w"]}
    assert line(renderer().protocol(full)) == {"protocol": {"deltaProtocol": content}}
    assert line(renderer().protocol(full, 0)) == {"protocol": {"deltaProtocol": content, "version": 0}}
    assert line(renderer().protocol(Protocol(1, 2))) == {
        "protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    }
    assert line(renderer(Format.PARQUET).protocol(full, 5)) == {"protocol": {"minReaderVersion": 1}}


def test_each_fault_of_a_line_changes_only_its_field() -> None:
    for form in Format:
        plain = renderer(form).adds([ADD], None, None)
        assert b"expirationTimestamp" not in renderer(form, no_expiration=True).adds([ADD], None, None)
        assert renderer(form, no_expiration=True).expires_ms is None
        assert renderer(form).expires_ms == 77
        assert b'"stats"' not in renderer(form, no_stats=True).adds([ADD], None, None)
        assert renderer(form, size_offset=-3).adds([ADD], None, None) == plain.replace(b'"size":10', b'"size":7')
        assert b'"q":""' in renderer(form, empty_nulls=True).adds([ADD], None, None)
        for action in (REMOVE, CDC):
            assert b'"q":""' in renderer(form, empty_nulls=True).change(Change(action, 1, 1))
            size = (action.size or 0) + 5
            assert f'"size":{size}'.encode() in renderer(form, size_offset=5).change(Change(action, 1, 1))
        assert "\u2028" in renderer(form, odd_names=True).metadata(METADATA).decode()


def test_end_and_status_lines_have_all_given_fields() -> None:
    assert line(end_stream_line()) == {"endStreamAction": {}}
    full = end_stream_line(refresh_token="r", next_page_token="n", min_url_expiration=0, error=(500, "e"))
    assert line(full)["endStreamAction"] == {
        "refreshToken": "r", "nextPageToken": "n", "minUrlExpirationTimestamp": 0, "httpStatusErrorCode": 500,
        "errorMessage": "e",
    }  # fmt: skip
    assert line(query_status_line("q", "RUNNING")) == {"queryStatus": {"queryId": "q", "status": "RUNNING"}}
    assert line(query_status_line("q", "FAILED", "m"))["queryStatus"] == {
        "queryId": "q",
        "status": "FAILED",
        "message": "m",
    }


def test_page_has_the_requested_number_of_files() -> None:
    adds = [ADD] * 5
    assert [_page_end(adds, start, 2) for start in range(6)] == [2, 3, 4, 5, 5, 5]
    assert _page_end(adds, 1, None) == _page_end(adds, 0, 9) == 5
    change, other = Change(REMOVE, 1, 1), (METADATA, 1)
    items: Any = [other, change, change, other, other, change, other]
    # A line that is not a file is on the same page as the next file.
    assert [_page_end(items, start, 1) for start in (0, 1, 2, 3, 5, 6)] == [2, 2, 5, 7, 7, 7]
    assert [_page_end(items, start, 2) for start in (0, 2, 5)] == [5, 7, 7]
    assert _page_end(items, 0, None) == _page_end([], 0, 1) + 7 == 7


# --- bodies in pieces ---


class Wire:
    """A connection that records the bytes written to it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    async def send_file(self, file: int, offset: int, count: int) -> None:
        self.written.append(os.pread(file, count, offset))


class Slots:
    """Replaces a throttle and sends pieces of four bytes."""

    piece = 4

    def __init__(self) -> None:
        self.waits: list[int] = []

    async def wait(self, count: int) -> None:
        self.waits.append(count)


@pytest.mark.parametrize("throttled", [False, True])
def test_throttled_body_is_sent_in_small_pieces(tmp_path: Path, throttled: bool) -> None:
    (tmp_path / "f").write_bytes(b"0123456789abc")
    sent: list[Any] = []
    throttle, wire = (Slots() if throttled else None), Wire()

    async def send(message: Any) -> None:
        sent.append(message)

    async def all_of(messages: Sequence[Any]) -> _Sending:
        scope: Any = {"method": "GET", "extensions": {"mock_server.connection": wire}}
        answer = _Sending(scope, send, FaultSet(), Target.DATA, cast("Any", throttle))
        answer.connection = cast("Any", wire)
        for message in messages:
            await answer.send(message)
        return answer

    start = {"type": "http.response.start", "status": 200, "headers": []}
    body = {"type": "http.response.body"}
    answer = asyncio.run(
        all_of(
            [
                start,
                body | {"body": b"abcd", "more_body": True},
                body | {"body": b"abcdefghi", "more_body": True},
                body | {"body": b"efghijklm"},
                body,
            ]
        )
    )
    assert (answer.status, answer.sent) == (200, 22)
    assert sent[0] == start
    assert b"".join(message.get("body", b"") for message in sent[1:]) == b"abcdabcdefghiefghijklm"
    assert [message.get("more_body", False) for message in sent[1:]] == (
        [True, True, True, True, True, True, True, True, False, False] if throttled else [True, True, False, False]
    )
    if throttle is not None:
        assert throttle.waits == [4, 4, 4, 1, 4, 4, 1]
        throttle.waits.clear()
    handle = os.open(tmp_path / "f", os.O_RDONLY)
    try:
        file = {"type": "http.response.zerocopysend", "file": handle, "offset": 2, "count": 10}
        answer = asyncio.run(all_of([file]))
    finally:
        os.close(handle)
    assert answer.sent == 10
    assert wire.written == ([b"2345", b"6789", b"ab"] if throttled else [b"23456789ab"])
    if throttle is not None:
        assert throttle.waits == [4, 4, 2]


def test_throttled_piece_is_10_ms_of_data_within_limits() -> None:
    assert [Throttle(rate).piece for rate in (1, 102_400, 1_000_000, 10**9)] == [1024, 1024, 10_000, 262_144]


# --- S3, with a replaced client ---


class Service:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    def get_federation_token(self, **what: Any) -> Any:
        self.asked.append(what)
        return {"Credentials": {"AccessKeyId": "a", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": 1}}

    def generate_presigned_url(self, *what: Any, **how: Any) -> str:
        self.asked.append((what, how))
        return "https://signed"


def test_credential_lifetime_and_policy_fit_the_token_service() -> None:
    tables, service = S3Tables(S3Settings()), Service()
    tables._clients = {"sts False": service}
    for lifetime, seconds in ((1.0, 900), (900.5, 900), (3600.9, 3600), (1e9, 129_600)):
        result = tables.credentials("s3://b/k", lifetime)
        assert result == {"accessKeyId": "a", "secretAccessKey": "s", "sessionToken": "t"}
        assert service.asked.pop() == {
            "Name": "delta-sharing", "DurationSeconds": seconds, "Policy": policy_of("s3://b/k")
        }  # fmt: skip
    whole = json.loads(policy_of("s3://b"))["Statement"]
    assert [statement["Resource"] for statement in whole] == ["arn:aws:s3:::b/*", "arn:aws:s3:::b"]
    assert json.loads(policy_of("s3://b/k/")) == {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/k/*"},
            {
                "Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::b",
                "Condition": {"StringLike": {"s3:prefix": "k/*"}},
            },
        ],
    }  # fmt: skip


def test_presigned_urls_use_the_path_and_lifetime_of_their_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mock_server.s3.time.time", lambda: 100.5)
    service = Service()
    for lifetime, seconds in ((0.2, 1), (60.9, 60)):
        grant = S3Grant(service, "s3://b/k", lifetime)
        assert grant.expires_ms == 100_500 + 1000 * seconds
        for path, bucket, key in (("a b", "b", "k/a b"), ("s3://other/x%20y", "other", "x y")):
            assert grant.signer(Use.ADD)(path) == "https://signed"
            how = {"Params": {"Bucket": bucket, "Key": key}, "ExpiresIn": seconds}
            assert service.asked.pop() == (("get_object",), how)
    for location, parts in (("s3://b", ("b", "")), ("s3a://b/", ("b", "")), ("s3n://b/k//", ("b", "k/"))):
        assert _split(location) == parts
    assert _split("s3://b/k/", folder=False) == ("b", "k/")
    assert _split("s3://b", folder=False) == ("b", "")


def test_copied_logs_are_removed_when_the_server_stops(tmp_path: Path) -> None:
    tables = S3Tables(S3Settings())
    SharingServer.close(cast("Any", types.SimpleNamespace(_s3=tables)))
    tables._folder = tempfile.TemporaryDirectory(dir=tmp_path)
    SharingServer.close(cast("Any", types.SimpleNamespace(_s3=tables)))
    assert list(tmp_path.iterdir()) == []
