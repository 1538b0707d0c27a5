"""Errors that ``to_spark`` raises before it calls Spark."""

from __future__ import annotations

import pathlib
import shlex
import sys
import types
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client.errors import UsageError
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES
from delta_sharing_client.spark.to_spark import check_workers
from tests.spark.streams import ID
from tests.tables import TableWriter, rows_of


def session(program: str | None) -> Any:
    return types.SimpleNamespace(_sc=None if program is None else types.SimpleNamespace(pythonExec=program))


def interpreter(folder: pathlib.Path, *flags: str, before: str = "") -> str:
    path = folder / "python3"
    path.write_text(f'#!/bin/sh\n{before}\nexec {shlex.join([sys.executable, *flags])} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_workers_with_the_package_are_accepted(
    tmp_path: pathlib.Path,
) -> None:
    check_workers(session(sys.executable))
    check_workers(session(None))
    root = shlex.quote(str(pathlib.Path(__file__).resolve().parents[2]))
    check_workers(session(interpreter(tmp_path, before=f"export PYTHONPATH={root}")))


@pytest.mark.parametrize(
    ("program", "lacks"),
    [
        (lambda folder: interpreter(folder, "-I", "-S"), "says: No module named"),
        (lambda folder: interpreter(folder, before="echo 3.7; exit 0"), "is Python 3.7"),
        (lambda folder: str(folder / "none"), "cannot be run"),
        (lambda folder: interpreter(folder, before="exit 3"), "cannot be run"),
    ],
)
def test_incompatible_workers_are_refused_with_the_reason(tmp_path: pathlib.Path, program: Any, lacks: str) -> None:
    path = program(tmp_path)
    with pytest.raises(UsageError, match="PYSPARK_PYTHON") as caught:
        check_workers(session(path))
    assert f"'{path}', which {lacks}" in caught.value.message
    assert f"'{sys.executable}'" in caught.value.message


# --- settings that data source options cannot express ---


@pytest.mark.spark
def test_token_function_and_headers_reach_the_tasks(spark: Any, lake: Any) -> None:
    table = TableWriter(lake.root / "t", ID)
    for number in range(3):
        table.insert(rows_of([number]))
    token = lake.server.profile["bearerToken"]
    called = {**lake.server.profile, "bearerToken": lambda: token}
    plain = lake.server.profile
    for profile, options in ((called, {}), (plain, {"headers": {"X-Team": "a"}, "proxy": ""})):
        with ds.SharingClient(profile, options=ds.ReadOptions(**options)) as client:
            shared = client.table("share.schema.t")
            frame = shared.scan(filter="id > 0").to_spark(spark)
            lake.server.expire_urls()  # so that tasks request new URLs with that token
            assert sorted(row.id for row in frame.collect()) == [1, 2]
            assert token not in frame._jdf.queryExecution().toString()


@pytest.mark.spark
def test_to_spark_uses_the_data_source_where_it_exists(spark: Any, lake: Any) -> None:
    TableWriter(lake.root / "t", ID).insert(rows_of([1]))
    with ds.SharingClient(lake.server.profile) as client:
        frame = client.table("share.schema.t").scan().to_spark(spark)
    assert ("BatchScan share.schema.t" in frame._jdf.queryExecution().toString()) == HAS_DATA_SOURCES
