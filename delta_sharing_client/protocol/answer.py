"""Lines of a query answer as actions of the Delta log (protocol, "API Response Actions", both formats)."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Union

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol.messages import Line, MetadataLine, PartitionValues, ProtocolLine

PARQUET_FORMAT_VERSION = 1
MAX_COLUMNS = 100_000
_INTERNED = 1 << 16
_NO_VALUES: PartitionValues = {}

TableAction = Union[FileAction, VersionedMetadata, VersionedProtocol]


class AnswerKind(enum.Enum):
    """What an answer may hold: the files of one snapshot, or the changes of a range of versions."""

    SNAPSHOT = "snapshot"
    CHANGES = "changes"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """The first two lines of an answer, and its headers: the table as of a version.

    Attributes
    ----------
    version:
        The snapshot's version; of changes, the first version of the range.
    response_format:
        The format that the lines have: ``PARQUET`` or ``DELTA``.
    protocol, metadata:
        As in the Delta log. A parquet-format answer gets reader version 1, without features.
    metadata_version:
        The version that the server states for ``metadata``, if it does.
    table_size, num_files:
        Bytes and files of the table, where the server tells.
    location, auxiliary_locations, access_modes:
        For directory access; no ``access_modes`` means ``url``.
    is_view:
        Whether these are the changes of a view, which has no versions; ``version`` is 0 then.
    """

    version: int
    response_format: ResponseFormat
    protocol: Protocol
    metadata: Metadata
    metadata_version: int | None = None
    table_size: int | None = None
    num_files: int | None = None
    location: str | None = None
    auxiliary_locations: tuple[str, ...] = ()
    access_modes: tuple[str, ...] = ()
    is_view: bool = False


def format_of(line: ProtocolLine) -> ResponseFormat | None:
    """Return the format that a protocol line is written in, ``None`` if in neither."""
    if line.delta_protocol is not None:
        return ResponseFormat.DELTA
    return ResponseFormat.PARQUET if line.min_reader_version is not None else None


def read_protocol(line: ProtocolLine, expected: ResponseFormat, table: str) -> Protocol:
    """Return the protocol action of a line; ``UnsupportedFeatureError`` for a newer version of the parquet format."""
    if expected is ResponseFormat.DELTA:
        if line.delta_protocol is None:
            raise ProtocolError("Expected deltaProtocol in a protocol line of a delta answer.", table=table)
        return line.delta_protocol
    if line.min_reader_version is None:
        raise ProtocolError("Expected minReaderVersion in a protocol line of a parquet answer.", table=table)
    if line.min_reader_version > PARQUET_FORMAT_VERSION:
        raise UnsupportedFeatureError(
            f"The answer needs a client of protocol version {line.min_reader_version}, this one implements "
            f"{PARQUET_FORMAT_VERSION}; upgrade delta-sharing-client.",
            feature=f"minReaderVersion {line.min_reader_version}",
            table=table,
        )
    return Protocol(min_reader_version=PARQUET_FORMAT_VERSION)


def read_metadata(line: MetadataLine, expected: ResponseFormat, table: str) -> Metadata:
    """Return the metadata action of a line. ``UnsupportedFeatureError`` for files of another format than Parquet,
    ``ProtocolError`` for more columns than a reader should have to believe in."""
    metadata = _metadata(line, expected, table)
    provider = metadata.format.provider
    if provider.lower() != "parquet":
        raise UnsupportedFeatureError(
            f"Expected a table of Parquet files, found the format '{provider[:40]}'; ask the provider for a copy.",
            feature=f"format.provider {provider[:40]}",
            table=table,
        )
    # Counted before anything is made of them; a comment's quotation marks are escaped in there.
    fields = metadata.schema_string.count('"name"')
    if fields > MAX_COLUMNS:
        raise ProtocolError(
            f"Expected a schema of at most {MAX_COLUMNS:,} columns and fields, found {fields:,}; ask the provider for "
            "a view of fewer.",
            table=table,
        )
    return metadata


def _metadata(line: MetadataLine, expected: ResponseFormat, table: str) -> Metadata:
    if expected is ResponseFormat.DELTA:
        if line.delta_metadata is None:
            raise ProtocolError("Expected deltaMetadata in a metaData line of a delta answer.", table=table)
        return line.delta_metadata
    if line.id is None or line.schema_string is None:
        raise ProtocolError("Expected id and schemaString in a metaData line of a parquet answer.", table=table)
    configuration = line.configuration
    return Metadata(
        id=line.id,
        schema_string=line.schema_string,
        format=line.format,
        partition_columns=line.partition_columns or [],
        configuration=None if configuration is None else {k: v for k, v in configuration.items() if v is not None},
        name=line.name,
        description=line.description,
    )


class FileReader:
    """Turns file lines into actions. One for each answer: it shares equal partition values among its files."""

    def __init__(self, response_format: ResponseFormat, kind: AnswerKind) -> None:
        self._known: dict[tuple[tuple[str, str | None], ...], PartitionValues] = {}
        self._kind = kind
        self.read: Callable[[Line], FileAction | str] = (
            self._read_delta if response_format is ResponseFormat.DELTA else self._read_parquet
        )
        """Return the action of a line that holds a file, or a clause saying what is wrong with it."""

    def _read_delta(self, line: Line) -> FileAction | str:
        file = line.file
        single = file.delta_single_action if file is not None else None
        if file is None or single is None:
            return "a delta answer wraps its files as file.deltaSingleAction"
        add, remove, cdc = single.add, single.remove, single.cdc
        action: FileAction
        if add is not None and remove is None and cdc is None:
            action = add
            add.partition_values = self._shared(add.partition_values)
            add.shared_deletion_vector_id = file.deletion_vector_file_id
            if add.size < 0 and file.size is not None:
                add.size = file.size
        elif self._kind is AnswerKind.SNAPSHOT:
            return "a snapshot holds add actions only"
        elif remove is not None and add is None and cdc is None:
            action = remove
            remove.shared_deletion_vector_id = file.deletion_vector_file_id
            if remove.partition_values is not None:
                remove.partition_values = self._shared(remove.partition_values)
            if remove.size is None:
                remove.size = file.size
        elif cdc is not None and add is None and remove is None:
            action = cdc
            cdc.partition_values = self._shared(cdc.partition_values)
            if cdc.size < 0 and file.size is not None:
                cdc.size = file.size
        else:
            return "deltaSingleAction must hold exactly one of add, remove and cdc"
        action.file_id = file.id
        action.shared_version = file.version
        action.shared_timestamp = file.timestamp
        action.shared_expiration = file.expiration_timestamp
        return action

    def _read_parquet(self, line: Line) -> FileAction | str:
        file = line.file or line.add
        if file is not None:
            if file.url is None:
                return "a parquet answer gives each file a url"
            return AddFile(
                path=file.url,
                partition_values=self._shared(file.partition_values or {}),
                size=-1 if file.size is None else file.size,
                stats=file.stats,
                file_id=file.id,
                shared_version=file.version,
                shared_timestamp=file.timestamp,
                shared_expiration=file.expiration_timestamp,
            )
        if self._kind is AnswerKind.SNAPSHOT:
            return "a snapshot holds files only"
        file = line.remove or line.cdf
        if file is None or file.url is None:
            return "a parquet answer gives each file a url"
        values = self._shared(file.partition_values or {})
        if line.remove is not None:
            return RemoveFile(
                path=file.url,
                partition_values=values,
                size=file.size,
                stats=file.stats,
                file_id=file.id,
                shared_version=file.version,
                shared_timestamp=file.timestamp,
                shared_expiration=file.expiration_timestamp,
            )
        return AddCdcFile(
            path=file.url,
            partition_values=values,
            size=-1 if file.size is None else file.size,
            file_id=file.id,
            shared_version=file.version,
            shared_timestamp=file.timestamp,
            shared_expiration=file.expiration_timestamp,
        )

    def _shared(self, values: PartitionValues) -> PartitionValues:
        if not values:
            return _NO_VALUES
        # A million files have few partitions: one dict each saves most of their memory. Nobody changes actions.
        if len(self._known) >= _INTERNED:
            self._known.clear()
        return self._known.setdefault(tuple(values.items()), values)
