"""Whether files written under one schema can be read in a stream with another one.

What was *seen* in the log must exist in the stream's schema, spelled the same and of equal type. Columns that the
stream has in addition are null in older files. Whether a column may hold nulls makes no difference: a stream's columns
always may (the JVM connector refuses a column that became NOT NULL).
"""

from __future__ import annotations

import hashlib
import json

from delta_sharing_client.delta.actions import Metadata
from delta_sharing_client.delta.column_mapping import mapping_mode
from delta_sharing_client.delta.schema_changes import Kind, first_difference

_BREAKS_A_STREAM = frozenset(
    {
        Kind.GONE,
        Kind.DROPPED,
        Kind.REPLACED,
        Kind.RENAMED,
        Kind.RESPELLED,
        Kind.WIDENED,
        Kind.RETYPED,
        Kind.REPARTITIONED,
    }
)


def difference(seen: Metadata, read: Metadata) -> str | None:
    """Return what keeps a stream with the table description ``read`` from reading what was written under ``seen``.

    ``None`` where nothing does.
    """
    found = first_difference(seen, read, _BREAKS_A_STREAM)
    return None if found is None else str(found)


def fingerprint(metadata: Metadata) -> str:
    """Return a short hash of what ``difference`` looks at; equal for equal descriptions."""
    content = [json.loads(metadata.schema_string), metadata.partition_columns, mapping_mode(metadata).value]
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
