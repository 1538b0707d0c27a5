"""A table at one version, from its actions (Delta log protocol, "Action Reconciliation")."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from delta_sharing_client.delta.actions import (
    Action,
    AddCdcFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    RowIdHighWaterMark,
    Transaction,
)
from delta_sharing_client.delta.column_mapping import ColumnMappingMode, check_mapping, mapping_mode, without_mapping
from delta_sharing_client.delta.data_types import StructType
from delta_sharing_client.delta.paths import FileKey, canonical_path, logical_file_key
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError
from delta_sharing_client.lazy import lazy


class Want(enum.Flag):
    """What to keep of a log in addition to the live files."""

    NOTHING = 0
    STATS = enum.auto()
    """The statistics of live files, which take most of the memory of a large table."""
    TOMBSTONES = enum.auto()
    """Files that were removed but may not have been deleted yet."""


@dataclass(frozen=True)
class Snapshot:
    """A table at one version.

    ``files`` are the live data files, in the order in which the log first names them. ``timestamp_ms`` is the commit's
    time in milliseconds since the epoch, or ``None`` if unknown (a sharing response may omit it). ``transactions``
    are keyed by application id, ``domain_metadata`` by domain (without removed ones); ``tombstones`` are kept only on
    request.
    """

    version: int
    timestamp_ms: int | None
    protocol: Protocol
    metadata: Metadata
    files: Sequence[AddFile] = field(repr=False)
    transactions: Mapping[str, Transaction] = field(default_factory=dict)
    domain_metadata: Mapping[str, DomainMetadata] = field(default_factory=dict)
    row_id_high_water_mark: RowIdHighWaterMark | None = None
    tombstones: Sequence[RemoveFile] = field(default=(), repr=False)
    table: str | None = None

    @classmethod
    def from_actions(
        cls, version: int, actions: Iterable[Action], *, table: str | None = None, timestamp_ms: int | None = None
    ) -> Snapshot:
        """Reconcile ``actions``, oldest first, into the table that they describe.

        ``version`` is the version of the last action, ``timestamp_ms`` its commit's time; errors name ``table``.
        Raises ``ProtocolError`` if the actions have no protocol or no metadata, ``UnsupportedFeatureError`` if the data
        files are not Parquet.
        """
        replay = Replay()
        replay.apply(actions)
        return replay.snapshot(version, table=table, timestamp_ms=timestamp_ms)

    @lazy
    def schema(self) -> StructType:
        """The columns of the table; they have physical names only if the table's files use them.

        Raises ``ProtocolError`` and ``UnsupportedFeatureError`` as ``parse_schema`` and ``check_mapping`` do, and
        ``ProtocolError`` if a partition column is not in the schema.
        """
        return table_schema(self.metadata, table=self.table)


def table_schema(metadata: Metadata, *, table: str | None = None) -> StructType:
    """Return the columns of a table; see :attr:`Snapshot.schema`."""
    try:
        schema = parse_schema(metadata.schema_string)
        mode = mapping_mode(metadata)
        check_mapping(schema, mode)
        for name in metadata.partition_columns:
            if schema.find(name) is None and (name,) not in {item.path for item in schema.left_out}:
                raise ProtocolError(f"The partition column {name!r} must be a column of the schema, but it is not.")
    except (ProtocolError, UnsupportedFeatureError) as error:
        error.table = table
        raise
    return without_mapping(schema) if mode is ColumnMappingMode.NONE else schema


def is_reconciled(actions: Iterable[Action]) -> bool:
    """Return whether no two actions affect each other, so that their order does not matter."""
    seen: set[object] = set()
    for action in actions:
        key: object
        if isinstance(action, (AddFile, RemoveFile)):
            key = logical_file_key(action)
        elif isinstance(action, Transaction):
            key = (Transaction, action.app_id)
        elif isinstance(action, DomainMetadata):
            key = (DomainMetadata, action.domain)
        elif isinstance(action, (Protocol, Metadata, RowIdHighWaterMark)):
            key = type(action)
        else:
            continue
        if key in seen:
            return False
        seen.add(key)
    return True


def without_conflicts(actions: Iterable[Action], source: str) -> Iterator[Action]:
    """Yield the actions of one commit, called ``source`` in errors, unless two of them contradict each other.

    The order of actions within a commit has no meaning (Delta log protocol, "Add File and Remove File" and
    "Requirements for Writers"). So the result is undefined if two actions set the protocol or the metadata, add the
    same path, remove the same path, or add and remove the same logical file. Raises ``ProtocolError`` for such a pair.
    """
    paths: set[tuple[type, str]] = set()
    files: set[tuple[str, FileKey]] = set()
    single: set[type] = set()
    for action in actions:
        kind = type(action)
        if isinstance(action, (AddFile, RemoveFile)):
            path = canonical_path(action.path)
            key = path if action.deletion_vector is None else logical_file_key(action)
            if (kind, path) in paths or (path, key) in files:
                raise ProtocolError(
                    f"'{source}' must have at most one action for each file, found two for "
                    f"{action.path.partition('?')[0][:200]!r}."
                )
            paths.add((kind, path))
            files.add((path, key))
        elif kind is Protocol or kind is Metadata:
            if kind in single:
                name = "protocol" if kind is Protocol else "metaData"
                raise ProtocolError(f"'{source}' must have at most one '{name}' action, found several.")
            single.add(kind)
        yield action


class Replay:
    """Reconciles actions step by step: apply them oldest first, then take the snapshot."""

    def __init__(self, want: Want = Want.STATS) -> None:
        self._want = want
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self._files: dict[FileKey, AddFile] = {}
        self._tombstones: dict[FileKey, RemoveFile] = {}
        self._transactions: dict[str, Transaction] = {}
        self._domains: dict[str, DomainMetadata] = {}
        self._high_water_mark: RowIdHighWaterMark | None = None

    def apply(self, actions: Iterable[Action]) -> None:
        """Add the next actions; the newest of each kind or key wins."""
        files = self._files
        with_stats, with_tombstones = Want.STATS in self._want, Want.TOMBSTONES in self._want
        for action in actions:
            kind = type(action)
            if kind is AddFile:
                # The common case is handled inline, because a million actions pass here.
                key = logical_file_key(action)  # type: ignore[arg-type]
                files[key] = action if with_stats else replace(action, stats=None)  # type: ignore[assignment]
                if self._tombstones:
                    self._tombstones.pop(key, None)
            elif kind is RemoveFile:
                key = logical_file_key(action)  # type: ignore[arg-type]
                files.pop(key, None)
                if with_tombstones:
                    self._tombstones[key] = action  # type: ignore[assignment]
            elif kind is not AddCdcFile:
                self._apply_other(action)

    def snapshot(self, version: int, *, table: str | None = None, timestamp_ms: int | None = None) -> Snapshot:
        """Return the table after all actions so far; raises the errors of :meth:`Snapshot.from_actions`."""
        protocol, metadata = self.protocol, self.metadata
        if protocol is None or metadata is None:
            name = "protocol" if protocol is None else "metaData"
            raise ProtocolError(
                f"A table must have a '{name}' action, found none up to version {version}.",
                table=table,
                version=version,
            )
        if metadata.format.provider.lower() != "parquet":
            raise UnsupportedFeatureError(
                f"The data files must be Parquet, found the format {metadata.format.provider!r}.",
                feature=metadata.format.provider,
                table=table,
                version=version,
            )
        return Snapshot(
            version=version,
            timestamp_ms=timestamp_ms,
            protocol=protocol,
            metadata=metadata,
            files=list(self._files.values()),
            transactions=dict(self._transactions),
            domain_metadata={name: item for name, item in self._domains.items() if not item.removed},
            row_id_high_water_mark=self._high_water_mark,
            tombstones=tuple(self._tombstones.values()),
            table=table,
        )

    def _apply_other(self, action: Action) -> None:
        if isinstance(action, Protocol):
            self.protocol = action
        elif isinstance(action, Metadata):
            self.metadata = action
        elif isinstance(action, Transaction):
            self._transactions[action.app_id] = action
        elif isinstance(action, DomainMetadata):
            self._domains[action.domain] = action
        elif isinstance(action, RowIdHighWaterMark):
            self._high_water_mark = action
