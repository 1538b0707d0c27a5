from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.deletion_vectors import z85_decode, z85_encode
from delta_sharing_client.errors import DataError, UsageError


def test_the_example_of_the_zeromq_rfc_converts_both_ways():
    data = bytes.fromhex("864FD26FB559F75B")
    assert z85_encode(data) == "HelloWorld"
    assert z85_decode("HelloWorld") == data


def test_empty_text_is_no_bytes():
    assert z85_decode("") == b""
    assert z85_encode(b"") == ""


def test_largest_group_is_four_ff_bytes_and_one_more_is_refused():
    assert z85_decode("%nSc0") == b"\xff" * 4
    with pytest.raises(DataError, match="32 bits, those at position 5"):
        z85_decode("00000%nSc1")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Hello1", "multiple of 5, found 6"),
        ("Hel~o", "found '~' at position 3"),
        ("Hel o", "found ' ' at position 3"),
        ("Hel,o", "found ',' at position 3"),
        ("Helöo", "not ASCII"),
        ("Hel\ud800o", "not ASCII"),
        ("\x000000", "at position 0"),
    ],
)
def test_text_outside_the_format_is_refused_with_the_place(text, reason):
    with pytest.raises(DataError, match=reason):
        z85_decode(text)


def test_bytes_that_are_no_multiple_of_four_are_refused():
    with pytest.raises(UsageError, match="found 5"):
        z85_encode(b"12345")


@given(st.binary(max_size=64).map(lambda data: data + bytes(-len(data) % 4)))
def test_bytes_survive_a_round_trip(data):
    text = z85_encode(data)
    assert len(text) * 4 == len(data) * 5
    assert z85_decode(text) == data
