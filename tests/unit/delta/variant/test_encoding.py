"""Variants are encoded in the fewest bytes that the format allows."""

from __future__ import annotations

import struct

import pytest

from delta_sharing_client.delta.variant import encoding
from delta_sharing_client.errors import DataError
from tests.unit.delta.variant_encoder import container, dictionary, encode, primitive, text


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 300])
@pytest.mark.parametrize("size", [1, 250, 70_000])
def test_objects_and_arrays_match_an_independent_encoder(count: int, size: int) -> None:
    values = [primitive(0)] * (count - 1) + [text("x" * size)] * bool(count)
    assert encoding.encode_array(values) == container(values)
    # The field ids are not in the order of the names.
    for first in (0, 200, 70_000):
        names = [(f"{number:05}", first + count - number, value) for number, value in enumerate(values)]
        encoded = encoding.encode_object(names[::-1])
        assert encoded == container(values, [field_id for _, field_id, _ in names])
        layout = encoding.layout(encoded, 0, len(encoded))
        assert (layout.stop, len(layout.offsets)) == (len(encoded), count + 1)


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 300])
def test_string_up_to_63_bytes_has_the_short_form(size: int) -> None:
    assert encoding.write_primitive(encoding.Primitive.STRING, b"x" * size) == text("x" * size)
    data = struct.pack("<I", size) + b"x" * size
    assert encoding.write_primitive(encoding.Primitive.BINARY, b"x" * size) == primitive(15, data)


@pytest.mark.parametrize("size", [1, 20])
def test_short_string_beyond_its_buffer_is_refused(size: int) -> None:
    value = bytes(9) + text("x" * size)
    assert encoding.size_of(value, 9, len(value)) == size + 1
    with pytest.raises(DataError, match=f"ends inside a string: {size + 1} bytes expected, {size} found"):
        encoding.size_of(value, 9, len(value) - 1)


def test_total_length_of_names_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_KEY_TEXT", 6)
    names = ["abc", "de", "f", "g"]
    metadata = encoding.VariantMetadata(dictionary(names))
    tree = {"abc": 1, "de": {"f": 2}}
    assert encoding.decode(encode(tree, names), metadata) == tree
    with pytest.raises(DataError, match="at most 6 characters"):
        encoding.decode(encode({**tree, "g": 3}, names), metadata)


@pytest.mark.parametrize("kind", ["array", "object", "both"])
def test_nesting_of_every_kind_is_limited(kind: str) -> None:
    metadata = encoding.VariantMetadata(dictionary(["a"]))

    def nested(levels: int) -> bytes:
        value = primitive(0)
        for level in range(levels):
            value = container([value], [0] if kind == "object" or (kind == "both" and level % 2) else None)
        return value

    encoding.decode(nested(encoding.MAX_DEPTH), metadata)
    encoding.decode_json(nested(encoding.MAX_DEPTH), metadata)
    for decode in (encoding.decode, encoding.decode_json):
        with pytest.raises(DataError, match="deeper"):
            decode(nested(encoding.MAX_DEPTH + 1), metadata)
