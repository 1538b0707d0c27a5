"""Timestamps as callers give them."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.errors import UsageError
from delta_sharing_client.instants import to_instant

UTC = datetime.timezone.utc
ONE_HOUR_EAST = datetime.timezone(datetime.timedelta(hours=1))


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
def test_value_becomes_utc_text(value: object, expected: str) -> None:
    assert to_instant(value, "timestamp") == expected


@pytest.mark.parametrize("value", ["", "yesterday", "2024-13-01", "2024-02-30T00:00:00Z", "2024", 5, None, "12:00"])
def test_anything_else_is_refused_with_the_arguments_name(value: object) -> None:
    with pytest.raises(UsageError, match="starting_timestamp"):
        to_instant(value, "starting_timestamp")  # type: ignore[arg-type]


@given(st.datetimes(timezones=st.just(UTC), min_value=datetime.datetime(1000, 1, 1)))
def test_every_instant_survives(moment: datetime.datetime) -> None:
    text = to_instant(moment, "timestamp")
    assert datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ" if "." in text else "%Y-%m-%dT%H:%M:%SZ") == (
        moment.replace(tzinfo=None)
    )
    assert to_instant(text, "timestamp") == text
