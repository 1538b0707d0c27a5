"""The data source through Spark Connect; ``test_golden.py`` also reads its tables through Spark Connect."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap
import zipfile
from typing import Any

import pytest

import delta_sharing_client as ds
from tests.spark.streams import changed_table

pytestmark = pytest.mark.spark

SCRIPT = """
    import sys, time
    from pyspark.sql import SparkSession
    from delta_sharing_client.spark.datasource import HAS_LIMITS
    remote, url, checkpoint, jar = sys.argv[1:5]
    spark = SparkSession.builder.remote(remote).getOrCreate()
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
            print("error", "Did you mean 'id'" in str(error))
        stream = spark.readStream.format("deltaSharing").option("startingVersion", 0)
        stream = stream.option("ignoreChanges", "true").option("ignoreDeletes", "true")
        if HAS_LIMITS:
            stream = stream.option("maxFilesPerTrigger", 1)
        stream = stream.load(url)
        query = stream.writeStream.format("memory").queryName("m").option("checkpointLocation", checkpoint)
        query = query.trigger(availableNow=True).start()
        print("ended", query.awaitTermination(100))
        print("stream", sorted(row.id for row in spark.table("m").collect()))
        profile, name = url.split("#")
        try:
            ds.attach(spark, profile)
        except ds.UsageError as error:
            print("refused", error)
        ds.add_spark_jar(spark, jar)
        spark.sql(f"CREATE TEMPORARY VIEW w USING deltaSharing OPTIONS (path '{url}')")
        frames = [spark.read.format("deltaSharing").load(url), ds.load_as_spark(url, spark=spark), spark.table("w")]
        frames = [frame.where("id > 1") for frame in frames]
        print("pushed", ["PushedFilters: [" in frame._explain_string() for frame in frames])
        print("narrowed", [[row.id for row in frame.collect()] for frame in frames])
        for number in range(2):  # again: with classes that Spark loads anew
            ds.attach(spark, profile, name="far")
            spark.addArtifact(sys.argv[5])
        query = spark.sql(f"SELECT id FROM far.{name} VERSION AS OF 1 WHERE id > 1")
        print("attached", "PushedFilters: [" in query._explain_string(), sorted(row.id for row in query.collect()))
        tables = spark.sql("SHOW TABLES IN far." + name.rpartition(".")[0])
        print("listed", "t" in [row.tableName for row in tables.collect()])
        print("settings", {row.key: row.value for row in spark.sql("SET").collect() if "far" in row.key})
        spark.conf.set("spark.delta.sharing.profile", profile)
        named = [spark.read.format("deltaSharing").load(name), ds.load_as_spark(name, spark=spark)]
        print("named", [frame.count() for frame in named])
    finally:
        spark.stop()
"""


def test_connect_supports_batch_views_options_and_streams(connect_url: str, lake: Any, tmp_path: pathlib.Path) -> None:
    """In a separate process without a JVM."""
    changed_table(lake.root / "t")
    ds.write_spark_jar(tmp_path / "spark.jar")
    with zipfile.ZipFile(tmp_path / "other.jar", "w") as other:
        other.writestr("other.txt", "")
    script = tmp_path / "connect.py"
    script.write_text(textwrap.dedent(SCRIPT))
    run = subprocess.run(
        [sys.executable, str(script), connect_url, lake.url("t")]
        + [str(tmp_path / name) for name in ("c", "spark.jar", "other.jar")],
        capture_output=True,
        text=True,
        timeout=250,
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
    assert lines["pushed"] == "[True, True, True]"
    assert lines["narrowed"] == "[[30], [30], [30]]"
    assert lines["refused"] == "A catalog in Spark Connect needs the jar: call add_spark_jar(spark) before attach."
    assert lines["attached"] == "True [2, 3]"
    assert lines["listed"] == "True"
    assert lines["settings"] == "{'spark.sql.catalog.far': 'delta_sharing_client.spark.ShareCatalog'}"
    assert lines["named"] == "[2, 2]"
    token = lake.server.profile["bearerToken"]
    assert token not in run.stdout + run.stderr
