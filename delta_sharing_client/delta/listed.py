"""The files of a snapshot as a server lists them, without duplicates, with a few bytes of memory per file."""

from __future__ import annotations

import array
import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import TypeGuard, cast

from delta_sharing_client.delta.actions import Action, AddFile, VersionedMetadata, VersionedProtocol
from delta_sharing_client.delta.paths import canonical_path, logical_file_key
from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.fingerprints import Fingerprints, hashes

HELD_NAMES = 100_000
_vector_of = operator.attrgetter("deletion_vector")
_size_of = operator.attrgetter("size")


class ListedFiles:
    """Tells new files from those that were listed before.

    A server's id identifies one logical file: one path, one size, one deletion vector. If two files had the same id,
    everything that uses the id would treat them as one, and rows would be missing.

    Parameters
    ----------
    table, version:
        For errors.
    most:
        How many names are stored as text at a time; of the others only a hash is stored.

    Attributes
    ----------
    files, bytes:
        The number of files, and their total size; ``None`` if the size of one is unknown.
    """

    def __init__(self, table: str, version: int, most: int = HELD_NAMES) -> None:
        self.files = 0
        self.bytes: int | None = 0
        self._table, self._version, self._most = table, version, most
        # The identity of each name: of the last files by name, of the others by hash.
        self._held: dict[str, int] = {}
        self._seen = Fingerprints()

    def new(self, actions: Sequence[Action | VersionedMetadata | VersionedProtocol]) -> list[AddFile]:
        """Return those of ``actions`` that were not listed before, in their order.

        Raises ``ProtocolError`` for an action that is not a file of a snapshot, and for a file with the id of another
        one.
        """
        if set(map(type, actions)) == {AddFile}:
            found = self._new_at_once(cast("list[AddFile]", actions))
        else:
            found = list(filter(self._is_new, actions))
        self.files += len(found)
        sizes = list(map(_size_of, found))
        self.bytes = None if self.bytes is None or min(sizes, default=0) < 0 else self.bytes + sum(sizes)
        return found

    def _new_at_once(self, adds: list[AddFile]) -> list[AddFile]:
        names = [add.file_id or canonical_path(add.path) for add in adds]
        if any(map(_vector_of, adds)):
            identities: Iterable[int] = map(_identity, adds)
        else:
            # Inline version of _identity, because a million files pass here.
            paths = [add.path.partition("?")[0] for add in adds]
            identities = map(hash, zip(paths, map(_size_of, adds), itertools.repeat(None)))
        distinct = dict(zip(names, identities, strict=False))
        is_any_known = not self._held.keys().isdisjoint(distinct)
        is_any_known = is_any_known or (bool(self._seen) and bool(self._seen.get(hashes(distinct)).any()))
        if is_any_known or len(distinct) < len(names):
            return list(filter(self._is_new, adds))
        self._hold(distinct)
        return adds

    def _hold(self, identities: dict[str, int]) -> None:
        self._held.update(identities)
        if len(self._held) > self._most:
            self._seen.add(hashes(self._held), array.array("q", self._held.values()))
            self._held = {}

    def _is_new(self, action: Action | VersionedMetadata | VersionedProtocol) -> TypeGuard[AddFile]:
        if not isinstance(action, AddFile):
            raise ProtocolError(
                "Only data files may follow the protocol and metaData lines of a snapshot, but a line of type "
                f"'{type(action).__name__}' was found.",
                table=self._table,
                version=self._version,
            )
        name, identity = action.file_id or canonical_path(action.path), _identity(action)
        before = self._held.get(name) or (int(self._seen.get(hashes([name]))[0]) if self._seen else 0)
        if before == 0:
            self._hold({name: identity})
        if before == 0 or before == identity:
            return before == 0
        raise ProtocolError(
            "A snapshot must have each data file once, but two with this id were found, with different paths, sizes or "
            "deletion vectors; the rows of one of them would be missing. Tell the provider of the server.",
            table=self._table,
            version=self._version,
            file_id=action.file_id,
        )


def _identity(add: AddFile) -> int:
    """Return what distinguishes the file of ``add`` from others; never 0."""
    key = None if add.deletion_vector is None else logical_file_key(add)
    return hash((add.path.partition("?")[0], add.size, key)) or 1
