"""What client and server say to each other: the capabilities header, every JSON object of the REST protocol as a typed
struct, and lines of an answer as actions (protocol, "REST APIs" and "API Response Actions", both formats).

Unknown fields are ignored everywhere, because the protocol lets servers add them. ``null`` means absent.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar, Union

import msgspec

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    Count,
    FileAction,
    Format,
    Long,
    Metadata,
    Protocol,
    RemoveFile,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError
from delta_sharing_client.options import ResponseFormat

CAPABILITIES_HEADER = "delta-sharing-capabilities"
END_STREAM_ACTION = "includeendstreamaction"
"""The last line of the answer is an ``EndStreamAction``."""
CHANGES_OF_VIEWS = "cdfonviews"
"""The answer may be, and where the server says so is, the change data feed of a view, which has no versions."""
PARQUET_FORMAT_VERSION = 1
MAX_COLUMNS = 100_000
_INTERNED = 1 << 16

T = TypeVar("T")
PartitionValues = dict[str, Union[str, None]]
_NO_VALUES: PartitionValues = {}


# === The capabilities header ===


def capabilities(
    formats: Sequence[ResponseFormat],
    reader_features: Sequence[str] = (),
    *,
    end_stream_action: bool = False,
    asynchronous: bool = False,
    changes_of_views: bool = False,
) -> dict[str, str]:
    """Return the request header: lower case, without spaces, because servers parse it differently strictly.

    ``formats`` are the concrete formats to accept, in order; ``reader_features`` go along only if delta is among them.
    """
    parts = [f"responseformat={','.join(f.value for f in formats)}"]
    if ResponseFormat.DELTA in formats and reader_features:
        parts.append(f"readerfeatures={','.join(reader_features).lower()}")
    if asynchronous:
        parts.append("asyncquery=true")
    if end_stream_action:
        parts.append(f"{END_STREAM_ACTION}=true")
    if changes_of_views:
        parts.append(f"{CHANGES_OF_VIEWS}=true")
    return {CAPABILITIES_HEADER: ";".join(parts)}


def promises(headers: Mapping[str, str], capability: str) -> bool:
    """Whether the headers of an answer promise ``capability``, in any case and spacing.

    Their response format is not looked at: the lines show theirs, and servers get the header wrong.
    """
    for part in headers.get(CAPABILITIES_HEADER, "").lower().split(";"):
        key, _, value = part.partition("=")
        if key.strip() == capability:
            return value.strip() == "true"
    return False


# === Objects ===


class ShareItem(msgspec.Struct, rename="camel"):
    """An item of "List Shares"."""

    name: str
    id: Union[str, None] = None
    display_name: Union[str, None] = None
    comment: Union[str, None] = None
    properties: Union[dict[str, Union[str, None]], None] = None


class SchemaItem(msgspec.Struct, rename="camel"):
    """An item of "List Schemas in a Share"."""

    name: str
    share: Union[str, None] = None
    id: Union[str, None] = None
    display_name: Union[str, None] = None


class TableItem(msgspec.Struct, rename="camel"):
    """An item of "List Tables in a Schema" and "List all Tables in a Share"."""

    name: str
    schema: Union[str, None] = None
    share: Union[str, None] = None
    share_id: Union[str, None] = None
    id: Union[str, None] = None
    display_name: Union[str, None] = None
    location: Union[str, None] = None
    auxiliary_locations: Union[list[str], None] = None
    access_modes: Union[list[str], None] = None


class ItemsPage(msgspec.Struct, Generic[T], rename="camel"):
    """A page of an answer that lists shares, schemas or tables."""

    items: Union[list[T], None] = None
    next_page_token: Union[str, None] = None


class ShareAnswer(msgspec.Struct):
    """The answer of "Get Share"."""

    share: ShareItem


class ErrorAnswer(msgspec.Struct, rename="camel"):
    """The body of an error answer. Databricks writes ``error_code`` where the protocol says ``errorCode``."""

    error_code: Union[str, int, None] = None
    other_error_code: Union[str, int, None] = msgspec.field(default=None, name="error_code")
    message: Union[str, None] = None

    @property
    def code(self) -> Union[str, None]:
        """The code under either of its names."""
        found = self.error_code or self.other_error_code
        return None if found is None else str(found)


class _Masked(msgspec.Struct, frozen=True):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"


class AwsCredentials(_Masked, rename="camel", frozen=True):
    """``awsTempCredentials``."""

    access_key_id: str
    secret_access_key: str
    session_token: str


class AzureUserDelegationSas(_Masked, rename="camel", frozen=True):
    """``azureUserDelegationSas``."""

    sas_token: str


class GcpOauthToken(_Masked, rename="camel", frozen=True):
    """``gcpOauthToken``."""

    oauth_token: str


class TemporaryCredentials(msgspec.Struct, rename="camel", frozen=True):
    """The credentials of "Generate Temporary Table Credential"; exactly one of the three clouds is set.

    ``expiration_time`` is in epoch milliseconds. The repr shows no secret.
    """

    location: str
    aws_temp_credentials: Union[AwsCredentials, None] = None
    azure_user_delegation_sas: Union[AzureUserDelegationSas, None] = None
    gcp_oauth_token: Union[GcpOauthToken, None] = None
    expiration_time: Union[Long, None] = None


class TemporaryCredentialsAnswer(msgspec.Struct):
    """The answer of "Generate Temporary Table Credential"."""

    credentials: TemporaryCredentials


# === Lines of a query answer ===


class ProtocolLine(msgspec.Struct, rename="camel"):
    """``protocol``: ``minReaderVersion`` in parquet format, ``deltaProtocol`` in delta format."""

    min_reader_version: Union[Long, None] = None
    delta_protocol: Union[Protocol, None] = None
    version: Union[Count, None] = None


class MetadataLine(msgspec.Struct, rename="camel"):
    """``metaData``: the fields themselves in parquet format, ``deltaMetadata`` in delta format."""

    delta_metadata: Union[Metadata, None] = None
    id: Union[str, None] = None
    schema_string: Union[str, None] = None
    format: Format = Format()
    partition_columns: Union[list[str], None] = None
    configuration: Union[dict[str, Union[str, None]], None] = None
    name: Union[str, None] = None
    description: Union[str, None] = None
    version: Union[Count, None] = None
    size: Union[Count, None] = None
    num_files: Union[Count, None] = None
    location: Union[str, None] = None
    auxiliary_locations: Union[list[str], None] = None
    access_modes: Union[list[str], None] = None


class SingleAction(msgspec.Struct, gc=False):
    """``deltaSingleAction``: one file action in the form of the Delta log, its path being a URL."""

    add: Union[AddFile, None] = None
    remove: Union[RemoveFile, None] = None
    cdc: Union[AddCdcFile, None] = None


class FileLine(msgspec.Struct, rename="camel", gc=False):
    """``file`` of both formats, and ``add``, ``cdf`` and ``remove`` of the parquet format."""

    id: str
    url: Union[str, None] = None
    partition_values: Union[PartitionValues, None] = None
    size: Union[Count, None] = None
    stats: Union[str, None] = None
    version: Union[Count, None] = None
    timestamp: Union[Long, None] = None
    expiration_timestamp: Union[Long, None] = None
    deletion_vector_file_id: Union[str, None] = None
    delta_single_action: Union[SingleAction, None] = None


class EndStreamAction(msgspec.Struct, rename="camel"):
    """``endStreamAction``: the last line of an answer."""

    refresh_token: Union[str, None] = None
    next_page_token: Union[str, None] = None
    min_url_expiration_timestamp: Union[Long, None] = None
    error_message: Union[str, None] = None
    http_status_error_code: Union[Long, None] = None


class QueryStatus(msgspec.Struct, rename="camel"):
    """``queryStatus``: the state of an asynchronous query; an absent ``status`` is pending."""

    query_id: Union[str, None] = None
    status: Union[str, None] = None
    message: Union[str, None] = None


class Line(msgspec.Struct, rename={"metadata": "metaData", "end": "endStreamAction", "query": "queryStatus"}, gc=False):
    """One line of an answer: exactly one of the fields is set ("JSON Wrapper Object In Each Line")."""

    protocol: Union[ProtocolLine, None] = None
    metadata: Union[MetadataLine, None] = None
    file: Union[FileLine, None] = None
    add: Union[FileLine, None] = None
    cdf: Union[FileLine, None] = None
    remove: Union[FileLine, None] = None
    end: Union[EndStreamAction, None] = None
    query: Union[QueryStatus, None] = None


# === Lines as actions ===

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
        action: FileAction
        if line.remove is not None:
            action = RemoveFile(path=file.url, partition_values=values, size=file.size, stats=file.stats)
        else:
            action = AddCdcFile(path=file.url, partition_values=values, size=-1 if file.size is None else file.size)
        action.file_id = file.id
        action.shared_version = file.version
        action.shared_timestamp = file.timestamp
        action.shared_expiration = file.expiration_timestamp
        return action

    def _shared(self, values: PartitionValues) -> PartitionValues:
        if not values:
            return _NO_VALUES
        # A million files have few partitions: one dict each saves most of their memory. Nobody changes actions.
        if len(self._known) >= _INTERNED:
            self._known.clear()
        return self._known.setdefault(tuple(values.items()), values)
