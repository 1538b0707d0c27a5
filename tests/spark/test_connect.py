"""The same source through Spark Connect."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from tests.spark.conftest import REMOTE
from tests.spark.streams import changed_table

pytestmark = pytest.mark.spark

SCRIPT = """
    import sys, time
    from pyspark.sql import SparkSession
    url, checkpoint = sys.argv[1:3]
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        frame = spark.read.format("deltaSharing").load(url)
        print("rows", sorted(row.id for row in frame.collect()))
        print("count", frame.where("id > 1").count(), frame.count())
        frame.createOrReplaceTempView("v")
        print("sql", spark.sql("SELECT sum(id) AS s FROM v").collect()[0].s)
        pruned = spark.read.format("deltaSharing").option("filter", "id = 30").option("columns", "id").load(url)
        print("filter", [row.id for row in pruned.collect()])
        import delta_sharing_client as ds
        print("loader", ds.load_as_spark(url, spark=spark).count())
        try:
            spark.read.format("deltaSharing").option("columns", "idd").load(url).collect()
        except Exception as error:
            print("error", "did you mean 'id'" in str(error))
        stream = spark.readStream.format("deltaSharing").option("startingVersion", 0)
        for name, value in (("ignoreChanges", "true"), ("ignoreDeletes", "true"), ("maxFilesPerTrigger", 1)):
            stream = stream.option(name, value)
        stream = stream.load(url)
        query = stream.writeStream.format("memory").queryName("m").option("checkpointLocation", checkpoint)
        query = query.trigger(availableNow=True).start()
        print("ended", query.awaitTermination(100))
        print("stream", sorted(row.id for row in spark.table("m").collect()))
    finally:
        spark.stop()
"""


def test_batch_views_options_errors_and_streams(lake: Any, tmp_path: pathlib.Path) -> None:
    changed_table(lake.root / "t")
    script = tmp_path / "connect.py"
    script.write_text(textwrap.dedent(SCRIPT))
    run = subprocess.run(
        [sys.executable, str(script), lake.url("t"), str(tmp_path / "c")],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    lines = dict(line.split(" ", 1) for line in run.stdout.splitlines() if " " in line)
    assert lines.get("rows") == "[1, 30]", run.stderr[-3000:]
    assert lines["count"] == "1 2"
    assert lines["sql"] == "31"
    assert lines["filter"] == "[30]"
    assert lines["loader"] == "2"
    assert lines["error"] == "True"
    assert lines["stream"] == "[1, 2, 3, 30]"
    token = lake.server.profile["bearerToken"]
    assert token not in run.stdout + run.stderr


def test_golden_tables_and_those_of_our_own_are_the_same_through_connect() -> None:
    """``test_golden.py`` once more, in a process whose session is one of Spark Connect."""
    folder = pathlib.Path(__file__).parent
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(folder / "test_golden.py"),
    ]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=290,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, REMOTE: "1"},
        cwd=folder.parent.parent,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-5000:]
