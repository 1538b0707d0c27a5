"""Files written by the commands: format and compression by suffix, or stdout."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client.cli import main

READ = ["read", "demo.shop.products", "--columns", "product_id,name", "--limit", "3"]


@pytest.fixture
def rows(serve_demo: Any, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the rows that the command prints as JSON lines on stdout."""
    assert main(["-p", str(serve_demo.profile_path), *READ, "--json"]) == 0
    output = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["product_id"] for row in output] == [1, 2, 3]
    return output


def parsed(text: str, name: str) -> list[dict[str, Any]]:
    if ".csv" in name:
        lines = csv.DictReader(io.StringIO(text))
        return [{"product_id": int(line["product_id"]), "name": line["name"]} for line in lines]
    if ".json" in name and ".jsonl" not in name:
        array: list[dict[str, Any]] = json.loads(text)
        return array
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", ["x.json", "X.CSV.GZ", "x.jsonl"])
def test_suffix_selects_the_format_of_a_file(
    serve_demo: Any, tmp_path: Path, rows: list[dict[str, Any]], name: str
) -> None:
    assert main(["-p", str(serve_demo.profile_path), *READ, "--to", str(tmp_path / name)]) == 0

    content = (tmp_path / name).read_bytes()
    assert content.startswith(b"\x1f\x8b") is name.lower().endswith(".gz")
    text = (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode()
    assert parsed(text, name.lower()) == rows
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_compressed_files_are_reproducible(serve_demo: Any, tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv.gz"):
        assert main(["-p", str(serve_demo.profile_path), *READ, "--to", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "x.parquet.gz"], "is not compressed as a whole; leave .gz out"),
        (["--to", "x.gz"], "Cannot tell the format of 'x.gz' from its extension"),
        (["--json", "--format", "csv"], "The option --json writes JSON lines"),
    ],
)
def test_unknown_suffix_is_refused_before_a_file_is_created(
    serve_demo: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["-p", str(serve_demo.profile_path), *READ, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_sql_supports_show_describe_and_summarize(serve_demo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def rows_of(query: str) -> list[dict[str, Any]]:
        assert main(["-p", str(serve_demo.profile_path), "sql", query, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert rows_of("SHOW TABLES")[2] == {"share": "demo", "schema": "weather", "name": "readings"}
    names = [row["column_name"] for row in rows_of("DESCRIBE demo.shop.products")]
    assert names[:3] == ["product_id", "name", "price"]
    assert {row["count"] for row in rows_of("SUMMARIZE demo.shop.products")} == {200}
