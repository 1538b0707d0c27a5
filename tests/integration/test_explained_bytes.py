"""``explain()`` tells how many bytes a read downloads; the counters of the read are the oracle."""

from __future__ import annotations

import re
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client.plan.costs import expected_bytes

TOLD = re.compile(r"files to read: .*; the columns take about \d+% of that, ([\d.]+) (bytes|kB|MB), estimated")
UNITS = {"bytes": 1, "kB": 1000, "MB": 1_000_000}
SCANS: dict[str, dict[str, Any]] = {
    "all columns": {},
    "some columns": {"columns": ["order_id", "amount"]},
    "a filter": {"columns": ["order_id", "amount"], "filter": "country = 'DE' AND amount > 400"},
    "partition columns": {"columns": ["country"]},
    "no columns": {"columns": []},
    "no rows": {"filter": "country = 'none'"},
    "a version": {"columns": ["order_id"], "version": 0},
    "a limit": {"limit": 3},
}


def told(explained: str) -> float:
    found = TOLD.search(explained)
    assert found is not None, explained
    return float(found[1]) * UNITS[found[2]]


@pytest.fixture
def orders(serve_demo: Any) -> ds.SharedTable:
    return ds.SharingClient(serve_demo.profile).table("demo.shop.orders")


@pytest.mark.parametrize("scan", SCANS)
def test_explained_bytes_are_about_those_of_the_read(orders: ds.SharedTable, scan: str) -> None:
    read = orders.scan(**SCANS[scan])
    expected = told(str(read.explain()))
    assert expected == pytest.approx(expected_bytes(read.plan()), rel=0.01)
    read.to_arrow()
    assert read.report is not None
    assert read.report.bytes <= 1.5 * expected
    if scan not in ("a filter", "a limit"):  # which skip parts of the files
        assert read.report.bytes >= expected / 2


def test_explained_bytes_of_every_demo_table(serve_demo: Any) -> None:
    with ds.SharingClient(serve_demo.profile) as client:
        compared = 0
        for listed in client.list_all_tables():
            table = client.table(listed)
            for columns in (None, table.columns[:2], table.columns[-1:]):
                read = table.scan(columns)
                expected = told(str(read.explain()))
                read.to_arrow()
                assert read.report is not None
                assert expected / 2 <= read.report.bytes <= 1.5 * expected, (listed, columns)
                compared += expected > 0
        assert compared > 10


def test_explained_bytes_of_changes(orders: ds.SharedTable) -> None:
    for columns in (None, ["order_id"], ["_commit_version", "_commit_timestamp"]):
        read = orders.changes(1, columns=columns)
        expected = told(str(read.explain()))
        read.to_arrow()
        assert read.report is not None
        assert read.report.bytes <= 1.5 * expected
