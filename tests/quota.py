"""Count the cases that occur among the examples of a property, because a property without the relevant cases tests
nothing.

::

    @meets(matching=20, skipped=5)
    @given(...)
    def test_...(...):
        met("matching", any(rows))
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis

from tests.effort import QUICK

F = TypeVar("F", bound=Callable[..., Any])

_counts: Counter[str] = Counter()


def met(what: str, condition: object = True) -> None:
    """Count the current example for the case ``what`` if ``condition`` is true, and report it to hypothesis
    (``--hypothesis-show-statistics``)."""
    if condition:
        _counts[what] += 1
        hypothesis.event(what)


def meets(**least: int) -> Callable[[F], F]:
    """Let a property fail if a case occurs less often among its examples than required; write it above ``@given`` and
    ``@settings``."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            if QUICK:
                # The few examples of a quick run may not contain a case.
                function(*args, **kwargs)
                return
            rare: dict[str, str] = {}
            # A case may occur too rarely by chance, so the property runs once more.
            for _ in range(2):
                _counts.clear()
                function(*args, **kwargs)
                rare = {what: f"{_counts[what]} of {most}" for what, most in least.items() if _counts[what] < most}
                if not rare:
                    return
            assert not rare, f"the property met too few of these cases: {rare}"

        return run  # type: ignore[return-value]

    return decorate
