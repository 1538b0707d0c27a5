from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.deletion_vectors import z85_decode, z85_encode
from delta_sharing_client.errors import DataError, UsageError
from tests.quota import meets, met
from tests.vectors import in_padded_text


def test_example_of_the_zeromq_rfc_round_trips():
    data = bytes.fromhex("864FD26FB559F75B")
    assert z85_encode(data) == "HelloWorld"
    assert z85_decode("HelloWorld") == data


def test_empty_string_decodes_to_no_bytes():
    assert z85_decode("") == b""
    assert z85_encode(b"") == ""


def test_group_of_more_than_32_bits_is_refused():
    assert z85_decode("%nSc0") == b"\xff" * 4
    with pytest.raises(DataError, match="32 bits, but the one at position 5"):
        z85_decode("00000%nSc1")


def test_padding_shortens_the_last_group():
    assert z85_decode("HelloWorld##093") == bytes.fromhex("864FD26FB559F75B0300")
    assert z85_decode("###30") == b"\xff"
    assert z85_decode("##960") == b"\xff\xff"
    assert z85_decode("#rr90") == b"\xff\xff\xff"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((f"Hello{tail}", r"must fit in \d byte") for tail in ("###31", "##961", "#rr91")),
        *((text, "at most 3 '#'") for text in ("####0", "#####", "Hello####0")),
        ("Hello##093World", "32 bits, but the one at position 5"),
        ("Hello1", "multiple of 5, found 6"),
        ("Hel~o", "found '~' at position 3"),
        ("Hel o", "found ' ' at position 3"),
        ("Hel,o", "found ',' at position 3"),
        ("Helöo", "not ASCII"),
        ("Hel\ud800o", "not ASCII"),
        ("\x000000", "at position 0"),
    ],
)
def test_error_of_invalid_text_says_what_is_wrong(text, reason):
    with pytest.raises(DataError, match=reason):
        z85_decode(text)


def test_length_not_divisible_by_four_is_refused():
    with pytest.raises(UsageError, match="found 5"):
        z85_encode(b"12345")


@meets(padded=19, whole=5)
@given(st.binary(max_size=64))
def test_bytes_round_trip_with_padding(data):
    met("padded" if len(data) % 4 else "whole")
    assert z85_decode(in_padded_text(data)) == data


@meets(bytes=12)
@given(st.binary(max_size=64).map(lambda data: data + bytes(-len(data) % 4)))
def test_bytes_round_trip(data):
    met("bytes", len(data) > 4)
    text = z85_encode(data)
    assert len(text) * 4 == len(data) * 5
    assert z85_decode(text) == data
