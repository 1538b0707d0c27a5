"""JSON values in forms that deviate from the protocol: numbers as strings, strings as numbers, statistics as objects.

A value is accepted if it is unambiguous. ``msgspec`` decodes JSON that follows the protocol; this module decodes only
what ``msgspec`` refuses.
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
"""The exceptions of decoding if the data is not JSON, or not the expected JSON."""
# Required fields that some servers leave empty; code that needs such a field raises an error.
_MAY_BE_EMPTY = frozenset({"id"})
# Strings that contain JSON, which some servers send as JSON objects; and ``properties``, whose values are only shown.
_JSON_AS_TEXT = frozenset({"stats", "schemaString", "schema_string", "properties"})
_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)
_MAX_SAID = 1000

_log = logging.getLogger(__name__)
_said: set[str] = set()

T = TypeVar("T")
_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items_of = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Deviations:
    """Counts values that deviate from the protocol, by field; ``tell`` logs them in one line."""

    def __init__(self, doing: str) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._doing = doing

    def decode(self, data: bytes | msgspec.Raw, expected: type[T]) -> T:
        """Decode ``data`` as ``expected``. Raises one of ``MALFORMED`` if a value is ambiguous."""
        counts: collections.Counter[str] = collections.Counter()
        value = msgspec.convert(_read(_types(expected), data, "", counts), expected)
        self.counts += counts
        return value

    def note(self, what: str) -> None:
        """Count another deviation from the protocol."""
        self.counts[what] += 1

    def tell(self) -> None:
        """Log a warning with the counts; a process logs the same deviations of the same request only once."""
        text = f"{self._doing}: the response deviates from the protocol and was accepted: " + ", ".join(
            f"{what} ({count:,} times)" if count > 1 else what for what, count in sorted(self.counts.items())
        )
        key = f"{self._doing}: {sorted(self.counts)}"
        if self.counts and key not in _said and len(_said) < _MAX_SAID:
            _said.add(key)
            _log.warning("%s. Report this to the data provider.", text)
        self.counts.clear()


def decode(data: bytes | msgspec.Raw, expected: type[T], deviations: Deviations) -> T:
    """Decode JSON as ``expected``, strictly or else leniently. Raises one of ``MALFORMED`` if both fail."""
    try:
        return msgspec.json.decode(data, type=expected)
    except MALFORMED as error:
        try:
            return deviations.decode(data, expected)
        except MALFORMED:
            pass
        raise error


def problem_of(error: Exception) -> str:
    """Return the reason for ``error``, one of ``MALFORMED``, in plain words."""
    text, _, place = str(error).partition(" - at `$")
    where = f" in '{place.rstrip('`').lstrip('.')}'" if place else ""
    if names := re.findall(r"`([^`]*)`", text):
        if "missing" in text:
            return f"the field '{names[0]}' is missing{where}"
        expected, *received = (
            " or ".join(_WORDS.get(one, one) for one in name.split(" | ") if one != "null") or "null" for name in names
        )
        return f"expected {expected}{', found ' if received else ''}{''.join(received)}{where}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not valid UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, msgspec.ValidationError):
        return f"{text[:1].lower()}{text[1:]}{where}"
    at = re.search(r"byte (\d+)", text)
    return "the JSON is cut off" if at is None else f"the JSON is malformed at byte {at[1]}"


_WORDS = {
    "str": "a string", "int": "an integer", "float": "a number", "bool": "true or false", "object": "an object",
    "array": "a list",
}  # fmt: skip


def _read(kind: inspect.Type, raw: bytes | msgspec.Raw, name: str, counts: collections.Counter[str]) -> Any:
    """Convert ``raw``, the value of field ``name``, to a form that ``msgspec.convert`` accepts for ``kind``."""
    raw = bytes(raw).strip()
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if raw == b"null":
        return None
    kind = next(one for one in kinds if not isinstance(one, inspect.NoneType))
    if isinstance(kind, inspect.StructType):
        return _struct(kind, raw, counts)
    if isinstance(kind, inspect.DictType):
        return {key: _read(kind.value_type, value, name, counts) for key, value in _fields_of(raw).items()}
    if isinstance(kind, inspect.ListType):
        return [_read(kind.item_type, item, name, counts) for item in _items_of(raw)]
    value = msgspec.json.decode(raw)
    if isinstance(kind, inspect.StrType) and not isinstance(value, str):
        plain = not isinstance(value, (dict, list))
        if plain or name in _JSON_AS_TEXT:
            counts[f"'{name}' is not a string"] += 1
            return raw.decode()
    if isinstance(kind, inspect.IntType) and (number := _whole(value, raw)) is not None:
        counts[f"'{name}' is not an integer"] += 1
        return number
    if isinstance(kind, inspect.BoolType) and not isinstance(value, bool):
        meant = {"true": True, "false": False, "1": True, "0": False}.get(str(value).lower())
        if meant is not None:
            counts[f"'{name}' is neither true nor false"] += 1
            return meant
    return value


def _struct(kind: inspect.StructType, raw: bytes, counts: collections.Counter[str]) -> dict[str, Any]:
    fields = _fields_of(raw)
    values = {}
    for name, (field, takes_null) in _fields(kind.cls).items():
        may_be_empty = name in _MAY_BE_EMPTY and field.required
        if name not in fields and not may_be_empty:
            continue
        value = _read(field.type, fields.get(name, b"null"), name, counts)
        if value is None and not takes_null:
            counts[f"'{name}' is null"] += 1
            if not may_be_empty:
                continue
            value = ""
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
            # In the structs of the protocol, a union of types always includes null.
            isinstance(field.type, inspect.UnionType),
        )
        for field in kind.fields
    }


def _whole(value: Any, raw: bytes) -> int | None:
    """Return the integer that a string, or a number with a decimal point, stands for; ``None`` for other values."""
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    if isinstance(value, float):
        exact = decimal.Decimal(raw.decode())
        return int(exact) if exact == exact.to_integral_value() else None
    return None
