"""The simulated stores respond as the clients of the clouds expect, and each fault of the proxy is what it says."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import boto3
import obstore
import pytest
import requests
from botocore.config import Config
from botocore.exceptions import ClientError
from obstore.store import AzureStore, GCSStore

from mock_server.faults import Target
from tests.fault_proxy import ALL_FAULTS, STORE_FAULTS, FaultProxy, fault_proxy, forwarding
from tests.object_stores import AZURE, GOOGLE, S3, STORES, Request, SimulatedStore
from tests.time_limits import HANGS

OBJECTS = {"v/a b+c%.txt": b"text", "v/b/large": bytes(range(256)) * 500, "v/empty": b"", "v/é/z": b"z", "w/a": b"w"}
BELOW_V = [key for key in sorted(OBJECTS, key=str.encode) if key.startswith("v/")]
# A request for each store that it accepts: the path of an object, and what identifies the caller.
PATHS = {S3: "/bucket/", AZURE: "/account/bucket/", GOOGLE: "/bucket/"}
SIGNED = "AWS4-HMAC-SHA256 Credential=planted/20261102/r/s3/aws4_request, SignedHeaders=host, Signature=0"
HEADERS: dict[str, dict[str, str]] = {S3: {"Authorization": SIGNED}, AZURE: {}, GOOGLE: {"Authorization": "Bearer t"}}
QUERY = {S3: "", AZURE: "&sig=planted", GOOGLE: ""}
LISTING = {S3: "list-type=2", AZURE: "restype=container&comp=list", GOOGLE: "list-type=2"}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> SimulatedStore:
    found = SimulatedStore(request.param, page=2)
    found.objects = dict(OBJECTS)
    return found


@pytest.fixture
def proxy(store: SimulatedStore) -> Iterator[FaultProxy]:
    with fault_proxy(store.kind, store.answer) as proxy_:
        yield proxy_


def get(proxy: FaultProxy, path: str = "v/b/large", **headers: str) -> requests.Response:
    kind = proxy.kind
    url = f"{proxy.endpoint}{PATHS[kind]}{path}?{QUERY[kind]}"
    return requests.get(url, headers=HEADERS[kind] | headers, allow_redirects=False, timeout=HANGS)


def names(proxy: FaultProxy, mark: str = "", prefix: str = "v/") -> tuple[int, list[str], list[str]]:
    """Request a page; return its status, the names in it, and the mark of the next one."""
    kind = proxy.kind
    marks = {"marker" if kind == AZURE else "continuation-token": mark} if mark else {}
    url = f"{proxy.endpoint}{PATHS[kind].rstrip('/')}?{LISTING[kind]}{QUERY[kind]}"
    response = requests.get(
        url, headers=HEADERS[kind], params={"prefix": prefix, **marks}, allow_redirects=False, timeout=HANGS
    )
    text = response.content.decode()
    found = re.findall("<(?:Key|Name)>([^<]*)</", text)
    return response.status_code, found, re.findall("<(?:NextContinuationToken|NextMarker)>([^<]+)<", text)


# === The simulated stores, with the clients of the clouds ===


def test_boto3_reads_the_simulated_s3(proxy: FaultProxy, store: SimulatedStore) -> None:
    if store.kind != S3:
        return
    client = boto3.client(
        "s3",
        endpoint_url=proxy.endpoint,
        region_name="us-east-1",
        aws_access_key_id="planted",
        aws_secret_access_key="planted",
        aws_session_token="planted",
        config=Config(retries={"max_attempts": 0}),
    )
    pages = list(client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="v/"))
    assert [len(page["Contents"]) for page in pages] == [2, 2]
    listed = [one for page in pages for one in page["Contents"]]
    assert [(one["Key"], one["Size"]) for one in listed] == [(key, len(OBJECTS[key])) for key in BELOW_V]
    direct = client.list_objects_v2(Bucket="bucket", Prefix="v/", Delimiter="/")
    assert [one["Prefix"] for one in direct["CommonPrefixes"]] == ["v/b/"]
    response = client.get_object(Bucket="bucket", Key="v/a b+c%.txt", IfMatch=listed[0]["ETag"])
    assert (response["Body"].read(), response["ETag"]) == (b"text", listed[0]["ETag"])
    part = client.get_object(Bucket="bucket", Key="v/b/large", Range="bytes=-5")
    assert part["Body"].read() == OBJECTS["v/b/large"][-5:]
    for key, more, code in (("v/none", {}, "NoSuchKey"), ("v/b/large", {"IfMatch": '"x"'}, "PreconditionFailed")):
        with pytest.raises(ClientError) as caught:
            client.get_object(Bucket="bucket", Key=key, **more)
        assert caught.value.response["Error"]["Code"] == code
    store.expired.add("planted")
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket="bucket", Key="v/b/large")
    assert caught.value.response["Error"]["Code"] == "ExpiredToken"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_obstore_reads_the_simulated_azure_and_google(proxy: FaultProxy, store: SimulatedStore) -> None:
    how: Mapping[str, Any] = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 0}}
    if store.kind == S3:
        return
    opened: Any = (
        AzureStore(container_name="bucket", config={"account_name": "account", "sas_token": "sv=1&sig=planted",
                   "endpoint": f"{proxy.endpoint}/account"}, **how)
        if store.kind == AZURE
        else GCSStore(bucket="bucket", config={"base_url": proxy.endpoint},
                      credential_provider=lambda: {"token": "planted", "expires_at": None}, **how)
    )  # fmt: skip
    listed = [one for page in obstore.list(opened, "v") for one in page]
    assert [(one["path"], one["size"]) for one in listed] == [(key, len(OBJECTS[key])) for key in BELOW_V]
    direct = obstore.list_with_delimiter(opened, "v")
    assert sorted(direct["common_prefixes"]) == ["v/b", "v/é"]
    response = obstore.get(opened, "v/b/large")
    assert bytes(response.bytes()) == OBJECTS["v/b/large"]
    assert bytes(obstore.get(opened, "v/b/large", options={"range": (5, 9)}).bytes()) == OBJECTS["v/b/large"][5:9]
    assert obstore.get(opened, "v/b/large", options={"if_match": response.meta["e_tag"]})
    with pytest.raises(FileNotFoundError):
        obstore.get(opened, "v/none")
    store.expired.add("planted")
    with pytest.raises(Exception, match=r"403|401|Unauth"):
        obstore.get(opened, "v/b/large")


def test_requests_without_credentials_are_refused(proxy: FaultProxy, store: SimulatedStore) -> None:
    url = f"{proxy.endpoint}{PATHS[store.kind]}v/b/large"

    assert requests.get(url, timeout=HANGS).status_code == 403
    assert store.requests == []


def test_objects_state_their_checksum(proxy: FaultProxy, store: SimulatedStore) -> None:
    digest = hashlib.md5(OBJECTS["v/b/large"])
    headers = get(proxy).headers
    part = get(proxy, Range="bytes=5-9")

    stated = {S3: headers["ETag"], AZURE: headers.get("Content-MD5"), GOOGLE: headers.get("x-goog-hash")}[store.kind]
    assert digest.hexdigest() in str(stated) or base64.b64encode(digest.digest()).decode() in str(stated)
    assert (part.status_code, part.content) == (206, OBJECTS["v/b/large"][5:10])
    assert part.headers["Content-Range"] == f"bytes 5-9/{len(OBJECTS['v/b/large'])}"


# === The proxy ===


def test_requests_are_forwarded_unchanged(store: SimulatedStore) -> None:
    """Between two proxies: what arrives at the store is what was sent, with the client's or the store's host."""
    with fault_proxy(store.kind, store.answer) as behind:
        for keeps_host in (True, False):
            with fault_proxy(store.kind, forwarding(behind.endpoint, keeps_host=keeps_host)) as before:
                for path in ("v/a%20b%2Bc%25.txt", "v//../%2E/x"):
                    kind = store.kind
                    headers = HEADERS[kind] | {"X-Y": "z", "Range": "bytes=0-1"}
                    prepared = requests.Request("GET", "http://x/", headers=headers).prepare()
                    prepared.url = f"{before.endpoint}{PATHS[kind]}{path}?a=%2F&b=+{QUERY[kind]}"
                    with requests.Session() as session:
                        response = session.send(prepared, timeout=HANGS)
                    first, second = before.requests[-1], behind.requests[-1]
                    assert (first.path, first.query) == (second.path, second.query) == (
                        f"{PATHS[kind]}{path}", f"a=%2F&b=+{QUERY[kind]}"
                    )  # fmt: skip
                    host = before.endpoint if keeps_host else behind.endpoint
                    assert second.headers == {**first.headers, "host": host.removeprefix("http://")}
                    assert response.status_code == (206 if "a%20b" in path else 404)


def test_every_fault_of_the_table_has_an_effect(proxy: FaultProxy, store: SimulatedStore) -> None:
    """Compare a response with the fault to one without, so that no fault is a mere name."""
    plain = names(proxy), get(proxy), get(proxy, Range="bytes=5-9")
    for kind in STORE_FAULTS:
        for target in (Target.API, Target.DATA):
            if not kind.target.covers(target):
                continue
            proxy.set_fault(f"{kind.name}:100@{target.value}")
            if target is Target.API:
                changed = [names(proxy) for _ in range(5)] != [plain[0]] * 5
            else:
                tag = plain[1].headers["ETag"]
                answers = [get(proxy, Range="bytes=5-9", **{"If-Match": tag}) for _ in range(5)]
                changed = [_facts(one) for one in answers] != [_facts(plain[2])] * 5
            left = proxy.faults.left(kind.name)
            assert changed, f"{kind.name} of {target.value}"
            assert left is not None
            assert left < 100
            proxy.faults.clear()
    assert (names(proxy), _facts(get(proxy))) == (plain[0], _facts(plain[1]))


def _facts(response: requests.Response) -> tuple[Any, ...]:
    return response.status_code, response.headers.get("ETag"), response.headers.get("Content-Range"), response.content


@pytest.mark.parametrize(
    ("fault", "status", "content"),
    [
        ("redirect-elsewhere", 307, b""),
        ("web-page", 200, b"<html>"),
        ("refused", 403, b""),
        ("refused=410", 410, b""),
        ("not-found", 404, b"<html>"),
        ("no-bucket", 404, b"NotFound|NoSuchBucket"),
        ("expired", None, b"ExpiredToken|AuthenticationFailed|InvalidSecurity"),
    ],
)
def test_refusals_of_the_proxy(proxy: FaultProxy, fault: str, status: int | None, content: bytes) -> None:
    proxy.set_fault(f"{fault}:2")
    found = get(proxy)
    assert found.status_code == (status or {S3: 400, AZURE: 403, GOOGLE: 401}[proxy.kind])
    assert re.search(content, found.content)
    assert names(proxy)[0] == found.status_code
    assert (get(proxy).status_code, names(proxy)[0]) == (200, 200)


def test_redirect_leads_to_a_server_that_notes_it(proxy: FaultProxy) -> None:
    proxy.set_fault("redirect-elsewhere")
    location = get(proxy).headers["Location"]
    assert not location.startswith(proxy.endpoint)
    response = requests.get(location, headers=HEADERS[proxy.kind], timeout=HANGS)

    assert response.content == OBJECTS["v/b/large"]
    assert [one.path for one in proxy.elsewhere] == [f"{PATHS[proxy.kind]}v/b/large"]


def test_one_in_five_requests_is_throttled(proxy: FaultProxy) -> None:
    proxy.set_fault("throttled")

    assert [get(proxy).status_code for _ in range(10)].count(503) == 2


def test_conditions_fail_with_the_status_of_the_fault(proxy: FaultProxy) -> None:
    tag = get(proxy).headers["ETag"]
    for status in (412, 501):
        proxy.set_fault(f"if-match={status}")
        assert get(proxy, **{"If-Match": tag}).status_code == status
        assert get(proxy).status_code == 200


def test_versions_change_with_each_response(proxy: FaultProxy) -> None:
    proxy.set_fault("etag-per-node")
    first, second = get(proxy), get(proxy)
    assert first.headers["ETag"] != second.headers["ETag"]
    assert first.content == second.content == OBJECTS["v/b/large"]
    proxy.faults.clear()
    proxy.set_fault("changed")
    first, second = get(proxy), get(proxy)
    assert len({first.content, second.content, OBJECTS["v/b/large"]}) == 3
    assert len(first.content) == len(OBJECTS["v/b/large"])
    assert get(proxy, **{"If-Match": first.headers["ETag"]}).status_code == 412


def test_ranges_are_wrong_or_ignored(proxy: FaultProxy) -> None:
    for fault, status, stated in (
        ("wrong-range", 206, "bytes 6-10/11"),
        ("no-range", 206, None),
        ("ignore-range", 200, None),
    ):
        proxy.set_fault(fault)
        response = get(proxy, Range="bytes=5-9")
        assert (response.status_code, response.headers.get("Content-Range")) == (status, stated)
        proxy.faults.clear()


def test_listings_that_never_end(proxy: FaultProxy) -> None:
    first, second = BELOW_V[:2], BELOW_V[2:]
    status, found, marks = names(proxy)
    assert (status, found, names(proxy, marks[0])) == (200, first, (200, second, []))
    for fault, pages, is_new in (
        ("repeat-mark", [first] * 3, False),
        ("repeat-page", [first] * 3, True),
        ("empty-pages", [[]] * 3, True),
        ("endless-names", None, True),
    ):
        proxy.set_fault(fault)
        mark, seen, listed = "", [], []
        for _ in range(3):
            _, found, marks = names(proxy, mark)
            mark = marks[0]
            seen.append(mark)
            listed.append(found)
        assert len(set(seen)) == (3 if is_new else 1)
        assert listed == (pages or sorted(listed))
        assert pages is not None or len({name for page in listed for name in page}) == 3
        proxy.faults.clear()
    proxy.set_fault("outside:1")
    assert names(proxy)[1] == ["elsewhere/a.txt"]


def test_faults_of_the_mock_server_apply_to_stores_too(proxy: FaultProxy) -> None:
    proxy.set_fault("503-first=1@data")
    assert [get(proxy).status_code, get(proxy).status_code] == [503, 200]
    proxy.set_fault("truncate-body:1@data")
    with pytest.raises(requests.RequestException):
        get(proxy)
    proxy.set_fault("truncate-body:1@api")
    assert get(proxy).status_code == 200
    with pytest.raises(requests.RequestException):
        names(proxy)


def test_only_faults_of_the_sharing_protocol_are_left_out() -> None:
    assert {"trickle", "endless-headers", "ignore-range", "slow", "redirect"} <= {kind.name for kind in ALL_FAULTS}
    assert not {"drop-end-stream", "gzip", "no-credentials", "page-size"} & {kind.name for kind in ALL_FAULTS}
    assert len({kind.name for kind in ALL_FAULTS}) == len(ALL_FAULTS)


def test_requests_at_the_same_time_get_their_own_responses(proxy: FaultProxy) -> None:
    results: dict[str, bytes] = {}

    def one(key: str) -> None:
        results[key] = get(proxy, requests.utils.quote(key)).content

    threads = [threading.Thread(target=one, args=(key,)) for key in BELOW_V for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {key: OBJECTS[key] for key in BELOW_V}


def test_request_tells_a_listing_from_an_object() -> None:
    is_listing: Callable[[str], bool] = lambda query: Request("/b", query, {}).is_listing  # noqa: E731

    assert is_listing("list-type=2&prefix=")
    assert is_listing("restype=container&comp=list&sig=x")
    assert not is_listing("sig=x&prefix=list-type")
