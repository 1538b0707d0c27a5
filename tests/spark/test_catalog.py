"""The tables of a profile as a Spark SQL catalog."""

from __future__ import annotations

import json
import threading
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.spark import push_down
from tests.spark.test_push_down import cost
from tests.tables import TableWriter, rows_of

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture(scope="module")
def shared(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server whose tables ``demo.shop.orders`` (three versions) and ``demo.shop.u`` are in the catalog ``shared``."""
    import mock_server

    root = tmp_path_factory.mktemp("shop")
    orders = TableWriter(root / "orders", SCHEMA, timestamp_ms=1_600_000_000_000)
    for number in range(3):
        file = orders.file(rows_of([number * 10, number * 10 + 1], v=f"v{number}"))
        orders.commit(add=[file], timestamp_ms=1_600_000_060_000 + number * 60_000)
    TableWriter(root / "u", SCHEMA).insert(rows_of([1, 21], v="u"))
    tables = {"demo.shop.orders": root / "orders", "demo.shop.u": root / "u", "other.s.t": root / "u"}
    with mock_server.running(tables=tables) as server:
        ds.attach(spark, server.profile_path, name="shared")
        yield server
        spark.conf.unset("spark.sql.catalog.shared")


def listed(frame: Any, column: str) -> list[str]:
    return sorted(row[column] for row in frame.collect())


def test_catalog_lists_namespaces_tables_and_columns(spark: Any, shared: Any) -> None:
    assert listed(spark.sql("SHOW NAMESPACES IN shared"), "namespace") == ["demo", "other"]
    assert listed(spark.sql("SHOW NAMESPACES IN shared.demo"), "namespace") == ["demo.shop"]
    assert listed(spark.sql("SHOW TABLES IN shared.demo.shop"), "tableName") == ["orders", "u"]
    described = spark.sql("DESCRIBE shared.demo.shop.orders").collect()
    assert [(row.col_name, row.data_type) for row in described][:2] == [("id", "bigint"), ("v", "string")]


def test_queries_are_pushed_down(spark: Any, shared: Any) -> None:
    class Lake:
        server = shared

    query = spark.sql("SELECT v FROM shared.demo.shop.orders WHERE id > 10 AND id <= 20")
    assert "PushedFilters: [id <= 20, id > 10, id IS NOT NULL]" in query._jdf.queryExecution().toString()
    assert sorted(row.v for row in query.collect()) == ["v1", "v2"]
    counted = spark.sql("SELECT count(*) FROM shared.demo.shop.orders")
    assert cost(Lake, lambda: counted.first()[0])[0] == 6
    both = "SELECT count(*) FROM shared.demo.shop.orders o JOIN shared.demo.shop.u u ON o.id = u.id"
    assert spark.sql(both).first()[0] == 2
    assert spark.table("shared.other.s.t").count() == 2
    found: list[int] = []
    total = "SELECT sum(id) FROM shared.demo.shop.u"
    thread = threading.Thread(target=lambda: found.append(spark.sql(total).first()[0]))
    thread.start()
    thread.join()
    assert found == [22]


def test_queries_support_time_travel(spark: Any, shared: Any) -> None:
    for past, number in (
        ("VERSION AS OF 1", 2),
        ("VERSION AS OF 0", 0),
        ("TIMESTAMP AS OF '2020-09-13 12:29:00'", 4),
    ):
        counted = spark.sql(f"SELECT count(*), count(id) FROM shared.demo.shop.orders {past}").first()
        assert tuple(counted) == (number, number)


def test_query_options_cannot_change_version_or_columns(spark: Any, shared: Any) -> None:
    name, zone = "shared.demo.shop.orders", "Asia/Tokyo"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert spark.read.option("timestampAsOf", "2020-09-13 21:29:00").table(name).count() == 4
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    # Without the column _change_type, deleted rows in the feed would look like rows of the table.
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", "0").table(name)
    with pytest.raises(Exception, match="Option 'readChangeFeed' adds columns"):
        feed.collect()
    for narrowed in (
        spark.read.option("columns", "id").table(name),
        spark.sql(f"SELECT * FROM {name} WITH (columns = 'id')"),
    ):
        with pytest.raises(Exception, match="Option 'columns' cannot be set by a query of this table"):
            narrowed.collect()


REFUSED = "Option '{}' cannot be set by a query of this table"


@pytest.fixture(scope="module")
def other(shared: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server that accepts the catalog's token and has tables of the same names with other rows."""
    import mock_server

    root = tmp_path_factory.mktemp("other")
    TableWriter(root / "orders", SCHEMA).insert(rows_of([666], v="another server's"))
    with mock_server.running(
        tables={"demo.shop.orders": root / "orders"}, token=shared.profile["bearerToken"]
    ) as server:
        yield server


def elsewhere(other: Any) -> dict[str, dict[str, str]]:
    """Return sets of options that would redirect a query to ``other`` or change its credentials. The key of each set
    is the option that must be refused."""
    endpoint, token = other.profile["endpoint"], other.profile["bearerToken"]
    profile = str(other.profile_path)
    return {
        "endpoint": {"endpoint": endpoint},
        "ENDPOINT": {"ENDPOINT": endpoint},
        "bearerToken": {"bearerToken": token, "endpoint": endpoint},
        "tokenEndpoint": {"tokenEndpoint": endpoint, "type": "oauth_client_credentials", "clientId": "i"},
        "profile": {"profile": profile},
        "path": {"path": f"{profile}#demo.shop.orders"},
        "settings": {"settings": json.dumps({"spark.delta.sharing.profile": profile})},
        "table": {"table": json.dumps(["other", "s", "t"])},
        "query": {"query": json.dumps({"endpoint": endpoint})},
        "proxy": {"proxy": endpoint},
        "ca_bundle": {"ca_bundle": "/tmp/own.pem"},
        "storage_options": {"storage_options": "{}"},
    }


@pytest.mark.parametrize("way", ["sql", "reader"])
def test_query_options_cannot_change_endpoint_or_credentials(spark: Any, shared: Any, other: Any, way: str) -> None:
    name = "shared.demo.shop.orders"
    for options in elsewhere(other).values():
        if way == "sql":
            written = ", ".join(f"`{key}` = '{value}'" for key, value in options.items())
            frame = spark.sql(f"SELECT * FROM {name} WITH ({written})")
        else:
            frame = spark.read.options(**options).table(name)
        with pytest.raises(Exception, match="cannot be set by a query of this table") as caught:
            frame.collect()
        named = [key for key in options if REFUSED.format(key).lower() in str(caught.value).lower()]
        assert len(named) == 1, (options, caught.value)
        assert shared.profile["bearerToken"] not in str(caught.value)
    assert other.stats()["requests"] == {}


def test_stream_options_cannot_change_endpoint_or_credentials(
    spark: Any, shared: Any, other: Any, tmp_path: Any
) -> None:
    for number, option in enumerate(["endpoint", "profile"]):
        stream = spark.readStream.options(**elsewhere(other)[option]).table("shared.demo.shop.orders")
        written = stream.writeStream.format("memory").queryName(f"elsewhere{number}")
        query = written.option("checkpointLocation", str(tmp_path / option)).trigger(availableNow=True).start()
        with pytest.raises(Exception, match=REFUSED.format(option)):
            query.awaitTermination(60)
    assert other.stats()["requests"] == {}


def test_created_table_keeps_its_endpoint(
    own_class_path: Any, shared: Any, other: Any, request: pytest.FixtureRequest
) -> None:
    spark = own_class_path
    ds.add_spark_jar(spark)
    spark.sql(f"CREATE TABLE created USING deltaSharing LOCATION '{shared.profile_path}#demo.shop.orders'")
    request.addfinalizer(lambda: spark.sql("DROP TABLE created"))

    assert spark.sql("SELECT * FROM created WITH (`filter` = 'id > 10')").count() == 3
    for pushes in ("true", "false"):
        for option in ("endpoint", "profile", "path"):
            options = {**elsewhere(other)[option], "pushDown": pushes}
            with pytest.raises(Exception, match=REFUSED.format(option)):
                spark.read.options(**options).table("created").collect()
    assert other.stats()["requests"] == {}


def test_quoted_name_may_contain_dots(spark: Any, shared: Any, other: Any, tmp_path: Any) -> None:
    import mock_server

    TableWriter(tmp_path / "t", SCHEMA).insert(rows_of([7], v="dots"))
    with mock_server.running(tables={"a.b.s.t": tmp_path / "t", "c.s.t": tmp_path / "t"}) as server:
        ds.attach(spark, server.profile_path, name="dotted")
        assert spark.table("dotted.`a.b`.s.t").count() == 1
        odd = ["a.`b.s`.t", "a.b.`s.t`", f"`{other.profile_path}#c`.s.t", "`c`.`s`.`t#u`", "a.`b``.s`.t"]
        for name in odd:
            with pytest.raises(Exception, match=r"TABLE_OR_VIEW_NOT_FOUND|must not contain a slash"):
                spark.table(f"dotted.{name}").collect()
    assert other.stats()["requests"] == {}


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("SELECT * FROM shared.demo.shop.missing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT * FROM shared.none.s.t", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SHOW TABLES IN shared.none.s", "SCHEMA_NOT_FOUND|cannot be found"),
        ("SELECT * FROM shared.demo.shop.orders VERSION AS OF 99", "99"),
        (
            "SELECT * FROM shared.demo.shop.orders TIMESTAMP AS OF '2099-01-01'",
            r"after the latest version.*Change the option 'timestampAsOf' \(2099-01-01T00:00:00Z\)\.",
        ),
        ("DROP TABLE shared.demo.shop.orders", "The catalog 'shared' is read-only"),
        ("CREATE TABLE shared.demo.shop.n (a int)", "The catalog 'shared' is read-only"),
        ("INSERT INTO shared.demo.shop.orders VALUES (1, 'a')", "does not support|UNSUPPORTED"),
    ],
)
def test_missing_tables_and_writes_are_refused(spark: Any, shared: Any, sql: str, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence) as caught:
        spark.sql(sql).collect()
    assert "Traceback" not in str(caught.value)
    assert shared.profile["bearerToken"] not in str(caught.value)


