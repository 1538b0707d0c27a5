"""URLs of files are renewed before they expire and after the storage refuses them."""

from __future__ import annotations

import itertools
import pickle
import random
import threading
import tracemalloc
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

from delta_sharing_client.delta.actions import SharedFile
from delta_sharing_client.delta.paths import url_key
from delta_sharing_client.errors import AuthError, DataError, RequestError
from delta_sharing_client.protocol import fresh_urls as protocol_urls
from delta_sharing_client.protocol import lines as protocol_lines
from delta_sharing_client.protocol.fresh_urls import RefreshingUrls
from delta_sharing_client.protocol.query import ChangesQuery, QueryRequest, query_table
from tests.time_limits import HANGS
from tests.unit.protocol import wire

QUERY = "/shares/s/schemas/d/tables/t/query"
CHANGES = "/shares/s/schemas/d/tables/t/changes"


@pytest.fixture
def signing():
    """Make responses that list files with different URLs each time, and with a version only if the request has one."""
    numbers = itertools.count()

    def make(*names, token=None, version=7, expires=None):
        def respond(request):
            number = next(numbers)
            vector = {
                "storageType": "p",
                "pathOrInlineDv": f"https://x/dv?{number}",
                "sizeInBytes": 1,
                "cardinality": 1,
            }
            wrapper = {"version": version} if "version" in request.body else {}
            if expires is not None:
                wrapper["expirationTimestamp"] = expires
            lines = [
                wire.delta_file(name, wrapper=wrapper, path=f"https://x/{name}?{number}", deletionVector=vector)
                for name in names
            ]
            end = [{"endStreamAction": {"refreshToken": f"{token}{number}"}}] if token else []
            return wire.ndjson(*wire.delta_head(), *lines, *end, version=version)

        return respond

    return make


@pytest.fixture
def clock(monkeypatch):
    """Give the client and the server one clock that stands still."""
    clock = types.SimpleNamespace(now=1_700_000_000_000)
    monkeypatch.setattr(protocol_lines, "http_date", lambda text: clock.now / 1000)
    for module in (protocol_lines, protocol_urls):
        monkeypatch.setattr(module, "steady_ms", lambda: clock.now)
    return clock


def read(rest, table, request=None):
    request = request or QueryRequest()
    response = query_table(rest, table, request)
    actions = list(response.actions)
    return RefreshingUrls(rest, table, request, response), {action.file_id: action for action in actions}


def test_refused_urls_are_renewed_with_one_query(server, rest, table, signing):
    server.on("POST", QUERY, signing("a", "b", token="r"))
    urls, files = read(rest, table, QueryRequest(limit_hint=9))

    fresh = {name: urls.url_for(url_key(file), rejected=file.action.path) for name, file in files.items()}
    vector = urls.url_for(url_key(files["a"]) + "#dv", rejected="https://x/dv?0")

    assert fresh == {"a": "https://x/a?1", "b": "https://x/b?1"}
    assert vector == "https://x/dv?1"
    assert len(server.requests) == 2
    assert server.requests[1].body == {"limitHint": 9, "includeRefreshToken": True, "refreshToken": "r0"}


def test_refresh_sends_the_token_instead_of_a_timestamp(server, rest, table, signing):
    server.on("POST", QUERY, signing("a", token="r"))
    urls, files = read(rest, table, QueryRequest(timestamp="2022-01-01"))
    urls.url_for(url_key(files["a"]), rejected=files["a"].action.path)
    assert server.requests[1].body == {"includeRefreshToken": True, "refreshToken": "r0"}


def test_next_refresh_uses_the_newest_token(server, rest, table, signing):
    server.on("POST", QUERY, signing("a", token="r"))
    urls, files = read(rest, table)
    key = url_key(files["a"])

    second = urls.url_for(key, rejected=files["a"].action.path)
    third = urls.url_for(key, rejected=second)

    assert third == "https://x/a?2"
    assert [request.body.get("refreshToken") for request in server.requests] == [None, "r0", "r1"]


