"""What ``delta-sharing copy`` takes and says."""

from __future__ import annotations

import datetime

from delta_sharing_client.errors import UsageError
from delta_sharing_client.replica import Replica


def retention(days: float) -> datetime.timedelta:
    """Return ``days`` as a duration; ``UsageError`` if it is longer than one can be."""
    try:
        return datetime.timedelta(days=days)
    except (OverflowError, ValueError):
        raise UsageError(f"--keep-days must be a number of days such as 7, found {days}") from None


def copy_facts(done: Replica) -> dict[str, object]:
    """Return what ``--json`` prints of an update; the keys are stable."""
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


def copy_text(done: Replica) -> str:
    """Return one line for people: what the copy holds now, and what this update did."""
    return (
        f"{done.directory} holds version {done.version}: {done.num_files} files, {done.size} bytes; "
        f"downloaded {done.downloaded_files} files, {done.downloaded_bytes} bytes, deleted {done.deleted_files} files"
    )
