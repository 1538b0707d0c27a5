"""A proxy that stands before an object store, real or simulated, and injects faults into its responses.

It has the faults of ``mock_server`` (endless and malformed responses, truncated bodies ...), and those that only a
store can have: redirects that would carry a signature elsewhere, foreign bodies, listings that are wrong or never end.
Faults of the target ``data`` affect objects, those of ``api`` listings.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from mock_server.delivery import Delivery
from mock_server.faults import KINDS, Fault, FaultKind, FaultSet, Target, parse_fault
from mock_server.running import bind, serving, uvicorn_config
from mock_server.stats import Stats
from tests.object_stores import AZURE, Answer, Entry, Request, expired, listing, refusal

Origin = Callable[[Request], Answer]

STORE_FAULTS = (
    FaultKind("redirect-elsewhere", "responses are a 307 to another host", Target.ALL),
    FaultKind("web-page", "responses are a web page with status 200", Target.ALL),
    FaultKind("other-document", "responses are another XML document with status 200", Target.API),
    FaultKind("empty-body", "responses have status 200 and no body", Target.API),
    FaultKind("throttled", "every VALUEth request gets a 503 SlowDown", Target.ALL, 5),
    FaultKind("expired", "credentials are refused, as if they had expired", Target.ALL),
    FaultKind("refused", "requests get a VALUE without a code", Target.ALL, 403),
    FaultKind("not-found", "requests get a 404 without a code, as from a wrong endpoint", Target.ALL),
    FaultKind("no-bucket", "requests get a 404: the bucket or container does not exist", Target.ALL),
    FaultKind("if-match", "requests with If-Match get a VALUE", Target.DATA, 412),
    FaultKind("etag-per-node", "every response has a different ETag", Target.DATA),
    FaultKind("changed", "the content changes after each response, with a new ETag", Target.DATA),
    FaultKind("wrong-range", "Content-Range begins one byte later than the request", Target.DATA),
    FaultKind("no-range", "a Range request gets a 206 without Content-Range", Target.DATA),
    FaultKind("repeat-mark", "every page has the same mark, so the listing never ends", Target.API),
    FaultKind("repeat-page", "every page has a new mark and the names of the first page", Target.API),
    FaultKind("empty-pages", "every page has a new mark and no names", Target.API),
    FaultKind("endless-names", "every page has a new mark and new names", Target.API),
    FaultKind("outside", "a page has a name outside of the folder", Target.API),
)
ALL_FAULTS = (
    *(kind for kind in KINDS.values() if kind.target is not Target.API),
    *STORE_FAULTS,
)
"""Faults that make sense for a store: those of ``mock_server`` that are not about the sharing protocol, and its own."""

_OWN = {kind.name: kind for kind in STORE_FAULTS}
_MARK = "planted-mark"
_PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Welcome</body></html>"


def parse(text: str) -> Fault:
    """Return the fault that ``FaultProxy.set_fault`` activates."""
    name = re.split("[=:@]", text)[0]
    if name not in _OWN:
        return parse_fault(text)
    kind = _OWN[name]
    match = re.fullmatch(r"[\w-]+(?:=(\d+))?(?::(\d+))?(?:@(api|data|all))?", text)
    assert match is not None, text
    value, count, target = match.groups()
    return Fault(
        name,
        float(value or kind.default or 0),
        None if count is None else int(count),
        kind.target if target is None else Target(target),
    )


class FaultProxy:
    """The proxy of one store, whose protocol is ``kind``. ``endpoint`` is its URL, without a path.

    ``requests`` are all received requests; ``elsewhere`` are those that arrived where ``redirect-elsewhere`` led.
    """

    def __init__(self, kind: str, origin: Origin, endpoint: str, elsewhere: str, requests: list[Request]) -> None:
        self.endpoint = endpoint
        self.requests: list[Request] = []
        self.elsewhere = requests
        self.kind, self._origin, self._elsewhere = kind, origin, elsewhere
        self.faults = FaultSet()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def set_fault(self, text: str) -> None:
        """Activate a fault, ``NAME[=VALUE][:COUNT]``, with ``@api`` only for listings or ``@data`` only for objects."""
        self.faults.set(parse(text))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request (ASGI), after the faults of ``mock_server``."""
        answer = await run_in_threadpool(self._answer, _request(scope))
        await _respond(answer, send)

    def _answer(self, request: Request) -> Answer:
        target = Target.API if request.is_listing else Target.DATA
        taken = lambda name: self.faults.take(name, target)  # noqa: E731
        with self._lock:
            self.requests.append(request)
            number = next(self._numbers)
        if taken("redirect-elsewhere"):
            return Answer(307, [("Location", f"{self._elsewhere}{request.path}?{request.query}")])
        if taken("web-page"):
            return Answer(200, [("Content-Type", "text/html")], _PAGE)
        if taken("other-document"):
            return Answer(200, [("Content-Type", "application/xml")], b"<ListAllMyBucketsResult/>")
        if taken("empty-body"):
            return Answer(200, [("Content-Type", "application/xml")])
        if (fault := taken("throttled")) and number % int(fault.value) == 0:
            return refusal(self.kind, 503, "ServerBusy" if self.kind == AZURE else "SlowDown")
        if taken("expired"):
            return expired(self.kind)
        if fault := taken("refused"):
            return Answer(int(fault.value), [])
        if taken("not-found"):
            return Answer(404, [("Content-Type", "text/html")], _PAGE)
        if taken("no-bucket"):
            return refusal(self.kind, 404, "ContainerNotFound" if self.kind == AZURE else "NoSuchBucket")
        if request.is_listing:
            return self._listing(request, taken, number)
        return self._object(request, taken, number)

    def _listing(self, request: Request, taken: Callable[[str], Fault | None], number: int) -> Answer:
        prefix = request.parameters.get("prefix", "")
        mark = f"{_MARK}-{number}"
        if f"={_MARK}" in request.query:
            # The store does not know the marks of the proxy.
            request = _first_page(request)
        if taken("empty-pages"):
            return listing(self.kind, [], mark)
        if taken("endless-names"):
            return listing(self.kind, [Entry(f"{prefix}zz-{number:09}", b"x")], mark)
        if taken("outside"):
            return listing(self.kind, [Entry("elsewhere/a.txt", b"x")], None)
        if taken("repeat-mark"):
            return _with_mark(self.kind, self._origin(_first_page(request)), _MARK)
        if taken("repeat-page"):
            return _with_mark(self.kind, self._origin(_first_page(request)), mark)
        return self._origin(request)

    def _object(self, request: Request, taken: Callable[[str], Fault | None], number: int) -> Answer:
        if "if-match" in request.headers and (fault := taken("if-match")):
            return refusal(self.kind, int(fault.value), "PreconditionFailed")
        headers = dict(request.headers)
        if taken("ignore-range"):
            headers.pop("range", None)
        is_changed, is_marked = taken("changed"), taken("etag-per-node")
        if is_changed and "if-match" in headers:
            return refusal(self.kind, 412, "PreconditionFailed")
        if is_changed or is_marked:
            headers.pop("if-match", None)
        answer = self._origin(dataclasses.replace(request, headers=headers))
        if answer.status not in (200, 206):
            return answer
        if is_changed or is_marked:
            answer.replace("ETag", f'"{number}"')
        if is_changed:
            answer.body = bytes((byte + number) % 256 for byte in answer.body)
            for name in ("Content-MD5", "x-ms-blob-content-md5", "x-goog-hash"):
                answer.replace(name, None)
        if answer.status == 206 and taken("wrong-range"):
            start, stop = map(int, re.findall(r"\d+", answer.get("Content-Range") or "")[:2])
            answer.replace("Content-Range", f"bytes {start + 1}-{stop + 1}/{stop + 2}")
        if answer.status == 206 and taken("no-range"):
            answer.replace("Content-Range", None)
        if taken("no-etag"):
            answer.replace("ETag", None)
        if taken("weak-etag"):
            answer.replace("ETag", f"W/{answer.get('ETag')}")
        if taken("no-last-modified"):
            answer.replace("Last-Modified", None)
        return answer


