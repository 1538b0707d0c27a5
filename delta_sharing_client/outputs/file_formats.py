"""The formats of files that rows are written into, by their names and endings, and JSON as one line of text."""

from __future__ import annotations

import enum
import errno
import json
from pathlib import Path

from delta_sharing_client.errors import UsageError


class FileFormat(str, enum.Enum):
    """How rows are written; the values are the names on the command line."""

    PARQUET = "parquet"
    CSV = "csv"
    ARROW = "arrow"
    JSONL = "jsonl"


# A disk that is full, a quota, a limit on the size of files, a device that fails.
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
    """Return the format that the ending of ``target`` names. UsageError for any other ending."""
    try:
        return BY_ENDING[target.suffix.lower()]
    except KeyError:
        raise UsageError(
            f"Cannot tell the format of {str(target)!r} from its ending; "
            f"expected one of {', '.join(BY_ENDING)}; or choose with --format."
        ) from None


def compact_json(value: object) -> str:
    """Return ``value`` as JSON text on one line, with characters outside ASCII as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
