"""``_last_checkpoint``: a hint where the newest checkpoint lies (Delta log protocol, "Last Checkpoint File").

It is only a hint: a wrong, stale, empty or corrupt one is reported by a warning, and the listing of the directory
decides.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator
from urllib.parse import quote

from delta_sharing_client.delta.log.listing import Checkpoint, LogListing

FILE_NAME = "_last_checkpoint"
MAX_BYTES = 64 * 1024 * 1024


class LastCheckpointWarning(UserWarning):
    """A ``_last_checkpoint`` file was not used, because it is damaged or does not fit the log."""


def hinted_checkpoint(listing: LogListing) -> Checkpoint | None:
    """Return the checkpoint that ``_last_checkpoint`` names, ``None`` if there is no such file or it cannot be used.

    Warns
    -----
    LastCheckpointWarning
        The file exists but is damaged (not JSON, a wrong checksum, a field of a wrong type), or names a checkpoint that
        does not exist or is not complete.
    """
    try:
        with listing.directory.open(FILE_NAME) as stream:
            text = stream.read(MAX_BYTES).decode("utf-8")
        return _find(listing, text)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = "the JSON nests too deep" if isinstance(error, RecursionError) else str(error)
        warnings.warn(
            f"{FILE_NAME} of table {listing.table} is ignored, the log directory is listed instead: {reason}",
            LastCheckpointWarning,
            stacklevel=2,
        )
        return None


def canonical_json(text: str) -> str:
    """Return the canonical form of a JSON object, of which the checksum is taken (protocol, "JSON checksum").

    Raises
    ------
    ValueError
        ``text`` is not JSON, not an object, or has a key twice.
    """
    document = _parse(text)
    document.pop("checksum", None)
    leaves = [("+".join(path), leaf) for path, leaf in _leaves(document, ())]
    leaves.sort(key=lambda item: item[0].encode())
    return ",".join(f"{path}={leaf}" for path, leaf in leaves)


def json_checksum(text: str) -> str:
    """Return the MD5 digest, in hexadecimal, of :func:`canonical_json`."""
    return hashlib.md5(canonical_json(text).encode(), usedforsecurity=False).hexdigest()


class _Number(str):
    # The literal text of a number is its canonical form, so it is never turned into a float.
    __slots__ = ()


def _find(listing: LogListing, text: str) -> Checkpoint | None:
    document = _parse(text)
    checksum = document.get("checksum")
    if checksum is not None and (not isinstance(checksum, str) or checksum.lower() != json_checksum(text)):
        raise ValueError("its checksum does not fit its content")
    version = _whole_number(document, "version")
    parts = _whole_number(document, "parts") if document.get("parts") is not None else 1
    v2 = document.get("v2Checkpoint")
    name = v2.get("path") if isinstance(v2, dict) else None
    for checkpoint in listing.checkpoints.get(version, ()):
        if len(checkpoint.files) == parts and (name is None or checkpoint.name == name):
            return checkpoint
    raise ValueError(f"it names a checkpoint of version {version} in {parts} part(s) that is not there")


def _parse(text: str) -> dict[str, object]:
    document = json.loads(text, object_pairs_hook=_unique, parse_int=_Number, parse_float=_Number)
    if not isinstance(document, dict):
        raise ValueError("it must be a JSON object")
    return document


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("it has a key twice")
    return document


def _whole_number(document: dict[str, object], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, _Number) or not value.isdigit() or len(value) > 20:
        raise ValueError(f"{key} must be a whole number, found {str(value)[:50]!r}")
    return int(value)


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, _quoted(key)))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _leaves(item, (*path, str(position)))
    elif isinstance(value, _Number):
        yield path, str(value)
    elif isinstance(value, str):
        yield path, _quoted(value)
    else:
        yield path, json.dumps(value)


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="")}"'
