"""Reads files of an object store: signs each request, and sends it through our own HTTP engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.http import Http, HttpBody
from delta_sharing_client.fetch.place import Body, DataRequest, Page, Refused, StoredFile, Take
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.storage.credentials import Renewal, StorageCredentials
from delta_sharing_client.storage.dialects import Dialect, dialect_of, reach_of
from delta_sharing_client.storage.listing_pages import Listing
from delta_sharing_client.storage.locations import StoreSettings
from delta_sharing_client.storage.refusals import StoreError

_MOST_LISTING = 16 * 1024 * 1024
_NO_BUCKET = "the bucket or container does not exist, or 'endpoint' in 'storage_options' is wrong"
_HADOOP_SUFFIX = "_$folder$"


class StorePlace:
    """A location in an object store, as a ``Place``. Thread-safe and picklable; the pickle contains the credentials.

    ``renewal`` has the credentials and renews them. ``subject`` is the owner of the location in messages ("volume
    a.b.c"), ``table`` its name if it is a table.
    """

    urls = None
    lists_in_order = True

    def __init__(self, settings: StoreSettings, renewal: Renewal, subject: str, table: str | None) -> None:
        self._settings = settings
        self.renewal = renewal
        self.options: ReadOptions = settings.options
        self._subject = subject
        self.table = table
        # The dialect for the current credentials, and the region that a refusal named.
        self._opened: tuple[StorageCredentials, Dialect, Http] | None = None
        self._region = ""

    def __repr__(self) -> str:
        return f"StorePlace({self.location!r})"

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_opened": None}

    @property
    def location(self) -> str:
        """The address of the location."""
        return str(self._settings.location)

    @property
    def prefix(self) -> str | None:
        """The path of the location in its bucket or container; ``None`` for the whole bucket."""
        return self._settings.location.prefix or None

    def dialect(self) -> Dialect:
        """Return how the store is addressed, which may request credentials."""
        return dialect_of(self._settings, self.renewal.current())

    async def get(self, request: DataRequest, take: Take) -> None:
        key = self._settings.location.key(request.address)
        await self._send(request, lambda dialect: dialect.url(key), take)

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        prefix = self._settings.location.key(folder)
        prefix = f"{prefix}/" if prefix else ""
        content = bytearray()

        async def take(body: Body) -> None:
            content.clear()
            while data := await body.read():
                content.extend(data)
                if len(content) > _MOST_LISTING:
                    raise self._error(f"sends a page with more than {_MOST_LISTING} bytes")

        request = DataRequest("", None, deadline)
        try:
            dialect = await self._send(
                request, lambda dialect: dialect.listing(prefix, mark, recursive=recursive), take
            )
        except Refused as refused:
            if refused.status == 404 and not refused.reason:
                # A folder without files has an empty listing, so this is not about the folder.
                raise Refused(404, None, _NO_BUCKET, code=refused.code) from None
            raise
        return self._page(dialect.page(bytes(content)), prefix)

    def _page(self, listing: Listing, prefix: str) -> Page:
        root = self._settings.location.key("")
        skip = len(root) + 1 if root else 0
        files, markers = [], []
        for one in listing.files:
            if not one.key.startswith(prefix):
                raise self._error(f"lists a file that is not in the folder: '{one.key[:200]}'")
            path = one.key[skip:]
            name = None if one.size and not one.is_directory else _marked(path)
            if one.is_directory:
                name = path
            if name is not None:
                markers.append(name.rstrip("/"))
            else:
                md5 = None if one.checksum is None else one.checksum.digest.hex()
                files.append(StoredFile(path, one.size, one.modified, one.etag, md5))
        folders = []
        for key in listing.folders:
            if not key.startswith(prefix):
                raise self._error(f"lists a directory that is not in the folder: '{key[:200]}'")
            # The keys in a directory without a name, as in 'a//b', are listed only recursively.
            if not key.endswith("//") and key != "/":
                folders.append(key[skip:].removesuffix("/"))
        others = len(listing.folders) - len(folders)
        return Page(files, folders, frozenset(markers), listing.next, others)

    # === One request ===

    async def _send(self, request: DataRequest, url: Callable[[Dialect], str], take: Take) -> Dialect:
        """Send a GET; again with new credentials or in the right region, if the store refuses it because of them.

        Return the dialect of the request that succeeded.
        """
        rejected: StorageCredentials | None = None
        is_moved = False
        while True:
            credentials, dialect, http = await self._current(rejected)
            address = url(dialect)
            try:
                await self._exchange(request, address, credentials, dialect, http, take)
            except Refused as refused:
                if refused.region and not is_moved and dialect.with_region(refused.region) != dialect:
                    is_moved, self._region = True, refused.region
                    self._opened = None
                elif rejected is None and StoreError(refused.status, refused.code, refused.region).is_about_credentials:
                    rejected = credentials
                else:
                    raise self._explained(refused) from None
            else:
                return dialect

    async def _exchange(
        self,
        request: DataRequest,
        url: str,
        credentials: StorageCredentials,
        dialect: Dialect,
        http: Http,
        take: Take,
    ) -> None:
        async def opened(body: Body) -> None:
            assert isinstance(body, HttpBody)
            body.stated_checksum = dialect.checksum
            await take(body)

        signed, headers = dialect.request(url, credentials)
        # With headers, redirects are refusals: a signature or a token must not be sent elsewhere.
        await http.exchange(request._replace(address=signed), opened, headers)

    async def _current(self, rejected: StorageCredentials | None) -> tuple[StorageCredentials, Dialect, Http]:
        credentials = self.renewal.ready(rejected)
        if credentials is None:
            credentials = await asyncio.to_thread(self.renewal.current, rejected)
        opened = self._opened
        if opened is None or opened[0] is not credentials:
            dialect = dialect_of(self._settings, credentials)
            if self._region:
                dialect = dialect.with_region(self._region)
            http = Http(
                self.options,
                reach_of(self._settings, credentials),
                self.table,
                f"Reading from the storage of {self._subject}",
            )
            opened = self._opened = credentials, dialect, http
        return opened

    def _explained(self, refused: Refused) -> Refused:
        facts = StoreError(refused.status, refused.code, refused.region)
        # A missing bucket may mean a wrong setting, so there is advice about it; a missing file needs none.
        reason = "" if refused.status == 404 and not facts.advice else facts.reason
        status = 403 if facts.is_about_credentials else refused.status
        return Refused(status, refused.retry_after, reason, code=refused.code, region=refused.region)

    def _error(self, problem: str) -> DataError:
        return DataError(f"The storage of {self._subject} {problem}.", table=self.table)


def _marked(path: str) -> str | None:
    """Return the path of the directory that an empty object marks by its name; ``None`` if it marks none."""
    if path.endswith("/") or not path:
        return path.removesuffix("/")
    return path.removesuffix(_HADOOP_SUFFIX) if path.endswith(_HADOOP_SUFFIX) else None
