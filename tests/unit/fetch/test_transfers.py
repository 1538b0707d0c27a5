"""The transfer of one file, step by step, from a scripted storage without a socket."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from delta_sharing_client.errors import AuthError, DataError, DeltaSharingError, TransportError
from delta_sharing_client.fetch import source
from delta_sharing_client.fetch.place import DataRequest, Refused, Span, Version
from delta_sharing_client.fetch.source import Fetcher, RemoteFile, Stale
from delta_sharing_client.http.retry import Transient, Tries
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from tests.time_limits import HANGS

DATA = bytes(range(100))
SIZE = len(DATA)
V1, V2 = Version('"1"', "", SIZE), Version('"2"', "", SIZE)


class Sent:
    """A response that sends the bytes from ``start`` on in pieces. If it is ``broken``, it fails after them."""

    def __init__(
        self,
        start: int = 0,
        stop: int | None = SIZE,
        total: int | None = SIZE,
        *,
        data: bytes | None = None,
        piece: int = 7,
        version: Version = V1,
        is_html: bool = False,
        has_end: bool = False,
        broken: bool = False,
    ) -> None:
        self.span, self.version = Span(start, stop, total, is_html, has_end), version
        self.data = DATA[start:stop] if data is None else data
        self.piece, self.broken = piece, broken
        self.checksum = self.modified = None

    async def read(self) -> bytes:
        if self.broken and not self.data:
            raise Transient(TransportError("broken", table="s.d.t"))
        result, self.data = self.data[: self.piece], self.data[self.piece :]
        return result


Answer = Any


@dataclasses.dataclass
class Store:
    """A storage with scripted responses. As a ``UrlSource``, it returns numbered URLs; ``renews`` makes it its own."""

    answers: list[Answer]
    options: ReadOptions = dataclasses.field(default_factory=lambda: ReadOptions(max_attempts=3))
    table: str = "s.d.t"
    requests: list[DataRequest] = dataclasses.field(default_factory=list)
    asked: list[tuple[str, str | None]] = dataclasses.field(default_factory=list)
    limits: list[int] = dataclasses.field(default_factory=list)
    renews: bool = False

    @property
    def urls(self) -> Store | None:
        return self if self.renews else None

    async def get(self, request: DataRequest, take: Callable[[Any], Awaitable[None]]) -> None:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            raise Refused(answer, None)
        if isinstance(answer, Exception):
            raise answer
        await take(answer)

    def url_for(self, key: str, rejected: str | None = None) -> str:
        self.asked.append((key, rejected))
        return f"https://h/{len(self.asked)}"

    @property
    def wanted(self) -> list[ByteRange | int | None]:
        return [request.wanted for request in self.requests]

    @property
    def addresses(self) -> list[str]:
        return [request.address for request in self.requests]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failed(tries: Tries, failure: Transient) -> None:
        tries._wait(failure)

    monkeypatch.setattr(Tries, "failed_async", failed)


def made(store: Store, *, renews: bool = False, size: int = SIZE, **rest: Any) -> RemoteFile:
    store.renews = renews
    fetcher = Fetcher(cast("Any", store))
    return RemoteFile(fetcher, key="k", url="https://h/0?sig=planted", size=size, **{"file_id": "id", **rest})


def read(file: RemoteFile, start: int = 0, stop: int = SIZE) -> bytes:
    return bytes(asyncio.run(asyncio.wait_for(file.read(ByteRange(start, stop)), HANGS)))


def tail(file: RemoteFile, length: int) -> tuple[int, bytes]:
    total, result = asyncio.run(asyncio.wait_for(file.read_tail(length), HANGS))
    return total, bytes(result)


def refused(kind: type[DeltaSharingError], call: Callable[[], object], *words: str) -> DeltaSharingError:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert (caught.value.table, caught.value.file_id) == ("s.d.t", "id")
    for word in words:
        assert word in str(caught.value)
    assert "planted" not in str(caught.value)
    return caught.value


def test_only_missing_ranges_are_requested() -> None:
    store = Store([Sent(0, 40, broken=True), Sent(40, 60), Sent(60)])
    file = made(store)
    assert read(file) == DATA
    assert store.wanted == [None, ByteRange(40, SIZE), ByteRange(60, SIZE)]
    assert [request.version for request in store.requests] == [Version(), V1, V1]
    assert file.version == V1
    report = file.fetcher.report
    assert (report.requests, report.retries, report.bytes) == (3, 2, SIZE)
    # A storage that ignores ranges sends the whole file again.
    for start, stop in ((0, SIZE), (10, 20), (13, 14), (93, SIZE)):
        for unstated in (False, True):
            end, total = (None, None) if unstated else (SIZE, SIZE)
            store = Store([Sent(0, end, total, version=Version())])
            assert read(made(store), start, stop) == DATA[start:stop]
    assert read(made(Store([])), 5, 5) == b""


def test_attempt_that_makes_progress_does_not_count_as_failed() -> None:
    store = Store([Sent(at, at + 10, broken=True) for at in range(0, 90, 10)] + [Sent(90)])
    store.options = ReadOptions(max_attempts=2, min_bytes_per_second=1)
    assert read(made(store)) == DATA
    store = Store([Sent(0, 10, broken=True), Sent(10, 10, broken=True, data=b""), Sent(10, 10, broken=True, data=b"")])
    error = refused(TransportError, lambda: read(made(store)), "broken")
    assert "Tried 3 times" in str(error)
    assert store.wanted == [None, ByteRange(10, SIZE), ByteRange(10, SIZE)]
    # A response that ends early does not end the file, and bytes below the minimum speed are not progress.
    store = Store([Sent(0, 10, data=DATA[:10])] * 3)
    refused(TransportError, lambda: read(made(store), 0, 50), "the connection ended early")
    store = Store([Sent(at, at + 1, broken=True) for at in range(9)])
    store.options = ReadOptions(max_attempts=2, min_bytes_per_second=10**12)
    refused(TransportError, lambda: read(made(store)), "Tried 2 times")


@pytest.mark.parametrize("unstated", [False, True])
def test_file_longer_than_declared_is_refused(unstated: bool) -> None:
    more = DATA + b"x"
    if not unstated:
        for size in (SIZE - 1, SIZE + 1):
            words = f"expected a file of {size} bytes, but the storage has {SIZE} bytes"
            refused(DataError, lambda size=size: read(made(Store([Sent()]), size=size), 0, 5), words)  # type: ignore[misc]
        return
    for piece in (SIZE, SIZE + 1):
        store = Store([Sent(0, None, None, data=more, piece=piece)])
        words = f"expected a file of {SIZE} bytes, but the storage sends more"
        refused(DataError, lambda store=store: read(made(store)), words)  # type: ignore[misc]
    # Later bytes are ignored if a range is requested or the length is declared.
    assert read(made(Store([Sent(0, None, None, data=more, piece=SIZE + 1)])), 3, 8) == DATA[3:8]
    assert read(made(Store([Sent(0, SIZE, None, data=more, piece=SIZE + 1)]))) == DATA
    # After an interruption it is unknown whether more bytes would follow, so the file is requested again.
    store = Store([Sent(0, None, None, broken=True), Sent(0, None, None)])
    assert read(made(store)) == DATA
    assert store.wanted == [None, None]


def test_html_page_in_place_of_a_file_is_an_error() -> None:
    for total in (5, None):
        store = Store([Sent(0, total, total, data=b"<html", is_html=True)])
        refused(DataError, lambda store=store: read(made(store)), "an HTML page")  # type: ignore[misc]
    # A file name may end with .html.
    assert read(made(Store([Sent(is_html=True)]))) == DATA
    assert tail(made(Store([Sent(is_html=True)]), size=-1), 3) == (SIZE, DATA[-3:])


def test_ranges_of_two_versions_are_not_combined() -> None:
    for broken in (True, False):
        store = Store([Sent(0, 40, broken=broken), Sent(40, version=V2)])
        refused(Stale, lambda store=store: read(made(store)), "replaced while it was read")  # type: ignore[misc]
    refused(Stale, lambda: read(made(Store([Sent(version=V2)]), version=V1)), "replaced")
    refused(Stale, lambda: tail(made(Store([Sent(version=V2)]), version=V1), 3), "replaced")
    file = made(Store([]))
    assert file.version == Version()
    assert [file.agree(version) for version in (V1, V2, V1)] == [True, False, True]


def test_error_explains_the_http_status() -> None:
    gone = refused(DataError, lambda: read(made(Store([404]))), "vacuumed")
    assert gone.status == 404
    refused(DataError, lambda: read(made(Store([416])), 3, 9), "it has no bytes 3 to 9")
    for statuses in ([412, 412], [416]):
        refused(Stale, lambda statuses=statuses: read(made(Store(statuses), version=V1)), "replaced")  # type: ignore[misc]
    for status in (401, 403):
        # Without URLs that can be renewed, the credentials were refused.
        words = f"the storage refused access (HTTP status {status}). Ask the provider"
        error = refused(AuthError, lambda status=status: read(made(Store([status]))), words)  # type: ignore[misc]
        assert error.status == status
        words = f"the storage refused the file's URL (HTTP status {status}); it may have expired."
        refused(TransportError, lambda status=status: read(made(Store([status] * 3), renews=True)), words)  # type: ignore[misc]
    for status in (400, 410):
        words = f"the storage refused the file's URL (HTTP status {status}); it may have expired."
        refused(TransportError, lambda status=status: read(made(Store([status]))), words)  # type: ignore[misc]
    refusal = Refused(403, None, "AccessDenied")
    words = "the storage refused the file's URL (HTTP status 403, AccessDenied)."
    refused(TransportError, lambda: read(made(Store([refusal] * 3), renews=True)), words)
    for status in (412, 418, 501, 505):
        words = f"responded with HTTP status {status}."
        refused(TransportError, lambda status=status: read(made(Store([status]))), words)  # type: ignore[misc]
    for status in (408, 429, 500, 503):
        assert read(made(Store([status, Sent()]))) == DATA
        words = f"responded with HTTP status {status}. Tried 3 times."
        refused(TransportError, lambda status=status: read(made(Store([status] * 3))), words)  # type: ignore[misc]
    error = refused(TransportError, lambda: read(made(Store([Refused(503, "9999")]))), "status 503")
    assert "asks to wait 9999 s" in str(error)
    # Without an id, the error names the file by its location.
    with pytest.raises(DataError, match=r"Cannot read a data file at https://h/0: it is missing") as caught:
        read(made(Store([404]), file_id=None))
    assert "planted" not in str(caught.value)


def test_store_errors_name_the_table_and_file() -> None:
    error = DataError("odd")
    refused(DataError, lambda: read(made(Store([error]))), "odd")
    named = DataError("odd", table="other", file_id="theirs")
    with pytest.raises(DataError):
        read(made(Store([named])))
    assert (named.table, named.file_id) == ("other", "theirs")


def test_responses_429_and_503_halve_the_request_limit() -> None:
    for status, left in ((429, 4), (503, 4), (500, 8), (404, 8)):
        file = made(Store([status], ReadOptions(max_concurrent_requests=8, max_attempts=1)))
        file.fetcher.limiter._active = 7  # requests for other files
        with pytest.raises(DeltaSharingError):
            read(file)
        assert file.fetcher.limiter.limit == left
        assert file.fetcher.limiter._active == 7


def test_refused_url_is_renewed_at_most_twice() -> None:
    store = Store([403, Sent(0, 40, broken=True), 401, Sent(40)])
    file = made(store, renews=True)
    assert read(file) == DATA
    assert store.asked == [("k", "https://h/0?sig=planted"), ("k", "https://h/1")]
    assert store.addresses == ["https://h/0?sig=planted", "https://h/1", "https://h/1", "https://h/2"]
    assert file.fetcher.report.retries == 3
    store = Store([403, 403, 403])
    refused(TransportError, lambda: read(made(store, renews=True)), "status 403")
    assert len(store.asked) == source._MAX_REFRESHES == 2
    # A URL known to be refused or expired is not used for the file.
    store = Store([Sent(), Sent()])
    file = made(store, renews=True, attempt=source.Attempt.AGAIN)
    assert read(file) == read(file) == DATA
    assert (store.asked, store.addresses) == ([("k", "https://h/0?sig=planted")], ["https://h/1"] * 2)
    store = Store([Sent(), Sent()])
    file = made(store, renews=True, renew_at=0)
    assert read(file) == read(file) == DATA
    assert (store.asked, store.addresses) == ([("k", None)], ["https://h/1"] * 2)
    for early in ({"renew_at": 10**15}, {"renew_at": None}):
        store = Store([Sent()])
        assert read(made(store, renews=True, **early)) == DATA
        assert store.asked == []
    store = Store([Sent()])
    assert read(made(store, renew_at=0, attempt=source.Attempt.AGAIN)) == DATA
    with pytest.raises(TransportError, match="no new URL can be requested"):
        asyncio.run(made(store).renew("https://h/0?sig=planted"))
    assert asyncio.run(made(store, renews=True).renew("another")) == "https://h/0?sig=planted"


def test_renewal_is_shared_and_its_failure_is_not_cached() -> None:
    store = Store([403, 403, Sent(0, 10), Sent(10, 20)])
    file = made(store, renews=True)

    async def both() -> list[bytes]:
        pieces = await asyncio.gather(file.read(ByteRange(0, 10)), file.read(ByteRange(10, 20)))
        return sorted(map(bytes, pieces))

    assert asyncio.run(both()) == [DATA[:10], DATA[10:20]]
    assert len(store.asked) == 1

    class Failing(Store):
        def url_for(self, key: str, rejected: str | None = None) -> str:
            if not self.asked:
                self.asked.append((key, rejected))
                raise TransportError("the server sleeps")
            return super().url_for(key, rejected)

    store = Failing([403, 403, Sent()])
    file = made(store, renews=True)
    with pytest.raises(TransportError, match="the server sleeps"):
        read(file)
    assert read(file) == DATA
    assert len(store.asked) == 2


def test_tail_of_a_file_is_read_with_its_length() -> None:
    for sent, length, expected in (
        (Sent(90), 10, DATA[90:]),
        (Sent(), 10, DATA[90:]),
        (Sent(), SIZE, DATA),
        (Sent(), SIZE + 1, DATA),
        (Sent(0, 0, 0, data=b""), 10, b""),
    ):
        store = Store([sent])
        file = made(store, size=-1)
        assert tail(file, length) == (sent.span.total, expected)
        assert (store.wanted, file.size) == ([length], -1)
        assert file.fetcher.report.bytes == len(expected)
    # Each attempt reads the whole tail again, so the bytes match even if the file grew and no header shows it.
    store = Store([Sent(90, broken=True, data=DATA[90:95]), Sent(90)])
    assert tail(made(store, size=-1), 10) == (SIZE, DATA[90:])
    assert store.wanted == [10, 10]
    grown = Sent(1, 11, 11, data=DATA[:10], version=Version())
    store = Store([Sent(90, broken=True, data=DATA[90:95], version=Version()), grown])
    assert tail(made(store, size=-1), 10) == (11, DATA[:10])
    store = Store([Sent(90, None, None)])
    refused(
        DataError,
        lambda: tail(made(store, size=-1), 10),
        "nor the storage states its length",
    )


def test_storage_that_refuses_conditions_is_read_without() -> None:
    for status in (412, 501):
        store = Store([status, Sent(0, 10), Sent(10, 20)])
        file = made(store, version=V1)
        assert (read(file, 0, 10), read(file, 10, 20)) == (DATA[:10], DATA[10:20])
        assert [request.version for request in store.requests] == [V1, None, None]
        # Another version is refused all the same.
        store = Store([status, Sent(0, 10, version=V2)])
        refused(Stale, lambda store=store: read(made(store, version=V1), 0, 10), "replaced")  # type: ignore[misc]


def test_file_is_read_in_one_response() -> None:
    def in_one(store: Store) -> bytes:
        return read(made(store, attempt=source.Attempt.IN_ONE_RESPONSE, version=V1))

    assert in_one(Store([Sent(version=V2)])) == DATA
    # An interrupted response is not continued, because the next one may have other bytes.
    store = Store([Sent(broken=True, data=DATA[:50]), Sent(version=V2)])
    assert in_one(store) == DATA
    assert [(request.wanted, request.version) for request in store.requests] == [(None, Version())] * 2


def test_file_of_unknown_size_is_read_whole() -> None:
    def whole(store: Store, most: int | None = None) -> tuple[bytes, int]:
        file = made(store, size=-1)
        return bytes(asyncio.run(file.read_all(most))), file.size

    assert whole(Store([Sent()])) == (DATA, SIZE)
    assert whole(Store([Sent(0, 0, 0, data=b"")])) == (b"", 0)
    store = Store([Sent(broken=True, data=DATA[:50]), Sent(50)])
    assert whole(store) == (DATA, SIZE)
    assert store.wanted == [None, ByteRange(50, SIZE)]
    assert whole(Store([Sent(broken=True, data=DATA[:50]), Sent()])) == (DATA, SIZE)
    refused(DataError, lambda: whole(Store([Sent(0, None, None)])), "neither its length nor where the response ends")
    refused(DataError, lambda: whole(Store([Sent()]), SIZE - 1), f"expected at most {SIZE - 1} bytes, found {SIZE}")
    grown = Sent(50, 101, 101, data=DATA[50:] + b"x", version=V1)
    refused(Stale, lambda: whole(Store([Sent(broken=True, data=DATA[:50]), grown])), "replaced")
    refused(Stale, lambda: whole(Store([Sent(broken=True, data=DATA[:50]), Sent(50, version=V2)])), "replaced")


def test_whole_file_without_length_is_read_to_its_end() -> None:
    def sent(**rest: Any) -> Sent:
        return Sent(0, None, None, has_end=True, **rest)

    def whole(store: Store, most: int | None = None, size: int = -1, **rest: Any) -> tuple[bytes, int]:
        file = made(store, size=size, **rest)
        return bytes(asyncio.run(file.read_all(most))), file.size

    assert whole(Store([sent()]), SIZE, SIZE) == (DATA, SIZE)
    assert whole(Store([sent(data=b"")])) == (b"", 0)
    # Without a length, an interrupted response cannot be continued.
    store = Store([sent(broken=True, data=DATA[:50]), sent()])
    assert whole(store) == (DATA, SIZE)
    assert store.wanted == [None, None]
    refused(TransportError, lambda: whole(Store([sent(broken=True)] * 3)), "broken")
    refused(DataError, lambda: whole(Store([sent()]), SIZE - 1), f"expected at most {SIZE - 1} bytes, found more")
    refused(DataError, lambda: whole(Store([sent()]), size=99), "expected a file of 99 bytes", "has 100 bytes")
    refused(Stale, lambda: whole(Store([sent(broken=True), sent(version=V2)])), "replaced")
    refused(Stale, lambda: whole(Store([Sent(broken=True, data=DATA[:50]), sent()])), "replaced")
    for second in (sent(version=V2), Sent(version=V2)):
        store = Store([Sent(broken=True, data=DATA[:50]), second])
        assert whole(store, attempt=source.Attempt.IN_ONE_RESPONSE) == (DATA, SIZE)


def poured(store: Store, start: int = 0, stop: int = SIZE) -> bytes:
    pieces: list[bytes] = []
    put = lambda data: pieces.append(bytes(data))  # noqa: E731
    try:
        asyncio.run(asyncio.wait_for(made(store).pour(ByteRange(start, stop), put), HANGS))
    except DataError:
        assert not pieces
        raise
    return b"".join(pieces)


@pytest.mark.parametrize("unstated", [False, True])
def test_bytes_are_poured_once_and_in_order(unstated: bool) -> None:
    end, total = (None, None) if unstated else (SIZE, SIZE)
    whole = {"version": Version()} if unstated else {}
    for start, stop in ((0, SIZE), (10, 20), (13, 14), (93, SIZE)):
        assert poured(Store([Sent(0, end, total, **whole)]), start, stop) == DATA[start:stop]
        store = Store([Sent(0, end, total, broken=True, data=DATA[:50], **whole), Sent(0, end, total, **whole)])
        assert poured(store, start, stop) == DATA[start:stop]
    store = Store([Sent(0, 40, broken=True), Sent(40, 60), Sent(60)])
    assert poured(store) == DATA
    assert store.wanted == [None, ByteRange(40, SIZE), ByteRange(60, SIZE)]
    assert poured(Store([]), 5, 5) == b""


def test_no_byte_of_a_longer_file_is_poured() -> None:
    """Bytes that are written to the disk are kept for the next download."""
    for piece in (7, SIZE, SIZE + 1):
        longer = Sent(0, None, None, data=DATA + b"x", piece=piece, version=Version())
        refused(DataError, lambda sent=longer: poured(Store([sent])), "the storage sends more")  # type: ignore[misc]
