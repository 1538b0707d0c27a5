"""Stores the steps of ``delta-sharing follow``: each is written to a file, or to stdout, before it is committed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from delta_sharing_client.cli import output
from delta_sharing_client.errors import UsageError
from delta_sharing_client.outputs.file_formats import FileFormat
from delta_sharing_client.outputs.files import write_file, write_stream

if TYPE_CHECKING:
    from delta_sharing_client.cli.program import Settings
    from delta_sharing_client.follow.steps import FollowedChanges

# Enough characters of the cursor's id to distinguish the files of two cursors.
_ID = 8
_WRITTEN = re.compile(r"\d{8,}-(?:snapshot|changes)-\d+-\d+-([0-9a-f]{8})\.\w+")


def store(changes: FollowedChanges, folder: Path | None, file_format: FileFormat | None, settings: Settings) -> None:
    """Write a step into ``folder``, or to stdout if ``None``, and report it; a repeated step replaces its file.

    Raises
    ------
    UsageError
        The folder cannot be written, or has a file of another cursor under this name.
    DeltaSharingError
        As ``Read.to_reader``; no file is written then.
    """
    if folder is None and file_format not in (None, FileFormat.JSONL):
        raise UsageError(
            f"Changes on stdout are JSON lines; for {file_format.value} give a directory, as in --to changes."
        )
    with changes.to_reader() as reader:
        if folder is None:
            rows, where = write_stream(reader, reader.schema, sys.stdout.buffer, FileFormat.JSONL), "stdout"
            sys.stdout.buffer.flush()
        else:
            target = _target(changes, folder, file_format or FileFormat.PARQUET)
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
        output.print_json(facts)
        sys.stdout.flush()
        return
    versions = f"version {changes.start_version}"
    if changes.end_version > changes.start_version:
        versions = f"versions {changes.start_version} to {changes.end_version}"
    what = "snapshot of" if changes.is_snapshot else "changes of"
    again = ", which came before and were not committed" if changes.is_repeat else ""
    output.print_note(f"{rows} rows of the {what} {versions} written to {where}{again}")


def _target(changes: FollowedChanges, folder: Path, file_format: FileFormat) -> Path:
    kind = "snapshot" if changes.is_snapshot else "changes"
    ours = changes.id[:_ID]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [_WRITTEN.fullmatch(entry.name) for entry in folder.iterdir()]
    except OSError as error:
        raise UsageError(f"Cannot write into '{folder}': {error.strerror}. Choose another directory.") from None
    if any(found is not None and found[1] != ours for found in written):
        raise UsageError(
            f"The directory '{folder}' has the changes of another cursor already. Choose another one, or delete what "
            "is there."
        )
    name = f"{changes.number:08d}-{kind}-{changes.start_version}-{changes.end_version}-{ours}"
    return folder / f"{name}.{file_format.value}"
