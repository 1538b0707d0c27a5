"""Newline-delimited JSON, split as the bytes arrive.

Only ``\\n`` ends a line: U+2028, U+2029 and U+0085 are legal inside JSON strings, so text-mode splitting is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from delta_sharing_client.errors import ProtocolError

MAX_LINE_BYTES = 256 * 1024 * 1024


class Block(NamedTuple):
    """Some consecutive lines, without their ``\\n``; blank ones are still there, so that lines can be numbered.

    ``complete`` is false for the one last line of a body that does not end with ``\\n``.
    """

    lines: list[bytes]
    complete: bool


def split_blocks(chunks: Iterable[bytes], max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[Block]:
    """Split a body, given in arbitrary chunks, into blocks of lines, in time linear in its length.

    Raises ``ProtocolError`` once a line is longer than ``max_line_bytes``.
    """
    pending: list[bytes] = []  # the pieces of a line whose end has not arrived; joined once, so huge lines stay linear
    pending_bytes = 0
    for chunk in chunks:
        end = chunk.rfind(b"\n")
        if end < 0:
            pending.append(chunk)
            pending_bytes += len(chunk)
            _check_length(pending_bytes, max_line_bytes)
            continue
        pending.append(chunk[:end])
        lines = b"".join(pending).split(b"\n")
        _check_length(len(lines[0]), max_line_bytes)
        if len(chunk) > max_line_bytes:
            _check_length(max(map(len, lines)), max_line_bytes)
        yield Block(lines, complete=True)
        rest = chunk[end + 1 :]
        pending = [rest] if rest else []
        pending_bytes = len(rest)
        _check_length(pending_bytes, max_line_bytes)
    if pending_bytes:
        yield Block([b"".join(pending)], complete=False)


def _check_length(found: int, limit: int) -> None:
    if found > limit:
        raise ProtocolError(
            f"A line of the server's answer is longer than {limit} bytes; expected one JSON object per line."
        )
