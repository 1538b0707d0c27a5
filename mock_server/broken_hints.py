"""Violations of the sentences about hints in queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .violations import TABLE, Answer, spoils


def _loses_files(when: Callable[[dict[str, Any]], bool]) -> Callable[[Answer], None]:
    """Return a violation that leaves all files out if the body of the query has hints of a kind."""

    def spoil(answer: Answer) -> None:
        if when(answer.asked.document):
            answer.lines = [line for line in answer.lines if "file" not in line]

    return spoil


def _is_limited(body: dict[str, Any]) -> bool:
    return "limitHint" in body


def _sql(column: str) -> Callable[[dict[str, Any]], bool]:
    return lambda body: column in str(body.get("predicateHints")) and not _is_limited(body)


def _json(column: str) -> Callable[[dict[str, Any]], bool]:
    def fits(body: dict[str, Any]) -> bool:
        text = str(body.get("jsonPredicateHints"))
        if f'"{column}"' not in text or "conformance" in text or _is_limited(body):
            return False
        return json.loads(text)["op"] in ("equal", "greaterThanOrEqual") and len(json.loads(text)["children"]) == 2

    return fits


def _has_no_children(body: dict[str, Any]) -> bool:
    return '"children": []' in str(body.get("jsonPredicateHints"))


for _check, _when in (
    ("sql-predicate-on-partition", _sql("station")),
    ("sql-predicate-on-data", _sql("rain")),
    ("json-predicate-on-partition", _json("station")),
    ("json-predicate-on-data", _json("rain")),
    ("json-predicate-syntax", lambda body: body.get("jsonPredicateHints") == "{"),
    ("json-predicate-unknown-column", lambda body: "no_such_column" in str(body.get("jsonPredicateHints"))),
    ("json-predicate-wrong-children", _has_no_children),
    ("limit", lambda body: _is_limited(body) and not {"predicateHints", "jsonPredicateHints"} & body.keys()),
    ("limit-after-sql-predicate", lambda body: _is_limited(body) and "predicateHints" in body),
    ("limit-after-json-predicate", lambda body: _is_limited(body) and "jsonPredicateHints" in body),
):
    spoils(f"query.{_check}", f"{TABLE}/query", "POST")(_loses_files(_when))
