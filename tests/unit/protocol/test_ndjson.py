"""Splitting bodies into lines."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.protocol.pages import split_blocks

pieces = st.lists(st.sampled_from([b"a", b"{}", b"\n", b"\r\n", b"\r", "\u2028".encode(), b"\x85", b"", b" "]))


@given(chunks=st.lists(pieces.map(b"".join)))
def test_lines_are_those_of_the_whole_body_however_it_arrives(chunks):
    blocks = list(split_blocks(chunks))

    body = b"".join(chunks)
    lines = [line for block in blocks for line in block.lines]
    assert lines == (body.split(b"\n")[:-1] if body.endswith(b"\n") or not body else body.split(b"\n"))
    assert all(block.complete for block in blocks[:-1])
    assert not blocks or blocks[-1].complete == body.endswith(b"\n")


def test_huge_line_in_small_chunks_takes_linear_time():
    pieces = 1 << 16

    started = time.process_time()
    (block,) = split_blocks([b"x" * 512] * pieces + [b"\n"])
    seconds = time.process_time() - started

    assert len(block.lines[0]) == 512 * pieces
    assert seconds < 5  # copying what is there at each chunk would move a terabyte


@pytest.mark.parametrize(
    "chunks",
    [[b"x" * 11], [b"x" * 6, b"x" * 6], [b"x" * 6, b"x" * 6 + b"\n"], [b"\n" + b"x" * 11 + b"\n"], [b"\n" + b"x" * 11]],
)
def test_line_over_the_limit_is_refused_as_soon_as_it_is_known(chunks):
    with pytest.raises(ProtocolError, match="longer than 10 bytes"):
        list(split_blocks(chunks, max_line_bytes=10))
    assert list(split_blocks([b"x" * 10 + b"\n" + b"y" * 10], max_line_bytes=10))
