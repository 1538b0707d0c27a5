from __future__ import annotations

import io
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

import mock_server
from delta_sharing_client.cli import main
from delta_sharing_client.cli.commands import app
from delta_sharing_client.cli.program import names_of_assets, names_of_schemas, names_of_shares, names_of_tables
from delta_sharing_client.delta.data_types import type_text
from delta_sharing_client.delta.schema import parse_schema
from mock_server import demo


def test_every_type_is_printed_on_one_line() -> None:
    def column(name: str, kind: object) -> dict[str, object]:
        return {"name": name, "type": kind, "nullable": True, "metadata": {}}

    inner = {"type": "struct", "fields": [column("x", "long"), column("y", "decimal(38,2)")]}
    schema = {
        "type": "struct",
        "fields": [
            column("a", {"type": "array", "elementType": inner, "containsNull": True}),
            column("m", {"type": "map", "keyType": "string", "valueType": "varchar(5)", "valueContainsNull": True}),
            column("t", "timestamp_ntz"),
        ],
    }

    assert [type_text(field.type) for field in parse_schema(json.dumps(schema)).fields] == [
        "array<struct<x: long, y: decimal(38,2)>>",
        "map<string, varchar(5)>",
        "timestamp_ntz",
    ]


def _commands() -> dict[str, str]:
    """Return each command's help text by the words that call the command."""
    root = typer.main.get_command(app)
    results: dict[str, str] = {}
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        for inner, nested in getattr(command, "commands", {"": command}).items():
            if not nested.hidden:
                results[f"{name} {inner}".strip()] = nested.help or ""
    return results


# The demo server refuses this command, which tests/unit/protocol tests.
_REFUSED = ("credentials",)


@pytest.mark.parametrize("command", _commands())
def test_every_command_has_two_working_examples(
    command: str, serve_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo.share").write_text(json.dumps(serve_demo.profile))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # the stdin of pytest cannot be read
    monkeypatch.setenv("DELTA_SHARING_PROFILE", "demo.share")
    # Without this, the command would open a browser and run until Ctrl-C.
    monkeypatch.setattr("delta_sharing_client.loopback.wait", lambda ended: None)
    activated = json.dumps(serve_demo.profile).encode()
    monkeypatch.setattr("delta_sharing_client.http.sessions.fetched", lambda *_, **__: (200, activated))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    examples = re.findall(r"^Example: (.*)$", _commands()[command], re.MULTILINE)

    assert len(examples) >= 2
    for example in examples:
        words = shlex.split(example)
        assert words[: 1 + len(command.split())] == ["delta-sharing", *command.split()]
        assert main(words[1:]) == (5 if command in _REFUSED else 0), (example, capfd.readouterr().err)


# ``serve --help`` shows the help of mock_server instead.
@pytest.mark.parametrize("command", ["", "profile", *(name for name in _commands() if name != "serve")])
def test_help_fits_80_columns_and_keeps_examples_whole(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert main([*command.split(), "--help"]) == 0

    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "bool" not in printed.lower()
    examples = re.findall(r"^Example: (.*)$", _commands().get(command, ""), re.MULTILINE)
    assert [example for example in examples if f"  Example: {example}\n" not in printed] == []


def test_profile_check_reports_expiration_and_asset_counts(serve_demo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", str(serve_demo.profile_path), "profile", "check"]) == 0
    assert re.search(r"^tokenExpires +not stated in the profile$", capsys.readouterr().out, re.MULTILINE)
    assert main(["--profile", str(serve_demo.profile_path), "profile", "check", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["tokenExpires"] is None
    assert main(["--profile", str(serve_demo.profile_path), "ls", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    for kind in ("tables", "volumes", "models", "skills"):
        listed = sum(len(schema[kind]) for schemas in tree.values() for schema in schemas.values())
        assert output[f"num{kind.capitalize()}"] == listed > 0


def test_timestamps_are_formatted_as_in_rows(serve_demo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    profile = json.loads(serve_demo.profile_path.read_text()) | {"expirationTime": "2099-01-31T10:00:00.5+02:00"}
    arguments = ["--profile", json.dumps(profile), "--json"]

    assert main([*arguments, "history", "demo.shop.orders"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["timestamp"] == "2026-01-05T08:00:00Z"
    assert main([*arguments, "profile", "check"]) == 0
    assert json.loads(capsys.readouterr().out)["tokenExpires"] == "2099-01-31T08:00:00.500000Z"


def test_credentials_of_a_local_directory_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mock_server.running(tables=demo.build(tmp_path), local_directories=True) as server:
        assert main(["--profile", str(server.profile_path), "credentials", "demo.shop.orders", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["location"].startswith("file://")


def test_table_names_are_completed(serve_demo: Any) -> None:
    class Context:
        params: dict[str, object] = {"profile": str(serve_demo.profile_path)}  # noqa: RUF012
        parent = None

    assert names_of_tables(Context(), "demo.shop.o") == ["demo.shop.orders"]
    assert names_of_assets(Context(), "demo.shop.do") == ["demo.shop.documents"]
    assert names_of_shares(Context(), "D") == ["demo"]
    assert names_of_schemas(Context(), "") == ["demo"]
    assert names_of_schemas(Context(), "Demo.") == ["demo.shop", "demo.weather", "demo.lake"]
    assert names_of_schemas(Context(), "demo.w") == ["demo.weather"]
    Context.params = {"profile": "nowhere.share"}
    assert [names(Context(), "demo") for names in (names_of_tables, names_of_shares, names_of_schemas)] == [[], [], []]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_completes_table_names(
    shell: str, serve_demo: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"delta-sharing --profile {serve_demo.profile_path} head demo.shop."
    asked = {"COMP_WORDS": line, "COMP_CWORD": "4"} if shell == "bash" else {"_TYPER_COMPLETE_ARGS": line}
    for name, value in {**asked, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("_DELTA_SHARING_COMPLETE", f"complete_{shell}")

    with pytest.raises(SystemExit):
        main([])

    assert re.findall(r"[\w.]+\.\w+", capsys.readouterr().out) == ["demo.shop.orders", "demo.shop.products"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nope FROM demo.shop.orders", "DuckDB cannot run the SQL"),
        ("SELEC", "The SQL must be one query"),
        ("SELECT (", "The SQL cannot be parsed"),
        ("DROP TABLE demo.shop.orders", "The SQL must be one query"),
        ("SELECT 1 FROM demo.shop.oders", "Did you mean 'demo.shop.orders'?"),
    ],
)
def test_failed_sql_is_reported_in_one_sentence(
    query: str, message: str, serve_demo: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--profile", str(serve_demo.profile_path), "sql", query]) in (2, 3)
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
