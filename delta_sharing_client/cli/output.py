"""The output of the commands: tables and trees for people, JSON for programs, and the files of ``follow``."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from delta_sharing_client.console import is_utf8
from delta_sharing_client.errors import UsageError
from delta_sharing_client.outputs.file_formats import FileFormat, compact_json
from delta_sharing_client.redact import printable

if TYPE_CHECKING:
    from delta_sharing_client.cli.program import Settings
    from delta_sharing_client.follow.steps import FollowedChanges
    from delta_sharing_client.protocol.messages import TemporaryCredentials
    from delta_sharing_client.replica import Replica

_NULL = Text("null", style="dim")
# Narrower columns are not readable, and one long value must not push the other columns off the terminal.
_NARROWEST_COLUMN = 8
_LONGEST_CELL = 40
_GAP = 2
_Columns = list[tuple[str, list[Text]]]
_PIPE_WIDTH = 100_000
# The number of characters of a cursor's id in file names, enough to distinguish the files of two cursors.
_ID = 8
_STEP_FILE = re.compile(r"\d{8,}-(?:snapshot|changes)-\d+-\d+-([0-9a-f]{8})\.\w+")


def print_json(value: object) -> None:
    """Print ``value`` as one line of JSON, with escapes if standard output is not UTF-8, which mean the same."""
    text = compact_json(value)
    sys.stdout.write(f"{printable(text) if is_utf8(sys.stdout) else _in_ascii(text)}\n")


def print_items(items: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Print a listing: one line per item, with ``columns``; a column without values is omitted."""
    values = {name: [item.get(name) for item in items] for name in columns}
    shown = [name for name in columns if name == columns[0] or any(value is not None for value in values[name])]
    texts = {name: [Text() if value is None else _readable(value, ", ") for value in values[name]] for name in shown}
    # On a narrow terminal the first column, a name or an id, is shortened; the others are not.
    others = sum(_GAP + max(len(name), *(text.cell_len for text in texts[name]), 0) for name in shown[1:])
    room = max(_NARROWEST_COLUMN, _console(sys.stdout).width - others)
    longest = [room] + [None] * (len(shown) - 1)
    _print_table(list(texts.items()), [values[name] for name in shown], longest)


