"""Passes ``where``, ``select`` and ``limit`` of a query to the Python data source of its scan.

Spark does not do this, so the classes of ``PushDown.java`` do; Janino, which Spark ships, compiles them in the driver.
They use internal classes of Spark, so they are tested in each session first; if the test fails, DataFrames are created
without them.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.resources
import logging
import os
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyspark

from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import UsageError
from delta_sharing_client.local_paths import expanded
from delta_sharing_client.protocol.profile import ProfileSource
from delta_sharing_client.spark import self_check, session_credentials
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES, DeltaSharingAlias
from delta_sharing_client.spark.source_options import PROFILE_SETTING
from delta_sharing_client.spark.spark_sessions import context_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

CATALOG = "delta_sharing_client.spark.ShareCatalog"
FORMAT = "delta_sharing_client.spark.PushDown"
SWITCH = "spark.delta.sharing.pushDown"
_SOURCE = "PushDown.java"
_RESERVED = ("spark_catalog", "system")
_SERVICE = "org.apache.spark.sql.sources.DataSourceRegister"
_CONNECTOR = "io.delta.sharing.spark.DeltaSharingDataSource"
_LOG = logging.getLogger(__name__)
# For each JVM, the class loader of the compiled classes; for each session, whether they work.
_loaders: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_checked: weakref.WeakKeyDictionary[SparkSession, bool] = weakref.WeakKeyDictionary()


def works(session: SparkSession) -> bool:
    """Return whether the format ``FORMAT`` works in ``session``. The first call tests this and logs a failure. The
    setting ``spark.delta.sharing.pushDown`` can turn push-down off."""
    if _is_off(session):
        return False
    if session not in _checked:
        if context_of(session) is None and not _has_jar(session):
            return False  # the JVM is remote, and a jar may be added later
        try:
            _check(session)
            _checked[session] = True
        except Exception as error:  # whatever the reason, reads work without push-down
            _checked[session] = False
            _warn(_reason(error))
    return _checked[session]


@functools.cache
def _warn(reason: str) -> None:
    # Once for each reason, because a program may have many sessions.
    _LOG.warning(
        "Spark reads shared tables without push-down, so 'where' and 'select' do not reduce downloads; use the "
        "arguments 'columns' and 'filter'. The push-down classes do not work with this Spark: %s",
        reason,
    )


def _reason(error: Exception) -> str:
    """Return the line of ``error`` that says what is wrong: of a Python worker's error the last line of its traceback,
    of Java's error the first line that is not Py4J's."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.toString())
    before, is_traceback, after = text.rpartition("Traceback (most recent call last):")
    lines = [line.strip() for line in (after if is_traceback else text).splitlines() if line[:1].strip()]
    return lines[0] if lines else f"{type(error).__name__} {before.strip()}".strip()


def _is_off(session: SparkSession) -> bool:
    return str(session.conf.get(SWITCH, "true")).lower() == "false"


@contextlib.contextmanager
def classes(session: SparkSession) -> Iterator[DataFrameReader]:
    """Make Spark find ``FORMAT`` on this thread during the block, and yield a reader with this format."""
    if context_of(session) is None:
        yield session.read.format(FORMAT)
        return
    jvm: Any = session.sparkContext._jvm
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    if jvm not in _loaders:
        compiler = _compiled(jvm, before)
        loader = compiler.getClassLoader()
        # All classes are loaded now: a class that is loaded after add_spark_jar would come from the jar, which has
        # different classes of the same names.
        for name in compiler.getBytecodes():
            loader.loadClass(name)
        _loaders[jvm] = loader
    thread.setContextClassLoader(_loaders[jvm])
    try:
        yield session.read.format(FORMAT)
    finally:
        thread.setContextClassLoader(before)


def _compiled(jvm: Any, parent: Any) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)  # required for static methods of interfaces
    compiler.setParentClassLoader(parent)
    compiler.cook(importlib.resources.files(__package__).joinpath(_SOURCE).read_text(encoding="utf-8"))
    return compiler


# === The jar ===


def profile_setting(session: SparkSession | None) -> str | None:
    """Return the profile that a setting of ``session``, or of the active one, names."""
    from pyspark.sql import SparkSession

    session = session or SparkSession.getActiveSession()
    return None if session is None else session.conf.get(PROFILE_SETTING, None) or None


def write_spark_jar(path: str | os.PathLike[str]) -> None:
    """Write a jar of the compiled classes and their service entry; see ``loaders.write_spark_jar``."""
    _check_version()
    own: Any = None
    try:
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is None or context_of(session) is None:
            own = launch_gateway()  # type: ignore[no-untyped-call]
        jvm: Any = session.sparkContext._jvm if own is None and session is not None else own.jvm
    except Exception as error:  # PySpark has several session classes
        raise UsageError(
            f"The jar cannot be compiled here, because Java or Spark's jars are missing ({type(error).__name__}). "
            "Write it on a machine that has Spark, and give its path."
        ) from None
    try:
        parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        codes = _compiled(jvm, parent).getBytecodes()
        with zipfile.ZipFile(expanded(path), "w", zipfile.ZIP_DEFLATED) as jar:
            for name in sorted(codes):
                jar.writestr(name.replace(".", "/") + ".class", bytes(codes[name]))
            jar.writestr(f"META-INF/services/{_SERVICE}", FORMAT + "\n")
    finally:
        if own is not None:
            own.shutdown()


