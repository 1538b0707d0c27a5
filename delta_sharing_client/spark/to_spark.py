"""Implements ``to_spark()``, which returns a read as a Spark DataFrame of our data source.

PySpark 3.5 has no Python data sources, and options are strings, which cannot represent all credentials. In these cases
the files are planned when the DataFrame is created, and read with ``mapInArrow``: one task per partition, with the same
code for planning, reading and types. Spark may write functions to disk, so the tasks get their parts as rows.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from delta_sharing_client.errors import UsageError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.spark import push_down, session_credentials
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES, DeltaSharingAlias, DeltaSharingSource
from delta_sharing_client.spark.file_options import FileOptions
from delta_sharing_client.spark.source_options import (
    SETTINGS,
    SparkOptions,
    limits,
    of_settings,
    request_options,
)
from delta_sharing_client.spark.spark_sessions import context_of
from delta_sharing_client.spark.types import has_chars, pad_chars, target_schema

if TYPE_CHECKING:
    from delta_sharing_client.assets.files import FileAsset
    from delta_sharing_client.protocol.profile import Profile
    from delta_sharing_client.read_base import Read

# Read options that may be necessary to reach the server or the storage, but that the data source lacks.
_BEYOND = (
    *("headers", "user_agent", "storage_options", "proxy", "ca_bundle", "client_certificate"),
    "min_bytes_per_second",
)
_OWN_VERSION = "{}.{}".format(*sys.version_info[:2])


def to_spark(read: Read, spark: SparkSession | None = None) -> DataFrame:
    """Return the snapshot or change data feed of ``read``, on ``spark`` or the active session.

    The executors read the rows when a query runs; all queries read the files that the first one planned.
    """
    return _frame(spark, read.rest.profile, read.options, str(read.table), request_options(read.request))


def files_to_spark(
    asset: FileAsset, spark: SparkSession | None, files: Mapping[str, Any], columns: Sequence[str] | None
) -> DataFrame:
    """Return files of ``asset`` as rows, on ``spark`` or the active session; ``files`` are the parameters of its method
    ``files``."""
    choice = FileOptions.of(asset, **files)
    narrowed = {} if columns is None else {"columns": json.dumps(list(columns))}
    path = f"{asset.full_name}/{choice.folder}"
    return _frame(spark, asset.rest.profile, asset.options, path, {**choice.texts(), **narrowed})


def _frame(
    spark: SparkSession | None, profile: Profile, limited: ReadOptions, path: str, reading: Mapping[str, object]
) -> DataFrame:
    """Return a read of ``path``, which the options ``reading`` describe, with the limits in ``limited``."""
    if spark is not None and not hasattr(spark, "createDataFrame"):
        raise UsageError(f"Expected a Spark session, found {type(spark).__name__}; omit it to use the active session.")
    session = spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    check_workers(session)
    options = {
        **reading,
        "parallelism": _parallelism(session),
        "maxPartitionBytes": session.conf.get("spark.sql.files.maxPartitionBytes"),
        **of_settings({name: session.conf.get(name, None) for name in SETTINGS}),
        **limits(limited),
    }
    fields = session_credentials.fields_of(profile)
    beyond = {name: getattr(limited, name) for name in _BEYOND}
    unsaid = {name: value for name, value in beyond.items() if value != getattr(ReadOptions(), name)}
    given = {name: str(value) for name, value in options.items() if value is not None}
    inline = fields or {"endpoint": profile.endpoint, "bearerToken": "-"}
    parsed = SparkOptions.parse({**given, **inline, "path": path})
    parsed = dataclasses.replace(parsed, profile=profile, limits={**parsed.limits, **unsaid}).for_batch()
    source = DeltaSharingAlias({}, parsed)
    # Sends the request here, so that errors are raised by this library directly.
    schema = source.schema()
    if not HAS_DATA_SOURCES or fields is None or unsaid:
        return planned_frame(session, source, schema)
    given.update(session_credentials.given_to(session, fields))
    given |= {"loadedVersion": str(source.described_version), "loaded": source.loaded.text()}
    push_down.register(session)
    if not push_down.works(session):
        return session.read.format(DeltaSharingAlias.name()).schema(schema).options(**given).load(path)
    with push_down.classes(session) as reader:
        frame = reader.schema(schema).options(**given).load(path)
    # Some operations, such as writeTo, resolve the frame's own plan again, after Spark has lost sight of the classes.
    # The plan of a frame made from it is resolved.
    return frame if context_of(session) is None else frame.select("*")


def planned_frame(session: SparkSession, source: DeltaSharingSource, schema: StructType) -> DataFrame:
    """Return the batch read of ``source``, which has ``schema``, as a DataFrame that uses no data source."""
    reader = source.batch_reader(schema)
    # The parts are pickled one by one, so that a task unpickles only its own part. cloudpickle also pickles functions
    # that return a token.
    parts: list[bytes] = [cloudpickle.dumps(part) for part in reader.plan()]  # type: ignore[no-untyped-call]
    if not parts:
        return session.createDataFrame([], schema)
    if context_of(session) is not None:
        return _rows(session, parts).mapInArrow(functools.partial(_read, schema, _as_sent), schema)
    sent = session_credentials.send_parts(session, parts)
    return session.range(0, len(parts), 1, len(parts)).mapInArrow(functools.partial(_read, schema, sent.part), schema)


def _rows(session: SparkSession, parts: Sequence[bytes]) -> DataFrame:
    """Return ``parts`` as rows of a classic session, one per task.

    The parts contain credentials. PySpark's own ways to send data write it to files: those of ``createDataFrame`` as
    well as functions of more than a megabyte. The JVM's rows are part of the tasks, which stay in memory.
    """
    context = context_of(session)
    jvm = context._jvm
    rows = jvm.java.util.ArrayList(len(parts))
    for part in parts:
        values = context._gateway.new_array(jvm.java.lang.Object, 1)
        values[0] = part
        rows.add(jvm.org.apache.spark.sql.RowFactory.create(values))
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL("part BINARY")
    found = session._jsparkSession.createDataFrame(context._jsc.parallelize(rows, len(parts)), schema)
    return DataFrame(found, session)


def _as_sent(part: bytes) -> bytes:
    return part


def _read(
    schema: StructType, opened: Callable[[Any], bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the parts that the first column of ``batches`` contains; ``opened`` returns their pickles."""
    target, padded = target_schema(schema), has_chars(schema)
    for batch in batches:
        for sent in batch.column(0).to_pylist():
            for found in pickle.loads(opened(sent)).read(target):
                yield pad_chars(found, schema) if padded else found


