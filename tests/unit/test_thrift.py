"""Thrift's compact protocol: valid structs are read and skipped, invalid ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client import thrift
from delta_sharing_client.thrift import binary, boolean, list_of, number, read_struct, skip, skip_struct, varint
from tests.memory import python_peak
from tests.quota import meets, met
from tests.unit.parquet.compact import as_list, as_number, as_varint

TRUE, FALSE, BYTE, SHORT, INT, LONG, DOUBLE, BINARY, LIST, SET, STRUCT, UUID = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13


# A value: its Thrift type, its bytes, and the value read from them.
Value = tuple[int, bytes, Any]
# A field: its id or the distance from the previous id, whether the first item is the id, and the value.
Field = tuple[int, bool, Value]


def raw(kind: int, data: bytes) -> Value:
    return kind, data, data


def as_struct(fields: list[Field]) -> tuple[bytes, dict[int, Any]]:
    written, found, last = b"", {}, 0
    for place, in_full, (kind, data, value) in fields:
        last = place if in_full else last + place
        written += (bytes([kind]) + as_number(place) if in_full else bytes([place << 4 | kind])) + data
        found[last] = value
    return written + b"\0", found


SIGNED = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
NUMBERS = st.builds(as_number, SIGNED)
BYTES = st.binary(max_size=20) | st.just(b"\0" * 130)
BINARIES = st.builds(lambda value: as_varint(len(value)) + value, BYTES)
NUMBER_LISTS = st.lists(NUMBERS, max_size=3) | st.builds(
    lambda item, count: [item] * count, NUMBERS, st.integers(14, 200)
)
FLAGS = st.lists(st.sampled_from([b"\0", b"\1", b"\2"]), max_size=4)
SHORT_LISTS = (
    st.builds(lambda kind, items: raw(LIST, as_list(kind, items)), st.sampled_from([SHORT, INT, LONG]), NUMBER_LISTS)
    | st.builds(lambda items: raw(LIST, as_list(BINARY, items)), st.lists(BINARIES, max_size=4))
    | st.builds(lambda kind, items: raw(SET, as_list(kind, items)), st.sampled_from([TRUE, FALSE]), FLAGS)
    | st.builds(lambda data: raw(LIST, as_list(BYTE, [data[at : at + 1] for at in range(len(data))])), st.binary())
)
PLAIN = (
    st.builds(lambda kind, value: (kind, as_number(value), value), st.sampled_from([SHORT, INT, LONG]), SIGNED)
    | st.sampled_from([(TRUE, b"", True), (FALSE, b"", False)])
    | st.builds(lambda value: (BINARY, as_varint(len(value)) + value, value), BYTES)
    | st.builds(lambda data: raw(BYTE, data), st.binary(min_size=1, max_size=1))
    | st.builds(lambda data: raw(DOUBLE, data), st.binary(min_size=8, max_size=8))
    | st.builds(lambda data: raw(UUID, data), st.binary(min_size=16, max_size=16))
    | SHORT_LISTS
)


def fields_of(values: st.SearchStrategy[Value]) -> st.SearchStrategy[list[Field]]:
    places = st.tuples(st.integers(1, 15), st.just(False)) | st.tuples(st.integers(-40, 3000), st.just(True))
    return st.lists(st.tuples(places, values).map(lambda item: (*item[0], item[1])), max_size=6)


VALUES = st.recursive(
    PLAIN,
    lambda below: (
        st.builds(lambda fields: (STRUCT, *as_struct(fields)), fields_of(below))
        | st.builds(
            lambda items: raw(LIST, as_list(STRUCT, [as_struct(fields)[0] for fields in items])),
            st.lists(fields_of(below), max_size=5),
        )
        | st.builds(
            lambda items: raw(LIST, as_list(LIST, [item[1] for item in items])), st.lists(SHORT_LISTS, max_size=3)
        )
    ),
    max_leaves=20,
)
STRUCTS = st.builds(as_struct, fields_of(VALUES) | fields_of(PLAIN).map(lambda fields: fields * 12))


@meets(fields=24, many=17)
@given(STRUCTS, st.binary(max_size=9), st.binary(max_size=3))
def test_a_struct_is_read_and_skipped_to_its_end(
    struct: tuple[bytes, dict[int, Any]], after: bytes, before: bytes
) -> None:
    data, expected = struct
    met("fields", len(data) > 1)
    met("many", len(data) > 100)
    end = len(before + data)
    assert read_struct(before + data + after, len(before)) == (expected, end)
    assert skip_struct(before + data + after, len(before)) == end
    assert read_struct(data, 0) == (expected, len(data))
    assert skip_struct(data, 0) == len(data)


def test_value_of_every_type_is_read() -> None:
    written = bytes.fromhex("15 02 16 ff01 14 83ffffffffffffffff01 11 12 f8 02 6869 1c 15 00 00 23 7f")
    written += b"\x17ABCDEFGH\x1d0123456789abcdef" + b"\x19\x25\x02\x04\x1a\x11\x01" + b"\x04\x01\x02\0"
    expected = {1: 1, 2: -128, 3: -(2**63) + 62, 4: True, 5: False, 20: b"hi", 21: {1: 0}, 23: b"\x7f", 24: b"ABCDEFGH"}
    # Lists are read as bytes. The last field has an explicit id, which may be negative.
    expected |= {25: b"0123456789abcdef", 26: b"\x25\x02\x04", 27: b"\x11\x01", -1: 1}
    assert read_struct(written, 0) == (expected, len(written))
    assert skip_struct(written, 0) == len(written)


@meets(refused=10, read=13)
@given(st.binary(max_size=200) | STRUCTS.map(lambda struct: struct[0]), st.data())
def test_skipping_a_damaged_struct_ends_where_reading_it_ends(struct: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(struct)))
    damaged = struct[:at] + data.draw(st.binary(max_size=3)) + struct[at + data.draw(st.integers(0, 3)) :]
    try:
        expected = read_struct(damaged, 0)[1]
    except (ValueError, IndexError):
        met("refused")
        with pytest.raises((ValueError, IndexError)):
            skip_struct(damaged, 0)
        return
    met("read", expected > 1)
    assert skip_struct(damaged, 0) == expected


@pytest.mark.parametrize(
    "value",
    [
        (INT, as_number(-(2**31))),
        (DOUBLE, b"12345678"),
        (UUID, b"1" * 16),
        (BYTE, b"1"),
        (BINARY, b"\x14" + b"a" * 20),
        (LIST, as_list(INT, [as_number(n * 100) for n in range(70)])),
        (LIST, as_list(BINARY, [b"\x02ab"] * 20)),
        (SET, as_list(TRUE, [b"\1", b"\2"])),
        (STRUCT, b"\x15\x02\x00"),
        (LIST, as_list(STRUCT, [b"\x1c\x00\x00"])),
        (LIST, as_list(UUID, [b"1" * 16] * 2)),
    ],
    ids=str,
)
def test_truncated_struct_is_refused(value: tuple[int, bytes]) -> None:
    kind, data = value
    whole = bytes([0x10 | kind]) + data + b"\0"
    assert read_struct(whole, 0)[1] == skip_struct(whole, 0) == len(whole)
    for stop in range(len(whole)):
        for walk in (read_struct, skip_struct):
            with pytest.raises((ValueError, IndexError)):
                walk(whole[:stop], 0)


def test_footer_fields_are_skipped_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipping field by field is many times slower: unread columns would cost as much as columns that are read."""

    def one_by_one(*values: object) -> int:
        raise AssertionError(f"a field is skipped on its own: {values[1:]}")

    monkeypatch.setattr(thrift, "skip", one_by_one)
    monkeypatch.setattr(thrift, "varint", one_by_one)
    numbers = as_struct([(1, False, (LONG, as_number(2**62), 0)), (3, False, (TRUE, b"", True))])[0]
    values = [(TRUE, b""), (FALSE, b""), *((kind, as_number(-(2**63))) for kind in (SHORT, INT, LONG))]
    values += [(BINARY, bytes([size]) + b"\n" * size) for size in range(17)]
    for count in range(4):
        values += [(LIST, as_list(kind, [b"\x80\x01"] * count)) for kind in (SHORT, INT, LONG)]
        values += [(LIST, as_list(BINARY, [b"\x03abc", b"\x00", b"\x10" + b"1" * 16][:count]))]
        values += [(LIST, as_list(STRUCT, [numbers] * count))]
    inner = b"".join(bytes([1 << 4 | kind]) + data for kind, data in values) + b"\0"
    values += [(STRUCT, inner), (STRUCT, b"\x1c" + inner + b"\0")]
    for step in range(1, 16):
        for kind, data in values:
            struct = bytes([step << 4 | kind]) + data + b"\0"
            assert skip_struct(struct, 0) == len(struct)
    run = b"\x15\x02" * 100 + b"\0"
    assert skip_struct(run, 0) == len(run)
    nested = b"\x1c" + run + b"\x1c\x1c" + run + b"\0" + b"\0"
    assert skip_struct(nested, 0) == len(nested)


