"""The protocol's headers, and its JSON objects as typed structs (protocol, "REST APIs").

The lines of a query's response are in ``protocol.lines``. Unknown fields are ignored, because the protocol lets servers
add them. ``null`` means absent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Union

import msgspec

from delta_sharing_client.delta.actions import Count, Long
from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.options import FileIdHash, ResponseFormat
from delta_sharing_client.redact import scrub

CAPABILITIES_HEADER = "delta-sharing-capabilities"
ASYNCHRONOUS = "asyncquery"
END_STREAM_ACTION = "includeendstreamaction"
"""The last line of the response is an ``EndStreamAction``."""
CHANGES_OF_VIEWS = "cdfonviews"
"""In a request: the client accepts the change data feed of a view, which has no versions. In a response: it is one."""
VERSION_HEADER = "Delta-Table-Version"
FILE_ID_HASH_HEADER = "fileidhash"


# === Headers ===


def capabilities(
    formats: Sequence[ResponseFormat], reader_features: Sequence[str], flags: Mapping[str, bool] | None = None
) -> dict[str, str]:
    """Return the capabilities header: lower case, without spaces, because servers differ in how strictly they parse it.

    ``formats`` are the accepted formats, in order; ``reader_features`` are sent only if delta is one of them; ``flags``
    has the other requested capabilities.
    """
    parts = [f"responseformat={','.join(f.value for f in formats)}"]
    if ResponseFormat.DELTA in formats and reader_features:
        parts.append(f"readerfeatures={','.join(reader_features).lower()}")
    parts += [f"{name}=true" for name, is_set in (flags or {}).items() if is_set]
    return {CAPABILITIES_HEADER: ";".join(parts)}


def promises(headers: Mapping[str, str], capability: str) -> bool:
    """Return whether the headers of a response promise ``capability``, in any case and spacing.

    Do not use it for the response format: some servers state the wrong one there, and the lines show the right one.
    """
    for part in headers.get(CAPABILITIES_HEADER, "").lower().split(";"):
        key, _, value = part.partition("=")
        if key.strip() == capability:
            return value.strip() == "true"
    return False


def file_id_hash(scheme: FileIdHash | None) -> dict[str, str]:
    """Return the header that requests file ids of the kind ``scheme``, if any (protocol, "File ID Hash Header")."""
    return {} if scheme is None else {FILE_ID_HASH_HEADER: scheme.value}


def check_file_id_hash(sent: Mapping[str, str], headers: Mapping[str, str], doing: str, table: str) -> None:
    """Raise ``ProtocolError`` unless the response's headers confirm the kind of file ids requested in ``sent``."""
    scheme = sent.get(FILE_ID_HASH_HEADER)
    confirmed = headers.get(FILE_ID_HASH_HEADER)
    if scheme is not None and (confirmed or "").lower() != scheme:
        shown = "missing" if confirmed is None else f"'{confirmed[:40]}'"
        raise ProtocolError(
            f"{doing}: requested file ids of the scheme '{scheme}', but the header '{FILE_ID_HASH_HEADER}' of the "
            f"response is {shown}, so the ids may differ; omit 'file_id_hash' for this server.",
            table=table,
        )


def version_header(headers: Mapping[str, str], doing: str, table: str, secrets: Collection[str] = ()) -> int | None:
    """Return the ``Delta-Table-Version`` of a response, or ``None``; ``ProtocolError`` if malformed."""
    text = headers.get(VERSION_HEADER)
    if text is None:
        return None
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        raise ProtocolError(
            f"{doing}: {VERSION_HEADER} is {scrub(text, secrets)[:40]!r}; expected a version number.", table=table
        )
    return int(digits)


class _Masked(msgspec.Struct, frozen=True):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"


# === Objects ===


class VersionResponse(msgspec.Struct):
    """The response to "Query Table Version" from servers that state the version in the body instead of the header."""

    delta_table_version: Union[Count, None] = msgspec.field(default=None, name="deltaTableVersion")
    dashed: Union[Count, None] = msgspec.field(default=None, name="delta-table-version")
    plain: Union[Count, None] = msgspec.field(default=None, name="version")

    @property
    def version(self) -> Union[int, None]:
        """The version, if stated."""
        headers = (self.delta_table_version, self.dashed, self.plain)
        return next((version for version in headers if version is not None), None)


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
    """An item of "List Tables in a Schema" and "List all Tables in a Share", and the response of "Get Table".

    Only the latter has ``format``: ``delta``, ``iceberg``, or both separated by a comma.
    """

    name: str
    schema: Union[str, None] = None
    share: Union[str, None] = None
    share_id: Union[str, None] = None
    id: Union[str, None] = None
    display_name: Union[str, None] = None
    location: Union[str, None] = None
    auxiliary_locations: Union[list[str], None] = None
    access_modes: Union[list[str], None] = None
    format: Union[str, None] = None