def check_workers(session: SparkSession) -> None:
    """Check that the Python workers of a session can run this package.

    Raises ``UsageError``, which names ``PYSPARK_PYTHON``, if they run a different interpreter that lacks the package or
    has a different Python version.
    """
    # The workers of a Spark Connect server are not visible from here.
    context = context_of(session)
    program = None if context is None else context.pythonExec
    if program is None or _place(program) == _place(sys.executable):
        return
    wrong = _what_lacks(program)
    if wrong is not None:
        raise UsageError(
            f"The Python workers of this Spark session run '{program}', which {wrong}; they must be able to import "
            f"delta_sharing_client in Python {_OWN_VERSION}. Set the environment variable PYSPARK_PYTHON to "
            f"'{sys.executable}' before the session is created."
        )


@functools.cache
def _what_lacks(program: str) -> str | None:
    ask = """if True:
        import sys
        print(*sys.version_info[:2], sep=".")
        try:
            import delta_sharing_client.sources.planning, delta_sharing_client.run.partitions
        except ImportError as error:
            print(error)
    """
    try:
        completed = subprocess.run([program, "-c", ask], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"cannot be run ({type(error).__name__})"
    version, *problem = completed.stdout.splitlines()
    if version != _OWN_VERSION:
        return f"is Python {version}"
    return f"says: {problem[0]}" if problem else None


def _place(program: str) -> str:
    return os.path.abspath(shutil.which(program) or program)


def _parallelism(session: SparkSession) -> int | None:
    # With Spark Connect, the result is ``None``, so the cores of this machine are counted.
    context = context_of(session)
    return None if context is None else int(context.defaultParallelism)
