"""The command ``delta-sharing`` with a server: output, files and exit codes."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.cli import main
from tests.commands import succeed
from tests.versions import rows_of_deltalake

ROWS = pa.table(
    {
        "id": pa.array(range(60), pa.int64()),
        "kind": pa.array(["a", "b", None] * 20),
        "amount": pa.array([None, *range(59)], pa.decimal128(38, 2)),
    }
)
MANY = pa.table({"text": ["x" * 100] * 50_000})


@pytest.fixture(scope="module")
def server(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tables")
    feed = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(folder / "t", ROWS, partition_by=["kind"], configuration=feed, description="A table.")
    deltalake.write_deltalake(folder / "t", ROWS.slice(0, 6), mode="append")
    deltalake.write_deltalake(folder / "many", MANY)
    return serve(tables={"s.1.d.t": folder / "t", "s.1.d.many": folder / "many", "s.1.e.many": folder / "many"})


@pytest.fixture
def run(
    server: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., str]]:
    """Run a command that must succeed and return its output."""
    monkeypatch.setenv("DELTA_SHARING_PROFILE", str(server.profile_path))

    yield lambda *arguments: succeed(arguments, capsys)
    server.clear_faults()


def test_listings_have_text_and_json_formats(run: Callable[..., str]) -> None:
    assert [item["table"] for item in json.loads(run("--json", "tables"))] == ["s.1.d.t", "s.1.d.many", "s.1.e.many"]
    assert [item["name"] for item in json.loads(run("tables", "S.1.e", "--json"))] == ["many"]
    assert len(json.loads(run("tables", "s.1", "--json"))) == 3
    assert [line.split()[0] for line in run("tables").splitlines()] == ["table", "s.1.d.t", "s.1.d.many", "s.1.e.many"]
    assert json.loads(run("share", "s.1", "--json"))["name"] == "s.1"
    none: dict[str, list[str]] = {"volumes": [], "models": [], "skills": []}
    expected = {"d": {"tables": ["t", "many"], **none}, "e": {"tables": ["many"], **none}}
    assert json.loads(run("ls", "--json")) == {"s.1": expected}
    assert json.loads(run("ls", "S.1.e", "--json")) == {"s.1": {"e": expected["e"]}}
    tree = run("ls")
    assert [line.split()[-1] for line in tree.splitlines()[1:]] == ["s.1", "d", "t", "many", "e", "many"]


def test_describe_shows_schema_version_format_and_size(run: Callable[..., str]) -> None:
    described = json.loads(run("describe", "s.1.d.t", "--json"))

    assert described["version"] == 1
    assert described["description"] == "A table."
    assert described["partitionColumns"] == ["kind"]
    assert described["minReaderVersion"] == 1
    assert described["readerFeatures"] == []
    assert described["format"] in ("parquet", "delta")
    assert [(column["column"], column["type"]) for column in described["columns"]] == [
        ("id", "long"),
        ("kind", "string"),
        ("amount", "decimal(38,2)"),
    ]
    assert json.loads(run("describe", "s.1.d.t", "--version", "0", "--json"))["version"] == 0
    assert "decimal(38,2)" in run("describe", "s.1.d.t")


def test_head_shows_rows_with_nulls_and_exact_decimals(run: Callable[..., str]) -> None:
    rows = [json.loads(line) for line in run("head", "s.1.d.t", "-n", "3", "--json").splitlines()]
    assert len(rows) == 3

    [first] = run("head", "s.1.d.t", "--filter", "id = 0 AND kind = 'a'", "--version", "0").splitlines()[1:]
    assert first.split() == ["0", "a", "null"]
    [row] = run("head", "s.1.d.t", "-f", "id = 59", "-c", "amount,id", "--json").splitlines()
    assert row == '{"amount":"58.00","id":59}'


def test_read_writes_selected_rows_to_a_file(run: Callable[..., str], tmp_path: Path) -> None:
    target = tmp_path / "t.parquet"
    run("read", "s.1.d.t", "--version", "0", "--filter", "kind = 'b'", "--columns", "id", "--to", str(target))
    assert sorted(pq.read_table(target)["id"].to_pylist()) == list(range(1, 60, 3))


def test_copy_writes_a_delta_table_incrementally(run: Callable[..., str], tmp_path: Path) -> None:
    target = tmp_path / "copy"

    first = json.loads(run("replicate", "s.1.d.t", str(target), "--version", "0", "--json"))
    assert (first["version"], first["localVersion"], first["downloadedFiles"]) == (0, 0, 3)
    assert (first["directory"], first["numFiles"]) == (str(target), 3)
    assert len(rows_of_deltalake(deltalake.DeltaTable(target), "id")) == 60

    assert f"{target} holds version 1: " in run("replicate", "s.1.d.t", str(target))
    assert len(rows_of_deltalake(deltalake.DeltaTable(target), "id")) == 66
    again = json.loads(run("replicate", "s.1.d.t", str(target), "--keep-days", "0", "--json"))
    assert (again["downloadedFiles"], again["downloadedBytes"], again["localVersion"]) == (0, 0, 1)


def test_copy_refuses_wrong_arguments_in_one_line(
    server: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    deltalake.write_deltalake(tmp_path / "mine", ROWS)
    for arguments, message in (
        (["s.1.d.t", str(tmp_path / "mine")], "replicate did not create"),
        (["s.1.d.t", str(tmp_path / "new"), "--keep-days", "1e300"], "--keep-days"),
        (["s.1.d.t", str(tmp_path / "new"), "--keep-days", "-1"], "--keep-days"),
        (["s.1.d.t"], "DIRECTORY"),
    ):
        assert main(["replicate", *arguments, "--profile", str(server.profile_path)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert message in printed.err
        assert printed.err.count("\n") == 1


def test_explain_reads_no_data(run: Callable[..., str], server: Any) -> None:
    server.reset_stats()

    assert "file" in run("read", "s.1.d.t", "--explain")
    plan = json.loads(run("read", "s.1.d.t", "--explain", "--json"))["plan"]
    assert plan[0].startswith("Scan of s.1.d.t")
    assert server.stats()["requests"].get("data", 0) == 0


def test_verbose_reports_the_cost_of_a_read_on_stderr(server: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["read", f"{server.profile_path}#s.1.d.t", "--limit", "1", "-v"]) == 0

    printed = capfd.readouterr()
    assert printed.out.splitlines()[0] == '"id","kind","amount"'
    assert "requests" in printed.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["describe", "s.1.d.none"], 3, "none"),
        (["tables", "none"], 3, "none"),
        (["tables", "none.x"], 3, "s.1"),
        (["head", "s.1.d.t", "-f", "nosuch = 1"], 2, "nosuch"),
        (["head", "s.1.d.t", "-f", "id ="], 2, "filter"),
        (["head", "s.1.d.t", "-c", "idd"], 2, "id"),
        (["read", "s.1.d.t", "--version", "0", "--timestamp", "2024-01-01"], 2, "version"),
        (["read", "s.1.d.t", "--to", "t.ods"], 2, ".parquet"),
        (["changes", "s.1.d.t"], 2, "starting"),
        (["read", "s.1.d.t", "--json", "--format", "csv"], 2, "--json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_error_is_one_line_with_its_exit_code(
    server: Any, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--profile", str(server.profile_path)]) == code

    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_failed_read_writes_no_file(
    server: Any, run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delta_sharing_client.http.retry.wait_before", lambda *_: 0.0)
    server.set_fault("lose-lines=1")

    code = main(["read", "s.1.d.many", "--to", str(tmp_path / "t.parquet")])

    assert code == 5
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_a_read_with_code_130(server: Any) -> None:
    command = [sys.executable, "-m", "delta_sharing_client.cli", "read", f"{server.profile_path}#s.1.d.many"]
    server.reset_stats()
    server.set_fault("slow=30@data")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_plain()) as process:
        assert process.stderr is not None
        while server.stats()["requests"].get("data", 0) == 0:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b"delta-sharing: interrupted\n"
    server.clear_faults()


def test_ctrl_c_ends_a_running_sql_query(server: Any) -> None:
    server.reset_stats()
    endless = 'SELECT count(*) FROM "s.1".d.many, range(1000000000000) AS r(n) WHERE length(text) + n < 0'
    command = [sys.executable, "-m", "delta_sharing_client.cli", "-p", str(server.profile_path), "sql", endless]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_plain()) as process:
        assert process.stderr is not None
        try:
            while server.stats()["requests"].get("data", 0) == 0:
                assert process.poll() is None
                time.sleep(0.01)
            # The data has been requested, so DuckDB computes now or will soon.
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
        # At exit, DuckDB 2.0.0 prints which objects it has not freed.
        assert process.stderr.read().partition(b"nanobind: ")[0] == b"delta-sharing: interrupted\n"


def test_closed_pipe_ends_a_long_read_with_code_141(serve: Callable[..., Any], tmp_path: Path) -> None:
    for _ in range(3):
        numbers = np.random.default_rng(0).integers(0, 1 << 60, 1_000_000)
        deltalake.write_deltalake(tmp_path / "large", pa.table({"number": numbers}), mode="append")
    server = serve(tables={"s.1.d.large": tmp_path / "large"})
    command = [sys.executable, "-m", "delta_sharing_client.cli", "read", f"{server.profile_path}#s.1.d.large"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_plain()) as reader,
        subprocess.Popen(["head", "-1"], stdin=reader.stdout, stdout=subprocess.PIPE) as head,
    ):
        assert reader.stdout is not None
        reader.stdout.close()  # only head holds the read end of the pipe now
        assert head.communicate(timeout=60)[0] == b'"number"\n'
        assert reader.wait(30) == 141
        assert reader.stderr is not None
        assert reader.stderr.read() == b""


def _plain() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def test_full_disk_is_reported_and_leaves_no_file(server: Any, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    source = f"{server.profile_path}#s.1.d.many"
    command = [sys.executable, "-m", "delta_sharing_client.cli", "read", source, "--to", str(target)]

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    # The limit also applies to files of coverage, and Python would leave partly written .pyc files behind.
    environment = {name: value for name, value in _plain().items() if not name.startswith("COVERAGE_")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=bounded, check=False)

    assert done.returncode == 2
    assert (
        done.stderr == f"delta-sharing: Cannot write '{target}': File too large. Make room, or choose another place.\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_failed_write_to_stdout_is_reported_in_one_sentence(server: Any) -> None:
    command = [sys.executable, "-m", "delta_sharing_client.cli", "read", f"{server.profile_path}#s.1.d.many"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, env=_plain(), stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode == 2
    message = "Cannot write the output: No space left on device. Free disk space or write elsewhere."
    assert done.stderr == f"delta-sharing: {message}\n"
