"""Advises what to write instead of common mistakes in a filter's SQL text.

The mistakes are typing errors, and habits from pandas, Polars, Python and other SQL dialects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Union

_Sentence = Union[str, Callable[[re.Match[str]], str]]


def advice(text: str) -> tuple[str, tuple[int, int] | None]:
    """Return a sentence that says what to write instead ("" for an unknown mistake), and the part of ``text`` that
    it is about, if known.

    ``text`` is the filter with empty string literals, with ``x`` for each name in backticks, and without comments.
    """
    for pattern, sentence in _RULES:
        match = pattern.search(text)
        if match is not None:
            return sentence if isinstance(sentence, str) else sentence(match), match.span()
    opened, closed = text.count("("), text.count(")")
    if opened != closed:
        return f"It has {_counted(opened, 'opening')} and {_counted(closed, 'closing')}.", None
    return "", None


def quoted(name: str) -> str:
    """Return advice on ``name``, which is compared with a column, but is not a column itself."""
    plain = name.lower()
    if plain in ("none", "na", "nat", "nil", "undefined"):
        return "For missing values write IS NULL or IS NOT NULL."
    if plain in ("nan", "inf", "infinity"):
        text = "NaN" if plain == "nan" else "Infinity"
        return f"Write CAST('{text}' AS DOUBLE) for this number."
    bare = name.strip(_CURLY)
    return f"If it is a string, write it in single quotes: '{bare}'."


def backticks_advice(text: str) -> str:
    """Return advice on ``text``, which a filter has in double quotes although it may be meant as a name."""
    name = ".".join(f"`{part}`" for part in text.replace("`", "``").split("."))
    return f"Write a name in backticks, as in {name}, and a string in single quotes."


def _counted(number: int, kind: str) -> str:
    return f"{number} {kind} parenthes{'i' if number == 1 else 'e'}s"


def _instead(match: re.Match[str]) -> str:
    return f"Write {_SYMBOLS[match[0]]} instead of {match[0]}."


_SYMBOLS = {"&": "AND", "&&": "AND", "|": "OR", "=>": ">=", "=<": "<=", "~": "NOT"}
_CURLY = "\u2018\u2019\u201c\u201d\u00b4"
_METHODS = "contains|endswith|ends_with|startswith|starts_with|isin|is_in|isnull|isna|notnull|notna|between|lower|upper"
_ISO = r"\d{4}(?P<mark>[-/.])\d{1,2}(?P=mark)\d{1,2}"
_DAY_FIRST = r"\d{1,2}(?P<other>[-/.])\d{1,2}(?P=other)\d{4}"


def _rule(pattern: str, sentence: _Sentence) -> tuple[re.Pattern[str], _Sentence]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), sentence


# The first rule that matches is used.
_RULES: tuple[tuple[re.Pattern[str], _Sentence], ...] = (
    _rule(r"\A\s*\Z", "It is empty: leave 'filter' out to read all rows."),
    _rule(r"\A\s*where\b", "Write the condition without WHERE."),
    _rule(
        r"\A\s*(select|from|with)\b",
        "Write the condition alone, without SELECT and WHERE; ds.attach(connection, profile) lets DuckDB run queries.",
    ),
    _rule(f"[{_CURLY}]", "Write strings in straight single quotes, as in 'DE'."),
    _rule(rf"(?<![\w.])({_ISO}|{_DAY_FIRST})(?!\d)", "Write a date or timestamp in single quotes, as in '2026-01-31'."),
    _rule(r"\|\|", "Write OR between conditions; strings cannot be concatenated with ||."),
    _rule(r"&&?|\||(?<!<)=>|=<(?!>)", _instead),
    _rule(r"~\s*''", "Write LIKE with % for any text and _ for one character; regular expressions are not supported."),
    _rule(r"~", _instead),
    _rule(r"\bcontains\s*(\(|'')", "Write name LIKE '%text%' to search within a string."),
    _rule(r"\bends_?with\s*\(", "Write name LIKE '%text' to test the end of a string."),
    _rule(
        r"\b(rlike|regexp|regexp_like|regexp_matches|similar\s+to|glob)\b",
        "Write LIKE with % for any text and _ for one character; regular expressions are not supported.",
    ),
    _rule(rf"\.(str|dt|({_METHODS}|\w+)\s*\()", "Write functions as in lower(name), conditions as in name IN ('a')."),
    _rule(r"\bcol\s*\(", "In SQL, write only the name of the column, as in amount > 3."),
    _rule(r"\bnot\s+in\s+(?![(\[])|\bin\s+(?![(\[])", "Write the values in parentheses, as in IN ('a', 'b')."),
    _rule(r"\bbetween\b(?!.*\band\b)", "Write BETWEEN low AND high."),
    _rule(r"\blimit\s+\d", "Leave LIMIT out, and pass limit=10 in addition to the filter."),
    _rule(r"\b(order|group)\s+by\b", "Sort and group the rows that are read, or query them in DuckDB (ds.attach)."),
    _rule(
        r"\b(max|min|sum|avg|mean|count|any|every|stddev|median)\s*\(",
        "A filter tests one row at a time: aggregate the rows that are read, or query them in DuckDB (ds.attach).",
    ),
    _rule(r"\bis\s+(not\s+)?(none|nan|na)\b", "For missing values write IS NULL or IS NOT NULL."),
    _rule(r"\bis\s+(not\s+)?''", "Write = or <> to compare with a value."),
    _rule(r"(?<![\w.])\d{1,3}(,\d{3})+(?![\w.])", "Write numbers without commas between the digits."),
    _rule(r"\d\.\d*\.\d", "Write a number with only one decimal point."),
    _rule(
        r"[:@$?{]",
        "Parameters are not supported: put the value into the text, or pass a Python value as in ds.col('a') > value.",
    ),
    _rule(r"[<>]=?\s*[\w.`]+\s*[<>]", "Write two comparisons, as in 3 < amount AND amount < 5, or BETWEEN."),
    _rule(
        r"\b(coalesce|nvl|ifnull)\s*\([^()]*[<>=]",
        "Write only the condition: rows for which it is unknown are not returned.",
    ),
    _rule(r"\bcase\b.*\bwhen\b|\b(if|iif|decode)\s*\(", "Write the conditions with AND, OR and NOT."),
    _rule(r"\bi?like\s+(?!''|any\b|all\b)", "Write the pattern in single quotes, as in LIKE 'D%'."),
    _rule(r"\bxor\b", "Write (a OR b) AND NOT (a AND b)."),
    _rule(r"\b(substring|substr|left|right|locate|instr|position)\s*\(", "Write startswith(name, 'text') or LIKE."),
    _rule(
        r"\b(date_trunc|trunc|hour|minute|second|quarter|weekofyear|date_format|extract|date_part)\s*\(",
        "Compare with start and end, as in ts >= '2026-01-01' AND ts < '2026-02-01', or use date(), year(), month() or"
        " day().",
    ),
    _rule(r"\b(date_?diff|timestampdiff)\s*\(", "Compare the timestamp itself, as in ts > now() - INTERVAL '7' DAY."),
    _rule(r"\A\s*(and|or)\b", lambda match: f"A condition is missing before {match[1].upper()}."),
    _rule(r"\b(and|or|not)\s*\Z", lambda match: f"A condition is missing after {match[1].upper()}."),
    _rule(r"([=<>+*/-])\s*\Z", lambda match: f"A value is missing after {match[1]}."),
    _rule(r"\bas\s+\w+\s*\Z", "Leave the alias out."),
)
