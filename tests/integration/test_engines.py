"""The recipes of docs/reading.md for other engines' workers: parts of a read travel and give all rows once."""

from __future__ import annotations

import multiprocessing
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from tests.regressions.hand_made import HandMadeTable

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reading.md"


def read_part(part: ds.Partition) -> pa.Table:
    return pa.Table.from_batches(part.read(), part.schema)


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.Scan]:
    root = tmp_path_factory.mktemp("engines") / "t"
    made = HandMadeTable(root).create(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    made.commit(*(made.file(pa.table({"id": [2 * i, 2 * i + 1], "name": [str(i), None]})) for i in range(20)))
    with mock_server.running(tables={"s.s.t": root}) as server, ds.SharingClient(server.profile) as client:
        yield client.table("s.s.t").scan(filter="id > 0")


def recipe(engine: str) -> str:
    blocks: list[str] = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [found] = [block for block in blocks if block.startswith(f"# {engine}")]
    return found


def run(engine: str, **names: Any) -> dict[str, Any]:
    exec(compile(recipe(engine), PAGE.name, "exec"), names)
    return names


def test_multiprocessing(scan: ds.Scan) -> None:
    tables = run("multiprocessing", multiprocessing=multiprocessing, scan=scan, read_part=read_part)["tables"]
    assert len(tables) == 8
    assert pa.concat_tables(tables) == scan.to_arrow()


def test_the_page_has_the_function_of_this_module(scan: ds.Scan) -> None:
    [block] = [block for block in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def read_p" in block]
    names: dict[str, Any] = {"pa": pa}
    exec(compile(block, PAGE.name, "exec"), names)
    assert pa.concat_tables(map(names["read_part"], scan.partitions(3))) == scan.to_arrow()


def test_dask(scan: ds.Scan) -> None:
    pytest.importorskip("dask.dataframe", reason="bash .ci/engines runs this with Dask")
    import dask

    with dask.config.set(scheduler="processes", num_workers=2):
        frame = run("Dask", dask=dask, scan=scan, read_part=read_part)["frame"]
        assert frame.npartitions == 8
        assert sorted(frame.compute()["id"]) == list(range(1, 40))


def test_ray(scan: ds.Scan) -> None:
    pytest.importorskip("ray", reason="bash .ci/engines runs this with Ray")
    import ray
    import ray.data

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        dataset = run("Ray", ray=ray, scan=scan, read_part=read_part)["dataset"]
        assert sorted(row["id"] for row in dataset.take_all()) == list(range(1, 40))
    finally:
        ray.shutdown()
