"""The recipe for a new type (docs/architecture.md): a row in ``delta.type_rows.TYPES`` is sufficient to read it."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.delta.data_types import SPELLINGS, PrimitiveType
from delta_sharing_client.delta.type_rows import TYPES
from delta_sharing_client.spark.types import to_spark_type
from tests.integration.test_newer_types import schema
from tests.regressions.hand_made import HandMadeTable
from tests.served import served


@pytest.mark.parametrize("name", ["counter", "counter(7)"])
def test_one_row_in_types_makes_a_new_type_readable(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TYPES, "counter", dataclasses.replace(TYPES["long"], width=1e6))
    monkeypatch.setitem(SPELLINGS, "counter", lambda text: text.startswith("counter("))
    table = HandMadeTable(tmp_path / "t").create(schema(("id", "long"), ("c", name), ("p", name)), partition_by=["p"])
    for number in (1, 2, 3):
        # The file has a smaller integer type than the table, and bounds are in both the log and the footer.
        add = table.file(pa.table({"id": [number], "c": pa.array([number * 10], pa.int16())}), {"p": str(number)})
        bound = {"c": number * 10}
        add["add"]["stats"] = json.dumps({"numRecords": 1, "minValues": bound, "maxValues": bound})
        table.commit(add)
    with served(table.root) as shared:
        rows = shared.scan().to_arrow().sort_by("id")
        assert rows.schema.field("c").type == rows.schema.field("p").type == pa.int64()
        assert rows["c"].to_pylist() == [10, 20, 30]
        assert rows["p"].to_pylist() == [1, 2, 3]
        assert shared.scan(filter="c > 10 AND p < 3").to_arrow()["id"].to_pylist() == [2]
        assert "files: 1 " in shared.scan(filter="c > 20").explain()
        assert "files: 1 " in shared.scan(filter="p = 2").explain()
        assert str(shared.scan().to_pandas()["c"].dtype) == "Int64"
        assert [item["type"] for item in json.loads(shared.metadata().schema_string)["fields"]] == ["long", name, name]
    assert to_spark_type(PrimitiveType(name), "c").typeName() == "long"


def test_column_of_an_unknown_type_is_omitted(tmp_path: pathlib.Path) -> None:
    table = HandMadeTable(tmp_path / "t").create(schema(("id", "long"), ("c", "counter")))
    table.commit(table.file(pa.table({"id": [1], "c": [2]})))
    with (
        served(table.root) as shared,
        pytest.warns(ds.IncompleteReadWarning, match="counter"),
    ):
        assert shared.scan().to_arrow().column_names == ["id"]
