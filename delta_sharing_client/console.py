"""Text on standard output and standard error, whose encoding may lack some characters: redirected output on Windows, or
``LC_ALL=C``."""

from __future__ import annotations

import codecs
import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def any_text_on_stdio() -> Iterator[None]:
    r"""Write characters that the encoding of standard output or standard error lacks as escapes, such as ``\u6771``.

    Otherwise they would raise an error in the middle of the output. Bytes that are written to ``buffer`` are unchanged.
    """
    streams = [stream for stream in (sys.stdout, sys.stderr) if hasattr(stream, "reconfigure")]
    before = [stream.errors for stream in streams]
    try:
        for stream in streams:
            stream.reconfigure(errors="backslashreplace")
        yield
    finally:
        for stream, errors in zip(streams, before, strict=True):
            # A closed stream cannot be changed, and needs no change.
            with contextlib.suppress(ValueError):
                stream.reconfigure(errors=errors)


def is_utf8(stream: Any) -> bool:
    """Return whether ``stream`` can write each character as itself."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        return codecs.lookup(encoding).name.startswith("utf-8")
    except LookupError:
        return False
