"""The questions of the page: the values of a JSON object, each of its expected type, and the read they describe."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.places import place_of_name
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.scans import ReadOutputs
from delta_sharing_client.table import SharedTable

_FULL_NAME = 3


class Asked:
    """The values of one request. Methods raise ``UsageError`` for a value of another type."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return a text, "" if it is not there."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, str):
            raise UsageError(f"Expected '{name}' as text, found {type(value).__name__}.")
        return value or ""

    def number(self, name: str) -> int | None:
        """Return a whole number of 0 or more, ``None`` if it is not there."""
        value = self._values.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise UsageError(f"Expected '{name}' as a whole number of 0 or more, found {value!r}.")
        return value

    def flag(self, name: str) -> bool:
        """Return whether a value is there and true."""
        return self._values.get(name) is True

    def texts(self, name: str) -> list[str]:
        """Return a list of texts, empty if it is not there."""
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UsageError(f"Expected '{name}' as a list of texts, found {type(value).__name__}.")
        return value

    @property
    def full_name(self) -> AssetName:
        """The name of an asset, as a list of its three parts."""
        parts = self.texts("name")
        if len(parts) != _FULL_NAME:
            raise UsageError(f"Expected 'name' as share, schema and name, found {len(parts)} texts.")
        return AssetName(*parts)

    # === Reads ===

    @property
    def version(self) -> int | str | None:
        """The version to read: a number, of an Iceberg table also a branch or tag."""
        text = self.text("version").strip()
        return int(text) if text.isdecimal() else text or None

    @property
    def timestamp(self) -> str | None:
        """The time whose version is read."""
        return self.text("timestamp").strip() or None

    def table(self, client: SharingClient) -> SharedTable:
        """Return the table that is asked for."""
        return client.table(self.full_name)

    def read(self, client: SharingClient, *, limit: int | None = None, most: int = 0) -> ReadOutputs:
        """Return the read that is asked for, of rows or of one version's changes; it sends no request.

        If no columns are chosen and the table has more than ``most`` (0: no limit), it reads the first of them, which
        takes a request. Raises ``Mistake`` for the filter, the version or the time.
        """
        table = self.table(client)
        # A name, not a path: names may have dots.
        columns = [(name,) for name in self.texts("columns")] or None
        condition = self.text("filter").strip() or None
        changes = self.number("changes")
        if columns is None and most and changes is None:
            with mistakes_of(self):
                names = table.metadata(version=self.version, timestamp=self.timestamp).schema.names
            columns = [(name,) for name in names[:most]] if len(names) > most else None
        with mistakes_of(self):
            if changes is not None:
                return table.changes(changes, changes, columns=columns, filter=condition, limit=limit)
            return table.scan(columns, condition, limit, version=self.version, timestamp=self.timestamp)


class Mistake(Exception):
    """A mistake in what a person has typed.

    ``field`` is the input it is in, ``place`` its first character there and the one after its last, if known.
    """

    def __init__(self, error: UsageError, field: str, place: tuple[int, int] | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.field = field
        self.place = place


@contextlib.contextmanager
def mistakes_of(asked: Asked) -> Iterator[None]:
    """Raise ``Mistake`` in place of a ``UsageError`` of the block that is about one of the inputs."""
    try:
        yield
    except UsageError as error:
        text, message = asked.text("filter"), error.message
        place = error.place or place_of_name(text, message)
        if place is not None:
            # The text was used without the white space around it.
            shift = len(text) - len(text.lstrip()) if error.place else 0
            raise Mistake(error, "filter", (place[0] + shift, place[1] + shift)) from None
        if message.startswith("The filter") or (text and "'filter'" in message):
            raise Mistake(error, "filter", None) from None
        if asked.timestamp is not None and "timestamp" in message:
            raise Mistake(error, "timestamp", None) from None
        if asked.version is not None and "version" in message:
            raise Mistake(error, "version", None) from None
        raise
