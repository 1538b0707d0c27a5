"""Lists and reads the files of a location, which is in an object store or a local directory, for assets of any kind.

S3, ADLS, GCS and R2 are accessed through ``obstore`` with temporary credentials, which are renewed before they expire.
All classes of locations here are picklable.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, Union
from urllib.request import url2pathname

import msgspec

from delta_sharing_client import optional
from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    ProtocolError,
    TransportError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.fetch.source import Bytes, Refused, Span, Version
from delta_sharing_client.network import Allowed
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.protocol.asset_kinds import TABLE, AssetRef
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.retry import Deadline, Transient, Tries
from delta_sharing_client.storage.credentials import Provider, Renewal, StorageCredentials, from_protocol
from delta_sharing_client.storage.refusals import is_refusal, translated
from delta_sharing_client.storage.stores import SCHEMES, Location, StoreSettings, open_store
from delta_sharing_client.threads import Threads

Wanted = Union[ByteRange, int, None]
T = TypeVar("T")

# The minimum size of a chunk. Each thread holds a few chunks, and obstore would copy larger ones into one buffer first.
_CHUNK = 256 * 1024
# A response of up to this size is read in one piece.
_WHOLE_BYTES = 1024 * 1024
_PAGE = 1000
_CHECKS_AT_ONCE = 16


class StoredFile(msgspec.Struct, frozen=True):
    """A file of a location.

    Attributes
    ----------
    path:
        The path relative to the location, with ``/`` as separator.
    size:
        The size in bytes.
    modified:
        When the file was last written, in UTC; ``None`` if the server does not state it.
    etag:
        The ETag, which identifies the content; ``None`` if the store has none.
    """

    path: str
    size: int
    modified: Union[datetime.datetime, None] = None
    etag: Union[str, None] = None


class Page(NamedTuple):
    """A part of a listing: files, and also folders if the listing is not recursive."""

    files: list[StoredFile]
    folders: list[str]


class Place(Protocol):
    """A location whose files can be listed and read. Paths are relative to it, not encoded, with ``/`` as separator."""

    @property
    def location(self) -> str:
        """The address of the location."""

    def pages(self, folder: str = "", *, recursive: bool = True) -> Iterator[Page]:
        """List the files below ``folder``, or directly in it if not ``recursive``, in pages as the store returns them.

        Raises ``Refused`` if the store refuses the listing (404, 403 and others), ``DataError`` for names that cannot
        be read, and ``TransportError`` if it does not succeed within the retry limits.
        """

    def get(self, path: str, wanted: Wanted = None, version: Version | None = None) -> StoredBody:
        """Return an open response with the bytes ``wanted``: a range, the last bytes, or the whole file.

        Raises ``Refused`` if the store refuses the request (404, 403, or 412 if a ``version`` is given and the file has
        a different one), and ``Transient`` if it does not respond.
        """

    def head(self, path: str) -> StoredFile:
        """Return the size, time and ETag of one file. Raises the errors of ``get``."""

    def store(self) -> Any:
        """Return the ``obstore`` store of the location, which renews its credentials by itself."""


def open_place(
    location: str,
    provider: Provider,
    options: ReadOptions,
    *,
    subject: str,
    allowed: Allowed,
    table: str | None = None,
    given: StorageCredentials | None = None,
) -> Place:
    """Return the reader of a location, without sending a request.

    Parameters
    ----------
    location:
        The address, such as ``s3://bucket/path``.
    provider:
        Requests new credentials (with ``storage.credentials.from_protocol`` or ``from_iceberg``). It is called before
        the first request unless credentials are ``given``, before the credentials expire, and if the store refuses
        them. It must be picklable. It is not called for a local directory.
    options:
        Time limits, retries, and the settings of the store (``storage_options``).
    subject, table:
        The owner of the location in messages ("volume a.b.c"), and its name in errors if it is a table.
    allowed:
        What the server that named the location may make its recipients request (``RestClient.allowed_data``): a local
        directory only if the server is on this machine, and an ``http:`` endpoint of a store only if the server's own
        endpoint is ``http:``.

    Raises ``UnsupportedFeatureError`` for a store that is not supported, ``UsageError`` if ``obstore`` is not
    installed, and ``ProtocolError`` for a local directory that is not allowed.
    """
    where = Location.parse(location)
    if where.scheme == "file":
        # A remote server must not make a recipient read its own files.
        if not allowed.loopback or where.bucket not in ("", "localhost"):
            raise ProtocolError(
                f"The location of {subject} is a local directory, which only a server on this machine may share; ask "
                "the data provider.",
                table=table,
            )
        return LocalPlace(Path(url2pathname(where.prefix)))
    if where.scheme not in SCHEMES:
        raise UnsupportedFeatureError(
            f"The storage of {subject} has the scheme '{where.scheme}', which is not supported; expected one of "
            f"{', '.join(repr(name) for name in sorted(SCHEMES))}.",
            feature=f"storage in {where.scheme}",
            table=table,
        )
    # Loaded here, so that a missing package is reported now and not by the first read.
    optional.load("obstore", "storage")
    return ObjectPlace(StoreSettings(where, options, allowed), Renewal(provider, given), subject, table)


# ValueError is for names that no file can have: with a zero byte, or characters that the file system cannot encode.
_NOT_THERE = (FileNotFoundError, NotADirectoryError, ValueError)


class LocalPlace:
    """A ``Place`` on this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __repr__(self) -> str:
        return f"LocalPlace({self.location!r})"

    @property
    def location(self) -> str:
        return f"file://{self._root}"

    def pages(self, folder: str = "", *, recursive: bool = True) -> Iterator[Page]:
        """Like ``Place.pages``; raises ``DataError`` for a link to a directory, because it could lead to a cycle."""
        waiting = [folder]
        while waiting:
            inside = waiting.pop()
            page = self._page(inside)
            if not recursive:
                yield page
                return
            yield Page(page.files, [])
            waiting += reversed(page.folders)

    def _page(self, folder: str) -> Page:
        page = Page([], [])
        try:
            with os.scandir(self._root / folder) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_file():
                        page.files.append(_local_file(path, entry.stat()))
                    elif entry.is_dir(follow_symlinks=False):
                        page.folders.append(path)
                    else:
                        raise DataError(
                            f"Expected a file or a directory, but '{path}' is neither; it may be a link to a directory."
                        )
        except (FileNotFoundError, NotADirectoryError):
            raise Refused(404, None) from None
        except OSError:
            raise Refused(403, None) from None
        return page

    def get(self, path: str, wanted: Wanted = None, version: Version | None = None) -> StoredBody:
        try:
            stream = (self._root / path).open("rb")
        except (*_NOT_THERE, IsADirectoryError):
            raise Refused(404, None) from None
        except OSError:
            raise Refused(403, None) from None
        facts = _local_file(path, os.fstat(stream.fileno()))
        found = Version(facts.etag or "", "", facts.size)
        if version is not None and version.etag and version.etag != found.etag:
            stream.close()
            raise Refused(412, None)
        start, stop = _bounds(wanted, facts.size)
        stream.seek(start)

        def chunks() -> Iterator[bytes]:
            left = stop - start
            while left and (data := stream.read(min(_CHUNK, left))):
                left -= len(data)
                yield data

        return StoredBody(Span(start, stop, facts.size), found, facts.modified, chunks(), stream.close)

    def head(self, path: str) -> StoredFile:
        try:
            facts = os.stat(self._root / path)
        except _NOT_THERE:
            raise Refused(404, None) from None
        except OSError:
            raise Refused(403, None) from None
        if os.path.isdir(self._root / path):
            raise Refused(404, None)
        return _local_file(path, facts)

    def store(self) -> Any:
        optional.load("obstore", "storage")
        from obstore.store import LocalStore

        return LocalStore(self._root)


