"""What a sharing server lists: shares, schemas and tables, as frozen values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from delta_sharing_client.notebook import html_facts
from delta_sharing_client.protocol.names import TableName


def _html(item: Share | Schema | Table) -> str:
    """Return what a notebook shows of a listed value."""
    return html_facts(f"{type(item).__name__} {item.name}", dataclasses.asdict(item))


def _short(item: Share | Schema | Table) -> str:
    """Return the repr of a listed value without what the server does not tell of it."""
    told = [
        f"{field.name}={value!r}"
        for field in dataclasses.fields(item)
        if (value := getattr(item, field.name)) not in (field.default, {})
    ]
    return f"{type(item).__name__}({', '.join(told)})"


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Share:
    """A share. ``id`` is immutable where the server gives one; ``display_name`` and ``comment`` are for people, and
    ``properties`` are the provider's own."""

    name: str
    id: str | None = None
    display_name: str | None = None
    comment: str | None = None
    properties: Mapping[str, str | None] = dataclasses.field(default_factory=dict, hash=False)

    __repr__ = _short
    _repr_html_ = _html


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Schema:
    """A schema of a share."""

    name: str
    share: str
    id: str | None = None
    display_name: str | None = None

    __repr__ = _short
    _repr_html_ = _html


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Table:
    """A table of a schema.

    Attributes
    ----------
    name, share, schema:
        The three names.
    id, share_id:
        Immutable ids, where the server gives them.
    display_name:
        A name for people, where the server gives one.
    location, auxiliary_locations:
        Storage directories of the table, where the server tells (needed for directory access).
    access_modes:
        ``url`` and/or ``dir``; empty where the server does not say, which means ``url``.
    """

    name: str
    share: str
    schema: str
    id: str | None = None
    share_id: str | None = None
    display_name: str | None = None
    location: str | None = None
    auxiliary_locations: tuple[str, ...] = ()
    access_modes: tuple[str, ...] = ()

    __repr__ = _short
    _repr_html_ = _html

    @property
    def full_name(self) -> TableName:
        """``share.schema.table``, as every read takes it."""
        return TableName(self.share, self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.share}.{self.schema}.{self.name}"
