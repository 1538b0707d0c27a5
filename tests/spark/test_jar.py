"""With the jar, ``format("deltaSharing")``, SQL views and tables, and configured catalogs push conditions down as
well."""

from __future__ import annotations

import atexit
import pathlib
import zipfile
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client.errors import UsageError
from delta_sharing_client.spark import push_down
from tests.spark.test_push_down import cost, ids, url

pytestmark = pytest.mark.spark

__all__ = ["url"]


@pytest.fixture
def added(own_class_path: Any, tmp_path: pathlib.Path) -> Any:
    assert "PushedFilters" not in plan(own_class_path.range(1).where("id > 0"))
    jar = tmp_path / "100%20 #1.jar"
    ds.write_spark_jar(jar)
    ds.add_spark_jar(own_class_path, jar)
    return own_class_path


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The temporary home directory of this test."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


def plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().toString())


def test_jar_has_the_classes_and_registers_the_format(spark: Any, home: pathlib.Path) -> None:
    ds.write_spark_jar("~/a.jar")
    with zipfile.ZipFile(home / "a.jar") as jar:
        names = jar.namelist()
        assert jar.read("META-INF/services/org.apache.spark.sql.sources.DataSourceRegister").decode() == (
            push_down.FORMAT + "\n"
        )
        assert jar.read(push_down.FORMAT.replace(".", "/") + ".class")[:4] == b"\xca\xfe\xba\xbe"
    assert push_down.CATALOG.replace(".", "/") + ".class" in names


def test_folder_of_the_jar_may_be_gone_when_python_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", lambda call, *args, **named: at_exit.append(partial(call, *args, **named)))
    folder = push_down._folder.__wrapped__()
    assert pathlib.Path(folder).is_dir()
    for call in at_exit * 2:
        call()
    assert not pathlib.Path(folder).exists()


def test_catalog_cannot_have_the_name_of_global_views() -> None:
    settings = {"spark.sql.globalTempDatabase": "Shared_Views", "spark.sql.catalog.taken": "org.example.Catalog"}
    session: Any = SimpleNamespace(conf=SimpleNamespace(get=settings.get))
    for name in ("shared_views", "SHARED_VIEWS"):
        with pytest.raises(UsageError, match=f"Spark reserves '{name}'"):
            push_down._check_catalog(session, name)
    with pytest.raises(UsageError, match=r"already has a catalog 'taken', of the class org\.example\.Catalog"):
        push_down._check_catalog(session, "taken")
    push_down._check_catalog(session, "global_temp_2")


def test_format_fetches_as_many_bytes_as_load_as_spark(added: Any, lake: Any, url: str) -> None:
    frame = added.read.format("deltaSharing").load(url)
    query = frame.where("id > 11 AND p = 'p1'").select("id", "s.x")
    assert "PushedFilters: [id > 11, id IS NOT NULL, p = 'p1', p IS NOT NULL]" in plan(query)
    found, fetched, _ = cost(lake, lambda: ids(query))
    assert found == [12, 30, 31, 32]
    loaded = ds.load_as_spark(url, spark=added).where("id > 11 AND p = 'p1'").select("id", "s.x")
    assert cost(lake, loaded.collect)[1] == fetched > 0
    assert frame.count() == 12
    added.conf.set("spark.sql.files.maxPartitionBytes", "3m")  # opening a file counts as 2 MiB
    try:
        parts = [added.read.format("deltaSharing").load(url).rdd.getNumPartitions()]
    finally:
        added.conf.unset("spark.sql.files.maxPartitionBytes")
    parts.append(added.read.format("deltaSharing").option("parallelism", "1").load(url).rdd.getNumPartitions())
    assert parts == [3, 1]
    narrow = added.read.format("deltaSharing").schema("id bigint, p string").load(url)
    assert (narrow.columns, ids(narrow.where("id > 30"))) == (["id", "p"], [31, 32])


def test_frame_with_the_jar_reads_one_version(added: Any, lake: Any, url: str) -> None:
    for reader in (added.read, added.read.schema("id bigint")):
        frame = reader.format("deltaSharing").option("versionAsOf", "2").load(url)
        assert ids(frame.where("id >= 0").union(frame.where("id < 0"))) == [0, 1, 2, 10, 11, 12]
        assert frame.where("id > 11").count() == 1


def test_push_down_with_the_jar_can_be_disabled(added: Any, lake: Any, url: str) -> None:
    def read(reader: Any) -> Any:
        return reader.format("deltaSharing").load(url).where("id > 11")

    narrow = added.read.schema("id bigint")
    off = [read(added.read.option("pushDown", "false")), read(narrow.option("pushdown", "FALSE"))]
    added.conf.set(push_down.SWITCH, "false")
    try:
        off.append(read(added.read))
    finally:
        added.conf.unset(push_down.SWITCH)
    assert ["PushedFilters" in plan(frame) for frame in (*off, read(added.read))] == [False, False, False, True]
    assert [frame.count() for frame in off] == [7, 7, 7]


def test_queries_on_sql_views_and_tables_are_pushed_down(added: Any, lake: Any, url: str) -> None:
    added.sql(f"CREATE OR REPLACE TEMPORARY VIEW jar_v USING deltaSharing OPTIONS (path '{url}', versionAsOf '4')")
    for place in (f"OPTIONS (path '{url}', maxAttempts '3')", f"LOCATION '{url}'"):
        added.sql(f"CREATE TABLE jar_t USING deltaSharing {place}")
        try:
            query = added.sql("SELECT t.id FROM jar_t t JOIN jar_v v ON t.id = v.id WHERE t.p = 'p1' AND v.id > 11")
            assert plan(query).count("PushedFilters") >= 2
            assert ids(query) == [12, 30, 31, 32]
        finally:
            added.sql("DROP TABLE jar_t")
    assert pathlib.Path(url.split("#")[0]).exists()


