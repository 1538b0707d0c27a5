"""Apache Spark: batch reads, change feeds and streams in plain PySpark."""
