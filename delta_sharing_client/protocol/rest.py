"""The endpoints of a sharing server, one method each (protocol, "REST APIs").

``listings`` has the endpoints that list and describe; this module adds those that return data.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from delta_sharing_client.errors import (
    ProtocolError,
    RequestError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.http.network import Allowed
from delta_sharing_client.protocol.asset_kinds import (
    TABLE,
    AssetRef,
)
from delta_sharing_client.protocol.deviations import MALFORMED, Deviations, decode
from delta_sharing_client.protocol.listings import UNKNOWN_ENDPOINT, Listings
from delta_sharing_client.protocol.messages import (
    VERSION_HEADER,
    TemporaryCredentials,
    TemporaryCredentialsResponse,
    VersionResponse,
    VolumeFileItem,
    VolumeFilesPage,
    VolumeFileUrl,
    version_header,
)
from delta_sharing_client.protocol.names import AssetName, Table
from delta_sharing_client.protocol.transport import Request

_CREDENTIALS = ("awsTempCredentials", "azureUserDelegationSas", "gcpOauthToken", "r2Credentials")
_WITHOUT_CREDENTIALS = "Read the table by URL."
_ASK = "Ask the data provider for credentials of another kind."


class RestClient(Listings):
    """The REST API of one profile's server.

    Every method that sends a request raises ``AuthError``, ``NotFoundError``, ``RequestError``, ``TransportError``,
    ``ProtocolError``, and ``ProfileError`` for an expired token.
    """

    def __repr__(self) -> str:
        return f"RestClient({self.profile.endpoint!r})"

    @property
    def allowed_data(self) -> Allowed:
        """The URLs of data files that this server may send; the result may change until the server has responded."""
        return Allowed(http=urlsplit(self.profile.endpoint).scheme == "http", loopback=self.is_here)

    # --- versions of tables ---

    def table_version(self, table: AssetName, starting_timestamp: str | None = None) -> int:
        """Return the current version of a table, or its earliest at or after ``starting_timestamp`` (ISO 8601).

        This is the endpoint "Query Table Version".

        A server without ``/version`` gets a ``HEAD`` request instead, unless there is a timestamp.
        """
        doing = f"Asking for the version of {table}"
        params = {} if starting_timestamp is None else {"startingTimestamp": starting_timestamp}
        has_other_way = starting_timestamp is None
        request = _table_request("GET", table, ("version",), doing, params=params)
        try:
            response, body = self.fetch(request)
        except RequestError as error:
            if error.status not in UNKNOWN_ENDPOINT or not has_other_way:
                raise
            # A 404, whatever its error code, may mean that the endpoint or that the table is missing; HEAD shows which.
            try:
                response, body = self.fetch(_table_request("HEAD", table, (), doing))
            except RequestError:
                raise error from None
        version = version_header(response.headers, doing, str(table), self.secrets())
        if version is None:
            version = _version_in(body, doing)
        if version is None:
            raise ProtocolError(f"{doing}: the response has no {VERSION_HEADER} header.", table=str(table))
        return version

    # --- files by URL: not in the protocol, but provided by the server for NetApp StorageGRID ---

    def volume_files_page(self, volume: AssetRef, token: str | None) -> tuple[list[VolumeFileItem], str | None]:
        """Return one page of the files of a volume, and the token of the next page, if any; ``token`` is that of this
        page. Raises ``ProtocolError`` if any entry is malformed, so that no file is left out."""
        doing = f"Listing the files of {volume}"
        params: dict[str, str] = {} if token is None else {"pageToken": token}
        page = self.json(
            Request(method="GET", path=(*volume.path, "files"), doing=doing, params=params), VolumeFilesPage
        )
        return page.items or [], page.next_page_token or None

    def volume_file_url(self, volume: AssetRef, path: str) -> str:
        """Return a signed URL of a file of a volume."""
        doing = f"Asking for the URL of the file '{path}' of {volume}"
        body = msgspec.json.encode({"file_path": path})
        request = Request(method="POST", path=(*volume.path, "files", "download"), doing=doing, body=body)
        return self.json(request, VolumeFileUrl).download_url

    # --- temporary credentials ---

    def temporary_table_credentials(self, table: AssetName, location: str | None = None) -> TemporaryCredentials:
        """Return temporary credentials for the table's main location or an auxiliary ``location`` ("Generate Temporary
        Table Credential")."""
        return self.credentials(AssetRef(TABLE, table), location)

    def credentials(self, asset: AssetRef, location: str | None = None) -> TemporaryCredentials:
        """Return temporary credentials for an asset ("Generate Temporary Volume Credentials" and its counterparts).

        For a table, ``location`` is the requested location, by default the main one; for another asset, it is the
        asset's storage location, which the response does not repeat.

        Raises ``ProtocolError`` if the response has credentials of several kinds, or any for a local directory, and
        ``UnsupportedFeatureError`` if it has none of a known kind.
        """
        doing = f"Asking for storage credentials of {asset}"
        table = str(asset.name) if asset.kind is TABLE else None
        body = {"location": location} if asset.kind is TABLE and location is not None else None
        vended = self._credentials_response(asset, doing, body)
        credentials = vended if vended.credentials is None else vended.credentials
        kinds = (*(() if vended.credentials is None else vended.kinds), *credentials.kinds)
        where = credentials.location or location or ""
        if not where and asset.kind is TABLE:
            raise ProtocolError(f"{doing}: the response has no 'location'.", table=table)
        # A directory of this machine needs no credentials.
        expected = 0 if where.startswith("file:") else 1
        if len(kinds) < expected:
            raise UnsupportedFeatureError(
                f"{doing}: expected one of {', '.join(map(repr, _CREDENTIALS))} for a location with the scheme "
                f"'{urlsplit(where).scheme}', found none of them. {_WITHOUT_CREDENTIALS if table else _ASK}",
                feature="temporary credentials",
                table=table,
            )
        if len(kinds) > expected:
            raise ProtocolError(
                f"{doing}: expected {'exactly one kind of' if expected else 'no'} credentials, found "
                f"{' and '.join(map(repr, kinds))}.",
                table=table,
            )
        fields = {name: getattr(credentials, name) for name in TemporaryCredentials.__struct_fields__}
        return TemporaryCredentials(**{**fields, "location": where})

    def _credentials_response(
        self, asset: AssetRef, doing: str, body: Mapping[str, object] | None
    ) -> TemporaryCredentialsResponse:
        first: RequestError | None = None
        for segment in asset.kind.credentials:
            request = Request(
                method="POST",
                path=(*asset.path, segment),
                doing=doing,
                table=str(asset.name) if asset.kind is TABLE else None,
                body=None if body is None else msgspec.json.encode(body),
            )
            try:
                return self.json(request, TemporaryCredentialsResponse)
            except RequestError as error:
                first = first or error
                if error.status not in UNKNOWN_ENDPOINT:
                    raise
        if first is None:
            raise UsageError(
                f"A {asset.kind.noun} has no storage credentials; request the credentials of one of its versions."
            )
        raise first

    # --- streamed responses, for protocol.query ---

    def metadata_request(
        self, table: AssetName, headers: Mapping[str, str], version: int | None, timestamp: str | None
    ) -> Request:
        """Return the request "Query Table Metadata", for the latest version or as of ``version`` or ``timestamp``."""
        params = {k: str(v) for k, v in (("version", version), ("timestamp", timestamp)) if v is not None}
        doing = f"Reading the metadata of {table}"
        return _table_request("GET", table, ("metadata",), doing, params=params, headers=headers)

    def query_request(self, table: AssetName, headers: Mapping[str, str], body: Mapping[str, object]) -> Request:
        """Return the request "Read Data from a Table"."""
        return _table_request("POST", table, ("query",), f"Querying {table}", headers=headers, body=body)

    def query_status_request(
        self, table: AssetName, headers: Mapping[str, str], query_id: str, body: Mapping[str, object]
    ) -> Request:
        """Return the request for the result of an asynchronous query."""
        doing = f"Waiting for the query of {table}"
        return _table_request("POST", table, ("queries", query_id), doing, headers=headers, body=body)

    def changes_request(self, table: AssetName, headers: Mapping[str, str], params: Mapping[str, str]) -> Request:
        """Return the request "Read Change Data Feed from a Table"."""
        doing = f"Reading the changes of {table}"
        return _table_request("GET", table, ("changes",), doing, params=params, headers=headers)


def listed_by(table: Table, rest: RestClient) -> Table:
    """Record that ``rest`` listed ``table``, and return ``table``."""
    object.__setattr__(table, "_rest", rest)
    return table


def client_of(table: Table) -> RestClient | None:
    """Return the client that listed ``table``; ``None`` for a copy, or if the caller made the object."""
    return getattr(table, "_rest", None)


def _table_request(
    method: str,
    table: AssetName,
    path: tuple[str, ...],
    doing: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: Mapping[str, object] | None = None,
) -> Request:
    base = AssetRef(TABLE, table).path
    return Request(
        method=method,
        path=base + path,
        doing=doing,
        table=str(table),
        params=params or {},
        headers=headers or {},
        body=None if body is None else msgspec.json.encode(body),
    )


def _version_in(body: bytes, doing: str) -> int | None:
    """Return the version in a JSON body, where some servers state it, or ``None``."""
    deviations = Deviations(doing)
    try:
        version = decode(body, VersionResponse, deviations).version
    except MALFORMED:
        return None
    if version is not None:
        deviations.note(f"the version is in the body and not in the header {VERSION_HEADER}")
    deviations.tell()
    return version
