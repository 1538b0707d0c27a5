"""Follows a table without Spark: its snapshot, then its changes, in steps, from a cursor."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import threading
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pyarrow as pa

from delta_sharing_client import durable
from delta_sharing_client.delta.actions import Metadata, SharedFile
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.errors import DataError, DeltaSharingError, SchemaChangeError, UsageError
from delta_sharing_client.file_lock import FileLock
from delta_sharing_client.follow.follow_request import FollowRequest, Words
from delta_sharing_client.follow.follower import Follower, with_way_out
from delta_sharing_client.follow.offsets import BEGINNING, AnyOffset, Beginning, Offset, parse_offset
from delta_sharing_client.follow.versions import FollowedTable, VersionWindow
from delta_sharing_client.local_paths import expanded
from delta_sharing_client.options import AccessMode, ReadOptions
from delta_sharing_client.plan.read_columns import check_nothing_left_out
from delta_sharing_client.plan.read_request import ChangesRequest, as_of_now
from delta_sharing_client.plan.tasks import ScanPlan
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.run.consumer import Consumer
from delta_sharing_client.scans import ReadOutputs

if TYPE_CHECKING:
    import pyspark.sql

AVAILABLE_NOW = "available-now"


@dataclasses.dataclass(frozen=True)
class _Taken:
    """One step and its files."""

    steps: _Steps
    state: State
    window: VersionWindow
    files: Sequence[SharedFile]
    metadata: Metadata
    is_repeat: bool


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class FollowedChanges(ReadOutputs):
    """The changes of a table in some versions, from ``SharedTable.follow``, with the outputs of a read.

    Rows have the table's columns, then ``_change_type``, ``_commit_version`` and ``_commit_timestamp``. Rows of the
    snapshot are inserts of its version; their ``_commit_timestamp`` is in 1970 if the server does not send it.
    """

    request: ChangesRequest
    _taken: _Taken = dataclasses.field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """An id that is unique among the changes of all cursors; repeated changes have the same id."""
        return f"{self._taken.state.id}-{self.number}"

    @property
    def number(self) -> int:
        """The number of steps of the cursor before this one."""
        return self._taken.state.number

    @property
    def start_version(self) -> int:
        """The first version of these changes; for a snapshot, its version."""
        return self.request.starting_version or 0

    @property
    def end_version(self) -> int:
        """The last version of these changes; for a snapshot, its version."""
        return self.request.ending_version or 0

    @property
    def is_snapshot(self) -> bool:
        """Whether these are rows of the initial snapshot."""
        return self._taken.window.is_snapshot

    @property
    def is_repeat(self) -> bool:
        """Whether these were returned before and not committed."""
        return self._taken.is_repeat

    @property
    def completes_version(self) -> bool:
        """Whether these complete ``end_version``; false before the last step of a snapshot."""
        return self._taken.state.begun is not None and not self._taken.state.begun.in_snapshot

    def commit(self) -> None:
        """Save in the cursor that these changes are stored, so they are not returned again. A second call does nothing.

        Raises
        ------
        UsageError
            Another program moved the cursor, or it cannot be written.
        """
        self._taken.steps.commit(self._taken.state)

    def plan(self, options: ReadOptions | None = None) -> ScanPlan:
        taken = self._taken
        return taken.steps.plan(taken, as_of_now(self.request), options or self.options)

    def _stream(self, options: ReadOptions | None = None) -> ScanPlan:
        return self.plan(options)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows. Errors as ``plan``."""
        return self.plan().output_schema

    def to_spark(self, spark: pyspark.sql.SparkSession | None = None) -> NoReturn:
        """Not supported, because Spark follows a table with its own checkpoint.

        Raises
        ------
        UsageError
            Always; it names what to use.
        """
        raise UsageError(
            "Spark cannot read the changes of a cursor, because it follows a table with its own checkpoint. Use "
            "'spark.readStream' with the format 'deltaSharing' and the option 'readChangeFeed'."
        )


