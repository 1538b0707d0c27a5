"""Renewal of pre-signed URLs: repeats the query of a scan when its URLs expire or are refused."""

from __future__ import annotations

import array
import dataclasses
import pickle
import threading
from collections.abc import Iterator
from typing import NamedTuple

from delta_sharing_client.delta.actions import SharedFile
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.delta.paths import DELETION_VECTOR_SUFFIX, unversioned, url_key
from delta_sharing_client.errors import AuthError, DataError, DeltaSharingError, ProtocolError, RequestError
from delta_sharing_client.fingerprints import Fingerprints, hashes
from delta_sharing_client.instants import steady_ms
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.query import QueryRequest, TableQuery, TableResponse, query_table
from delta_sharing_client.protocol.rest import RestClient

# The number of URLs in a compressed block, and the number of blocks that are kept decompressed; a few suffice, because
# files are read in order.
_BLOCK, _UNPACKED = 4096, 4


class RefreshingUrls:
    """A ``fetch.place.UrlSource`` that repeats a query for new URLs of the *same* files.

    It requests the same snapshot by the refresh token of the last response, or else by its version, or else as the
    latest snapshot, which must still have this version. Queries of changes and of ranges of versions are repeated
    unchanged. One thread renews while the others wait for its result. Pickles without the URLs. The refresh token of
    ``response`` is used once it is known, at the end of the listing.
    """

    def __init__(self, rest: RestClient, table: AssetName, query: TableQuery, response: TableResponse) -> None:
        self._rest = rest
        self._table = table
        self._query = query
        self._format = response.head.response_format  # file ids differ between the formats
        self._version = response.head.version
        self._response: TableResponse | None = response
        self._known_token: str | None = None
        self._lock = threading.Lock()
        self._urls = _KnownUrls()
        self._failure: DeltaSharingError | None = None

    def __repr__(self) -> str:
        return f"RefreshingUrls({str(self._table)!r}, version={self._version})"

    def __getstate__(self) -> dict[str, object]:
        names = ("_rest", "_table", "_query", "_format", "_version")
        return {**{name: getattr(self, name) for name in names}, "_known_token": self._token, "_response": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _urls=_KnownUrls(), _failure=None)

    def url_for(self, key: str, rejected: str | None = None) -> str:
        """Return a URL for ``key`` (from ``delta.paths.url_key``; ``#dv`` after it means the deletion vector) that is
        not ``rejected``.

        Raises ``DataError`` if the table has changed so that the response no longer has the file, and the errors of the
        query.
        """
        name = self._name(key)
        before = self._failure
        with self._lock:
            if self._failure is not None and self._failure is not before:
                # This thread waited for a renewal that failed, so another one would probably fail as well.
                raise self._failure
            fresh = self._urls.get(name)
            if fresh is None or fresh.url == rejected or fresh.is_old():
                try:
                    self._urls = self._fetch()
                except DeltaSharingError as error:
                    self._failure = error
                    raise
                fresh = self._urls.get(name)
            if fresh is None:
                raise self._changed(f"the server no longer lists the file with the key {key}")
            return fresh.url

    @property
    def _token(self) -> str | None:
        return self._known_token if self._response is None else self._response.refresh_token

    @_token.setter
    def _token(self, token: str | None) -> None:
        self._known_token, self._response = token, None

    def _fetch(self) -> _KnownUrls:
        response = self._ask()
        if response.head.response_format is not self._format:
            response.close()
            raise self._changed("the server now responds in a different format, which has different file ids")
        if self._is_snapshot and response.head.version != self._version:
            response.close()
            raise self._changed(f"its version is now {response.head.version}")
        urls = _KnownUrls()
        for name, url in self._named_urls(response):
            urls.put(name, url)
        urls.first_renewal = response.first_renewal  # known only at the end of the response
        if response.refresh_token is not None:
            self._token = response.refresh_token
        return urls

    def _ask(self) -> TableResponse:
        query = self._query
        if not isinstance(query, QueryRequest) or not self._is_snapshot:
            return self._repeat(query)
        if self._token is not None:
            by_token = dataclasses.replace(query, version=None, timestamp=None, refresh_token=self._token)
            try:
                return self._repeat(by_token)
            except RequestError as error:
                if error.status != 400:  # 400: the token itself has expired
                    raise
                self._token = None
        pinned = dataclasses.replace(query, version=self._version, timestamp=None, refresh_token=None)
        try:
            return self._repeat(pinned)
        except (RequestError, AuthError, ProtocolError):
            if not query.is_latest:
                raise
        # If the history is not shared, a version cannot be requested, so the latest version is compared with it.
        return self._repeat(dataclasses.replace(query, refresh_token=None))

    def _repeat(self, query: TableQuery) -> TableResponse:
        return query_table(self._rest, self._table, query, response_format=self._format)

    def _named_urls(self, response: TableResponse) -> Iterator[tuple[str, _Url]]:
        for file in response.actions:
            if not isinstance(file, SharedFile):
                continue
            name, action = self._name(url_key(file)), file.action
            yield name, _Url(action.path, file.renew_at)
            vector = action.deletion_vector
            if vector is not None and vector.storage_type == "p":
                yield name + DELETION_VECTOR_SUFFIX, _Url(vector.path_or_inline_dv, file.renew_at)

    @property
    def _is_snapshot(self) -> bool:
        return self._query.operation is Operation.SNAPSHOT

    def _name(self, key: str) -> str:
        # A server states the version of a snapshot's files only if a version was requested, so the keys of a renewal
        # may have versions although those of the first query do not.
        return unversioned(key) if self._is_snapshot else key

    def _changed(self, reason: str) -> DataError:
        return DataError(
            f"The URLs of {self._table} at version {self._version} expired and cannot be renewed, because the table "
            f"has changed: {reason}. Read the table again.",
            table=str(self._table),
            version=self._version,
        )


