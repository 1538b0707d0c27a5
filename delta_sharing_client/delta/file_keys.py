"""The name under which a shared file's URL can be asked for again."""

from __future__ import annotations

from typing import TypeGuard

from delta_sharing_client.delta.actions import AddCdcFile, AddFile, FileAction

DELETION_VECTOR_SUFFIX = "#dv"


def url_key(action: FileAction) -> str:
    """Return the key of ``action``'s data file: equal for the same action of a repeated query, whatever its signature.

    It is made of the kind of action, the version the server states (change feeds need it: one file may be added and
    removed in two versions) and the file id, or the URL's path without query string where the server sent no id. An
    added file without a version is named by its id alone, the same text object: a million of them share it.
    The key of the action's deletion vector is this key followed by ``DELETION_VECTOR_SUFFIX``.
    """
    if isinstance(action, AddFile) and action.shared_version is None and _is_plain(action.file_id):
        return action.file_id
    kind = "add" if isinstance(action, AddFile) else "cdc" if isinstance(action, AddCdcFile) else "remove"
    version = "" if action.shared_version is None else action.shared_version
    return f"{kind}:{version}:{action.file_id or without_query(action.path)}"


def unversioned(key: str) -> str:
    """Return a key without its version: what names a file of one snapshot, whether or not the server states it."""
    kind, colon, rest = key.partition(":")
    return f"{kind}::{rest.partition(':')[2]}" if colon else f"add::{key}"


def _is_plain(file_id: str | None) -> TypeGuard[str]:
    return bool(file_id) and ":" not in str(file_id)


def without_query(path: str) -> str:
    """Return a path or URL up to its query string: what stays the same when it is signed again."""
    return path.partition("?")[0] if "://" in path else path
