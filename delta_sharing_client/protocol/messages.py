"""Every JSON object of the REST protocol, as typed structs (protocol, "REST APIs" and "API Response Actions").

Unknown fields are ignored everywhere, because the protocol lets servers add them. ``null`` means absent.
"""

from __future__ import annotations

from typing import Union

import msgspec

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    Count,
    Format,
    Long,
    Metadata,
    Protocol,
    RemoveFile,
)

PartitionValues = dict[str, Union[str, None]]


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


class SharesPage(msgspec.Struct, rename="camel"):
    """The answer of "List Shares"."""

    items: Union[list[ShareItem], None] = None
    next_page_token: Union[str, None] = None


class SchemasPage(msgspec.Struct, rename="camel"):
    """The answer of "List Schemas in a Share"."""

    items: Union[list[SchemaItem], None] = None
    next_page_token: Union[str, None] = None


class TablesPage(msgspec.Struct, rename="camel"):
    """The answer of "List Tables in a Schema" and "List all Tables in a Share"."""

    items: Union[list[TableItem], None] = None
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


class AwsCredentials(msgspec.Struct, rename="camel", frozen=True):
    """``awsTempCredentials``."""

    access_key_id: str
    secret_access_key: str
    session_token: str

    def __repr__(self) -> str:
        return "AwsCredentials(***)"


class AzureUserDelegationSas(msgspec.Struct, rename="camel", frozen=True):
    """``azureUserDelegationSas``."""

    sas_token: str

    def __repr__(self) -> str:
        return "AzureUserDelegationSas(***)"


class GcpOauthToken(msgspec.Struct, rename="camel", frozen=True):
    """``gcpOauthToken``."""

    oauth_token: str

    def __repr__(self) -> str:
        return "GcpOauthToken(***)"


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


# --- lines of a query answer ---


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
