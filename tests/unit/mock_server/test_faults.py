"""Every fault has the effect that its description states, and no effect while it is inactive."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from mock_server import hostile
from mock_server.faults import FAULTS, KINDS, FaultSet, Target, parse_fault
from mock_server.wire import query_status_line
from tests.unit.mock_server.helpers import DELTA, Api, Lines, error_of
from tests.unit.mock_server.hostile_checks import HOSTILE

VOLUME = "shares/default/schemas/default/volumes/docs"
TABLE = "shares/default/schemas/default/tables/plain"
BOTH = "responseformat=parquet,delta;readerfeatures=deletionvectors;includeendstreamaction=true"


@pytest.mark.parametrize(("fault", "method", "size"), [("redirect=5", "GET", 5), ("error-body=0", "GET", 0)])
@pytest.mark.parametrize("query", [b"", b"a=1"])
def test_redirect_and_error_faults_send_complete_responses(fault: str, method: str, size: int, query: bytes) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "scheme": "http", "raw_path": b"/p", "query_string": query}
    scope["headers"] = [(b"x", b"y"), (b"host", b"h")]
    faults = FaultSet()
    assert not asyncio.run(hostile.respond(scope, send, None, faults, Target.API))
    faults.set(parse_fault(f"{fault}:1"))
    assert asyncio.run(hostile.respond(scope, send, None, faults, Target.API))
    start, *bodies = sent
    headers = dict(start["headers"])
    assert headers[b"content-length"] == b"%d" % size
    assert headers.get(b"location") == ((b"http://h/p?a=1" if query else b"http://h/p") if size else None)
    assert sum(len(body["body"]) for body in bodies) == size
    assert [body.get("more_body", False) for body in bodies] == [True] * (size > 0) + [False]


def test_fault_affects_only_its_target_and_count() -> None:
    faults = FaultSet([parse_fault("slow:2@data")])
    assert faults.take("slow", Target.API) is None
    assert [faults.take("slow", Target.DATA) is not None for _ in range(3)] == [True, True, False]
    faults.set(parse_fault("slow"))
    assert all(faults.take("slow", target) for target in (Target.API, Target.DATA))
    faults.clear("slow")
    assert faults.take("slow", Target.DATA) is None


# --- the effect of each fault --------------------------------------------------------------------------------------


def raw(url: str, **headers: str) -> tuple[bytes, bytes, bool]:
    """Return the head and body of a response as received from the socket, and whether a reset ended it."""
    parts = urlsplit(url)
    lines = [f"GET {parts.path}?{parts.query} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    data, reset = b"", False
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        try:
            while piece := connection.recv(65536):
                data += piece
        except ConnectionResetError:
            reset = True
    head, _, body = data.partition(b"\r\n\r\n")
    return head.lower(), body, reset


def statuses(faulty: Api, path: str = "shares") -> list[int]:
    return [faulty.get(path).status_code for _ in range(3)]


def check_503(api: Api) -> None:
    api.server.set_fault("503-first=2")
    assert statuses(api) == [503, 503, 200]
    api.server.set_fault("503-first@data")
    url = api.query("plain").urls[0]
    assert [api.fetch(url).status_code for _ in range(2)] == [503, 200]


def check_500(api: Api) -> None:
    api.server.set_fault("500-first")
    assert error_of(api.get("shares")) == (500, "INTERNAL_ERROR")
    assert statuses(api) == [200] * 3


def check_429(api: Api) -> None:
    api.server.set_fault("429-retry-after=2:1")
    response = api.get("shares")
    assert (response.status_code, response.headers["retry-after"]) == (429, "2")
    assert statuses(api) == [200] * 3


def check_401(api: Api) -> None:
    api.server.set_fault("401-first")
    assert statuses(api) == [401, 200, 200]


def check_slow(api: Api) -> None:
    url = api.query("plain").urls[0]
    api.server.set_fault("slow=0.2:1@data")
    started = time.monotonic()
    api.fetch(url)
    assert time.monotonic() - started >= 0.2


def check_truncate(api: Api) -> None:
    url = api.query("plain").urls[0]
    whole = api.fetch(url).content
    api.server.set_fault("truncate-body=0.25@data")
    head, body, reset = raw(url)
    assert f"content-length: {len(whole)}".encode() in head
    assert (body, reset) == (whole[: len(whole) // 4], False)


def check_cut(api: Api) -> None:
    url = api.query("plain").urls[0]
    whole = api.fetch(url).content
    api.server.set_fault("cut-connection-after=100:1@data")
    assert raw(url)[1:] == (whole[:100], True)
    assert api.fetch(url).content == whole
    api.server.set_fault("cut-connection-after=1000000:1@data")
    assert raw(url)[1:] == (whole, True)


def check_length(api: Api) -> None:
    url = api.query("plain").urls[0]
    whole = api.fetch(url).content
    api.server.set_fault("wrong-content-length=7@data")
    head, body, _ = raw(url)
    assert f"content-length: {len(whole) + 7}".encode() in head
    assert body == whole


def check_close_delimited(api: Api) -> None:
    url = api.query("plain").urls[0]
    whole = api.fetch(url).content
    api.server.set_fault("close-delimited")
    head, body, reset = raw(url)
    assert b"content-length" not in head
    assert b"transfer-encoding" not in head
    assert (body, reset) == (whole, False)
    assert len(api.query("plain").files) == 2


def check_lose_lines(api: Api) -> None:
    whole = api.query("plain").all
    api.server.set_fault("lose-lines")
    assert len(api.query("plain").all) == len(whole) - 1
    api.server.set_fault("lose-lines=99")
    assert api.get(f"{TABLE}/metadata").content == b""


def check_corrupt(api: Api) -> None:
    url = api.query("plain").urls[0]
    whole = api.fetch(url).content
    api.server.set_fault("corrupt-body")
    broken = api.fetch(url).content
    assert len(broken) == len(whole)
    assert sum(a != b for a, b in zip(broken, whole, strict=True)) == 1


def check_ignore_range(api: Api) -> None:
    url = api.query("plain").urls[0]
    api.server.set_fault("ignore-range")
    response = api.fetch(url, Range="bytes=0-3")
    assert response.status_code == 200
    assert len(response.content) > 4


def check_expired(api: Api) -> None:
    api.server.set_fault("expire-urls-now")
    assert api.fetch(api.query("plain").urls[0]).status_code == 403


def check_no_expiration(api: Api) -> None:
    api.server.set_fault("no-expiration")
    lines = api.query("plain", BOTH)
    assert all("expirationTimestamp" not in line["file"] for line in lines.files)
    assert lines.end == {}


def check_missing_stats(api: Api) -> None:
    api.server.set_fault("missing-stats")
    assert all("stats" not in line["file"] for line in api.query("plain").files)


def check_wrong_size(api: Api) -> None:
    right = [line["file"]["size"] for line in api.query("plain").files]
    api.server.set_fault("wrong-size=2")
    assert [line["file"]["size"] for line in api.query("plain").files] == [size + 2 for size in right]


def check_empty_nulls(api: Api) -> None:
    api.server.set_fault("empty-partition-nulls")
    assert api.query("plain").files[0]["file"]["partitionValues"] == {"p": ""}


def check_wrong_format(api: Api) -> None:
    api.server.set_fault("wrong-format")
    given = [api.query("plain", capabilities).headers["delta-sharing-capabilities"] for capabilities in (None, DELTA)]
    assert given == ["responseformat=delta", "responseformat=parquet"]
    assert api.query("plain", BOTH).headers["delta-sharing-capabilities"].startswith("responseformat=delta")


def check_drop_end(api: Api) -> None:
    api.server.set_fault("drop-end-stream")
    assert api.query("plain", BOTH).end is None
    assert Lines(api.get(f"{TABLE}/metadata", BOTH)).end is None
    api.server.clear_faults()
    assert api.query("plain", BOTH).end is not None
    assert Lines(api.get(f"{TABLE}/metadata", BOTH)).end == {}


def check_error_in_stream(api: Api) -> None:
    api.server.set_fault("error-in-stream=1")
    lines = api.query("plain", BOTH)
    assert len(lines.files) == 1
    assert lines.end is not None
    assert lines.end.keys() == {"errorMessage", "httpStatusErrorCode"}


def check_extra_metadata(api: Api) -> None:
    api.server.set_fault("extra-metadata")
    lines = api.query("plain")
    assert lines.all[-1] == lines.all[1]


def check_u2028(api: Api) -> None:
    api.server.set_fault("u2028-names")
    response = api.get(f"{TABLE}/metadata")
    assert "\u2028".encode() in response.content
    assert "\u2028" in Lines(response).metadata["name"]


def check_page_size(api: Api) -> None:
    api.server.set_fault("page-size=1")
    first = api.query("plain")
    assert len(first.files) == 1
    assert first.end is not None
    assert first.end["nextPageToken"]
    assert len(api.get("shares/default/all-tables").json()["items"]) == 1


def check_repeat_token(api: Api) -> None:
    api.server.set_fault("repeat-page-token")
    first = api.query("plain", maxFiles=1)
    assert first.end is not None
    token = first.end["nextPageToken"]
    second = api.query("plain", maxFiles=1, pageToken=token)
    assert second.end is not None
    assert second.end["nextPageToken"] == token
    listing = api.get("shares").json()
    assert api.get(f"shares?pageToken={listing['nextPageToken']}").json() == listing


def check_ignore_hints(api: Api) -> None:
    api.server.set_fault("ignore-hints")
    assert len(api.query("plain", predicateHints=["p = 'a'"], limitHint=1).files) == 2


def check_no_version(api: Api) -> None:
    api.server.set_fault("no-version-endpoint")
    assert api.get(f"{TABLE}/version").status_code == 404
    assert api.session.head(api.server.endpoint + TABLE).headers["delta-table-version"] == "3"


def check_no_all_tables(api: Api) -> None:
    api.server.set_fault("no-all-tables")
    assert api.get("shares/default/all-tables").status_code == 404
    assert api.get("shares/default/schemas/default/tables").status_code == 200


def check_empty_items(api: Api) -> None:
    api.server.set_fault("empty-items")
    first = api.get("shares").json()
    assert "items" not in first
    second = api.get(f"shares?pageToken={first['nextPageToken']}").json()
    assert len(second["items"]) == 1
    assert second["nextPageToken"] == ""


def asynchronous(api: Api, polls: int) -> list[str]:
    capabilities = "responseformat=parquet;asyncquery=true"
    response = api.post(f"{TABLE}/query", {"idempotencyKey": "fault-key"}, capabilities)
    query = json.loads(response.text)["queryStatus"]["queryId"]
    answers = [api.post(f"{TABLE}/queries/{query}", {}, capabilities).text for _ in range(polls)]
    return [json.loads(text.split("\n")[0]).get("queryStatus", {"status": "done"})["status"] for text in answers]


def check_async_pending(api: Api) -> None:
    api.server.set_fault("async-pending=3")
    assert asynchronous(api, 4) == ["pending"] * 3 + ["done"]


def check_async_failed(api: Api) -> None:
    api.server.set_fault("async-failed")
    assert asynchronous(api, 1) == ["failed"]
    status = json.loads(query_status_line("q", "failed", "fault async-failed"))
    assert status == {"queryStatus": {"queryId": "q", "status": "failed", "message": "fault async-failed"}}
    assert json.loads(query_status_line("q", "pending")) == {"queryStatus": {"queryId": "q", "status": "pending"}}


def check_expired_credentials(api: Api) -> None:
    api.server.set_fault("expired-credentials:1")
    answers = [api.post(f"{TABLE}/temporary-table-credentials").json()["credentials"] for _ in range(2)]
    now = time.time() * 1000
    assert answers[0]["expirationTime"] < now < answers[1]["expirationTime"]


def volume_credentials(api: Api) -> dict[str, Any]:
    content: dict[str, Any] = api.post(f"{VOLUME}/temporary-volume-credentials").json()
    return content


def check_no_credentials(api: Api) -> None:
    api.server.set_fault("no-credentials:1")
    assert volume_credentials(api).keys() == {"expirationTime"}
    assert volume_credentials(api).keys() == {"r2Credentials", "expirationTime"}


def check_two_credentials(api: Api) -> None:
    api.server.set_fault("two-credentials")
    kinds = {"r2Credentials", "gcpOauthToken", "azureUserDelegationSas"}
    assert volume_credentials(api).keys() == kinds | {"expirationTime"}


def check_nested_credentials(api: Api) -> None:
    plain = volume_credentials(api)
    api.server.set_fault("nested-credentials")
    nested = volume_credentials(api)["credentials"]
    assert nested.keys() == plain.keys() | {"location"}
    assert nested["location"] == "r2://b/docs"


def check_other_path(api: Api) -> None:
    version = "shares/default/schemas/default/models/churn/versions/1"
    paths = [f"{version}/temporary-model-version-credentials", f"{version}/temporary-model-credentials"]
    assert [api.post(path).status_code for path in paths] == [200, 200]
    api.server.set_fault("other-credentials-path")
    assert [api.post(path).status_code for path in paths] == [404, 200]


def check_no_assets(api: Api) -> None:
    for status, code in ((404, "RESOURCE_DOES_NOT_EXIST"), (405, "UNSUPPORTED_OPERATION"), (501, "NOT_IMPLEMENTED")):
        api.server.set_fault(f"no-assets={status}")
        for path in ("shares/default/all-skills", "shares/default/schemas/default/models", VOLUME):
            assert error_of(api.get(path)) == (status, code)
    assert api.get("shares/default/all-tables").status_code == 200


def check_no_all_assets(api: Api) -> None:
    api.server.set_fault("no-all-assets")
    assert api.get("shares/default/all-volumes").status_code == 404
    assert len(api.get("shares/default/schemas/default/volumes").json()["items"]) == 1


def check_no_get_table(api: Api) -> None:
    assert api.get(TABLE).json()["format"] == "delta"
    api.server.set_fault("no-get-table=405")
    assert error_of(api.get(TABLE)) == (405, "UNSUPPORTED_OPERATION")
    assert api.session.head(api.server.endpoint + TABLE).headers["delta-table-version"] == "3"


CHECKS: dict[str, Callable[[Api], None]] = {
    "503-first": check_503,
    "500-first": check_500,
    "429-retry-after": check_429,
    "401-first": check_401,
    "slow": check_slow,
    "truncate-body": check_truncate,
    "cut-connection-after": check_cut,
    "wrong-content-length": check_length,
    "close-delimited": check_close_delimited,
    "lose-lines": check_lose_lines,
    "corrupt-body": check_corrupt,
    "ignore-range": check_ignore_range,
    "expire-urls-now": check_expired,
    "expired-credentials": check_expired_credentials,
    "no-credentials": check_no_credentials,
    "two-credentials": check_two_credentials,
    "nested-credentials": check_nested_credentials,
    "other-credentials-path": check_other_path,
    "no-assets": check_no_assets,
    "no-all-assets": check_no_all_assets,
    "no-get-table": check_no_get_table,
    "no-expiration": check_no_expiration,
    "missing-stats": check_missing_stats,
    "wrong-size": check_wrong_size,
    "empty-partition-nulls": check_empty_nulls,
    "wrong-format": check_wrong_format,
    "drop-end-stream": check_drop_end,
    "error-in-stream": check_error_in_stream,
    "extra-metadata": check_extra_metadata,
    "u2028-names": check_u2028,
    "page-size": check_page_size,
    "repeat-page-token": check_repeat_token,
    "ignore-hints": check_ignore_hints,
    "no-version-endpoint": check_no_version,
    "no-all-tables": check_no_all_tables,
    "empty-items": check_empty_items,
    "async-pending": check_async_pending,
    "async-failed": check_async_failed,
    **HOSTILE,
}


def test_every_fault_has_a_check_and_a_description() -> None:
    names = [kind.name for kind in FAULTS]
    assert sorted(CHECKS) == sorted(names)
    # Faults that break a sentence of a protocol are tested with the check of the sentence, in tests/protocol.
    assert [name for name in KINDS if not name.startswith("break-")] == names
    assert all(kind.doc for kind in FAULTS)


@pytest.mark.parametrize("name", list(CHECKS))
def test_each_fault_has_its_effect(start: Callable[..., Api], name: str) -> None:
    own = start(
        local_directories=True,
        volumes={"default.default.docs": "r2://b/docs"},
        models={"default.default.churn": {1: "r2://b/churn"}},
        vendors={"r2": lambda *_: {"r2Credentials": {"accessKeyId": "a", "secretAccessKey": "b", "sessionToken": "c"}}},
    )
    CHECKS[name](own)
    own.server.clear_faults()
    assert len(own.query("plain").files) == 2


def test_setting_faults_over_http_needs_the_token(api: Api) -> None:
    origin = "/".join(api.server.endpoint.split("/", 3)[:3])
    body: dict[str, Any] = {"fault": "503-first@api", "expire_urls": True}
    assert requests.post(f"{origin}/_control", json=body).status_code == 401
    assert requests.get(f"{origin}/_stats").status_code == 401
    url = api.query("plain").urls[0]
    assert api.session.post(f"{origin}/_control", json=body).status_code == 200
    assert statuses(api) == [503, 200, 200]
    assert api.fetch(url).status_code == 403
    assert api.session.post(f"{origin}/_control", json={"fault": "nope"}).status_code == 400
