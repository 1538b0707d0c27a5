"""The ``delta-sharing-capabilities`` header and ``fileidhash`` (protocol, "Delta Sharing Capabilities Header")."""

from __future__ import annotations

import dataclasses
import enum

from .errors import invalid, shown


class Format(enum.Enum):
    """A response format."""

    PARQUET = "parquet"
    DELTA = "delta"


class FileIdHash(enum.Enum):
    """How file ids are derived: by MD5 for ``parquet``, by SHA-256 for ``delta``."""

    PARQUET = "parquet"
    DELTA = "delta"


@dataclasses.dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a client, in lower case.

    ``formats`` is ``(PARQUET,)`` if the header or its ``responseformat`` is missing.
    """

    formats: tuple[Format, ...] = (Format.PARQUET,)
    reader_features: frozenset[str] = frozenset()
    end_stream_action: bool = False
    async_query: bool = False


def parse_capabilities(header: str | None) -> Capabilities:
    """Parse the header. Unknown keys are ignored; a ``responseformat`` with only unknown values is refused with a
    400."""
    values: dict[str, list[str]] = {}
    for part in (header or "").lower().split(";"):
        key, equals, value = part.strip().partition("=")
        if equals:
            values.setdefault(key.strip(), []).extend(item.strip() for item in value.split(",") if item.strip())
    known = {item.value: item for item in Format}
    asked = values.get("responseformat", [])
    formats = tuple(known[name] for name in asked if name in known)
    if asked and not formats:
        raise invalid(f"'responseformat' must be parquet or delta, or both, not {shown(','.join(asked))}.")
    return Capabilities(
        formats=formats or (Format.PARQUET,),
        reader_features=frozenset(values.get("readerfeatures", [])),
        end_stream_action=values.get("includeendstreamaction") == ["true"],
        async_query=values.get("asyncquery") == ["true"],
    )


def parse_file_id_hash(header: str | None) -> FileIdHash | None:
    """Parse the ``fileidhash`` header; values other than ``parquet`` and ``delta`` are refused with a 400."""
    if header is None:
        return None
    try:
        return FileIdHash(header.strip().lower())
    except ValueError:
        raise invalid(f"'fileidhash' must be parquet or delta, not {shown(header)}.") from None