def test_catalog_in_a_spark_setting_is_queried_by_sql(added: Any, lake: Any, url: str) -> None:
    added.conf.set("spark.sql.catalog.set", push_down.CATALOG)
    added.conf.set("spark.sql.catalog.set.profile", url.split("#")[0])
    query = added.sql("SELECT id FROM set.share.schema.t VERSION AS OF 3 WHERE id > 11")
    assert "PushedFilters: [id > 11" in plan(query)
    assert ids(query) == [12, 20, 21, 22]


def test_profile_may_be_an_option_or_a_spark_setting(added: Any, lake: Any, url: str) -> None:
    profile, table = url.split("#")
    assert added.read.format("deltaSharing").option("profile", profile).load(table).count() == 12
    with pytest.raises(Exception, match=r"The path 'share\.schema\.t' names no profile"):
        added.read.format("deltaSharing").load(table)
    name = "spark.delta.sharing.profile"
    added.conf.set(name, profile)
    added.conf.set("spark.sql.catalog.named", push_down.CATALOG)
    try:
        added.sql(f"CREATE OR REPLACE TEMPORARY VIEW jar_named USING deltaSharing OPTIONS (path '{table}')")
        for frame in (
            added.read.format("deltaSharing").load(table),
            added.read.format("deltaSharing").schema("id bigint").load(table),
            added.read.format("deltaSharing").option("pushDown", "false").load(table),
            added.table("jar_named"),
            ds.load_as_spark(table, spark=added),
            ds.load_as_spark(f"#{table}"),
            added.table(f"named.{table}"),
        ):
            assert frame.count() == 12
        assert [row[0] for row in added.sql("SHOW NAMESPACES IN named").collect()] == ["share"]
        ds.attach(added, name="attached")
        assert added.table(f"attached.{table}").count() == 12
        added.conf.set(name, "/none.share")
        assert added.read.format("deltaSharing").load(url).count() == 12
        with pytest.raises(Exception, match=r"There is no profile file at '/none\.share'"):
            added.read.format("deltaSharing").load(table)
    finally:
        added.conf.unset(name)


def test_settings_of_the_jvm_connector_are_applied(added: Any, lake: Any, url: str) -> None:
    name = "spark.delta.sharing.network.numRetries"
    added.conf.set(name, "none")
    try:
        with pytest.raises(Exception, match=f"Invalid value 'none' for option '{name}'"):
            added.read.format("deltaSharing").load(url)
        with pytest.raises(UsageError, match=f"Invalid value 'none' for option '{name}'"):
            ds.load_as_spark(url, spark=added)
        added.conf.set(name, "1")
        lake.server.expire_urls()
        assert added.read.format("deltaSharing").load(url).where("id > 30").count() == 2
    finally:
        added.conf.unset(name)


def test_stream_with_the_jar_reads_rows_and_errors_are_ours(
    added: Any, lake: Any, url: str, tmp_path: pathlib.Path
) -> None:
    frame = added.readStream.format("deltaSharing").option("startingVersion", 3).load(url)
    for name, rest in (("jar_s", frame), ("jar_j", frame.join(added.range(100), "id"))):
        stream = rest.writeStream.format("memory").queryName(name)
        query = stream.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert ids(added.table(name)) == [20, 21, 22, 30, 31, 32]
    with pytest.raises(Exception, match=r"^Reading the metadata of share\.schema\.none failed"):
        added.read.format("deltaSharing").load(lake.url("none"))
    with pytest.raises(Exception, match="Did you mean 'versionAsOf'"):
        added.read.format("deltaSharing").option("versionAsOff", "1").load(url)
    with pytest.raises(Exception, match=r"does not (support batch write|allow)"):
        added.range(1).write.format("deltaSharing").mode("append").save(url)


# --- when the jar cannot be used ---


def test_jar_of_the_jvm_connector_keeps_the_format_name(own_class_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_down, "_CONNECTOR", "java.lang.String")
    with pytest.raises(UsageError, match="jar of the JVM connector"):
        ds.add_spark_jar(own_class_path)


def test_broken_jar_is_reported(own_class_path: Any, home: pathlib.Path) -> None:
    (home / "no.jar").write_bytes(b"no zip")
    with pytest.raises(UsageError, match="does not work in this session"):
        ds.add_spark_jar(own_class_path, "~/no.jar")


def test_jar_is_refused_by_pyspark_without_data_sources(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(push_down, "HAS_DATA_SOURCES", False)
    for ask in (lambda: ds.add_spark_jar(spark), lambda: ds.write_spark_jar(tmp_path / "a.jar")):
        with pytest.raises(UsageError, match=r"needs PySpark 4\.0 or newer, found .*load_as_spark"):
            ask()
    assert not (tmp_path / "a.jar").exists()


def test_without_java_the_jar_must_be_provided(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    def none() -> None:
        raise RuntimeError("JAVA_GATEWAY_EXITED")

    # The JVM of the other tests must be hidden.
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", none)
    with pytest.raises(UsageError, match="Write it on a machine that has Spark"):
        ds.write_spark_jar(tmp_path / "a.jar")