class Follow:
    """The steps of ``SharedTable.follow``, for ``for`` and ``async for``.

    A loop continues at the cursor, which only one loop can use at a time. It raises ``UsageError`` for a cursor that is
    broken, in use, or belongs to a different table; ``SchemaChangeError`` for a change of the schema other than added
    columns and widened types; ``UnsupportedFeatureError`` for columns that cannot be read, unless other columns were
    selected; ``DataError`` for versions that the provider has removed; and the errors of the server and the network.

    Examples
    --------
    >>> from delta_sharing_client import SharingClient
    >>> table = SharingClient("demo.share").table("demo.shop.orders")
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> cursor = pathlib.Path(folder.name) / "orders.cursor"
    >>> for changes in table.follow(cursor, trigger="available-now", starting_version=3):
    ...     print(changes.start_version, changes.end_version, changes.to_arrow().num_rows)
    ...     changes.commit()
    3 6 819
    """

    def __init__(
        self, rest: RestClient, request: FollowRequest, options: ReadOptions, cursor: Path, available_now: bool
    ) -> None:
        self._rest = rest
        self._request = request
        self._options = options
        self._path = cursor
        self._available_now = available_now

    def __repr__(self) -> str:
        return f"Follow({self._request.table}, cursor='{self._path}')"

    def __iter__(self) -> FollowLoop:
        return FollowLoop(self._steps())

    def __aiter__(self) -> AsyncFollowLoop:
        return AsyncFollowLoop(self._steps())

    def _steps(self) -> _Steps:
        cursor = CursorFile(self._path, self._request.table, self._rest.profile.endpoint)
        request = dataclasses.replace(self._request, words=cursor.words)
        return _Steps(self._rest, request, self._options, cursor, self._available_now)


