"""The requests of the page: the values of a JSON object, whose types are checked, and the read that they describe."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.predicates.text_spans import span_of_name
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.scans import ReadOutputs
from delta_sharing_client.table import SharedTable

_FULL_NAME = 3


class Asked:
    """The values of one request. Methods raise ``UsageError`` for a value of the wrong type."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return a string; "" if it is missing."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, str):
            raise UsageError(f"Expected '{name}' to be a string, found {type(value).__name__}.")
        return value or ""

    def number(self, name: str) -> int | None:
        """Return an integer of 0 or more; ``None`` if it is missing."""
        value = self._values.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise UsageError(f"Expected '{name}' to be an integer of 0 or more, found {value!r}.")
        return value

    def flag(self, name: str) -> bool:
        """Return whether a value is present and true."""
        return self._values.get(name) is True

    def texts(self, name: str) -> list[str]:
        """Return a list of strings; empty if the value is missing."""
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UsageError(f"Expected '{name}' to be a list of strings, found {type(value).__name__}.")
        return value

    def paths(self, name: str) -> list[tuple[str, ...]]:
        """Return a list of columns, each a name or the list of names that leads to a field of a struct; empty if the
        value is missing."""
        value = self._values.get(name)
        items = [[item] if isinstance(item, str) else item for item in value] if isinstance(value, list) else None
        if value is None:
            return []
        if not items or not all(isinstance(item, list) and item and all(map(_is_text, item)) for item in items):
            if value == []:
                return []
            raise UsageError(f"Expected '{name}' to be a list of columns, found {type(value).__name__}.")
        return [tuple(item) for item in items]

    @property
    def full_name(self) -> AssetName:
        """The full name of an asset, which the request has as a list of three parts."""
        parts = self.texts("name")
        if len(parts) != _FULL_NAME:
            raise UsageError(f"Expected 'name' to be a list of share, schema and name, found {len(parts)} strings.")
        return AssetName(*parts)

    # === Reads ===

    @property
    def version(self) -> int | str | None:
        """The version to read: a number or, for an Iceberg table, also a branch or tag."""
        text = self.text("version").strip()
        return int(text) if text.isdecimal() else text or None

    @property
    def timestamp(self) -> str | None:
        """The timestamp of the version to read."""
        return self.text("timestamp").strip() or None

    def table(self, client: SharingClient) -> SharedTable:
        """Return the table that the request names."""
        return client.table(self.full_name)

    def read(self, client: SharingClient, *, limit: int | None = None, most: int = 0) -> ReadOutputs:
        """Return the requested read, of rows or of one version's changes.

        If no columns are chosen, at most the first ``most`` columns are read (0 for no limit); only this sends a
        request. Raises ``Mistake`` for a wrong filter, version or time.
        """
        table = self.table(client)
        columns = self.paths("columns") or None
        condition = self.text("filter").strip() or None
        changes = self.number("changes")
        if columns is None and most and changes is None:
            with mistakes_of(self):
                names = table.metadata(version=self.version, timestamp=self.timestamp).schema.names
            columns = [(name,) for name in names[:most]]
        with mistakes_of(self):
            if changes is not None:
                return table.changes(changes, changes, columns=columns, filter=condition, limit=limit)
            return table.scan(columns, condition, limit, version=self.version, timestamp=self.timestamp)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


class Mistake(Exception):
    """A mistake in an input of the page.

    ``field`` is the name of the input; ``span`` has the position of the mistake's first character in it, and the
    position after its last character, if known.
    """

    def __init__(self, error: DeltaSharingError, field: str, span: tuple[int, int] | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.field = field
        self.span = span


@contextlib.contextmanager
def mistakes_of(asked: Asked) -> Iterator[None]:
    """Raise ``Mistake`` in place of a ``UsageError`` from the block if the error is about one of the inputs."""
    try:
        yield
    except UsageError as error:
        text, message = asked.text("filter"), error.message
        span = error.span or span_of_name(text, message)
        if span is not None:
            # The filter was parsed without the white space around it.
            shift = len(text) - len(text.lstrip()) if error.span else 0
            raise Mistake(error, "filter", (span[0] + shift, span[1] + shift)) from None
        if message.startswith("The filter") or (text and "'filter'" in message):
            raise Mistake(error, "filter", None) from None
        if asked.timestamp is not None and "timestamp" in message:
            raise Mistake(error, "timestamp", None) from None
        if asked.version is not None and "version" in message:
            raise Mistake(error, "version", None) from None
        raise