class _Url(NamedTuple):
    url: str
    renew_at: int | None

    def is_old(self) -> bool:
        return self.renew_at is not None and self.renew_at <= steady_ms()


class _KnownUrls:
    """The URLs of a listing by name. If there are very many, they are compressed, because as objects they would take
    gigabytes.

    ``first_renewal`` applies to files without an expiration of their own.
    """

    def __init__(self) -> None:
        self.first_renewal: int | None = None
        self._last: dict[str, _Url] = {}
        self._blocks: list[tuple[bytes, int]] = []
        self._block_of = Fingerprints()
        self._unpacked: dict[int, dict[str, _Url]] = {}

    def put(self, name: str, url: _Url) -> None:
        self._last[name] = url
        if len(self._last) == _BLOCK:
            self._pack()

    def get(self, name: str) -> _Url | None:
        url = self._last.get(name)
        if url is None:
            block = self._block_of.number(name)
            url = self._block(block - 1).get(name) if block else None
        return url if url is None or url.renew_at else url._replace(renew_at=self.first_renewal)

    def _pack(self) -> None:
        import pyarrow as pa  # a short listing is not compressed

        plain = pickle.dumps(self._last, pickle.HIGHEST_PROTOCOL)
        self._blocks.append((pa.compress(plain, "zstd").to_pybytes(), len(plain)))
        self._block_of.add(hashes(self._last), array.array("q", [len(self._blocks)]) * len(self._last))
        self._last = {}

    def _block(self, number: int) -> dict[str, _Url]:
        import pyarrow as pa

        if number not in self._unpacked:
            if len(self._unpacked) == _UNPACKED:
                del self._unpacked[next(iter(self._unpacked))]
            packed, length = self._blocks[number]
            self._unpacked[number] = pickle.loads(pa.decompress(packed, length, "zstd"))
        return self._unpacked[number]
