"""Compares reads of an Iceberg table with reads of the same files as a Delta table, and this client with pyiceberg and
Polars.

    python -m benchmarks.iceberg [--repeats N] [--latency MS ...] [--json FILE] [--save]

The table is TPC-H ``lineitem``, 6 million rows in 16 files. A single process is the S3 server, the Iceberg catalog and
the sharing server, so that all contenders get the same bytes. Each response is delayed by ``latency``. The contenders
are long-running processes, which are measured in random order.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data, tpch, turns
from benchmarks.results import save_iceberg
from mock_server.iceberg_avro import MANIFEST_LIST_SCHEMA, avro_file, manifest_schema

NAME = "lineitem-iceberg"
TABLE = "s.n.lineitem"
LOCATION = "s3://lake"
_REGION = "us-east-1"
_KEYS = {"s3.access-key-id": "benchmark", "s3.secret-access-key": "benchmark"}

# --- the table ---


def table() -> Path:
    """Return the folder of the table: files with field ids, Iceberg's metadata and a Delta log."""
    return data.made(NAME, _write) / "bench" / "default" / NAME


def _write(root: Path) -> None:
    source = tpch.line_items() / "bench" / "default" / "lineitem"
    paths = []
    for number, path in enumerate(sorted(source.glob("*.parquet"))):
        rows = pq.read_table(path).replace_schema_metadata(None)
        fields = [field.with_metadata({"PARQUET:field_id": str(at)}) for at, field in enumerate(rows.schema, 1)]
        paths.append(root / f"part-{number:05d}.parquet")
        pq.write_table(
            rows.cast(pa.schema(fields)),
            paths[-1],
            compression="snappy",
            store_decimal_as_integer=True,
            write_page_index=True,
        )
    schema = pq.read_schema(paths[0]).remove_metadata()
    counts = [pq.read_metadata(path).num_rows for path in paths]
    plain = pa.schema([field.remove_metadata() for field in schema])
    adds = [data.add(path, count, {}) for path, count in zip(paths, counts, strict=True)]
    data.commit(root, 0, [*data.head(plain), *adds])
    (root / "v1.metadata.json").write_text(json.dumps(_metadata(root, schema, paths, counts)))


def _metadata(root: Path, schema: pa.Schema, paths: list[Path], counts: list[int]) -> dict[str, Any]:
    fields = [
        {"id": at, "name": field.name, "required": False, "type": _type(field.type)}
        for at, field in enumerate(schema, 1)
    ]
    iceberg_schema = {"type": "struct", "schema-id": 0, "fields": fields}
    entries = [
        {
            "status": 1,
            "snapshot_id": 1,
            "data_file": {
                "content": 0,
                "file_path": f"{LOCATION}/{path.name}",
                "file_format": "PARQUET",
                "partition": {},
                "record_count": count,
                "file_size_in_bytes": path.stat().st_size,
            },
        }
        for path, count in zip(paths, counts, strict=True)
    ]
    properties = {
        "schema": json.dumps(iceberg_schema),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }
    manifest = avro_file(manifest_schema(), entries, properties)
    (root / "m0.avro").write_bytes(manifest)
    listed = {
        "manifest_path": f"{LOCATION}/m0.avro",
        "manifest_length": len(manifest),
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": 1,
        "min_sequence_number": 1,
        "added_snapshot_id": 1,
        "added_files_count": len(paths),
        "existing_files_count": 0,
        "deleted_files_count": 0,
        "added_rows_count": sum(counts),
        "existing_rows_count": 0,
        "deleted_rows_count": 0,
    }
    (root / "list.avro").write_bytes(avro_file(MANIFEST_LIST_SCHEMA, [listed]))
    moment = 1_700_000_000_000
    return {
        "format-version": 2,
        "table-uuid": "7d0a4c0c-55a2-4bb4-9e0e-6f2b0e3c9a10",
        "location": LOCATION,
        "last-sequence-number": 1,
        "last-updated-ms": moment,
        "last-column-id": len(fields),
        "schemas": [iceberg_schema],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {},
        "current-snapshot-id": 1,
        "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
        "snapshots": [
            {
                "snapshot-id": 1,
                "sequence-number": 1,
                "timestamp-ms": moment,
                "manifest-list": f"{LOCATION}/list.avro",
                "summary": {"operation": "append"},
                "schema-id": 0,
            }
        ],
        "snapshot-log": [{"snapshot-id": 1, "timestamp-ms": moment}],
    }


