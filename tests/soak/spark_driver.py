"""The driver that ``spark_kills`` starts and kills: streams, each with an idempotent sink of JSON files."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any


def main(asked: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[2]")
    for name, value in asked["settings"].items():
        builder = builder.config(name, value)
    builder = builder.config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    spark = builder.config("spark.connect.grpc.binding.port", "0").getOrCreate()
    for stream in asked["streams"]:
        # A stream whose server is away must not keep the others from beginning; all at once, Spark gives up on Python
        # processes that do not start within ten seconds.
        begun = threading.Event()
        threading.Thread(target=follow, args=(spark, stream, begun), daemon=True).start()
        begun.wait(45)
    while True:
        time.sleep(1)


def follow(spark: Any, stream: dict[str, Any], begun: threading.Event) -> None:
    out = stream["out"]
    session = connected(spark) if stream["remote"] else spark
    while True:
        try:
            frame = session.readStream.format("deltaSharing").options(**stream["options"]).load(stream["url"])
            writer = frame.writeStream.foreachBatch(sink(out)).option("checkpointLocation", stream["checkpoint"])
            query = writer.trigger(processingTime="100 milliseconds").start()
            while query.isActive and query.lastProgress is None:
                time.sleep(0.2)
            begun.set()
            query.awaitTermination()
        except Exception as error:
            if "connect back" in str(error) or "CANNOT_OPEN_SOCKET" in str(error):
                continue
            (Path(out) / "failure").write_text(str(error))
            return


def connected(spark: Any) -> Any:
    """Return a session of Spark Connect to the server in the JVM of ``spark``."""
    from pyspark.sql.connect.session import SparkSession

    service = getattr(spark.sparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    return SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()


def sink(out: str) -> Any:
    """Return the sink: a file for each batch, which a batch that comes again replaces."""

    def write(frame: Any, batch: int) -> None:
        rows = [(row["id"], row.asDict().get("_change_type", "insert")) for row in frame.collect()]
        part = os.path.join(out, f"{batch}.part")
        with open(part, "w") as file:
            json.dump(rows, file)
        os.replace(part, os.path.join(out, f"{batch}.json"))

    return write


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
