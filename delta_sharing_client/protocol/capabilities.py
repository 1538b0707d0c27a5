"""The ``delta-sharing-capabilities`` header (protocol, "Delta Sharing Capabilities Header")."""

from __future__ import annotations

from collections.abc import Sequence

from delta_sharing_client.options import ResponseFormat

HEADER = "delta-sharing-capabilities"
_CHANGES_OF_VIEWS = "cdfonviews"


def capabilities_header(
    formats: Sequence[ResponseFormat],
    reader_features: Sequence[str] = (),
    *,
    end_stream_action: bool = False,
    asynchronous: bool = False,
    changes_of_views: bool = False,
) -> str:
    """Return the request header's value: lower case, without spaces, because servers parse it differently strictly.

    ``formats`` are the concrete formats to accept, in order; ``reader_features`` go along only if delta is among them.
    """
    parts = [f"responseformat={','.join(f.value for f in formats)}"]
    if ResponseFormat.DELTA in formats and reader_features:
        parts.append(f"readerfeatures={','.join(reader_features).lower()}")
    if asynchronous:
        parts.append("asyncquery=true")
    if end_stream_action:
        parts.append("includeendstreamaction=true")
    if changes_of_views:
        parts.append(f"{_CHANGES_OF_VIEWS}=true")
    return ";".join(parts)


def promises_end_stream_action(header: str | None) -> bool:
    """Whether the response header promises an ``EndStreamAction`` as the last line, in any case and spacing.

    The header's response format is not looked at: the lines show theirs, and servers get the header wrong.
    """
    return _says(header, "includeendstreamaction")


def tells_changes_of_a_view(header: str | None) -> bool:
    """Whether the response header says that the answer is the change data feed of a view, which has no versions."""
    return _says(header, _CHANGES_OF_VIEWS)


def _says(header: str | None, capability: str) -> bool:
    for part in (header or "").lower().split(";"):
        key, _, value = part.partition("=")
        if key.strip() == capability:
            return value.strip() == "true"
    return False
