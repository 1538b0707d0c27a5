"""Timestamps in arguments, which are all parsed alike, and the civil calendar."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import ProfileError, UsageError
from delta_sharing_client.instants import (
    civil_of,
    days_of,
    format_date,
    format_millis,
    parse_date,
    parse_instant,
    to_instant,
)
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.hints import from_json_hints
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import Comparison
from delta_sharing_client.protocol.profile import Profile
from tests.quota import meets, met

UTC = datetime.timezone.utc
ONE_HOUR_EAST = datetime.timezone(datetime.timedelta(hours=1))
PROFILE = {"shareCredentialsVersion": 1, "endpoint": "https://sharing.invalid", "bearerToken": "t"}

# Strings that users may write, and the instant to which every entry point parses them.
TEXTS = [
    ("2024-01-31", "2024-01-31T00:00:00Z"),
    ("2024-01", "2024-01-01T00:00:00Z"),
    ("2024", "2024-01-01T00:00:00Z"),
    ("2024-1-31 8:5", "2024-01-31T08:05:00Z"),
    ("2024-01-31T08", "2024-01-31T08:00:00Z"),
    ("2024-01-31 12:30:15.5", "2024-01-31T12:30:15.5Z"),
    ("2024-01-31T12:30:15,5Z", "2024-01-31T12:30:15.5Z"),
    ("2024-01-31t12:30:15z", "2024-01-31T12:30:15Z"),
    ("2024-01-31T12:30:15.25 GMT", "2024-01-31T12:30:15.25Z"),
    ("2024-01-31T12:30:15 UTC", "2024-01-31T12:30:15Z"),
    ("2024-01-31T12:30:15+02:00", "2024-01-31T10:30:15Z"),
    ("2024-01-31T12:30:15+2:00", "2024-01-31T10:30:15Z"),
    ("2024-01-31T12:30:15+0200", "2024-01-31T10:30:15Z"),
    ("2024-01-31T12:30:15+02", "2024-01-31T10:30:15Z"),
    ("2024-01-31T12:30:15-2", "2024-01-31T14:30:15Z"),
    ("2024-01-31T12:30:15UTC+2:00", "2024-01-31T10:30:15Z"),
    ("2024-01-31T12:30:15+01:30:30", "2024-01-31T10:59:45Z"),
    ("2024-07-01 12:00:00 Europe/Berlin", "2024-07-01T10:00:00Z"),
    ("20240131T123015Z", "2024-01-31T12:30:15Z"),
    (" 2024-01-31 \n", "2024-01-31T00:00:00Z"),
]
NO_TIMESTAMPS = [
    "", "yesterday", "202", "20240131", "1706659200000", "2024-13-01", "2024-02-30T00:00:00Z", "2023-02-29", "12:00",
    "2024-01-31T24:00:00Z", "2024-01-31T12:60", "2024-01-31T12:00:60", "2024-01-31Z", "2024-01-31T12:00:00.Z",
    "2024-01-31T12:00:00+19:00", "2024-01-31T12:00:00+02:60", "2024-01-31T12:00:00+200",
    "2024-01-31T12:00:00 Mars/City", "2024-01-31T12:00:00 ../etc/passwd",
    "2024-01-31T12:00:00 Europe", "2024-01-31T12:00:00Z Z", "\u0662\u0660\u0662\u0664",
]  # fmt: skip


def _table():
    return SharingClient(PROFILE).table("a.b.c")


def _bound(expression: object) -> str:
    bound = bind(expression, pa.schema([("t", pa.timestamp("us", "UTC"))]))
    assert isinstance(bound, Comparison)
    moment = datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(
        microseconds=bound.right.value.nanoseconds // 1000
    )
    return to_instant(moment, "found")


def _json_hint(text: str) -> str:
    column, literal = ({"op": op, "valueType": "timestamp"} for op in ("column", "literal"))
    hint = {"op": "equal", "children": [column | {"name": "t"}, literal | {"value": text}]}
    return _bound(from_json_hints(json.dumps(hint)))


def _profile(text: str) -> str:
    expires = Profile.load(PROFILE | {"expirationTime": text}).expiration_time
    return to_instant(expires, "expires")


def _spark(name: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        from delta_sharing_client.spark.source_options import SparkOptions

        given = {"path": "s.t.u", "endpoint": "https://sharing.invalid", "bearerToken": "t"}
        feed = {} if name == "timestampAsOf" else {"readChangeFeed": "true"}
        parsed = SparkOptions.parse({**given, **feed, name: text})
        return str(parsed.read.timestamp if name == "timestampAsOf" else parsed.starting_timestamp)

    return read


DOORS: dict[str, Callable[[str], str]] = {
    "scan(timestamp=)": lambda text: _table().scan(timestamp=text).request.timestamp,
    "changes(starting_timestamp=)": lambda text: _table().changes(starting_timestamp=text).request.starting_timestamp,
    "changes(ending_timestamp=)": lambda text: _table().changes(0, ending_timestamp=text).request.ending_timestamp,
    "a filter as tuples": lambda text: _bound(parse_filter([("t", "=", text)])),
    "a filter as SQL": lambda text: _bound(parse_filter(f"t = '{text}'")),
    "TIMESTAMP '...'": lambda text: _bound(parse_filter(f"t = TIMESTAMP '{text}'")),
    "CAST('...' AS TIMESTAMP)": lambda text: _bound(parse_filter(f"t = CAST('{text}' AS TIMESTAMP)")),
    "JSON hints": _json_hint,
    "Spark's timestampAsOf": _spark("timestampAsOf"),
    "Spark's startingTimestamp": _spark("startingTimestamp"),
    "expirationTime of a profile": _profile,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_timestamp_string_is_the_same_instant_everywhere(door: str, text: str, expected: str) -> None:
    if "TIMESTAMP" in door and re.search(r":\S*[+-]0*[1-9]|/", text):
        with pytest.raises(UsageError, match="DuckDB ignores the zone"):
            DOORS[door](text)
    else:
        assert DOORS[door](text) == expected


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("text", NO_TIMESTAMPS)
def test_invalid_timestamp_is_refused_everywhere(door: str, text: str) -> None:
    with pytest.raises((UsageError, ProfileError)) as caught:
        DOORS[door](text)
    if door not in ("expirationTime of a profile",):
        assert "is not a timestamp; write it as yyyy-mm-dd hh:mm:ss" in caught.value.message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2024-01-31", "2024-01-31T00:00:00Z"),
        ("2024-01-31T12:30", "2024-01-31T12:30:00Z"),
        ("2024-01-31 12:30:15.5", "2024-01-31T12:30:15.5Z"),
        ("2024-01-31T12:30:15Z", "2024-01-31T12:30:15Z"),
        ("2024-01-31T12:30:15+02:00", "2024-01-31T10:30:15Z"),
        ("2024-01-31T00:30:15-0130", "2024-01-31T02:00:15Z"),
        (datetime.date(2024, 1, 31), "2024-01-31T00:00:00Z"),
        (datetime.datetime(2024, 1, 31, 12), "2024-01-31T12:00:00Z"),
        (datetime.datetime(2024, 1, 31, 12, tzinfo=ONE_HOUR_EAST), "2024-01-31T11:00:00Z"),
    ],
)
def test_timestamp_argument_is_converted_to_a_utc_string(value: object, expected: str) -> None:
    assert to_instant(value, "timestamp") == expected


@pytest.mark.parametrize("value", ["", "yesterday", "2024-13-01", "2024-02-30T00:00:00Z", "202", 5, None, "12:00"])
def test_error_for_an_invalid_value_names_the_argument(value: object) -> None:
    with pytest.raises(UsageError, match="starting_timestamp"):
        to_instant(value, "starting_timestamp")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "before", "after"),
    [
        ("2024-01-31T12:00:00.0005Z", "2024-01-31T12:00:00Z", "2024-01-31T12:00:00.001Z"),
        ("2024-01-31T12:00:00.000000001Z", "2024-01-31T12:00:00Z", "2024-01-31T12:00:00.001Z"),
        ("1969-12-31T23:59:59.9995Z", "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z"),
        ("2024-01-31T12:00:00.120Z", "2024-01-31T12:00:00.12Z", "2024-01-31T12:00:00.12Z"),
        (datetime.datetime(2024, 1, 31, 12, 0, 0, 999_999), "2024-01-31T12:00:00.999Z", "2024-01-31T12:00:01Z"),
        (pd.Timestamp("2024-01-31T12:00:00.000000001"), "2024-01-31T12:00:00Z", "2024-01-31T12:00:00.001Z"),
    ],
)
def test_start_is_rounded_up_and_end_down_to_milliseconds(value: object, before: str, after: str) -> None:
    assert to_instant(value, "ending_timestamp") == before
    assert to_instant(value, "starting_timestamp", up=True) == after
    if isinstance(value, (str, datetime.datetime)):
        changes = _table().changes(starting_timestamp=value, ending_timestamp=value).request
        assert (changes.starting_timestamp, changes.ending_timestamp) == (after, before)


@pytest.mark.parametrize("text", ["10000-01-01", "0000-12-31", "9999-12-31T23:59:59-01:00", "-0001-01-01"])
def test_instants_outside_years_1_to_9999_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="years 1 to 9999"):
        parse_instant(text)
    with pytest.raises(UsageError, match="years 1 to 9999"):
        to_instant(text, "timestamp")


@meets(fraction=15, past=8)
@given(st.datetimes(timezones=st.just(UTC), min_value=datetime.datetime(1000, 1, 1)))
def test_every_instant_round_trips_through_text(moment: datetime.datetime) -> None:
    met("fraction", moment.microsecond >= 1000)
    met("past", moment.year < 1970)
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    text = to_instant(moment, "timestamp")
    assert parse_instant(text) == moment
    assert to_instant(text, "timestamp") == to_instant(text, "timestamp", up=True) == text


LIKE_INSTANTS = st.from_regex(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9]([ T][0-2][0-9]:[0-5][0-9](Z|[+-]0[0-9]:00)?)?", fullmatch=True
)


@meets(read=7, refused=18)
@given(LIKE_INSTANTS | st.text(alphabet="0123456789-+:.,TZ UTCGM/Eu", max_size=30))
def test_random_timestamp_string_is_read_or_refused(text: str) -> None:
    try:
        moment = parse_instant(text)
    except UsageError:
        met("refused")
    else:
        met("read")
        assert 1 <= moment.year <= 9999


EPOCH = datetime.date(1970, 1, 1).toordinal()


@meets(past=16, leap=5)
@given(st.dates())
def test_days_agree_with_the_standard_library(day):
    met("past", day.year < 1970)
    met("leap", day.year % 4 == 0 and day.month > 2)
    days = day.toordinal() - EPOCH
    assert days_of(day.year, day.month, day.day) == days
    assert civil_of(days) == (day.year, day.month, day.day)


@meets(before=4, after=1)
@given(st.integers(-(2**31), 2**31 - 1))
def test_days_and_dates_are_inverse_far_from_today(days):
    met("before", civil_of(days)[0] < 1)
    met("after", civil_of(days)[0] > 9999)
    assert days_of(*civil_of(days)) == days


@meets(other=21)
@given(st.dates(), st.integers(-5, 5))
def test_the_calendar_repeats_every_400_years(day, cycles):
    met("other", cycles)
    days = days_of(day.year + 400 * cycles, day.month, day.day)
    assert days == day.toordinal() - EPOCH + 146_097 * cycles


@pytest.mark.parametrize(
    "date", [(2023, 2, 29), (1900, 2, 29), (2023, 4, 31), (2023, 1, 0), (2023, 1, 32), (2023, 0, 1), (2023, 13, 1)]
)
def test_dates_that_do_not_exist_have_no_day_number(date):
    assert days_of(*date) is None
    assert days_of(2024, 2, 29) is not None
    assert days_of(0, 2, 29) is not None


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970-01-01", 0),
        ("1970-1-2", 1),
        ("1970", 0),
        ("1970-02", 31),
        ("-0001-12-31", -719529),
        ("+10000-01-01", 2932897),
    ],
)
def test_dates_are_parsed_and_formatted(text: str, days: int) -> None:
    assert parse_date(text) == days
    assert parse_date(format_date(days)) == days


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01 00:00:00 UTC"),
        (1_706_688_000_250, "2024-01-31 08:00:00.250 UTC"),
        (-1, "1969-12-31 23:59:59.999 UTC"),
        (-62_167_219_200_001, "-0001-12-31 23:59:59.999 UTC"),
    ],
)
def test_milliseconds_are_shown_as_a_date_in_messages(milliseconds: int, text: str) -> None:
    assert format_millis(milliseconds) == text
