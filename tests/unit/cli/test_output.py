from __future__ import annotations

import io
import json
import re

import pytest

from delta_sharing_client.cli import output


def test_piped_rows_are_not_truncated(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{f"column_{position}": "x" * 60 for position in range(40)}]

    output.print_rows(list(rows[0]), rows)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].split() == ["x" * 60] * 40


def test_control_sequences_in_data_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows(["[red]name"], [{"[red]name": "\x1b[2J[bold]x\r\n"}])
    output.print_tree("end\x07point", {"s": {"d": {"tables": ["t\x1b[1m"], "volumes": ["v\x07[red]"]}}})
    output.print_facts({"a": "\x9b1m"})

    printed = capsys.readouterr().out
    assert "[red]name" in printed
    assert "v\\x07[red] (volume)" in printed
    assert "\\x1b[2J[bold]x\\r\\n" in printed
    assert not set(printed) & {"\x1b", "\x07", "\r", "\x9b"}


def test_null_looks_different_from_the_string_null(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output.print_rows(["a", "b"], [{"a": None, "b": [None, 1]}])

    assert capsys.readouterr().out.splitlines()[1].split() == ["null", "[null,1]"]
    assert output.cell(None).style == "dim"
    assert output.cell("null").style == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_wide_text_wraps_with_deeper_indentation(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr("sys.stdout", terminal)

    output.print_text("Scan of a.b.c\n\n  files to read: 12 of 12, by their types all of it")

    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()]
    assert lines == ["Scan of a.b.c", "", "  files to read: 12 of 12,", "    by their types all of it"]


@pytest.mark.parametrize("width", [40, 80, 140])
def test_every_column_is_shown_at_any_terminal_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{position}" for position in range(8)]
    rows = [{name: (row if name != "c3" else "long text " * 50) for name in names} for row in range(2)]
    terminal, notes = _Terminal(), io.StringIO()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", notes)

    output.print_rows(names, rows)

    printed = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert [name for line in printed.splitlines() for name in line.split() if name in names] == names
    assert all(len(line) <= width for line in printed.splitlines())
    assert "\u2026" in printed
    assert notes.getvalue() == "2 values are shortened; --json shows them whole.\n"


def test_json_is_one_line_with_unescaped_unicode(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"näme": ["a\nb", None]})

    printed = capsys.readouterr().out
    assert printed == '{"näme":["a\\nb",null]}\n'
    assert json.loads(printed) == {"näme": ["a\nb", None]}


def test_narrow_terminal_shortens_only_the_file_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout", terminal)

    items = [
        {"file": "f" * 64, "bytes": 12345, "rows": number, "partition": {"a": "x", "b": None}} for number in (7, 11)
    ]
    output.print_items(items, ["file", "bytes", "rows", "partition"])

    lines = [line.split() for line in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()]
    assert lines[0] == ["file", "bytes", "rows", "partition"]
    assert [line[1:] for line in lines[1:]] == [["12345", n, "a", "=", "x,", "b", "=", "null"] for n in ("7", "11")]
    assert all(line[0].startswith("fff") and line[0].endswith("…") for line in lines[1:])


def test_numbers_are_right_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows(["n", "t"], [{"n": 1, "t": "1"}, {"n": 100, "t": "100"}, {"n": None, "t": None}])

    assert capsys.readouterr().out.splitlines() == ["   n  t", "   1  1", " 100  100", "null  null"]


def test_nested_properties_are_printed_on_several_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_facts({"a": 1, "left out": None, "bb": "x"})
    assert [line.rstrip() for line in capsys.readouterr().out.split("\n")] == ["a   1", "bb  x", ""]
    output.print_facts({"features": ["a", "b"], "configuration": {"x.y": "true", "z": "\x1b"}, "nothing": {}})

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["features", "a,", "b"],
        ["configuration", "x.y", "=", "true"],
        ["z", "=", "\\x1b"],
        ["nothing", "none"],
    ]
