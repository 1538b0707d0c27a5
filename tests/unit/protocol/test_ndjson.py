"""Splitting bodies into lines, and decoding many lines at once."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import delta_sharing_client as ds
from delta_sharing_client.delta.actions import Metadata
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.http.retry import Transient
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol import lines as wire_lines
from delta_sharing_client.protocol.deviations import Deviations
from delta_sharing_client.protocol.line_blocks import LineBlock, split_blocks
from delta_sharing_client.protocol.line_order import ResponseRules
from delta_sharing_client.protocol.lines import Line
from delta_sharing_client.protocol.response_stream import ask_once
from delta_sharing_client.protocol.transport import Request
from tests.quota import meets, met
from tests.time_limits import Stopwatch

decode = msgspec.json.Decoder(Line).decode


@pytest.fixture(scope="module", autouse=True)
def _fixed_clock():
    """Stop the clock, so that both decoders compute the same URL lifetimes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_lines, "steady_ms", lambda: 1_700_000_000_000)
        yield


# Whole lines, and pieces that form half a line, a line or two lines.
WHOLE = [
    b'{"file":{"id":"a"}}',
    b'{"endStreamAction":{}}',
    b"{}",
    b' {"new":[[1],{"a":2}]}\t',
    b'{"add":{"id":"\xc3\xa9"}}\r',
]
PARTS = [
    *(b"{", b"}", b'{"new":[', b'["x"', b'"y"]', b"]}", b",", b"1", b"null", b"", b" ", b'"', b"\xff", b'{"new":'),
    b'{"file":{}}',
]

pieces = st.lists(st.sampled_from([b"a", b"{}", b"\n", b"\r\n", b"\r", "\u2028".encode(), b"\x85", b"", b" "]))


@meets(split=18, incomplete=18)
@given(chunks=st.lists(pieces.map(b"".join)))
def test_lines_are_the_same_however_the_body_arrives(chunks):
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

    clock = Stopwatch(time.process_time)
    (block,) = split_blocks([b"x" * 512] * pieces + [b"\n"])

    assert len(block.lines[0]) == 512 * pieces
    assert clock.within(5)  # copying the line at each chunk would move a terabyte


@meets(read=8, refused=8)
@given(
    lines=st.lists(st.sampled_from(WHOLE), min_size=1)
    | st.lists(st.lists(st.sampled_from([*WHOLE, *PARTS, b"\n"]), max_size=4).map(b"".join), min_size=1)
)
def test_lines_decoded_together_equal_lines_decoded_singly(lines):
    text = b"\n".join(lines)
    try:
        expected = [decode(line) for line in text.split(b"\n")]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        expected = None
    met("refused" if expected is None else "read")
    assert wire_lines._decoded_at_once(text, Line) == expected


ADD = {"path": "https://x/f?s", "partitionValues": {"p": "1"}, "size": 1, "stats": '{"numRecords":2}'}
VECTOR = {"storageType": "p", "pathOrInlineDv": "https://x/v", "sizeInBytes": 4, "cardinality": 1, "offset": 1}
# Deviations from an ordinary line, by place: in the action, in deltaSingleAction, in the file, and in the line.
ADDS = [
    *({"size": size} for size in (-1, None, 0, -2, "7", 1.0, 2**63, True)),
    *({"partitionValues": values} for values in (None, {}, {"p": None}, {"p": 1}, [])),
    *({"stats": stats} for stats in (None, {"numRecords": 1}, "{", "")),
    *({"deletionVector": vector} for vector in (None, VECTOR, {**VECTOR, "cardinality": -1})),
    {"path": None}, {"baseRowId": 1}, {"baseRowId": -1}, {"tags": {"a": 1}}, {"new": [1]},
]  # fmt: skip
SINGLES = [{"add": None}, {"remove": None}, {"remove": {"path": "a"}}, {"cdc": {"path": "a"}}, {"cdc": 1}, {"txn": 1}]
FILES = [
    *({"id": name} for name in (None, "", "a:b", "\n\u2028\\", "é\0", 5)),
    *({"size": size} for size in (None, 9, -1, "9")),
    *({"expirationTimestamp": at} for at in (None, 5, -5, "5", 2**63, 10**13, 10**13 + 1)),
    *({name: 4} for name in ("version", "timestamp", "deletionVectorFileId", "url", "new", "stats")),
    {"deltaSingleAction": None}, {"deltaSingleAction": {}}, {"deletionVectorFileId": "v"}, {"version": -1},
]  # fmt: skip
OTHERS = [
    *({name: None} for name in ("add", "cdf", "remove", "protocol", "metaData", "endStreamAction", "queryStatus")),
    *({name: {}} for name in ("protocol", "metaData", "endStreamAction", "queryStatus")),
    {"endStreamAction": {"errorMessage": "no", "httpStatusErrorCode": 400}},
    {"add": {"id": "a", "url": "u"}}, {"file": None}, {"new": {}}, {"errorCode": "X", "message": "y"},
]  # fmt: skip
ODD = [
    *(b"", b" ", b"{}", b"5", b"null", b"[]", b"{", b'"errorCode"', b"\xff", b'{"endStreamAction":{}}', b"<html>"),
    *(b'{"errorCode":"X"}', b'{"error_code":"X"}', b'{"file":{"id":"a"}}', b'{"file":{"id":"a","url":"u"}}'),
]


