"""The tables of the cases, which are created once from a fixed seed and stored in ``benchmarks/.data``."""

from __future__ import annotations

import json
import os
import pathlib
import uuid
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta import deletion_vectors, schema

ROOT = pathlib.Path(__file__).parent / ".data"
SEED = 20261120
_MILLIS = 1_700_000_000_000
_DAY = 86_400_000_000


def wide_batch(rows: int, first_id: int, seed: int) -> pa.Table:
    """Return ``rows`` rows of 16 columns (about 120 bytes per row in Parquet); ``id`` ascends from ``first_id``."""
    random = np.random.default_rng([SEED, seed])
    columns: dict[str, pa.Array] = {"id": pa.array(np.arange(first_id, first_id + rows))}
    for position in range(5):
        columns[f"long_{position}"] = pa.array(random.integers(-(2**62), 2**62, rows))
    for position in range(6):
        columns[f"double_{position}"] = pa.array(random.standard_normal(rows))
    columns["day"] = pa.array((random.integers(0, 20_000, rows)).astype("int32"), pa.date32())
    columns["at"] = pa.array(random.integers(0, 20_000 * _DAY, rows), pa.timestamp("us", tz="UTC"))
    words = np.array([f"word-{number:05d}" for number in range(20_000)])
    columns["word"] = pa.array(words[random.integers(0, len(words), rows)])
    columns["city"] = pa.array(np.array(["Berlin", "Lima", "Osaka", "Perth"])[random.integers(0, 4, rows)])
    return pa.table(columns)


