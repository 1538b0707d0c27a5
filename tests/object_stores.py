"""Simulated object stores, which speak the protocols of S3, Azure and Google Cloud Storage: one object, one page.

They follow the documents of the stores where these matter for a client: codes of refusals, headers, marks. They are
written without the client's code, which is tested against them.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

S3, AZURE, GOOGLE = "s3", "azure", "google"
STORES = (S3, AZURE, GOOGLE)
URLS = "urls"
"""The storage behind URLs that a sharing server signs; it responds like S3."""
DIRECTORY = "directory"
"""A directory of this machine, which has no responses."""
PLACES = (*STORES, URLS, DIRECTORY)
TIME = "Mon, 02 Nov 2026 03:04:05 GMT"
_ISO_TIME = "2026-11-02T03:04:05.000Z"


@dataclasses.dataclass(frozen=True)
class Request:
    """A request as it arrived: ``path`` and ``query`` are encoded; the names of headers are in lower case.

    ``is_changed`` means that a proxy has changed the query, so that a signature of it is no longer valid.
    """

    path: str
    query: str
    headers: Mapping[str, str]
    is_changed: bool = False

    @property
    def parameters(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.query, keep_blank_values=True).items()}

    @property
    def is_listing(self) -> bool:
        return self.parameters.get("comp") == "list" or "list-type" in self.parameters


@dataclasses.dataclass
class Answer:
    """A whole response. Headers may occur several times."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""

    def get(self, name: str) -> str | None:
        return next((value for one, value in self.headers if one.lower() == name.lower()), None)

    def replace(self, name: str, value: str | None) -> None:
        """Set or remove a header."""
        self.headers = [(one, old) for one, old in self.headers if one.lower() != name.lower()]
        if value is not None:
            self.headers.append((name, value))


class Entry(NamedTuple):
    """A name in a listing, and its content; a folder has none."""

    name: str
    content: bytes | None


class SimulatedStore:
    """A bucket or container. ``objects`` are its contents by key; ``page`` is the number of names in a listing page.

    Credentials (a session token, a shared access signature, or a bearer token) whose text contains a word of
    ``expired`` are refused, as each store refuses them. ``requests`` are the requests with valid credentials.
    """

    def __init__(self, kind: str, *, page: int = 1000) -> None:
        self.kind, self.page = kind, page
        self.objects: dict[str, bytes] = {}
        self.expired: set[str] = set()
        self.requests: list[Request] = []
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """Return the response to a GET."""
        given = credential(self.kind, request)
        if not given:
            return refusal(self.kind, 403, {AZURE: "NoAuthenticationInformation"}.get(self.kind, "AccessDenied"))
        if any(word in given for word in self.expired):
            return expired(self.kind)
        with self._lock:
            self.requests.append(request)
        if request.is_listing:
            return self._list(request.parameters)
        key = unquote(request.path).split("/", 3 if self.kind == AZURE else 2)[-1]
        content = self.objects.get(key)
        if content is None:
            return refusal(self.kind, 404, {AZURE: "BlobNotFound"}.get(self.kind, "NoSuchKey"))
        return _object(self.kind, request.headers, content)

    def _list(self, asked: Mapping[str, str]) -> Answer:
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        entries: dict[str, bytes | None] = {}
        for key in sorted(self.objects, key=str.encode):
            if key.startswith(prefix):
                name, slash, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                if slash:
                    entries[prefix + name + slash] = None
                else:
                    entries[key] = self.objects[key]
        mark = asked.get("marker" if self.kind == AZURE else "continuation-token", "")
        after = base64.b64decode(mark).decode()
        left = [Entry(*one) for one in entries.items() if one[0].encode() > after.encode()]
        page, rest = left[: self.page], left[self.page :]
        following = base64.b64encode(page[-1].name.encode()).decode() if rest else None
        return listing(self.kind, page, following)


def credential(kind: str, request: Request) -> str:
    """Return the credential that a request carries; empty if there is none."""
    authorization = request.headers.get("authorization", "")
    if kind in (AZURE, URLS):
        return request.parameters.get("sig", "")
    if kind == GOOGLE:
        return authorization.removeprefix("Bearer ") if authorization.startswith("Bearer ") else ""
    if "X-Amz-Signature" in request.parameters:
        # A pre-signed URL.
        return request.parameters["X-Amz-Credential"]
    match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/[^/]+/s3/aws4_request, .*", authorization)
    return "" if match is None else f"{match[1]} {request.headers.get('x-amz-security-token', '')}"


