"""Failures of storages and networks during a download: either the bytes are right or the read fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

import pyarrow as pa
import pytest

from delta_sharing_client.errors import DataError, DeltaSharingError
from delta_sharing_client.fetch.place import UrlSource, Version
from delta_sharing_client.fetch.report import (
    Progress,
    ScanReport,
    add_counts,
    add_seconds,
    file_started,
    follow_progress,
)
from delta_sharing_client.fetch.signed_urls import SignedUrls
from delta_sharing_client.fetch.source import Fetcher, RemoteFile, Stale
from delta_sharing_client.http.network import Allowed
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.run import loop
from tests.http_server import Exchange
from tests.time_limits import HANGS
from tests.unit.storages import Storage, cut, fast_options, status

DATA = bytes(range(256)) * 400


@pytest.fixture
def report() -> ScanReport:
    return ScanReport()


def test_half_of_a_started_request_counts_as_progress(report: ScanReport) -> None:
    assert report.progress is None
    follow_progress(report, lambda: (1, 4, 100, 400))
    add_counts(report, bytes=100)
    for size in (100, -1, 200):  # -1: the size is unknown
        file_started(report, size)
    assert report.progress == Progress(1, 4, 100, 400, 0, 100, 200)


def test_report_marks_times_summed_over_threads(report: ScanReport) -> None:
    for stage in ("plan", "fetch", "decode", "total"):
        add_seconds(report, stage, 0.5)
    assert "plan 0.500 s, fetch (sum) 0.500 s, decode (sum) 0.500 s, total 0.500 s" in str(report)


@pytest.fixture
def remote(storage: Storage, report: ScanReport) -> Callable[..., RemoteFile]:
    storage.put("f", DATA)

    def make(
        *, size: int = len(DATA), urls: UrlSource | None = None, url: str | None = None, **options: object
    ) -> RemoteFile:
        chosen = fast_options(**options)
        fetcher = Fetcher(SignedUrls(chosen, Allowed(loopback=True), "share.schema.t", urls), report)
        return RemoteFile(fetcher, key="add::f", url=url or storage.url("f"), size=size, file_id="id-f")

    return make


MakeRemote = Callable[..., RemoteFile]


def read(file: RemoteFile, start: int = 0, stop: int = len(DATA)) -> bytes:
    return bytes(loop.call(file.read(ByteRange(start, stop))).to_pybytes())


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        (Version(), Version(), True),
        (Version("a", "M", 9), Version("a", "T", 8), True),
        (Version("a", "M", 9), Version("b", "M", 9), False),
        (Version("a", "M", 9), Version("", "M", 9), True),
        (Version("a", "M", 9), Version("", "T", 9), False),
        (Version("", "M", 9), Version("", "", 9), True),
        (Version("", "M", 9), Version("", "M", None), True),
        (Version("", "M", 9), Version("", "M", 8), False),
        (Version("", "", 9), Version("", "", 8), False),
    ],
)
def test_versions_agree_by_etag_or_else_by_time_and_length(one: Version, other: Version, agree: bool) -> None:
    assert one.agrees(other) is other.agrees(one) is agree


def test_whole_file_is_requested_without_a_range_header(remote: MakeRemote, storage: Storage) -> None:
    assert read(remote()) == DATA
    assert storage.requested("f") == [None]


def test_range_returns_exactly_its_bytes(remote: MakeRemote, storage: Storage) -> None:
    assert read(remote(), 1000, 3001) == DATA[1000:3001]
    assert storage.requested("f") == ["bytes=1000-3000"]


def test_interrupted_download_resumes_at_the_missing_byte(
    remote: MakeRemote, storage: Storage, report: ScanReport
) -> None:
    storage.faults["f"] = [cut(40_000), cut(10_000)]
    assert read(remote()) == DATA
    assert storage.requested("f") == [None, f"bytes=40000-{len(DATA) - 1}", f"bytes=50000-{len(DATA) - 1}"]
    assert (report.retries, report.bytes) == (2, len(DATA))


# --- responses that do not match the request ---


def answer(code: int, body: slice, **headers: str) -> Callable[[Exchange, bytes], bool]:
    def fault(handler: Exchange, data: bytes) -> bool:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.reply(code, data[body], named)
        return True

    return fault


@pytest.mark.parametrize(
    "fault",
    [
        answer(206, slice(0, 10)),
        answer(206, slice(0, 10), Content_Range="bytes 0-9/102400"),
        answer(206, slice(10, 20), Content_Range="bytes 100-119/102400"),
        answer(206, slice(100, 300), Content_Range="bytes 100-299/102400"),
        answer(206, slice(100, 110), Content_Range="lines 100-109/102400"),
        answer(206, slice(100, 110), Content_Range="bytes 100-109/77"),
        answer(200, slice(0, None), Content_Encoding="gzip"),
        answer(416, slice(0, 0)),
    ],
    ids=[
        "no range",
        "from the start",
        "wrong length",
        "too long",
        "wrong unit",
        "wrong total",
        "encoded",
        "status 416",
    ],
)
def test_responses_that_do_not_match_the_request_are_refused(
    remote: MakeRemote, storage: Storage, fault: Callable[..., bool]
) -> None:
    storage.faults["f"] = [fault]
    with pytest.raises(DataError, match="id-f"):
        read(remote(), 100, 200)


@pytest.mark.parametrize("encoding", ["utf-8", "aws-chunked", "binary", "identity"])
def test_unknown_content_encoding_is_ignored(remote: MakeRemote, storage: Storage, encoding: str) -> None:
    storage.faults["f"] = [answer(200, slice(0, None), Content_Encoding=encoding)]
    assert read(remote()) == DATA


def test_end_of_a_file_of_unknown_length_is_read(remote: MakeRemote, storage: Storage) -> None:
    size = len(DATA)
    storage.faults["f"] = [answer(206, slice(size - 100, None), Content_Range=f"bytes {size - 100}-{size - 1}/*")]
    total, tail = loop.call(remote(size=-1).read_tail(100))
    assert (total, tail.to_pybytes()) == (size, DATA[-100:])
    # The file is shorter than the requested range, so all of it is returned.
    storage.faults["f"] = [answer(206, slice(0, None), Content_Range=f"bytes 0-{size - 1}/*")]
    total, tail = loop.call(remote(size=-1).read_tail(2 * size))
    assert (total, tail.to_pybytes()) == (size, DATA)
    # Fewer bytes, and not from the start: their position in the file is unknown.
    storage.faults["f"] = [answer(206, slice(100, 150), Content_Range="bytes 100-149/*")]
    with pytest.raises(DataError, match="Expected the last 100 bytes"):
        loop.call(remote(size=-1).read_tail(100))


def test_tail_is_read_from_a_storage_without_ranges(remote: MakeRemote, storage: Storage) -> None:
    storage.ranges = False
    storage.faults["f"] = [cut(10)]
    total, tail = loop.call(remote(size=-1).read_tail(100))
    assert (total, tail.to_pybytes()) == (len(DATA), DATA[-100:])


# --- redirects ---


@pytest.mark.parametrize("chunked", [False, True])
def test_html_page_instead_of_a_file_is_an_error(remote: MakeRemote, storage: Storage, chunked: bool) -> None:
    page = b"<html><title>Sign in</title></html>"

    def sign_in(handler: Exchange, data: bytes) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/html; charset=utf-8")
        handler.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(page)))))
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(page), page) if chunked else page)
        return True

    storage.faults["f"] = [sign_in]
    with pytest.raises(DataError, match="found an HTML page; perhaps a proxy"):
        read(remote(), 5, 10)


def redirect(location: str) -> Callable[[Exchange, bytes], bool]:
    return status(307, {"Location": location})


def test_redirect_is_followed(remote: MakeRemote, storage: Storage) -> None:
    storage.put("elsewhere", DATA)
    storage.faults["f"] = [redirect("/elsewhere?X-Amz-Signature=s")]
    assert read(remote(), 5, 10) == DATA[5:10]
    assert storage.requested("elsewhere") == ["bytes=5-9"]


def test_redirect_loop_is_an_error(remote: MakeRemote, storage: Storage) -> None:
    storage.faults["f"] = [redirect("/f?again") for _ in range(50)]
    with pytest.raises(DeltaSharingError):
        read(remote())
    assert len(storage.requests) < 20


def test_stalled_request_times_out_and_is_retried(remote: MakeRemote, storage: Storage) -> None:
    released = threading.Event()

    def stall(handler: Exchange, data: bytes) -> bool:
        released.wait(HANGS)
        handler.close_connection = True
        return True

    storage.faults["f"] = [stall]
    try:
        assert read(remote(read_timeout=0.2)) == DATA
    finally:
        released.set()


def test_cancelling_ends_a_waiting_read(remote: MakeRemote, storage: Storage) -> None:
    released = threading.Event()

    def stall(handler: Exchange, data: bytes) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:100])
        handler.wfile.flush()
        released.wait(200)
        handler.close_connection = True
        return True

    storage.faults["f"] = [stall]
    reading = loop.Running(lambda: remote(read_timeout=200.0).read(ByteRange(0, len(DATA))))
    reading.start()
    while not storage.requests:
        reading.wait(0.01)
    assert not reading.wait(0.1)
    reading.cancel()
    try:
        assert reading.wait(HANGS)
        with pytest.raises(CancelledError):
            reading.result()
    finally:
        released.set()


def test_fetched_bytes_fill_the_given_buffer(remote: MakeRemote) -> None:
    buffer = pa.allocate_buffer(10)
    loop.call(remote().fetch(ByteRange(5, 15), memoryview(buffer).cast("B")))

    assert buffer.to_pybytes() == DATA[5:15]


# --- one version of an object ---


def broken_at(storage: Storage, after: int, then: Callable[[], None] = lambda: None) -> Callable[..., bool]:
    """Send ``after`` bytes with the headers of the storage, disconnect, and call ``then``."""

    def fault(handler: Exchange, data: bytes) -> bool:
        handler.send_response(200)
        for name, value in storage.headers.get("f", {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:after])
        handler.close_connection = True
        then()
        return True

    return fault


def test_strong_etag_is_sent_with_every_later_request(remote: MakeRemote, storage: Storage) -> None:
    storage.headers["f"] = {"ETag": '"one"'}
    file = remote()
    storage.faults["f"] = [broken_at(storage, 40_000)]

    assert read(file) == DATA
    assert read(file, 5, 10) == DATA[5:10]
    assert [request.headers.get("If-Match") for request in storage.requests] == [None, '"one"', '"one"']


@pytest.mark.parametrize("etag", ['W/"one"', "one", ""])
def test_weak_etag_is_not_sent(remote: MakeRemote, storage: Storage, etag: str) -> None:
    storage.headers["f"] = {"ETag": etag} if etag else {}
    storage.faults["f"] = [broken_at(storage, 40_000)]

    assert read(remote()) == DATA
    assert [request.headers.get("If-Match") for request in storage.requests] == [None, None]


@pytest.mark.parametrize("name", ["ETag", "Last-Modified"])
def test_download_does_not_resume_with_another_object(remote: MakeRemote, storage: Storage, name: str) -> None:
    storage.headers["f"] = {name: '"one"'}

    def swap() -> None:
        storage.files["f"] = bytes(len(DATA))
        storage.headers["f"] = {name: '"two"'}

    storage.faults["f"] = [broken_at(storage, 40_000, swap)]
    with pytest.raises(Stale, match=r"replaced while it was read.*id-f"):
        read(remote())


def test_changed_length_of_a_file_of_unknown_size_is_refused(remote: MakeRemote, storage: Storage) -> None:
    file = remote(size=-1)
    assert read(file, 5, 10) == DATA[5:10]
    storage.files["f"] = DATA + b"more"

    with pytest.raises(Stale):
        read(file, 5, 10)


# --- secrets ---


def everything(error: BaseException | None) -> str:
    """Return all that an error-reporting tool could show of an exception: its text and attributes, and those of its
    causes."""
    seen: list[str] = []
    while error is not None:
        seen += [str(error), repr(error), repr(error.args), repr(vars(error)), str(getattr(error, "object", ""))]
        error = error.__cause__ or error.__context__
    return "\n".join(seen)


@pytest.mark.parametrize(
    "location",
    [
        "http://[::1/f?X-Amz-Signature=planted",
        "http://127.0.0.1:99999/f?X-Amz-Signature=planted",
        "http://127.0.0.1:port/f?X-Amz-Signature=planted",
        "http://127.0.0.1:1/f?X-Amz-Signature=planted",
        "http://planted:planted@127.0.0.1:1/f",
        "http://nowhere.invalid/f?X-Amz-Signature=planted",
        "http://example.com/f?X-Amz-Signature=planted",
        "ftp://127.0.0.1/f?X-Amz-Signature=planted",
        "http://127.0.0.1.\u2100.example/f?X-Amz-Signature=planted",
    ],
)
@pytest.mark.parametrize("how", ["url", "redirect"])
def test_chained_errors_contain_no_signature(
    remote: MakeRemote, storage: Storage, location: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    storage.faults["f"] = [redirect(location.encode("utf-8").decode("latin-1"))] * 3
    file = remote(max_attempts=2, **({"url": location} if how == "url" else {}))

    with pytest.raises(DeltaSharingError) as caught:
        read(file)
    assert "planted" not in everything(caught.value)
    assert "planted" not in caplog.text