def test_url_is_renewed_before_it_expires(server, rest, table, signing, clock):
    soon, later = clock.now + 30_000, clock.now + 3_600_000
    server.on("POST", QUERY, signing("a"), signing("a", expires=soon), signing("a", expires=later))
    urls, files = read(rest, table)
    key, received = url_key(files["a"]), []
    for seconds in (0, 14, 1, 0):
        clock.now += seconds * 1000
        received.append(urls.url_for(key))
    assert received == [f"https://x/a?{n}" for n in (1, 1, 2, 2)]


@pytest.mark.parametrize("query", [QueryRequest(), QueryRequest(timestamp="2022-01-01")])
def test_refresh_without_a_token_requests_the_version(server, rest, table, signing, query):
    server.on("POST", QUERY, signing("a"))
    urls, files = read(rest, table, query)

    assert urls.url_for(url_key(files["a"]), rejected=files["a"].action.path) == "https://x/a?1"
    assert server.requests[1].body == {"version": 7}


def test_expired_token_is_not_sent_again(server, rest, table, signing):
    expired = wire.error(400, "INVALID_PARAMETER_VALUE")
    server.on("POST", QUERY, signing("a", token="r"), expired, signing("a"), signing("a"))
    urls, files = read(rest, table)
    fresh = urls.url_for(url_key(files["a"]), rejected=files["a"].action.path)
    urls.url_for(url_key(files["a"]), rejected=fresh)
    assert [request.body for request in server.requests[2:]] == [{"version": 7}] * 2


def test_refresh_refused_with_409_is_not_retried(server, rest, table, signing):
    server.on("POST", QUERY, signing("a", token="r"), wire.error(409, "X"), signing("a"))
    urls, files = read(rest, table)

    with pytest.raises(RequestError):
        urls.url_for(url_key(files["a"]), rejected=files["a"].action.path)
    assert len(server.requests) == 2


@pytest.mark.parametrize("refusal", [400, 403])
def test_refresh_without_history_uses_the_latest_snapshot(server, rest, table, signing, refusal):
    no_history = wire.error(refusal, "X", "history is not shared")
    server.on("POST", QUERY, signing("a"), no_history, signing("a"), no_history, signing("a", version=8))
    urls, files = read(rest, table, QueryRequest(refresh_token="old"))
    key = url_key(files["a"])

    fresh = urls.url_for(key, rejected=files["a"].action.path)
    assert fresh == "https://x/a?1"
    with pytest.raises(DataError, match="table has changed: its version is now 8"):
        urls.url_for(key, rejected=fresh)
    assert ["refreshToken" in request.body for request in server.requests] == [True, False, False, False, False]


def test_refused_refresh_of_a_requested_version_is_an_error(server, rest, table, signing):
    server.on("POST", QUERY, signing("a"), wire.error(403, "X"))
    urls, files = read(rest, table, QueryRequest(version=7))

    with pytest.raises(AuthError):
        urls.url_for(url_key(files["a"]), rejected=files["a"].action.path)
    assert len(server.requests) == 2


def test_missing_file_or_new_format_in_a_refresh_is_an_error(server, rest, table, signing):
    server.on("POST", QUERY, signing("a", "b"), signing("a"))
    urls, files = read(rest, table)
    with pytest.raises(DataError, match="no longer lists the file") as caught:
        urls.url_for(url_key(files["b"]), rejected=files["b"].action.path)
    assert caught.value.version == 7

    server.on("POST", QUERY, signing("a"), wire.ndjson(*wire.parquet_head(), wire.parquet_file("a")))
    urls, files = read(rest, table)
    with pytest.raises(DataError, match="a different format"):
        urls.url_for(url_key(files["a"]), rejected=files["a"].action.path)


def test_refresh_requests_the_format_of_the_first_response(server, rest, table):
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head(), wire.parquet_file("a")))
    urls, files = read(rest, table)
    urls.url_for(url_key(files["a"]))

    assert server.requests[1].headers["delta-sharing-capabilities"].startswith("responseformat=parquet;")