def wide_table(
    name: str,
    files: int,
    rows: int,
    row_groups: int = 1,
    distinct: int | None = None,
    page_index: bool = False,
    checksums: bool = False,
) -> pathlib.Path:
    """Return a table of ``files`` files with ``rows`` rows each; after ``distinct`` files, the contents repeat.

    With a ``page_index``, pages have up to 20,000 rows, as when Spark writes them; with ``checksums``, they have one.
    """
    paging = {"write_page_index": True, "data_page_size": 8 * 20_000} if page_index else {}
    paging |= {"write_page_checksum": True} if checksums else {}

    def write(root: pathlib.Path) -> None:
        adds = []
        for number in range(files):
            path = root / f"part-{number:05d}.parquet"
            source = number % (distinct or files)
            if source == number:
                batch = wide_batch(rows, number * rows, number)
                pq.write_table(batch, path, row_group_size=-(-rows // row_groups), compression="snappy", **paging)
            else:
                os.link(root / f"part-{source:05d}.parquet", path)
            adds.append(add(path, rows, {"id": (source * rows, source * rows + rows - 1)}))
        commit(root, 0, [*head(wide_batch(1, 0, 0).schema), *adds])

    return made(name, write)


def grouped_table(name: str, columns: int, row_groups: int, rows: int, checksums: bool = False) -> pathlib.Path:
    """Return a table of one file with ``row_groups`` row groups of ``rows`` rows each, and ``columns`` columns, two of
    which are named ``first`` and ``middle``."""

    def write(root: pathlib.Path) -> None:
        random, path = np.random.default_rng([SEED, 5]), root / "part-00000.parquet"
        names = {0: "first", columns // 2: "middle"}
        batch = pa.table({names.get(each, f"c{each}"): random.random(rows) for each in range(columns)})
        with pq.ParquetWriter(path, batch.schema, compression="snappy", write_page_checksum=checksums) as writer:
            for _ in range(row_groups):
                writer.write_table(batch)
        commit(root, 0, [*head(batch.schema), add(path, rows * row_groups, {})])

    return made(name, write)


def fifty_columns() -> pathlib.Path:
    """Return a table of 50 columns and 2 million rows, about 800 MB: ``b`` ascends, the others are random."""

    def write(root: pathlib.Path) -> None:
        random, rows = np.random.default_rng(SEED), 100_000
        adds = []
        for first in range(0, 2_000_000, rows):
            columns = {"a": random.integers(0, 2**40, rows), "b": np.arange(first, first + rows)}
            columns |= {f"c{number:02}": random.integers(-(2**62), 2**62, rows) for number in range(48)}
            path, batch = root / f"part-{first:07d}.parquet", pa.table(columns)
            pq.write_table(batch, path, compression="snappy")
            adds.append(add(path, rows, {"b": (first, first + rows - 1)}))
        commit(root, 0, [*head(batch.schema), *adds])

    return made("fifty-columns", write)


def text_table(name: str, files: int, rows: int, distinct: int) -> pathlib.Path:
    """Return a table with few wide columns, which contain strings of 50 to 350 bytes; after ``distinct`` files, the
    contents repeat."""

    def batch(number: int) -> pa.Table:
        random = np.random.default_rng([SEED, 2, number])
        pool = random.integers(97, 123, 1_000_000).astype(np.uint8).tobytes().decode()
        columns: dict[str, pa.Array] = {"id": pa.array(np.arange(number * rows, (number + 1) * rows))}
        for position in range(4):
            starts = random.integers(0, len(pool) - 400, rows).tolist()
            lengths = random.integers(50, 350, rows).tolist()
            texts = [pool[start : start + length] for start, length in zip(starts, lengths, strict=True)]
            columns[f"text_{position}"] = pa.array(texts)
        return pa.table(columns)

    return _plain_table(name, files, rows, distinct, batch)


def narrow_table(name: str, files: int, rows: int, distinct: int) -> pathlib.Path:
    """Return a table with many narrow columns: numbers of every width, booleans, dates, timestamps, and a few nulls."""

    def batch(number: int) -> pa.Table:
        random = np.random.default_rng([SEED, 3, number])
        columns: dict[str, pa.Array] = {"id": pa.array(np.arange(number * rows, (number + 1) * rows))}
        for kind in ("int8", "int16", "int32", "float32", "float64"):
            for position in range(4):
                values = random.integers(-100, 100, rows).astype(kind)
                columns[f"{kind}_{position}"] = pa.array(values, mask=random.random(rows) < 0.01 * position)
        columns["flag"] = pa.array(random.random(rows) < 0.5)
        columns["at"] = pa.array(random.integers(0, 20_000 * _DAY, rows), pa.timestamp("us", tz="UTC"))
        return pa.table(columns)

    return _plain_table(name, files, rows, distinct, batch)


def _plain_table(name: str, files: int, rows: int, distinct: int, batch: Callable[[int], pa.Table]) -> pathlib.Path:
    def write(root: pathlib.Path) -> None:
        adds, fields = [], None
        for number in range(files):
            path, source = root / f"part-{number:05d}.parquet", number % distinct
            if source == number:
                content = batch(number)
                fields = fields or content.schema
                pq.write_table(content, path, compression="snappy")
            else:
                os.link(root / f"part-{source:05d}.parquet", path)
            adds.append(add(path, rows, {"id": (source * rows, source * rows + rows - 1)}))
        assert fields is not None
        commit(root, 0, [*head(fields), *adds])

    return made(name, write)


def deleted_table(name: str, files: int, rows: int, fraction: float) -> pathlib.Path:
    """Return a table with the data of ``wide_table(files, rows)``, of which deletion vectors delete the fraction
    ``fraction``."""

    def write(root: pathlib.Path) -> None:
        adds = []
        random = np.random.default_rng([SEED, 1])
        for number in range(files):
            path = root / f"part-{number:05d}.parquet"
            pq.write_table(wide_batch(rows, number * rows, number), path, compression="snappy")
            gone = np.flatnonzero(random.random(rows) < fraction)
            vector = deletion_vectors.DeletionVector.from_positions(gone.tolist())
            blob, (descriptor,) = deletion_vectors.encode_file([vector], uuid.UUID(int=number + 1))
            (root / deletion_vectors.relative_path(descriptor)).write_bytes(blob)
            added = add(path, rows, {"id": (number * rows, number * rows + rows - 1)}, tight=False)
            added["add"]["deletionVector"] = msgspec.to_builtins(descriptor)
            adds.append(added)
        features = ["deletionVectors"]
        commit(root, 0, [*head(wide_batch(1, 0, 0).schema, features=features), *adds])

    return made(name, write)


def listed_table(name: str, files: int) -> pathlib.Path:
    """Return a table of ``files`` add actions with statistics in a checkpoint; its data files do not exist."""

    def write(root: pathlib.Path) -> None:
        numbers = np.arange(files)
        stats = [
            json.dumps(
                {
                    "numRecords": 1000,
                    "minValues": {"id": number * 1000, "city": "Berlin", "at": "2024-01-01T00:00:00.000Z"},
                    "maxValues": {"id": number * 1000 + 999, "city": "Perth", "at": "2024-01-31T00:00:00.000Z"},
                    "nullCount": {"id": 0, "city": 0, "at": 0},
                }
            )
            for number in numbers.tolist()
        ]
        fields = pa.schema([("id", pa.int64()), ("city", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
        protocol, metadata = head(fields)
        commit(root, 0, [protocol, metadata])
        commit(root, 1, [])
        string_map = pa.map_(pa.string(), pa.string())
        adds = pa.StructArray.from_arrays(
            [
                pa.array(
                    [
                        f"part-{number:07d}-5b2f0c9e-6f1d-4c3a-9d6f-0a4c8f1e2d3b.c000.snappy.parquet"
                        for number in numbers
                    ]
                ),
                pa.array([[]] * files, string_map),
                pa.array(np.full(files, 1_000_000)),
                pa.array(np.full(files, _MILLIS)),
                pa.array(np.full(files, True)),
                pa.array(stats),
            ],
            names=["path", "partitionValues", "size", "modificationTime", "dataChange", "stats"],
        )
        heads = pa.Table.from_pylist(
            [protocol, metadata],
            schema=pa.schema(
                [
                    ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
                    (
                        "metaData",
                        pa.struct(
                            [
                                ("id", pa.string()),
                                ("format", pa.struct([("provider", pa.string()), ("options", string_map)])),
                                ("schemaString", pa.string()),
                                ("partitionColumns", pa.list_(pa.string())),
                                ("configuration", string_map),
                                ("createdTime", pa.int64()),
                            ]
                        ),
                    ),
                ]
            ),
        )
        body = pa.table({"add": adds})
        whole = pa.concat_tables([heads, body], promote_options="default")
        pq.write_table(whole, root / "_delta_log" / "00000000000000000001.checkpoint.parquet", row_group_size=100_000)
        last = {"version": 1, "size": files + 2}
        (root / "_delta_log" / "_last_checkpoint").write_text(json.dumps(last), "utf-8")

    return made(name, write)


def history_table(name: str, versions: int, rows: int) -> pathlib.Path:
    """Return a table with a change data feed and ``versions`` commits, each of which appends ``rows`` rows."""

    def write(root: pathlib.Path) -> None:
        properties = {"delta.enableChangeDataFeed": "true"}
        commit(root, 0, head(wide_batch(1, 0, 0).schema, properties=properties))
        for number in range(1, versions + 1):
            path = root / f"part-{number:05d}.parquet"
            pq.write_table(wide_batch(rows, number * rows, number), path, compression="snappy")
            commit(root, number, [add(path, rows, {"id": (number * rows, number * rows + rows - 1)})])

    return made(name, write)


def head(
    fields: pa.Schema, *, features: Sequence[str] = (), properties: dict[str, str] | None = None
) -> list[dict[str, dict[str, object]]]:
    """Return the protocol and metadata actions of a table with these columns."""
    protocol: dict[str, object] = {"minReaderVersion": 1, "minWriterVersion": 4 if properties else 2}
    if features:
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": list(features), "writerFeatures": list(features)}
    metadata = {
        "id": "6d1c0c4e-8f0b-4b7e-9a53-0d5f9c2f7b11",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.schema_to_json(schema.from_arrow_schema(fields)),
        "partitionColumns": [],
        "configuration": properties or {},
        "createdTime": _MILLIS,
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def add(
    path: pathlib.Path, rows: int, bounds: dict[str, tuple[int, int]], tight: bool = True
) -> dict[str, dict[str, object]]:
    """Return the add action of a file, with statistics of the columns in ``bounds``."""
    stats: dict[str, object] = {
        "numRecords": rows,
        "minValues": {name: low for name, (low, _) in bounds.items()},
        "maxValues": {name: high for name, (_, high) in bounds.items()},
        "nullCount": dict.fromkeys(bounds, 0),
    }
    if not tight:
        stats["tightBounds"] = False
    return {
        "add": {
            "path": path.name,
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": _MILLIS,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
    }


def commit(root: pathlib.Path, version: int, actions: Iterable[dict[str, dict[str, object]]]) -> None:
    """Write one JSON commit."""
    log = root / "_delta_log"
    log.mkdir(exist_ok=True)
    info = {"commitInfo": {"timestamp": _MILLIS + version * 1000, "operation": "WRITE"}}
    lines = [json.dumps(action) for action in (info, *actions)]
    path = log / f"{version:020d}.json"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    seconds = _MILLIS / 1000 + version
    os.utime(path, (seconds, seconds))


def made(name: str, write: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Create the table unless it exists; an incomplete table is replaced."""
    root = ROOT / name / "bench" / "default" / name
    if not (root / "_complete").exists():
        root.mkdir(parents=True, exist_ok=True)
        for stale in root.rglob("*"):
            if stale.is_file():
                stale.unlink()
        write(root)
        (root / "_complete").touch()
    return ROOT / name
