"""Partition transforms and the fields of partition specs (Iceberg, "Partition Transforms")."""

from __future__ import annotations

import re
from typing import NamedTuple

from delta_sharing_client.iceberg.metadata import FIRST_PARTITION_ID, PartitionField

_PARAMETER = re.compile(r"(bucket|truncate)\[\s*(\d{1,10})\s*\]\Z")


class Transform(NamedTuple):
    """A transform: its name in lower case, and its width or number of buckets."""

    name: str
    width: int = 0

    @classmethod
    def parse(cls, text: str) -> Transform:
        """Return the transform; an unknown one has its whole text as its name."""
        lowered = text.strip().lower()
        match = _PARAMETER.match(lowered)
        if match is not None and int(match[2]) > 0:
            return cls(match[1], int(match[2]))
        return cls(lowered)


def field_id_of(field: PartitionField, place: int) -> int:
    """Return the id of a partition field at position ``place`` of its spec."""
    return FIRST_PARTITION_ID + place if field.field_id is None else field.field_id


def source_id_of(field: PartitionField) -> int:
    """Return the field id of the column of a partition field, -1 if it has several: there is no known transform with
    several arguments."""
    if field.source_id is not None:
        return field.source_id
    return field.source_ids[0] if field.source_ids and len(field.source_ids) == 1 else -1
