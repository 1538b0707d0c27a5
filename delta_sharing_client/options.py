"""How to read: one frozen value for every knob, handed down unchanged."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delta_sharing_client.fetch.report import Progress


class ResponseFormat(enum.Enum):
    """Which response format to ask the server for (protocol, "responseFormat")."""

    AUTO = "auto"
    PARQUET = "parquet"
    DELTA = "delta"


class VariantAs(enum.Enum):
    """How a ``variant`` column comes out.

    ``JSON``: its JSON text (Arrow string). ``OBJECT``: as ``JSON`` in Arrow, Python objects in pandas.
    ``STRUCT``: the raw ``struct<metadata: binary, value: binary>``, unshredded.
    """

    JSON = "json"
    OBJECT = "object"
    STRUCT = "struct"


class AccessMode(enum.Enum):
    """Which way to a table's data (protocol, "accessModes").

    ``AUTO``: by URL, or from the table's directory where only that is offered. ``URL``: by URL alone. ``DIR``: from the
    directory, with temporary credentials; by URL where the directory cannot be read and URLs are offered.
    """

    AUTO = "auto"
    URL = "url"
    DIR = "dir"


class FileIdHash(enum.Enum):
    """By which scheme a server derives the ids of files (protocol, "File ID Hash Header").

    ``PARQUET`` and ``DELTA`` are the schemes of the two response formats. With one of them a file has the same id,
    whatever the format of the answer: in the file cache, in reports and errors.
    """

    PARQUET = "parquet"
    DELTA = "delta"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Knobs of the scan engine and of its requests.

    Parameters
    ----------
    max_concurrent_requests:
        Most data requests in flight at once. How many there are depends on what answers: few where answers come at
        once, more while that raises the throughput, and no more than a storage takes that answers 429 or 503.
    max_bytes_in_flight:
        Bytes fetched or decoded but not yet handed out; at least one file is always admitted. A file that unpacks to
        far more than its own size is decoded in batches of fewer rows, so that the memory stays below three times this
        number; one with a single page that unpacks to more is refused.
    batch_rows:
        Upper bound of rows in one record batch.
    connect_timeout, read_timeout:
        Seconds to wait for a connection, and for the next bytes of an answer.
    max_attempts:
        Tries per request, the first included.
    max_retry_seconds:
        Seconds after which no further try is made.
    total_timeout:
        Seconds that one operation may take as a whole, all its requests, tries and waits included: a listing, a query
        with all its pages, the download of what a query found. ``None`` for no limit.
    min_bytes_per_second:
        Least throughput of an answer, taken over ``read_timeout`` seconds; a slower one is broken off and tried again.
        0 for no limit.
    async_query:
        Let the server compute an answer while it is asked again and again (protocol, "asyncQuery"), for tables so large
        that a gateway would end the request first. Servers that do not know it answer at once.
    cache_directory:
        Directory of the file cache, ``None`` for no cache.
    cache_bytes:
        Size limit of the cache in bytes.
    progress:
        ``None`` shows a progress bar where a person watches (terminal, notebook) and the read is long; a bool forces. A
        function is called with a ``Progress`` a few times a second, on a thread of its own, and once at the end.
    variant_as:
        How ``variant`` columns come out.
    headers:
        Headers of your own for each request to the sharing server (not to storages), as a mapping; a gateway may want
        some. Added to those of the environment variable ``DELTA_SHARING_HEADERS``, a JSON object.
    user_agent:
        Put last in the ``User-Agent`` header, so that a provider can tell programs apart; the environment variable
        ``DELTA_SHARING_USER_AGENT`` stands in for ``None``.
    access_mode:
        Which way to a table's data; see docs/directory-access.md.
    file_id_hash:
        The scheme of file ids to ask for; a server that does not confirm it is an error then. ``None``: not asked for,
        and the server's own for the format of its answer.
    require_whole_table:
        Fail where the server lists other numbers of files or bytes than it says the table has, in a read of a snapshot
        without filter and limit. By default that is an ``IncompleteReadWarning``: a share may show a part of a table.
    storage_options:
        Settings of the store for directory access, by obstore's names: ``region``, ``endpoint`` and the like.
    proxy:
        URL of the proxy for all requests; an empty text for none. ``None``: what ``HTTPS_PROXY``, ``HTTP_PROXY``,
        ``ALL_PROXY`` and ``NO_PROXY`` say.
    ca_bundle:
        File or directory of the certificates that are trusted, PEM. ``None``: what ``REQUESTS_CA_BUNDLE`` or
        ``CURL_CA_BUNDLE`` name, else those of certifi. Certificates are always verified.
    client_certificate:
        PEM file of the certificate and key that this client shows where a server asks for one, or a pair of files.
        ``None``: the file that ``DELTA_SHARING_CLIENT_CERTIFICATE`` names, if any.
    """

    max_concurrent_requests: int = 64
    max_bytes_in_flight: int = 256 * 1024 * 1024
    batch_rows: int = 65_536
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    max_attempts: int = 8
    max_retry_seconds: float = 120.0
    total_timeout: float | None = 86_400.0
    min_bytes_per_second: float = 100.0
    async_query: bool = False
    cache_directory: str | None = None
    cache_bytes: int = 10 * 1024 * 1024 * 1024
    progress: bool | Callable[[Progress], object] | None = None
    variant_as: VariantAs = VariantAs.JSON
    headers: Mapping[str, str] | tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)
    user_agent: str | None = None
    access_mode: AccessMode = AccessMode.AUTO
    file_id_hash: FileIdHash | None = None
    require_whole_table: bool = False
    storage_options: Mapping[str, str] | tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)
    proxy: str | None = dataclasses.field(default=None, repr=False)  # it may hold a password
    ca_bundle: str | None = None
    client_certificate: str | tuple[str, str] | None = None

    def __post_init__(self) -> None:
        # Hashable and frozen, as the rest is; what may stand in there is checked where it is sent.
        for name in ("headers", "storage_options"):
            given = getattr(self, name)
            object.__setattr__(self, name, tuple(given.items() if isinstance(given, Mapping) else given))
