"""Tables that ``CREATE TABLE ... USING deltaSharing`` defines in Spark's own catalog (with the jar)."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from tests.spark.test_push_down import ids
from tests.tables import TableWriter

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def added(own_class_path: Any) -> Iterator[Any]:
    ds.add_spark_jar(own_class_path)
    yield own_class_path
    for row in own_class_path.sql("SHOW TABLES").collect():
        if row.tableName.startswith("def_"):
            own_class_path.sql(f"DROP TABLE {row.tableName}")


@pytest.fixture
def profile(lake: Any, tmp_path: pathlib.Path) -> pathlib.Path:
    """The profile file of a server with the table ``share.schema.t``; the test may change or delete it."""
    writer = TableWriter(lake.root / "t", SCHEMA)
    for number in range(3):
        writer.insert([{"id": number, "v": f"v{number}"}])
    path = tmp_path / "own profile.share"
    path.write_text(json.dumps(dict(lake.server.profile)))
    return path


def defined(spark: Any, name: str, rest: str) -> None:
    spark.sql(f"CREATE TABLE {name} USING deltaSharing {rest}")


def test_properties_of_other_programs_change_nothing(added: Any, profile: pathlib.Path) -> None:
    notes = {"team": "sales", "Team.owner": "x", "type": "fact", "endpoint": "https://other.example", "scope": "pii"}
    notes |= {"profile": "/none.share", "spark.delta.sharing.profile": "/none.share", "settings": "{"}
    written = ", ".join(f"'{name}' = '{value}'" for name, value in notes.items())
    defined(added, "def_a", f"LOCATION '{profile}#share.schema.t' COMMENT 'orders' TBLPROPERTIES ({written})")
    assert ids(added.table("def_a")) == [0, 1, 2]
    added.sql("ALTER TABLE def_a SET TBLPROPERTIES ('steward' = 'y')")
    added.sql("COMMENT ON TABLE def_a IS 'text'")
    added.sql("ALTER TABLE def_a ALTER COLUMN id COMMENT 'the key'")
    added.sql("ALTER TABLE def_a UNSET TBLPROPERTIES ('team')")
    assert ids(added.sql("SELECT id FROM def_a WHERE id > 0")) == [1, 2]
    added.sql("DROP TABLE def_a")


def test_options_of_a_definition_are_applied_or_refused(added: Any, profile: pathlib.Path) -> None:
    defined(added, "def_a", f"OPTIONS (path '{profile}#share.schema.t', Columns 'id', versionAsOf '2')")
    assert added.table("def_a").columns == ["id"]
    assert ids(added.table("def_a")) == [0, 1]
    defined(added, "def_b", f"LOCATION '{profile}#share.schema.t' TBLPROPERTIES ('filter' = 'id > 1')")
    assert ids(added.table("def_b")) == [2]
    with pytest.raises(Exception, match="Did you mean 'columns'"):
        defined(added, "def_c", f"OPTIONS (path '{profile}#share.schema.t', colums 'id')")
    with pytest.raises(Exception, match="Option 'columns' cannot be set by a query"):
        added.sql("SELECT * FROM def_b WITH (columns = 'id')").collect()


def test_short_path_is_the_name_of_the_shared_table(added: Any, profile: pathlib.Path) -> None:
    defined(added, "def_a", f"OPTIONS (path 'share.schema.t', profile '{profile}')")
    assert ids(added.table("def_a").where("id > 0")) == [1, 2]
    added.conf.set("spark.delta.sharing.profile", str(profile))
    try:
        defined(added, "def_b", "LOCATION 'share.schema.t'")
        assert ids(added.table("def_b")) == [0, 1, 2]
    finally:
        added.conf.unset("spark.delta.sharing.profile")


@pytest.mark.parametrize("gone", ["profile", "server", "table"])
def test_definition_is_dropped_without_what_it_names(added: Any, lake: Any, profile: pathlib.Path, gone: str) -> None:
    defined(added, "def_a", f"LOCATION '{profile}#share.schema.t'")
    defined(added, "def_b", f"OPTIONS (path 'share.schema.t', profile '{profile}')")
    if gone == "profile":
        profile.unlink()
    elif gone == "server":
        profile.write_text(json.dumps({**lake.server.profile, "endpoint": "http://127.0.0.1:9/delta-sharing"}))
    else:
        (lake.root / "t").rename(lake.root / "other")
    lake.server.reset_stats()
    assert [row.col_name for row in added.sql("DESCRIBE def_a").collect()] == ["id", "v"]
    for name in ("def_a", "def_b"):
        added.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('team' = 'sales')")
        added.sql(f"DROP TABLE {name}")
    assert lake.server.stats()["requests"] == {}


def test_query_of_a_missing_table_names_it_when_created(added: Any, lake: Any, profile: pathlib.Path) -> None:
    defined(added, "def_a", f"LOCATION '{profile}#share.schema.t'")
    (lake.root / "t").rename(lake.root / "other")
    with pytest.raises(Exception, match=r"^Reading the metadata of share\.schema\.t failed"):
        added.table("def_a")


def test_definition_keeps_its_columns_until_it_is_altered(added: Any, lake: Any, profile: pathlib.Path) -> None:
    """The documentation says so."""
    writer = TableWriter(lake.root / "u", pa.schema([("id", pa.int64())]))
    defined(added, "def_a", f"LOCATION '{profile}#share.schema.u'")
    writer.schema = pa.schema([("id", pa.int64()), ("w", pa.string())])
    writer.commit(metadata=True)
    writer.insert([{"id": 1, "w": "x"}])
    added.sql("REFRESH TABLE def_a")
    assert added.table("def_a").columns == ["id"]
    added.sql("ALTER TABLE def_a ADD COLUMNS (w STRING)")
    assert [tuple(row) for row in added.table("def_a").collect()] == [(1, "x")]


def test_frame_of_a_definition_reads_the_version_of_its_creation(added: Any, lake: Any, profile: pathlib.Path) -> None:
    writer = TableWriter(lake.root / "u", SCHEMA)
    writer.insert([{"id": 1, "v": "a"}])
    defined(added, "def_a", f"LOCATION '{profile}#share.schema.u'")
    before = added.table("def_a")
    writer.insert([{"id": 2, "v": "b"}])
    assert (ids(before), ids(added.table("def_a"))) == ([1], [1, 2])


EXTENSION = """
package tests;
public class Extension extends org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension {
  public org.apache.spark.sql.connector.catalog.Table createTable(
      org.apache.spark.sql.connector.catalog.Identifier table,
      org.apache.spark.sql.connector.catalog.Column[] columns,
      org.apache.spark.sql.connector.expressions.Transform[] partitions,
      java.util.Map properties) throws org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException,
      org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException {
    return super.createTable(
        table,
        org.apache.spark.sql.connector.catalog.CatalogV2Util.v2ColumnsToStructType(columns),
        partitions,
        properties);
  }
}
"""


def test_session_catalog_may_be_an_extension_like_delta_lakes(added: Any, lake: Any, profile: pathlib.Path) -> None:
    """Delta Lake's catalog also passes the tables of other formats on, with their columns as a schema."""
    jvm = added.sparkContext._jvm
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(before)
    compiler.cook(EXTENSION)
    session = added.newSession()
    session.conf.set("spark.sql.catalog.spark_catalog", "tests.Extension")
    session.conf.set("spark.delta.sharing.profile", str(profile))
    thread.setContextClassLoader(compiler.getClassLoader())
    try:
        defined(session, "def_e", f"LOCATION '{profile}#share.schema.t' TBLPROPERTIES ('team' = 'sales')")
        defined(session, "def_f", "OPTIONS (path 'share.schema.t', columns 'id')")
        assert ids(session.sql("SELECT id FROM def_e WHERE v <> 'v0'")) == [1, 2]
        assert [tuple(row) for row in session.sql("SELECT v, id FROM def_e ORDER BY id LIMIT 1").collect()] == [
            ("v0", 0)
        ]
        assert session.sql("SELECT count(*) FROM def_e a JOIN def_f b ON a.id = b.id").first()[0] == 3
        assert session.table("def_f").columns == ["id"]
        # The documentation says so.
        writer = TableWriter(lake.root / "u", SCHEMA)
        writer.insert([{"id": 1, "v": "a"}])
        defined(session, "def_g", f"LOCATION '{profile}#share.schema.u'")
        assert ids(session.table("def_g")) == [1]
        writer.insert([{"id": 2, "v": "b"}])
        assert ids(session.table("def_g")) == [1]
        session.sql("REFRESH TABLE def_g")
        assert ids(session.table("def_g")) == [1, 2]
        profile.unlink()
        for name in ("def_e", "def_f", "def_g"):
            session.sql(f"DROP TABLE {name}")
    finally:
        thread.setContextClassLoader(before)
