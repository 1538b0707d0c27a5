"""The server that other projects use in their tests: it shares in-memory data over a real connection."""

from __future__ import annotations

import datetime
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client import testing
from delta_sharing_client.errors import UsageError
from mock_server import demo
from tests.versions import PYARROW

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "small": pa.array([1, 2, 3], pa.uint8()),
        "name": pa.array(["a", "b", None]).dictionary_encode(),
        "at": pa.array([datetime.datetime(2026, 1, 1)] * 3, pa.timestamp("ns", "UTC")),
        "naive": pa.array([datetime.datetime(2026, 1, 1)] * 3, pa.timestamp("us")),
        "parts": pa.array([[1], [], None], pa.list_(pa.int32())),
    }
)


# Since version 16, pyarrow supports the view types that Polars uses.
IN_MEMORY = {"arrow": ROWS, "pandas": ROWS.to_pandas()} | ({"polars": pl.from_arrow(ROWS)} if PYARROW >= 16 else {})


@pytest.mark.parametrize("rows", IN_MEMORY.values(), ids=IN_MEMORY)
def test_in_memory_tables_are_shared(rows: object) -> None:
    with testing.running({"s.d.t": rows}) as server:
        url = f"{server.profile_path}#s.d.t"
        result = ds.load_as_arrow(url).to_pydict()
        assert result["name"] == ["a", "b", None]
        assert result["small"] == [1, 2, 3]
        assert result["parts"][:2] == [[1], []]
        assert [str(moment) for moment in result["naive"]] == ["2026-01-01 00:00:00"] * 3
        assert len(ds.load_table_changes_as_pandas(url, starting_version=0)) == 3
        server.set_fault("503-first")
        assert len(ds.load_as_pandas(url)) == 3
        assert server.stats()["statuses"]["503"] == 1


@pytest.mark.skipif(PYARROW >= 16, reason="this pyarrow takes views")
def test_polars_strings_are_refused_by_pyarrow_without_views() -> None:
    with (
        pytest.raises(ds.UsageError, match="view types of Polars need pyarrow 16"),
        testing.running({"s.d.t": pl.from_arrow(ROWS)}),
    ):
        pass


def test_directories_and_sample_tables_are_shared_too(tmp_path: Path) -> None:
    demo.build(tmp_path)
    with testing.running({"s.d.t": tmp_path / "shop" / "products", "s.d.u": ROWS}) as server:
        assert len(ds.load_as_pandas(f"{server.profile_path}#s.d.t")) == 200
    with testing.running() as server:
        assert "demo.shop.orders" in {str(table) for table in ds.SharingClient(server.profile).list_all_tables()}
    with testing.running({"s.d.t": pd.DataFrame({"x": [1]}), "s.d.u": pd.DataFrame({"x": [2]})}) as server:
        assert ds.load_as_pandas(f"{server.profile_path}#s.d.u")["x"].tolist() == [2]


def test_types_unsupported_by_delta_are_refused_by_name() -> None:
    too_fine = pa.table({"at": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(UsageError, match=r"rows of 's\.d\.t' do not fit"), testing.running({"s.d.t": too_fine}):
        pass


def test_plugin_provides_the_fixture_and_stops_its_servers(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["delta_sharing_client.testing"]\n')
    (tmp_path / "test_it.py").write_text(
        """
import pandas as pd
import delta_sharing_client as ds

def test_reads(delta_sharing_server):
    first, second = (delta_sharing_server({"s.d.t": pd.DataFrame({"x": [n]})}) for n in (1, 2))
    assert [int(ds.load_as_pandas(f"{one.profile_path}#s.d.t")["x"][0]) for one in (first, second)] == [1, 2]
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert "1 passed" in run.stdout, run.stdout + run.stderr


def test_missing_extra_error_shows_the_install_command() -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from delta_sharing_client import testing\n"
        "with testing.running(): pass"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert 'pip install "delta-sharing-client[server]"' in run.stderr


def test_copy_of_the_server_package_runs_under_another_name(tmp_path: Path) -> None:
    shutil.copytree(Path(mock_server.__file__).parent, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("*.pyc"))
    program = """
import sys
sys.modules["mock_server"] = None
from elsewhere import running
from elsewhere.command import app
with running(demo=True) as server:
    print(server.endpoint)
app(["--list-faults"])
"""
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert run.stdout.startswith("http://127.0.0.1:"), run.stderr
    assert "503-first" in run.stdout
