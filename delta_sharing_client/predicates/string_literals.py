"""The string literals of SQL text, parsed as Spark does, and hidden from sqlglot, which parses the rest."""

from __future__ import annotations

import decimal
import re

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.dialect import backslash_message
from delta_sharing_client.predicates.functions import constant_type
from delta_sharing_client.predicates.text_spans import Rewritten, Span


def shield(text: str) -> tuple[Rewritten, tuple[tuple[str, Span], ...]]:
    """Replace the content of every string literal with hexadecimal digits, which no SQL parser interprets, a number
    such as 1.5BD or 1.5F with the cast of a literal, and the name of a function such as int(), which
    sqlglot does not tell from CAST. Also return the strings in double quotes, with their positions."""
    double_quoted: list[tuple[str, Span]] = []

    def replace(match: re.Match[str]) -> str:
        if match["skip"]:
            return match[0]
        if match["function"]:
            return _FUNCTION + match[0]
        if match["broken"]:
            refused = UsageError(
                f"The literal that begins at character {match.start() + 1} is unfinished or malformed. Close every"
                " quote, and double a quote inside a string: 'it''s'."
            )
            refused.span = match.start(), len(text)
            raise refused
        if match["binary"]:
            return f"'{_BINARY}{match['binary'][2:-1]}'"
        if match["float"]:
            return f"{_FUNCTION}float({match['float'][:-1]})"
        if match["decimal"]:
            # Releases of sqlglot disagree about the digits of this type.
            number = constant_type(decimal.Decimal(match["decimal"]))
            return f"CAST('{_MARK}{match['decimal'].encode().hex()}' AS DECIMAL({number.precision}, {number.scale}))"
        if (match["string"] or "").startswith("'") and "\\" in match["string"]:
            refused = UsageError(backslash_message(match[0]))
            refused.span = match.span()
            raise refused
        value = match["raw"][2:-1] if match["raw"] else _unescape(match["string"])
        is_double = match[0].startswith('"')
        if is_double:
            double_quoted.append((value, match.span()))
        try:
            return f"'{_DOUBLE if is_double else _MARK}{value.encode().hex()}'"
        except UnicodeEncodeError:
            raise UsageError("A string literal has a lone surrogate, which UTF-8 cannot represent.") from None

    return Rewritten(text, _TOKEN, replace), tuple(double_quoted)


def without_literals(text: str) -> Rewritten:
    """Return the text with empty string literals, with ``x`` for each name in backticks, and without comments."""

    def replace(match: re.Match[str]) -> str:
        if match["skip"]:
            return "`x`" if match["skip"].startswith("`") else " "
        return match[0] if match["broken"] or match["decimal"] or match["float"] or match["function"] else "''"

    return Rewritten(text, _TOKEN, replace)


def unshield(text: str) -> str | bytes:
    """Return the original of a shielded literal, text, or bytes for ``X'...'``, or of the name of a function. Other
    text is returned unchanged."""
    # Names and the text of an interval are not shielded.
    match = _SHIELDED.fullmatch(text)
    if match is None:
        return text.removeprefix(_FUNCTION)
    content = bytes.fromhex(match[2])
    return content if match[1] == _BINARY else content.decode(errors="replace")


def is_double_quoted(text: str) -> bool:
    """Return whether a shielded literal was in double quotes."""
    match = _SHIELDED.fullmatch(text)
    return match is not None and match[1] == _DOUBLE


_MARK, _DOUBLE, _BINARY, _FUNCTION = "_h", "_d", "_x", "_f_"
_SHIELDED = re.compile(rf"({_MARK}|{_DOUBLE}|{_BINARY})((?:[0-9a-fA-F]{{2}})*)")
_TOKEN = re.compile(
    r"""(?P<skip>`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|(?<!\w)(?i:interval)\s+'[\w\s.+-]*')
    |(?P<binary>(?<!\w)[xX]'(?:[0-9A-Fa-f]{2})*')
    |(?P<raw>(?<!\w)[rR](?:'[^']*'|"[^"]*"))
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<broken>['"])
    |(?<![\w.])(?P<function>(?i:tinyint|smallint|int|bigint|float|timestamp|to_timestamp)(?=\s*\((?!\s*\d*\s*\))))
    |(?<![\w.])(?P<decimal>(?>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?>[eE][+-]?[0-9]+)?)(?i:bd)(?!\w)
    |(?<![\w.])(?P<float>(?>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?>[eE][+-]?[0-9]+)?[fF])(?!\w)""",
    re.DOTALL | re.VERBOSE,
)


_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([01][0-7]{2})|(.))|(''|\"\")", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def _unescape(literal: str) -> str:
    quote = literal[0]

    def replace(match: re.Match[str]) -> str:
        short, long, octal, char, doubled = match.groups()
        if doubled:
            return quote if quote in doubled else doubled
        if char is not None:
            return _ESCAPED.get(char, char)
        code = int(octal, 8) if octal else int(short or long, 16)
        if code > 0x10FFFF:
            raise UsageError(f"The escape {match[0]} is beyond the last Unicode character.")
        return chr(code)

    text = _ESCAPE.sub(replace, literal[1:-1])
    # Two \u escapes may form one character as a surrogate pair.
    if re.search("[\ud800-\udbff][\udc00-\udfff]", text):
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text
