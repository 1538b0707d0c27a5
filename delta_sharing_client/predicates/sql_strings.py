r"""String literals of Spark SQL, taken out of the text before a grammar sees it.

What a backslash or a doubled quote means is part of what a filter selects, and readers of SQL differ about it. Here it
is Spark's: ``\n``, ``\u0041`` and octal ``\101`` are characters, ``\%`` and ``\_`` stay as they are for ``LIKE``, a
doubled quote is one quote, ``r'...'`` is raw, and double quotes delimit strings too.
"""

from __future__ import annotations

import re

from delta_sharing_client.errors import UsageError


def shield(text: str) -> str:
    """Replace every string literal by one of hexadecimal digits, which no SQL reader interprets."""

    def replace(match: re.Match[str]) -> str:
        if match["skip"]:
            return match[0]
        if match["broken"]:
            raise UsageError(f"the text after {match.start() + 1} characters is an unfinished or malformed literal.")
        if match["binary"]:
            return f"'{_BINARY}{match['binary'][2:-1]}'"
        value = match["raw"][2:-1] if match["raw"] else _unescape(match["string"])
        try:
            return f"'{_MARK}{value.encode().hex()}'"
        except UnicodeEncodeError:
            raise UsageError("a string literal has a lone surrogate, which no UTF-8 string has.") from None

    return _TOKEN.sub(replace, text)


def unshield(text: str) -> str | bytes:
    """Return what a shielded literal was: text, or binary for ``X'...'``."""
    if text.startswith(_BINARY):
        return bytes.fromhex(text[len(_BINARY) :])
    # Numbers with a type suffix (1.5BD) come as strings that were never shielded.
    return bytes.fromhex(text[len(_MARK) :]).decode() if text.startswith(_MARK) else text


_MARK, _BINARY = "_h", "_x"
_TOKEN = re.compile(
    r"""(?P<skip>`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/)
    |(?P<binary>(?<!\w)[xX]'(?:[0-9A-Fa-f]{2})*')
    |(?P<raw>(?<!\w)[rR](?:'[^']*'|"[^"]*"))
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<broken>['"])""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([01][0-7]{2})|(.))|(''|\"\")", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def _unescape(literal: str) -> str:
    quote = literal[0]

    def replace(match: re.Match[str]) -> str:
        short, long, octal, char, doubled = match.groups()
        if doubled:
            return quote if doubled[0] == quote else doubled
        if char is not None:
            return _ESCAPED.get(char, char)
        code = int(octal, 8) if octal else int(short or long, 16)
        if code > 0x10FFFF:
            raise UsageError(f"{match[0]} is beyond Unicode.")
        return chr(code)

    found = _ESCAPE.sub(replace, literal[1:-1])
    # Two \u escapes may spell one character as a surrogate pair.
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _paired(found) else found


def _paired(text: str) -> bool:
    return re.search("[\ud800-\udbff][\udc00-\udfff]", text) is not None
