"""Apache Spark: batch, change feed and streaming in plain PySpark."""
