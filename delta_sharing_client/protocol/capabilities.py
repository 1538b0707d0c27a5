"""The ``delta-sharing-capabilities`` header (protocol, "Delta Sharing Capabilities Header")."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from delta_sharing_client.options import ResponseFormat

HEADER = "delta-sharing-capabilities"


def capabilities_header(
    formats: Sequence[ResponseFormat],
    reader_features: Sequence[str] = (),
    *,
    end_stream_action: bool = False,
    asynchronous: bool = False,
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
    return ";".join(parts)


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerCapabilities:
    """What a response header promises: the format (as it is spelled, lower case), and an end-of-stream action."""

    response_format: str = ResponseFormat.PARQUET.value
    end_stream_action: bool = False

    @classmethod
    def parse(cls, header: str | None) -> AnswerCapabilities:
        """Read the response header; absent means parquet without a promise. Unknown capabilities are ignored."""
        values: dict[str, str] = {}
        for part in (header or "").lower().split(";"):
            key, equals, value = part.partition("=")
            if equals:
                values[key.strip()] = value.strip()
        return cls(
            response_format=values.get("responseformat") or ResponseFormat.PARQUET.value,
            end_stream_action=values.get("includeendstreamaction") == "true",
        )
