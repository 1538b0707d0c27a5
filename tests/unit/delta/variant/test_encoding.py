"""Variants are encoded in as few bytes as the format allows."""

from __future__ import annotations

import pytest

from delta_sharing_client.delta.variant import encoding


@pytest.mark.parametrize(
    ("largest", "width"),
    [(0, 1), (1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 3), (2**24 - 1, 3), (2**24, 4), (2**32 - 1, 4)],
)
def test_a_number_has_the_fewest_bytes_that_hold_it(largest: int, width: int) -> None:
    assert encoding._width(largest) == width
