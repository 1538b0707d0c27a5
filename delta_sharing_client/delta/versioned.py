"""Historical metadata and protocol: the actions of an answer that say from which version on they hold."""

from __future__ import annotations

from typing import NamedTuple

from delta_sharing_client.delta.actions import Metadata, Protocol


class VersionedMetadata(NamedTuple):
    """A ``metaData`` inside a change feed or a ``startingVersion`` answer; ``version`` is None if the server left it
    out."""

    version: int | None
    metadata: Metadata


class VersionedProtocol(NamedTuple):
    """A ``protocol`` inside a change feed or a ``startingVersion`` answer; ``version`` as in VersionedMetadata."""

    version: int | None
    protocol: Protocol
