"""The REST API: authorization, names, listings, versions, and errors in the form of the protocol."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

import mock_server
from delta_sharing_client.errors import DataError, UnsupportedFeatureError
from mock_server.errors import from_table_error
from mock_server.running import RunningServer
from tests.unit.mock_server.helpers import Api, error_of, stamp, write_plain

TABLE = "shares/default/schemas/default/tables/plain"


def test_unknown_path_without_the_token_is_401(api: Api) -> None:
    assert error_of(requests.get(f"{api.server.endpoint}no/such/api")) == (401, "UNAUTHENTICATED")


def test_shares_schemas_and_tables_are_listed(api: Api) -> None:
    (share,) = api.get("shares").json()["items"]
    assert share["name"] == "default"
    assert api.get("shares/DEFAULT").json() == {"share": share}
    assert api.get("shares/default/schemas").json() == {"items": [{"name": "default", "share": "default"}]}
    tables = api.get("shares/default/schemas/Default/tables").json()["items"]
    assert [table["name"] for table in tables] == ["feed", "odd", "plain", "vectors"]
    assert {table["shareId"] for table in tables} == {share["id"]}
    assert len({table["id"] for table in tables}) == 4
    assert api.get("shares/default/all-tables").json()["items"] == tables


def test_invalid_page_of_a_listing_is_400(api: Api) -> None:
    of_another_listing = api.get("shares/default/all-tables?maxResults=1").json()["nextPageToken"]
    for query in ("maxResults=-1", "maxResults=501", "maxResults=x", f"pageToken={of_another_listing}"):
        assert error_of(api.get(f"shares?{query}")) == (400, "INVALID_PARAMETER_VALUE")


@pytest.mark.parametrize("path", [f"{TABLE}x/version", f"{TABLE}/none", "nothing"])
def test_missing_resource_is_404(api: Api, path: str) -> None:
    assert error_of(api.get(path)) == (404, "RESOURCE_DOES_NOT_EXIST")


def test_names_ignore_case_and_url_encoding(api: Api) -> None:
    assert api.get("shares/DEFAULT/schemas/dEfault/tables/Pl%61IN/version").headers["delta-table-version"] == "3"


def test_names_may_hold_slashes_dots_and_spaces(start: Callable[..., Api], api: Api, tables: object) -> None:
    plain = f"{tables}/plain"
    own = start({"my.share.a schema.x/y": plain})
    assert own.get("shares/my.share/schemas/a%20schema/tables/x%2Fy/version").status_code == 200
    # as the JVM client encodes it
    assert own.get("shares/my.share/schemas/a+schema/tables/x%2Fy/version").status_code == 200


@pytest.mark.parametrize("path", ["/shares", "//shares/", "/shares//default/schemas", f"/{TABLE}/metadata"])
def test_consecutive_slashes_count_as_one(api: Api, path: str) -> None:
    """Like the reference server: clients append "/shares" to an endpoint that ends with a slash."""
    assert api.get(path).status_code == 200
    assert api.get(path).content == api.get(path.lstrip("/").replace("//", "/")).content


def test_query_with_two_slashes_is_served(api: Api) -> None:
    assert api.session.post(f"{api.server.endpoint}/{TABLE}/query", json={}).status_code == 200


def test_get_and_head_of_a_version_have_no_body(api: Api) -> None:
    for response in (api.get(f"{TABLE}/version"), api.session.head(api.server.endpoint + TABLE)):
        assert response.status_code == 200
        assert response.headers["Delta-Table-Version"] == "3"
        assert response.content == b""


def test_head_of_an_unknown_table_is_404_without_body(api: Api) -> None:
    response = api.session.head(api.server.endpoint + TABLE + "x")
    assert response.status_code == 404
    assert response.content == b""


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [("2000-01-01T00:00:00Z", 0), (stamp(0), 0), (stamp(1), 1), ("2026-03-01T01:00:01+00:00", 2), (stamp(3), 3)],
)
def test_starting_timestamp_selects_the_first_version_since_then(api: Api, timestamp: str, version: int) -> None:
    response = api.session.get(api.server.endpoint + TABLE + "/version", params={"startingTimestamp": timestamp})
    assert response.headers["Delta-Table-Version"] == str(version)


def test_invalid_or_late_starting_timestamp_is_400(api: Api) -> None:
    for timestamp in ("2999-01-01T00:00:00Z", "yesterday"):
        assert error_of(api.get(f"{TABLE}/version?startingTimestamp={timestamp}")) == (400, "INVALID_PARAMETER_VALUE")


def test_table_shared_only_by_url_gets_no_credentials(api: Api) -> None:
    response = api.post(f"{TABLE}/temporary-table-credentials")
    assert error_of(response) == (400, "UNSUPPORTED_OPERATION")
    assert "Temporary credentials" in response.json()["message"]


def test_generated_token_is_not_shown_in_any_repr(api: Api) -> None:
    token = api.server.profile["bearerToken"]
    app = api.server.app  # type: ignore[attr-defined]
    assert token not in repr(api.server)
    assert token not in repr(app.config)


def test_open_configuration_needs_no_token(start: Callable[..., Api]) -> None:
    own = start(check_token=False)
    assert requests.get(own.server.endpoint + "shares").status_code == 200


def test_exactly_one_source_of_tables_is_required() -> None:
    for arguments in ({}, {"tables": "x", "demo": True}):
        with pytest.raises(mock_server.ConfigError), mock_server.running(**arguments):
            pass


def test_requests_and_bytes_are_counted_by_api_status_and_file(start: Callable[..., Api]) -> None:
    own = start()
    lines = own.query("plain")
    body = own.fetch(lines.urls[0]).content
    own.fetch(lines.urls[0], Range="bytes=0-3")
    counts = own.server.stats()
    assert counts["requests"] == {"query": 1, "data": 2}
    assert counts["statuses"] == {"200": 2, "206": 1}
    assert [entry for name, entry in counts["files"].items() if name in lines.urls[0].replace("%3D", "=")] == [
        {"requests": 2, "bytes": len(body) + 4}
    ]
    # The statistics can also be read and reset by requests, which a server in another process needs.
    assert RunningServer.stats(own.server) == counts == own.server.stats()
    assert RunningServer.reset_stats(own.server) == counts
    assert own.server.stats()["total_requests"] == 0
    own.query("plain")
    assert own.server.reset_stats()["total_requests"] == 1
    assert own.server.stats()["total_requests"] == 0


def test_unreadable_log_is_reported_without_client_advice(tmp_path: Path) -> None:
    refusal = UnsupportedFeatureError("The table needs 'x'. Upgrade the client.", feature="x", table="a.b.c")
    lost = DataError("The commit 3 is missing. Ask the provider to share the table again.", table="a.b.c")
    assert from_table_error(refusal).message == "The table 'a.b.c' needs 'x', which this server does not support."
    assert from_table_error(lost).message == "The commit 3 is missing."


def test_table_deleted_while_the_server_runs_is_refused(start: Callable[..., Api], tmp_path: Path) -> None:
    write_plain(tmp_path / "plain")
    api = start(tmp_path)
    assert api.get(f"{TABLE}/version").status_code == 200
    shutil.rmtree(tmp_path / "plain")
    for path in ("version", "metadata", "changes?startingVersion=0"):
        response = api.get(f"{TABLE}/{path}")
        assert error_of(response) == (400, "RESOURCE_DOES_NOT_EXIST"), response.text


def test_internal_error_has_the_form_of_the_protocol(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted-detail")

    monkeypatch.setattr("mock_server.app.parse_starting_timestamp", broken)
    response = api.get(f"{TABLE}/version")
    assert error_of(response) == (500, "INTERNAL_ERROR")
    assert "planted-detail" not in response.text
    assert "planted-detail" in caplog.text


def test_token_can_be_configured(tmp_path: Path) -> None:
    write_plain(tmp_path / "t")
    with mock_server.running(tables={"s.d.t": tmp_path / "t"}, token="given-by-hand") as server:
        assert server.profile["bearerToken"] == "given-by-hand"
        assert "given-by-hand" not in repr(server) + repr(server.app.config)
