"""What the command prints: tables and trees for people, JSON for machines."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from delta_sharing_client.redact import printable

_NULL = Text("null", style="dim")
# Columns narrower than this cannot be read; a row then gets a block of its own.
_NARROWEST_COLUMN = 8
_PIPE_WIDTH = 100_000


def compact_json(value: object) -> str:
    """Return ``value`` as JSON text on one line, with characters outside ASCII as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def print_json(value: object) -> None:
    """Print ``value`` as one line of JSON."""
    sys.stdout.write(f"{printable(compact_json(value))}\n")


def print_items(items: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Print a listing: one line an item, with ``columns`` of it; a column in which no item has a value is left out."""
    shown = [name for name in columns if name == columns[0] or any(item.get(name) is not None for item in items)]
    table = _table(shown)
    for item in items:
        table.add_row(*(cell("" if item.get(name) is None else item[name]) for name in shown))
    _print(table)


def print_rows(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Print data rows as a table, or one below the other where the terminal is too narrow for all columns."""
    if len(names) * (_NARROWEST_COLUMN + 2) > _console(sys.stdout).width:
        for number, row in enumerate(rows, 1):
            _print(Text(f"row {number}", style="bold"))
            _print(_pairs(row))
        return
    table = _table(names)
    for row in rows:
        table.add_row(*(cell(row[name]) for name in names))
    _print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one a line; a value of None is left out."""
    _print(_pairs({name: value for name, value in facts.items() if value is not None}))


def print_tree(title: str, tree: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Print shares, their schemas and their tables as a tree."""
    root = Tree(cell(title))
    for share, schemas in tree.items():
        branch = root.add(cell(share))
        for schema, tables in schemas.items():
            leaves = branch.add(cell(schema))
            for table in tables:
                leaves.add(cell(table))
    _print(root)


def print_text(text: str) -> None:
    """Print ``text`` as it is, except for control characters inside its lines."""
    for line in text.splitlines():
        _print(cell(line))


def print_note(text: str) -> None:
    """Print ``text`` on stderr, where it does not disturb what is piped."""
    sys.stderr.write(f"{printable(text)}\n")


def cell(value: object) -> Text:
    """Return a JSON value as text for a terminal; names and data cannot send it control sequences or markup."""
    if value is None:
        return _NULL
    return Text(printable(value if isinstance(value, str) else compact_json(value)))


def _table(names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(cell(name), overflow="ellipsis", no_wrap=True)
    return table


def _pairs(facts: Mapping[str, object]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(cell(name), cell(value))
    return table


def _print(what: RenderableType) -> None:
    if sys.stdout.isatty():
        _console(sys.stdout).print(what)
        return
    text = io.StringIO()
    _console(text).print(what)
    # Cells are padded to the width of their column, which means nothing in a pipe.
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def _console(file: TextIO) -> Console:
    # A pipe has no width: nothing is cut there.
    return Console(file=file, highlight=False, width=None if file.isatty() else _PIPE_WIDTH)
