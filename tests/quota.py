"""Counts the cases that the examples of a property met: one whose examples never hold what it is about passes for
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
    """Count an example that holds ``what``, and tell hypothesis of it (``--hypothesis-show-statistics``)."""
    if condition:
        _counts[what] += 1
        hypothesis.event(what)


def meets(**least: int) -> Callable[[F], F]:
    """Let a property fail whose examples met something less often; it stands above ``@given`` and ``@settings``."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            if QUICK:
                # The few examples of a quick run may meet nothing.
                function(*args, **kwargs)
                return
            rare: dict[str, str] = {}
            # By chance one run of examples may meet less.
            for _ in range(2):
                _counts.clear()
                function(*args, **kwargs)
                rare = {what: f"{_counts[what]} of {most}" for what, most in least.items() if _counts[what] < most}
                if not rare:
                    return
            assert not rare, f"the property met too little of what it is about: {rare}"

        return run  # type: ignore[return-value]

    return decorate
