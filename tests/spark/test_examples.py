"""The Python examples about Spark, each run separately on tables with the expected names."""

from __future__ import annotations

import dataclasses
import datetime
import doctest
import inspect
import json
import pathlib
import sys
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from tests.examples import Example, examples
from tests.regressions.hand_made import HandMadeTable

pytestmark = pytest.mark.spark

EXAMPLE_PROFILE = "/path/to/profile.share"
EXAMPLE_URL = "/path/to/profile.share#share.schema.table"
SCHEMA = pa.schema([("id", pa.int64()), ("address", pa.struct([("city", pa.string())])), ("day", pa.date32())])


def test_examples_of_the_page_run_with_the_stated_results(
    own_class_path: Any, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark = own_class_path
    table = HandMadeTable(tmp_path / "table").create(SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
    for number in range(8):
        row = {
            "id": number,
            "address": {"city": "Lima"},
            "day": datetime.date(2023, 12, 28) + datetime.timedelta(number),
        }
        table.commit(table.file(pa.Table.from_pylist([row], schema=SCHEMA)))
    documents = tmp_path / "documents"
    (documents / "reports").mkdir(parents=True)
    for path in ("a.png", "b.txt", "reports/c.jpg", "reports/d.pdf"):
        (documents / path).write_bytes(b"x")
    volumes = {"share.schema.documents": documents}
    with mock_server.running(tables={"share.schema.table": table.root}, volumes=volumes) as server:
        profile = str(server.profile_path)
        url = f"{profile}#share.schema.table"
        first, pushing, jar, second, files, catalog, masked = (
            dataclasses.replace(
                example, source=example.source.replace(EXAMPLE_URL, url).replace(EXAMPLE_PROFILE, profile)
            ).run()
            for example in examples("spark")
            if example.page == "spark.md"
        )
        assert first["df"].count() == 4
        assert first["df"].columns == ["id", "address"]
        assert first["changes"].count() == 6
        assert spark.sql("SELECT count(*) FROM t").collect()[0][0] == 7
        assert pushing["query"].count() == 4
        assert "PushedFilters: [day >= " in pushing["query"]._jdf.queryExecution().toString()
        assert "PushedFilters: [day >= " in capsys.readouterr().out
        assert jar["spark"].table("orders").where("id > 5").count() == 2
        spark.sql("DROP TABLE orders")
        assert sorted(row.path for row in files["pictures"].select("path").collect()) == ["a.png", "reports/c.jpg"]
        assert catalog["orders"].count() == 3
        assert masked["spark"].conf.get("spark.sql.redaction.string.regex") == masked["options"]
        spark.conf.unset("spark.sql.redaction.string.regex")
        assert second["narrow"].load(url).count() == 4
    spark.catalog.dropTempView("t")


@pytest.mark.parametrize("example", [one for one in examples("spark") if one.page != "spark.md"], ids=str)
def test_examples_of_other_pages_run(
    example: Example, spark: Any, serve_demo: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo.share").write_text(json.dumps(serve_demo.profile))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    # The JVM opens the profile's path and has a different working directory.
    source = example.source.replace("demo.share#", f"{tmp_path}/demo.share#")

    names = dataclasses.replace(example, source=source).run(spark=spark)

    frames = [value for value in names.values() if hasattr(value, "isStreaming") and not value.isStreaming]
    assert all(frame.count() for frame in frames)


def test_example_of_to_spark_runs(
    spark: Any, serve_demo: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo.share").write_text(json.dumps(serve_demo.profile))
    monkeypatch.chdir(tmp_path)
    scope = {"table": ds.SharingClient("demo.share").table("demo.shop.orders")}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(ds.Scan.to_spark) or "", scope, "to_spark", None, 0)

    result = doctest.DocTestRunner().run(example)

    assert result.attempted == 1
    assert result.failed == 0


def test_examples_for_the_jvm_connector_give_the_same_frames(
    spark: Any, serve_demo: Any, tmp_path: pathlib.Path
) -> None:
    """The JVM connector is not available here. Our source accepts its options, so its examples must run with ours
    too."""
    profile = tmp_path / "demo.share"
    profile.write_text(json.dumps(serve_demo.profile))
    page = [one for one in examples() if one.page == "from-jvm-connector.md"]
    assert [one.kind for one in page] == ["JVM connector", "spark"] * 4
    for theirs, ours in zip(page[::2], page[1::2], strict=True):
        found = []
        for example in (theirs, ours):
            source = example.source.replace("demo.share#", f"{profile}#")
            names = dataclasses.replace(example, source=source).run(spark=spark)
            (frame,) = (value for value in names.values() if hasattr(value, "isStreaming"))
            found.append((frame.schema, None if frame.isStreaming else sorted(map(repr, frame.collect()))))
        assert found[0] == found[1], str(theirs)
        assert found[0][1] != []
