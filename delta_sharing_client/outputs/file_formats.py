"""File formats by name and ending, and JSON text."""

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


# Errors of a full disk, a quota, a limit on file sizes, or a failing device.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

BY_ENDING = {
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".arrow": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
}


def format_of(target: Path) -> FileFormat:
    """Return the format for the ending of ``target``; ``UsageError`` for other endings."""
    try:
        return BY_ENDING[target.suffix.lower()]
    except KeyError:
        raise UsageError(
            f"Cannot tell the format of {str(target)!r} from its ending; "
            f"expected one of {', '.join(BY_ENDING)}; or choose with --format."
        ) from None


def compact_json(value: object) -> str:
    """Return ``value`` as JSON text on one line, without escaping non-ASCII characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
