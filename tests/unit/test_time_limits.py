"""Time limits are extended only if the machine is slow or busy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import time_limits
from tests.time_limits import Stopwatch


class Now:
    """A clock that advances only when the test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Now, list[float]]]:
    """Let the reference work take the given durations in turn; return the clock and the list of remaining
    durations."""

    def make(*seconds: float) -> tuple[Now, list[float]]:
        now, left = Now(), list(seconds)

        def work() -> None:
            now.now += left.pop(0)

        monkeypatch.setattr(time_limits, "_work", work)
        return now, left

    return make


def test_call_within_its_limit_is_not_extended(works: Callable[..., tuple[Now, list[float]]]) -> None:
    now, _ = works()
    clock = Stopwatch(now)
    now.now += 4.9
    assert clock.within(5)
    assert (round(clock.took, 6), clock.allowed) == (4.9, 5)


def test_limit_grows_with_the_slowest_measured_work(works: Callable[..., tuple[Now, list[float]]]) -> None:
    usual = time_limits._REFERENCE
    now, left = works(usual, 3 * usual, usual)
    clock = Stopwatch(now)
    now.now += 14.9
    assert clock.within(5)
    assert clock.allowed == pytest.approx(15)
    assert left == [usual]


def test_limit_is_not_extended_on_an_idle_machine(works: Callable[..., tuple[Now, list[float]]]) -> None:
    now, left = works(*[time_limits._REFERENCE / 2] * 3)
    clock = Stopwatch(now)
    now.now += 5.1
    assert not clock.within(5)
    assert (clock.allowed, left) == (5, [])
    assert "allowed=5.00" in repr(clock)


def test_slowness_of_this_machine_is_at_least_one() -> None:
    assert time_limits.slowness() >= 1
