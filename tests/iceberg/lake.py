"""The tables of ``tests/tables_iceberg`` at ``s3://lake/<name>/``, read from their local directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.fetch.place import DataRequest, Take
from delta_sharing_client.iceberg.metadata import TableMetadata
from delta_sharing_client.iceberg.table_scan import OpenedTable
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.plan.tasks import ScanPlan
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.sources.iceberg_source import files_of
from delta_sharing_client.sources.planning import plan_files
from delta_sharing_client.storage.local import LocalPlace
from delta_sharing_client.storage.table_files import TableFiles

FOLDER = Path(__file__).parent.parent / "tables_iceberg"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/expected.json"))


class Lake(LocalPlace):
    """The bucket ``lake``, read from the local directory, in which each table has its files in a subdirectory
    ``table``."""

    async def get(self, request: DataRequest, take: Take) -> None:
        await super().get(request._replace(address=_inside(request.address)), take)


def _inside(path: str) -> str:
    name, _, rest = path.partition("/")
    return f"{name}/table/{rest}"


def metadata_of(name: str) -> bytes:
    location = expected(name)["metadata"].removeprefix("s3://lake/")
    return (FOLDER / _inside(location)).read_bytes()


def load(name: str, options: ReadOptions | None = None) -> OpenedTable:
    metadata = msgspec.json.decode(metadata_of(name), type=TableMetadata)
    options = options or ReadOptions()
    files = TableFiles(name, options, [metadata.location], lambda _: ("s3://lake", Lake(FOLDER, options)))
    return OpenedTable(name, metadata, files)


def read(name: str, request: ScanRequest | None = None, options: ReadOptions | None = None) -> pa.Table:
    options = options or ReadOptions()
    plan = planned(load(name, options), request or ScanRequest(), options)
    return pa.Table.from_batches(Batches(plan), plan.output_schema)


def planned(table: OpenedTable, request: ScanRequest, options: ReadOptions) -> ScanPlan:
    return plan_files(files_of(table, request), request, options).whole()


def expected(name: str) -> Any:
    return json.loads((FOLDER / name / "expected.json").read_text(encoding="utf-8"))


def rows(name: str, which: str) -> pa.Table:
    """Return rows that Spark read; ``which`` is ``current``, the index of a snapshot, ``branch-NAME`` or
    ``tag-NAME``."""
    return pq.read_table(FOLDER / name / f"rows-{which}.parquet")


def snapshots(name: str) -> Iterator[tuple[int, Any]]:
    yield from enumerate(expected(name)["snapshots"])
