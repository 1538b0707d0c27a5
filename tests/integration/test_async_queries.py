"""``ReadOptions(async_query=True)``: the client polls while the server computes the response."""

from __future__ import annotations

import pathlib

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.http.request_limits import Interrupt
from tests.served import served
from tests.tables import TableWriter, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ASYNC = ds.ReadOptions(max_attempts=1, async_query=True)


@pytest.fixture
def shared(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    writer = TableWriter(tmp_path / "t", SCHEMA)
    writer.insert(writer.file(rows_of(range(9))))
    sleep = Interrupt.sleep
    monkeypatch.setattr(Interrupt, "sleep", lambda self, seconds: sleep(self, min(seconds, 0.01)))
    return pathlib.Path(writer.path)


def test_read_waits_for_a_slow_response(shared: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with served(shared, ASYNC, faults=["async-pending=3"]) as table:
        assert sorted(table.scan(filter="id > 3").to_arrow()["id"].to_pylist()) == [4, 5, 6, 7, 8]
        assert table.replicate(tmp_path / "copy").num_files == 1


def test_failed_async_query_raises_a_request_error(shared: pathlib.Path) -> None:
    with served(shared, ASYNC, faults=["async-failed"]) as table:
        with pytest.raises(ds.RequestError, match="failed"):
            table.scan().to_arrow()
        assert table.scan(options=ds.ReadOptions()).count() == 9
