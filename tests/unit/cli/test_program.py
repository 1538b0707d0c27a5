from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import delta_sharing_client
from delta_sharing_client import errors
from delta_sharing_client.cli import main
from delta_sharing_client.cli.program import ExitCode, exit_code, one_line, run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "nonsense"),
        (["describe"], "ASSET"),
        (["head", "a.b.c", "-n", "-1"], "--limit"),
        (["head", "a.b.c", "--limit", "many"], "--limit"),
        (["tables", "--what"], "--what"),
        (["read", "a.b.c", "--format", "ods"], "ods"),
        (["sql", "SELECT", "1"], "(1). Put SQL, and anything else with spaces, in quotes."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_invalid_arguments_are_named_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("delta-sharing: ")
    assert message in printed.err
    named = f" {arguments[0]}" if arguments[0] in ("describe", "head", "read", "tables", "sql") else ""
    assert printed.err.endswith(f"See: delta-sharing{named} --help\n")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("start", [[], ["--starting-version", "1", "--starting-timestamp", "2024-01-01"]])
def test_change_feed_needs_exactly_one_start(start: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["changes", "a.b.c", *start]) == ExitCode.USAGE
    assert "--starting-version N or --starting-timestamp" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "command"), [([], "  describe "), (["profile"], "  check ")])
def test_program_without_a_command_shows_only_its_help(
    arguments: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE

    printed = capsys.readouterr()
    assert [line for line in (printed.out + printed.err).splitlines() if line.startswith(command)] != []
    assert "delta-sharing: " not in printed.err


def test_missing_profile_error_names_the_searched_places(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["tables", "--profile", str(tmp_path / "none.share")]) == ExitCode.USAGE
    assert main(["tables"]) == ExitCode.USAGE

    first, second = capsys.readouterr().err.splitlines()
    assert "none.share" in first
    assert "DELTA_SHARING_PROFILE" in second


def test_malformed_table_name_is_refused_before_any_request(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = tmp_path / "p.share"
    profile.write_text(json.dumps({"shareCredentialsVersion": 1, "endpoint": "https://h.invalid", "bearerToken": "t"}))

    assert main(["head", "only.two", "-p", str(profile)]) == ExitCode.USAGE
    assert main(["head", f"{profile}#a.b.c", "-p", "other.share"]) == ExitCode.USAGE

    first, second = capsys.readouterr().err.splitlines()
    assert "only.two" in first
    assert "other.share" in second


def test_version_and_help_need_no_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert main(["--help"]) == ExitCode.OK

    printed = capsys.readouterr().out
    assert printed.startswith(f"delta-sharing-client {delta_sharing_client.__version__}\n")
    assert "describe" in printed


def test_warning_is_one_line_and_the_command_continues(capsys: pytest.CaptureFixture[str]) -> None:
    def app(**_: object) -> None:
        warnings.warn("The table 't' is not\nwhat it was.", UserWarning, stacklevel=1)
        print("rows")  # noqa: T201

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = warnings.showwarning

        assert run(app, []) == ExitCode.OK
        assert warnings.showwarning is shown

    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("rows\n", "delta-sharing: The table 't' is not what it was.\n")


@pytest.mark.parametrize("query", ["SELECT 1 FROM FROM", "SELECT (1 FROM t", "SELECT 'a"])
def test_invalid_sql_is_reported_without_terminal_markup(
    query: str, serve_demo: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", query, "--profile", str(serve_demo.profile_path)]) == ExitCode.USAGE

    errors = capsys.readouterr().err
    assert errors.startswith("delta-sharing: The SQL cannot be parsed. ")
    assert "\\x1b" not in errors
    assert "[4m" not in errors


def test_unwritable_file_error_suggests_a_remedy(
    serve_demo: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "nowhere" / "x.csv"
    words = ["--profile", str(serve_demo.profile_path), "read", "demo.shop.products", "-o", str(target)]

    assert main(words) == ExitCode.USAGE
    missing = f"Cannot write '{target}': there is no directory '{target.parent}'. Create it.\n"
    assert missing in capsys.readouterr().err


def _all_errors(root: type[errors.DeltaSharingError]) -> list[type[errors.DeltaSharingError]]:
    return [root, *(subclass for child in root.__subclasses__() for subclass in _all_errors(child))]


@pytest.mark.parametrize("cls", _all_errors(errors.DeltaSharingError)[1:])
def test_every_error_class_has_an_exit_code_other_than_internal(cls: type[errors.DeltaSharingError]) -> None:
    assert exit_code(cls("sentence")) not in (ExitCode.OK, ExitCode.INTERNAL)


def test_not_found_has_its_own_exit_code() -> None:
    assert exit_code(errors.NotFoundError("no such table")) is ExitCode.NOT_FOUND
    assert exit_code(errors.RequestError("bad gateway")) is ExitCode.SERVER


def test_error_line_has_no_line_breaks_and_no_signatures() -> None:
    error = errors.TransportError("read of https://host/file?X-Amz-Signature=abcdef\n  failed")

    assert one_line(error) == "read of https://host/file?*** failed"
    assert one_line(KeyError()) == "KeyError"
