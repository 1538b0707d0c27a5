"""Chooses the response format of a table, and refuses incompatible tables (protocol, "Compatibility")."""

from __future__ import annotations

from collections.abc import Iterable

from delta_sharing_client.delta import features
from delta_sharing_client.delta.actions import Metadata, Protocol

from .capabilities import Capabilities, Format
from .errors import unsupported
from .faults import FaultSet


def choose_format(
    capabilities: Capabilities, states: Iterable[tuple[Protocol, Metadata]], table: str, faults: FaultSet
) -> Format:
    """Return the response format for a table that has ``states``. Raises `ApiError` if no requested format supports the
    table.

    Features that this library does not support cannot occur here, because reading the table's log would have failed.
    """
    refusals: list[str] = []
    needed: list[str] = []
    for protocol, metadata in states:
        refusals.extend(features.parquet_format_refusals(protocol, metadata))
        needed.extend(features.needed_features(protocol, metadata))
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
    """Raise `ApiError` if one of the files has a deletion vector, but the format cannot represent one. ``vectors`` has
    an item for each file, which is ``None`` without a vector.

    The protocol of such a table should list the feature. If it does not, deleted rows must still not be returned.
    """
    if chosen is Format.PARQUET and any(vector is not None for vector in vectors):
        raise unsupported(
            f"Unsupported Delta Table Properties or features found on table {table}: deletionVectors, which its "
            "protocol does not list. They cannot be shared in the parquet response format."
        )


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
