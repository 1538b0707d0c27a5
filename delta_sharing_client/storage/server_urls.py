"""Reads the files of a volume by URL, from a server that provides URLs of files instead of storage credentials.

This is not in the OpenSharing protocol; the server for NetApp StorageGRID and Versity works like this.
"""

from __future__ import annotations

import asyncio
import time

from delta_sharing_client.fetch.http import Http
from delta_sharing_client.fetch.place import DataRequest, Page, Refused, StoredFile, Take
from delta_sharing_client.http.retry import EXPIRED_STATUSES, Deadline
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.asset_kinds import AssetRef
from delta_sharing_client.protocol.rest import RestClient

# A URL is reused for other parts of its file for this many seconds; servers sign URLs for at least a few minutes.
_URL_SECONDS = 60.0
_MOST_URLS = 256


class ServerUrls:
    """The files of a volume behind URLs that the server signs for each file, as a ``Place``. Picklable."""

    table = None
    urls = None
    lists_in_order = False

    def __init__(self, rest: RestClient, volume: AssetRef, location: str, options: ReadOptions) -> None:
        self._rest, self._volume, self.options = rest, volume, options
        self.location = location
        self._http = Http(options, rest.allowed_data, None, f"Reading the files of {volume}")
        self._urls: dict[str, tuple[float, str]] = {}

    def __repr__(self) -> str:
        return f"ServerUrls({self._volume})"

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_urls": {}}

    async def get(self, request: DataRequest, take: Take) -> None:
        """Like ``Place.get``; a URL that is refused is requested again, once."""
        try:
            await self._get(request, take)
        except Refused as refused:
            if refused.status not in EXPIRED_STATUSES:
                raise
            self._urls.pop(request.address, None)
            await self._get(request, take)

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        """Like ``Place.page``. The server lists all files of the volume, with their sizes only."""
        deadline.check(f"Listing the files of {self._volume}")
        items, following = await asyncio.to_thread(self._rest.volume_files_page, self._volume, mark)
        start = f"{folder}/" if folder else ""
        files: list[StoredFile] = []
        folders: dict[str, None] = {}
        for item in items:
            if not item.file_path.startswith(start):
                continue
            name, separator, _ = item.file_path[len(start) :].partition("/")
            if recursive or not separator:
                files.append(StoredFile(item.file_path, item.size))
            else:
                folders[start + name] = None
        return Page(files, list(folders), next=following, others=len(items) - len(files))

    async def _get(self, request: DataRequest, take: Take) -> None:
        url = await self._url(request.address)
        await self._http.get(request._replace(address=url), take)

    async def _url(self, path: str) -> str:
        known = self._urls.get(path)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        url = await asyncio.to_thread(self._rest.volume_file_url, self._volume, path)
        if len(self._urls) >= _MOST_URLS:
            self._urls.clear()
        self._urls[path] = time.monotonic() + _URL_SECONDS, url
        return url
