"""The one Spark session that all Spark tests share; a server for tables that tests write."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES
from tests.effort import ALL
from tests.spark import forked_python

# PySpark 3.5 lacks the modules that these tests import.
collect_ignore = [] if HAS_DATA_SOURCES else ["test_batch.py", "test_types.py"]

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Queries in these tests end before optimized code would pay off.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def make_spark_home(home: pathlib.Path) -> pathlib.Path:
    """Create a ``SPARK_HOME`` without the zipped PySpark: each Python worker would spend a second compiling it."""
    import pyspark

    source = pathlib.Path(pyspark.__file__).parent
    (home / "python" / "lib").mkdir(parents=True)
    for entry in source.iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    return home


@contextlib.contextmanager
def quick_workers(factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the hundreds of Python workers that Spark starts share compiled modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("SPARK_HOME", str(make_spark_home(factory.mktemp("home") / "spark")))
        yield


@contextlib.contextmanager
def forked_workers(folder: pathlib.Path) -> Iterator[None]:
    """Fork Python workers from a process that has imported everything; with ``TEST_EFFORT=all`` start each one
    normally."""
    if ALL or not HAS_DATA_SOURCES or not hasattr(os, "pidfd_open"):
        yield
        return
    program, place, python = forked_python.__file__, folder / "socket", folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{program}" run "{place}" "$@"\n')
    python.chmod(0o700)
    environment = {**os.environ, "PYTHONHASHSEED": "0"}  # as Spark does for its workers
    server = subprocess.Popen(
        [sys.executable, program, "serve", str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with pytest.MonkeyPatch.context() as patch, server:
        assert server.stdout.readline() == b"ready\n"
        patch.setenv("PYSPARK_PYTHON", str(python))
        patch.setenv("PYSPARK_DRIVER_PYTHON", str(python))
        yield
        server.stdin.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A classic session on ``local[2]``; its JVM also runs a Spark Connect server on its own port."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("delta-sharing-client")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    if HAS_DATA_SOURCES:  # PySpark 3.5 has no Spark Connect server
        builder = builder.config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        builder = builder.config("spark.connect.grpc.binding.port", "0")
    with quick_workers(tmp_path_factory), forked_workers(tmp_path_factory.mktemp("forked")):
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture
def own_class_path(spark: Any) -> Iterator[Any]:
    """The session of all tests; changes to its class path are visible only on this thread and in this test."""
    from delta_sharing_client.spark import push_down

    jvm = spark.sparkContext._jvm
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    none = spark.sparkContext._gateway.new_array(jvm.java.net.URL, 0)
    thread.setContextClassLoader(jvm.org.apache.spark.util.MutableURLClassLoader(none, before))
    yield spark
    thread.setContextClassLoader(before)
    push_down._checked.pop(spark, None)


@pytest.fixture(scope="session")
def connect_url(spark: Any) -> str:
    """The address for ``SparkSession.builder.remote``."""
    service = getattr(spark.sparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return f"sc://localhost:{getattr(service, 'MODULE$').localPort()}"
