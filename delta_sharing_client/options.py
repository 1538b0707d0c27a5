"""The options of reads, as one frozen value."""

from __future__ import annotations

import dataclasses
import enum
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypeVar

from delta_sharing_client.errors import UsageError
from delta_sharing_client.local_paths import LocalPath, expanded
from delta_sharing_client.redact import secret_hash

if TYPE_CHECKING:
    from delta_sharing_client.fetch.report import Progress


EnumT = TypeVar("EnumT", bound=enum.Enum)

HEAD_ROWS = 5
"""How many rows ``head``, the command ``head`` and the tool ``sample`` of assistants return by default."""


class ResponseFormat(enum.Enum):
    """The response format to request from the server (protocol, "responseFormat")."""

    AUTO = "auto"
    PARQUET = "parquet"
    DELTA = "delta"


class VariantAs(enum.Enum):
    """The form of ``variant`` columns in the result.

    ``JSON``: JSON text (Arrow string). ``OBJECT``: like ``JSON`` in Arrow, Python objects in pandas. ``STRUCT``: the
    raw ``struct<metadata: binary, value: binary>``, unshredded.
    """

    JSON = "json"
    OBJECT = "object"
    STRUCT = "struct"


class InvalidText(enum.Enum):
    """How a read treats text in a file that is not valid UTF-8.

    ``ERROR``: the read fails, and the error states the row and the value. ``REPLACE``: results and filters see U+FFFD
    in place of invalid bytes, as in Spark; filters on text then skip no files.
    """

    ERROR = "error"
    REPLACE = "replace"


class AccessMode(enum.Enum):
    """How the client accesses a table's data (protocol, "accessModes").

    ``AUTO``: through URLs, or from the table's directory if only that is offered. ``URL``: through URLs only. ``DIR``:
    from the directory, with temporary credentials; through URLs if the directory cannot be read and URLs are offered.
    """

    AUTO = "auto"
    URL = "url"
    DIR = "dir"


class TableFormat(enum.Enum):
    """The format of a shared table, which decides the protocol to read it with (OpenSharing protocol, "Iceberg
    tables").

    ``AUTO``: the format that the server states; Delta if the table can be read as both. ``DELTA``: through the sharing
    protocol. ``ICEBERG``: through the Iceberg REST catalog of the profile's ``icebergEndpoint``.
    """

    AUTO = "auto"
    DELTA = "delta"
    ICEBERG = "iceberg"