@contextlib.contextmanager
def fault_proxy(kind: str, origin: Origin) -> Iterator[FaultProxy]:
    """Run a proxy of a store on a free port of the loopback interface during a ``with`` block."""
    elsewhere: list[Request] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        elsewhere.append(_request(scope))
        await _respond(await run_in_threadpool(origin, elsewhere[-1]), send)

    with bind("127.0.0.1", 0) as listening, bind("127.0.0.1", 0) as other:
        endpoint, its = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in (listening, other))
        proxy = FaultProxy(kind, origin, endpoint, its, elsewhere)
        delivery = Delivery(proxy, stats=Stats(), faults=proxy.faults, latency=0.0, bandwidth=None, describe=_described)
        with serving(uvicorn_config(delivery), listening), serving(uvicorn_config(note), other):
            yield proxy


def forwarding(endpoint: str, *, keeps_host: bool, sign: Callable[[str], Mapping[str, str]] | None = None) -> Origin:
    """Return a function that sends requests on to a store at ``endpoint``.

    ``keeps_host``: the store receives the header ``Host`` of the client, which a signature contains. ``sign`` returns
    the headers that sign a URL, for requests that the proxy has changed.
    """
    host = urlsplit(endpoint).netloc

    def answer(request: Request) -> Answer:
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            target = f"{request.path}?{request.query}" if request.query else request.path
            connection.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
            headers = dict(request.headers) if keeps_host else {**request.headers, "host": host}
            if request.is_changed and sign is not None:
                headers |= {"host": host, **sign(f"{endpoint}{target}")}
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            kept = [one for one in response.getheaders() if one[0].lower() not in _BETWEEN_HOSTS]
            return Answer(response.status, kept, response.read())
        finally:
            connection.close()

    return answer


# Headers that a proxy does not forward (RFC 9110, 7.6.1), and the length, which it states itself.
_BETWEEN_HOSTS = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length", "date"))


def _request(scope: Scope) -> Request:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    return Request(scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1"), headers)


def _described(scope: Scope) -> tuple[str, str | None]:
    request = _request(scope)
    return ("listing", None) if request.is_listing else ("object", request.path)


async def _respond(answer: Answer, send: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _first_page(request: Request) -> Request:
    kept = [part for part in request.query.split("&") if not part.startswith(("marker=", "continuation-token="))]
    query = "&".join(kept)
    return dataclasses.replace(request, query=query, is_changed=request.is_changed or query != request.query)


def _with_mark(kind: str, answer: Answer, mark: str) -> Answer:
    """Return a page of a listing with a different mark for the next one."""
    text = answer.body.decode()
    if kind == AZURE:
        text = re.sub(r"<NextMarker\s*/>|<NextMarker>[^<]*</NextMarker>", f"<NextMarker>{mark}</NextMarker>", text)
    else:
        text = re.sub(r"<(IsTruncated|NextContinuationToken)>[^<]*</\1>", "", text)
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{mark}</NextContinuationToken>"
        text = text.replace("</ListBucketResult>", f"{more}</ListBucketResult>")
    return dataclasses.replace(answer, body=text.encode())
