"""The query id of a read is in each of its requests, in its errors and in the log."""

from __future__ import annotations

import logging
import pathlib
import pickle
import re
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from tests.served import served
from tests.tables import TableWriter, rows_of
from tests.versions import VERIFIES_PAGES

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ONCE = ds.ReadOptions(max_attempts=1)


@pytest.fixture
def shared(tmp_path: pathlib.Path) -> pathlib.Path:
    writer = TableWriter(tmp_path / "t", SCHEMA)
    writer.insert(writer.file(rows_of(range(9))))
    return pathlib.Path(writer.path)


@pytest.mark.skipif(not VERIFIES_PAGES, reason="this pyarrow does not verify the checksums of pages")
def test_error_in_a_data_file_has_the_query_id(shared: pathlib.Path, caplog: Any) -> None:
    with (
        caplog.at_level(logging.DEBUG, "delta_sharing_client"),
        mock_server.running(tables={"s.d.t": shared}, faults=["corrupt-body"]) as server,
        ds.SharingClient(server.profile, options=ONCE) as client,
    ):
        scan = client.table("s.d.t").scan(filter="id > 3")
        (part,) = scan.partitions(1)
        caplog.clear()
        with pytest.raises(ds.DataError) as by_scan:
            scan.to_arrow()
        sent = set(re.findall(r"query id (\w+)", caplog.text))
        with pytest.raises(ds.DataError) as by_part:
            list(pickle.loads(pickle.dumps(part)).read())

    assert sent == {by_scan.value.query_id}
    assert f"query id {by_scan.value.query_id}" in str(by_scan.value)
    assert by_part.value.query_id not in (None, by_scan.value.query_id)


def test_usage_error_has_no_query_id(shared: pathlib.Path) -> None:
    with (
        served(shared) as table,
        pytest.raises(ds.UsageError) as caught,
    ):
        table.scan(columns=["nothing"]).to_arrow()
    assert "query id" not in str(caught.value)
