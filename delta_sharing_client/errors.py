"""The exceptions of the package, classified by who must act on them.

::

    DeltaSharingError
    ├── UsageError (ValueError)       the caller: a bad argument, option, name, filter or column
    ├── ProfileError                  the recipient: the profile file is missing, malformed or expired
    ├── AuthError                     the recipient or the provider: credentials were refused
    ├── RequestError                  the provider: the server responded with an error status
    │   └── NotFoundError             ... because the share, schema, table or version does not exist
    ├── TransportError                the network: no complete response arrived within the retry limits
    ├── ProtocolError                 the server: its response violates the Delta Sharing protocol
    ├── UnsupportedFeatureError       us: the table needs a feature that this client does not support
    ├── DataError                     the data: bytes, checksums, lengths or types are wrong
    │   └── SchemaChangeError         ... a schema changed in a way that one read cannot span
    └── OutOfMemoryError (MemoryError) the caller: the process may not have as much memory as the read needs

    IncompleteReadWarning (UserWarning)   a read may not return the whole table
    SkillWarning (UserWarning)            the files of an agent skill are not what its server lists

Every message says what was expected, what was found and what to do. Identifiers (table, file id, version) may appear;
URLs with their query strings, tokens, passwords and keys never do.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

from delta_sharing_client.redact import printable, scrub


class DeltaSharingError(Exception):
    """The base class of all errors raised by this package.

    Parameters
    ----------
    message:
        What was expected, what was found and what to do. Signatures of URLs are masked and control characters are
        escaped.
    table:
        The table, as ``share.schema.table``.
    version:
        The version of the table.
    file_id:
        The server's id of the data file; a signature in it is masked.

    Attributes
    ----------
    query_id:
        The id in the requests of the read, if known; the provider can find the read with it.
    """

    query_id: str | None = None

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        version: int | None = None,
        file_id: str | None = None,
    ) -> None:
        self.message = _shown(message)
        self.table = table
        self.version = version
        self.file_id = file_id
        super().__init__(self.message)

    @property
    def file_id(self) -> str | None:
        """The server's id of the data file, with signatures masked."""
        return self._file_id

    @file_id.setter
    def file_id(self, value: str | None) -> None:
        # A server may use a signed URL as a file id.
        self._file_id = None if value is None else scrub(value)

    def __str__(self) -> str:
        facts = (
            ("table", self.table),
            ("version", self.version),
            ("file", self.file_id),
            ("query id", self.query_id),
        )
        where = [f"{label} {value}" for label, value in facts if value is not None and not self._says(label, value)]
        return _shown(f"{self.message} ({', '.join(where)})") if where else self.message

    def _says(self, label: str, value: object) -> bool:
        """Return whether the message contains ``value`` as a whole word. A number must follow ``label``, because it
        could otherwise be a number of rows."""
        text = f"{label} {value}" if isinstance(value, int) else str(value)
        return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", self.message) is not None

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles exceptions on executors; the default reduce would lose keyword-only fields.
        return (rebuild, (type(self), self.message, {k: v for k, v in vars(self).items() if k != "message"}))


def add_advice(error: DeltaSharingError, sentence: str) -> None:
    """Append ``sentence`` to the message of ``error``, for advice that only an outer caller knows."""
    error.message = f"{error.message} {_shown(sentence)}"
    error.args = (error.message,)


def rebuild(cls: type[DeltaSharingError], message: str, fields: dict[str, object]) -> DeltaSharingError:
    """Recreate a pickled error of ``cls``; ``fields`` are its attributes."""
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.message = message
    vars(error).update(fields)
    return error


def _shown(text: str) -> str:
    return "\n".join(map(printable, scrub(text).split("\n")))


# The error codes for too many open files in this process, and on this machine.
_LIMITS = frozenset((errno.EMFILE, errno.ENFILE))


# The number of bytes in the messages of Arrow and NumPy. Arrow's "malloc of size 64 failed" has no unit.
_ASKED = re.compile(r"size (\d+)|allocate ([\d.]+) (bytes|KiB|MiB|GiB|TiB|PiB|EiB)")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
# In the message of an Arrow error of no particular class.
_NO_THREAD = "Failed to launch worker thread"
# No valid data needs an array of this size: a column of one batch has less than 2 GiB.
_IMPLAUSIBLE = 1 << 32


def check_memory(error: BaseException) -> None:
    """Raise ``OutOfMemoryError`` if ``error`` is a ``MemoryError``, such as Arrow's; ``UsageError`` if no thread could
    be started.

    Every handler that treats an error of decoding as damaged data must call this first. A request for more memory than
    any valid data needs is not lack of memory: the sizes in the data are wrong.
    """
    lack = lack_of_memory(error)
    if lack is not None:
        raise lack from None
    if _NO_THREAD in str(error):
        # Arrow's own threads need memory for their stacks.
        raise UsageError(
            "No thread can be started to decode data. Raise the limit of processes or memory, or read less at a time."
        ) from None


def lack_of_memory(error: BaseException) -> OutOfMemoryError | None:
    """Return the error that ``check_memory`` raises, if any."""
    if not isinstance(error, MemoryError):
        return None
    if isinstance(error, OutOfMemoryError):
        return error
    asked = _asked_bytes(error)
    if asked is not None and asked >= _IMPLAUSIBLE:
        return None
    what = "memory" if asked is None else f"{asked:,} bytes of memory"
    return OutOfMemoryError(
        f"The system refused {what} to this process. Raise the limit of the process or its container (in Spark: "
        "'spark.executor.pyspark.memory' or 'spark.executor.memoryOverhead'), take the rows as 'to_batches()', or "
        "lower 'max_bytes_in_flight' or 'batch_rows' of ReadOptions."
    )


