"""Processes import slow modules only when they need them, at start and during a read."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

import mock_server
from tests.tables import TableWriter, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
# Modules that a first read never needs, even if they are installed.
NEVER = "typer rich pydantic click sqlglot tenacity duckdb polars pyspark fsspec tqdm IPython deltalake"
OF_REST = "requests urllib3 charset_normalizer"
OF_DATA = "aiohttp attr"


def imported(code: str, *arguments: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return set(run.stdout.split())


@pytest.fixture
def profile(tmp_path: pathlib.Path) -> Iterator[str]:
    writer = TableWriter(tmp_path / "shared", SCHEMA)
    writer.insert(writer.file(rows_of([1, 2])))
    with mock_server.running(tables={"s.d.t": writer.path}) as server:
        yield str(server.profile_path)


def test_package_imports_no_third_party_modules() -> None:
    result = imported("import delta_sharing_client")

    assert result & set(f"{NEVER} {OF_REST} {OF_DATA} pandas pyarrow numpy msgspec yarl".split()) == set()


def test_importing_the_client_imports_no_network_library() -> None:
    result = imported("from delta_sharing_client import SharingClient, load_as_pandas")

    assert result & set(f"{NEVER} {OF_REST} {OF_DATA} yarl delta_sharing_client.http.failures".split()) == set()


def test_listing_does_not_import_the_libraries_for_data_files(profile: str) -> None:
    result = imported(
        "import delta_sharing_client as ds\nassert ds.SharingClient(sys.argv[1]).list_all_tables()", profile
    )

    assert result.issuperset(OF_REST.split())
    assert result & set(f"{NEVER} {OF_DATA} pandas delta_sharing_client.http.failures".split()) == set()


def test_plain_read_does_not_import_logs_copies_and_spark(profile: str) -> None:
    result = imported(
        "import delta_sharing_client as ds\nassert len(ds.load_as_pandas(sys.argv[1])) == 2", f"{profile}#s.d.t"
    )

    assert result.issuperset(f"{OF_REST} {OF_DATA} delta_sharing_client.run.engine".split())
    assert result & set(f"{NEVER} delta_sharing_client.predicates.sql".split()) == set()
    rooms = {tuple(name.split(".")[1:2]) for name in result if name.startswith("delta_sharing_client.")}
    assert rooms.isdisjoint({("replica",), ("spark",), ("cli",), ("storage",)})
    assert not [name for name in result if name.startswith("delta_sharing_client.delta.log")]
