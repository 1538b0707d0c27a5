"""``MERGE`` a shared change feed into a Delta table, in ``foreachBatch``, with the jars of Delta Lake.

A table of keys and values grows by random inserts, updates and deletes; a stream of its changes is merged into a
Delta table, in a sink that sometimes fails after the merge, so that the batch is repeated. After each step both
tables are compared. Spark downloads the jars from Maven. Their version must match PySpark, so use an environment of
``scripts/spark-versions``: ``.ci/env-spark-4.2/bin/python -m tools.soak spark-merge``.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyspark

from delta_sharing_client.spark.datasource import HAS_LIMITS
from tests.spark.running_streams import ID_VALUE, Died, Keyed, Site
from tests.spark.streams import FEED
from tools.soak.streams import session

HELP = "merge the changes of a table into a Delta table, and compare every row"

# The jars for 4.1 (4.1.0, 4.2.0) and 4.3 (4.4.0) call methods that Spark 4.1.4 and 4.3.0 lack.
_JARS = {"4.0": "io.delta:delta-spark_2.13:4.0.1", "4.2": "io.delta:delta-spark_2.13:4.4.0"}
_MERGE = """
    MERGE INTO delta.`{}` t
    USING (
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY id ORDER BY _commit_version DESC) AS nth
            FROM changes WHERE _change_type <> 'update_preimage'
        ) WHERE nth = 1
    ) s ON t.id = s.id
    WHEN MATCHED AND s._change_type = 'delete' THEN DELETE
    WHEN MATCHED THEN UPDATE SET value = s.value
    WHEN NOT MATCHED AND s._change_type <> 'delete' THEN INSERT (id, value) VALUES (s.id, s.value)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=6, help="how often the table grows and is followed (default 6)")
    parser.add_argument("--jars", help="Maven coordinates of Delta Lake for this PySpark")


def run(arguments: argparse.Namespace) -> int:
    version = ".".join(pyspark.__version__.split(".")[:2])
    jars = arguments.jars or _JARS.get(version)
    if jars is None:
        sys.stdout.write(f"No jars of Delta Lake for PySpark {version} are known; name them with --jars.\n")
        return 2
    settings = {
        "spark.jars.packages": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    with (
        tempfile.TemporaryDirectory(prefix="spark-merge-") as folder,
        session(Path(folder), **settings) as spark,
        contextlib.closing(Site(spark, Path(folder) / "site")) as site,
    ):
        wrong = _follow(site, arguments)
    sys.stdout.write(f"{wrong} wrong, seed {arguments.seed}\n")
    return 1 if wrong else 0


def _follow(site: Site, arguments: argparse.Namespace) -> int:
    chance, target = random.Random(arguments.seed), site.folder / "target"
    live = Keyed(site.write(ID_VALUE, properties=FEED))
    site.spark.createDataFrame([], "id bigint, value string").write.format("delta").save(str(target))
    counts: Counter[str] = Counter()
    wrong = 0

    def merge(frame: Any, batch: int) -> None:
        frame.createOrReplaceTempView("changes")
        frame.sparkSession.sql(_MERGE.format(target))
        counts["merges"] += 1
        if chance.random() < 0.2:
            counts["batches that came twice"] += 1
            raise Died

    for step in range(arguments.steps):
        for _ in range(10):
            counts.update(_grow(live, chance))
        error, done = "", 0
        # On PySpark before 4.2 a run with available-now ends after the repeated batch.
        while not error and done < (1 if HAS_LIMITS else 2):
            stream = site.follow(
                sink=merge,
                trigger={"availableNow": True},
                readChangeFeed="true",
                startingVersion=0,
                maxFilesPerTrigger=3,
            )
            error = stream.ends()
            done = 0 if "Died" in error else done + 1
            error = "" if "Died" in error else error
        rows = site.spark.read.format("delta").load(str(target)).collect()
        result, expected = Counter(map(tuple, rows)), Counter(live.rows.items())
        right = result == expected and not error
        wrong += not right
        shown = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        sys.stdout.write(f"step {step + 1}: {len(rows)} rows, {'right' if right else 'WRONG'}; {shown} {error}\n")
        if not right:
            sys.stdout.write(f"missing {expected - result}, too many {result - expected}\n")
        sys.stdout.flush()
    return wrong


def _grow(live: Keyed, chance: random.Random) -> list[str]:
    """Commit inserts, updates or a delete for some of 60 keys; return the name of the operation once for each row."""
    keys = chance.sample(range(60), chance.randint(1, 5))
    before, new = dict(live.rows), {key: f"{key} {chance.random()}" for key in keys}
    kind = chance.choice(["inserts", "updates", "deletes"])
    if kind == "deletes":
        live.delete(keys[0])
    else:
        (live.insert if kind == "inserts" else live.update)(new)
    return [kind] * len(set(before.items()) ^ set(live.rows.items()))
