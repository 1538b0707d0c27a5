"""The driver that ``spark_kills`` starts and kills. It runs streams, each with an idempotent sink of JSON files.

``by_hand`` calls a stream reader like Spark, with offset log and commit log, but without a JVM, which allows many
more runs in the same time.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
from pathlib import Path
from typing import Any


def main(asked: dict[str, Any]) -> None:
    if asked["by_hand"]:
        for stream in asked["streams"]:
            threading.Thread(target=by_hand, args=(stream,), daemon=True).start()
        while True:
            time.sleep(1)
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[2]")
    for name, value in asked["settings"].items():
        builder = builder.config(name, value)
    builder = builder.config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    spark = builder.config("spark.connect.grpc.binding.port", "0").getOrCreate()
    for stream in asked["streams"]:
        # Streams start one after another, because Spark gives up on Python processes that need more than ten seconds to
        # start. A stream whose server is stopped must not delay the others for long.
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


def by_hand(stream: dict[str, Any]) -> None:
    from delta_sharing_client.spark.datasource import DeltaSharingSource

    out, checkpoint = Path(stream["out"]), Path(stream["checkpoint"])
    offsets, commits = checkpoint / "offsets", checkpoint / "commits"
    offsets.mkdir(parents=True, exist_ok=True)
    commits.mkdir(exist_ok=True)
    try:
        source = DeltaSharingSource({**stream["options"], "path": stream["url"]})
        schema = source.schema()
        planner = pickle.loads(pickle.dumps(source)).streamReader(schema)
        worker = pickle.loads(pickle.dumps(planner))
        limit = planner.getDefaultReadLimit()
        last = max((int(path.name) for path in offsets.glob("[0-9]*")), default=-1)
        while True:
            start = _read(offsets / str(last)) if last >= 0 else planner.initialOffset()
            if last < 0 or (commits / str(last)).exists():
                end = planner.latestOffset(start, limit)
                if last >= 0 and end == start:
                    time.sleep(0.1)
                    continue
                last += 1
                _write(offsets / str(last), end)
            else:
                # Like Spark after a crash, plan the same batch again from its offsets.
                start, end = (_read(offsets / str(last - 1)) if last else planner.initialOffset()), start
            rows = [
                (row["id"], row.get("_change_type", "insert"))
                for part in planner.partitions(start, end)
                for batch in worker.read(pickle.loads(pickle.dumps(part)))
                for row in batch.to_pylist()
            ]
            check_again(str(out), last, rows)
            _write(out / f"{last}.json", rows)
            hold(str(out))
            _write(commits / str(last), {})
            planner.commit(end)
    except Exception as error:
        (out / "failure").write_text(f"{type(error).__name__}: {error}")


def _read(path: Path) -> Any:
    return json.loads(path.read_text().splitlines()[-1])


def _write(path: Path, content: Any) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(content))
    os.replace(part, path)


def connected(spark: Any) -> Any:
    """Return a Spark Connect session to the server in the JVM of ``spark``."""
    from pyspark.sql.connect.session import SparkSession

    service = getattr(spark.sparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    return SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()


def sink(out: str) -> Any:
    """Return the sink. It writes a file for each batch, which a repeated batch replaces."""

    def write(frame: Any, batch: int) -> None:
        # Spark Connect sends this function to its server, which can import this module.
        from tools.soak.spark_driver import check_again, hold

        rows = [(row["id"], row.asDict().get("_change_type", "insert")) for row in frame.collect()]
        check_again(out, batch, rows)
        part = os.path.join(out, f"{batch}.part")
        with open(part, "w") as file:
            json.dump(rows, file)
        os.replace(part, os.path.join(out, f"{batch}.json"))
        hold(out)

    return write


def hold(out: str) -> None:
    """Wait while the soak test delays commits, and create a marker file that shows the wait."""
    while (Path(out) / "hold").exists():
        (Path(out) / "held").touch()
        time.sleep(0.05)


def check_again(out: str, batch: int, rows: list[tuple[int, str]]) -> None:
    """Refuse a repeated batch with different rows, and create a marker file for one with equal rows."""
    before = Path(out) / f"{batch}.json"
    if not before.exists():
        return
    if sorted(map(tuple, json.loads(before.read_text()))) != sorted(rows):
        raise RuntimeError(f"Batch {batch} came again with other rows: {sorted(rows)} after {before.read_text()}.")
    before.with_suffix(".again").touch()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
