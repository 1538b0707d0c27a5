"""Compares the planning of an Iceberg table with 100,000 data files with pyiceberg's ``scan().plan_files()``.

::

    python -m benchmarks.iceberg_planning         # 100,000 files in 10 manifests, with statistics of 16 columns
    python -m benchmarks.iceberg_planning --turns 9 --files 20000

pyiceberg writes the table once (``--folder``). Each round runs in a separate process, which imports its modules, loads
the metadata file, and then plans all files, or the files of a filter. The output has the wall time of planning alone,
and the ratio of the medians; the goal is 1.5.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.results import save_iceberg

COLUMNS = 16
IN_MANIFEST = 10_000
FILTER = "c0 >= 150000"
GOAL = 1.5
SUBJECTS = ("pyiceberg", "here")
CASES = ("all", "filter")


def write(folder: Path, files: int) -> Path:
    """Write a table with entries for ``files`` data files that do not exist; return its metadata file."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import BucketTransform
    from pyiceberg.typedef import Record
    from pyiceberg.types import LongType, NestedField

    catalog = SqlCatalog("made", uri="sqlite://", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    schema = Schema(*(NestedField(at + 1, f"c{at}", LongType(), required=False) for at in range(COLUMNS)))
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(16), "bucket"))
    table = catalog.create_table("n.t", schema, partition_spec=spec)
    ids = range(1, COLUMNS + 1)
    for start in range(0, files, IN_MANIFEST):
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for number in range(start, min(start + IN_MANIFEST, files)):
                low, high = (to_bytes(LongType(), number * 2 + at) for at in (0, 1))
                append.append_data_file(
                    DataFile.from_args(
                        content=DataFileContent.DATA,
                        file_path=f"{table.location()}/data/bucket={number % 16}/part-{number:08}.parquet",
                        file_format=FileFormat.PARQUET,
                        partition=Record(number % 16),
                        record_count=1000,
                        file_size_in_bytes=100_000,
                        column_sizes=dict.fromkeys(ids, 6000),
                        value_counts=dict.fromkeys(ids, 1000),
                        null_value_counts=dict.fromkeys(ids, 0),
                        nan_value_counts={},
                        lower_bounds=dict.fromkeys(ids, low),
                        upper_bounds=dict.fromkeys(ids, high),
                        key_metadata=None,
                        split_offsets=[4],
                        equality_ids=None,
                        sort_order_id=None,
                        spec_id=spec.spec_id,
                    )
                )
    return Path(table.metadata_location.removeprefix("file://"))


def plan(subject: str, case: str, metadata: Path) -> dict[str, Any]:
    """Plan once; return the seconds and the number of files."""
    if subject == "pyiceberg":
        from pyiceberg.table import StaticTable

        scan = StaticTable.from_metadata(str(metadata)).scan(row_filter=FILTER if case == "filter" else "true")
        began, used = time.perf_counter(), time.process_time()
        count = len(list(scan.plan_files()))
    else:
        count, began, used = _plan_here(case, metadata)
    return {"seconds": time.perf_counter() - began, "processor": time.process_time() - used, "files": count}


def _plan_here(case: str, metadata: Path) -> tuple[int, float, float]:
    import msgspec

    from delta_sharing_client.iceberg.metadata import TableMetadata
    from delta_sharing_client.iceberg.table_scan import OpenedTable
    from delta_sharing_client.options import ReadOptions
    from delta_sharing_client.plan.read_request import ScanRequest
    from delta_sharing_client.predicates.parse import parse_filter
    from delta_sharing_client.sources.iceberg_source import files_of
    from delta_sharing_client.sources.planning import plan_files
    from delta_sharing_client.storage.local import LocalPlace
    from delta_sharing_client.storage.table_files import TableFiles

    options = ReadOptions()
    loaded = msgspec.json.decode(metadata.read_bytes(), type=TableMetadata)
    root = Path(loaded.location.removeprefix("file://"))
    files = TableFiles("n.t", options, [loaded.location], lambda location: (location, LocalPlace(root, options)))
    table = OpenedTable("n.t", loaded, files)
    request = ScanRequest(filter=parse_filter(FILTER)) if case == "filter" else ScanRequest()
    began, used = time.perf_counter(), time.process_time()
    return len(plan_files(files_of(table, request), request, options).whole().tasks), began, used


def _turns(metadata: Path, turns: int) -> dict[tuple[str, str], list[dict[str, float]]]:
    """Plan in separate processes, alternating between the contenders."""
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    for turn in range(turns):
        for case in CASES:
            counts = set()
            for subject in SUBJECTS if turn % 2 else reversed(SUBJECTS):
                command = [sys.executable, "-m", "benchmarks.iceberg_planning", "--one", subject, case, str(metadata)]
                answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                results.setdefault((case, subject), []).append(answer)
                counts.add(answer["files"])
            if len(counts) > 1:
                raise SystemExit(f"{case}: the numbers of files differ: {sorted(counts)}")
    return results


def _figures(files: int, case: str, seconds: dict[tuple[str, str], list[dict[str, float]]]) -> dict[str, Any]:
    """Return medians and ratios in the form that ``benchmarks.turns`` uses."""
    medians = {
        name: {key: statistics.median(one[key] for one in seconds[case, subject]) for key in ("seconds", "processor")}
        for name, subject in (("ours", "here"), ("pyiceberg", "pyiceberg"))
    }
    ratios = {key: medians["ours"][key] / medians["pyiceberg"][key] for key in ("seconds", "processor")}
    job = "plan, with a filter" if case == "filter" else "plan"
    table = f"{files:,} files"
    return {"line": "local", "table": table, "job": job, "medians": medians, "ratios": {"pyiceberg": ratios}}


def main() -> int:
    """Run the program that the module docstring describes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="the folder of the table, which is created if it does not exist")
    parser.add_argument("--save", action="store_true", help="store the figures in iceberg.json and RESULTS.md")
    parser.add_argument("--one", nargs=3, metavar=("SUBJECT", "CASE", "METADATA"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        subject, case, metadata = options.one
        sys.stdout.write(json.dumps(plan(subject, case, Path(metadata))))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        written = sorted(folder.glob("n*/t/metadata/*.metadata.json")) or [write(folder, options.files)]
        actual = _turns(written[-1], options.turns)
    results = [_figures(options.files, case, actual) for case in CASES]
    for case, result in zip(CASES, results, strict=True):
        theirs, ours = (result["medians"][name]["seconds"] for name in ("pyiceberg", "ours"))
        sys.stdout.write(f"{case}: pyiceberg {theirs:.2f} s, here {ours:.2f} s, ratio {ours / theirs:.2f}\n")
    if options.save:
        save_iceberg(results)
    return 0 if all(result["ratios"]["pyiceberg"]["seconds"] <= GOAL for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
