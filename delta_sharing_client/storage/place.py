"""A location in an object store or a local directory: its files and their bytes.

S3, ADLS and GCS are accessed through ``obstore`` with temporary credentials from the sharing server, which are renewed
before they expire (protocol, "Generate Temporary Table Credential"). Everything here is picklable.
"""

from __future__ import annotations

import dataclasses
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Union
from urllib.parse import urlsplit

import requests

from delta_sharing_client import optional
from delta_sharing_client.delta.log.listing import LocalDirectory, LogEntry
from delta_sharing_client.errors import DeltaSharingError, ProtocolError, TransportError, UnsupportedFeatureError
from delta_sharing_client.fetch.source import Refused, Span, Version
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.protocol.messages import TemporaryCredentials
from delta_sharing_client.protocol.names import TableName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.retry import Transient

Wanted = Union[ByteRange, int, None]

# Credentials are renewed when this much of their lifetime remains, or a third of it if that is less.
_AHEAD_MS = 300_000
_CHUNK, _PIECE = 1024 * 1024, 4 * 1024 * 1024
_LEAST_TIMEOUT = 300
_ALIASES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
_NAME = re.compile(r"[a-z0-9_][a-z0-9._-]*", re.ASCII | re.IGNORECASE)
_STATUS = re.compile(r"\bstatus:? (\d{3})\b|\b(\d{3}) [A-Z][a-z]+")


class Place(Protocol):
    """A location, and how to read below it. Keys are plain paths relative to it, with ``/``."""

    def files(self, folder: str) -> list[LogEntry]:
        """Return the files directly in ``folder``, by name; ``FileNotFoundError`` if there are none."""

    def get(self, key: str, wanted: Wanted = None, version: Version | None = None) -> StoredBody:
        """Return an open response: a range, the last bytes, or the whole file, of one ``version`` if given.

        Raises ``Refused`` (404, 403 or 412, as storage behind URLs) and ``Transient`` (no response).
        """


def normalized(location: str) -> str:
    """Normalize the scheme of ``location``, and remove a slash at its end."""
    scheme, separator, rest = location.partition("://")
    scheme = scheme.lower()
    return f"{_ALIASES.get(scheme, scheme)}{separator}{rest}".rstrip("/")


def place_of(rest: RestClient, table: TableName, location: str | None, options: ReadOptions) -> tuple[str, Place]:
    """Return ``location``, by default the table's main one, and its reader. Requests its credentials.

    Raises ``UnsupportedFeatureError`` for another store, ``UsageError`` if ``obstore`` is not installed,
    ``ProtocolError`` for credentials of another cloud or a directory of another machine, and the errors of the server,
    which may not support directory access.
    """
    given = rest.temporary_table_credentials(table, location, negotiates=True)
    found = normalized(given.location or location or "")
    parts = urlsplit(found)
    if parts.scheme == "file":
        # A remote server must not make a recipient read its own files.
        if not rest.is_here or parts.netloc not in ("", "localhost"):
            raise ProtocolError(
                "The server's location of the table is a local directory, which only a server on this machine may do.",
                table=str(table),
            )
        return found, LocalPlace(Path(parts.path))
    if parts.scheme not in _STORES:
        raise UnsupportedFeatureError(
            f"The table is in the storage '{parts.scheme}:', which directory access does not support; expected one of "
            f"{', '.join(repr(name) for name in sorted(_STORES))}. Read it by URL.",
            feature=f"directory access to {parts.scheme}",
            table=str(table),
        )
    # So that a missing package is reported now, not by the first read.
    optional.load("obstore", "storage")
    return found, ObjectPlace(rest, table, found, options, given)