def file_line(add=(), single=(), file=(), line=(), **form):
    add = {**ADD, **dict(add)}
    file = {"id": "a", "size": 1, "deltaSingleAction": {"add": add, **dict(single)}, **dict(file)}
    return json.dumps({"file": file, **dict(line)}, **form).encode()


@st.composite
def listed_lines(draw):
    """Draw a line of a snapshot: usually a file with at most two deviations and with its keys in any order."""
    if draw(st.integers(0, 9)) == 9:
        return draw(st.sampled_from([*ODD, b"\n".join([b'{"file":{"id":"a', b'b"}}'])]))
    parts = [{}, {}, {"id": draw(st.sampled_from("abc"))}, {}]
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, 3))
        parts[at] = {**parts[at], **draw(st.sampled_from((ADDS, SINGLES, FILES, OTHERS)[at]))}
    text = file_line(*parts, ensure_ascii=draw(st.booleans()), sort_keys=draw(st.booleans()))
    # Some lines repeat a key or are cut off.
    how = draw(st.integers(0, 29))
    return {29: text[:-1] + b',"file":{"id":"b"}}', 28: b'{"file":{"id":"c"},' + text[1:], 27: text[:-9]}.get(how, text)


HEADS = {
    ResponseFormat.DELTA: b'{"protocol":{"deltaProtocol":{"minReaderVersion":1}}}\n'
    b'{"metaData":{"deltaMetadata":{"id":"i","schemaString":"{}"}}}\n',
    ResponseFormat.PARQUET: b'{"protocol":{"minReaderVersion":1}}\n{"metaData":{"id":"i","schemaString":"{}"}}\n',
}


def listing(body, is_cut, form=ResponseFormat.DELTA, operation=Operation.SNAPSHOT):
    """Return the files, the error and the deviations that a client reads from ``body``, whole or in two parts."""
    cut = body.find(b"\n") + 1 if is_cut else 0
    deviations = Deviations("x")
    reply = SimpleNamespace(status=200, headers={"Delta-Table-Version": "3"}, close=lambda: None)
    chunks = [HEADS[form], body[:cut], body[cut:]]
    transport = SimpleNamespace(attempt=lambda _: reply, chunks=lambda *_: chunks, secrets=list)
    rules = ResponseRules(table="s.s.t", operation=operation, formats=(ResponseFormat.DELTA,))
    response = ask_once(transport, Request(method="POST", path=("t",), doing="Asking"), rules, deviations)
    files, error = [], None
    try:
        for block in response.actions():
            files += block
    except (Transient, ds.DeltaSharingError) as failure:
        cause = failure.error if isinstance(failure, Transient) else failure
        error = type(failure), type(cause), str(cause)
    return files, error, response.end, response.first_renewal, response._number, deviations.counts