def add_spark_jar(spark: SparkSession, jar: str | os.PathLike[str] | None = None) -> None:
    """Add the classes to ``spark`` and test them; see ``loaders.add_spark_jar``."""
    _check_version()
    if not _has_jar(spark):
        if jar is None:
            jar = os.path.join(_folder(), "delta-sharing-spark.jar")
            write_spark_jar(jar)
        _add(spark, os.path.abspath(expanded(jar)))
        _checked.pop(spark, None)
    failure = _jar_failure(spark)
    if failure is not None or not works(spark):
        reason = "the log says why" if failure is None else _reason(failure).rstrip(".")
        raise UsageError(
            f"The jar does not work in this session: {reason}. Use load_as_spark, or the options 'columns' and "
            "'filter'."
        )


def _check_version() -> None:
    if not HAS_DATA_SOURCES:
        raise UsageError(
            f"The jar needs PySpark 4.0 or newer, found {pyspark.__version__}, which has no Python data sources. Read "
            "with load_as_spark; its arguments 'columns' and 'filter' make a read smaller."
        )


def _add(session: SparkSession, jar: str) -> None:
    if context_of(session) is None:
        session.addArtifact(jar)
        return
    jvm: Any = session.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if _can_load(loader, _CONNECTOR):
        raise UsageError(
            "The jar of the JVM connector is on the class path, so two sources would be called 'deltaSharing'. Use "
            "load_as_spark, or remove that jar."
        )
    try:
        loader.addURL(jvm.java.io.File(jar).toURI().toURL())
    except Exception:  # the class loader is of a different kind
        raise UsageError(f"Spark's class loader accepts no more jars. Start Spark with '--jars {jar}'.") from None


def _can_load(loader: Any, name: str) -> bool:
    try:
        loader.loadClass(name)
    except Exception:  # Py4J uses one class for all Java objects
        return False
    return True


def _has_jar(session: SparkSession) -> bool:
    """Return whether ``session`` finds ``FORMAT`` by itself."""
    return _jar_failure(session) is None


def _jar_failure(session: SparkSession) -> Exception | None:
    try:
        session.read.format(FORMAT).schema(self_check.SCHEMA).option(self_check.OPTION, "true").load("check").schema  # noqa: B018
    except Exception as error:  # the exception's class depends on the Spark version and the session type
        return error
    return None


@functools.cache
def _folder() -> str:
    # Classes are loaded from the jar on first use, so the jar must exist for as long as the JVM runs.
    folder = tempfile.mkdtemp(prefix="delta-sharing-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


# === The catalog ===


def attach(session: SparkSession, profile: ProfileSource, name: str) -> None:
    """Create a catalog ``name`` in ``session`` for the tables of ``profile``; see ``loaders.attach``."""
    _check_catalog(session, name)
    named = profile_setting(session) if profile is None else profile
    fields = session_credentials.fields_of(SharingClient(named)._rest.profile)
    if fields is None:
        raise UsageError(
            "These credentials cannot be passed to a Spark catalog: they are signed, have an audience, or come from "
            "a file or a function. Load the tables one by one with load_as_spark."
        )
    if context_of(session) is None and not _has_jar(session):
        raise UsageError("A catalog in Spark Connect needs the jar: call add_spark_jar(spark) before attach.")
    if _is_off(session):
        raise UsageError(
            f"A catalog needs push-down, which the setting '{SWITCH}' turns off. Set it to 'true' before attach, or "
            "load the tables one by one with load_as_spark."
        )
    if not works(session):
        raise UsageError(
            "A catalog needs PySpark 4.0 or newer, and push-down, which does not work in this session; the log says "
            "why. Load the tables one by one with load_as_spark."
        )
    session.conf.set(f"spark.sql.catalog.{name}", CATALOG)
    options = session_credentials.given_to(session, fields)
    with classes(session) as reader:
        # Spark loads the catalog here, with the class loader of this thread, and keeps it for the session.
        reader.options(**options).option("attach", name).load().schema  # noqa: B018


def _check_catalog(session: SparkSession, name: str) -> None:
    """Refuse a ``name`` that a catalog already has: a different catalog must not receive the credentials."""
    if not name.isidentifier():
        raise UsageError(f"'{name}' cannot be the name of a catalog. Use letters, digits and underscores.")
    views = session.conf.get("spark.sql.globalTempDatabase", "global_temp")
    if name.lower() in (*_RESERVED, str(views).lower()):
        raise UsageError(f"Spark reserves '{name}', so it cannot be the name of a catalog. Choose another name.")
    other = session.conf.get(f"spark.sql.catalog.{name}", None)
    if other not in (None, CATALOG):
        raise UsageError(f"This session already has a catalog '{name}', of the class {other}. Choose another name.")


# === The self-check ===


def _check(session: SparkSession) -> None:
    """Run a query with a condition and a query without columns, in one job. Raises ``ValueError`` if the rows are
    wrong.

    The queries use our own format, because Spark starts Python processes for each format, and later reads reuse these
    processes.
    """
    register(session)
    with classes(session) as reader:
        frame = reader.schema(self_check.SCHEMA).option(self_check.OPTION, "true").load("check")
    found = frame.where(self_check.CONDITION).selectExpr("id", "s.y").union(frame.selectExpr("count(*)", "0")).collect()
    if sorted(map(tuple, found)) != [(4, 0), (4, 4)]:
        raise ValueError(f"A query with known rows returned {found}.")


def register(session: SparkSession) -> None:
    """Register the data source under our own name, which no jar uses, unless ``session`` already finds it.

    PySpark usually finds it, and logs a warning if it is registered again. With Spark Connect the server finds it.
    """
    if context_of(session) is None:
        return
    sources: Any = session._jsparkSession.sessionState().dataSourceManager()
    if not sources.dataSourceExists(DeltaSharingAlias.name()):
        session.dataSource.register(DeltaSharingAlias)