class LocalPlace:
    """A ``Place`` on this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def files(self, folder: str) -> list[LogEntry]:
        return LocalDirectory(self._root / folder).entries()

    def get(self, key: str, wanted: Wanted = None, version: Version | None = None) -> StoredBody:
        try:
            stream = (self._root / key).open("rb")
        except FileNotFoundError:
            raise Refused(404, None) from None
        except OSError:
            raise Refused(403, None) from None
        stat = os.fstat(stream.fileno())
        found = Version(f'"{stat.st_mtime_ns}-{stat.st_size}"', "", stat.st_size)
        if version is not None and version.etag and version.etag != found.etag:
            stream.close()
            raise Refused(412, None)
        start, stop = _bounds(wanted, stat.st_size)
        stream.seek(start)
        return StoredBody(Span(start, stop, stat.st_size), found, stream.readinto, stream.close)


@dataclasses.dataclass(eq=False, repr=False)
class ObjectPlace:
    """A ``Place`` in an object store. Thread-safe; threads share one renewal of the credentials."""

    _rest: RestClient
    _table: TableName
    _location: str
    _options: ReadOptions
    _credentials: TemporaryCredentials
    _since_ms: int = dataclasses.field(default_factory=lambda: _now())
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    _store: Any = None

    def __repr__(self) -> str:
        return f"ObjectPlace({self._location!r})"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_store")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _store=None)

    def files(self, folder: str) -> list[LogEntry]:
        import obstore

        listed = self._trying(lambda store: obstore.list_with_delimiter(store, self._key(folder)))["objects"]
        found = [
            LogEntry(item["path"].rpartition("/")[2], item["size"], round(item["last_modified"].timestamp() * 1000))
            for item in listed
        ]
        if not found:
            raise FileNotFoundError(folder)
        return found

    def get(self, key: str, wanted: Wanted = None, version: Version | None = None) -> StoredBody:
        import obstore

        options: dict[str, Any] = {}
        if isinstance(wanted, ByteRange):
            options["range"] = (wanted.start, wanted.stop)
        elif wanted is not None:
            options["range"] = {"suffix": wanted}
        if version is not None and version.etag:
            options["if_match"] = version.etag
        answer = self._trying(lambda store: obstore.get(store, self._key(key), options=options))
        meta, (start, stop) = answer.meta, answer.range
        found = Version(meta.get("e_tag") or "", meta["last_modified"].isoformat(), meta["size"])
        chunks = answer.stream(min_chunk_size=_CHUNK)
        return StoredBody(Span(start, stop, meta["size"]), found, _Chunks(chunks, self._transient).readinto)

    def _key(self, key: str) -> str:
        prefix = urlsplit(self._location).path.strip("/")
        return f"{prefix}/{key}" if prefix else key

    def _trying(self, call: Callable[[Any], Any]) -> Any:
        from obstore import exceptions

        store = self._current()
        try:
            try:
                return call(store)
            except exceptions.BaseError as error:
                if not _is_refusal(error):
                    raise
                # Credentials can expire before the stated time.
                return call(self._current(rejected=store))
        except FileNotFoundError:
            raise Refused(404, None) from None
        except exceptions.PreconditionError:
            raise Refused(412, None) from None
        except (exceptions.BaseError, OSError, ValueError) as error:
            if _is_refusal(error):
                raise Refused(403, None) from None
            raise self._transient(error) from None

    def _transient(self, error: Exception) -> Transient:
        status = _status(error)
        reason = "it did not respond" if status is None else f"it responded with HTTP status {status}"
        return Transient(TransportError(f"Reading from the table's storage failed: {reason}.", table=str(self._table)))

    def _current(self, rejected: object = None) -> Any:
        """Return the store with valid credentials, other than those of ``rejected``."""
        with self._lock:
            if self._store is rejected is not None or self._is_ending():
                self._renew(must=rejected is not None)
            if self._store is None:
                self._store = _STORES[urlsplit(self._location).scheme](self._location, self._credentials, self._options)
            return self._store

    def _is_ending(self) -> bool:
        ends = self._credentials.expiration_time
        if ends is None:
            return False
        return _now() >= ends - min(_AHEAD_MS, (ends - self._since_ms) // 3)

    def _renew(self, *, must: bool) -> None:
        try:
            self._credentials = self._rest.temporary_table_credentials(self._table, self._location)
        except DeltaSharingError:
            ends = self._credentials.expiration_time
            if must or ends is None or _now() >= ends:
                raise
            # Credentials that are still valid are used until they expire.
            return
        self._since_ms, self._store = _now(), None


def _is_refusal(error: Exception) -> bool:
    """Whether the store refused the credentials. obstore has exceptions for this, but does not use them in listings."""
    from obstore import exceptions

    named = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    return isinstance(error, named) or _status(error) in ("401", "403")


def _status(error: Exception) -> str | None:
    """Return the HTTP status in obstore's text, and nothing else: it may contain a signature."""
    found = _STATUS.search(str(error).partition("\n")[0])
    return None if found is None else found[1] or found[2]