class ObjectPlace:
    """A ``Place`` in an object store. Thread-safe: all threads use one store, whose credentials ``renewal`` renews."""

    def __init__(self, settings: StoreSettings, renewal: Renewal, subject: str, table: str | None) -> None:
        self._settings = settings
        self.renewal = renewal
        self._subject = subject
        self._table = table
        self._lock = threading.Lock()
        self._opened: tuple[StorageCredentials, Any] | None = None

    def __repr__(self) -> str:
        return f"ObjectPlace({self.location!r})"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_opened")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _opened=None)

    @property
    def location(self) -> str:
        return str(self._settings.location)

    def pages(self, folder: str = "", *, recursive: bool = True) -> Iterator[Page]:
        """Like ``Place.pages``. If a page does not arrive, the listing resumes after the previous page."""
        import obstore

        prefix = self._key(folder)
        tries = Tries(self._settings.options, Deadline(self._settings.options.total_timeout))
        if not recursive:
            found = tries.call(lambda: self._trying(lambda store: obstore.list_with_delimiter(store, prefix)))
            root = self._key("")
            yield Page(
                self._files(found["objects"], prefix), [self._path(one, root) for one in found["common_prefixes"]]
            )
            return
        stream: tuple[Any, Any] | None = None
        last: str | None = None

        def next_page(store: Any) -> Any:
            nonlocal stream
            if stream is None or stream[0] is not store:
                stream = store, iter(obstore.list(store, prefix, offset=last, chunk_size=_PAGE))
            return next(stream[1], None)

        while True:
            try:
                listed = self._trying(next_page)
            except Transient as failure:
                stream = None
                tries.failed(failure)
                continue
            if listed is None:
                return
            last = listed[-1]["path"]
            tries = Tries(self._settings.options, Deadline(self._settings.options.total_timeout))
            yield Page(self._files(listed, prefix), [])

    def _files(self, listed: list[dict[str, Any]], prefix: str) -> list[StoredFile]:
        """Return the files in a page of obstore's listing of ``prefix``, without directory markers.

        Some programs mark a directory with an empty object 'name/', which obstore lists as an empty file 'name'.
        """
        empty = [one["path"] for one in listed if one["size"] == 0]
        markers = self._markers(empty, listed, prefix) if empty else frozenset()
        root = self._key("")
        return [_stored_file(one, self._path(one["path"], root)) for one in listed if one["path"] not in markers]

    def _markers(self, empty: list[str], listed: list[dict[str, Any]], prefix: str) -> frozenset[str]:
        parents = {one["path"].rpartition("/")[0] for one in listed}
        known = {path for path in empty if path in parents or path == prefix}

        def is_marker(path: str) -> bool:
            import obstore

            try:
                self._trying(lambda store: obstore.head(store, path))
            except Refused as refused:
                if refused.status != 404:
                    raise
                return True
            return False

        asked = [path for path in empty if path not in known]
        options = self._settings.options
        with Threads(_CHECKS_AT_ONCE, "delta-list") as pool:
            are_markers = list(pool.map(lambda path: Tries(options).call(lambda: is_marker(path)), asked))
        return frozenset(known.union(path for path, is_one in zip(asked, are_markers, strict=True) if is_one))

    def get(self, path: str, wanted: Wanted = None, version: Version | None = None) -> StoredBody:
        import obstore

        options: dict[str, Any] = {}
        if isinstance(wanted, ByteRange):
            options["range"] = (wanted.start, wanted.stop)
        elif wanted is not None:
            options["range"] = {"suffix": wanted}
        if version is not None and version.etag:
            options["if_match"] = version.etag
        response = self._trying(lambda store: obstore.get(store, self._key(path), options=options))
        meta, (start, stop) = response.meta, response.range
        etag = meta.get("e_tag") or ""
        # The time is compared only if there is no ETag.
        found = Version(etag, "" if etag else meta["last_modified"].isoformat(), meta["size"])
        return StoredBody(Span(start, stop, meta["size"]), found, meta["last_modified"], self._chunks(response))

    def _chunks(self, response: Any) -> Iterator[memoryview]:
        start, stop = response.range
        is_small = stop - start <= _WHOLE_BYTES
        stream = None if is_small else response.stream(min_chunk_size=_CHUNK)
        while True:
            try:
                # A small response takes one call instead of three.
                data = response.bytes() if stream is None else next(stream, None)
            except Exception as error:
                # Any exception of obstore here means only that the transfer was interrupted.
                raise self._interrupted(error) from None
            if data is None:
                return
            yield memoryview(data)
            if is_small:
                return

    def _interrupted(self, error: Exception) -> Transient:
        failure = translated(error, self._subject, self._table)
        if isinstance(failure, Transient):
            return failure
        return Transient(self._failed(f"it responded with {failure}"))

    def head(self, path: str) -> StoredFile:
        import obstore

        return _stored_file(self._trying(lambda store: obstore.head(store, self._key(path))), path)

    def store(self) -> Any:
        return open_store(self._settings, self.renewal, self._settings.location.prefix)

    def _key(self, path: str) -> str:
        return self._settings.location.key(path)

    def _path(self, key: str, root: str) -> str:
        """Return the path of a ``key`` in a listing; ``root`` is the key of the location."""
        if not root:
            return key
        if not key.startswith(f"{root}/"):
            raise DataError(f"The store lists a file that is not in {self._subject}: '{key[:200]}'.", table=self._table)
        return key[len(root) + 1 :]

    def _trying(self, call: Callable[[Any], T]) -> T:
        from obstore import exceptions

        credentials, store = self._current()
        try:
            try:
                return call(store)
            except exceptions.BaseError as error:
                if not is_refusal(error):
                    raise
                # Credentials can expire before the stated time.
                return call(self._current(rejected=credentials)[1])
        except DeltaSharingError:
            raise
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise translated(error, self._subject, self._table) from None

    def _failed(self, problem: str) -> TransportError:
        return TransportError(f"Reading from the storage of {self._subject} failed: {problem}.", table=self._table)

    def _current(self, rejected: StorageCredentials | None = None) -> tuple[StorageCredentials, Any]:
        """Return valid credentials that are not the ``rejected`` ones, and the store that uses them."""
        check_process(self._subject)
        credentials = self.renewal.current(rejected)
        with self._lock:
            # A store requests new credentials only when its own expire. If they were refused, a new store replaces it.
            if self._opened is None or self._opened[0] is rejected is not None:
                self._opened = credentials, open_store(self._settings, self.renewal)
            store = self._opened[1]
            self._opened = credentials, store
            return credentials, store


