"""The tables of ``tests/tables_iceberg``, written by Iceberg's Spark runtime, and the rows that Spark reads."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.redact import Secret
from mock_server.s3 import S3Settings
from tests.s3 import KEYS, REGION, Bucket

FOLDER = pathlib.Path(__file__).resolve().parent / "tables_iceberg"
BUCKET = "lake"
"""The bucket of the addresses in the tables' metadata."""


@dataclasses.dataclass(frozen=True)
class IcebergTable:
    """A table: the directory of its files, and the contents of its ``expected.json``."""

    name: str

    @property
    def folder(self) -> pathlib.Path:
        return FOLDER / self.name / "table"

    @property
    def location(self) -> str:
        return f"s3://{BUCKET}/{self.name}"

    @functools.cached_property
    def expected(self) -> Mapping[str, Any]:
        content: Mapping[str, Any] = json.loads((FOLDER / self.name / "expected.json").read_text(encoding="utf-8"))
        return content

    @functools.cached_property
    def metadata(self) -> Mapping[str, Any]:
        """The path of the current metadata file."""
        path = self.folder / self.expected["metadata"].removeprefix(f"{self.location}/")
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content

    def rows(self, which: int | str = "current") -> pa.Table:
        """Return the expected rows of a snapshot: by its index in ``expected``, or of "current", "branch-x" or
        "tag-x"."""
        return pq.read_table(FOLDER / self.name / f"rows-{which}.parquet")


def tables() -> list[IcebergTable]:
    """Return every table of the directory, sorted by name."""
    return [IcebergTable(path.parent.name) for path in sorted(FOLDER.glob("*/expected.json"))]


def upload(tables: Iterable[IcebergTable], bucket: Bucket) -> None:
    """Upload the files of tables to a bucket named ``BUCKET``, at the locations in their metadata."""
    for table in tables:
        for path in table.folder.rglob("*"):
            if path.is_file():
                bucket.put(f"{table.name}/{path.relative_to(table.folder).as_posix()}", path.read_bytes())


def store(bucket: Bucket) -> S3Settings:
    """Return the S3 settings with which a server finds the bucket."""
    return S3Settings(
        endpoint=bucket.endpoint,
        region=REGION,
        access_key_id=KEYS["aws_access_key_id"],
        secret_access_key=Secret(KEYS["aws_secret_access_key"]),
    )