def refusal(kind: str, status: int, code: str) -> Answer:
    """Return an error as the store writes it."""
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>No.</Message></Error>'.encode()
    headers = [("Content-Type", "application/xml"), *([("x-ms-error-code", code)] if kind == AZURE else [])]
    return Answer(status, headers, body)


def expired(kind: str) -> Answer:
    """Return the refusal of credentials that have expired: each store has its own status and code."""
    refusals = {S3: (400, "ExpiredToken"), URLS: (403, "AccessDenied"), AZURE: (403, "AuthenticationFailed")}
    return refusal(kind, *refusals.get(kind, (401, "InvalidSecurity")))


def _object(kind: str, asked: Mapping[str, str], content: bytes) -> Answer:
    headers = [("Last-Modified", TIME), ("Accept-Ranges", "bytes"), ("Content-Type", "application/octet-stream")]
    tag = etag(kind, content)
    headers.append(("ETag", tag))
    condition = asked.get("if-match")
    if condition not in (None, tag):
        return refusal(kind, 412, {AZURE: "ConditionNotMet"}.get(kind, "PreconditionFailed"))
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", asked.get("range", ""))
    md5 = base64.b64encode(hashlib.md5(content).digest()).decode()
    if kind == GOOGLE:
        headers += [("x-goog-hash", "crc32c=AAAAAA=="), ("x-goog-hash", f"md5={md5}")]
    if kind == AZURE:
        headers.append(("Content-MD5" if match is None else "x-ms-blob-content-md5", md5))
    if match is None:
        return Answer(200, headers, content)
    first, last = match.groups()
    start = int(first) if first else max(0, len(content) - int(last))
    stop = min(int(last) + 1, len(content)) if first and last else len(content)
    if start >= len(content):
        return refusal(kind, 416, {AZURE: "InvalidRange"}.get(kind, "InvalidRange"))
    headers.append(("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}"))
    return Answer(206, headers, content[start:stop])


def etag(kind: str, content: bytes) -> str:
    """Return the ETag of an object, which is its MD5 only in S3 and Google's store."""
    digest = hashlib.md5(content).hexdigest()
    return f'"0x8D{digest[:12].upper()}"' if kind == AZURE else f'"{digest}"'


def listing(kind: str, entries: Sequence[Entry], mark: str | None) -> Answer:
    """Return a page of a listing; ``mark`` requests the next one."""
    if kind == AZURE:
        blobs = "".join(_blob(*one) for one in entries)
        body = f"<Blobs>{blobs}</Blobs><NextMarker>{escape(mark or '')}</NextMarker>"
        document = f"\ufeff<?xml version='1.0' encoding='utf-8'?><EnumerationResults>{body}</EnumerationResults>"
    else:
        head = "".join(_s3_entry(*one) for one in entries)
        more = f"<NextContinuationToken>{escape(mark)}</NextContinuationToken>" if mark else ""
        body = f"<IsTruncated>{'true' if mark else 'false'}</IsTruncated>{more}{head}"
        document = f"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult>{body}</ListBucketResult>"
    return Answer(200, [("Content-Type", "application/xml")], document.encode())


def _s3_entry(name: str, content: bytes | None) -> str:
    if content is None:
        return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
    facts = (
        f"<LastModified>{_ISO_TIME}</LastModified><ETag>{escape(etag(S3, content))}</ETag><Size>{len(content)}</Size>"
    )
    return f"<Contents><Key>{escape(name)}</Key>{facts}</Contents>"


def _blob(name: str, content: bytes | None) -> str:
    if content is None:
        return f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
    md5 = base64.b64encode(hashlib.md5(content).digest()).decode()
    facts = f"<Last-Modified>{TIME}</Last-Modified><Etag>{etag(AZURE, content).strip(chr(34))}</Etag>"
    facts += f"<Content-Length>{len(content)}</Content-Length><Content-MD5>{md5}</Content-MD5>"
    facts += "<Content-Type>application/octet-stream</Content-Type><BlobType>BlockBlob</BlobType>"
    return f"<Blob><Name>{escape(name)}</Name><Properties>{facts}</Properties></Blob>"
