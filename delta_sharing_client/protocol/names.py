"""Names of shared objects: ``share.schema.table`` and ``<profile>#share.schema.table``."""

from __future__ import annotations

import dataclasses
import re

from delta_sharing_client.errors import UsageError

_MAX_LENGTH = 255
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f/]")


_QUOTED = r"`(?:[^`]|``)+`"
_FULL_NAME = re.compile(rf"({_QUOTED}|[^`]+)\.({_QUOTED}|[^.`]+)\.({_QUOTED}|[^.`]+)")


def check_name(name: str, kind: str) -> str:
    """Return ``name`` if a ``kind`` ("share", "schema", "table") may be called so; ``UsageError`` otherwise.

    Follows the protocol, "Names", except that spaces pass: some servers have them, and they cannot be misread.
    ``.`` and ``..`` are refused because HTTP clients would fold them away and ask for another path.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"A {kind} needs a name, found {name!r}.")
    if len(name) > _MAX_LENGTH:
        raise UsageError(f"A {kind} name has at most {_MAX_LENGTH} characters, found {len(name)}.")
    if _FORBIDDEN.search(name) or name in {".", ".."}:
        raise UsageError(f"A {kind} name has no slash and no control character and is not a dot: found {name!r}.")
    return name


@dataclasses.dataclass(frozen=True, slots=True)
class TableName:
    """The full name of a shared table. Names are compared by the server without regard to case.

    Parameters
    ----------
    share:
        Name of the share; it may contain dots.
    schema, table:
        Names of the schema and of the table. The protocol ("Names") forbids dots in them; a server that has some all
        the same is understood, and they are written in backticks then.
    """

    share: str
    schema: str
    table: str

    def __post_init__(self) -> None:
        check_name(self.share, "share")
        check_name(self.schema, "schema")
        check_name(self.table, "table")

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read ``share.schema.table``; dots left of the last two belong to the share, unless in backticks.

        A name in backticks is taken as it stands, a doubled backtick in it is one. ``UsageError`` if malformed.
        """
        match = _FULL_NAME.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise UsageError(f"Expected a table as share.schema.table, found {text!r}.")
        return cls(*map(_unquoted, match.groups()))

    def __str__(self) -> str:
        share = _quoted(self.share) if "`" in self.share else self.share
        return ".".join([share, *(_quoted(n) if "`" in n or "." in n else n for n in (self.schema, self.table))])


def parse_table_url(url: str) -> tuple[str | None, TableName]:
    """Split ``<profile>#share.schema.table`` at the last ``#``.

    Returns
    -------
    The profile's path or URL (``None`` where nothing stands before ``#``: the environment names the profile), and the
    name of the table. ``UsageError`` if there is no ``#`` or no full name after it.
    """
    profile, mark, name = url.rpartition("#") if isinstance(url, str) else ("", "", "")
    if not mark:
        raise UsageError(
            "Expected <profile file>#<share>.<schema>.<table>, found no '#' in the table URL; "
            "put the path of the profile file and '#' before the name of the table."
        )
    return profile or None, TableName.parse(name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name[0] == "`" else name