@pytest.mark.parametrize("form", list(HEADS))
def test_blocks_of_added_files_are_decoded_at_once(monkeypatch, form):
    blocks = []
    read = wire_lines.Lines.of
    monkeypatch.setattr(
        wire_lines.Lines, "of", lambda lines, block, before: blocks.append(block) or read(lines, block, before)
    )
    single = {"url": "u"} if form is ResponseFormat.PARQUET else ()
    lines = [file_line(file={"id": str(number), **dict(single)}) for number in range(300)]
    files, error, *_ = listing(b"\n".join(lines) + b"\n", False, form)
    assert (len(files), error) == (300, None)
    assert any(b'"file"' in block.text for block in blocks) is (form is ResponseFormat.PARQUET)


@pytest.mark.parametrize("odd", [{"errorCode": "X"}, {"new": {}}])
def test_only_blocks_with_an_error_are_decoded_line_by_line(monkeypatch, odd):
    lines, one_by_one = wire_lines.Lines, mock.Mock(return_value=iter(()))
    monkeypatch.setattr(lines, "_one_by_one", one_by_one)
    lines_of_block, report = [*[file_line()] * 500, file_line(odd), b"{}"], b'{"errorCode":"X"}'
    for text, count in (
        (lines_of_block[:-1], 501),
        (lines_of_block[-2:] * ("new" in odd), 2 * ("new" in odd)),
        ([b"{}"], 1),
        ([report], 0),
    ):
        decoded = (
            list(lines(mock.Mock(), Deviations("x"), mock.Mock()).of(LineBlock(b"\n".join(text), True), 0))
            if text
            else []
        )
        assert len(decoded) == count
    assert one_by_one.call_count == 1


@meets(at_once=20, refused=20)
@given(st.lists(listed_lines(), max_size=4), st.booleans(), st.booleans())
def test_files_decoded_together_equal_those_decoded_singly(lines, ends, is_cut):
    body = b"\n".join(lines) + b"\n" * ends
    read = wire_lines.Lines.added
    at_once = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_lines.Lines, "added", lambda *given: at_once.append(read(*given)) or at_once[-1])
        found = listing(body, is_cut)
        patch.setattr(wire_lines, "SHORTCUTS", SimpleNamespace(lines_at_once=False))
        expected = listing(body, is_cut)
    met("at_once", any(at_once))
    met("refused", expected[1])
    assert found == expected


@pytest.mark.parametrize("form", HEADS)
@pytest.mark.parametrize("operation", [Operation.SNAPSHOT, Operation.CHANGES])
def test_lines_with_deviations_are_read_as_if_decoded_singly(monkeypatch, form, operation):
    odd = [file_line(*[()] * at, what) for at, ones in enumerate((ADDS, SINGLES, FILES, OTHERS)) for what in ones]
    plain = file_line(file={"id": "b", "url": "u", "version": 1, "timestamp": 1})
    for line in (*odd, *ODD):
        for lines in ([plain, line, plain], [line, plain], [plain, line]):
            body = b"\n".join([*lines, b""])
            monkeypatch.setattr(wire_lines, "SHORTCUTS", SimpleNamespace(lines_at_once=False))
            expected = [listing(body, is_cut, form, operation) for is_cut in (False, True)]
            monkeypatch.undo()
            assert [listing(body, is_cut, form, operation) for is_cut in (False, True)] == expected


def test_block_of_up_to_the_size_limit_is_decoded_at_once():
    text = b'{"file":{"id":"a","url":"%s"}}\n{"file":{"id":"b"}}\n{"file":{"id":"c"}}'
    assert [line.file.id for line in wire_lines._decoded_at_once(text, Line)] == ["a", "b", "c"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_lines, "_MOST_AT_ONCE", len(text))
        assert wire_lines._decoded_at_once(text, Line) is not None
        patch.setattr(wire_lines, "_MOST_AT_ONCE", len(text) - 1)
        assert wire_lines._decoded_at_once(text, Line) is None


@pytest.mark.parametrize(("names", "is_refused"), [(3, False), (4, True)])
def test_number_of_schema_fields_is_limited(monkeypatch, names, is_refused):
    monkeypatch.setattr(wire_lines, "MAX_COLUMNS", 3)
    line = wire_lines.MetadataLine(delta_metadata=Metadata("i", '"name"' * names))
    if is_refused:
        with pytest.raises(ProtocolError, match="at most 3 columns and fields, found 4"):
            wire_lines.read_metadata(line, ResponseFormat.DELTA, "t")
    else:
        assert wire_lines.read_metadata(line, ResponseFormat.DELTA, "t").id == "i"


