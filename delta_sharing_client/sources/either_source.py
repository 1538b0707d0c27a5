"""A table that can be read in one of two ways: the request, or the refusal of the first, shows which one works."""

from __future__ import annotations

import abc
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from delta_sharing_client.delta.features import Operation
from delta_sharing_client.errors import (
    AuthError,
    DeltaSharingError,
    NotFoundError,
    RequestError,
    UnsupportedFeatureError,
    UsageError,
    add_advice,
)
from delta_sharing_client.http.retry import NOT_IMPLEMENTED, RETRIED_STATUSES
from delta_sharing_client.lazy import lazy
from delta_sharing_client.options import AccessMode, ResponseFormat
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, TableState
from delta_sharing_client.protocol.line_order import TableHead, unreadable
from delta_sharing_client.sources.contents import ICEBERG, known_formats, stated_formats
from delta_sharing_client.sources.server_source import is_latest
from delta_sharing_client.sources.table_source import Commit, Feed, Files, HeadRequest, Purpose, TableSource, Window

if TYPE_CHECKING:
    from delta_sharing_client.sources.iceberg_source import IcebergSource

_log = logging.getLogger(__name__)

T = TypeVar("T")

_NOT_FOUND = 404


class EitherSource(TableSource):
    """Asks one of two sources, or one after the other."""

    @abc.abstractmethod
    def _described(self, ask: Callable[[TableSource], T], *, of_reference: bool = False) -> T:
        """Return what ``ask`` returns for the source that describes the table. A request of a branch or tag is
        ``of_reference``."""

    @abc.abstractmethod
    def _listed(self, ask: Callable[[TableSource], T], *, of_reference: bool = False) -> tuple[T, str | None]:
        """Return what ``ask`` returns for the source that lists the table's files, and why it is not the wanted one, if
        it is not."""

    def head(self, request: HeadRequest) -> TableHead:
        return self._described(lambda source: source.head(request), of_reference=request.is_of_reference)

    def version(self, since: str | None = None, *, operation: Operation = Operation.SNAPSHOT) -> int:
        return self._described(lambda source: source.version(since, operation=operation))

    def state(self, request: ScanRequest) -> TableState:
        return self._listed(lambda source: source.state(request), of_reference=request.is_of_reference)[0]

    def files(self, request: ScanRequest, purpose: Purpose) -> Files:
        files, access = self._listed(
            lambda source: source.files(request, purpose), of_reference=request.is_of_reference
        )
        return files if access is None else dataclasses.replace(files, access=access)

    def changes(self, request: ChangesRequest, purpose: Purpose) -> Feed:
        feed, access = self._listed(lambda source: source.changes(request, purpose))
        return feed if access is None else dataclasses.replace(feed, access=access)


class EitherFormat(EitherSource):
    """A Delta or an Iceberg table (OpenSharing protocol, "Iceberg tables").

    A server may state the formats of a table ("Get Table"). If it does not, the table is a Delta table, unless the
    sharing protocol lacks it (404, 501) and the Iceberg catalog has it; this is then remembered for the profile. A
    table that has both is read as a Delta table, except its branches and tags.
    """

    def __init__(self, delta: TableSource, iceberg: Callable[[], IcebergSource]) -> None:
        super().__init__(delta.rest, delta.name, delta.options)
        self._delta, self._make_iceberg = delta, iceberg

    @lazy
    def _iceberg(self) -> IcebergSource:
        return self._make_iceberg()

    def _described(self, ask: Callable[[TableSource], T], *, of_reference: bool = False) -> T:
        formats = stated_formats(self.rest, self.name)
        has_iceberg = ICEBERG in formats or (of_reference and not formats and self._iceberg.failure is None)
        if has_iceberg and (of_reference or "delta" not in formats):
            return ask(self._iceberg)
        if formats:
            return ask(self._delta)
        try:
            return ask(self._delta)
        except RequestError as error:
            if error.status not in (_NOT_FOUND, NOT_IMPLEMENTED):
                raise
            failure = self._iceberg.failure
            if failure is not None:
                if not isinstance(failure, NotFoundError):
                    add_advice(error, f"Whether it is an Iceberg table is not known: {failure.message}")
                raise
        known_formats(self.rest, self.name, (ICEBERG,))
        return ask(self._iceberg)

    def _listed(self, ask: Callable[[TableSource], T], *, of_reference: bool = False) -> tuple[T, str | None]:
        return self._described(ask, of_reference=of_reference), None

    def window(self, first: int, last: int | None, *, feed: bool, response_format: ResponseFormat) -> Window:
        formats = stated_formats(self.rest, self.name)
        # A follower has described the table before, so its format is known, and a refusal concerns the versions.
        source = self._iceberg if ICEBERG in formats and "delta" not in formats else self._delta
        return source.window(first, last, feed=feed, response_format=response_format)

    def commits(self, first: int, last: int | None) -> Sequence[Commit] | None:
        return self._described(lambda source: source.commits(first, last))