@pytest.mark.parametrize("header", [0x10, 0x30, 0x1B, 0x1E, 0x1F, 0xF0])
def test_types_that_parquet_does_not_use_are_refused(header: int) -> None:
    for walk in (read_struct, skip_struct):
        for struct in (bytes([header]), bytes([0x15, 0x02, header])):
            with pytest.raises(ValueError, match="unknown kind"):
                walk(struct + b"\x01\x00\x00", 0)


def test_numbers_have_at_most_64_bits() -> None:
    for value in (0, 127, 128, 16_383, 16_384, 2**63, 2**64 - 1):
        assert varint(b"!" + as_varint(value) + b"!", 1) == (value, 1 + len(as_varint(value)))
    for walk in (varint, number, binary):
        with pytest.raises(ValueError, match="64 bits"):
            walk(b"\xff" * 10 + b"\x01", 0)
    for walk in (read_struct, skip_struct):
        with pytest.raises(ValueError, match="64 bits"):
            walk(b"\x15" + b"\xff" * 10 + b"\x01\x00", 0)
    # Ten bytes hold 70 bits; writers use no more than 64 of them.
    assert varint(b"\xff" * 9 + b"\x01", 0) == (2**64 - 1, 10)


@pytest.mark.parametrize(
    ("element", "kinds", "data", "values"),
    [
        (number, (SHORT, INT, LONG), b"\x00\x01\x02\x80\x02", [0, -1, 1, 128]),
        (binary, (BINARY,), b"\x00\x01a\x02bc", [b"", b"a", b"bc"]),
        (boolean, (TRUE, FALSE), b"\x01\x02\x00", [True, False, False]),
        (read_struct, (STRUCT,), b"\x00\x15\x02\x00", [{}, {1: 1}]),
    ],
)
def test_only_lists_of_the_required_elements_are_read(
    element: Callable[..., Any], kinds: tuple[int, ...], data: bytes, values: list[Any]
) -> None:
    for kind in range(16):
        struct = bytes([0x19, len(values) << 4 | kind]) + data + b"\0"
        if kind in kinds:
            assert read_struct(struct, 0, lists={1: list_of(element)}) == ({1: values}, len(struct))
        else:
            with pytest.raises(ValueError, match=f"elements of the wrong kind {kind}"):
                read_struct(struct, 0, lists={1: list_of(element)})
        # An empty list may have any element type.
        assert read_struct(bytes([0x19, kind, 0]), 0, lists={1: list_of(element)}) == ({1: []}, 3)


