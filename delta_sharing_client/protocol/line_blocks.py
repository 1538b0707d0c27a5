"""Splits the body of a response into blocks of lines, however it arrives in pieces (NDJSON)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from delta_sharing_client.errors import ProtocolError

MAX_LINE_BYTES = 256 * 1024 * 1024


class LineBlock(NamedTuple):
    """Consecutive lines, without the last ``\\n``; blank lines are included, so that lines can be numbered.

    ``complete`` is false if the body ended without a ``\\n`` after the last line.
    """

    text: bytes
    complete: bool

    @property
    def lines(self) -> list[bytes]:
        return self.text.split(b"\n")


def split_blocks(chunks: Iterable[bytes], max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[LineBlock]:
    """Split a body, given in arbitrary chunks, into blocks of lines, in time linear in its length.

    Raises ``ProtocolError`` if a line is longer than ``max_line_bytes``.
    """
    pending: list[bytes] = []  # the pieces of an unfinished line, joined only once so that huge lines take linear time
    pending_bytes = 0
    for chunk in chunks:
        end = chunk.rfind(b"\n")
        if end < 0:
            pending.append(chunk)
            pending_bytes += len(chunk)
            _check_length(pending_bytes, max_line_bytes)
            continue
        pending.append(chunk[:end])
        block = LineBlock(b"".join(pending), complete=True)
        if pending_bytes + len(chunk) > max_line_bytes:
            _check_length(max(map(len, block.lines)), max_line_bytes)
        yield block
        rest = chunk[end + 1 :]
        pending = [rest]
        pending_bytes = len(rest)
        _check_length(pending_bytes, max_line_bytes)
    if pending_bytes:
        yield LineBlock(b"".join(pending), complete=False)


def _check_length(length: int, limit: int) -> None:
    if length > limit:
        raise ProtocolError(
            f"A line of the server's response is longer than {limit} bytes; expected one JSON object per line."
        )