def test_refresh_of_a_feed_keeps_the_urls_of_versions_apart(server, rest, table):
    numbers = itertools.count()

    def respond(request):
        number = next(numbers)
        lines = [
            wire.delta_file("f", kind, {"version": version}, path=f"https://x/{kind}{version}?{number}")
            for version, kind in ((1, "add"), (2, "remove"), (3, "add"), (3, "cdc"))
        ]
        # A server may send its current version in the header of a change feed.
        return wire.ndjson(*wire.delta_head(), wire.delta_head({"version": 2})[1], *lines, version=3 + number)

    server.on("GET", CHANGES, respond)
    request = ChangesQuery(starting_version=1)
    first = query_table(rest, table, request)
    keys = [url_key(file) for file in first.actions if isinstance(file, SharedFile)]
    urls = RefreshingUrls(rest, table, request, first)

    assert [urls.url_for(key) for key in keys] == [
        f"https://x/{name}?1" for name in ("add1", "remove2", "add3", "cdc3")
    ]
    assert server.requests[0].query == server.requests[1].query
    assert server.requests[1].headers["delta-sharing-capabilities"].startswith("responseformat=delta;")


def test_refresh_repeats_a_query_of_a_version_range(server, rest, table):
    lines = [wire.delta_file("f", "add", {"version": 5})]
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *lines, version=5))
    urls, files = read(rest, table, QueryRequest(starting_version=5, ending_version=6))

    urls.url_for(url_key(files["f"]))

    assert server.requests[0].body == server.requests[1].body


def test_many_threads_cause_one_refresh(server, rest, table, signing):
    names = [f"f{n}" for n in range(20)]
    server.on("POST", QUERY, signing(*names))
    urls, files = read(rest, table)

    with ThreadPoolExecutor(20) as pool:
        renewed = pool.map(lambda file: urls.url_for(url_key(file), rejected=file.action.path), files.values())

    assert sorted(renewed) == sorted(f"https://x/{name}?1" for name in names)
    assert len(server.requests) == 2


def test_failed_refresh_fails_only_the_threads_that_waited(server, rest, table, signing):
    server.on("POST", QUERY, signing("a"))
    urls, files = read(rest, table, QueryRequest(version=7))
    key, path = url_key(files["a"]), files["a"].action.path
    started, gate = threading.Event(), threading.Event()

    def refuse(request):
        return wire.error(400, "X")

    def hold(*args):
        started.set()
        gate.wait(HANGS)
        raise RequestError("no", status=400)

    fetch, urls._fetch = urls._fetch, hold
    errors = []

    def work():
        try:
            urls.url_for(key, rejected=path)
        except RequestError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    threads[0].start()
    started.wait(HANGS)
    for thread in threads[1:]:
        thread.start()
    deadline = threading.Event()
    deadline.wait(0.1)  # gives the other threads time to reach the lock
    gate.set()
    for thread in threads:
        thread.join()
    assert len({id(error) for error in errors}) == 1
    assert len(errors) == 4

    urls._fetch = fetch
    assert urls.url_for(key, rejected=path) == "https://x/a?1"


def test_pickle_holds_no_urls_and_repr_no_refresh_token(server, rest, table, signing):
    names = [f"file-{n}" for n in range(100)]
    server.on("POST", QUERY, signing(*names, token="planted"))
    urls, files = read(rest, table)
    key = url_key(files["file-5"])
    urls.url_for(key)

    data = pickle.dumps(urls)
    copy = pickle.loads(data)

    assert b"file-5" not in data
    assert "planted" not in repr(urls)
    assert copy.url_for(key, rejected=files["file-5"].action.path) == "https://x/file-5?2"


def test_expiration_of_a_response_applies_to_files_without_one(server, rest, table, clock):
    end = {"endStreamAction": {"minUrlExpirationTimestamp": clock.now + 3_600_000}}
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("a"), end))
    urls, files = read(rest, table)

    for minutes, queries in ((0, 2), (1, 2), (57, 2), (1, 3)):
        clock.now += minutes * 60_000
        assert urls.url_for(url_key(files["a"]))
        assert len(server.requests) == queries


