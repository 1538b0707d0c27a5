"""The current metadata file of an Iceberg table, in a directory of this machine or in S3 (Iceberg, "Table Metadata").

The newest file is current. Catalogs name the files ``<number>-<uuid>.metadata.json``; the Hadoop catalog names them
``v<number>.metadata.json``, and its ``version-hint.text`` states the current number.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .errors import data_lost

FOLDER = "metadata"
_HINT = "version-hint.text"
_FILE = re.compile(r"(?:v(\d{1,18})|(\d{1,18})-.+?)(\.gz)?\.metadata\.json(\.gz)?").fullmatch


class MetadataFile(NamedTuple):
    """The name of a metadata file in the folder ``metadata``, and its content."""

    name: str
    content: dict[str, Any]


def is_iceberg(location: Path) -> bool:
    """Return whether there is an Iceberg table in a directory."""
    folder = location / FOLDER
    return folder.is_dir() and newest(path.name for path in folder.iterdir()) is not None


def newest(names: Iterable[str]) -> str | None:
    """Return the name of the newest metadata file; ``None`` if there is none."""
    numbered = [(int(match[1] or match[2]), name) for name in names if (match := _FILE(name))]
    return max(numbered)[1] if numbered else None


def current(names: Iterable[str], read: Callable[[str], bytes], table: str) -> MetadataFile:
    """Return the current metadata of a table; ``read`` returns the content of a file in its folder.

    Raises `ApiError` if there is no metadata, or if it is not a JSON object.
    """
    listed = list(names)
    name = _hinted(listed, read) or newest(listed)
    if name is None:
        raise data_lost(f"The Iceberg table '{table}' has no metadata file.")
    data = read(name)
    try:
        content = json.loads(gzip.decompress(data) if ".gz" in name else data)
    except (ValueError, OSError, EOFError, RecursionError) as error:
        raise data_lost(f"The metadata file '{name}' of the Iceberg table '{table}' is damaged.") from error
    if not isinstance(content, dict):
        raise data_lost(f"The metadata file '{name}' of the Iceberg table '{table}' is not a JSON object.")
    return MetadataFile(name, content)


def _hinted(names: list[str], read: Callable[[str], bytes]) -> str | None:
    if _HINT not in names:
        return None
    number = read(_HINT).decode("ascii", "replace").strip()
    return next((name for name in names if (match := _FILE(name)) and match[1] == number), None)