def test_catalog_table_can_be_streamed(spark: Any, shared: Any, tmp_path: Any) -> None:
    query = (
        spark.readStream.table("shared.demo.shop.orders")
        .writeStream.format("memory")
        .queryName("followed")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert spark.table("followed").count() == 6


def test_attach_does_not_replace_a_catalog_of_another_class(spark: Any, shared: Any) -> None:
    setting, other = "spark.sql.catalog.taken", "org.example.OtherCatalog"
    spark.conf.set(setting, other)
    try:
        with pytest.raises(ds.UsageError, match=f"This session already has a catalog 'taken', of the class {other}"):
            ds.attach(spark, shared.profile_path, name="taken")
        assert spark.conf.get(setting) == other
    finally:
        spark.conf.unset(setting)
    ds.attach(spark, shared.profile_path, name="shared")  # the catalog still reads its own tables


@pytest.mark.parametrize("how", ["option", "setting"])
def test_push_down_can_be_disabled_for_one_query(spark: Any, shared: Any, how: str) -> None:
    name = "shared.demo.shop.orders"
    reader = spark.read
    if how == "option":
        reader = reader.option("pushDown", "false")
    else:
        spark.conf.set(push_down.SWITCH, "false")
    try:
        frame = reader.table(name).where("id > 10")
        assert "PushedFilters" not in frame._jdf.queryExecution().toString()
        assert frame.count() == 3
        if how == "setting":
            assert not push_down.works(spark)
            with pytest.raises(ds.UsageError, match=f"the setting '{push_down.SWITCH}' turns off"):
                ds.attach(spark, shared.profile_path, name="another")
    finally:
        spark.conf.unset(push_down.SWITCH)
    assert "PushedFilters" in spark.table(name).where("id > 10")._jdf.queryExecution().toString()


def test_invalid_arguments_of_attach_are_refused(spark: Any, shared: Any, tmp_path: Any) -> None:
    with pytest.raises(ds.UsageError, match="'a-b'"):
        ds.attach(spark, shared.profile_path, name="a-b")
    for name in ("spark_catalog", "SPARK_Catalog", "system", "global_temp"):
        with pytest.raises(ds.UsageError, match=f"Spark reserves '{name}'"):
            ds.attach(spark, shared.profile_path, name=name)
    with pytest.raises(ds.UsageError, match="'share' and 'options'"):
        ds.attach(spark, shared.profile_path, share="demo")
    with pytest.raises(ds.UsageError, match="come from a file or a function"):
        ds.attach(spark, {**shared.profile, "bearerToken": lambda: "x"})
    assert shared.profile["bearerToken"] not in json.dumps(spark.sql("SET -v").toPandas().astype(str).to_dict())
