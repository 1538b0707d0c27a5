from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.calendars import civil_of, days_of

EPOCH = datetime.date(1970, 1, 1).toordinal()


@given(st.dates())
def test_days_agree_with_the_standard_library(day):
    days = day.toordinal() - EPOCH
    assert days_of(day.year, day.month, day.day) == days
    assert civil_of(days) == (day.year, day.month, day.day)


@given(st.integers(-(2**31), 2**31 - 1))
def test_days_and_dates_are_inverse_far_from_today(days):
    assert days_of(*civil_of(days)) == days


@given(st.dates(), st.integers(-5, 5))
def test_the_calendar_repeats_every_400_years(day, cycles):
    days = days_of(day.year + 400 * cycles, day.month, day.day)
    assert days == day.toordinal() - EPOCH + 146_097 * cycles


@pytest.mark.parametrize(
    "date", [(2023, 2, 29), (1900, 2, 29), (2023, 4, 31), (2023, 1, 0), (2023, 1, 32), (2023, 0, 1), (2023, 13, 1)]
)
def test_days_outside_the_calendar_are_none(date):
    assert days_of(*date) is None
    assert days_of(2024, 2, 29) is not None
    assert days_of(0, 2, 29) is not None
