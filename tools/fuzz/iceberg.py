"""Damage the metadata of Iceberg tables: a read returns rows or raises a DeltaSharingError that names the file.

    python -m tools.fuzz.iceberg --seconds 60             # all kinds of damage
    python -m tools.fuzz.iceberg --kind block --seed 7    # one kind, repeatable

Tables of Iceberg's Spark runtime are read with one file damaged: manifest lists and manifests as bytes, as the
decompressed bytes of their blocks (with lengths and compression corrected), and truncated; table metadata and name
mappings as JSON values. A truncated file never gives rows. The exit code is 1 after a failure.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sys
import time
import tracemalloc
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from delta_sharing_client.errors import DataError, DeltaSharingError
from delta_sharing_client.fetch.place import DataRequest, Span, Take, Version
from delta_sharing_client.iceberg.metadata import LoadedTable
from delta_sharing_client.iceberg.table_scan import OpenedTable
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.protocol.deviations import MALFORMED
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.storage.table_files import TableFiles
from mock_server.iceberg_avro import avro_block
from tests.iceberg.lake import FOLDER, Lake, expected, metadata_of, planned
from tests.places import Sent
from tests.time_limits import Stopwatch
from tools.fuzz.codecs import mutate
from tools.fuzz.wire import Failed, _dumps, damage_value

# Tables with each kind of deletes, a table of format version 1, one with a name mapping, and one with row lineage.
TABLES = {
    "deletion-vectors": "id > 10 AND v <> 'u'",
    "position-deletes-partitioned": "p = 1 AND id < 30",
    "equality-deletes": "id IS NOT NULL",
    "version-1": "part = 'x'",
    "evolved-partitions": "id > 3",
    "name-mapping": "s.xx < 6 OR b IS NULL",
    "lineage": "id > 3",
}
SLOW = 4.0
MOST_MEMORY = 200 << 20
OPTIONS = ReadOptions(max_attempts=1, max_retry_seconds=0.1)


class _Damaged(Lake):
    """The bucket ``lake`` in which one file has different bytes."""

    def __init__(self, path: str, data: bytes) -> None:
        super().__init__(FOLDER, ReadOptions())
        self._path = path
        self._data = data
        self.asked: set[str] = set()

    async def get(self, request: DataRequest, take: Take) -> None:
        self.asked.add(request.address)
        if request.address != self._path:
            await super().get(request, take)
            return
        size = len(self._data)
        await take(Sent(Span(0, size, size), self._data, Version('"1"', "", size), piece=1 << 20))


def read(name: str, metadata: bytes, place: Lake) -> int:
    """Read a table with its filter in ``TABLES`` and without a filter; return the number of rows without a filter."""
    loaded = msgspec.json.decode(b'{"metadata": ' + metadata + b"}", type=LoadedTable).metadata
    files = TableFiles(name, OPTIONS, [expected(name)["location"]], lambda _: ("s3://lake", place))
    table = OpenedTable(name, loaded, files)
    lineage = name == "lineage"
    result = 0
    for request in (ScanRequest(filter=parse_filter(TABLES[name])), ScanRequest(row_lineage=lineage)):
        plan = planned(table, request, OPTIONS)
        result = sum(batch.num_rows for batch in Batches(plan))
    return result


# --- damage ---


@functools.cache
def _avro_files(name: str) -> list[Path]:
    """Return the paths of the manifest list and of the manifests that a read requests."""
    place = _Damaged("", b"")
    read(name, metadata_of(name), place)
    return sorted(
        FOLDER / path.replace("/metadata/", "/table/metadata/") for path in place.asked if "/metadata/" in path
    )


def _parts(data: bytes) -> tuple[bytes, int, bytes]:
    """Return the parts of an Avro file with one deflated block: the header with the sync marker, the number of records
    in the block, and the decompressed block."""
    at = 4
    size, at = _long(data, at)
    while size:
        for _ in range(2 * size):
            length, at = _long(data, at)
            at += length
        size, at = _long(data, at)
    header = data[: at + 16]
    count, at = _long(data, at + 16)
    length, at = _long(data, at)
    return header, count, zlib.decompress(data[at : at + length], -15)


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _block(data: bytes, others: list[bytes], random_: random.Random) -> bytes:
    header, count, plain = _parts(data)
    if random_.random() < 0.2:
        count = random_.choice((0, count - 1, count + 1, 1 << 40, -1))
    block = avro_block(count, mutate(plain, [_parts(other)[2] for other in others], random_), "deflate")
    return header + block[:-16] + header[-16:]


def _cut(data: bytes, others: list[bytes], random_: random.Random) -> bytes:
    return data[: random_.randrange(len(data))]


def _header(data: bytes, others: list[bytes], random_: random.Random) -> bytes:
    """Damage the schema of an Avro file as a JSON value."""
    start = data.index(b"avro.schema") + len(b"avro.schema")
    length, at = _long(data, start)
    text = _dumps(damage_value(json.loads(data[at : at + length]), random_)).encode("utf-8", "surrogatepass")
    return data[:start] + avro_block(len(text), b"", "null")[:-17] + text + data[at + length :]


AVRO = {"bytes": mutate, "block": _block, "cut": _cut, "header": _header}
KINDS = (*AVRO, "metadata", "mapping")


def damaged(kind: str, random_: random.Random) -> tuple[str, bytes, str, bytes]:
    """Return the name and the metadata of a table, the path of the damaged file, and its new content."""
    name = random_.choice(list(TABLES))
    metadata = metadata_of(name)
    if kind == "metadata":
        return name, _json(damage_value(json.loads(metadata), random_)), "", b""
    if kind == "mapping":
        name = "name-mapping"
        document = json.loads(metadata_of(name))
        mapping = json.loads(document["properties"]["schema.name-mapping.default"])
        document["properties"]["schema.name-mapping.default"] = _json(damage_value(mapping, random_)).decode()
        return name, json.dumps(document).encode(), "", b""
    others = [path.read_bytes() for path in _avro_files(name)]
    path = random_.choice(_avro_files(name))
    return name, metadata, f"{name}/metadata/{path.name}", AVRO[kind](path.read_bytes(), others, random_)


def _json(value: Any) -> bytes:
    return _dumps(value).encode("utf-8", "replace")


def run_one(kind: str, seed: int) -> str:
    """Read one damaged table; return ``rows``, ``refused`` or ``malformed`` (by the catalog). Raises ``Failed``."""
    again = f"run again: python -m tools.fuzz.iceberg --kind {kind} --one {seed}"
    name, metadata, path, data = damaged(kind, random.Random(seed))
    clock = Stopwatch(time.process_time)
    try:
        rows = read(name, metadata, _Damaged(path, data))
        outcome = "rows"
        if kind == "cut":
            raise Failed(f"{name}: a file that is cut off gave {rows} rows\n{again}")
    except DeltaSharingError as error:
        outcome = "refused"
        if path and isinstance(error, DataError) and not error.file_id:
            raise Failed(f"no file is named: {error}\n{again}") from error
    except MALFORMED:
        outcome = "malformed"
    except Failed:
        raise
    except Exception as error:
        raise Failed(f"{type(error).__name__}: {str(error)[:500]}\n{again}") from error
    if not clock.within(SLOW):
        raise Failed(f"it took {clock.took:.1f} seconds\n{again}")
    return outcome


def fuzz(kind: str, *, seed: int, seconds: float | None = None, inputs: int | None = None) -> Counter[str]:
    """Read damaged tables for a time or a number of inputs; return how often each result occurred. Raises
    ``Failed``."""
    counts: Counter[str] = Counter()
    # Imports are not part of the measured time.
    read("version-1", metadata_of("version-1"), Lake(FOLDER, ReadOptions()))
    stop = None if seconds is None else time.monotonic() + seconds
    tracemalloc.start()
    while (inputs is None or counts.total() < inputs) and (stop is None or time.monotonic() < stop):
        one = seed + counts.total()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        counts[run_one(kind, one)] += 1
        _, peak = tracemalloc.get_traced_memory()
        if peak - before > MOST_MEMORY:
            raise Failed(f"it took {peak >> 20} MiB\nrun again: python -m tools.fuzz.iceberg --kind {kind} --one {one}")
    tracemalloc.stop()
    return counts


def main(arguments: list[str] | None = None) -> int:
    """Run the program that the module docstring describes."""
    parser = argparse.ArgumentParser(description="Damage the metadata of Iceberg tables.")
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--one", type=int, help="the seed of one input, as a failure prints it")
    options = parser.parse_args(arguments)
    kinds = options.kind or list(KINDS)
    write = sys.stdout.write
    if options.one is not None:
        write(f"{run_one(kinds[0], options.one)}\n")
        return 0
    write(f"seed {options.seed}\n")
    try:
        for kind in kinds:
            write(f"{kind}: {dict(fuzz(kind, seed=options.seed, seconds=options.seconds / len(kinds)))}\n")
    except Failed as failed:
        write(f"FAILED: {failed}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
