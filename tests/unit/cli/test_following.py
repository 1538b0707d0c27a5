"""``delta-sharing follow``, incomplete table names, SQL on local files, and column comments in notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
from delta_sharing_client.cli import main

FOLLOW = ("follow", "demo.shop.orders", "--available-now", "--cursor", "orders.cursor")


@pytest.fixture(autouse=True)
def folder(serve_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "demo.share").write_text(json.dumps(serve_demo.profile))
    monkeypatch.setenv("DELTA_SHARING_PROFILE", "demo.share")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_repeated_step_replaces_its_file(folder: Path, capfd: Any) -> None:
    table = ds.SharingClient("demo.share").table("demo.shop.orders")
    first = next(iter(table.follow("orders.cursor")))
    assert main([*FOLLOW, "--to", "out"]) == 0
    (written,) = (folder / "out").iterdir()
    assert written.name == f"00000000-snapshot-6-6-{first.id[:8]}.parquet"
    assert pq.read_table(written).num_rows == table.scan().count()
    assert "again, because they were not committed before" in capfd.readouterr().err
    assert main([*FOLLOW, "--to", "out"]) == 0
    assert len(list((folder / "out").iterdir())) == 1
    (folder / "orders.cursor").unlink()
    assert main([*FOLLOW, "--to", "out"]) == 2
    assert "already contains the changes of a different cursor" in capfd.readouterr().err
    assert main([*FOLLOW, "--to", "other", "--json", "--format", "csv"]) == 0
    output = json.loads(capfd.readouterr().out)
    assert main([*FOLLOW[:-1], "new", "--to", "demo.share"]) == 2
    assert "Cannot write into 'demo.share': File exists. Choose another directory." in capfd.readouterr().err
    assert (output["startVersion"], output["isSnapshot"], output["isRepeat"]) == (6, True, True)


def test_rows_on_stdout_are_json_lines(capfd: Any) -> None:
    assert main([*FOLLOW, "--starting-version", "3", "--columns", "_commit_version"]) == 0
    rows = [json.loads(line)["_commit_version"] for line in capfd.readouterr().out.splitlines()]
    assert rows == sorted(rows)
    assert set(rows) == {3, 4, 6}  # version 5 did not change rows
    assert main([*FOLLOW, "--format", "csv"]) == 0
    assert capfd.readouterr().out == ""
    assert main([*FOLLOW[:-1], "c", "--format", "csv"]) == 2
    assert "for csv give a directory" in capfd.readouterr().err.lower()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["head", "orders"], "found 'orders'. Did you mean 'demo.shop.orders'?"),
        (["head", "shop.order"], "found 'shop.order'. Did you mean 'demo.shop.orders'?"),
        (["head", "zzzzzz"], "found 'zzzzzz'.\n"),
        (["sql", "SELECT count(*) FROM orders"], "names the table 'orders'"),
        (["sql", "SELECT count(*) FROM orders"], "Did you mean 'demo.shop.orders'?"),
    ],
)
def test_partial_name_error_suggests_the_full_name(words: list[str], message: str, capfd: Any) -> None:
    assert main(words) == 2
    errors = capfd.readouterr().err
    assert message in errors
    assert "pg_" not in errors


def test_sql_with_local_tables_needs_no_shared_table(folder: Path, capfd: Any) -> None:
    (folder / "codes.csv").write_text("code\nDE\n")
    query = "WITH a AS (SELECT * FROM 'codes.csv') SELECT count(*) AS n FROM a, range(2)"
    assert main(["sql", query]) == 0
    assert capfd.readouterr().out == '"n"\n2\n'


def test_notebooks_show_column_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    details = ds.SharingClient("demo.share").table("demo.shop.orders").metadata()
    text = json.loads(details.schema_string)
    text["fields"][0]["metadata"] = {"comment": "counts <orders>"}
    object.__setattr__(details, "schema_string", json.dumps(text))
    assert "counts &lt;orders&gt;" in details._repr_html_()
