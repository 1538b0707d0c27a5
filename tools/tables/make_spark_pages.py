"""Write ``tests/unit/decode/spark_pages`` with Spark: one row group of many small pages, in both versions of data pages.

    python tools/tables/make_spark_pages.py

needs PySpark and a JDK. The values are computed from the row number, so that a test can compute them too.
"""

from __future__ import annotations

import pathlib
import shutil
import tempfile

from pyspark.sql import SparkSession, functions
from pyspark.sql.types import StructType

PAGES = pathlib.Path(__file__).resolve().parents[2] / "tests" / "unit" / "read" / "spark_pages"
ROWS = 1200
COLUMNS = {
    "n": "n",
    "byte": "cast(n % 100 as tinyint)",
    "short": "cast(n as smallint)",
    "integer": "cast(n * 7 as int)",
    "float": "cast(n / 4 as float)",
    "double": "if(n % 50 = 3, double('NaN'), n / 8)",
    "boolean": "n < 600",
    "text": "concat(repeat('long ', 20), lpad(n, 5, '0'))",
    "word": "concat('word ', n % 7)",
    "binary": "cast(lpad(n, 6, '0') as binary)",
    "date": "date_add(date'2020-01-01', cast(n as int))",
    "instant": "timestamp_micros(1600000000000000 + n * 1000001)",
    "ntz": "cast(timestamp_micros(1600000000000000 + n * 1000001) as timestamp_ntz)",
    "decimal": "cast(n / 100 as decimal(30, 3))",
    "small": "cast(n / 100 as decimal(9, 2))",
    "gaps": "if(n between 300 and 420 or n % 3 = 0, null, n)",
}


def main() -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.range(ROWS).toDF("n").coalesce(1)
    frame = frame.selectExpr(
        *(f"{expression} AS {name}" for name, expression in COLUMNS.items()),
        "struct(n AS x, if(n % 5 = 0, null, n) AS y) AS pair",
        "array(n, n + 1) AS list",
    )
    required = frame.select(*(functions.coalesce(name, name).alias(name) for name in frame.columns))
    fields = []
    for field in required.schema.fields:
        field.nullable = field.name == "gaps"
        fields.append(field)
    for name, version, rows in (("v1", "v1", frame), ("v2", "v2", frame), ("required", "v1", required)):
        if name == "required":
            rows = spark.createDataFrame(required.rdd, StructType(fields))
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            options = {"parquet.page.row.count.limit": "50", "parquet.writer.version": version}
            rows.write.options(**options).option("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS").parquet(
                str(out)
            )
            (part,) = out.glob("*.parquet")
            shutil.copy(part, PAGES / f"{name}.parquet")
    spark.stop()


if __name__ == "__main__":
    main()