class FileIdHash(enum.Enum):
    """How a server derives the ids of files (protocol, "File ID Hash Header").

    ``PARQUET`` and ``DELTA`` are the defaults of the two response formats. If one of them is requested, a file has the
    same id in both formats, and so in reports and in errors.
    """

    PARQUET = "parquet"
    DELTA = "delta"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of reads and of all requests. In paths a leading ``~`` is the home directory. The values of an enum may
    be given as text (``"dir"``), and are members of the enum afterwards.

    Parameters
    ----------
    max_concurrent_requests:
        Maximum number of concurrent data requests. The actual number adapts: few if responses come immediately, more
        while that raises the throughput, and fewer if storage responds with 429 or 503.
    max_bytes_in_flight:
        Limit of bytes that are downloaded or decoded but not yet returned; one file is always allowed. A file that
        unpacks to far more than its size is decoded in smaller batches, so that memory stays below three times this
        number. A file with a single page that unpacks to more is refused.
    batch_rows:
        Maximum number of rows in a record batch; a batch without columns may have more.
    connect_timeout, read_timeout:
        Seconds to wait for a connection, and for the next bytes of a response.
    max_attempts:
        Attempts per request, including the first.
    max_retry_seconds:
        Seconds after which no further attempt is made.
    total_timeout:
        Seconds that one operation may take, with all its requests, attempts and waits: a listing, a query with all its
        pages, the download of a query's files. ``None`` for no limit.
    min_bytes_per_second:
        Minimum speed of a response, measured over ``read_timeout`` seconds; a slower response is cancelled and retried.
        0 for no limit.
    async_query:
        Let the server compute the result in the background while the client polls (protocol, "asyncQuery"), for tables
        so large that a gateway would cancel the request. Servers without this feature respond immediately.
    progress:
        ``None`` shows a progress bar in terminals and notebooks if the read is long; a bool forces it on or off. A
        function is called with a ``Progress`` a few times per second, in its own thread, and once at the end; a pickle
        has ``False`` in its place, because it belongs to this process.
    variant_as:
        The form of ``variant`` columns in the result.
    invalid_text:
        How to treat text that is not valid UTF-8: raise an error, or replace invalid bytes by U+FFFD.
    headers:
        Additional headers for requests to the sharing server (not to storage), as a mapping, for example for a gateway.
        They are added to those of the environment variable ``DELTA_SHARING_HEADERS``, a JSON object.
    user_agent:
        Appended to the ``User-Agent`` header, so that the provider can distinguish programs. ``None``: the environment
        variable ``DELTA_SHARING_USER_AGENT``.
    access_mode:
        How to access a table's data; see docs/directory-access.md.
    table_format:
        Whether to read a table as a Delta or as an Iceberg table; see docs/iceberg.md.
    file_id_hash:
        The scheme of file ids to request; it is an error if the server does not confirm it. ``None``: the server's
        default for the response format.
    require_whole_table:
        Raise an error if the server lists a different number of files or bytes than it states for the table, in a read
        of a snapshot without filter and limit. The default is an ``IncompleteReadWarning``, because a share may contain
        a part of a table.
    storage_options:
        Settings of object stores: ``endpoint``, and for S3 ``region``, ``virtual_hosted_style_request`` and
        ``request_payer``; and your own credentials for Iceberg tables whose catalog gives none (docs/iceberg.md).
        Others come from the environment variable ``DELTA_SHARING_STORAGE_OPTIONS``, a JSON object; see
        docs/directory-access.md.
    proxy:
        URL of the proxy for all requests; an empty string for none. ``None``: the environment variables
        ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``.
    ca_bundle:
        File or directory of trusted certificates, PEM. ``None``: ``REQUESTS_CA_BUNDLE`` or ``CURL_CA_BUNDLE``, else
        those of certifi. Certificates are always verified.
    client_certificate:
        PEM file with the client's certificate and key, or a pair of files, for servers that request one. ``None``: the
        file in ``DELTA_SHARING_CLIENT_CERTIFICATE``, if set.
    cache_directory, cache_bytes:
        Deprecated, without effect: files are no longer cached on disk. ``SharedTable.replicate`` keeps a local copy.
    """

    max_concurrent_requests: int = 64
    max_bytes_in_flight: int = 256 * 1024 * 1024
    batch_rows: int = 131_072
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    max_attempts: int = 8
    max_retry_seconds: float = 120.0
    total_timeout: float | None = 86_400.0
    min_bytes_per_second: float = 100.0
    async_query: bool = False
    progress: bool | Callable[[Progress], object] | None = None
    variant_as: VariantAs | str = VariantAs.JSON
    invalid_text: InvalidText | str = InvalidText.ERROR
    headers: Mapping[str, str] | tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)
    user_agent: str | None = None
    access_mode: AccessMode | str = AccessMode.AUTO
    table_format: TableFormat | str = TableFormat.AUTO
    file_id_hash: FileIdHash | str | None = None
    require_whole_table: bool = False
    storage_options: Mapping[str, str] | tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)
    proxy: str | None = dataclasses.field(default=None, repr=False)  # may contain a password
    ca_bundle: LocalPath | None = None
    client_certificate: LocalPath | tuple[LocalPath, LocalPath] | None = None
    cache_directory: dataclasses.InitVar[LocalPath | None] = None
    cache_bytes: dataclasses.InitVar[int | None] = None

    def __hash__(self) -> int:
        shown = (getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in _MAY_BE_SECRET)
        hidden = (text for name in _MAY_BE_SECRET for text in _texts(getattr(self, name)))
        return hash((*shown, secret_hash(*hidden)))

    def __getstate__(self) -> list[object]:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return list((values | {"progress": False} if callable(self.progress) else values).values())

    def __post_init__(self, cache_directory: LocalPath | None, cache_bytes: int | None) -> None:
        for name, given in (("cache_directory", cache_directory), ("cache_bytes", cache_bytes)):
            if given is not None:
                warnings.warn(
                    f"'{name}' has no effect: the cache on disk was removed, because it could return the rows of "
                    "another server. To read a table again without downloading it, keep a local copy with "
                    "'replicate()'.",
                    DeprecationWarning,
                    stacklevel=3,
                )
        for name, least in _WHOLE_NUMBERS.items():
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < least:
                raise UsageError(f"'{name}' must be an integer of {least} or more, found {value!r}.")
        for name, bound in _SECONDS_AND_SPEEDS.items():
            value = getattr(self, name)
            if value is None and name == "total_timeout":
                continue
            if not isinstance(value, Real) or math.isnan(value) or value < 0 or (value == 0 and bound):
                raise UsageError(f"'{name}' must be a number {bound or 'of 0 or more'}, found {value!r}.")
        # Converted to tuples, to be hashable and frozen like the rest. The content is checked when it is sent.
        for name in ("headers", "storage_options"):
            value = getattr(self, name)
            pairs = tuple(value.items() if isinstance(value, Mapping) else value)
            if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
                raise UsageError(f"'{name}' must be a mapping of names to values, found {type(value).__name__}.")
            object.__setattr__(self, name, pairs)
        self._expand_paths()
        for name, kind in _CHOICES.items():
            value = getattr(self, name)
            if isinstance(value, kind) or (value is None and name == "file_id_hash"):
                continue
            choices = [one.value for one in kind]
            if not isinstance(value, str) or value.lower() not in choices:
                raise UsageError(f"'{name}' must be one of {', '.join(map(repr, choices))}, found {value!r}.")
            object.__setattr__(self, name, kind(value.lower()))

    def _expand_paths(self) -> None:
        for name in ("ca_bundle", "client_certificate"):
            value = getattr(self, name)
            if isinstance(value, (tuple, list)) and name == "client_certificate":
                if len(value) != 2:
                    given = f"found {len(value)} files"
                    raise UsageError(f"'{name}' must be one file, or a certificate and its key, {given}.")
                object.__setattr__(self, name, tuple(map(expanded, value)))
            elif value is not None:
                object.__setattr__(self, name, expanded(value))


_MAY_BE_SECRET = ("headers", "storage_options", "proxy")


def _texts(value: object) -> Iterator[str]:
    """Yield the strings in nested tuples, and markers of the nesting, so that different values yield different
    strings."""
    if isinstance(value, tuple):
        yield f"({len(value)}"
        for item in value:
            yield from _texts(item)
    else:
        yield str(value)


_CHOICES: dict[str, type[enum.Enum]] = {
    "variant_as": VariantAs,
    "invalid_text": InvalidText,
    "access_mode": AccessMode,
    "table_format": TableFormat,
    "file_id_hash": FileIdHash,
}
# Options that must be integers, and the smallest value of each.
_WHOLE_NUMBERS = {
    "max_concurrent_requests": 1,
    "max_bytes_in_flight": 1,
    "batch_rows": 1,
    "max_attempts": 1,
}
# Options that must be numbers, and how a message words the bound of those that must not be 0.
_SECONDS_AND_SPEEDS = {
    "connect_timeout": "above 0",
    "read_timeout": "above 0",
    "total_timeout": "above 0, or None",
    "max_retry_seconds": "",
    "min_bytes_per_second": "",
}


def choice(value: EnumT | str) -> EnumT:
    """Return the value of an option that may be given as text: the constructor of ``ReadOptions`` has replaced it."""
    assert isinstance(value, enum.Enum)
    return value


def with_format(options: ReadOptions, table_format: TableFormat | str) -> ReadOptions:
    """Return ``options`` for a table that was opened with ``table_format``, unless they have a format of their own."""
    if options.table_format is not TableFormat.AUTO or table_format is TableFormat.AUTO:
        return options
    return dataclasses.replace(options, table_format=table_format)


def chosen(options: ReadOptions | None, default: ReadOptions) -> ReadOptions:
    """Return ``options``, or ``default`` if it is ``None``. Raises ``UsageError`` if it is neither ``ReadOptions`` nor
    ``None``."""
    if not isinstance(options, (ReadOptions, type(None))):
        raise UsageError(f"'options' must be a ReadOptions value, found {type(options).__name__}.")
    return default if options is None else options
