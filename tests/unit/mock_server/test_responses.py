"""Queries and metadata: formats, time travel, pages, tokens, hints, ids and URLs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from delta_sharing_client.delta.actions import AddFile, DeletionVectorDescriptor
from mock_server.catalog import TableEntry, build
from mock_server.table_writer import TableWriter, with_vector
from tests.unit.mock_server.helpers import (
    DELTA,
    Api,
    Lines,
    Protocol,
    at,
    error_of,
    kinds,
    rows,
    stamp,
    table,
    url_of,
    write_plain,
    write_vectors,
)

TABLES = "shares/default/schemas/default/tables"
FEED = f"{TABLES}/feed"


def failure(api: Api, table: str, capabilities: str | None = None, **body: object) -> tuple[int, str, str]:
    response = api.post(f"{TABLES}/{table}/query", body, capabilities)
    return (*error_of(response), response.json()["message"])


# --- formats ---


def test_response_without_a_capabilities_header_is_parquet(api: Api) -> None:
    lines = api.query("plain")
    assert lines.version == 3
    assert lines.headers["delta-sharing-capabilities"] == "responseformat=parquet"
    assert lines.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert lines.protocol == {"minReaderVersion": 1}
    assert lines.metadata["numFiles"] == 2
    assert lines.metadata["size"] == sum(line["file"]["size"] for line in lines.files)
    assert "version" not in lines.metadata
    assert [line["file"]["partitionValues"] for line in lines.files] == [{"p": None}, {"p": "a"}]
    assert all("version" not in line["file"] and line["file"]["stats"] for line in lines.files)


@pytest.mark.parametrize("features", ["", ";readerfeatures=deletionvectors"])
def test_parquet_format_is_refused_for_tables_that_need_delta(
    start: Callable[..., Api], tmp_path: Path, features: str
) -> None:
    write_vectors(tmp_path / "vectors")
    status, code, message = failure(start(tmp_path), "vectors", f"responseformat=parquet{features}")
    assert (status, code) == (400, "UNSUPPORTED_OPERATION")
    assert "cannot be shared in the parquet response format" in message


def test_client_that_accepts_only_delta_gets_delta(api: Api) -> None:
    lines = api.query("plain", "responseFormat=Delta")
    assert lines.headers["delta-sharing-capabilities"] == "responseformat=delta"
    assert lines.protocol["deltaProtocol"]["minReaderVersion"] == 1
    assert lines.metadata["deltaMetadata"]["partitionColumns"] == ["p"]
    assert lines.metadata["deltaMetadata"]["format"] == {"provider": "parquet", "options": {}}
    assert lines.metadata["size"] > 0
    for line in lines.files:
        add = line["file"]["deltaSingleAction"]["add"]
        assert add.keys() >= {"path", "partitionValues", "size", "modificationTime", "dataChange", "stats"}
        assert line["file"]["size"] == add["size"]


@pytest.mark.parametrize("path", ["metadata", "changes?startingVersion=0"])
def test_feature_unsupported_in_parquet_format_is_named(api: Api, path: str) -> None:
    response = api.get(f"{TABLES}/vectors/{path}")
    assert error_of(response) == (400, "UNSUPPORTED_OPERATION")
    assert "deletionVectors" in response.json()["message"]


@pytest.mark.parametrize("path", ["query", "changes?startingVersion=0"])
def test_parquet_refuses_vectors_that_the_protocol_does_not_list(
    start: Callable[..., Api], tables: Path, tmp_path: Path, path: str
) -> None:
    shutil.copytree(tables / "vectors", tmp_path / "vectors")
    commit = tmp_path / "vectors" / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 4}
        if "metaData" in line:
            del line["metaData"]["configuration"]["delta.enableDeletionVectors"]
    commit.write_text("\n".join(map(json.dumps, lines)))
    own = start(tmp_path)
    response = own.post(f"{TABLES}/vectors/query", {}) if path == "query" else own.get(f"{TABLES}/vectors/{path}")
    assert error_of(response) == (400, "UNSUPPORTED_OPERATION")
    assert "which its protocol does not list" in response.json()["message"]


def test_table_feature_that_the_client_does_not_list_is_refused(api: Api) -> None:
    status, code, message = failure(api, "vectors", "responseformat=delta;readerfeatures=columnmapping")
    assert (status, code) == (400, "UNSUPPORTED_OPERATION")
    assert "does not list deletionVectors" in message


def test_unknown_response_format_is_400(api: Api) -> None:
    assert failure(api, "plain", "responseformat=avro")[:2] == (400, "INVALID_PARAMETER_VALUE")


# --- time travel ---


@pytest.mark.parametrize(("point", "version"), [({"version": 0}, 0), ({"timestamp": stamp(1)}, 1), ({"version": 3}, 3)])
def test_time_travel_states_version_on_metadata_and_files(api: Api, point: dict[str, object], version: int) -> None:
    lines = api.query("plain", **point)
    assert lines.version == version
    assert lines.metadata["version"] == version
    assert {line["file"]["version"] for line in lines.files} == {version}
    assert all(line["file"]["timestamp"] for line in lines.files)
    query = "&".join(f"{name}={value}" for name, value in point.items())
    assert Lines(api.get(f"{TABLES}/plain/metadata?{query}")).version == version


@pytest.mark.parametrize(
    "point",
    [
        {"version": 4},
        {"version": -1},
        {"version": 0, "timestamp": stamp(0)},
        {"timestamp": "2026-01-01T00:00:00Z"},
        {"timestamp": "2999-01-01T00:00:00Z"},
        {"timestamp": "today"},
        {"startingVersion": 4},
    ],
)
def test_invalid_version_or_timestamp_is_400(api: Api, point: dict[str, object]) -> None:
    assert failure(api, "plain", **point)[:2] == (400, "INVALID_PARAMETER_VALUE")


def test_unshared_history_cannot_be_requested(start: Callable[..., Api], tables: Path) -> None:
    own = start(build([TableEntry("default", "default", "t", tables / "plain", "id", history_shared=False)]))
    assert own.query("t").version == 3
    for point in ({"version": 1}, {"timestamp": stamp(1)}, {"startingVersion": 1}):
        assert failure(own, "t", **point)[:2] == (400, "UNSUPPORTED_OPERATION")
    assert error_of(own.get(f"{TABLES}/t/changes?startingVersion=0")) == (400, "UNSUPPORTED_OPERATION")
    assert error_of(own.get(f"{TABLES}/t/version?startingTimestamp={stamp(0)}")) == (400, "UNSUPPORTED_OPERATION")


def test_versions_before_the_first_shared_one_are_refused(start: Callable[..., Api], tables: Path) -> None:
    own = start(build([TableEntry("default", "default", "t", tables / "plain", "id", start_version=2)]))
    assert own.query("t", version=2).version == 2
    for point in ({"version": 1}, {"timestamp": stamp(1)}, {"startingVersion": 1}):
        status, _, message = failure(own, "t", **point)
        assert status == 400
        assert "since version 2" in message


def test_next_request_sees_a_new_commit(start: Callable[..., Api], tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "t")
    writer.commit([Protocol(1, 2), table("t"), writer.add(rows(1), time=at(0))], "WRITE", at(0))
    own = start(tmp_path)
    assert len(own.query("t").files) == 1
    writer.commit([writer.add(rows(2), time=at(1))], "WRITE", at(1))
    again = own.query("t")
    assert (again.version, len(again.files)) == (1, 2)


# --- files: ids, URLs, deletion vectors ---


def test_file_ids_are_md5_for_parquet_and_sha256_for_delta(api: Api) -> None:
    assert {len(line["file"]["id"]) for line in api.query("plain").files} == {32}
    assert {len(line["file"]["id"]) for line in api.query("plain", DELTA).files} == {64}
    response = api.post(f"{TABLES}/plain/query", {}, DELTA, fileidhash="Parquet")
    assert response.headers["fileidhash"] == "parquet"
    assert {len(line["file"]["id"]) for line in Lines(response).files} == {32}
    for bad in ("", "md5"):
        assert error_of(api.post(f"{TABLES}/plain/query", {}, DELTA, fileidhash=bad))[0] == 400


def test_file_has_one_id_and_different_urls_by_action(api: Api) -> None:
    lines = api.query("vectors", DELTA, startingVersion=1, endingVersion=1)
    by_kind = {kind: line["file"] for (_, kind), line in zip(kinds(lines), lines.files, strict=True)}
    assert by_kind["add"]["id"] == by_kind["remove"]["id"]
    added, removed = by_kind["add"]["deltaSingleAction"]["add"], by_kind["remove"]["deltaSingleAction"]["remove"]
    assert added["path"] != removed["path"]
    assert urlsplit(added["path"]).path == urlsplit(removed["path"]).path
    assert removed["size"] == added["size"]
    assert api.fetch(added["path"]).content == api.fetch(removed["path"]).content


def test_files_with_special_characters_are_served(api: Api) -> None:
    for capabilities in (None, DELTA):
        lines = api.query("odd", capabilities)
        assert len(lines.files) == 7
        for url in lines.urls:
            assert api.fetch(url).content[:4] == b"PAR1"


def test_urls_have_s3_parameters_and_one_stated_expiration(api: Api) -> None:
    lines = api.query("plain", "includeendstreamaction=true")
    assert lines.end is not None
    assert {line["file"]["expirationTimestamp"] for line in lines.files} == {lines.end["minUrlExpirationTimestamp"]}
    for url in lines.urls:
        for name in ("X-Amz-Signature", "X-Amz-Expires", "X-Amz-Date", "X-Amz-Algorithm"):
            assert f"{name}=" in url


# --- end of stream, pages, tokens ---


def test_end_of_stream_is_sent_only_on_request(api: Api) -> None:
    assert api.query("plain").end is None
    asked = api.query("plain", "includeendstreamaction=true")
    assert asked.end is not None
    assert asked.headers["delta-sharing-capabilities"] == "responseformat=parquet;includeendstreamaction=true"
    for body in ({"includeRefreshToken": True}, {"maxFiles": 5}):
        answer = api.query("plain", **body)
        assert answer.end is not None
        assert "includeendstreamaction" not in answer.headers["delta-sharing-capabilities"]


def pages(api: Api, table: str, capabilities: str | None, **body: object) -> list[Lines]:
    results = [api.query(table, capabilities, **body)]
    while results[-1].end and "nextPageToken" in results[-1].end:
        results.append(api.query(table, capabilities, **body, pageToken=results[-1].end["nextPageToken"]))
    return results


@pytest.mark.parametrize("capabilities", [None, DELTA])
@pytest.mark.parametrize("point", [{}, {"version": 0}, {"startingVersion": 0}, {"startingVersion": 1}])
def test_pages_of_one_file_form_the_whole_response(
    api: Api, capabilities: str | None, point: dict[str, object]
) -> None:
    whole = api.query("plain", capabilities, **point)
    result = pages(api, "plain", capabilities, **point, maxFiles=1)
    assert [len(page.files) for page in result] == [1] * len(whole.files)
    assert [urlsplit(url).path for page in result for url in page.urls] == [urlsplit(url).path for url in whole.urls]
    for page in result:
        assert (page.protocol, page.metadata, page.version) == (whole.protocol, whole.metadata, whole.version)
        assert "endStreamAction" in page.all[-1]


def test_next_page_has_the_version_of_the_first_page(start: Callable[..., Api], tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "t")
    adds = [writer.add(rows(number), time=at(0)) for number in range(3)]
    writer.commit([Protocol(1, 2), table("t"), *adds], "WRITE", at(0))
    own = start(tmp_path)
    first = own.query("t", maxFiles=2)
    assert first.end is not None
    writer.commit([writer.add(rows(9), time=at(1))], "WRITE", at(1))
    second = own.query("t", maxFiles=2, pageToken=first.end["nextPageToken"])
    assert second.version == 0
    assert len(second.files) == 1
    assert second.end is not None
    assert "nextPageToken" not in second.end


def test_page_token_is_valid_only_for_its_own_query(api: Api) -> None:
    first = api.query("plain", maxFiles=1, version=3)
    assert first.end is not None
    token = first.end["nextPageToken"]
    assert failure(api, "plain", maxFiles=1, version=2, pageToken=token)[0] == 400
    assert failure(api, "feed", maxFiles=1, version=3, pageToken=token)[0] == 400
    assert failure(api, "plain", DELTA, maxFiles=1, version=3, pageToken=token)[0] == 400
    assert failure(api, "plain", pageToken="nonsense")[0] == 400
    assert failure(api, "plain", pageToken=token[:-4] + "AAAA", version=3)[0] == 400
    assert len(api.query("plain", version=3, pageToken=token).files) == 1


def test_page_tokens_and_refresh_tokens_expire(start: Callable[..., Api]) -> None:
    own = start(page_token_ttl=-1.0, refresh_token_ttl=-1.0)
    first = own.query("plain", maxFiles=1, includeRefreshToken=True)
    assert first.end is not None
    assert "expired" in failure(own, "plain", pageToken=first.end["nextPageToken"])[2]
    assert "expired" in failure(own, "plain", refreshToken=first.end["refreshToken"])[2]


def test_refresh_token_returns_the_same_version_and_file_ids(start: Callable[..., Api], tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "t")
    writer.commit([Protocol(1, 2), table("t"), writer.add(rows(1), time=at(0))], "WRITE", at(0))
    own = start(tmp_path)
    first = own.query("t", includeRefreshToken=True)
    writer.commit([writer.add(rows(2), time=at(1))], "WRITE", at(1))
    assert first.end is not None
    again = own.query("t", refreshToken=first.end["refreshToken"], includeRefreshToken=True)
    assert again.version == 0
    assert [line["file"]["id"] for line in again.files] == [line["file"]["id"] for line in first.files]
    assert again.end is not None
    assert again.end["refreshToken"]


def test_refresh_token_is_valid_only_alone_and_for_its_table(api: Api) -> None:
    end = api.query("plain", includeRefreshToken=True, maxFiles=1).end
    assert end is not None
    token = end["refreshToken"]
    assert failure(api, "plain", refreshToken=token, version=1)[:2] == (400, "INVALID_PARAMETER_VALUE")
    assert failure(api, "feed", refreshToken=token)[0] == 400
    assert failure(api, "plain", refreshToken=end["nextPageToken"])[0] == 400


# --- hints (test_hints.py tests their meaning) ---


def test_sql_and_json_hints_skip_files(api: Api) -> None:
    node = {"op": "equal", "children": [{"op": "column", "name": "P", "valueType": "string"},
                                        {"op": "literal", "value": "a", "valueType": "string"}]}  # fmt: skip
    assert len(api.query("plain", jsonPredicateHints=json.dumps(node)).files) == 1
    assert len(api.query("plain", predicateHints=["p = 'a'"]).files) == 1
    assert len(api.query("plain", predicateHints=["p is null", "nonsense ("]).files) == 1
    assert len(api.query("plain", jsonPredicateHints="{nonsense").files) == 2
    assert api.query("plain", predicateHints=["p = 'a'"]).metadata["numFiles"] == 2


def test_limit_returns_files_until_it_has_enough_rows(api: Api) -> None:
    assert [len(api.query("plain", limitHint=limit).files) for limit in (1, 2, 3, 100)] == [1, 1, 2, 2]


# --- streaming ---


def test_range_has_data_changes_with_version_and_timestamp(api: Api) -> None:
    lines = api.query("plain", startingVersion=0)
    assert kinds(lines) == [(0, "add"), (0, "add"), (1, "add"), (3, "remove")]
    assert lines.version == 0
    for line in lines.files:
        ((_, file),) = line.items()
        assert file["timestamp"] == 1772323200000 + 3_600_000 * file["version"]
        assert file["size"] > 0
        assert "p" in file["partitionValues"]
    assert kinds(api.query("plain", DELTA, startingVersion=0)) == kinds(lines)


def test_end_of_range_is_inclusive_and_may_be_in_the_future(api: Api) -> None:
    assert kinds(api.query("plain", startingVersion=1, endingVersion=2)) == [(1, "add")]
    assert kinds(api.query("plain", startingVersion=3, endingVersion=99)) == [(3, "remove")]


def test_historical_protocols_are_sent_in_delta_format_only(start: Callable[..., Api], tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "t")
    writer.commit([Protocol(1, 2), table("t"), writer.add(rows(1), time=at(0))], "WRITE", at(0))
    writer.commit([Protocol(1, 4), writer.add(rows(2), time=at(1))], "UPGRADE", at(1))
    own = start(tmp_path)
    for capabilities, expected in ((DELTA, [1]), (None, [])):
        lines = own.query("t", capabilities, startingVersion=0, includeHistoricalProtocol=True)
        assert [line["protocol"]["version"] for line in lines.all[1:] if "protocol" in line] == expected
        assert len(lines.files) == 2


def test_range_with_a_missing_commit_is_refused_with_its_version(start: Callable[..., Api], tmp_path: Path) -> None:
    write_plain(tmp_path / "t")
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    own = start(tmp_path)
    response = own.post(f"{TABLES}/t/query", {"startingVersion": 0})
    assert response.status_code == 400
    assert "1" in response.json()["message"]


def test_urls_use_the_host_of_the_request(api: Api) -> None:
    lines = Lines(api.post(f"{TABLES}/plain/query", {}, None, Host="example.test:1234"))
    assert all(url_of(line).startswith("http://example.test:1234/data/") for line in lines.files)


def test_file_without_a_valid_url_ends_the_stream_with_an_error(start: Callable[..., Api], tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "t")
    good, bad = (writer.add(rows(number), time=at(0)) for number in range(2))
    bad = replace(bad, path="../outside.parquet")
    writer.commit([Protocol(1, 2), table("t"), good, bad], "WRITE", at(0))
    own = start(tmp_path)
    end = own.query("t", "includeendstreamaction=true").end
    assert end is not None
    assert end["httpStatusErrorCode"] == 400
    assert "outside.parquet" in end["errorMessage"]
    # Without an EndStreamAction, only an error status can show the client that the response is incomplete.
    response = own.post(f"{TABLES}/t/query")
    assert error_of(response)[0] == 400


@pytest.mark.parametrize("where", ["body", "url"])
def test_feed_has_all_protocols_with_versions_on_request(start: Callable[..., Api], tmp_path: Path, where: str) -> None:
    write_vectors(tmp_path / "vectors")
    features = ["deletionVectors", "v2Checkpoint"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    upgrade = {"protocol": protocol}
    (tmp_path / "vectors" / "_delta_log" / "00000000000000000003.json").write_text(json.dumps(upgrade) + "\n")
    api = start(tmp_path)
    path = "shares/default/schemas/default/tables/vectors"
    asked = "includeHistoricalProtocol=true"
    feed = Lines(api.get(f"{path}/changes?startingVersion=1&{asked}", DELTA))
    body = {"startingVersion": 1} | ({"includeHistoricalProtocol": True} if where == "body" else {})
    stream = Lines(api.post(f"{path}/query{'?' + asked if where == 'url' else ''}", body, DELTA))
    for lines in (feed, stream):
        protocols = [line["protocol"] for line in lines.all if "protocol" in line]
        assert [protocol["version"] for protocol in protocols] == [1, 3]
        assert protocols[0]["deltaProtocol"]["readerFeatures"] == ["deletionVectors"]
    plain = Lines(api.get(f"{path}/changes?startingVersion=1", DELTA))
    assert "version" not in plain.protocol
    assert plain.protocol["deltaProtocol"]["readerFeatures"] == ["deletionVectors", "v2Checkpoint"]


@pytest.mark.parametrize(
    "feature", ["catalogManaged", "adaptiveMetadata-preview", "redirectReaderWriter-preview", "fooBar"]
)
@pytest.mark.parametrize("capabilities", [None, f"{DELTA};readerfeatures=foobar,redirectreaderwriter-preview"])
def test_unsupported_reader_feature_is_named_in_the_refusal(
    start: Callable[..., Api], tmp_path: Path, feature: str, capabilities: str | None
) -> None:
    write_plain(tmp_path / "plain")
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    log = tmp_path / "plain" / "_delta_log"
    (log / f"{len(list(log.glob('*.json'))):020}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    api = start(tmp_path)
    for path in ("metadata", "changes?startingVersion=0"):
        answer = api.get(f"shares/default/schemas/default/tables/plain/{path}", capabilities)
        assert answer.status_code == 400
        assert feature in answer.json()["message"]


def test_metadata_ends_with_an_end_stream_action(api: Api) -> None:
    lines = Lines(api.get("shares/default/schemas/default/tables/plain/metadata", "includeendstreamaction=true"))
    assert "includeendstreamaction=true" in lines.headers["delta-sharing-capabilities"]
    assert lines.end == {}
    assert len(lines.all) == 3


def test_all_pages_of_a_range_end_at_the_same_version(start: Callable[..., Api], tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "t")
    writer.commit([Protocol(1, 2), table("t"), writer.add(rows(1), time=at(0))], "WRITE", at(0))
    for hour in (1, 2):
        writer.commit([writer.add(rows(hour), time=at(hour))], "WRITE", at(hour))
    own = start(tmp_path)
    page = own.query("t", startingVersion=0, maxFiles=1)
    result = kinds(page)
    writer.commit([writer.add(rows(3), time=at(3))], "WRITE", at(3))
    while page.end is not None and (token := page.end.get("nextPageToken")):
        page = own.query("t", startingVersion=0, maxFiles=1, pageToken=token)
        result += kinds(page)
    assert result == [(0, "add"), (1, "add"), (2, "add")]
    assert len(kinds(own.query("t", startingVersion=0))) == 4


def test_deletion_vector_sets_tight_bounds_to_false() -> None:
    vector = DeletionVectorDescriptor("i", "x", 4, 1)
    for stats in ('{"numRecords":2}', None):
        result = with_vector(AddFile("f", stats=stats), vector)
        assert json.loads(result.stats or "") == {**json.loads(stats or "{}"), "tightBounds": False}
        assert (result.deletion_vector, result.data_change) == (vector, True)
