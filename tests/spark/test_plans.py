"""Queries return the same rows as over a local DataFrame, with and without push-down."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import delta_sharing_client as ds
from tests.effort import ALL
from tests.spark.plans import SCHEMA, Plan, plans, rows
from tests.spark.test_push_down import pushed_by, scans
from tests.tables import TableWriter

pytestmark = pytest.mark.spark

NUMBER, SEED = int(os.environ.get("PLANS", 300 if ALL else 5)), int(os.environ.get("PLANS_SEED", 4))
WAYS = ("pushed", "plain", "local")
Rows = Counter[tuple[str, ...]]


@pytest.fixture
def views(spark: Any, lake: Any) -> Iterator[None]:
    """The two tables as views, for each way to read them."""
    made, tables = [], {"one": "t", "two": "u"}
    for name, number, seed in (("one", 42, 1), ("two", 21, 2)):
        content = rows(number, seed)
        writer = TableWriter(lake.root / tables[name], SCHEMA, partition_by=["p"])
        for part in sorted({row["p"] for row in content}):
            writer.insert([row for row in content if row["p"] == part])
        url = lake.url(tables[name])
        frames = {
            "pushed": ds.load_as_spark(url, spark=spark),
            "plain": spark.read.format("delta_sharing").load(url),
            "local": spark.createDataFrame([tuple(row.values()) for row in content], from_arrow_schema(SCHEMA)),
        }
        for way, frame in frames.items():
            made.append(f"{way}_{name}")
            frame.createOrReplaceTempView(made[-1])
    yield
    for name in made:
        spark.catalog.dropTempView(name)


@pytest.mark.timeout(7200)
def test_random_queries_return_the_same_rows_with_push_down(spark: Any, views: None) -> None:
    counts: Counter[str] = Counter()
    for number, plan in enumerate(plans(NUMBER, SEED)):
        found = {way: _run(spark, plan, way, counts) for way in WAYS}
        counts["rows"] += found["local"].total()
        counts["with rows"] += bool(found["local"])
        for way in ("pushed", "plain"):
            assert found[way] == found["local"], f"plan {number}, {way}: {plan}"
    sys.stdout.write(f"{NUMBER} plans: {dict(counts)}\n")
    assert counts["with rows"] > NUMBER / 2, counts
    for what in ("filters", "columns"):
        assert counts[what] > NUMBER / 3, counts
    assert counts["limits"] > NUMBER / 30, counts


def _run(spark: Any, plan: Plan, way: str, counts: Counter[str]) -> Rows:
    names = {name: f"{way}_{name}" for name in ("one", "two", "kept")}
    kept = spark.sql(plan.kept.format(**names))
    kept.createOrReplaceTempView(names["kept"])
    if plan.cached:
        kept.cache()
    try:
        frame = spark.sql(plan.query.format(**names))
        found = Counter(tuple(map(repr, row)) for row in frame.collect())
        if way == "pushed":
            counts.update(_pushed(frame))
            counts["cached"] += "InMemoryRelation" in frame._jdf.queryExecution().optimizedPlan().toString()
        return found
    finally:
        kept.unpersist()
        spark.catalog.dropTempView(names["kept"])


def _pushed(frame: Any) -> set[str]:
    """Return what was pushed down to the scans of ``frame``, ignoring subqueries."""
    found = set()
    for scan in scans(frame):
        told = pushed_by(scan)
        kinds = (("filters", told.predicates), ("limits", told.limit is not None))
        found |= {what for what, is_there in kinds if is_there}
        if len(json.loads(scan.readSchema().json())["fields"]) < len(SCHEMA):
            found.add("columns")
    return found
