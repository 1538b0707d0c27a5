"""What a process has imported after a read."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pyarrow as pa

import mock_server
from tests.tables import TableWriter, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
READ = """
import sys
import delta_sharing_client as ds
print(len(ds.load_as_pandas(sys.argv[1])))
print(*sorted(name for name in sys.modules if name.startswith("delta_sharing_client")))
"""


def test_a_plain_read_imports_nothing_of_logs_copies_and_spark(tmp_path: pathlib.Path) -> None:
    writer = TableWriter(tmp_path / "shared", SCHEMA)
    writer.insert(writer.file(rows_of([1, 2])))
    with mock_server.running(tables={"s.d.t": writer.path}) as server:
        run = subprocess.run(
            [sys.executable, "-c", READ, f"{server.profile_path}#s.d.t"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    rows, names = run.stdout.splitlines()

    assert rows == "2"
    assert "delta_sharing_client.run.scan" in names.split()
    others = [name for name in names.split() if name.split(".")[1:2] in (["replica"], ["spark"], ["cli"], ["storage"])]
    assert [*others, *(name for name in names.split() if ".delta.log" in name)] == []
