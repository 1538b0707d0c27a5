"""A tour of the client, with a server with sample tables: ``bash scripts/demo``.

Each step prints the code or command, and then its output. ``--keep`` leaves the server
running at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import delta_sharing_client as ds
import pandas as pd
from delta_sharing_client.cli import main as delta_sharing

START_SECONDS = 60
ORDERS = "demo.shop.orders"
READINGS = "demo.weather.readings"
REFUNDS = "demo.lake.refunds"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keep", action="store_true", help="leave the server running at the end, until Ctrl-C"
    )
    parser.add_argument(
        "--no-spark", action="store_true", help="skip the part that uses Spark"
    )
    arguments = parser.parse_args()
    pd.set_option("display.width", 120, "display.max_columns", 20)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="delta-sharing-tour-"))
        # If the server keeps running, its profile is written to the working directory.
        profile = Path.cwd() / "demo.share" if arguments.keep else Path(folder) / "demo.share"
        stack.enter_context(demo_server(profile, Path(folder) / "server.log"))
        look_around(profile)
        read_rows(profile)
        read_history(profile)
        read_iceberg(profile)
        if arguments.no_spark:
            say("Spark is skipped, as requested.")
        elif shutil.which("java") is None:
            say("There is no java on the path, so the Spark part is skipped.")
        else:
            read_as_spark(profile)
        if not arguments.keep:
            say("To try it yourself: bash scripts/demo --keep")
            return
        say(f"The server runs until Ctrl-C. In another terminal, with {profile.name}:")
        print(f".ci/env/bin/delta-sharing --profile {profile.name} head {ORDERS}")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


def look_around(profile: Path) -> None:
    """List the shared tables and describe one, on the command line."""
    command("ls", profile)
    command(f"describe {ORDERS}", profile)


def read_rows(profile: Path) -> None:
    """Read a whole table into pandas, then only some columns and rows."""
    url = f"{profile}#{ORDERS}"
    say(f'ds.load_as_pandas("{profile.name}#{ORDERS}")')
    print(ds.load_as_pandas(url))
    table = ds.SharingClient(profile).table(ORDERS)
    condition = "amount > 100 AND country = 'DE'"
    say(
        f'table.scan(columns=["order_id", "country", "amount"], filter="{condition}", limit=5)'
    )
    scan = table.scan(columns=["order_id", "country", "amount"], filter=condition, limit=5)
    print(scan.to_pandas())
    print(scan.report)


def read_history(profile: Path) -> None:
    """Read an earlier version, and the changes since then."""
    table = ds.SharingClient(profile).table(ORDERS)
    say(f"The table at version 0, and at version {table.version()}, the latest")
    print(f"{table.scan(version=0).count()} rows, then {table.scan().count()}")
    say("table.changes(starting_version=1), counted")
    changes = table.changes(starting_version=1).to_pandas()
    print(
        changes.groupby(["_commit_version", "_change_type"], observed=True).size().to_string()
    )


def read_iceberg(profile: Path) -> None:
    """Read an Iceberg table: its snapshots, a tag, and row ids."""
    table = ds.SharingClient(profile).table(REFUNDS)
    say(f'An Iceberg table: client.table("{REFUNDS}"), and its history()')
    for snapshot in table.history():
        print(f"{snapshot.timestamp:%d %B %Y}  {snapshot.operation:9}  {snapshot.version}")
    say('table.scan(version="january") reads a tag, table.scan(row_lineage=True) ids of rows')
    print(f"{table.scan(version='january').count()} rows, then {table.scan().count()}")
    print(table.scan(filter="_row_id < 5", row_lineage=True).to_pandas())


def read_as_spark(profile: Path) -> None:
    """Read the same table as a Spark DataFrame, and follow another one with a stream."""
    from pyspark.sql import DataFrame, SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    say("Spark starts and prints its messages")

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("tour")
        .config("spark.sql.shuffle.partitions", "2")
    )
    builder = builder.config("spark.ui.enabled", "false").config(
        "spark.ui.showConsoleProgress", "false"
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    say(
        f'spark.read.format("deltaSharing").load("{profile.name}#{ORDERS}").groupBy("country").count()'
    )
    orders = spark.read.format("deltaSharing").load(f"{profile}#{ORDERS}")
    orders.groupBy("country").count().orderBy("country").show()

    def show(batch: DataFrame, number: int) -> None:
        latest = batch.agg({"taken_at": "max"}).first()[0]
        print(f"batch {number}: {batch.count()} readings, the latest of {latest}")

    say('spark.readStream.format("deltaSharing").options(startingVersion=0, ...).load(...)')
    stream = spark.readStream.format("deltaSharing").options(
        startingVersion=0, maxFilesPerTrigger=4
    )
    with tempfile.TemporaryDirectory(prefix="delta-sharing-tour-") as checkpoint:
        writer = stream.load(f"{profile}#{READINGS}").writeStream.foreachBatch(show)
        writer.option("checkpointLocation", checkpoint).trigger(
            availableNow=True
        ).start().awaitTermination()
    spark.stop()


@contextlib.contextmanager
def demo_server(profile: Path, log: Path) -> Iterator[None]:
    """Run ``python -m mock_server --demo`` while the block runs; it writes ``profile``."""
    profile.unlink(missing_ok=True)
    arguments = ["--demo", "--port", "0", "--profile-out", str(profile)]
    say(f"python -m mock_server {' '.join(arguments)}")
    with log.open("w") as sink:
        server = subprocess.Popen(
            [sys.executable, "-m", "mock_server", *arguments], stdout=sink, stderr=sink
        )
    try:
        wait_for(profile, server, log)
        yield
    finally:
        server.terminate()
        server.wait(START_SECONDS)


def wait_for(profile: Path, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not profile.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"The server did not start:\n{log.read_text()}")
        time.sleep(0.05)


def command(line: str, profile: Path) -> None:
    say(f"delta-sharing {line}")
    if code := delta_sharing(["--profile", str(profile), *line.split()]):
        raise SystemExit(code)


def say(text: str) -> None:
    print(
        f"\n\033[1m>>> {text}\033[0m" if sys.stdout.isatty() else f"\n>>> {text}", flush=True
    )


if __name__ == "__main__":
    main()
