"""The position of a follower, as the JSON object that is written into Spark's checkpoint or a cursor.

Spark compares offsets as text and replays ``partitions(start, end)`` in a new process without calls for offsets. So an
offset is complete, its keys have a fixed order, and equal positions have equal text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Union

import msgspec
from msgspec.structs import replace

from delta_sharing_client.errors import UsageError
from delta_sharing_client.follow.admission import BASE, Position
from delta_sharing_client.follow.follow_request import Words
from delta_sharing_client.options import ResponseFormat

SOURCE_VERSION = 1
_Version = Annotated[int, msgspec.Meta(ge=0)]


class _StoredOffset(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    source_version: int = SOURCE_VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the object for Spark's offset log."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content


class Offset(_StoredOffset, frozen=True, kw_only=True, rename="camel"):
    """The position of a stream: it has read all versions before ``version``, and the files of ``version`` up to and
    including index ``place``.

    ``first_version`` is the version at which the stream began: its initial snapshot's if it is ``from_snapshot``,
    otherwise the first version whose changes it read. ``in_snapshot`` says that it is still in that snapshot;
    ``change_feed``, that it reads the change feed. Files are in the order of their ids in ``response_format``; when the
    version is requested again, ``last_file`` must be at ``place`` again. ``table_id`` is ``metaData.id`` of the table,
    and ``schema_hash`` a fingerprint of the schema with which the stream read.
    """

    table_id: str
    version: _Version = msgspec.field(name="tableVersion")
    place: Annotated[int, msgspec.Meta(ge=BASE)] = msgspec.field(name="index")
    in_snapshot: bool = msgspec.field(name="isStartingVersion")
    first_version: _Version
    from_snapshot: bool
    change_feed: bool
    response_format: ResponseFormat
    last_file: str | None = None
    schema_hash: str

    @property
    def position(self) -> Position:
        return Position(self.version, self.place)

    def at(self, position: Position, **changes: Any) -> Offset:
        """Return a copy of this offset with the given position, and with ``changes`` of other attributes."""
        return replace(self, version=position.version, place=position.place, **changes)


class Beginning(_StoredOffset, frozen=True, kw_only=True, rename="camel"):
    """The position of a stream whose start is not resolved yet."""

    table_id: None = None
    version: int = msgspec.field(name="tableVersion", default=-1)
    place: int = msgspec.field(name="index", default=BASE)


BEGINNING = Beginning()
AnyOffset = Union[Offset, Beginning]


def parse_offset(value: object, words: Words) -> AnyOffset:
    """Parse a stored offset. Raises ``UsageError`` if it was not written by this package, or by a version of it that
    used a different form."""
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
        return msgspec.convert(value, Offset)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise UsageError(
            f"The offset in the {words.place} was not written by this package ({error}), for example by the JVM "
            f"connector; {words.anew}."
        ) from None


def check_restart(offset: Offset, words: Words, *, table_id: str, change_feed: bool) -> None:
    """Raise ``UsageError`` if ``offset`` belongs to a different table or kind of stream; it says what differs, and what
    to do."""
    if offset.table_id != table_id:
        raise UsageError(
            f"The {words.place} belongs to the table with id '{offset.table_id}', but the table now has the id "
            f"'{table_id}': it was deleted and recreated, or the path names a different table. To read it from its "
            f"beginning, {words.anew}."
        )
    if offset.change_feed != change_feed:
        was, is_now = ("true", "false") if offset.change_feed else ("false", "true")
        raise UsageError(
            f"The {words.place} belongs to a stream with option 'readChangeFeed' '{was}', but it is '{is_now}' now; "
            f"set it back, or {words.anew}."
        )


def check_order(start: Offset, end: Offset, words: Words) -> None:
    """Raise ``UsageError`` if ``end`` is before ``start`` or belongs to a different table, as after a change by
    hand."""
    backwards = end.position < start.position or (end.in_snapshot and not start.in_snapshot)
    if backwards or end.table_id != start.table_id:
        raise UsageError(
            f"The {words.place} asks for a {words.batch} from {start.to_json()} to {end.to_json()}, but the end must "
            f"not be before the start, or of a different table; {words.anew}."
        )
