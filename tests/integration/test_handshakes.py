"""Reads over TLS need one connection for each concurrent request, not one for each file."""

from __future__ import annotations

from pathlib import Path

import pytest

import delta_sharing_client as ds
from benchmarks import data
from mock_server import running

FILES = 60
MOST = 6


def test_reads_open_no_more_connections_than_parallel_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "ROOT", tmp_path)
    with running(data.wide_table("t", files=FILES, rows=10), tls=True) as server:
        options = ds.ReadOptions(ca_bundle=str(server.ca_path), max_concurrent_requests=MOST)
        with ds.SharingClient(server.profile_path, options=options) as client:
            table = client.table("bench.default.t")
            first = table.scan().to_arrow()
            stats = server.stats()
            # Two more connections are allowed: for the server's requests to its own address, and for the request of
            # these counts.
            assert stats["requests"]["data"] == FILES
            assert stats["connections"] <= MOST + 2
            server.reset_stats()
            again = table.scan().to_arrow()
            stats = server.stats()
            assert stats["connections"] <= MOST + 2
        assert first.equals(again)
        assert sorted(first["id"].to_pylist()) == list(range(FILES * 10))
