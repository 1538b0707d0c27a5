"""The server that is checked: raw requests with their responses, and what the profile may see."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from delta_sharing_client.checks import forms
from delta_sharing_client.checks.check import Failed, NotOffered, NotTestable
from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.http.body import body_chunks
from delta_sharing_client.http.network import Allowed
from delta_sharing_client.http.request_limits import RequestLimits
from delta_sharing_client.http.retry import Deadline, Tries
from delta_sharing_client.http.sessions import Sessions
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.transport import Request, Transport
from delta_sharing_client.redact import printable, safe_url, scrub_json

ObjectT = TypeVar("ObjectT")
# The statuses with which a server says that it has no such API.
ABSENT = (404, 405, 501)
# What reading a response raises that has another form than the specification says.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, OSError)
# A report does not wait minutes for each request that a server refuses for now.
_QUICK = ReadOptions(read_timeout=30.0, max_attempts=3, max_retry_seconds=10.0)
MOST_SHARES = 20
MOST_SCHEMAS = 100
MOST_TABLES = 50
MOST_PAGES = 1000
_MOST_FILE_BYTES = 64 * 1024 * 1024
_MOST_SHOWN = 1000
_MOST_MASKED = 256 * 1024


@dataclasses.dataclass(frozen=True)
class Answer:
    """A response with the request that it answers. ``headers`` ignore the case of their names."""

    asked: str
    status: int
    headers: Mapping[str, str] = dataclasses.field(repr=False)
    body: bytes = dataclasses.field(repr=False)

    def document(self) -> Any:
        """Return the body as JSON; ``Failed`` if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise Failed("Expected JSON as the body of the response, found something else.", self) from None

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the body as JSON objects; ``Failed`` if a line is none."""
        results = []
        for line in self.body.split(b"\n"):
            if not line.strip():
                continue
            try:
                results.append(json.loads(line))
            except (ValueError, RecursionError):
                raise Failed(
                    f"Expected a JSON object in line {len(results) + 1}, found something else.", self
                ) from None
            if not isinstance(results[-1], dict):
                raise Failed(
                    f"Expected a JSON object in line {len(results)}, found {type(results[-1]).__name__}.", self
                )
        return results

    def require(self, *statuses: int) -> Answer:
        """Return the answer if it has one of ``statuses`` (200 by default); otherwise raise ``Failed``."""
        if self.status not in (statuses or (200,)):
            expected = " or ".join(map(str, statuses or (200,)))
            raise Failed(f"Expected status {expected}, found {self.status}.", self)
        return self

    def conforms(self, name: str, *more: Callable[[str, str], bool], status: int = 200) -> Any:
        """Return the document of a response with ``status`` that has the form ``name`` (the arguments are those of
        ``forms.problem``); otherwise raise ``Failed``."""
        document = self.require(status).document()
        if (problem := forms.problem(document, name, *more)) is not None:
            raise Failed(problem, self)
        return document

    def shown(self, secrets: list[str]) -> str:
        """Return request and response as text for people, with secrets masked and the body shortened."""
        told = (f"{name}: {value}" for name, value in self.headers.items() if name.lower() in _TOLD_HEADERS)
        # Masked before it is cut, so that no part of a secret is left.
        body = scrub_json(self.body[:_MOST_MASKED].decode("utf-8", "replace"), secrets)
        body = f"{body[:_MOST_SHOWN]}..." if len(body) > _MOST_SHOWN else body
        lines = [f"> {scrub_json(self.asked, secrets)}", f"< {self.status}"]
        lines += (f"< {scrub_json(line, secrets)}" for line in (*told, *body.splitlines()))
        return "\n".join(map(printable, lines))


_TOLD_HEADERS = frozenset(
    (
        *("content-type", "content-length", "content-range", "delta-table-version", "delta-sharing-capabilities"),
        *("fileidhash", "etag", "accept-ranges", "www-authenticate", "location", "allow"),
    )
)


class Server:
    """Requests to the server of a profile. Responses to equal requests are kept, unless they are requested ``fresh``;
    failures are kept always.

    ``share`` limits what is looked at to one share. ``latest`` is the last response that a check has seen. ``client``
    reads what lies in stores.
    """

    def __init__(self, profile: Profile, options: ReadOptions | None = None, share: str | None = None) -> None:
        self.profile = profile
        self.latest: Answer | None = None
        self._only = share
        self.options = options or ReadOptions()
        self._transport = Transport(profile, self.options)
        self._sessions = Sessions()
        self._kept: dict[object, Answer] = {}
        self._failed: dict[object, DeltaSharingError] = {}
        self._found: dict[object, Any] = {}
        self.client = SharingClient(profile, self.options)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
        self._transport.close()
        self._sessions.close()

    def shown(self, answer: Answer) -> str:
        """Return request and response as text for people, with secrets masked."""
        return answer.shown(self._transport.secrets())

    def told(self, reason: object) -> str:
        """Return a reason, which may contain values of a response, on one line and with secrets masked."""
        return printable(" ".join(scrub_json(str(reason), self._transport.secrets()).split()))

    # --- requests ---

    def get(self, *path: str, params: Mapping[str, object] | None = None, fresh: bool = False, **more: Any) -> Answer:
        """Send a GET request to ``path``, as segments below the endpoint. ``more`` are parameters of ``ask``."""
        return self.ask("GET", path, params=params, fresh=fresh, **more)

    def post(self, *path: str, body: object = None, fresh: bool = False, **more: Any) -> Answer:
        """Send a POST request with ``body`` as JSON (an empty object by default)."""
        return self.ask("POST", path, body=msgspec.json.encode({} if body is None else body), fresh=fresh, **more)

    def ask(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        params: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        fresh: bool = False,
        anonymous: bool = False,
        catalog: bool = False,
    ) -> Answer:
        """Send a request with the credentials of the profile, or ``anonymous``, to the endpoint or to the Iceberg
        ``catalog``."""
        query = {name: str(value) for name, value in (params or {}).items()}
        asked = f"{method} {'/'.join(path)}{'?' if query else ''}{urlencode(query)}"
        key = (asked, tuple(sorted((headers or {}).items())), body, anonymous, catalog)
        if fresh or (answer := self._kept.get(key)) is None:
            request = Request(
                method=method,
                path=path,
                doing=asked,
                params=query,
                headers=headers or {},
                body=body,
                to_catalog=catalog,
            )
            if key in self._failed:
                raise self._failed[key].with_traceback(None)
            try:
                response, content = self._transport.ask(request, anonymous=anonymous)
            except DeltaSharingError as error:
                self._failed[key] = error
                raise
            told = "".join(f" {name}={value}" for name, value in (headers or {}).items() if name != "Authorization")
            if anonymous:
                told += " (with another token)" if "Authorization" in (headers or {}) else " (without a token)"
            told += f" {body.decode()}" if body is not None else ""
            answer = Answer(f"{asked}{told}", response.status, response.headers, content)
            self._kept.setdefault(key, answer)
        self.latest = answer
        return answer

    def fetch(self, url: str, method: str = "GET", **headers: str) -> Answer:
        """Request the file at a pre-signed URL, without credentials and redirects. ``_`` in the name of a header
        stands for ``-``."""
        asked = f"{method} {safe_url(url)}"
        here = self._transport.is_here
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        told = "".join(f" {name}={value}" for name, value in sent.items())

        def attempt() -> Answer:
            reach = Allowed(http=self.profile.endpoint.startswith("http:"), loopback=here).reach(url)
            limits = RequestLimits(self.options, Deadline(None), asked, None, reach=reach)
            with self._sessions.ask(method, url, limits, {"Accept-Encoding": "identity", **sent}) as response:
                body = b"".join(body_chunks(response, asked, limit=_MOST_FILE_BYTES))
                return Answer(f"{asked}{told}", response.status, response.headers, body)

        self.latest = Tries(self.options).call(attempt)
        return self.latest

    def is_absent(self, answer: Answer) -> bool:
        """Return whether an answer says that the server has no such API: its status is one of ``ABSENT``, or an error
        that the server also has for a path of no protocol (some gateways and frameworks have 403 or 500 there)."""
        if answer.status < 400 or answer.status in ABSENT:
            return answer.status in ABSENT
        unknown = self.get("conformance-no-such-api").status
        self.latest = answer
        return unknown == answer.status

    # --- what the profile may see ---

    def found(self, key: object, find: Callable[[], ObjectT]) -> ObjectT:
        """Return ``find()``, called once for each ``key``."""
        if key not in self._found:
            self._found[key] = find()
        result: ObjectT = self._found[key]
        return result

    def pages(self, *path: str, params: Mapping[str, object] | None = None) -> Iterator[Answer]:
        """Yield the pages of a listing, each with status 200."""
        token: object = None
        for _ in range(MOST_PAGES):
            wanted = {**(params or {}), **({"pageToken": token} if token else {})}
            answer = self.get(*path, params=wanted).require()
            yield answer
            document = answer.document()
            token = document.get("nextPageToken") if isinstance(document, dict) else None
            if not token:
                return
        raise Failed(f"Expected a last page after {MOST_PAGES} pages, found one more nextPageToken.", self.latest)

    def items(self, *path: str, params: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return the items of all pages of a listing; ``NotOffered`` if the server has no such API."""
        answer = self.get(*path, params=params)
        if self.is_absent(answer):
            raise NotOffered(f"{answer.asked} has status {answer.status}.")
        results: list[dict[str, Any]] = []
        for page in self.pages(*path, params=params):
            document = page.document()
            listed = document.get("items") if isinstance(document, dict) else None
            if not isinstance(listed or [], list) or not all(isinstance(item, dict) for item in listed or []):
                raise Failed("Expected objects in 'items', found something else.", page)
            results += listed or []
        return results

    def shares(self) -> list[str]:
        """Return the names of the shares that are checked, at most ``MOST_SHARES``."""
        names = self._names("shares")
        if self._only is not None:
            names = [name for name in names if name.lower() == self._only.lower()]
        if not names:
            raise NotTestable("The profile would need a share.")
        return names[:MOST_SHARES]

    def schemas(self) -> list[tuple[str, str]]:
        """Return the names of share and schema of each schema, at most ``MOST_SCHEMAS``."""
        each = ((share, name) for share in self.shares() for name in self._names("shares", share, "schemas"))
        found = list(itertools.islice(each, MOST_SCHEMAS))
        if not found:
            raise NotTestable("The share would need a schema.")
        return found

    def _names(self, *path: str) -> list[str]:
        """Return the names in a listing. That it is wrong is the finding of its own checks, so ``NotTestable``."""
        try:
            return [str(item.get("name")) for item in self.items(*path)]
        except Failed as failure:
            raise NotTestable(f"The listing {'/'.join(path)} would need to be right: {failure}") from None

    def assets(self, kind: str) -> list[dict[str, Any]]:
        """Return the listed objects of a kind ("tables", "volumes"), at most ``MOST_TABLES``; ``NotOffered`` if the
        server has no such listing, ``NotTestable`` if it is empty."""

        def find() -> list[dict[str, Any]]:
            results: list[dict[str, Any]] = []
            for share, schema in self.schemas():
                listed = self.items("shares", share, "schemas", schema, kind)
                results += ({**item, "share": share, "schema": schema} for item in listed)
                if len(results) >= MOST_TABLES:
                    break
            return results[:MOST_TABLES]

        results = self.found(("assets", kind), find)
        if not results:
            raise NotTestable(f"The share would need {kind}.")
        return results