@pytest.mark.parametrize(("own", "least"), [(10, 60), (60, 10)])
def test_expiration_of_a_file_takes_precedence(server, rest, table, clock, own, least):
    end = {"endStreamAction": {"minUrlExpirationTimestamp": clock.now + least * 60_000}}
    file = wire.delta_file("a", wrapper={"expirationTimestamp": clock.now + own * 60_000})
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), file, end))
    urls, files = read(rest, table)
    for minutes, queries in ((0, 2), (own - 2, 2), (1, 3)):
        clock.now += minutes * 60_000
        assert urls.url_for(url_key(files["a"]))
        assert len(server.requests) == queries


@pytest.mark.parametrize(
    "expires",
    [lambda now: now - 3_600_000, lambda now: now + 5_000, lambda now: now // 1000 + 3_600, lambda now: 1],
    ids=["client clock ahead", "five seconds", "in seconds", "nonsense"],
)
def test_odd_expiration_times_cause_only_one_refresh(server, rest, table, signing, clock, expires):
    names = [f"file-{number}" for number in range(40)]
    server.on("POST", QUERY, signing(*names, expires=expires(clock.now)))
    urls, files = read(rest, table)
    assert len({urls.url_for(url_key(files[name])) for name in names}) == 40
    assert len(server.requests) == 2


def test_repeated_urls_cause_one_refresh(server, rest, table, clock):
    """Some servers return the same URLs until shortly before they expire."""
    end = clock.now + 3_600_000
    files = [wire.delta_file(f"file-{number}", wrapper={"expirationTimestamp": end}) for number in range(40)]
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *files))
    urls, planned = read(rest, table)
    clock.now = end - 30_000
    assert all(file.renew_at < clock.now for file in planned.values())
    for file in planned.values():
        assert urls.url_for(url_key(file)) == file.action.path
    assert len(server.requests) == 2


def test_inline_deletion_vector_has_no_url(server, rest, table):
    vector = {"storageType": "i", "pathOrInlineDv": "##093", "sizeInBytes": 2, "cardinality": 1}
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("a", deletionVector=vector)))
    urls, files = read(rest, table)
    assert urls.url_for(url_key(files["a"]), rejected=files["a"].action.path)
    with pytest.raises(DataError, match="no longer lists the file"):
        urls.url_for(url_key(files["a"]) + "#dv", rejected="##093")


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_urls_are_stored_in_blocks_and_read_in_any_order(server, rest, table, signing, monkeypatch, block):
    monkeypatch.setattr(protocol_urls, "_BLOCK", block)
    names = [f"file-{number}" for number in range(23)]
    server.on("POST", QUERY, signing(*names))
    urls, files = read(rest, table)

    order = random.Random(block).sample(names, len(names))
    renewed = {name: urls.url_for(url_key(files[name]), rejected=files[name].action.path) for name in [*order, *names]}

    assert renewed == {name: f"https://x/{name}?1" for name in names}
    vectors = {urls.url_for(url_key(file) + "#dv", rejected="https://x/dv?0") for file in files.values()}
    assert vectors == {"https://x/dv?1"}
    assert len(server.requests) == 2
    assert len(urls._urls._unpacked) <= protocol_urls._UNPACKED
    with pytest.raises(DataError, match="no longer lists the file"):
        urls.url_for("another")


def test_url_takes_less_than_80_bytes():
    def memory():
        urls = protocol_urls._KnownUrls()
        tracemalloc.start()
        for number in range(50_000):
            name = f"{number:032x}"
            urls.put(name, protocol_urls._Url(f"https://storage.example/{name}?X-Amz-Expires=3600&{'x' * 200}", None))
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert urls.get(f"{7:032x}").url.startswith("https://storage.example/0")
        return size

    # The last threads of an earlier test may allocate memory meanwhile.
    assert min(memory() for _ in range(3)) < 80 * 50_000
