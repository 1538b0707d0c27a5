"""The interface of a shared table, for all formats and all ways to its files."""

from __future__ import annotations

import abc
import dataclasses
import enum
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from delta_sharing_client.delta.actions import CommitInfo, SharedFile, TableAction
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.options import ReadOptions, ResponseFormat
from delta_sharing_client.plan.changes import FeedPart
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, TableState, is_reference
from delta_sharing_client.plan.tasks import SkippedFiles
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.rest import RestClient


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HeadRequest:
    """Which description of a table: at a version or a time (ISO 8601), by default of the latest version.

    ``operation`` is what the description is for. With ``as_queries``, a server describes the table in the response
    format that a query would have (``query.table_metadata``). ``row_lineage`` says that its columns will be read.
    """

    version: int | str | None = None
    timestamp: str | None = None
    operation: Operation = Operation.SNAPSHOT
    response_format: ResponseFormat = ResponseFormat.AUTO
    as_queries: bool = False
    row_lineage: bool = False

    @property
    def is_of_reference(self) -> bool:
        """Whether it asks for a branch or tag, which only an Iceberg table has."""
        return is_reference(self.version)


class Purpose(enum.Enum):
    """Why files are listed: to read them while others are listed, to plan with all of them, or to copy all of them."""

    READ = enum.auto()
    PLAN = enum.auto()
    COPY = enum.auto()


def _nothing() -> None:
    pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Listing:
    """``access`` says how the bytes of the files are read, and why. ``release`` frees the resources of the listing."""

    state: TableState
    access: str = "by URL"
    release: Callable[[], None] = _nothing

    def close(self) -> None:
        """Cancel the rest of the listing, on the thread that takes from it."""
        self.release()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files(_Listing):
    """The files of one state of a table, as they are listed: iterate over ``blocks`` to the end, or ``close``.

    Attributes
    ----------
    state:
        The table at the version that is listed, and the place of the files' bytes.
    blocks:
        The live files in blocks as they arrive, each logical file once. The iterator raises the errors of the listing.
    table_files:
        The number of files of the table, if it is stated.
    notes:
        Sentences about files that may be missing; more may be added while files are listed.
    skipped:
        Returns the files that the listing has left out so far.
    break_off:
        Makes ``blocks`` raise instead of waiting for more; callable from any thread.
    """

    blocks: Generator[Sequence[SharedFile], None, object]
    table_files: int | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    skipped: Callable[[], SkippedFiles] = SkippedFiles
    break_off: Callable[[], None] = _nothing

    def close(self) -> None:
        self.blocks.close()
        self.release()


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeedWindows:
    """A long change feed in parts, oldest first, each complete. ``state`` is the table at its end."""

    state: TableState
    parts: Generator[FeedPart, None, None]
    break_off: Callable[[], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feed(_Listing):
    """The changes of a range of versions: iterate over ``actions`` or over the ``windows``, if there are any, and
    ``close``. ``state`` is the table at the start of the range. The changes of a view have no versions."""

    actions: Iterable[TableAction]
    windows: FeedWindows | None = None
    is_view: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """Versions of a table as a follower reads them: iterate over ``blocks`` to the end, or ``close``.

    Attributes
    ----------
    head:
        The table at the first version.
    blocks:
        The actions of the versions as they arrive, or each live file of a snapshot once.
    state_with:
        Returns the table at ``head``, with the place of the files for a read with these options.
    """

    head: TableHead
    blocks: Generator[Sequence[TableAction], None, object]
    close: Callable[[], None]
    state_with: Callable[[ReadOptions], TableState]


class Commit(NamedTuple):
    """A version in a table's history. ``info`` has what is known about the commit; ``has_feed`` says that the change
    data feed has its rows."""

    version: int
    timestamp_ms: int
    info: CommitInfo
    has_feed: bool


class TableSource(abc.ABC):
    """A shared table, for one read, by one way. It is created without a request, and its requests have the deadline and
    the query id of ``rest``.

    Every method raises the errors of the server, the storage and the network, and ``UnsupportedFeatureError`` for what
    the table does not have.
    """

    def __init__(self, rest: RestClient, name: AssetName, options: ReadOptions) -> None:
        self.rest, self.name, self.options = rest, name, options

    def about(self) -> AbstractContextManager[None]:
        """Add the table, and the nearest existing name if there is no such table, to errors in the ``with`` block."""
        return self.rest.about(self.name)

    @abc.abstractmethod
    def head(self, request: HeadRequest) -> TableHead:
        """Return protocol, metadata and version, without listing a file."""

    @abc.abstractmethod
    def version(self, since: str | None = None, *, operation: Operation = Operation.SNAPSHOT) -> int:
        """Return the latest version, or the first one at or after ``since`` (ISO 8601)."""

    @abc.abstractmethod
    def state(self, request: ScanRequest) -> TableState:
        """Return the table as ``files`` would describe it, without listing more than its first files. Raises the errors
        of ``files``."""

    @abc.abstractmethod
    def files(self, request: ScanRequest, purpose: Purpose) -> Files:
        """List the files of a snapshot that may have rows of ``request``; returns once the listing has begun.

        The filter only skips files here: the plan, and reading the rows, apply it. Raises ``UsageError`` if there is no
        such snapshot, or the filter does not fit its schema.
        """

    @abc.abstractmethod
    def changes(self, request: ChangesRequest, purpose: Purpose) -> Feed:
        """List the change data feed; in windows only for ``Purpose.READ``."""

    @abc.abstractmethod
    def window(self, first: int, last: int | None, *, feed: bool, response_format: ResponseFormat) -> Window:
        """Return the actions of the versions ``first`` to ``last``, for cursors and streams: those of the change data
        feed, or the added and removed files. Without ``last``, return the files of the snapshot at ``first``."""

    @abc.abstractmethod
    def commits(self, first: int, last: int | None) -> Sequence[Commit] | None:
        """Return the commits of the versions ``first`` to ``last`` (``None``: the latest) that are known without
        reading rows; ``None`` if only the change data feed knows them."""
