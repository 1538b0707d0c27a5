"""How much is tested: a sample that detects most mistakes, everything (``TEST_EFFORT=all``), or a small part
(``TEST_EFFORT=quick``).

The samples are the same in every run. The workflow's weekly run tries everything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

ALL = os.environ.get("TEST_EFFORT") == "all"
QUICK = os.environ.get("TEST_EFFORT") == "quick"
_QUICK_EXAMPLES = 10


def examples(number: int) -> int:
    """Return the number of hypothesis examples for a property that gets ``number`` examples in a full run."""
    return number if ALL else _QUICK_EXAMPLES if QUICK else max(10, number // 3)


def sample(items: Sequence[T], one_in: int, first: int = 0) -> Sequence[T]:
    """Return every ``one_in``-th of ``items``, starting with ``first``."""
    return items if ALL else items[first::one_in]


def with_last(items: Sequence[T], one_in: int) -> Sequence[T]:
    """Return every ``one_in``-th of ``items``, and always the last."""
    return [*sample(items[:-1], one_in), *items[-1:]]
