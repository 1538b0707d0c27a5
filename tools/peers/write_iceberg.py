"""Run SQL with Iceberg's Spark runtime in a catalog, which is called ``lake``.

    python write_iceberg.py PROPERTIES STATEMENTS

runs in the environment of ``scripts/iceberg``, whose PySpark is 4.0. ``PROPERTIES`` (of the catalog) and ``STATEMENTS``
are JSON. ``ICEBERG_SPARK_JARS`` names the jars.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession


def main(properties: dict[str, str], statements: list[str]) -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.jars": os.environ["ICEBERG_SPARK_JARS"],
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        **{f"spark.sql.catalog.lake.{name}": value for name, value in properties.items()},
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for statement in statements:
        spark.sql(statement)
    spark.stop()


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
