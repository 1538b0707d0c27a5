"""Which response format an answer comes in, and which tables are refused (protocol, "Compatibility")."""

from __future__ import annotations

from collections.abc import Iterable

from delta_sharing_client.delta import features
from delta_sharing_client.delta.actions import Metadata, Protocol
from delta_sharing_client.delta.column_mapping import ColumnMappingMode, mapping_mode

from .capabilities import Capabilities, Format
from .errors import unsupported
from .faults import FaultSet

# These concern who reads the log or deletes files; the answer is neither a checkpoint nor a table to vacuum.
_LOG_ONLY = frozenset({"v2checkpoint", "vacuumprotocolcheck"})
# The newest commits of such a table are known to its catalog, not to its log: this server would share a stale table.
_UNREADABLE_HERE = frozenset({"catalogmanaged", "catalogowned-preview", "redirectreaderwriter-preview"})


def choose_format(
    capabilities: Capabilities, states: Iterable[tuple[Protocol, Metadata]], table: str, faults: FaultSet
) -> Format:
    """Return the format to answer in, for a table that goes through ``states``; refuse a table that none can carry."""
    refusals: list[str] = []
    needed: list[str] = []
    for protocol, metadata in states:
        _check_readable_here(protocol, table)
        refusals.extend(features.parquet_format_refusals(protocol, metadata))
        needed.extend(_needed_features(protocol, metadata))
    refusals, missing = (
        _unique(refusals),
        _unique(name for name in needed if name.lower() not in capabilities.reader_features),
    )
    wanted = capabilities.formats
    if faults.take("wrong-format"):
        return Format.PARQUET if Format.PARQUET not in wanted or (len(wanted) > 1 and refusals) else Format.DELTA
    if Format.PARQUET in wanted and not refusals:
        return Format.PARQUET
    if Format.DELTA not in wanted:
        raise unsupported(
            f"Unsupported Delta Table Properties or features found on table {table}: {', '.join(refusals)}. They "
            "cannot be shared in the parquet response format: the header delta-sharing-capabilities must have "
            "'responseformat=delta' and the 'readerfeatures' that the table needs."
        )
    if missing:
        raise unsupported(
            f"Unsupported Delta Table Properties or features found on table {table}: the request does not list "
            f"{', '.join(missing)} in the 'readerfeatures' of its delta-sharing-capabilities header."
        )
    return Format.DELTA


def check_carried(chosen: Format, vectors: Iterable[object], table: str) -> None:
    """Refuse files with deletion vectors (one for each file, or ``None``) in a format that has no place for them.

    The protocol of such a table should list the feature. Where it does not, deleted rows must not come back either.
    """
    if chosen is Format.PARQUET and any(vector is not None for vector in vectors):
        raise unsupported(
            f"Unsupported Delta Table Properties or features found on table {table}: deletionVectors, which its "
            "protocol does not list. They cannot be shared in the parquet response format."
        )


def _check_readable_here(protocol: Protocol, table: str) -> None:
    if protocol.min_reader_version > features.MAX_READER_VERSION:
        raise unsupported(
            f"The table '{table}' has minReaderVersion {protocol.min_reader_version}: this server reads up to version "
            f"{features.MAX_READER_VERSION}."
        )
    for name in protocol.reader_features or ():
        if name.lower() in _UNREADABLE_HERE:
            raise unsupported(f"The table '{table}' has the feature '{name}', with which this server cannot read it.")


def _needed_features(protocol: Protocol, metadata: Metadata) -> list[str]:
    names = [name for name in protocol.reader_features or () if name.lower() not in _LOG_ONLY]
    if mapping_mode(metadata) is not ColumnMappingMode.NONE and "columnmapping" not in {name.lower() for name in names}:
        names.append("columnMapping")
    return names


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
