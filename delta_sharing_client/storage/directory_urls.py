"""Reads the files of a volume by URL, from a server that provides URLs of files instead of storage credentials.

This is not in the OpenSharing protocol; the server for NetApp StorageGRID and Versity works like this.
"""

from __future__ import annotations

import dataclasses
import datetime
import email.utils
import time
from collections.abc import Iterator
from typing import Any

from delta_sharing_client.errors import DataError, DeltaSharingError, RequestError, UnsupportedFeatureError
from delta_sharing_client.fetch.http import Http
from delta_sharing_client.fetch.source import Body, DataRequest, Refused, Span, Version
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.protocol.asset_kinds import VOLUME, AssetRef
from delta_sharing_client.protocol.listings import UNKNOWN_ENDPOINT
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.retry import EXPIRED_STATUSES, Deadline, Transient
from delta_sharing_client.run import loop
from delta_sharing_client.storage.place import Page, Place, StoredBody, StoredFile, Wanted, place_of

# A URL is reused for other parts of its file for this many seconds; servers sign URLs for at least a few minutes.
_URL_SECONDS = 60.0
_MOST_URLS = 256


def place_of_asset(rest: RestClient, asset: AssetRef, location: str, options: ReadOptions) -> Place:
    """Return the reader of an asset's directory: in its store, or by URL if the server provides only URLs.

    Requests credentials, and a list of files if there are none. Raises the errors of ``storage.place.place_of``.
    """
    try:
        return place_of(rest, asset, location, options)
    except RequestError as error:
        if asset.kind is not VOLUME or error.status not in UNKNOWN_ENDPOINT:
            raise
        by_url = UrlPlace(rest, asset, location, options)
        try:
            next(by_url.pages(), None)
        except DeltaSharingError:
            # The server provides neither.
            raise error from None
        return by_url


class UrlPlace:
    """A ``Place`` behind URLs that the server signs for each file. Thread-safe and picklable."""

    def __init__(self, rest: RestClient, volume: AssetRef, location: str, options: ReadOptions) -> None:
        self._rest, self._volume, self._options = rest, volume, options
        self.location = location
        self._http = Http(options, rest.allowed_data, str(volume))
        self._urls: dict[str, tuple[float, str]] = {}

    def __repr__(self) -> str:
        return f"UrlPlace({self._volume})"

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_urls": {}}

    def pages(self, folder: str = "", *, recursive: bool = True) -> Iterator[Page]:
        """Like ``Place.pages``. The server lists all files of the volume, with their sizes only."""
        start, told = f"{folder}/" if folder else "", set()
        for items in self._rest.list_volume_files(self._volume):
            page = Page([], [])
            for item in items:
                if not item.file_path.startswith(start):
                    continue
                name, separator, _ = item.file_path[len(start) :].partition("/")
                if recursive or not separator:
                    page.files.append(StoredFile(item.file_path, item.size))
                elif name not in told:
                    told.add(name)
                    page.folders.append(start + name)
            yield page

    def get(self, path: str, wanted: Wanted = None, version: Version | None = None) -> StoredBody:
        url = self._url(path)
        try:
            return self._get(url, wanted, version)
        except Refused as refused:
            if refused.status not in EXPIRED_STATUSES:
                raise
            # The URL may have expired.
            self._urls.pop(path, None)
            return self._get(self._url(path), wanted, version)

    def head(self, path: str) -> StoredFile:
        try:
            body = self.get(path, ByteRange(0, 1))
        except Refused as refused:
            if refused.status != 416:
                raise
            # An empty file has no first byte.
            body = self.get(path)
        size = body.span.total
        if size is None:
            raise DataError(f"The store does not state the length of the file '{path}' of {self._volume}.")
        return StoredFile(path, size, body.modified, body.version.etag or None)

    def store(self) -> Any:
        raise UnsupportedFeatureError(
            f"The server provides the files of {self._volume} by URL, so they have no store; use open() or "
            "filesystem().",
            feature="store",
        )

    def _url(self, path: str) -> str:
        known = self._urls.get(path)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        url = self._rest.volume_file_url(self._volume, path)
        if len(self._urls) >= _MOST_URLS:
            self._urls.clear()
        self._urls[path] = time.monotonic() + _URL_SECONDS, url
        return url

    def _get(self, url: str, wanted: Wanted, version: Version | None) -> StoredBody:
        fetched = _Fetched(wanted)
        request = DataRequest(url, wanted, Deadline(self._options.total_timeout), version)
        try:
            loop.call(self._http.get(request, fetched.take))
        except DeltaSharingError as error:
            error.table = None
            raise
        except Transient as failure:
            failure.error.table = None
            raise
        return fetched.body()


@dataclasses.dataclass
class _Fetched:
    """A response, read into memory up to the end of the requested bytes."""

    wanted: Wanted
    span: Span = dataclasses.field(default_factory=lambda: Span(0, 0, None))
    version: Version = dataclasses.field(default_factory=Version)
    chunks: list[bytes] = dataclasses.field(default_factory=list)

    async def take(self, body: Body) -> None:
        self.span, self.version, self.chunks = body.span, body.version, []
        at = body.span.start
        stop = self.wanted.stop if isinstance(self.wanted, ByteRange) else None
        # A storage that ignores ranges sends the whole file.
        while (stop is None or at < stop) and (data := await body.read()):
            at += len(data)
            self.chunks.append(bytes(data))

    def body(self) -> StoredBody:
        return StoredBody(self.span, self.version, _moment(self.version.modified), iter(self.chunks))


def _moment(header: str) -> datetime.datetime | None:
    """Return the time in a ``Last-Modified`` header, if any."""
    try:
        return email.utils.parsedate_to_datetime(header).astimezone(datetime.timezone.utc)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