class StoredBody:
    """An open response: the bytes ``span`` of a file of ``version``, which ``fill`` writes into memory."""

    def __init__(
        self,
        span: Span,
        version: Version,
        fill: Callable[[memoryview], int],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.span = span
        self.version = version
        self.close = close
        self._fill = fill
        self._rest = (span.stop or 0) - span.start

    def read(self) -> bytes:
        """Return the next bytes, at most 4 MiB; none at the end, and after an interruption."""
        data = bytearray(min(_PIECE, self._rest))
        view, filled = memoryview(data), 0
        while filled < len(data) and (count := self._fill(view[filled:])):
            filled += count
        self._rest -= filled
        return bytes(view[:filled])


class _Chunks:
    """A stream of chunks, returned in the requested sizes."""

    def __init__(self, chunks: Any, transient: Callable[[Exception], Transient]) -> None:
        self._chunks = iter(chunks)
        self._transient = transient
        self._held = memoryview(b"")

    def readinto(self, view: memoryview) -> int:
        if not self._held:
            try:
                self._held = memoryview(next(self._chunks, b"")).cast("B")
            except Exception as error:
                # All of obstore's exceptions here only mean that the transfer was interrupted.
                raise self._transient(error) from None
        count = min(len(view), len(self._held))
        view[:count] = self._held[:count]
        self._held = self._held[count:]
        return count


# === Stores ===


def _s3(location: str, credentials: TemporaryCredentials, options: ReadOptions) -> Any:
    from obstore.store import S3Store

    given = credentials.aws_temp_credentials
    if given is None:
        raise _of_another_cloud(location, "awsTempCredentials")
    bucket = _in_host(urlsplit(location).netloc)
    config = {
        "access_key_id": given.access_key_id,
        "secret_access_key": given.secret_access_key,
        "token": given.session_token,
        **_settings(options),
    }
    if not {"region", "endpoint"} & config.keys() and not os.environ.get("AWS_ENDPOINT_URL"):
        config["region"] = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _region(bucket)
    return S3Store(bucket, config=config, **_client(options))


def _azure(location: str, credentials: TemporaryCredentials, options: ReadOptions) -> Any:
    from obstore.store import AzureStore

    given = credentials.azure_user_delegation_sas
    if given is None:
        raise _of_another_cloud(location, "azureUserDelegationSas")
    container, _, host = urlsplit(location).netloc.partition("@")
    config = {
        "account_name": _in_host(host.partition(".")[0]),
        "sas_token": given.sas_token.lstrip("?"),
        **_settings(options),
    }
    return AzureStore(container_name=container, config=config, **_client(options))


def _gcs(location: str, credentials: TemporaryCredentials, options: ReadOptions) -> Any:
    from obstore.store import GCSStore

    given = credentials.gcp_oauth_token
    if given is None:
        raise _of_another_cloud(location, "gcpOauthToken")
    token = given.oauth_token
    # The whole store is renewed instead, so that all three stores are treated alike.
    provider: Callable[[], dict[str, object]] = lambda: {"token": token, "expires_at": None}  # noqa: E731
    config = {"base_url" if name == "endpoint" else name: value for name, value in _settings(options).items()}
    return GCSStore(urlsplit(location).netloc, config=config, credential_provider=provider, **_client(options))


def _in_host(name: str) -> str:
    """Return the ``name`` of a bucket or account, which becomes a part of the store's host; ``ProtocolError`` if it
    would be more than that."""
    if not _NAME.fullmatch(name):
        raise ProtocolError("The server's location of the table names no valid bucket or account.")
    return name


_STORES: Mapping[str, Callable[[str, TemporaryCredentials, ReadOptions], Any]] = {
    "s3": _s3,
    "abfss": _azure,
    "gs": _gcs,
}


def _settings(options: ReadOptions) -> dict[str, Any]:
    return dict(options.storage_options)


def _client(options: ReadOptions) -> dict[str, Any]:
    endpoint = str(_settings(options).get("endpoint", ""))
    return {
        "client_options": {
            # Only an endpoint that the user set may be unencrypted.
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": f"{max(1, round(options.connect_timeout))}s",
            "timeout": f"{max(_LEAST_TIMEOUT, round(options.read_timeout))}s",
        },
        # The scan retries, because it knows when it is closed.
        "retry_config": {"max_retries": 0},
    }


def _region(bucket: str) -> str:
    """Return the region of a bucket, which S3 tells anyone; the protocol does not have it."""
    try:
        answer = requests.head(f"https://{bucket}.s3.amazonaws.com", timeout=10, allow_redirects=False)
    except requests.RequestException:
        return "us-east-1"
    return answer.headers.get("x-amz-bucket-region", "us-east-1")


def _of_another_cloud(location: str, expected: str) -> ProtocolError:
    return ProtocolError(f"The server must give '{expected}' for a location in '{urlsplit(location).scheme}:'.")


def _bounds(wanted: Wanted, size: int) -> tuple[int, int]:
    if isinstance(wanted, ByteRange):
        return min(wanted.start, size), min(wanted.stop, size)
    return (0 if wanted is None else max(0, size - wanted)), size


def _now() -> int:
    return int(time.time() * 1000)
