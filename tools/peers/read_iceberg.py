"""Read every table of a catalog with Iceberg's Spark runtime.

    python read_iceberg.py URI TOKEN WAREHOUSE NAMESPACE DIRECTORY

runs in the environment of ``scripts/iceberg``, whose PySpark is 4.0. The rows of each table become
``DIRECTORY/<table>.parquet``, with their row lineage if the table has it, and the numbers of rows of its metadata
tables ``DIRECTORY/<table>.json``. ``ICEBERG_SPARK_JARS`` names the jars.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys

from pyspark.sql import SparkSession

CATALOG = "spark.sql.catalog.shared"


def main(uri: str, token: str, warehouse: str, namespace: str, directory: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    settings = {
        "spark.jars": os.environ["ICEBERG_SPARK_JARS"],
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.type": "rest",
        f"{CATALOG}.uri": uri,
        f"{CATALOG}.token": token,
        f"{CATALOG}.warehouse": warehouse,
        # This implementation reads from both S3 and local files.
        f"{CATALOG}.io-impl": "org.apache.iceberg.io.ResolvingFileIO",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for row in spark.sql(f"SHOW TABLES IN shared.`{namespace}`").collect():
        name = f"shared.`{namespace}`.`{row.tableName}`"
        properties = {one.key: one.value for one in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
        lineage = ", _row_id, _last_updated_sequence_number" if properties["format-version"] == "3" else ""
        frame = spark.sql(f"SELECT *{lineage} FROM {name}")
        columns = [
            f"to_json(`{field.name}`) AS `{field.name}`"
            if field.dataType.typeName() == "variant"
            else f"`{field.name}`"
            for field in frame.schema.fields
        ]
        folder = pathlib.Path(directory) / row.tableName
        frame.selectExpr(*columns).coalesce(1).write.parquet(str(folder))
        counts = {kind: spark.sql(f"SELECT * FROM {name}.{kind}").count() for kind in ("snapshots", "history", "refs")}
        pathlib.Path(f"{folder}.json").write_text(json.dumps(counts), encoding="utf-8")
        (part,) = folder.glob("part-*.parquet")
        shutil.copy(part, f"{folder}.parquet")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
