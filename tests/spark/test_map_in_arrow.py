"""``load_as_spark`` without data sources as on PySpark 3.5: planned tasks read by ``mapInArrow``. Runs on all
versions."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import pyarrow as pa
import pyspark
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client import compat as delta_sharing
from delta_sharing_client.spark import to_spark
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES
from mock_server import catalog
from tests.spark.streams import FEED, ID, changed_table
from tests.tables import TableWriter, rows_of

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _without_data_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_spark, "HAS_DATA_SOURCES", False)


def test_load_as_spark_applies_its_options_by_map_in_arrow(spark: Any, lake: Any) -> None:
    table = TableWriter(lake.root / "t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    for i in range(6):
        table.insert([{"id": i, "v": str(i)}])
    url = lake.url("t")
    frame = ds.load_as_spark(url, spark=spark)
    assert sorted(map(tuple, frame.collect())) == [(i, str(i)) for i in range(6)]
    assert (frame.count(), frame.where("id > 2").count(), frame.select("v").columns) == (6, 3, ["v"])
    assert ds.load_as_spark(url, columns=["v"], filter="id >= 4", spark=spark).toPandas()["v"].tolist() == ["4", "5"]
    assert ds.load_as_spark(url, limit=2, spark=spark).count() == 2
    assert ds.load_as_spark(url, version=3, spark=spark).count() == 3
    assert ds.load_as_spark(url, filter="id > 99", spark=spark).collect() == []
    assert "deltaSharing" not in frame._jdf.queryExecution().toString()
    assert lake.server.profile["bearerToken"] not in frame._jdf.queryExecution().toString()


def test_change_feed_is_read_by_map_in_arrow(spark: Any, lake: Any) -> None:
    changed_table(lake.root / "t")
    TableWriter(lake.root / "u", ID, properties=FEED).insert(rows_of([1, 2]))
    frame = ds.load_table_changes_as_spark(lake.url("u"), 0, spark=spark)
    assert frame.columns == ["id", "_change_type", "_commit_version", "_commit_timestamp"]
    assert sorted((row.id, row._change_type, row._commit_version) for row in frame.collect()) == [
        (1, "insert", 1),
        (2, "insert", 1),
    ]


def test_compat_functions_for_spark_read_a_table(spark: Any, lake: Any) -> None:
    table = TableWriter(lake.root / "t", ID, properties=FEED)
    table.insert(rows_of([1, 2]))
    table.insert(rows_of([3]))
    table_url = lake.url("t")
    assert delta_sharing.load_as_spark(table_url).count() == 3
    assert delta_sharing.load_as_spark(table_url, version=1).count() == 2
    changes = delta_sharing.load_table_changes_as_spark(table_url, starting_version=1, ending_version=2)
    assert sorted(row.id for row in changes.where("_change_type = 'insert'").collect()) == [1, 2, 3]


def test_map_in_arrow_tasks_use_directory_access(spark: Any, tmp_path: pathlib.Path) -> None:
    writer = TableWriter(tmp_path / "t", ID, properties=FEED)
    for i in range(3):
        writer.insert(rows_of([i]))
    # With directory access only, no URL could have provided the rows.
    shared = catalog.from_mapping({"s.d.t": writer.path})
    only = catalog.build([dataclasses.replace(entry, modes=("dir",)) for entry in shared.tables])
    with (
        mock_server.running(tables=only, local_directories=True) as server,
        ds.SharingClient(server.profile, options=ds.ReadOptions(access_mode=ds.AccessMode.DIR)) as client,
    ):
        table = client.table("s.d.t")
        assert sorted(row.id for row in table.scan().to_spark(spark).collect()) == [0, 1, 2]
        assert [row.id for row in table.changes(starting_version=3).to_spark(spark).collect()] == [2]


def test_expired_urls_are_renewed_and_missing_files_named(spark: Any, lake: Any) -> None:
    table = TableWriter(lake.root / "t", ID)
    file = table.file(rows_of([2]))
    table.insert(rows_of([1]))
    table.insert(file)
    frame = ds.load_as_spark(lake.url("t"), spark=spark)
    table.insert(rows_of([3]))
    lake.server.expire_urls()
    assert sorted(row.id for row in frame.collect()) == [1, 2]
    (table.path / file.path).unlink()
    with pytest.raises(Exception, match=r"share\.schema\.t"):
        frame.collect()


def test_empty_table_is_read_and_unknown_columns_are_refused(spark: Any, lake: Any) -> None:
    TableWriter(lake.root / "t", ID)
    assert ds.load_as_spark(lake.url("t"), spark=spark).collect() == []
    for arguments in ({"columns": ["idd"]}, {"filter": "idd = 1"}):
        with pytest.raises(ds.UsageError, match="idd"):
            ds.load_as_spark(lake.url("t"), spark=spark, **arguments)


def test_format_error_names_the_required_pyspark() -> None:
    if HAS_DATA_SOURCES:
        import pyspark_delta_sharing

        assert pyspark_delta_sharing.DefaultSource.name() == "deltaSharing"
        return
    with pytest.raises(ImportError, match=f"needs PySpark 4.0 or newer, found {pyspark.__version__}.*load_as_spark"):
        import pyspark_delta_sharing


def test_stubs_of_pyspark_classes_have_the_needed_attributes(tmp_path: pathlib.Path) -> None:
    from delta_sharing_client.spark.datasource import DataSource, InputPartition

    assert DataSource({"a": "b"}).options == {"a": "b"}
    assert InputPartition(3).value == 3
