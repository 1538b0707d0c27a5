"""Splitting bodies into lines, and decoding many of those at once."""

from __future__ import annotations

import time
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.actions import Metadata
from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol import lines as wire_lines
from delta_sharing_client.protocol.body import Block, split_blocks
from delta_sharing_client.protocol.lines import Line
from delta_sharing_client.protocol.loose import Loosened
from tests.quota import meets, met

decode = msgspec.json.Decoder(Line).decode
# Whole lines, and pieces of which some make a line, or two lines, or half of one.
WHOLE = [
    b'{"file":{"id":"a"}}',
    b'{"endStreamAction":{}}',
    b"{}",
    b' {"new":[[1],{"a":2}]}\t',
    b'{"add":{"id":"\xc3\xa9"}}\r',
]
PARTS = [
    b"{",
    b"}",
    b'{"new":[',
    b'["x"',
    b'"y"]',
    b"]}",
    b",",
    b"1",
    b"null",
    b"",
    b" ",
    b'"',
    b"\xff",
    b'{"new":',
    b'{"file":{}}',
]

pieces = st.lists(st.sampled_from([b"a", b"{}", b"\n", b"\r\n", b"\r", "\u2028".encode(), b"\x85", b"", b" "]))


@meets(split=18, incomplete=18)
@given(chunks=st.lists(pieces.map(b"".join)))
def test_lines_are_those_of_the_whole_body_however_it_arrives(chunks):
    blocks = list(split_blocks(chunks))

    body = b"".join(chunks)
    lines = [line for block in blocks for line in block.lines]
    met("split", len(blocks) > 1 and len(lines) > 1)
    met("incomplete", body and not body.endswith(b"\n"))
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


@meets(read=8, refused=8)
@given(
    lines=st.lists(st.sampled_from(WHOLE), min_size=1)
    | st.lists(st.lists(st.sampled_from([*WHOLE, *PARTS, b"\n"]), max_size=4).map(b"".join), min_size=1)
)
def test_lines_decoded_at_once_are_those_decoded_one_by_one(lines):
    text = b"\n".join(lines)
    try:
        expected = [decode(line) for line in text.split(b"\n")]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        expected = None
    met("refused" if expected is None else "read")
    assert wire_lines._decoded_at_once(text) == expected


def test_lines_of_files_are_decoded_at_once_unless_one_may_be_an_error():
    text = b'{"file":{"id":"a","url":"%s"}}\n{"file":{"id":"b"}}\n{"file":{"id":"c"}}'
    assert [line.file.id for line in wire_lines._decoded_at_once(text)] == ["a", "b", "c"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_lines, "_MOST_AT_ONCE", len(text))
        assert wire_lines._decoded_at_once(text) is not None
        patch.setattr(wire_lines, "_MOST_AT_ONCE", len(text) - 1)
        assert wire_lines._decoded_at_once(text) is None
    for code in (b"errorCode", b"error_code"):
        assert wire_lines._decoded_at_once(text + b'\n{"%s":"X"}' % code) is None


@pytest.mark.parametrize(("names", "is_refused"), [(3, False), (4, True)])
def test_a_schema_has_so_many_fields(monkeypatch, names, is_refused):
    monkeypatch.setattr(wire_lines, "MAX_COLUMNS", 3)
    line = wire_lines.MetadataLine(delta_metadata=Metadata("i", '"name"' * names))
    if is_refused:
        with pytest.raises(ProtocolError, match="at most 3 columns and fields, found 4"):
            wire_lines.read_metadata(line, ResponseFormat.DELTA, "t")
    else:
        assert wire_lines.read_metadata(line, ResponseFormat.DELTA, "t").id == "i"


@pytest.mark.parametrize("between", [b",", b",5,", b""])
@pytest.mark.parametrize("halves", [(b'{"new":[1', b"2]}"), (b'{"new":[[1]', b"[2]]}"), (b'{"new":', b"3}")])
def test_a_line_that_holds_two_does_not_make_up_for_one_that_is_broken(halves, between):
    text = b"{}" + between + b"{}\n" + b"\n".join(halves)
    assert wire_lines._decoded_at_once(text) is None


def test_lines_are_decoded_one_by_one_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(wire_lines, "SHORTCUTS", SimpleNamespace(lines_at_once=False))
    monkeypatch.setattr(wire_lines, "_decoded_at_once", None)
    subject = wire_lines.Subject(doing="x", table="t", secrets=list, status=200, content_type="x")
    lines = wire_lines.Lines(subject, Loosened("x")).of(Block(b'{"file":{"id":"a"}}\n{}', complete=True))
    assert [line.file and line.file.id for line in lines] == ["a", None]


@pytest.mark.parametrize(("blank", "is_refused"), [(2, False), (3, True)])
def test_only_so_many_lines_are_blank(monkeypatch, blank, is_refused):
    monkeypatch.setattr(wire_lines, "_MAX_BLANK_LINES", 2)
    subject = wire_lines.Subject(doing="x", table="t", secrets=list, status=200, content_type="x")
    lines = wire_lines.Lines(subject, Loosened("x")).of(Block(b"\n" * (blank - 1), complete=True))
    if is_refused:
        with pytest.raises(ProtocolError, match="line 3 of the response is malformed: more than 2 lines are blank"):
            list(lines)
    else:
        assert list(lines) == [wire_lines.NOTHING] * blank


def test_only_so_many_partitions_are_remembered(monkeypatch):
    monkeypatch.setattr(wire_lines, "_INTERNED", 2)
    reader = wire_lines.FileReader(ResponseFormat.PARQUET, wire_lines.AnswerKind.SNAPSHOT)
    for number in range(5):
        file = wire_lines.FileLine(id="a", url="u", partition_values={"p": str(number)})
        assert reader.read(Line(file=file)).action.partition_values == {"p": str(number)}
        assert len(reader._known) <= 2


@pytest.mark.parametrize("text", [b"5", b"{}\n5", b"5\n{}"])
def test_a_number_is_no_line(text):
    assert wire_lines._decoded_at_once(text) is None


def test_what_is_beyond_the_nesting_of_one_line_is_left_to_it():
    text = b"\n".join([b"{}", b'{"new":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
    assert wire_lines._decoded_at_once(text) is None
    assert wire_lines._decoded_at_once(b'{"new":"' + b"x" * 5_000_000 + b'"}') is None