@pytest.mark.parametrize("between", [b",", b",5,", b""])
@pytest.mark.parametrize("halves", [(b'{"new":[1', b"2]}"), (b'{"new":[[1]', b"[2]]}"), (b'{"new":', b"3}")])
def test_line_with_two_objects_does_not_hide_a_broken_line(halves, between):
    text = b"{}" + between + b"{}\n" + b"\n".join(halves)
    assert wire_lines._decoded_at_once(text, Line) is None


def response_lines():
    subject = wire_lines.Subject(doing="x", table="t", secrets=list, status=200, content_type="text/x")
    return wire_lines.Lines(subject, Deviations("x"), wire_lines.UrlLives(None))


def test_lines_are_decoded_singly_without_the_shortcut(monkeypatch):
    monkeypatch.setattr(wire_lines, "SHORTCUTS", SimpleNamespace(lines_at_once=False))
    monkeypatch.setattr(wire_lines, "_decoded_at_once", None)
    lines = response_lines()
    block = LineBlock(b'{"file":{"id":"a"}}\n{}', complete=True)
    assert lines.added(block) == []
    assert [line.file and line.file.id for line in lines.of(block, 0)] == ["a", None]


@pytest.mark.parametrize(("blank", "is_refused"), [(2, False), (3, True)])
def test_number_of_blank_lines_is_limited(monkeypatch, blank, is_refused):
    monkeypatch.setattr(wire_lines, "_MAX_BLANK_LINES", 2)
    lines = response_lines().of(LineBlock(b"\n" * (blank - 1), complete=True), 0)
    if is_refused:
        with pytest.raises(ProtocolError, match="line 3 of the response is malformed: more than 2 lines are blank"):
            list(lines)
    else:
        assert list(lines) == [wire_lines.NOTHING] * blank


def test_error_shows_the_beginning_of_an_invalid_response():
    with pytest.raises(ProtocolError, match=f"text .text/x. that begins with '{'x' * 60}';"):
        list(response_lines().of(LineBlock(b"x" * 100, complete=True), 0))


def test_line_number_counts_from_the_start_of_the_response():
    first = b"{}\n" + file_line() + b"\n"
    for is_cut in (False, True):
        files, error, *_, number, _ = listing(first + b"\n".join([file_line()] * 3 + [b"{bad", b""]), is_cut)
        assert "line 8 of the response is malformed" in error[2]
        assert (len(files), number) == (4, 7)
    lines = response_lines()
    assert len(list(lines.of(LineBlock(b'{}\n{"file":{"id":"a"}}', complete=True), 3))) == 2
    with pytest.raises(ProtocolError, match="line 6 of the response is malformed"):
        list(lines.of(LineBlock(b"{bad", complete=True), 5))


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ([b'{"file":{"id":"a"}}\n{}'], "line 3 of the response is malformed"),
        ([b'{"file":{"id":"a"}}', b"{}"], "line 3 of the response is malformed"),
        ([b"{}\n{}"], "expected lines of JSON, found text .text/x. that begins with 'Sorry'"),
    ],
)
def test_text_after_an_action_is_a_malformed_line(before, reason):
    lines = response_lines()
    for text in before:
        list(lines.of(LineBlock(text, complete=True), 2))
    with pytest.raises(ProtocolError, match=reason):
        list(lines.of(LineBlock(b"Sorry", complete=True), 2))


@pytest.mark.parametrize("text", [b"5", b"{}\n5", b"5\n{}"])
def test_line_that_is_a_number_is_not_decoded_at_once(text):
    assert wire_lines._decoded_at_once(text, Line) is None


def test_deeply_nested_or_long_lines_are_not_decoded_at_once():
    text = b"\n".join([b"{}", b'{"new":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
    assert wire_lines._decoded_at_once(text, Line) is None
    assert wire_lines._decoded_at_once(b'{"new":"' + b"x" * 5_000_000 + b'"}', Line) is None
