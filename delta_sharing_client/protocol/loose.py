"""JSON whose values have another form than the protocol says: numbers as text, text as numbers, statistics as objects.

A value is taken where it can mean one thing only. What is well-formed never comes here: decoders of ``msgspec`` read
that, and this module reads again what they refused.
"""

from __future__ import annotations

import collections
import decimal
import functools
import logging
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises for what is no JSON, or not the JSON that is expected."""
# Fields that are text which holds JSON, and that some servers write as that JSON itself.
_JSON_AS_TEXT = frozenset({"stats", "schemaString", "schema_string"})
# Values that are for people, whatever they are.
_ANYTHING_AS_TEXT = frozenset({"properties"})
_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)
_MAX_SAID = 1000

_log = logging.getLogger(__name__)
_said: set[str] = set()

T = TypeVar("T")
_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items_of = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Loosened:
    """What was taken in another form than the protocol's, by field; ``tell`` says it in one line of the log."""

    def __init__(self, doing: str) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._doing = doing

    def decode(self, data: bytes | msgspec.Raw, expected: type[T]) -> T:
        """Return ``data`` as ``expected``. Raises one of ``MALFORMED`` if a value has no form that means one thing."""
        found: collections.Counter[str] = collections.Counter()
        value = msgspec.convert(_read(_types(expected), data, "", found), expected)
        self.counts += found
        return value

    def note(self, what: str) -> None:
        """Count something else that was taken although it is not as the protocol says."""
        self.counts[what] += 1

    def tell(self) -> None:
        """Warn of what was counted, unless the same was said before in this process."""
        text = f"{self._doing}: the answer is not quite in the protocol's form, and was understood: " + ", ".join(
            f"{what} ({count:,} times)" if count > 1 else what for what, count in sorted(self.counts.items())
        )
        key = f"{self._doing}: {sorted(self.counts)}"
        if self.counts and key not in _said and len(_said) < _MAX_SAID:
            _said.add(key)
            _log.warning("%s. Tell the provider of the server.", text)
        self.counts.clear()


def decode(data: bytes | msgspec.Raw, expected: type[T], loosened: Loosened) -> T:
    """Return JSON as ``expected``, by the protocol's form or else a looser one. Raises one of ``MALFORMED``."""
    try:
        return msgspec.json.decode(data, type=expected)
    except MALFORMED as error:
        try:
            return loosened.decode(data, expected)
        except MALFORMED:
            pass
        raise error


def _read(kind: inspect.Type, raw: bytes | msgspec.Raw, name: str, found: collections.Counter[str]) -> Any:
    """Return what ``raw``, the value of field ``name``, says in a form that ``msgspec.convert`` takes for ``kind``."""
    raw = bytes(raw).strip()
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if raw == b"null":
        return None
    kind = next(one for one in kinds if not isinstance(one, inspect.NoneType))
    if isinstance(kind, inspect.StructType) and raw[:1] == b"{":
        return _struct(kind, raw, found)
    if isinstance(kind, inspect.DictType) and raw[:1] == b"{":
        return {key: _read(kind.value_type, value, name, found) for key, value in _fields_of(raw).items()}
    if isinstance(kind, inspect.ListType) and raw[:1] == b"[":
        return [_read(kind.item_type, item, name, found) for item in _items_of(raw)]
    value = msgspec.json.decode(raw)
    if any(isinstance(one, inspect.StrType) for one in kinds) and not isinstance(value, str):
        if any(isinstance(one, inspect.IntType) for one in kinds) and isinstance(value, int):
            return value
        plain = not isinstance(value, (dict, list))
        if plain or name in _JSON_AS_TEXT or name in _ANYTHING_AS_TEXT:
            found[f"'{name}' is no text"] += 1
            return raw.decode()
    if isinstance(kind, inspect.IntType) and (number := _whole(value, raw)) is not None:
        if type(value) is not int:
            found[f"'{name}' is no whole number"] += 1
        return number
    if isinstance(kind, inspect.BoolType) and not isinstance(value, bool):
        meant = {"true": True, "false": False, "1": True, "0": False}.get(str(value).lower())
        if meant is not None:
            found[f"'{name}' is neither true nor false"] += 1
            return meant
    return value


def _struct(kind: inspect.StructType, raw: bytes, found: collections.Counter[str]) -> dict[str, Any]:
    given = _fields_of(raw)
    values = {}
    for name, (field, takes_null) in _fields(kind.cls).items():
        if name not in given:
            continue
        value = _read(field.type, given[name], name, found)
        if value is None and not takes_null and not field.required:
            found[f"'{name}' is null"] += 1
            continue
        values[name] = value
    return values


_types: Callable[[type], inspect.Type] = functools.cache(inspect.type_info)


@functools.cache
def _fields(cls: type) -> dict[str, tuple[inspect.Field, bool]]:
    kind = inspect.type_info(cls)
    assert isinstance(kind, inspect.StructType)
    return {
        field.encode_name: (
            field,
            isinstance(field.type, inspect.UnionType)
            and any(isinstance(one, inspect.NoneType) for one in field.type.types),
        )
        for field in kind.fields
    }


def _whole(value: Any, raw: bytes) -> int | None:
    """Return the whole number that a number or a text is, ``None`` if it is none."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    if isinstance(value, float):
        exact = decimal.Decimal(raw.decode())
        return int(exact) if exact.adjusted() < 19 and exact == exact.to_integral_value() else None
    return None