# Items of the other assets, which are also the responses of "Get Volume" and so on. The protocol requires ``schema``
# and ``share``; if a server omits them, the values of the request are used.


class VolumeItem(msgspec.Struct, rename="camel", frozen=True):
    """A volume (OpenSharing, "Volume Object")."""

    name: str
    storage_location: str
    schema: Union[str, None] = None
    share: Union[str, None] = None
    share_id: Union[str, None] = None
    id: Union[str, None] = None


class SkillItem(msgspec.Struct, rename="camel", frozen=True):
    """An agent skill (OpenSharing, "AgentSkill Object"); ``allowed_tools`` is a list separated by spaces."""

    name: str
    description: str
    storage_location: str
    schema: Union[str, None] = None
    share: Union[str, None] = None
    share_id: Union[str, None] = None
    id: Union[str, None] = None
    license: Union[str, None] = None
    compatibility: Union[str, None] = None
    allowed_tools: Union[str, None] = None
    metadata: Union[dict[str, Union[str, None]], None] = None


class ModelItem(msgspec.Struct, rename="camel", frozen=True):
    """A model (OpenSharing, "RegisteredModel Object")."""

    name: str
    schema: Union[str, None] = None
    share: Union[str, None] = None
    share_id: Union[str, None] = None
    id: Union[str, None] = None
    comment: Union[str, None] = None
    storage_location: Union[str, None] = None


class ModelVersionItem(msgspec.Struct, rename="camel", frozen=True):
    """A version of a model (OpenSharing, "ModelVersion Object"). Only versions with the status ``READY`` have
    credentials."""

    version: Long
    status: str
    storage_location: str
    model_name: Union[str, None] = None
    schema: Union[str, None] = None
    share: Union[str, None] = None
    id: Union[str, None] = None
    source: Union[str, None] = None
    run_id: Union[str, None] = None
    comment: Union[str, None] = None


class ItemsPage(msgspec.Struct, rename="camel"):
    """A page of a response that lists shares, schemas or assets; each item is decoded separately."""

    items: Union[list[msgspec.Raw], None] = None
    next_page_token: Union[str, None] = None


class VolumeFileItem(msgspec.Struct):
    """A file of a volume, from a server that shares files by URL; ``file_path`` is relative to the volume."""

    file_path: str
    size: Long


class VolumeFilesPage(msgspec.Struct):
    """A page of the files of a volume."""

    items: Union[list[VolumeFileItem], None] = None
    next_page_token: Union[str, None] = msgspec.field(default=None, name="nextPageToken")


class VolumeFileUrl(_Masked, frozen=True):
    """The response that contains the URL of a file."""

    download_url: str


class ShareResponse(msgspec.Struct):
    """The response of "Get Share"."""

    share: ShareItem


class AwsCredentials(_Masked, rename="camel", frozen=True):
    """The credentials in ``awsTempCredentials`` or ``r2Credentials``.

    ``access_point``, which Databricks adds, is the ARN of an S3 access point to use in place of the bucket.
    """

    access_key_id: str
    secret_access_key: str
    session_token: str
    access_point: Union[str, None] = None


class AzureUserDelegationSas(_Masked, rename="camel", frozen=True):
    """The SAS token in ``azureUserDelegationSas``."""

    sas_token: str


class GcpOauthToken(_Masked, rename="camel", frozen=True):
    """The OAuth token in ``gcpOauthToken``."""

    oauth_token: str


class TemporaryCredentials(msgspec.Struct, rename="camel", frozen=True):
    """Temporary credentials for the location of an asset; one of the four kinds is set, or none for a local directory.

    ``location`` comes from the response, or for assets other than tables from the request if the response has none.
    ``expiration_time`` is in epoch milliseconds. The repr masks secrets.
    """

    location: str = ""
    aws_temp_credentials: Union[AwsCredentials, None] = None
    azure_user_delegation_sas: Union[AzureUserDelegationSas, None] = None
    gcp_oauth_token: Union[GcpOauthToken, None] = None
    r2_credentials: Union[AwsCredentials, None] = None
    expiration_time: Union[Long, None] = None

    def __repr__(self) -> str:
        masked = "".join(f", {kind}=***" for kind in self.kinds)
        return (
            f"TemporaryCredentials(location={scrub(self.location)!r}{masked}, expiration_time={self.expiration_time})"
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The protocol's names of the credentials that are set."""
        fields = msgspec.structs.fields(type(self))
        return tuple(one.encode_name for one in fields if isinstance(getattr(self, one.name), _Masked))


class TemporaryCredentialsResponse(TemporaryCredentials, frozen=True):
    """The response with credentials: inside ``credentials`` for tables, at the top level for other assets."""

    credentials: Union[TemporaryCredentials, None] = None