def test_invalid_boolean_is_refused() -> None:
    with pytest.raises(ValueError, match="a boolean has the value 3"):
        boolean(b"\x03", 0)


@pytest.mark.parametrize("walk", [read_struct, skip_struct, list_of(boolean)])
def test_a_list_has_no_more_elements_than_bytes(walk: Callable[..., Any]) -> None:
    """A length of billions is refused before memory is allocated."""
    field = b"" if walk not in (read_struct, skip_struct) else b"\x19"
    with pytest.raises(ValueError, match="longer than the data"):
        walk(field + b"\xf1" + as_varint(2**40) + b"\x01\x01\x00", 0)
    for count in (3, 20):
        data = field + as_list(TRUE, [b"\x01"] * count)
        with pytest.raises(ValueError, match="longer than the data"):
            walk(data[:-1], 0)


@pytest.mark.parametrize("around", [b"%s\x00", b"\x1c%s\x00\x00", b"\x19\x1c%s\x00\x00"])
def test_millions_of_fields_are_skipped_without_memory(around: bytes) -> None:
    """A regular expression stores each repetition of a group: 20 MB of a footer once took 1.7 GB."""
    footer = around % (b"\x15\x00" * 1_000_000)
    assert skip_struct(footer, 0) == len(footer)
    assert python_peak(lambda: skip_struct(footer, 0)) < 1024 * 1024


