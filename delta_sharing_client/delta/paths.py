"""Paths in a Delta log, and keys that identify a file whatever the signature of its URL is.

Paths are URIs, percent-encoded once, and relative to the table or absolute (Delta log protocol, "Add File and Remove
File").
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path, PureWindowsPath
from typing import Union
from urllib.parse import unquote

from delta_sharing_client.delta.actions import AddCdcFile, AddFile, RemoveFile, SharedFile
from delta_sharing_client.errors import DataError
from delta_sharing_client.redact import safe_url

DELETION_VECTOR_SUFFIX = "#dv"
FileKey = Union[str, tuple[str, str]]
"""The identity of a logical file: that of its data file, with the unique id of its deletion vector if it has one."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_LOCALHOST = re.compile("//localhost(?=/)", re.IGNORECASE)
_HOST = re.compile("file://(?!localhost/)[^/]", re.IGNORECASE)
_DRIVE = re.compile("/[A-Za-z]:(?:/|$)")
_URL = re.compile(r"https?://[^/?#]", re.IGNORECASE)


def canonical_path(path: str) -> str:
    """Return a normal form of ``path``, equal for all spellings of one file.

    Percent escapes are decoded, ``.`` and ``..`` segments and doubled slashes are resolved, ``file:`` URIs become plain
    absolute paths, and an http(s) URL loses its query string (the signature differs between responses).
    """
    decoded = _decoded(path)
    if ("./" not in decoded and "//" not in decoded) or _SCHEME.match(decoded):
        return decoded
    # normpath keeps two leading slashes, so there must be only one.
    return posixpath.normpath("/" + decoded.lstrip("/") if decoded.startswith("/") else decoded)


def resolve(table_root: str | os.PathLike[str], path: str) -> Path:
    """Return the local path of the file that a path of the log names.

    The path is percent-decoded once; a relative one is below ``table_root``. Raises ``DataError`` if the path is empty,
    has a scheme other than ``file:``, contains a null byte, or leaves the table with ``..``.
    """
    if _SCHEME.match(path) and not path.lower().startswith("file:"):
        raise DataError(f"A local table may only refer to local files, found {safe_url(path)!r}.")
    decoded = _decoded(path)
    if not decoded or "\0" in decoded:
        raise DataError(f"A file path in the log must be the URI of a file, found {path[:200]!r}.")
    if _HOST.match(path) and isinstance(Path(), PureWindowsPath):
        decoded = "/" + decoded  # \\host\share
    local = local_path(decoded) if is_absolute(path) else Path(decoded)
    if local.is_absolute():
        return local
    if ".." in local.parts:
        raise DataError(f"A relative file path in the log must stay inside the table, found {path[:200]!r}.")
    return Path(table_root) / local


def local_path(path: str) -> Path:
    """Return the local path that the decoded path of a ``file:`` URL means. On Windows, it has a slash before its
    drive."""
    local = Path(path)
    return Path(path[1:]) if isinstance(local, PureWindowsPath) and _DRIVE.match(path) else local


def is_absolute(path: str) -> bool:
    """Return whether a log path is absolute (a URI with a scheme, or a path from the root) rather than relative."""
    return path.startswith("/") or _SCHEME.match(path) is not None


def is_url(path: str) -> bool:
    """Return whether ``path`` is an http(s) URL."""
    return _URL.match(path) is not None


def without_query(path: str) -> str:
    """Return a path, or an http(s) URL without its query string, so that it stays the same when it is signed again."""
    return path.partition("?")[0] if is_url(path) else path


def url_key(file: SharedFile) -> str:
    """Return a key of ``file`` that stays the same when a query is repeated, whatever the signature of its URL is.

    The key consists of the kind of action, the version that the server states (a change feed may add a file in one
    version and remove it in another), and the file id or, without an id, the URL without its query string. The key of
    an added file without a version is the id itself, the same string object, because there may be a million. The key of
    the file's deletion vector is this key followed by ``DELETION_VECTOR_SUFFIX``.
    """
    file_id, action = file.file_id, file.action
    if file_id and ":" not in file_id and file.version is None and isinstance(action, AddFile):
        return file_id
    kind = "add" if isinstance(action, AddFile) else "cdc" if isinstance(action, AddCdcFile) else "remove"
    version = "" if file.version is None else file.version
    return f"{kind}:{version}:{file_id or without_query(action.path)}"


def logical_file_key(action: AddFile | RemoveFile) -> FileKey:
    """Return the primary key of an action's logical file: the canonical path and the deletion vector."""
    path, vector = canonical_path(action.path), action.deletion_vector
    return path if vector is None else (path, vector.unique_id)


def shared_file_key(file: SharedFile) -> FileKey:
    """Return the key of a logical file that a server lists: its id and its deletion vector, the same in every response.

    A file without an id is identified by its canonical path. A deletion vector behind a signed URL is identified by
    its id from the server, or by the URL without its signature; both include the offset, because a file contains
    many vectors.
    """
    action = file.action
    base = file.file_id or canonical_path(action.path)
    vector = action.deletion_vector
    if vector is None:
        return base
    if vector.storage_type == "p" and (file.vector_id or is_url(vector.path_or_inline_dv)):
        return (base, f"p{file.vector_id or canonical_path(vector.path_or_inline_dv)}@{vector.offset}")
    return (base, vector.unique_id)


def unversioned(key: str) -> str:
    """Return ``key``, a result of ``url_key``, without its version; it identifies a file within one snapshot."""
    kind, colon, rest = key.partition(":")
    return f"{kind}::{rest.partition(':')[2]}" if colon else f"add::{key}"


def _decoded(path: str) -> str:
    if "%" not in path and ":" not in path:
        return path
    if not _SCHEME.match(path):
        return unquote(path)
    scheme, _, rest = path.partition(":")
    scheme = scheme.lower()
    if scheme in ("http", "https"):
        return path.partition("?")[0]
    if scheme == "file":
        return "/" + unquote(_LOCALHOST.sub("", rest, count=1)).lstrip("/")
    return f"{scheme}:{unquote(rest)}"
