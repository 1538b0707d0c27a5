"""The values of the data source's options: parsers of their texts, each with the error for a wrong value."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, Union

import msgspec

from delta_sharing_client.columns import ColumnName, split_names
from delta_sharing_client.errors import UsageError
from delta_sharing_client.follow.follow_request import Start
from delta_sharing_client.instants import to_instant
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import Expression
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.spark.pushed import not_for_users


class Option(NamedTuple):
    """An option of the data source: its documented name, the field that it sets, and the parser of its text."""

    name: str
    field: str
    parse: Callable[[str, str], object]


def by_name(*options: Option) -> dict[str, Option]:
    """Return ``options`` by their names in lower case."""
    return {option.name.lower(): option for option in options}


def parse_given(options: Mapping[str, Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of those ``options`` that are ``given``, by their fields."""
    return {option.field: option.parse(option.name, given[key]) for key, option in options.items() if key in given}


_Name = Union[str, Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]]
_Names = Annotated[tuple[_Name, ...], msgspec.Meta(min_length=1)]
_AMOUNT = re.compile(r"(\d{1,19})\s*([a-z]*)")
_BYTES = {"": 1, "b": 1}
_BYTES |= {unit + tail: 1024**power for power, unit in enumerate("kmgtp", 1) for tail in ("", "b")}
_SECONDS = {"": 1, "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60}
_SECONDS |= {"h": 3600, "hour": 3600, "hours": 3600, "d": 86_400, "day": 86_400, "days": 86_400}


def invalid(name: str, value: str, expected: str) -> UsageError:
    """Return the error for the value of an option."""
    return UsageError(f"Invalid value '{value}' for option '{name}': it must be {expected}.")


def parse_text(name: str, value: str) -> str:
    if not value.strip():
        raise UsageError(f"Invalid value '{value}' for option '{name}': it must not be empty.")
    return value


def parse_product(name: str, value: str) -> str | None:
    """Return ``value`` if it can be part of a User-Agent; ``None`` if it is empty."""
    if not re.fullmatch(r"[ -~]*", value):
        raise invalid(name, value, "printable ASCII characters")
    return value.strip() or None


def parse_flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise invalid(name, value, "'true' or 'false'")
    return value.lower() == "true"


def parse_count(
    name: str, value: str, least: int = 0, expected: str = "an integer greater than or equal to zero"
) -> int:
    if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", value) or not least <= int(value) < 2**63:
        raise invalid(name, value, expected)
    return int(value)


def parse_version(name: str, value: str) -> int | str:
    """Parse the number of a version or snapshot, or the name of a branch or tag."""
    is_name = re.fullmatch(r"\s*[+-]?\d*\s*", value) is None
    return value if is_name else parse_count(name, value)


parse_positive = functools.partial(parse_count, least=1, expected="a positive integer")


def parse_starting_version(name: str, value: str) -> Start:
    if value == "latest":
        return "latest"
    return parse_count(name, value, 0, "'latest' or an integer that must be greater than or equal to zero")


def _parse_amount(name: str, value: str, units: Mapping[str, int], least: int, expected: str) -> int:
    match = _AMOUNT.fullmatch(value.strip().lower())
    found = int(match[1]) * units[match[2]] if match and match[2] in units else -1
    if not least <= found < 2**63:
        raise invalid(name, value, expected)
    return found


# A size in bytes has the JVM's form: 12, 12k or 10g. A duration is a number of seconds, or 30s, 5m or 1h.
parse_size = functools.partial(_parse_amount, units=_BYTES, least=1, expected="a size configuration such as '10g'")
parse_seconds = functools.partial(_parse_amount, units=_SECONDS, least=0, expected="a number of seconds such as '30s'")


def parse_timeout(name: str, value: str) -> int:
    found = parse_seconds(name, value)
    if not found:
        raise invalid(name, value, "a second or more")
    return found


def parse_timestamp(name: str, value: str) -> str:
    """Parse a timestamp, and return it in ISO 8601 in UTC; a start is moved to the next whole millisecond.

    A timestamp without a zone is in UTC, because a data source does not know the session's time zone.
    """
    return to_instant(value, name, up=name == "startingTimestamp")


def parse_columns(name: str, value: str) -> tuple[ColumnName, ...]:
    if value.lstrip().startswith("["):
        return _json_columns(name, value)
    found = split_names(value)
    if found is None:
        raise invalid(name, value, "names separated by commas, such as 'id, `a,b`'")
    return tuple(found)


def _json_columns(name: str, value: str) -> tuple[ColumnName, ...]:
    try:
        return msgspec.json.decode(value, type=_Names)
    except msgspec.DecodeError:
        expected = "a JSON array of names; an array in it is the path of a nested column"
        raise invalid(name, value, expected) from None


def parse_condition(name: str, value: str) -> Expression | None:
    return parse_filter(parse_text(name, value))


def parse_names(name: str, value: str) -> AssetName:
    try:
        return AssetName(*msgspec.json.decode(value, type=tuple[str, str, str]))
    except msgspec.DecodeError:
        raise not_for_users(name) from None


def parser_of(kind: type[enum.Enum]) -> Callable[[str, str], object]:
    """Return the parser of an option whose values are those of an enumeration."""

    def parse(name: str, value: str) -> object:
        try:
            return kind(value)
        except ValueError:
            raise invalid(name, value, f"one of {', '.join(repr(member.value) for member in kind)}") from None

    return parse
