"""Run a local S3 server, moto, in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from email.message import Message
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
import requests
from moto.server import ThreadedMotoServer

from tests.http_server import Exchange, HttpServer

KEYS = {"aws_access_key_id": "planted-key", "aws_secret_access_key": "planted-secret"}
REGION = "us-east-1"
_NUMBERS = itertools.count()


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A bucket that is empty at first: its name, the endpoint of its store, and its boto3 object."""

    name: str
    endpoint: str
    resource: Any

    @property
    def storage_options(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "region": REGION}

    def put(self, key: str, data: bytes = b"") -> None:
        self.resource.put_object(Key=key, Body=data)

    def clear(self) -> None:
        self.resource.objects.all().delete()


@contextlib.contextmanager
def s3_bucket(name: str | None = None) -> Iterator[Bucket]:
    name = name or f"assets-{next(_NUMBERS)}"
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        resource = boto3.resource("s3", endpoint_url=endpoint, region_name=REGION, **KEYS)
        bucket = Bucket(name, endpoint, resource.create_bucket(Bucket=name))
        try:
            yield bucket
        finally:
            bucket.clear()  # all servers of moto in a process share their objects
    finally:
        server.stop()


class Guard(HttpServer):
    """A proxy of a bucket that checks access keys: each key may list and read below its prefixes, and may expire after
    some requests.

    ``requests`` are the keys and paths of received requests; ``keys`` are access key ids and path prefixes, such as
    ``{"planted-id": ["lake/t/"]}``. After ``ends[key]`` requests, a key is refused as expired.
    """

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(self._answer)
        self.endpoint = self.url
        self._bucket = bucket
        self.keys: dict[str, list[str]] = {}
        self.ends: dict[str, int] = {}
        self.requests: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def refusal(self, headers: Message, path: str) -> str | None:
        """Return the error code for a request, ``None`` if it is allowed."""
        match = re.search(r"Credential=([^/]+)/", headers.get("Authorization") or "")
        key = match[1] if match else ""
        with self._lock:
            self.requests.append((key, path))
            used = sum(one == key for one, _ in self.requests)
        if used > self.ends.get(key, used):
            return "ExpiredToken"
        return None if any(map(path.startswith, self.keys.get(key, ()))) else "AccessDenied"

    def listing(self, query: str) -> bytes:
        """Return the bucket's response to a listing request."""
        return requests.get(f"{self._bucket.endpoint}/{self._bucket.name}?{query}", timeout=60).content

    def content(self, path: str) -> bytes | None:
        name, _, key = path.partition("/")
        stored = self._bucket.resource
        if name != self._bucket.name or key not in {one.key for one in stored.objects.filter(Prefix=key)}:
            return None
        return bytes(stored.Object(key).get()["Body"].read())

    def _answer(self, exchange: Exchange) -> None:
        parts = urlsplit(exchange.path)
        path = unquote(parts.path).lstrip("/")
        prefix = parse_qs(parts.query).get("prefix")
        refusal = self.refusal(exchange.headers, path if prefix is None else f"{path}/{prefix[0]}")
        if refusal is None and prefix is not None:
            return _send(exchange, 200, self.listing(parts.query))
        data = self.content(path) if refusal is None else None
        if data is None:
            code = refusal or "NoSuchKey"
            status = {"NoSuchKey": 404, "ExpiredToken": 400}.get(code, 403)
            return _send(exchange, status, f"<Error><Code>{code}</Code></Error>".encode())
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", exchange.headers.get("Range") or "")
        if match is None:
            return _send(exchange, 200, data)
        first, last = match.groups()
        start = int(first) if first else max(0, len(data) - int(last))
        stop = min(int(last) + 1, len(data)) if first and last else len(data)
        return _send(exchange, 206, data[start:stop], data, {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"})


def _send(
    exchange: Exchange, status: int, data: bytes, whole: bytes | None = None, headers: Mapping[str, str] | None = None
) -> None:
    etag = f'"{hashlib.md5(data if whole is None else whole).hexdigest()}"'
    common = {"ETag": etag, "Last-Modified": "Mon, 02 Nov 2026 00:00:00 GMT"}
    exchange.reply(status, data, {**common, **(headers or {})})
