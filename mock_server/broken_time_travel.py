"""Violations of the sentences about earlier versions of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .violations import TABLE, Answer, Asked, misreads, spoils

_QUERY, _METADATA, _VERSION = f"{TABLE}/query", f"{TABLE}/metadata", f"{TABLE}/version"
# The last two versions of the demo's table whose history parquet format can represent.
_EARLIER, _LAST = 5, 6


@spoils("query.version-header", _QUERY, "POST")
def _current_version(answer: Answer) -> None:
    if answer.asked.document.get("version") == _EARLIER:
        answer.headers["delta-table-version"] = str(_LAST)


@spoils("query.version-in-metadata", _QUERY, "POST")
def _current_version_in_metadata(answer: Answer) -> None:
    if answer.asked.document.get("version") == _EARLIER:
        lines = answer.lines
        lines[1]["metaData"]["version"] = _LAST
        answer.lines = lines


@spoils("query.current-version", _QUERY, "POST")
def _another_file(answer: Answer) -> None:
    if answer.asked.document.get("version") == _LAST and answer.format == "parquet":
        lines = answer.lines
        lines[2]["file"]["id"] = "another"
        answer.lines = lines


def _range(version: int) -> dict[str, object]:
    return {"startingVersion": version, "endingVersion": version}


@misreads("query.version", _QUERY, "POST")
def _changes_of_the_version_before(asked: Asked) -> None:
    if asked.document == _range(_LAST):
        asked.document = _range(_EARLIER)


@spoils("query.version", _QUERY, "POST")
def _called_changes_of_the_last_version(answer: Answer) -> None:
    if answer.asked.document == _range(_LAST):
        lines = answer.lines
        for line in lines[2:]:
            line["add"]["version"] = _LAST
            line["add"]["timestamp"] += 24 * 60 * 60 * 1000
        answer.lines = lines


def _with_other_body(fits: Callable[[dict[str, Any]], bool], other: object) -> Callable[[Asked], None]:
    """Return a violation that reads a query as another one."""

    def misread(asked: Asked) -> None:
        if fits(asked.document):
            asked.document = other

    return misread


for _check, _fits, _other in (
    ("timestamp", lambda body: str(body.get("timestamp")).startswith("2026"), {}),
    ("unknown-version", lambda body: str(body.get("version")).isdigit() and body["version"] > 1000, {}),
):
    misreads(f"query.{_check}", _QUERY, "POST")(_with_other_body(_fits, _other))


def _with_another_id(parameter: str) -> Callable[[Answer], None]:
    """Return a violation of the metadata of a version or timestamp."""

    def spoil(answer: Answer) -> None:
        if list(answer.asked.query) == [parameter]:
            lines = answer.lines
            lines[1].get("metaData", {}).update(id="another")
            answer.lines = lines

    return spoil


spoils("metadata.version", _METADATA)(_with_another_id("version"))
spoils("metadata.timestamp", _METADATA)(_with_another_id("timestamp"))


def _reads_time_as(parameter: str, begins: str, other: str | None) -> Callable[[Asked], None]:
    """Return a violation that reads a time of the URL that begins with a text as another one, or as none."""

    def misread(asked: Asked) -> None:
        if asked.query.get(parameter, "").startswith(begins):
            asked.query.pop(parameter)
            asked.query.update({} if other is None else {parameter: other})

    return misread


@misreads("metadata.version-or-timestamp", _METADATA)
def _version_before_timestamp(asked: Asked) -> None:
    if "version" in asked.query:
        asked.query.pop("timestamp", None)


misreads("query-version.starting-timestamp", _VERSION)(
    _reads_time_as("startingTimestamp", "2026", "2026-01-01T00:00:00Z")
)
misreads("query-version.early-timestamp", _VERSION)(_reads_time_as("startingTimestamp", "1970", None))
