"""The contenders. Each measures one read in a new process, and prints one line of JSON.

``python workers.py JOB`` runs with the interpreter of the contender's environment, so this file imports no module of
the project at its top.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple


def ours(job: dict) -> int:
    # Imports are not measured, for any contender.
    import requests  # noqa: F401

    import delta_sharing_client as ds
    import delta_sharing_client.fetch.http
    import delta_sharing_client.outputs.pandas

    arguments = dict(job["arguments"])
    options = ds.ReadOptions(**arguments.pop("options", {}))
    with ds.SharingClient(job["profile"], options=options) as client:
        table = client.table(job["table"])
        if job["action"] == "frame":
            return _frame(table, arguments["output"])
        if job["action"] == "plan":
            table.metadata()  # the server reads its log now, which is not measured
        start_clock()
        if job["action"] == "plan":
            return len(table.scan().plan().tasks)
        if job["action"] == "first":
            with table.scan(**arguments).to_batches() as batches:
                rows = next(batches).num_rows
                _started["seconds"] = time.perf_counter() - _started["at"]
            return rows
        if job["action"] == "batches":
            return sum(batch.num_rows for batch in table.scan(**arguments).to_batches())
        if job["action"] == "changes":
            return len(table.changes(starting_version=1, **arguments).to_pandas())
        if job["action"] == "profile":
            return _profiled(lambda: len(table.scan(**arguments).to_pandas()))
        return len(table.scan(**arguments).to_pandas())


def _frame(table: Any, output: str) -> int:
    """Create a frame, and measure its bytes as pandas counts them, except that text is counted as Arrow arrays."""
    import polars  # the imports of all contenders are not measured  # noqa: F401

    import delta_sharing_client.outputs.polars  # noqa: F401

    table.metadata()
    start_clock()
    if output == "arrow":
        made = table.scan().to_arrow()
        size = made.nbytes
    elif output == "polars":
        made = table.scan().to_polars()
        size = made.estimated_size()
    else:
        made = table.scan().to_pandas()
        columns = (made.iloc[:, place] for place in range(made.shape[1]))
        size = sum(getattr(getattr(c.array, "_pa_array", c.array), "nbytes", 0) for c in columns)
    _started["frame"] = int(size)
    return len(made)


def _profiled(read: Callable[[], int]) -> int:
    import profiler

    with profiler.profiled() as profile:
        rows = read()
    _started.update(calls=profile.calls, stages=profile.seconds)
    return rows


def incumbent(job: dict, use_delta_format: bool) -> int:
    import delta_sharing
    import fsspec.implementations.http  # noqa: F401

    url = f"{job['profile']}#{job['table']}"
    limit = job["arguments"].get("limit")
    start_clock()
    if job["action"] == "plan":
        # what its loaders do before they read data
        share, schema, table = job["table"].split(".")
        name = delta_sharing.protocol.Table(table, share, schema)
        profile = delta_sharing.protocol.DeltaSharingProfile.read_from_file(job["profile"])
        answer = delta_sharing.rest_client.DataSharingRestClient(profile).list_files_in_table(name)
        return len(answer.add_files)
    if job["action"] == "changes":
        return len(
            delta_sharing.load_table_changes_as_pandas(url, starting_version=1, use_delta_format=use_delta_format)
        )
    return len(delta_sharing.load_as_pandas(url, limit=limit, use_delta_format=use_delta_format))


def local(job: dict) -> int:
    """Measure the limit of time: pyarrow reads the same files from the local disk into pandas."""
    import pathlib

    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(pathlib.Path(job["directory"]).rglob("*.parquet"))
    start_clock()
    return len(
        pa.concat_tables([pq.read_table(file) for file in files]).to_pandas(split_blocks=True, self_destruct=True)
    )


def memory(job: dict) -> int:
    """Measure the limit of processor time: pyarrow reads the bytes of the same files from memory into pandas."""
    import pathlib

    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [pa.py_buffer(file.read_bytes()) for file in sorted(pathlib.Path(job["directory"]).rglob("*.parquet"))]
    start_clock()
    return len(
        pa.concat_tables([pq.read_table(pa.BufferReader(file)) for file in files]).to_pandas(
            split_blocks=True, self_destruct=True
        )
    )


def polars(job: dict) -> int:
    """Measure Polars with the same signed URLs; the request for the URLs is not measured."""
    import polars as pl

    import delta_sharing_client as ds

    arguments = job["arguments"]
    with ds.SharingClient(job["profile"]) as client:
        urls = [task.url for task in client.table(job["table"]).scan().plan().tasks]
    start_clock()
    frame = pl.scan_parquet(urls)
    if "filter" in arguments:
        frame = frame.filter(pl.sql_expr(arguments["filter"]))
    if "columns" in arguments:
        frame = frame.select(arguments["columns"])
    if "limit" in arguments:
        frame = frame.limit(arguments["limit"])
    if job["action"] == "frame":
        made = frame.collect()
        _started["frame"] = made.estimated_size()
        return len(made)
    return len(frame.collect().to_pandas())


class _SparkQuery(NamedTuple):
    """The query ``SELECT values WHERE condition`` and its columns. Without values, all rows go to a sink that drops
    them."""

    values: tuple[str, ...] = ()
    condition: str = "true"
    columns: str = ""


_SPARK_QUERIES = {
    "spark-scan": _SparkQuery(),
    "spark-many": _SparkQuery(),
    "spark-sum": _SparkQuery(("count(long_0)", "sum(CAST(long_0 AS DOUBLE))"), columns="long_0"),
    "spark-count": _SparkQuery(("count(1)",), "double_0 > 0.9", "double_0"),
    "spark-wide": _SparkQuery(("count(a)", "sum(a)"), "b >= 1900000", "a, b"),
}


# The JVM compiles code that is repeated, so the first queries take up to twice as long as later ones.
_QUERIES = 4


def spark(job: dict) -> int:
    """Run one query: with push-down, with our options, with neither, on local files (the limit), or with the JVM
    connector."""
    session, query = _spark_session(job), _SPARK_QUERIES[job["action"]]

    def run() -> int:
        frame = _spark_frame(session, job, query).where(query.condition)
        if query.values:
            return frame.selectExpr(*query.values).collect()[0][0]
        frame.write.format("noop").mode("overwrite").save()
        return 0

    run()  # starts the workers of the JVM and of Python, which every Spark program does once
    start_clock()
    seconds = []
    for _ in range(_QUERIES if query.values else 1):
        began = time.perf_counter()
        rows = run()
        seconds.append(time.perf_counter() - began)
    _started["seconds"] = statistics.median(seconds)
    session.stop()
    return rows


def _spark_session(job: dict) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "4g")
    if job["contender"] == "spark-jvm":
        builder = builder.config("spark.jars", os.environ["DELTA_SHARING_JVM_CONNECTOR"])
        builder = builder.config("spark.delta.sharing.network.never.use.https", "true")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _spark_frame(session: Any, job: dict, query: _SparkQuery) -> Any:
    import delta_sharing_client as ds

    who, url = job["contender"], f"{job['profile']}#{job['table']}"
    if who == "spark-ours":
        return ds.load_as_spark(url, spark=session)
    if who == "spark-local":
        files = session.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
        return files.parquet(job["directory"])
    options = {"columns": query.columns, "filter": query.condition} if who == "spark-options" else {}
    return session.read.format("deltaSharing").options(**options).load(url)


STARTS = {
    "start-load": "import delta_sharing_client as ds; ds.load_as_pandas({url!r})",
    "start-client": "import delta_sharing_client as ds; ds.SharingClient({profile!r})",
    "start-import": "import delta_sharing_client",
    "start-pandas": "import pandas, pyarrow",
    "start-libraries": "import pandas, pyarrow, requests, aiohttp",
    "start-help": ("--help",),
    "start-version": ("--version",),
    "start-ls": ("ls", "--profile", "{profile}"),
}
"""Programs, or arguments of the command. Each runs in its own process, to measure how long a start takes."""


def start(job: dict) -> int:
    """Measure a whole process, from start to end."""
    what, names = STARTS[job["contender"]], {"profile": job["profile"], "url": f"{job['profile']}#{job['table']}"}
    if isinstance(what, str):
        command = [sys.executable, "-c", what.format(**names)]
    else:
        command = [sys.executable, "-m", "delta_sharing_client.cli", *(word.format(**names) for word in what)]
    # Python may write .pyc files, because an installed package has them; in a clone, the first repeat writes them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_clock()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    _started["seconds"] = time.perf_counter() - _started["at"]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    _started["children"] = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return 0


WORKERS = {
    **dict.fromkeys(STARTS, start),
    "ours": ours,
    "incumbent-delta": lambda job: incumbent(job, True),
    "incumbent-parquet": lambda job: incumbent(job, False),
    "ours-undeleted": ours,
    "ours-half": ours,
    "ours-hundred": ours,
    "ours-few-rows": ours,
    "ours-fixed": ours,
    "ours-http": ours,
    "ours-pandas": ours,
    "ours-arrow": ours,
    "ours-polars": ours,
    "local": local,
    "memory": memory,
    "polars": polars,
    **dict.fromkeys(("spark-ours", "spark-options", "spark-plain", "spark-local", "spark-jvm"), spark),
}

_started: dict[str, Any] = {"at": 0.0, "processor": 0.0, "peak": 0, "calls": 0, "stages": {}, "frame": 0}
_started["children"] = 0.0


def start_clock() -> None:
    """Start the clock. Each contender calls this after its imports."""
    _started.update(processor=time.process_time(), peak=peak_bytes(), at=time.perf_counter())


def peak_bytes() -> int:
    """Return the maximum resident size of this process so far, in bytes."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        # On Linux, the value of getrusage starts at the size of the parent process.
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    job = json.loads(sys.argv[1])
    rows = WORKERS[job["contender"]](job)
    seconds = _started.get("seconds") or time.perf_counter() - _started["at"]
    results = {"seconds": seconds, "rows": rows, "idle_bytes": _started["peak"], "peak_bytes": peak_bytes()}
    results["processor"] = _started["children"] or time.process_time() - _started["processor"]
    results |= {name: _started[name] for name in ("calls", "stages", "frame")}
    sys.stdout.write("\n" + json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