def _asked_bytes(error: MemoryError) -> int | None:
    found = _ASKED.search(str(error))
    if found is None:
        return None
    return int(found[1]) if found[1] else int(float(found[2]) * 1024 ** _UNITS.index(found[3]))


def limit_reached(error: BaseException) -> DeltaSharingError | None:
    """Return an ``OutOfMemoryError`` or ``UsageError`` if ``error``, which may come from an import, means lack of
    memory or too many open files; otherwise ``None``."""
    if isinstance(error, MemoryError):
        return lack_of_memory(error)
    if not isinstance(error, OSError) or error.errno not in _LIMITS:
        return None
    return UsageError(
        f"No file or connection can be opened ({error.strerror}). Raise the limit of open files (ulimit -n), or read "
        "less at a time."
    )


@contextlib.contextmanager
def within_limits() -> Iterator[None]:
    """Raise the result of ``limit_reached``, if there is one, instead of an error of the block."""
    try:
        yield
    except (OSError, MemoryError) as error:
        refusal = limit_reached(error)
        if refusal is None:
            raise
    else:
        return
    raise refusal


@contextlib.contextmanager
def about_table(table: str, query_id: str | None = None) -> Iterator[None]:
    """Add ``table`` and the read's query id to errors of the block that lack them; a ``UsageError`` stays unchanged."""
    try:
        with within_limits():
            yield
    except DeltaSharingError as error:
        if not isinstance(error, UsageError):
            error.table = table if error.table is None else error.table
            error.query_id = query_id if error.query_id is None else error.query_id
        raise


@contextlib.contextmanager
def about_file(table: str | None, file_id: str | None) -> Iterator[None]:
    """Add the table and the id of its file to errors of the block that lack them."""
    try:
        with within_limits():
            yield
    except DeltaSharingError as error:
        error.table = error.table or table
        error.file_id = error.file_id or file_id
        raise


class UsageError(DeltaSharingError, ValueError):
    """An argument, option, name, filter or column cannot be used as given.

    Attributes
    ----------
    span:
        Where the mistake is in a filter's text: the position of its first character, and the position after its last
        character. ``None`` if unknown.
    """

    span: tuple[int, int] | None = None


class ProfileError(DeltaSharingError):
    """A profile cannot be found, read or used (missing field, newer version)."""


class AuthError(DeltaSharingError):
    """The server or the token endpoint refused the credentials (401) or the request (403), or the token has expired.

    Attributes
    ----------
    status:
        The HTTP status code, if there was a response.
    error_code:
        The protocol's ``errorCode``, or the ``error`` of an OAuth token endpoint, if the body has one.
    server_message:
        The server's message, up to 16,384 characters; the error's own message shows less of it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        error_code: str | None = None,
        server_message: str | None = None,
        table: str | None = None,
        version: int | None = None,
        file_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, version=version, file_id=file_id)
        self.status = status
        self.error_code = error_code
        self.server_message = server_message


class RequestError(DeltaSharingError):
    """The server responded with an error.

    Attributes
    ----------
    status:
        The HTTP status code, or the ``httpStatusErrorCode`` of an end-of-stream action.
    error_code:
        The protocol's ``errorCode`` (for example ``INVALID_PARAMETER_VALUE``), if the body has one.
    server_message:
        The server's message, up to 16,384 characters; the error's own message shows less of it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        error_code: str | None = None,
        server_message: str | None = None,
        table: str | None = None,
        version: int | None = None,
        file_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, version=version, file_id=file_id)
        self.status = status
        self.error_code = error_code
        self.server_message = server_message


class NotFoundError(RequestError):
    """The share, schema, table, version or file does not exist, or is not shared with this recipient."""

    # Whether the message already suggests the nearest existing name, or says that there is none.
    _advised = False


class TransportError(DeltaSharingError):
    """No complete response arrived (connection, timeout, truncated body) after all retries."""


class ProtocolError(DeltaSharingError):
    """The server's response violates the Delta Sharing protocol or the Delta log protocol."""


class UnsupportedFeatureError(DeltaSharingError):
    """The table needs a feature that this client does not support.

    Attributes
    ----------
    feature:
        The Delta table feature, type or protocol version, as spelled in the specification.
    """

    def __init__(
        self,
        message: str,
        *,
        feature: str | None = None,
        table: str | None = None,
        version: int | None = None,
        file_id: str | None = None,
    ) -> None:
        super().__init__(message, table=table, version=version, file_id=file_id)
        self.feature = feature


class DataError(DeltaSharingError):
    """The data is wrong: a length, a checksum or a type, or a value that does not fit the schema.

    Attributes
    ----------
    status:
        The HTTP status of the storage, if that was the problem: 404 for a missing file.
    """

    status: int | None = None


class SchemaChangeError(DataError):
    """The schema changed within the range, so that one read or stream cannot cover all of it."""


class OutOfMemoryError(DeltaSharingError, MemoryError):
    """The process may not have as much memory as the operation needs. Nothing is wrong with the data."""


class IncompleteReadWarning(UserWarning):
    """A read may have missed a part of the table; the message and the report of the read say why."""


class SkillWarning(UserWarning):
    """The files of an agent skill differ from what its server lists; the message says how."""
