"""HTML tables for notebooks. All text is escaped, because it comes from servers."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from delta_sharing_client.redact import printable

T = TypeVar("T")

_MOST_ROWS = 200
_CELL = 'style="text-align: left; padding: 2px 10px"'


class ListedInNotebook(list[T]):
    """A list of frozen values that a notebook shows as a table. The table has every column that any of the values has.

    The columns are the fields of the values, or what their method ``facts`` returns.
    """

    def _repr_html_(self) -> str:
        if not self:
            return "<p>The list is empty.</p>"
        shown = [_facts(item) for item in self]
        names = [name for name in shown[0] if any(row[name] not in (None, {}, ()) for row in shown)]
        return html_rows(f"{len(self)} listed", names, [[row[name] for name in names] for row in shown])


def _facts(item: Any) -> Mapping[str, object]:
    facts: Mapping[str, object] = item.facts() if hasattr(item, "facts") else dataclasses.asdict(item)
    return facts


class Text(str):
    """Multi-line text that shells and notebooks show as it is, not as one line with escapes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


def html_rows(title: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table with a header. A long table is cut to its first rows, and the number of further rows is
    added."""
    rows = list(rows)
    head = "".join(f"<th {_CELL}>{_text(name)}</th>" for name in names)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows[:_MOST_ROWS])
    more = f"<p>{len(rows) - _MOST_ROWS} more are not shown.</p>" if len(rows) > _MOST_ROWS else ""
    return f"{_title(title)}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def html_facts(title: str, facts: Mapping[str, object]) -> str:
    """Return an HTML table of names and values, without values that are ``None`` or empty."""
    shown = {name: value for name, value in facts.items() if value is not None and value not in ("", (), [], {})}
    rows = "".join(f"<tr><th {_CELL}>{_text(name)}</th>{_cells([value])}</tr>" for name, value in shown.items())
    return f"{_title(title)}<table><tbody>{rows}</tbody></table>"


@dataclasses.dataclass(frozen=True)
class BarCell:
    """A bar in a table cell that fills the fraction ``share`` (0 to 1) of the cell; a small fraction is still
    visible."""

    share: float

    def to_html(self) -> str:
        width = max(1, round(120 * min(1.0, self.share))) if self.share > 0 else 0
        return f'<div style="background: #4c78a8; height: 0.8em; width: {width}px"></div>'


def _title(title: str) -> str:
    return f"<p><b>{_text(title)}</b></p>"


def _cells(row: Sequence[object]) -> str:
    return "".join(
        f"<td {_CELL}>{value.to_html() if isinstance(value, BarCell) else _text(value)}</td>" for value in row
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        value = ", ".join(f"{name}: {item}" for name, item in value.items())
    elif isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value))
    elif isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    return html.escape(printable(str(value)))
