"""The JVM connector and this client read the golden tables from one server: ``bash scripts/peers``.

The connector is built from its own source, whose parquet response format needs no Delta Lake for Spark. Reads that
it refuses are skipped with the reason; if both read a table, the rows must be the same.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

import delta_sharing_client as ds
import mock_server
from tests.golden import corpus

CONNECTOR = os.environ.get("DELTA_SHARING_JVM_CONNECTOR")
# The full name of the connector's class, because our data source has the same short name.
FORMAT = "io.delta.sharing.spark.DeltaSharingDataSource"
TABLES = {table.name: table for table in corpus.tables() if table.outcome == "read"}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.delta.sharing.network.never.use.https": "true",
    "spark.delta.sharing.network.numRetries": "0",
}

pytestmark = [
    pytest.mark.golden,
    pytest.mark.skipif(not CONNECTOR, reason="DELTA_SHARING_JVM_CONNECTOR names no jar; bash scripts/peers builds it"),
    pytest.mark.skipif(not TABLES, reason="DELTA_GOLDEN_TABLES names no conformance tables"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("peers").config("spark.jars", CONNECTOR)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[pathlib.Path, ds.SharingClient]]:
    base = tmp_path_factory.mktemp("golden")
    root = base / "golden" / "corpus"
    root.mkdir(parents=True)
    for table in TABLES.values():
        table.stage(root / table.name.replace(".", "_"))
    profile = base / "golden.share"
    with mock_server.running(tables=base) as server, ds.SharingClient(server.profile) as client:
        profile.write_text(json.dumps(server.profile))
        yield profile, client


@pytest.mark.parametrize("name", sorted(TABLES))
def test_jvm_connector_and_client_read_the_same_rows(
    spark: Any, served: tuple[pathlib.Path, ds.SharingClient], name: str
) -> None:
    profile, client = served
    table = f"golden.corpus.{name.replace('.', '_')}"
    try:
        ours = client.table(table).scan(response_format="parquet").to_arrow()
    except ds.RequestError:
        # The connector must refuse it as well.
        with pytest.raises(Exception, match=r"400|delta"):
            spark.read.format(FORMAT).load(f"{profile}#{table}").collect()
        pytest.skip("The table needs the delta response format, which the connector built here does not read.")
    try:
        theirs = spark.read.format(FORMAT).option("responseFormat", "parquet").load(f"{profile}#{table}").toArrow()
    except Exception as error:
        pytest.skip(f"The JVM connector does not read it: {str(error).splitlines()[0][:200]}")
    found = corpus.conform(theirs, ours.schema)
    assert collections.Counter(corpus.arrow_rows(found)) == collections.Counter(corpus.arrow_rows(ours))
