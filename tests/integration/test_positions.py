"""A sample of ``python -m tools.soak positions``, which truncates or resets responses after each byte."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.effort import ALL
from tools.soak import positions


@pytest.fixture(scope="module")
def front() -> Iterator[positions.Front]:
    with positions.world() as world:
        yield world


@pytest.mark.parametrize("way", positions.WAYS)
def test_truncated_response_changes_no_row(front: positions.Front, way: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for name in positions.QUESTIONS:
            cases = list(front.cases(way, name, one_in=20 if ALL else 401))
            assert cases
            assert [wrong for wrong in pool.map(lambda case: case(), cases) if wrong is not None] == []