class EitherAccess(EitherSource):
    """A Delta table by the URLs of its ``server``, or from its own directory, by the log in its ``directory``.

    ``options.access_mode`` says which is tried first. The server describes the table in either case.
    """

    def __init__(self, server: TableSource, directory: Callable[[], TableSource]) -> None:
        super().__init__(server.rest, server.name, server.options)
        self._server, self._make_directory = server, directory

    @lazy
    def _directory(self) -> TableSource:
        return self._make_directory()

    def _described(self, ask: Callable[[TableSource], T], *, of_reference: bool = False) -> T:
        return ask(self._server)

    def _listed(self, ask: Callable[[TableSource], T], *, of_reference: bool = False) -> tuple[T, str | None]:
        if self.options.access_mode is AccessMode.DIR:
            return self._from_log(ask)
        try:
            return ask(self._server), None
        except DeltaSharingError as error:
            if not _may_be_of_mode(error):
                raise error from None
            modes = self._modes_of_refused()
            if self.options.access_mode is AccessMode.URL or not _is_directory_only(modes):
                raise error from None
        return ask(self._directory), None

    def _from_log(self, ask: Callable[[TableSource], T]) -> tuple[T, str | None]:
        try:
            return ask(self._directory), None
        except (RequestError, AuthError, UnsupportedFeatureError, UsageError) as error:
            # A UsageError may be due to a missing package; if the request itself is invalid, it also fails by URL.
            if _is_nobody(error):
                raise
            failure = error
        try:
            listed = ask(self._server)
        except DeltaSharingError as error:
            # If only other access modes are offered (such as 'volume'), the error of the read by URL is clearer.
            is_no_table = isinstance(error, UnsupportedFeatureError) and str(error.feature).startswith("accessModes")
            if not is_no_table and _may_be_of_mode(error):
                self._modes_of_refused()
            raise (error if is_no_table else failure) from None
        _log.warning("Table %s is read by URL, because its directory cannot be read: %s", self.name, failure)
        return listed, f"by URL, because the table's directory cannot be read: {failure}"

    def state(self, request: ScanRequest) -> TableState:
        return self._server.state(request) if is_latest(request) else super().state(request)

    def window(self, first: int, last: int | None, *, feed: bool, response_format: ResponseFormat) -> Window:
        return self._server.window(first, last, feed=feed, response_format=response_format)

    def commits(self, first: int, last: int | None) -> Sequence[Commit] | None:
        mode = self.options.access_mode
        if mode is AccessMode.URL or (mode is AccessMode.AUTO and not _is_directory_only(self._modes())):
            return None
        try:
            return self._directory.commits(first, last)
        except (RequestError, AuthError, UnsupportedFeatureError, UsageError) as error:
            if mode is AccessMode.AUTO or _is_nobody(error):
                raise
        return None

    def _modes(self) -> set[str]:
        """Return the access modes of the table, in lower case; none means by URL."""
        return {mode.lower() for mode in self._server.head(HeadRequest()).access_modes}

    def _modes_of_refused(self) -> set[str]:
        """Return the access modes of the table, whose query was refused; empty if its metadata is refused as well.
        Raises ``UnsupportedFeatureError`` if it has only modes other than URLs and directories."""
        try:
            modes = self._modes()
        except DeltaSharingError:
            return set()
        if modes and not modes & {"url", "dir"}:
            raise unreadable(f"Reading {self.name}", str(self.name), modes) from None
        return modes


def _is_directory_only(modes: set[str]) -> bool:
    return "dir" in modes and "url" not in modes


def _is_nobody(error: DeltaSharingError) -> bool:
    """Return whether the credentials are invalid for every access mode; a refusal with 403 may apply to one mode
    only."""
    return isinstance(error, AuthError) and error.status != 403


def _may_be_of_mode(error: DeltaSharingError) -> bool:
    """Return whether a read by URL may have been refused because of its access mode."""
    # The response of a busy or broken server says nothing about access modes, and it was already retried.
    is_busy = isinstance(error, RequestError) and error.status in RETRIED_STATUSES
    refused = isinstance(error, (RequestError, AuthError, UnsupportedFeatureError))
    return refused and not is_busy and not _is_nobody(error)
