"""Asynchronous queries: accepted immediately, polled until their result is ready (capability ``asyncquery=true``)."""

from __future__ import annotations

import dataclasses
import threading
import uuid

from .capabilities import Capabilities, FileIdHash
from .catalog import TableEntry
from .errors import invalid, not_found, shown
from .parameters import QueryRequest

_KEPT_QUERIES = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class PendingQuery:
    """An accepted query, with its table, its version, and the capabilities of its request."""

    id: str
    entry: TableEntry
    request: QueryRequest
    capabilities: Capabilities
    file_id_hash: FileIdHash | None
    version: int

    @property
    def pinned(self) -> int | None:
        """The version for a query of the latest snapshot; ``None`` if the query states its version."""
        request = self.request
        points = (request.version, request.timestamp_ms, request.starting_version)
        return self.version if all(point is None for point in points) else None


class AsyncQueries:
    """The newest accepted queries, up to a limit. Thread-safe."""

    def __init__(self, polls: int) -> None:
        self._polls = polls
        self._lock = threading.Lock()
        self._by_id: dict[str, PendingQuery] = {}
        self._by_key: dict[tuple[str, str], PendingQuery] = {}
        self._polled: dict[str, int] = {}

    def submit(
        self,
        entry: TableEntry,
        request: QueryRequest,
        capabilities: Capabilities,
        file_id_hash: FileIdHash | None,
        version: int,
    ) -> PendingQuery:
        """Accept a query; the same idempotency key on the same table returns the same query.

        Raises `ApiError` (400) if the key is missing, or was used with other parameters.
        """
        if not request.idempotency_key:
            raise invalid("'idempotencyKey' must be provided for an async query.")
        key = (entry.id, request.idempotency_key)
        with self._lock:
            known = self._by_key.get(key)
            if known is not None:
                if known.request.checksum() != request.checksum():
                    raise invalid("'idempotencyKey' was used for a query with other parameters.")
                return known
            query = PendingQuery(str(uuid.uuid4()), entry, request, capabilities, file_id_hash, version)
            self._by_key[key] = self._by_id[query.id] = query
            self._polled[query.id] = 0
            if len(self._by_key) > _KEPT_QUERIES:
                forgotten = self._by_key.pop(next(iter(self._by_key)))
                del self._by_id[forgotten.id], self._polled[forgotten.id]
            return query

    def poll(self, entry: TableEntry, query_id: str, polls: int | None = None) -> tuple[PendingQuery, bool]:
        """Return the query, and whether its result is ready: it is after ``polls`` polls. 404 if the query is
        unknown."""
        with self._lock:
            query = self._by_id.get(query_id)
            if query is None or query.entry.id != entry.id:
                raise not_found(f"Query ID {shown(query_id)} not found.")
            polled = self._polled[query_id]
            self._polled[query_id] = polled + 1
            return query, polled >= (self._polls if polls is None else polls)
