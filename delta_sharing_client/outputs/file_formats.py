"""The file formats, by name and file extension; and compact JSON text."""

from __future__ import annotations

import enum
import errno
import json
from pathlib import Path

from delta_sharing_client.errors import UsageError


class FileFormat(str, enum.Enum):
    """The file formats; the values are the names on the command line."""

    PARQUET = "parquet"
    CSV = "csv"
    ARROW = "arrow"
    JSONL = "jsonl"
    JSON = "json"
    XLSX = "xlsx"


# The error numbers of a full disk, an exceeded quota or file size limit, and a failing device.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

BY_ENDING = {
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".arrow": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSON,
    ".xlsx": FileFormat.XLSX,
}
GZIP = ".gz"
# The other formats have compression of their own.
_WITH_GZIP = (FileFormat.CSV, FileFormat.JSONL, FileFormat.JSON)


def format_of(target: Path) -> FileFormat:
    """Return the format for the suffix of ``target``, or for the suffix before ``.gz``. Raises ``UsageError`` for
    others."""
    name = target.with_suffix("") if target.suffix.lower() == GZIP else target
    try:
        return BY_ENDING[name.suffix.lower()]
    except KeyError:
        raise UsageError(
            f"Cannot tell the format of {str(target)!r} from its extension. Expected one of {', '.join(BY_ENDING)}; a "
            f"text format may be followed by {GZIP}. On the command line, --format also chooses the format."
        ) from None


def is_compressed(target: Path, file_format: FileFormat) -> bool:
    """Return whether ``target`` is compressed with gzip, by its suffix. Raises ``UsageError`` for a format that is not
    text."""
    if target.suffix.lower() != GZIP:
        return False
    if file_format not in _WITH_GZIP:
        raise UsageError(
            f"A file in the format {file_format.value} is not compressed as a whole; leave {GZIP} out of "
            f"{str(target)!r}."
        )
    return True


def compact_json(value: object) -> str:
    """Return ``value`` as JSON text on one line, without escaping non-ASCII characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
