"""A store that speaks S3, on this machine: moto in this process."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

KEYS = {"aws_access_key_id": "planted-key", "aws_secret_access_key": "planted-secret"}
REGION = "us-east-1"


@dataclasses.dataclass(frozen=True)
class Bucket:
    """An empty bucket at first: its name, the endpoint of its store, and boto3's object for it."""

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
def s3_bucket(name: str = "assets") -> Iterator[Bucket]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        resource = boto3.resource("s3", endpoint_url=endpoint, region_name=REGION, **KEYS)
        yield Bucket(name, endpoint, resource.create_bucket(Bucket=name))
    finally:
        server.stop()