def print_rows(names: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Print data rows as a table or, on a narrow terminal, as several tables, one below the other.

    Long values are shortened in a terminal; a note says how many.
    """
    width = _console(sys.stdout).width
    longest = width if not sys.stdout.isatty() else max(_NARROWEST_COLUMN, min(_LONGEST_CELL, width - 2))
    columns = [(name, [cell(row[name]) for row in rows]) for name in names]
    shortened = sum(text.cell_len > longest for _, texts in columns for text in texts)
    for number, block in enumerate(_blocks(columns, width, longest)):
        if number:
            _print(Text())
        _print_table(block, [[row[name] for row in rows] for name, _ in block], [longest] * len(block))
    if shortened:
        print_note(f"{shortened} values are shortened; --json shows them whole.")


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one per line; values of None are omitted."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value is not None:
            table.add_row(cell(name), _readable(value, "\n"))
    _print(table)


def print_gap() -> None:
    """Print an empty line."""
    sys.stdout.write("\n")


def show_facts(facts: Mapping[str, object], settings: Settings) -> None:
    """Print names and values, for people or as JSON."""
    print_json(facts) if settings.as_json else print_facts(facts)


def show_listing(items: Sequence[Mapping[str, object]], columns: Sequence[str], settings: Settings) -> None:
    """Print a listing: ``columns`` for people, everything as JSON."""
    print_json(list(items)) if settings.as_json else print_items(items, columns)


def print_tree(title: str, tree: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]]) -> None:
    """Print shares, their schemas and the assets in them as a tree; ``tree`` has the names of each kind.

    Names of assets that are not tables are followed by their kind.
    """
    root = Tree(cell(title))
    for share, schemas in tree.items():
        branch = root.add(cell(share))
        for schema, kinds in schemas.items():
            leaves = branch.add(cell(schema))
            for plural, names in kinds.items():
                kind = "" if plural == "tables" else f" ({plural.removesuffix('s')})"
                for name in names:
                    leaves.add(cell(name) + Text(kind, style="dim"))
    _print(root)


def print_text(text: str) -> None:
    """Print ``text`` unchanged, except for control characters inside its lines.

    Lines that are too long for a terminal are continued with an indentation.
    """
    console = _console(sys.stdout)
    for line in text.splitlines():
        start = " " * (len(line) - len(line.lstrip()))
        first, *more = cell(line.lstrip()).wrap(console, max(_NARROWEST_COLUMN, console.width - len(start) - _GAP))
        _print(Text(start) + first)
        for part in more:
            _print(Text(start + " " * _GAP) + part)


def print_note(text: str) -> None:
    """Print ``text`` on stderr, so that it is not in piped output."""
    sys.stderr.write(f"{printable(text)}\n")


def cell(value: object) -> Text:
    """Return a JSON value as text for a terminal, without control sequences and markup."""
    if value is None:
        return _NULL
    return Text(printable(value if isinstance(value, str) else compact_json(value)))


def _blocks(columns: _Columns, width: int, longest: int) -> Iterator[_Columns]:
    """Split ``columns`` into parts that each fit into ``width``."""
    block: _Columns = []
    used = 0
    for name, texts in columns:
        needed = min(longest, max(text.cell_len for text in (cell(name), *texts))) + _GAP
        if block and used + needed > width + _GAP:
            yield block
            block, used = [], 0
        block.append((name, texts))
        used += needed
    yield block


def _print_table(columns: _Columns, values: Sequence[Sequence[object]], longest: Sequence[int | None]) -> None:
    """Print ``columns`` with their ``values``. Numbers are right-aligned; ``longest`` has the maximum widths."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for (name, _), column, width in zip(columns, values, longest, strict=True):
        side: Literal["left", "right"] = "right" if _is_number(column) else "left"
        table.add_column(cell(name), no_wrap=True, max_width=width, justify=side)
    for row in zip(*(texts for _, texts in columns), strict=True):
        table.add_row(*row)
    _print(table)


def _is_number(column: Sequence[object]) -> bool:
    values = [value for value in column if value is not None]
    return bool(values) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _readable(value: object, between: str) -> Text:
    """Return a value of a listing or a description in a form for people. For values in rows, use ``cell``, which
    changes nothing."""
    if isinstance(value, Mapping):
        lines = [f"{name} = {one if isinstance(one, str) else compact_json(one)}" for name, one in value.items()]
        return Text(between.join(map(printable, lines)) or "none")
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return Text(printable(", ".join(value)) or "none")
    return cell(value)


def _print(what: RenderableType) -> None:
    if sys.stdout.isatty():
        _console(sys.stdout).print(what)
        return
    text = _Text()
    _console(text).print(what)
    # Cells are padded to the width of their column, which is useless in a pipe.
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


class _Text(io.StringIO):
    """Text for standard output. Without UTF-8, the library draws trees with ASCII characters."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8" if is_utf8(sys.stdout) else "ascii"


def _in_ascii(text: str) -> str:
    """Return JSON text with escapes in place of other characters than ASCII, which are only in its strings."""
    return "".join(character if character.isascii() else json.dumps(character)[1:-1] for character in printable(text))


def _console(file: TextIO) -> Console:
    # A pipe has no width, so nothing is shortened.
    return Console(file=file, highlight=False, width=None if file.isatty() else _PIPE_WIDTH)


# === Content ===


def replica_facts(done: Replica) -> dict[str, object]:
    """Return the object that ``--json`` prints for an update of a copy. Its keys are stable."""
    return {
        "directory": str(done.directory),
        "version": done.version,
        "localVersion": done.local_version,
        "numFiles": done.num_files,
        "sizeInBytes": done.size,
        "downloadedFiles": done.downloaded_files,
        "downloadedBytes": done.downloaded_bytes,
        "deletedFiles": done.deleted_files,
    }


def replica_text(done: Replica) -> str:
    """Return one line for people: the content of the copy, and what this update did."""
    return (
        f"{done.directory} holds version {done.version}: {done.num_files} files, {done.size} bytes; "
        f"downloaded {done.downloaded_files} files, {done.downloaded_bytes} bytes, deleted {done.deleted_files} files"
    )


def storage_facts(credentials: TemporaryCredentials, show_secrets: bool) -> dict[str, object]:
    """Return the temporary credentials, with the keys masked unless ``show_secrets``."""
    facts: dict[str, object] = {"location": credentials.location, "expirationTime": credentials.expiration_time}
    for kind in ("aws_temp_credentials", "azure_user_delegation_sas", "gcp_oauth_token", "r2_credentials"):
        keys_of_kind = getattr(credentials, kind)
        keys = {} if keys_of_kind is None else msgspec.structs.asdict(keys_of_kind)
        set_keys = {name: value for name, value in keys.items() if value is not None}
        facts.update({name: value if show_secrets else "***" for name, value in set_keys.items()})
    return facts


# === Steps of follow ===


def store_step(
    changes: FollowedChanges, folder: Path | None, file_format: FileFormat | None, settings: Settings
) -> None:
    """Write a step into ``folder``, or to stdout if that is ``None``, and report it. A repeated step replaces its file.

    Raises ``UsageError`` if the folder cannot be written, or has files of another cursor, and the errors of
    ``Read.to_reader``; no file is written then.
    """
    # Imported here: this imports the writers of all formats, and most commands write no file.
    from delta_sharing_client.outputs.file_writers import write_file, write_stream

    if folder is None and file_format not in (None, FileFormat.JSONL):
        raise UsageError(
            f"Changes on stdout are JSON lines; for {file_format.value} give a directory, as in --to changes."
        )
    with changes.to_reader() as reader:
        if folder is None:
            rows, where = write_stream(reader, reader.schema, sys.stdout.buffer, FileFormat.JSONL), "stdout"
            sys.stdout.buffer.flush()
        else:
            target = _step_file(changes, folder, file_format or FileFormat.PARQUET)
            rows = write_file(reader, reader.schema, target, file_format or FileFormat.PARQUET, lasting=True)
            where = str(target)
    facts = {
        "number": changes.number,
        "startVersion": changes.start_version,
        "endVersion": changes.end_version,
        "isSnapshot": changes.is_snapshot,
        "isRepeat": changes.is_repeat,
        "rows": rows,
        "file": None if folder is None else where,
    }
    if settings.as_json and folder is not None:
        print_json(facts)
        sys.stdout.flush()
        return
    versions = f"version {changes.start_version}"
    if changes.end_version > changes.start_version:
        versions = f"versions {changes.start_version} to {changes.end_version}"
    what = "snapshot of" if changes.is_snapshot else "changes of"
    again = " again, because they were not committed before" if changes.is_repeat else ""
    print_note(f"{rows} rows of the {what} {versions} written to {where}{again}")


def _step_file(changes: FollowedChanges, folder: Path, file_format: FileFormat) -> Path:
    kind = "snapshot" if changes.is_snapshot else "changes"
    ours = changes.id[:_ID]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [_STEP_FILE.fullmatch(entry.name) for entry in folder.iterdir()]
    except OSError as error:
        raise UsageError(f"Cannot write into '{folder}': {error.strerror}. Choose another directory.") from None
    if any(step is not None and step[1] != ours for step in written):
        raise UsageError(
            f"The directory '{folder}' already contains the changes of a different cursor. Choose another directory, "
            "or delete its files."
        )
    name = f"{changes.number:08d}-{kind}-{changes.start_version}-{changes.end_version}-{ours}"
    return folder / f"{name}.{file_format.value}"
