"""The APIs of tables: version, metadata, query and change data feed. Requests are checked; responses are filtered,
split into pages and written as lines.

A response is planned first, while a status code can still report a refusal; its lines are created while they are sent.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Union

from delta_sharing_client.delta.actions import AddFile, Metadata, Protocol
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import DeltaSharingError

from . import hints
from .access import access_of
from .capabilities import Capabilities, FileIdHash, Format
from .catalog import TableEntry
from .config import ServerConfig
from .errors import from_table_error, invalid
from .faults import FaultSet
from .formats import check_carried, choose_format
from .parameters import ChangesRequest, Paging, QueryRequest
from .ranges import VersionRange, change_feed, changed_files
from .s3 import S3Grant, S3Tables, is_s3
from .signing import Grant, Signer
from .tables import SharedTable
from .tokens import Tokens
from .wire import Change, Quirks, Renderer, end_stream_line

PAGE_TOKEN = "pageToken"
REFRESH_TOKEN = "refreshToken"
_LINES_AT_ONCE = 1000
_CACHED_PLANS = 8

Item = Union[AddFile, Change, tuple[Union[Protocol, Metadata], int]]
"""The content of one line after the head: a live file, a changed file, or a protocol or metadata with its version."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """The properties of a request, besides its parameters, on which the response depends: its headers, and the origin
    for URLs."""

    capabilities: Capabilities
    file_id_hash: FileIdHash | None
    origin: str


@dataclasses.dataclass(frozen=True, slots=True)
class LineResponse:
    """A response: the version for its header, its format, and chunks of its lines."""

    version: int
    format: Format
    chunks: Iterator[bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """A response before it is split into pages: its format, the head of every page, and the items after it."""

    version: int
    format: Format
    head: Callable[[Renderer], bytes]
    items: Sequence[Item]
    # The last version of a range; equal to ``version`` for a snapshot.
    end: int
    # The version and its time, which every live file states in a response to time travel.
    stated: tuple[int, int | None] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    """The requested page of a plan: the requested size and the content of the page token, if any."""

    paging: Paging
    checksum: str
    page: dict[str, Any] | None
    include_refresh_token: bool = False


class TableApis:
    """Creates the responses of one server. Thread-safe."""

    def __init__(self, config: ServerConfig, signer: Signer, faults: FaultSet, s3: S3Tables) -> None:
        self._config = config
        self._signer = signer
        self._faults = faults
        self._tokens = Tokens()
        self._s3 = s3
        self._tables: dict[str, SharedTable] = {}
        self._lock = threading.Lock()
        self._plans: OrderedDict[tuple[object, ...], _Plan] = OrderedDict()

    def table(self, entry: TableEntry) -> SharedTable:
        """Return the table of a catalog entry."""
        with self._lock:
            known = self._tables.get(entry.id)
            if known is None or known.entry != entry:
                known = self._tables[entry.id] = SharedTable(entry)
        return known

    def version(self, entry: TableEntry, starting_ms: int | None) -> int:
        """Return the latest version, or the first one at or after ``starting_ms``."""
        table = self.table(entry)
        return table.latest_version() if starting_ms is None else table.version_from(starting_ms)

    def metadata(
        self, entry: TableEntry, caller: Caller, version: int | None, timestamp_ms: int | None
    ) -> LineResponse:
        """Return the protocol and metadata of the latest or the requested version."""
        table = self.table(entry)
        travels = version is not None or timestamp_ms is not None
        snapshot = table.snapshot(table.travel(version, timestamp_ms) if travels else table.latest_version())
        states = [(snapshot.protocol, snapshot.metadata)]
        chosen = choose_format(caller.capabilities, states, entry.full_name, self._faults)
        renderer = self._renderer(entry, chosen, caller)
        lines = _snapshot_head(table, snapshot, stated=travels)(renderer)
        if caller.capabilities.end_stream_action and not self._faults.take("drop-end-stream"):
            lines += end_stream_line()
        return LineResponse(snapshot.version, chosen, iter([lines]))

    def query(
        self, entry: TableEntry, caller: Caller, request: QueryRequest, pinned: int | None = None
    ) -> LineResponse:
        """Return the files of a snapshot, or the changed files of a range of versions for a streaming client.

        ``pinned`` is the version of an asynchronous query without time travel.
        """
        checksum = f"query {request.checksum()} {self._caller_checksum(caller)}"
        page = self._read_page(entry, request.paging, checksum)
        page_end: int | None = page["end"] if page else None
        if request.starting_version is not None:
            plan = self._plan(
                (entry.id, checksum, page_end),
                request.paging,
                lambda: self._range_plan(entry, caller, request, page_end),
            )
        else:
            version = self._snapshot_version(entry, request, page["version"] if page else pinned)
            plan = self._plan(
                (entry.id, checksum, version),
                request.paging,
                lambda: self._snapshot_plan(entry, caller, request, version),
            )
        cut = _Cut(request.paging, checksum, page, request.include_refresh_token)
        return self._response(entry, caller, plan, cut)

    def changes(self, entry: TableEntry, caller: Caller, request: ChangesRequest) -> LineResponse:
        """Return the files of the change data feed."""
        checksum = f"changes {request.checksum()} {self._caller_checksum(caller)}"
        page = self._read_page(entry, request.paging, checksum)
        page_end: int | None = page["end"] if page else None

        def make() -> _Plan:
            feed = change_feed(self.table(entry), request, page_end)
            chosen = choose_format(caller.capabilities, feed.states, entry.full_name, self._faults)
            return self._feed_plan(entry, feed, chosen, request.include_historical_protocol)

        plan = self._plan((entry.id, checksum, page_end), request.paging, make)
        return self._response(entry, caller, plan, _Cut(request.paging, checksum, page))

    # --- plans ---

    def _plan(self, key: tuple[object, ...], paging: Paging, make: Callable[[], _Plan]) -> _Plan:
        """Return the plan for ``key``, which is kept while its pages are read."""
        if not paging.asked:
            return make()
        with self._lock:
            plan = self._plans.get(key) if paging.token else None
        if plan is None:
            plan = make()
            with self._lock:
                self._plans[key] = plan
                while len(self._plans) > _CACHED_PLANS:
                    self._plans.popitem(last=False)
        return plan

    def _snapshot_version(self, entry: TableEntry, request: QueryRequest, pinned: int | None) -> int:
        table = self.table(entry)
        if pinned is not None:
            return pinned
        if request.refresh_token is not None:
            content = self._tokens.read(REFRESH_TOKEN, request.refresh_token)
            _check_table(entry, content, REFRESH_TOKEN)
            return int(content["version"])
        if request.version is not None or request.timestamp_ms is not None:
            return table.travel(request.version, request.timestamp_ms)
        return table.latest_version()

    def _snapshot_plan(self, entry: TableEntry, caller: Caller, request: QueryRequest, version: int) -> _Plan:
        table = self.table(entry)
        snapshot = table.snapshot(version)
        states = [(snapshot.protocol, snapshot.metadata)]
        chosen = choose_format(caller.capabilities, states, entry.full_name, self._faults)
        files = snapshot.files
        check_carried(chosen, (add.deletion_vector for add in files), entry.full_name)
        if not self._faults.take("ignore-hints"):
            files = hints.select(
                files,
                snapshot,
                request,
                sql=self._config.sql_hints,
                json_=self._config.json_hints,
                with_stats=self._config.json_hints_v2,
            )
        travels = request.version is not None or request.timestamp_ms is not None
        stated = (version, snapshot.timestamp_ms) if travels else None
        return _Plan(version, chosen, _snapshot_head(table, snapshot, stated=travels), files, version, stated)

    def _range_plan(self, entry: TableEntry, caller: Caller, request: QueryRequest, end: int | None) -> _Plan:
        assert request.starting_version is not None
        feed = changed_files(
            self.table(entry), request.starting_version, request.ending_version if end is None else end
        )
        chosen = choose_format(caller.capabilities, feed.states, entry.full_name, self._faults)
        return self._feed_plan(entry, feed, chosen, request.include_historical_protocol)

    def _feed_plan(self, entry: TableEntry, feed: VersionRange, chosen: Format, with_protocols: bool) -> _Plan:
        changes = (item.action for item in feed.items if isinstance(item, Change))
        check_carried(chosen, (getattr(action, "deletion_vector", None) for action in changes), entry.full_name)
        protocol, metadata, version = feed.protocol, feed.metadata, feed.metadata_version
        with_protocols = with_protocols and chosen is Format.DELTA
        items = [item for item in feed.items if with_protocols or not _is_protocol(item)]

        def head(renderer: Renderer) -> bytes:
            stated = feed.start if with_protocols else None
            return renderer.protocol(protocol, stated) + renderer.metadata(metadata, version=version)

        return _Plan(feed.start, chosen, head, items, feed.end)

    # --- pages ---

    def _read_page(self, entry: TableEntry, paging: Paging, checksum: str) -> dict[str, Any] | None:
        if paging.token is None:
            return None
        content = self._tokens.read(PAGE_TOKEN, paging.token)
        _check_table(entry, content, PAGE_TOKEN)
        if content["checksum"] != checksum:
            raise invalid(
                "Query parameter mismatch detected for the next page query. The query parameters cannot change when "
                "querying the next page of results."
            )
        return content

    def _response(self, entry: TableEntry, caller: Caller, plan: _Plan, cut: _Cut) -> LineResponse:
        paging = cut.paging
        start = cut.page["offset"] if cut.page else 0
        limit = None if not paging.asked else min(paging.max_files or self._config.page_size_limit,
                                                  self._config.page_size_limit)  # fmt: skip
        forced = self._faults.take("page-size")
        if forced is not None:
            limit = max(1, int(forced.value))
        stop = _page_end(plan.items, start, limit)
        repeated, endless = self._faults.take("repeat-page-token"), self._faults.take("endless-pages")
        token = None
        if stop < len(plan.items) or repeated or endless:
            content = {
                "table": entry.id,
                "version": plan.version,
                "end": plan.end,
                "offset": start if repeated or endless else stop,
                "checksum": cut.checksum,
            }
            same = paging.token if repeated and paging.token else None
            token = same or self._tokens.make(PAGE_TOKEN, content, self._config.page_token_ttl)
        renderer = self._renderer(entry, plan.format, caller)
        refresh = None
        if cut.include_refresh_token:
            content = {"table": entry.id, "version": plan.version}
            refresh = self._tokens.make(REFRESH_TOKEN, content, self._config.refresh_token_ttl)
        asked = caller.capabilities.end_stream_action or cut.include_refresh_token or paging.asked
        with_end = asked or token is not None
        has_files = any(not isinstance(item, tuple) for item in plan.items[start:stop])
        end = end_stream_line(
            refresh_token=refresh,
            next_page_token=token,
            min_url_expiration=renderer.expires_ms if has_files else None,
        )
        if not with_end or self._faults.take("drop-end-stream"):
            end = b""
        chunks = self._chunks(plan, plan.items[start:stop] if start or stop < len(plan.items) else plan.items,
                              renderer, end, with_end)  # fmt: skip
        return LineResponse(plan.version, plan.format, chunks)

    def _chunks(
        self, plan: _Plan, items: Sequence[Item], renderer: Renderer, end: bytes, with_end: bool
    ) -> Iterator[bytes]:
        yield plan.head(renderer)
        failure = self._faults.take("error-in-stream")
        if failure is not None:
            items = items[: int(failure.value)]
        try:
            for start in range(0, len(items), _LINES_AT_ONCE):
                yield _render(renderer, items[start : start + _LINES_AT_ONCE], plan.stated)
        except DeltaSharingError as error:
            if not with_end:
                raise
            refusal = from_table_error(error)
            yield end_stream_line(error=(refusal.status, refusal.message))
            return
        if failure is not None:
            yield end_stream_line(error=(500, "the stream was ended by the fault error-in-stream"))
            return
        if self._faults.take("extra-metadata"):
            yield plan.head(renderer).split(b"\n")[1] + b"\n"
        yield end

    def _renderer(self, entry: TableEntry, chosen: Format, caller: Caller) -> Renderer:
        take = self._faults.take
        offset = take("wrong-size")
        quirks = Quirks(
            no_expiration=take("no-expiration") is not None,
            no_stats=take("missing-stats") is not None,
            size_offset=int(offset.value) if offset else 0,
            empty_nulls=take("empty-partition-nulls") is not None,
            odd_names=take("u2028-names") is not None,
        )
        id_hash = caller.file_id_hash or FileIdHash(chosen.value)
        expired = take("expire-urls-now") is not None
        if entry.storage is not None and is_s3(entry.storage):
            grant: Grant | S3Grant = self._s3.grant(entry, self._config.url_ttl)
        else:
            grant = self._signer.grant(caller.origin, entry.id, expired=expired)
        return Renderer(entry.location, chosen, id_hash, grant, quirks, access_of(entry))

    def _caller_checksum(self, caller: Caller) -> str:
        formats = ",".join(sorted(item.value for item in caller.capabilities.formats))
        return f"{formats} {caller.file_id_hash.value if caller.file_id_hash else ''}"


def _snapshot_head(table: SharedTable, snapshot: Snapshot, *, stated: bool) -> Callable[[Renderer], bytes]:
    size, files = table.size(snapshot), len(snapshot.files)
    version = snapshot.version if stated else None

    def head(renderer: Renderer) -> bytes:
        protocol = renderer.protocol(snapshot.protocol)
        return protocol + renderer.metadata(snapshot.metadata, version=version, size=size, files=files)

    return head


def _render(renderer: Renderer, items: Sequence[Item], stated: tuple[int, int | None] | None) -> bytes:
    if items and isinstance(items[0], AddFile):
        # A snapshot has only live files.
        version, timestamp_ms = stated or (None, None)
        return renderer.adds(items, version, timestamp_ms)  # type: ignore[arg-type]
    lines = []
    for item in items:
        if isinstance(item, Change):
            lines.append(renderer.change(item))
        elif isinstance(item, tuple):
            action, version = item
            protocol = isinstance(action, Protocol)
            lines.append(
                renderer.protocol(action, version) if protocol else renderer.metadata(action, version=version)  # type: ignore[arg-type]
            )
    return b"".join(lines)


def _page_end(items: Sequence[Item], start: int, limit: int | None) -> int:
    """Return the end of the page that starts at ``start`` and has ``limit`` files; other lines do not count."""
    if limit is None:
        return len(items)
    if start < len(items) and isinstance(items[start], AddFile):
        return min(len(items), start + limit)
    files = 0
    for index in range(start, len(items)):
        if not isinstance(items[index], tuple):
            if files == limit:
                return index
            files += 1
    return len(items)


def _is_protocol(item: Item) -> bool:
    return isinstance(item, tuple) and isinstance(item[0], Protocol)


def _check_table(entry: TableEntry, content: dict[str, Any], kind: str) -> None:
    if content["table"] != entry.id:
        raise invalid(f"The table specified in the {kind} does not match the table being queried.")