@pytest.mark.parametrize(
    "other", [b"\x15\x02", b"\x11", b"\x18\x01a", b"\x1c\x00"], ids=["number", "bool", "binary", "struct"]
)
def test_field_that_is_not_a_list_is_refused(other: bytes) -> None:
    with pytest.raises(ValueError, match="not a list"):
        read_struct(other + b"\x00", 0, lists={1: list_of(number)})


@pytest.mark.parametrize("walk", [read_struct, skip_struct])
@pytest.mark.parametrize("head", [b"\x1c", b"\x19\x1c", b"\x1c\x19\x1c", b"\x19", b"\x1a", b"\x19\x1a\x1c"])
def test_excessive_nesting_is_refused(walk: Callable[..., Any], head: bytes) -> None:
    with pytest.raises(ValueError, match="too deep"):
        walk(head * 100_000, 0)


@pytest.mark.parametrize(("walk", "deepest"), [(read_struct, 32), (skip_struct, 34)])
def test_structs_are_nested_up_to_a_limit(walk: Callable[..., Any], deepest: int) -> None:
    def nested(depth: int) -> bytes:
        return b"\x1c" * depth + b"\x00" * (depth + 1)

    assert walk(nested(deepest), 0)
    with pytest.raises(ValueError, match="too deep"):
        walk(nested(deepest + 1), 0)


@pytest.mark.parametrize("walk", [read_struct, skip_struct])
def test_lists_are_nested_up_to_a_limit(walk: Callable[..., Any]) -> None:
    def of_lists(depth: int) -> bytes:
        return b"\x19" * (depth + 1) + b"\x05\x00"

    def of_structs(depth: int) -> bytes:
        return b"\x19\x1c" * depth + b"\x00" * (depth + 1)

    for nested, deepest in ((of_lists, 32), (of_structs, 17)):
        assert walk(nested(deepest), 0)
        with pytest.raises(ValueError, match="too deep"):
            walk(nested(deepest + 1), 0)


def test_value_must_end_within_the_data() -> None:
    assert binary(b"!\x03abc", 1) == (b"abc", 5)
    assert skip(b"!12345678", 1, DOUBLE) == 9
    assert list_of(number)(b"!\x25\x02\x04", 1) == ([1, 2], 4)
    with pytest.raises(ValueError, match="longer than the data"):
        binary(b"!\x03ab", 1)
    with pytest.raises(ValueError, match="longer than the data"):
        skip(b"!1234567", 1, DOUBLE)
