"""Collects the files of a snapshot as a server lists them, and finds duplicates with a few bytes of memory per file."""

from __future__ import annotations

import array
import collections
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard, TypeVar, cast

import msgspec

from delta_sharing_client.delta.actions import AddFile, SharedFile, TableAction
from delta_sharing_client.delta.paths import canonical_path, shared_file_key
from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.fingerprints import Fingerprints, hashes

HELD_NAMES = 100_000
# The number of distinct partitions that are remembered.
_REMEMBERED = 1 << 14
_action_of = operator.attrgetter("action")
_id_of = operator.attrgetter("file_id")
_path_of = operator.attrgetter("path")
_vector_of = operator.attrgetter("deletion_vector")
_size_of = operator.attrgetter("size")


_StructT = TypeVar("_StructT", bound=msgspec.Struct)


class SharedValues:
    """Gives the structs of one partition a common dict of partition values.

    A million files have few partitions, and separate dicts would take most of the memory. The structs are changed, so
    only call this for structs that are kept and that no other code has yet.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str | None], ...], Mapping[str, str | None]] = {}

    def __call__(self, one: _StructT) -> _StructT:
        """Return ``one`` itself, whose ``partition_values`` are now the common dict of its partition."""
        values: Mapping[str, str | None] | None = one.partition_values  # type: ignore[attr-defined]
        if values is not None:
            shared = self._known.setdefault(tuple(values.items()), values)
            if shared is not values:
                msgspec.structs.force_setattr(one, "partition_values", shared)
            elif len(self._known) > _REMEMBERED:
                self._known.clear()
        return one


def kept(blocks: Iterable[Sequence[SharedFile]]) -> list[SharedFile]:
    """Return all files of ``blocks``; the files of one partition have a common dict of partition values."""
    share = SharedValues()
    files: list[SharedFile] = []
    for block in blocks:
        files += block
        collections.deque(map(share, map(_action_of, block)), maxlen=0)
    return files


class ListedFiles:
    """Distinguishes new files from those that were listed before.

    A server's id identifies one logical file: one path, one size, one deletion vector. If two files had the same id,
    all code that uses the id would treat them as one, and rows would be missing.

    Errors name ``table`` and ``version``. At most ``most`` file names are stored as strings, the others as hashes.
    ``files`` is the number of files, and ``bytes`` their total size, or ``None`` if the size of one is unknown.
    """

    def __init__(self, table: str, version: int, most: int = HELD_NAMES) -> None:
        self.files = 0
        self.bytes: int | None = 0
        self._table, self._version, self._most = table, version, most
        # The identity of each file, by name for the most recent files, by hash of the name for the others.
        self._held: dict[str, int] = {}
        self._seen = Fingerprints()

    def new(self, actions: Sequence[TableAction]) -> list[SharedFile]:
        """Return the ``actions`` that were not listed before, in order.

        Raises ``ProtocolError`` for an action that is not a data file, and for a file with the id of a different file.
        """
        files = cast("list[SharedFile]", actions)
        if set(map(type, actions)) == {SharedFile} and set(map(type, map(_action_of, files))) == {AddFile}:
            new = self._new_at_once(files)
        else:
            new = list(filter(self._is_new, actions))
        self.files += len(new)
        sizes = list(map(_size_of, map(_action_of, new)))
        self.bytes = None if self.bytes is None or min(sizes, default=0) < 0 else self.bytes + sum(sizes)
        return new

    def _new_at_once(self, files: list[SharedFile]) -> list[SharedFile]:
        adds, names = list(map(_action_of, files)), list(map(_id_of, files))
        if not all(names):
            names = [file.file_id or canonical_path(file.action.path) for file in files]
        if any(map(_vector_of, adds)):
            identities: Iterable[int] = map(_identity, files)
        else:
            # This repeats _identity inline, because a million files pass here.
            parts = map(str.partition, map(_path_of, adds), itertools.repeat("?"))
            paths = map(operator.itemgetter(0), parts)
            identities = map(hash, zip(paths, map(_size_of, adds), itertools.repeat(None)))
        distinct = dict(zip(names, identities, strict=True))
        is_any_known = not self._held.keys().isdisjoint(distinct) or self._seen.has_any(distinct)
        if is_any_known or len(distinct) < len(names):
            return list(filter(self._is_new, files))
        self._hold(distinct)
        return files

    def _hold(self, identities: dict[str, int]) -> None:
        self._held.update(identities)
        if len(self._held) > self._most:
            self._seen.add(hashes(self._held), array.array("q", self._held.values()))
            self._held = {}

    def _is_new(self, file: TableAction) -> TypeGuard[SharedFile]:
        if not isinstance(file, SharedFile) or not isinstance(file.action, AddFile):
            kind = type(file.action if isinstance(file, SharedFile) else file).__name__
            raise ProtocolError(
                "Only data files may follow the protocol and metaData lines of a snapshot, but a line of type "
                f"'{kind}' was found.",
                table=self._table,
                version=self._version,
            )
        name, identity = file.file_id or canonical_path(file.action.path), _identity(file)
        before = self._held.get(name) or self._seen.number(name)
        if before == 0:
            self._hold({name: identity})
        if before == 0 or (before == identity and file.file_id):
            return before == 0
        # Two URLs that differ only in their query strings may belong to one file or to two.
        both = (
            "this id and different paths, sizes or deletion vectors"
            if file.file_id
            else "the same path and without an id"
        )
        raise ProtocolError(
            f"A snapshot must list each data file once, but two files with {both} were found; the rows of one of them "
            "would be missing. Tell the data provider.",
            table=self._table,
            version=self._version,
            file_id=file.file_id,
        )


def _identity(file: SharedFile) -> int:
    """Return the identity of an added file; never 0."""
    key = shared_file_key(file)
    vector = None if isinstance(key, str) else key
    return hash((file.action.path.partition("?")[0], file.action.size, vector)) or 1
