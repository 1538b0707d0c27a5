"""The Python examples of the page about Spark, run on a table that has what they name."""

from __future__ import annotations

import datetime
import pathlib
import re
from typing import Any

import pyarrow as pa
import pytest

import mock_server
from tests.regressions.hand_made import HandMadeTable

pytestmark = pytest.mark.spark

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "spark.md"
EXAMPLE_URL = "/path/to/profile.share#share.schema.table"
SCHEMA = pa.schema([("id", pa.int64()), ("address", pa.struct([("city", pa.string())])), ("day", pa.date32())])


def test_the_examples_of_the_page_run_and_read_what_they_say(spark: Any, tmp_path: pathlib.Path) -> None:
    table = HandMadeTable(tmp_path / "table").create(SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
    for number in range(8):
        row = {
            "id": number,
            "address": {"city": "Lima"},
            "day": datetime.date(2023, 12, 28) + datetime.timedelta(number),
        }
        table.commit(table.file(pa.Table.from_pylist([row], schema=SCHEMA)))
    names: dict[str, Any] = {"spark": spark}
    with mock_server.running(tables={"share.schema.table": table.root}) as server:
        blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        assert EXAMPLE_URL in blocks[0]
        for block in blocks:
            source = block.replace(EXAMPLE_URL, f"{server.profile_path}#share.schema.table")
            exec(compile(source, PAGE.name, "exec"), names)
        assert names["df"].count() == 4
        assert names["df"].columns == ["id", "address"]
        assert names["changes"].count() == 6
        assert spark.sql("SELECT count(*) FROM t").collect()[0][0] == 7
    spark.catalog.dropTempView("t")