class _Loop:
    """One loop over the steps of ``Follow``, for one thread or coroutine at a time. It unlocks the cursor at its end:
    when there are no more steps, at an error, when it is closed, from any thread, and when it is dropped."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self._consumer = Consumer("The loop over the changes", steps.table)
        self._is_begun = self._has_ended = False

    def _end(self) -> None:
        self._consumer.close()
        self._steps.close()

    def __del__(self) -> None:
        self._end()


class FollowLoop(_Loop, Iterator[FollowedChanges]):
    """The iterator of ``for changes in table.follow(...)``; ``close`` ends the loop."""

    def __next__(self) -> FollowedChanges:
        if self._has_ended:
            raise StopIteration
        steps, consumer = self._steps, self._consumer
        with consumer.turn():
            try:
                if not self._is_begun:
                    consumer.call(steps.begin)
                    self._is_begun = True
                while (changes := consumer.call(steps.next)) is None:
                    if steps.is_over:
                        self._has_ended = True
                        raise StopIteration
                    consumer.pause(steps.wait)
                return changes
            except BaseException:
                self._end()
                raise

    def close(self) -> None:
        """End the loop, from any thread; a thread that waits for changes, and any later call, gets a ``UsageError``."""
        self._end()


class AsyncFollowLoop(_Loop, AsyncIterator[FollowedChanges]):
    """The iterator of ``async for changes in table.follow(...)``; ``aclose`` ends the loop."""

    async def __anext__(self) -> FollowedChanges:
        if self._has_ended:
            raise StopAsyncIteration
        steps, consumer = self._steps, self._consumer
        with consumer.turn():
            try:
                if not self._is_begun:
                    await consumer.call_async(steps.begin)
                    self._is_begun = True
                while (changes := await consumer.call_async(steps.next)) is None:
                    if steps.is_over:
                        self._has_ended = True
                        raise StopAsyncIteration
                    await consumer.pause_async(steps.wait)
                return changes
            except BaseException:
                self._end()
                raise

    async def aclose(self) -> None:
        """End the loop; a task that waits for changes, and any later call, gets a ``UsageError``."""
        self._end()


def follow(
    rest: RestClient, request: FollowRequest, options: ReadOptions, cursor: str | os.PathLike[str], trigger: str | None
) -> Follow:
    """See ``SharedTable.follow``."""
    if trigger not in (None, AVAILABLE_NOW):
        raise UsageError(f"'trigger' must be '{AVAILABLE_NOW}', or left out to wait forever; found {trigger!r}.")
    first = request.starting_version
    if first not in (None, "latest") and (not isinstance(first, int) or isinstance(first, bool) or first < 0):
        raise UsageError(f"'starting_version' must be an integer of 0 or more, or 'latest'; found {first!r}.")
    if first is not None and request.starting_timestamp is not None:
        raise UsageError("Give either 'starting_version' or 'starting_timestamp', not both.")
    for name, value, least in (
        ("every", request.version_interval, 1),
        ("max_outage", request.max_outage, 0),
        ("max_files", request.max_files, 1),
        ("max_bytes", request.max_bytes, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
            raise UsageError(f"'{name}' must be a number of {least} or more, found {value!r}.")
    if options.access_mode is AccessMode.DIR:
        raise UsageError(
            "A table can only be followed by URL, but 'access_mode' is 'dir'. Leave that out, or read the table's "
            "changes with changes()."
        )
    # Resolved, so that all names of one file use the same lock.
    return Follow(rest, request, options, Path(os.path.realpath(expanded(cursor))), trigger == AVAILABLE_NOW)


@dataclasses.dataclass(eq=False, repr=False)
class _Steps:
    """One loop over a table: its cursor file and the next step."""

    _rest: RestClient
    _request: FollowRequest
    _options: ReadOptions
    _cursor: CursorFile
    # Whether to end when there is nothing new.
    is_over: bool
    state: State = dataclasses.field(init=False)
    _held: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack)
    # One thread may close a loop while another one waits for its next step.
    _mutex: threading.RLock = dataclasses.field(default_factory=threading.RLock)
    _is_closed: bool = False
    _repeats: bool = False

    @property
    def table(self) -> str:
        """The name of the table."""
        return str(self._request.table)

    def begin(self) -> None:
        """Lock the cursor and request the metadata."""
        with self._mutex:
            if not self._is_closed:
                self._held.enter_context(self._cursor.held())
        self.state = self._cursor.read()
        self._repeats = self.state.begun is not None
        request, options = self._request, self._options
        # The first request does not wait for an outage to end: a wrong address is more likely the reason.
        with self._rest.about(request.table):
            self._head = self._describe(FollowedTable(self._rest, request, options, options))
        with self._telling():
            self._table = FollowedTable(self._rest, request, request.waiting(options), request.polling(options))
            self._follower = Follower(self._table, self._head)
            if self.is_over:
                self._follower.clock.freeze()

    def close(self) -> None:
        """Unlock the cursor."""
        with self._mutex:
            self._is_closed = True
            self._held.close()

    @property
    def wait(self) -> float:
        """Seconds until the next request."""
        return self._follower.clock.seconds_left

    def next(self) -> FollowedChanges | None:
        """Return the next step, ``None`` if there is nothing new."""
        with self._telling():
            if self.state.begun is not None and not self._repeats:
                raise UsageError(
                    f"The changes of step {self.state.number} were not committed. Once they are stored, call their "
                    "method commit() before taking the next ones."
                )
            if self.state.begun is None and not self._begin_step():
                return None
            is_repeat, self._repeats = self._repeats, False
            return self._handed_out(is_repeat)

    def commit(self, state: State) -> None:
        """Record in the cursor that the step of ``state`` is stored."""
        with self._mutex:
            if not self._is_closed:
                self._commit(state)
                return
        # The loop has ended before its last step was stored.
        with self._cursor.held():
            self.state = self._cursor.read()
            self._commit(state)

    def plan(self, taken: _Taken, request: ChangesRequest, options: ReadOptions) -> ScanPlan:
        """Return the plan for reading a step's files as ``request`` asks."""
        with self._rest.about(self._request.table):
            waiting = self._request.waiting(options)
            plan = self._table.plan_window(taken.window, taken.files, taken.metadata, request, waiting)
        advise = functools.partial(with_way_out, words=self._cursor.words)
        return dataclasses.replace(plan, context=dataclasses.replace(plan.context, advise=advise))

    # === Steps ===

    def _describe(self, table: FollowedTable) -> TableHead:
        head, read = table.describe(), self._request.read
        schema = parse_schema(head.metadata.schema_string)
        if read.columns is None:
            # The copy is permanent, so a column left out now would be missing forever.
            check_nothing_left_out(schema, f"A copy of '{self._request.table}'")
        # Wrong names are reported before a step starts.
        ChangesRequest(starting_version=0, columns=read.columns, filter=read.filter).bound(schema)
        return head

    def _begin_step(self) -> bool:
        """Save the end of the next step; return whether there is one."""
        start = self.state.committed
        try:
            end = self._follower.next_offset(start, self._follower.budget())
        except SchemaChangeError:
            # Added columns do not stop the loop; the next steps include them.
            self._head = self._describe(self._table)
            self._follower = Follower(self._table, self._head, self._follower.clock)
            end = self._follower.next_offset(start, self._follower.budget())
        if end == start or isinstance(end, Beginning):
            return False
        files = sum(len(selected.files) for selected in self._follower.selected(start, end))
        # An empty table has a snapshot too.
        is_step = files > 0 or (isinstance(start, Beginning) and end.from_snapshot)
        if is_step:
            self._save(dataclasses.replace(self.state, begun=end, files=files))
        else:
            self._save(dataclasses.replace(self.state, committed=end))
        return is_step

    def _handed_out(self, is_repeat: bool) -> FollowedChanges:
        """Return the step that the cursor records as started."""
        start, end, state = self.state.committed, self.state.begun, self.state
        assert end is not None
        if isinstance(start, Offset):
            self._follower.check(start)
        all_selected = self._follower.selected(start, end)
        window = all_selected[-1].window
        files = [file for selected in all_selected for file in selected.files]
        if len(files) != state.files:
            raise DataError(
                f"The changes up to version {end.version - 1} had {state.files} files when they were returned first, "
                f"but have {len(files)} now: the provider has removed some. To go on without them, "
                f"{self._cursor.words.anew}.",
                table=self._table.name,
            )
        first = start.version if isinstance(start, Offset) else end.first_version
        if window.is_snapshot:
            first = last = window.first
        else:
            last = end.version - 1
        read = self._request.read
        return FollowedChanges(
            rest=self._rest,
            table=self._request.table,
            options=self._options,
            request=ChangesRequest(
                starting_version=first,
                ending_version=last,
                columns=read.columns,
                filter=read.filter,
                response_format=read.response_format,
            ),
            _taken=_Taken(self, state, window, tuple(files), self._head.metadata, is_repeat),
        )

    def _commit(self, state: State) -> None:
        if self.state.id == state.id and self.state.number > state.number:
            return
        if self.state != state:
            raise UsageError(
                f"The {self._cursor.words.place} was advanced by another program after these changes were returned: "
                "they are not committed here, and come again unless that program has committed them."
            )
        self._cursor.write(State(state.id, state.number + 1, state.begun or state.committed, None))
        self.state = self._cursor.read()

    def _save(self, state: State) -> None:
        with self._mutex:
            if self._is_closed:
                raise UsageError("The loop over the changes ended while it waited for more.")
            self._cursor.write(state)
            self.state = state

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Add advice to errors that end the loop."""
        try:
            with self._rest.about(self._request.table):
                yield
        except DeltaSharingError as error:
            raise with_way_out(error, self._cursor.words) from None


# === The cursor file ===


_FORM = 1


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """The content of a cursor: ``number`` steps are committed, up to ``committed``; the next one ends at ``begun``.

    ``begun`` is ``None`` until the next step is returned, which has ``files`` files. ``id`` identifies the cursor.
    """

    id: str
    number: int
    committed: AnyOffset
    begun: Offset | None
    files: int = 0


class CursorFile:
    """The cursor of a reader, in the file ``path``, for ``table`` on the server at ``endpoint``. It survives crashes.

    The end of a step is saved before its rows are returned, and the step is saved as committed after they are stored. A
    reader that crashes in between gets the same step again, even if the table has changed::

        {"cursor": 1, "endpoint": "https://...", "table": "share.schema.table", "id": "5f3a...",
         "number": 4, "committed": {offset}, "begun": {offset} or null, "files": 2}
    """

    def __init__(self, path: Path, table: AssetName, endpoint: str) -> None:
        self.path = path
        self.words = Words(
            place=f"cursor '{path}'",
            anew=f"delete '{path}' or choose another cursor, and follow the table again",
            again="follow the table again",
            batch="step",
            starting_version="'starting_version'",
            max_outage="With 'max_outage', in seconds, the loop waits for the server during longer outages.",
        )
        self._table = str(table)
        self._endpoint = endpoint

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the cursor for this process. Raises ``UsageError`` if another program uses it, or its file cannot be
        written."""
        taken = (
            f"The cursor '{self.path}' is in use: another program follows the table with it. End that one, or choose "
            "another cursor."
        )
        with contextlib.ExitStack() as stack:
            with self._writing():
                stack.enter_context(FileLock(self._beside("lock"), taken))
            yield

    def read(self) -> State:
        """Return the state of the cursor, or a new one if there is no file.

        Raises ``UsageError`` if the file is not a cursor, or belongs to a different table or server.
        """
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return State(uuid.uuid4().hex, 0, BEGINNING, None)
        except OSError as error:
            raise UsageError(f"Cannot read the cursor '{self.path}': {error.strerror}. Choose another one.") from None
        fields = self._parsed(text)
        theirs, ours = (str(fields.get("endpoint")), str(fields.get("table"))), (self._endpoint, self._table)
        if theirs[0].rstrip("/") != ours[0].rstrip("/") or theirs[1].lower() != ours[1].lower():
            raise UsageError(
                f"The cursor '{self.path}' belongs to the table '{theirs[1]}' of '{theirs[0]}', not to '{ours[1]}' of "
                f"'{ours[0]}'. Choose another cursor."
            )
        begun = None if fields["begun"] is None else parse_offset(fields["begun"], self.words)
        if isinstance(begun, Beginning):
            raise self._broken("its field 'begun' is not the end of a step")
        return State(
            fields["id"], fields["number"], parse_offset(fields["committed"], self.words), begun, fields["files"]
        )

    def write(self, state: State) -> None:
        """Replace the file atomically and durably. The caller must hold the cursor.

        Raises ``UsageError`` if the file cannot be written; the old one remains.
        """
        at = {"cursor": _FORM, "endpoint": self._endpoint, "table": self._table}
        with self._writing():
            temporary = self._beside("part")
            temporary.write_text(json.dumps({**at, **msgspec.to_builtins(state)}, indent=1), encoding="utf-8")
            durable.replace(temporary, self.path)

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except ValueError:
            raise self._broken("it is empty" if not text.strip() else "it is not JSON") from None
        if not isinstance(value, dict) or "cursor" not in value:
            raise self._broken("it has no field 'cursor'")
        if value["cursor"] != _FORM:
            raise self._broken(f"its field 'cursor' is {value['cursor']!r}, not {_FORM}: upgrade this package")
        kinds = (("id", str), ("number", int), ("files", int), ("committed", dict), ("begun", (dict, type(None))))
        for name, kind in kinds:
            if not isinstance(value.get(name), kind) or (name == "begun" and name not in value):
                raise self._broken(f"its field '{name}' is missing or has the wrong type")
        return value

    def _broken(self, reason: str) -> DeltaSharingError:
        return UsageError(
            f"The file '{self.path}' is not a cursor of this package: {reason}. If it was one, {self.words.anew}; the "
            "table is then read from its snapshot, or from 'starting_version'."
        )

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{ending}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"Cannot write the cursor '{self.path}': {error.strerror}. Make room or give permission, or choose "
                "another place."
            ) from None