class StoredBody:
    """An open response: the bytes ``span`` of a file of ``version``, in ``chunks`` of at most a few MiB.

    Iterating over ``chunks`` raises ``Transient`` if the transfer is interrupted.
    """

    def __init__(
        self,
        span: Span,
        version: Version,
        modified: datetime.datetime | None,
        chunks: Iterator[Bytes],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.span = span
        self.version = version
        self.modified = modified
        self.chunks = chunks
        self.close = close

    def read(self) -> bytes:
        """Return the next bytes, or no bytes at the end."""
        return bytes(next(self.chunks, b""))


_process: int | None = None


def check_process(subject: str) -> None:
    """Raise ``UsageError`` in a process that was forked after its parent had used a store.

    A fork does not copy threads, so obstore would wait forever for its threads in the parent.
    """
    global _process
    if _process is None:
        _process = os.getpid()
    if _process != os.getpid():
        raise UsageError(
            f"The storage of {subject} cannot be read in a process that was forked after its parent had read from a "
            "store; start the process with 'spawn' or 'forkserver' (multiprocessing.get_context)."
        )


def _bounds(wanted: Wanted, size: int) -> tuple[int, int]:
    if isinstance(wanted, ByteRange):
        return min(wanted.start, size), min(wanted.stop, size)
    return (0 if wanted is None else max(0, size - wanted)), size


def _stored_file(meta: dict[str, Any], path: str) -> StoredFile:
    etag = meta["e_tag"]
    if etag and not etag.startswith(('"', "W/")):
        # Azure's listings omit the quotation marks that the ETag header has (RFC 9110, 8.8.3).
        etag = f'"{etag}"'
    return StoredFile(path, meta["size"], meta["last_modified"], etag)


def _local_file(path: str, facts: os.stat_result) -> StoredFile:
    modified = datetime.datetime.fromtimestamp(facts.st_mtime, datetime.timezone.utc)
    return StoredFile(path, facts.st_size, modified, f'"{facts.st_mtime_ns}-{facts.st_size}"')


# === Locations of shared assets ===


@dataclasses.dataclass(frozen=True)
class AssetCredentials:
    """Requests credentials for a location of an asset (protocol, "Generate Temporary Table Credential" ...)."""

    rest: RestClient
    asset: AssetRef
    location: str

    def __call__(self) -> StorageCredentials:
        return from_protocol(self.rest.credentials(self.asset, self.location))


def place_of(rest: RestClient, asset: AssetRef, location: str | None, options: ReadOptions) -> Place:
    """Request credentials for a location of an asset (for a table, by default the main one), and return its reader.

    Raises the errors of ``open_place``, and those of the server, which may not provide credentials.
    """
    given = rest.credentials(asset, location)
    where = Location.parse(given.location)
    try:
        return open_place(
            str(where),
            AssetCredentials(rest, asset, str(where)),
            options,
            subject=str(asset),
            allowed=rest.allowed_data,
            table=str(asset.name) if asset.kind is TABLE else None,
            given=from_protocol(given) if given.kinds else None,
        )
    except UnsupportedFeatureError as error:
        if asset.kind is TABLE:
            error.add("Read the table by URL.")
        raise
