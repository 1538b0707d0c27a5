"""Let Delta Lake for Spark read the client's output: rebuilt logs, local copies and rebuilt change feeds.

    python tools/tables/check_rebuilt_logs.py SPARK_PYTHON [NAME ...]

runs with the client's interpreter, and starts ``SPARK_PYTHON``, an interpreter with the packages that
``make_spark_tables.py`` needs. All tables of ``tests/tables_spark`` and, if ``DELTA_GOLDEN_TABLES`` names them, the conformance
tables are served, written to a temporary directory in the three forms, and read by both. A table that Spark refuses
or reads differently is printed, and the exit status is 1 then. Run it by hand after changes of the log writer; the
tests use ``deltalake``.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

# Tables that Spark does not read, and why. A table must be removed here once Spark reads it.
KNOWN = {
    f"golden.table-with-icebegCompatV2Enabled {log}": "PySpark makes dicts of maps, whose keys cannot be lists"
    for log in ("copy", "copy before", "log")
}


def main(spark_python: str, chosen: list[str]) -> int:
    with tempfile.TemporaryDirectory() as work:
        base = pathlib.Path(work)
        jobs, expected = written(base, chosen)
        (base / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
        subprocess.run([spark_python, __file__, "--read", str(base)], check=True)
        answers = json.loads((base / "answers.json").read_text(encoding="utf-8"))
        failures = {
            job["name"]: reason
            for job, (ours, kinds), answer in zip(jobs, expected, answers, strict=True)
            if (reason := difference(ours, kinds, job, answer))
        }
    for name, reason in failures.items():
        print(f"{name}: {KNOWN.get(name, reason)}")
    print(f"{len(jobs) - len(failures)} of {len(jobs)} logs read by Spark with the same rows")
    return int(set(failures) != set(KNOWN) & {job["name"] for job in jobs})


def written(base: pathlib.Path, chosen: list[str]) -> tuple[list[dict[str, Any]], list[tuple[Any, list[Any]]]]:
    """Write all logs below ``base``; return what Spark shall read, and our rows with the types of their columns."""
    import delta_sharing_client as ds
    from delta_sharing_client.delta.log.delta_table import DeltaLog
    from tests.integration import spark_rows
    from tests.interop.rebuilt import rebuild_feed, rebuild_snapshot
    from tests.interop.served_tables import change_queries, names, serving

    jobs: list[dict[str, Any]] = []
    expected: list[tuple[Any, list[Any]]] = []
    long, text = {"type": "long"}, {"type": "string"}

    def columns(schema_string: str) -> list[Any]:
        return [spark_rows.sized(field) for field in json.loads(schema_string)["fields"]]

    def add(name: str, path: pathlib.Path, read: ds.Scan | ds.Changes, fields: list[Any], **job: Any) -> None:
        rows = read.to_arrow()
        if "changes" in job:
            rows = rows.drop_columns(["_commit_timestamp"])
        kinds = [field["type"] for field in fields]
        jobs.append({"name": name, "path": str(path), "columns": rows.column_names, **job})
        expected.append((spark_rows.found_rows(rows, kinds), kinds))

    with serving(base / "tables") as served:
        for number, name in enumerate(name for name in names() if not chosen or name in chosen):
            table, place = served.table(name), base / str(number)
            versions = served.readable_versions(name)
            copies = [table.replicate(place / "copy", version=version) for version in versions]
            snapshot = rebuild_snapshot(served, name, place / "log")
            fields = columns(snapshot.metadata.schema_string)
            add(f"{name} copy", place / "copy", table.scan(), fields, version=copies[-1].local_version)
            add(f"{name} log", place / "log", table.scan(), fields, version=snapshot.version)
            if snapshot.metadata.properties.get("delta.enableRowTracking") == "true":
                lineage = table.scan(row_lineage=True, response_format="delta")
                tracked = [*fields, long, long]
                add(f"{name} copy row ids", place / "copy", lineage, tracked, lineage=True)
                add(f"{name} log row ids", place / "log", lineage, tracked, lineage=True)
            middle = len(versions) // 2
            earlier = table.scan(version=versions[middle])
            older = columns(DeltaLog.open(served.paths[name]).snapshot(versions[middle]).metadata.schema_string)
            add(f"{name} copy before", place / "copy", earlier, older, version=copies[middle].local_version)
        feeds = [query for query in change_queries() if not chosen or query[0] in chosen]
        for number, (name, start, end) in enumerate(feeds):
            place = base / f"feed{number}"
            first = rebuild_feed(served, name, start, end, place)
            changes = served.table(name).changes(start, end)
            schema = DeltaLog.open(served.paths[name]).snapshot(end).metadata.schema_string
            fields = [*columns(schema), text, long]
            add(f"{name} changes {start} to {end}", place, changes, fields, changes=[first, end])
    return jobs, expected


def difference(ours: Counter[object], kinds: list[Any], job: dict[str, Any], answer: dict[str, Any]) -> str | None:
    """Return how Spark's rows differ from ours, or ``None`` if they are equal."""
    from tests.integration import spark_rows

    if "error" in answer:
        return str(answer["error"])
    if answer["columns"] != job["columns"]:
        return f"columns {answer['columns']} instead of {job['columns']}"
    theirs = spark_rows.expected_rows(answer["rows"], kinds)
    if theirs != ours:
        return f"rows {list(theirs - ours)[:2]} instead of {list(ours - theirs)[:2]}"
    return None


def read(base: pathlib.Path) -> None:
    """Read all logs with Spark. This function runs in the interpreter that has Spark."""
    import make_spark_tables

    spark = make_spark_tables.session()
    answers = []
    for job in json.loads((base / "jobs.json").read_text(encoding="utf-8")):
        try:
            reader = spark.read.format("delta")
            if "version" in job:
                reader = reader.option("versionAsOf", job["version"])
            if "changes" in job:
                first, last = job["changes"]
                reader = reader.options(readChangeFeed="true", startingVersion=first, endingVersion=last)
            frame = reader.load(job["path"])
            if "changes" in job:
                frame = frame.drop("_commit_timestamp")
            if "lineage" in job:
                named = [f"`{name}`" for name in frame.columns]
                added = ["_metadata.row_id AS _row_id", "_metadata.row_commit_version AS _row_commit_version"]
                frame = frame.selectExpr(*named, *added)
            answers.append({"columns": frame.columns, "rows": make_spark_tables.rows(frame)})
        except Exception as error:
            spark.sql("SELECT 1").collect()  # after an error in one table, Spark reads the others
            answers.append({"error": str(error)[:400]})
    (base / "answers.json").write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--read", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("spark_python", nargs="?", help="an interpreter with PySpark")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these: spark.<table>, golden.<table>")
    arguments = parser.parse_args()
    if arguments.read is not None:
        read(arguments.read)
    elif arguments.spark_python is None:
        parser.error("SPARK_PYTHON is needed")
    else:
        sys.exit(main(arguments.spark_python, arguments.names))
