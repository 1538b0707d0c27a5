"""Run a local S3 server, moto, in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import re
import threading
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
import requests
from moto.server import ThreadedMotoServer

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


class Guard:
    """A proxy of a bucket that checks access keys: each key may list and read below its prefixes, and may expire after
    some requests.

    ``requests`` are the keys and paths of received requests; ``keys`` are access key ids and path prefixes, such as
    ``{"planted-id": ["lake/t/"]}``. After ``ends[key]`` requests, a key is refused as expired.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.keys: dict[str, list[str]] = {}
        self.ends: dict[str, int] = {}
        self.requests: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _guarded(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

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


def _guarded(guard: Guard) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            path = unquote(parts.path).lstrip("/")
            prefix = parse_qs(parts.query).get("prefix")
            refusal = guard.refusal(self.headers, path if prefix is None else f"{path}/{prefix[0]}")
            if refusal is None and prefix is not None:
                self._answer(200, guard.listing(parts.query))
                return
            data = guard.content(path) if refusal is None else None
            if data is None:
                code = refusal or "NoSuchKey"
                status = {"NoSuchKey": 404, "ExpiredToken": 400}.get(code, 403)
                self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())
                return
            match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
            if match is None:
                self._answer(200, data)
                return
            first, last = match.groups()
            start = int(first) if first else max(0, len(data) - int(last))
            stop = min(int(last) + 1, len(data)) if first and last else len(data)
            self._answer(206, data[start:stop], data, **{"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"})

        do_HEAD = do_GET

        def _answer(self, status: int, data: bytes, whole: bytes | None = None, **headers: str) -> None:
            self.send_response(status)
            etag = f'"{hashlib.md5(data if whole is None else whole).hexdigest()}"'
            for name, value in {"Content-Length": str(len(data)), "ETag": etag, **headers}.items():
                self.send_header(name, value)
            self.send_header("Last-Modified", "Mon, 02 Nov 2026 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler
