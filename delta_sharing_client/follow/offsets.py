"""The position of a follower, as the JSON object that is written into Spark's checkpoint or a cursor.

Spark compares offsets as text and replays ``partitions(start, end)`` in a new process without calls for offsets. So an
offset is complete, its keys have a fixed order, and equal positions have equal text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Union

from delta_sharing_client.errors import UsageError
from delta_sharing_client.follow.admission import BASE, Position
from delta_sharing_client.follow.request import Words
from delta_sharing_client.options import ResponseFormat

SOURCE_VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """Everything before this has been read.

    Attributes
    ----------
    table_id:
        ``metaData.id`` of the table.
    position:
        All versions before ``position.version``, and the files of that version up to ``position.place``, in order of
        file id, have been read.
    in_snapshot:
        Whether ``position`` is in the initial snapshot.
    first_version:
        The version at which the stream began: that of its initial snapshot, or the first one of the tail.
    from_snapshot:
        Whether the stream began with a snapshot.
    change_feed:
        Whether the rows are those of the change feed.
    response_format:
        The format whose file ids give the order of files.
    last_file:
        The id of the file at ``position.place``; repeated queries must have the same file there.
    schema_hash:
        Fingerprint of the schema under which the stream read.
    """

    table_id: str
    position: Position
    in_snapshot: bool
    first_version: int
    from_snapshot: bool
    change_feed: bool
    response_format: ResponseFormat
    last_file: str | None
    schema_hash: str

    def to_json(self) -> dict[str, Any]:
        """Return the object for Spark's offset log."""
        return {
            "sourceVersion": SOURCE_VERSION,
            "tableId": self.table_id,
            "tableVersion": self.position.version,
            "index": self.position.place,
            "isStartingVersion": self.in_snapshot,
            "firstVersion": self.first_version,
            "fromSnapshot": self.from_snapshot,
            "changeFeed": self.change_feed,
            "responseFormat": self.response_format.value,
            "lastFile": self.last_file,
            "schemaHash": self.schema_hash,
        }


class Beginning:
    """The position of a stream whose start is not resolved yet. All are equal."""

    def to_json(self) -> dict[str, Any]:
        """Return the object for Spark's offset log."""
        return {"sourceVersion": SOURCE_VERSION, "tableId": None, "tableVersion": -1, "index": BASE}


BEGINNING = Beginning()
AnyOffset = Union[Offset, Beginning]


def parse_offset(value: object, words: Words) -> AnyOffset:
    """Parse a stored offset.

    Raises
    ------
    UsageError
        It is not from this package, or from another version of it.
    """
    if not isinstance(value, Mapping):
        raise UsageError(f"Expected an offset of this package in the {words.place}, found {value!r}; {words.anew}.")
    version = value.get("sourceVersion", 0)
    if isinstance(version, bool) or not isinstance(version, int):
        raise UsageError(
            f"The offset in the {words.place} has the 'sourceVersion' {version!r}, which is not a number; {words.anew}."
        )
    if version != SOURCE_VERSION:
        raise UsageError(
            f"The 'sourceVersion' {version} of the offset in the {words.place} is not equal to supported reader "
            f"version {SOURCE_VERSION}; {words.anew}."
        )
    if value.get("tableId") is None and value.get("tableVersion") == -1:
        return BEGINNING
    try:
        return Offset(
            table_id=_field(value, "tableId", str),
            position=Position(_field(value, "tableVersion", int), _field(value, "index", int)),
            in_snapshot=_field(value, "isStartingVersion", bool),
            first_version=_field(value, "firstVersion", int),
            from_snapshot=_field(value, "fromSnapshot", bool),
            change_feed=_field(value, "changeFeed", bool),
            response_format=ResponseFormat(_field(value, "responseFormat", str)),
            last_file=value.get("lastFile"),
            schema_hash=_field(value, "schemaHash", str),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"The offset in the {words.place} was not written by this package ({error}), for example by the JVM "
            f"connector; {words.anew}."
        ) from None


def check_restart(offset: Offset, words: Words, *, table_id: str, change_feed: bool) -> None:
    """Check that ``offset`` belongs to this table and kind of read.

    Raises
    ------
    UsageError
        It does not; the message has the difference and what to do.
    """
    if offset.table_id != table_id:
        raise UsageError(
            f"The {words.place} belongs to the table with id '{offset.table_id}', but the table now has the id "
            f"'{table_id}': it was deleted and created anew, or the path names another table. To read it from its "
            f"beginning, {words.anew}."
        )
    if offset.change_feed != change_feed:
        was, is_now = ("true", "false") if offset.change_feed else ("false", "true")
        raise UsageError(
            f"The {words.place} belongs to a stream with option 'readChangeFeed' '{was}', but it is '{is_now}' now; "
            f"set it back, or {words.anew}."
        )


def check_order(start: Offset, end: Offset, words: Words) -> None:
    """Check that ``end`` is not before ``start`` and belongs to the same stream.

    Raises
    ------
    UsageError
        ``end`` is before ``start`` or of another stream; only checkpoints changed by hand have such offsets.
    """
    backwards = end.position < start.position or (end.in_snapshot and not start.in_snapshot)
    if backwards or end.table_id != start.table_id:
        raise UsageError(
            f"The {words.place} asks for a {words.batch} from {start.to_json()} to {end.to_json()}, which goes back; "
            f"{words.anew}."
        )


def _field(value: Mapping[str, Any], name: str, kind: type) -> Any:
    found = value[name]
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise TypeError(f"'{name}' is {found!r}")
    return found