def _type(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return {pa.int64(): "long", pa.int32(): "int", pa.date32(): "date", pa.string(): "string"}[kind]


# --- the server ---


@contextmanager
def serving(root: Path, latency: float) -> Iterator[dict[str, Any]]:
    """Serve the table, and yield the profile of its server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(root, latency))
    server.request_queue_size = 128
    address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {
            "shareCredentialsVersion": 1,
            "endpoint": f"{address}/sharing",
            "icebergEndpoint": f"{address}/iceberg",
            "bearerToken": "benchmark",
        }
    finally:
        server.shutdown()
        server.server_close()


def _handler(root: Path, latency: float) -> type[BaseHTTPRequestHandler]:
    metadata = json.loads((root / "v1.metadata.json").read_text())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # With Nagle's algorithm, each response would wait for the acknowledgement of its headers.
        disable_nagle_algorithm = True
        wbufsize = 1 << 16

        def do_GET(self) -> None:
            time.sleep(latency)
            path = unquote(self.path.partition("?")[0])
            host = f"http://{self.headers['Host']}"
            if path.startswith("/lake/"):
                self._file(root / path.removeprefix("/lake/"))
            elif path == "/iceberg/v1/config":
                self._json({"defaults": {}, "overrides": {"prefix": "shares/s"}})
            elif path.startswith("/iceberg/"):
                config = {**_KEYS, "s3.endpoint": host, "s3.path-style-access": "true", "client.region": _REGION}
                location = f"{LOCATION}/v1.metadata.json"
                self._json({"metadata-location": location, "metadata": metadata, "config": config})
            else:
                lines = "\n".join(map(json.dumps, _lines(root, host)))
                self._answer(200, lines.encode(), {"Delta-Table-Version": "0", "Content-Type": "application/x-ndjson"})

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.do_GET()

        def _json(self, content: Any) -> None:
            self._answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

        def _file(self, path: Path) -> None:
            if not path.is_file():
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", {})
                return
            size = path.stat().st_size
            match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
            start, stop, status, headers = 0, size, 200, {}
            if match is not None:
                first, last = match.groups()
                start = int(first) if first else max(0, size - int(last))
                stop = min(int(last) + 1, size) if first and last else size
                status, headers = 206, {"Content-Range": f"bytes {start}-{stop - 1}/{size}"}
            with path.open("rb") as file:
                self._head(status, stop - start, {**headers, "ETag": '"1"', "Accept-Ranges": "bytes"})
                if self.command != "HEAD":
                    self.wfile.flush()
                    self.connection.sendfile(file, start, stop - start)

        def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self._head(status, len(content), headers)
            if self.command != "HEAD":
                self.wfile.write(content)

        def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.send_header("Last-Modified", "Mon, 02 Nov 2026 00:00:00 GMT")
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler


def _lines(root: Path, host: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a query's response in the parquet format."""
    for line in (root / "_delta_log" / f"{0:020d}.json").read_text().splitlines():
        action = json.loads(line)
        if "metaData" in action:
            yield {"protocol": {"minReaderVersion": 1}}
            yield action
        elif "add" in action:
            add = action["add"]
            yield {
                "file": {
                    "url": f"{host}/lake/{add['path']}?X-Amz-Signature=benchmark",
                    "id": add["path"],
                    "partitionValues": {},
                    "size": add["size"],
                    "stats": add["stats"],
                }
            }


# --- the contenders ---


def _ours(profile: dict[str, Any], table_format: str) -> int:
    import delta_sharing_client as ds

    return ds.SharingClient(profile).table(TABLE, format=table_format).scan().to_arrow().num_rows


def _loaded(profile: dict[str, Any]) -> Any:
    from pyiceberg.catalog.rest import RestCatalog

    catalog = RestCatalog("benchmark", uri=profile["icebergEndpoint"], token=profile["bearerToken"], warehouse="s")
    return catalog.load_table("n.lineitem")


def _polars(profile: dict[str, Any]) -> int:
    import polars as pl

    # Polars ignores the store in the catalog's response.
    options = {
        "aws_access_key_id": "benchmark",
        "aws_secret_access_key": "benchmark",
        "aws_region": _REGION,
        "aws_endpoint_url": profile["endpoint"].removesuffix("/sharing"),
        "aws_allow_http": "true",
    }
    return len(pl.scan_iceberg(_loaded(profile), storage_options=options).collect())


CONTENDERS: dict[str, Callable[[dict[str, Any]], int]] = {
    "ours": lambda profile: _ours(profile, "iceberg"),
    "ours-delta": lambda profile: _ours(profile, "delta"),
    "pyiceberg": lambda profile: _loaded(profile).scan().to_arrow().num_rows,
    "polars": _polars,
}


def work(contender: str) -> None:
    """For each profile on standard input, write seconds, processor seconds and the number of rows."""
    import polars  # noqa: F401
    import pyiceberg.io.pyarrow  # noqa: F401

    for line in sys.stdin:
        profile = json.loads(line)
        began, used = time.perf_counter(), time.process_time()
        result = CONTENDERS[contender](profile)
        measured = {"seconds": time.perf_counter() - began, "processor": time.process_time() - used, "result": result}
        sys.stdout.write(json.dumps(measured) + "\n")
        sys.stdout.flush()


def measure(latency: int, repeats: int) -> dict[str, Any]:
    """Return and print the medians and ratios of all contenders; ``latency`` is in milliseconds."""
    environment = {**os.environ, "POLARS_ICEBERG_PLANNER": "pyiceberg"}
    with serving(table(), latency / 1000) as profile:
        workers = {
            name: subprocess.Popen(
                [sys.executable, "-m", "benchmarks.iceberg", "--work", name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for name in CONTENDERS
        }
        return turns.take_turns(workers, profile, repeats, (f"{latency}ms", "lineitem", "iceberg-arrow"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.iceberg", description=__doc__)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--latency", type=int, nargs="*", default=[0, 20, 50], help="milliseconds")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--save", action="store_true", help="store the figures in iceberg.json and RESULTS.md")
    parser.add_argument("--work", choices=CONTENDERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        work(given.work)
        return
    results = [measure(latency, given.repeats) for latency in given.latency]
    if given.save:
        save_iceberg(results)
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
