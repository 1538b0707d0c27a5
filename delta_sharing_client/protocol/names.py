"""Names of assets (``share.schema.table``, ``<profile>#share.schema.table``), and the objects in listings of tables."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from delta_sharing_client.errors import UsageError
from delta_sharing_client.notebook import html_facts

_MAX_LENGTH = 255
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f/]")
_QUOTED = r"`(?:[^`]|``)+`"
_FULL_NAME = re.compile(rf"({_QUOTED}|[^`]+)\.({_QUOTED}|[^.`]+)\.({_QUOTED}|[^.`]+)")


def check_name(name: str, kind: str) -> str:
    """Return ``name`` if it is valid for a ``kind`` ("share", "schema", "asset"); ``UsageError`` otherwise.

    Follows the protocol, "Names", but allows spaces: some servers have them, and they are unambiguous. ``.`` and ``..``
    are refused because HTTP clients would remove them from the path.
    """
    a_kind = _with_article(kind)
    if not isinstance(name, str) or not name:
        raise UsageError(f"{a_kind} needs a name, found {name!r}.")
    if len(name) > _MAX_LENGTH:
        raise UsageError(f"{a_kind} name must have at most {_MAX_LENGTH} characters, found {len(name)}.")
    if _FORBIDDEN.search(name) or name in {".", ".."}:
        raise UsageError(
            f"{a_kind} name must not contain a slash or a control character, or be '.' or '..'; found {name!r}."
        )
    return name


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AssetName:
    """The full name of a table or another asset. Names are equal without regard to case (protocol, "Names").

    Parameters
    ----------
    share:
        Name of the share; it may contain dots.
    schema, name:
        Names of the schema and of the asset in it. The protocol forbids dots in them; if a server uses them anyway,
        the names are written in backticks.
    """

    share: str
    schema: str
    name: str

    def __post_init__(self) -> None:
        check_name(self.share, "share")
        check_name(self.schema, "schema")
        check_name(self.name, "asset")

    @classmethod
    def parse(cls, text: str, kind: str = "table") -> AssetName:
        """Parse ``share.schema.name``, where names may be quoted with backticks; the share may contain dots.

        A doubled backtick in a quoted name stands for one. Raises ``UsageError``, which mentions the ``kind`` of asset,
        if ``text`` is malformed.
        """
        match = _FULL_NAME.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise UsageError(f"Expected {_with_article(kind).lower()} as share.schema.{kind}, found {text!r}.")
        return cls(*map(_unquoted, match.groups()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AssetName) and self._folded == other._folded

    def __hash__(self) -> int:
        return hash(self._folded)

    @property
    def _folded(self) -> tuple[str, str, str]:
        return self.share.lower(), self.schema.lower(), self.name.lower()

    def __str__(self) -> str:
        share = _quoted(self.share) if "`" in self.share else self.share
        return ".".join([share, *(_quoted(n) if "`" in n or "." in n else n for n in (self.schema, self.name))])


def split_table_url(url: str) -> tuple[str | None, str]:
    """Split ``<profile>#share.schema.table`` at the last ``#``.

    Returns the profile's path or URL, and the name of the table as written. The profile is ``None`` if there is nothing
    before ``#``, because then the environment variable is used. Raises ``UsageError`` if there is no ``#``.
    """
    if not isinstance(url, str):
        raise UsageError(
            f"Expected a string such as <profile file>#<share>.<schema>.<table>, or a table of a client, found "
            f"{type(url).__name__}; write client.table(name), or client.table(name).scan(...)."
        )
    profile, mark, name = url.rpartition("#")
    if not mark:
        raise UsageError(
            "Expected <profile file>#<share>.<schema>.<table>, found no '#' in the table URL; "
            "write the path of the profile file and a '#' before the name of the table."
        )
    return profile or None, name


def split_files_url(url: str) -> tuple[str | None, str, str]:
    """Split ``[<profile>#]share.schema.name[/path]``, the address of files of an asset.

    Returns the profile's path or URL (``None`` if there is none), the name as written, and the path. All three may
    contain ``#``, and profiles and paths ``/``; only the ``#`` that ends a profile is followed by a full name.
    """
    before: list[str] = []
    rest = url
    while "#" in rest and ("#" in rest.partition("/")[0] or _FULL_NAME.fullmatch(rest.partition("/")[0]) is None):
        first, _, rest = rest.partition("#")
        before.append(first)
    name, _, path = rest.partition("/")
    return "#".join(before) or None, name, path


def _with_article(kind: str) -> str:
    return f"{'An' if kind[0] in 'aeiou' else 'A'} {kind}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name[0] == "`" else name


# === Objects in listings ===


def _html(item: Share | Schema | Table) -> str:
    return html_facts(f"{type(item).__name__} {item.name}", dataclasses.asdict(item))


def _short(item: Share | Schema | Table) -> str:
    # Fields that the server did not send are left out.
    shown = [
        f"{field.name}={value!r}"
        for field in dataclasses.fields(item)
        if (value := getattr(item, field.name)) not in (field.default, {})
    ]
    return f"{type(item).__name__}({', '.join(shown)})"


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Share:
    """A share. ``id``, if the server has one, never changes; ``display_name`` and ``comment`` are for people; the
    provider sets ``properties``."""

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


class _Listed:
    """An item of a listing, with the client that listed it. The client is not a field, so comparison, repr and pickle
    ignore it."""

    __slots__ = ("_rest",)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Table(_Listed):
    """A table of a schema, from a listing; the loaders read it: ``load_as_pandas(table)``.

    Attributes
    ----------
    name, share, schema:
        The three names.
    id, share_id:
        Ids, if the server has them; they never change.
    display_name:
        A name for people, if the server has one.
    location, auxiliary_locations:
        Storage directories of the table, if the server states them (needed for directory access).
    access_modes:
        ``url`` and/or ``dir``; empty if the server does not state them, which means ``url``.
    formats:
        ``delta`` and/or ``iceberg``, in lower case; empty if the server does not state them, as in listings.
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
    formats: tuple[str, ...] = ()

    __repr__ = _short
    _repr_html_ = _html

    @property
    def full_name(self) -> AssetName:
        """``share.schema.table``, as used for reads."""
        return AssetName(self.share, self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.share}.{self.schema}.{self.name}"
