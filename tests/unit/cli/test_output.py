from __future__ import annotations

import io
import json
import re

import pytest

from delta_sharing_client.cli import output


def test_piped_rows_are_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{f"column_{position}": "x" * 60 for position in range(40)}]

    output.print_rows(list(rows[0]), rows)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].split() == ["x" * 60] * 40


def test_data_cannot_send_control_sequences_or_markup_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows(["[red]name"], [{"[red]name": "\x1b[2J[bold]x\r\n"}])
    output.print_tree("end\x07point", {"s": {"d": ["t\x1b[1m"]}})
    output.print_facts({"a": "\x9b1m"})

    printed = capsys.readouterr().out
    assert "[red]name" in printed
    assert "\\x1b[2J[bold]x\\r\\n" in printed
    assert not set(printed) & {"\x1b", "\x07", "\r", "\x9b"}


def test_a_null_is_told_from_the_text_null(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    output.print_rows(["a", "b"], [{"a": None, "b": [None, 1]}])

    assert capsys.readouterr().out.splitlines()[1].split() == ["null", "[null,1]"]
    assert output.cell(None).style == "dim"
    assert output.cell("null").style == ""


def test_a_listing_leaves_out_columns_without_values_but_never_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_items([{"name": "a", "id": None}], ["name", "id"])
    output.print_items([], ["name", "id"])

    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["name"], ["a"], ["name"]]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [40, 80, 140])
def test_no_column_is_lost_on_a_terminal_of_any_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_json_is_one_line_with_unicode_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"näme": ["a\nb", None]})

    printed = capsys.readouterr().out
    assert printed == '{"näme":["a\\nb",null]}\n'
    assert json.loads(printed) == {"näme": ["a\nb", None]}
