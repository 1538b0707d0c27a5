"""Violations of the sentences about ranges of versions: the change data feed, and queries with a starting version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .violations import TABLE, Answer, Asked, misreads, spoils

Lines = list[dict[str, Any]]


def _asked(asked: Asked) -> dict[str, Any]:
    """The parameters, of which a feed has texts; none if the body is no object."""
    if asked.method == "GET":
        return asked.query
    return asked.document if b"startingVersion" in asked.body else {}


def _is_range(asked: Asked, *, of_one_version: bool = False) -> bool:
    parameters = _asked(asked)
    if "startingVersion" not in parameters or "endingVersion" not in parameters:
        return False
    return (int(parameters["startingVersion"]) == int(parameters["endingVersion"])) is of_one_version


def _spoil(change: Callable[[Lines], object], *, of_one_version: bool = False) -> Callable[[Answer], None]:
    """Return a change of the lines of a range of several versions, or of one."""

    def spoil(answer: Answer) -> None:
        if _is_range(answer.asked, of_one_version=of_one_version) and not _wants_protocols(answer.asked):
            lines = answer.lines
            change(lines)
            answer.lines = lines

    return spoil


def _wants_protocols(asked: Asked) -> bool:
    return "includeHistoricalProtocol" in _asked(asked)


def _last_file(lines: Lines) -> dict[str, Any]:
    return next(line["file"] for line in reversed(lines) if "file" in line)


def _no_boolean(lines: Lines) -> None:
    next(iter(_last_file(lines)["deltaSingleAction"].values()))["dataChange"] = "yes"


def _drop_metadata(lines: Lines) -> None:
    lines[2:] = [line for line in lines[2:] if "metaData" not in line]


def _from_the_version_before(asked: Asked) -> None:
    parameters = _asked(asked)
    if _is_range(asked) and int(parameters["startingVersion"]) > 0:
        if asked.method == "GET":
            asked.query = {**parameters, "startingVersion": str(int(parameters["startingVersion"]) - 1)}
        else:
            asked.document = {**parameters, "startingVersion": parameters["startingVersion"] - 1}


def _other_header(answer: Answer) -> None:
    if _is_range(answer.asked):
        answer.headers["delta-table-version"] = "1000"


def _far_version(answer: Answer) -> None:
    if answer.format == "delta" and _wants_protocols(answer.asked):
        lines = answer.lines
        lines[0]["protocol"]["version"] = 1000
        answer.lines = lines


def _second_protocol(answer: Answer) -> None:
    if answer.format == "parquet" and _wants_protocols(answer.asked):
        answer.lines = [*answer.lines, answer.lines[0]]


def _one_file_on_no_page(answer: Answer) -> None:
    if _is_range(answer.asked) and "maxFiles" in _asked(answer.asked) and b"nextPageToken" not in answer.body:
        answer.lines = [*answer.lines[:-2], answer.lines[-1]]


def _cut_before_the_end(answer: Answer) -> None:
    if _is_range(answer.asked) and "includeendstreamaction=true" in answer.headers["delta-sharing-capabilities"]:
        answer.lines = answer.lines[:-1]


for _name, _method, _end in (("feed", "GET", "changes"), ("stream", "POST", "query")):
    _orders, _readings = f"/tables/orders/{_end}", f"/tables/readings/{_end}"

    spoils(f"{_name}.form-parquet", _readings, _method)(
        _spoil(lambda lines: next(iter(lines[-1].values())).update(expirationTimestamp="soon"))
    )
    spoils(f"{_name}.form-delta", _orders, _method)(_spoil(_no_boolean))
    misreads(f"{_name}.versions", _orders, _method)(_from_the_version_before)
    spoils(f"{_name}.timestamps", _orders, _method)(
        _spoil(lambda lines: _last_file(lines).update(timestamp=1_800_000_000_000))
    )
    spoils(f"{_name}.inclusive", _orders, _method)(_spoil(lambda lines: lines.pop(), of_one_version=True))
    spoils(f"{_name}.header", _orders, _method)(_other_header)
    spoils(f"{_name}.historical-metadata", _orders, _method)(_spoil(_drop_metadata))
    spoils(f"{_name}.historical-protocol", _orders, _method)(_far_version)
    spoils(f"{_name}.no-historical-protocol", _orders, _method)(
        _spoil(lambda lines: lines[0]["protocol"].update(version=0))
    )

    spoils(f"{_name}.parquet-protocol", _readings, _method)(_second_protocol)
    spoils(f"{_name}.pages", _orders, _method)(_one_file_on_no_page)
    spoils(f"{_name}.end-of-stream", _orders, _method)(_cut_before_the_end)


for _name, _value in (("version", "first"), ("timestamp", "yesterday")):

    @misreads(f"feed.malformed-{_name}", "/tables/orders/changes")
    def _invalid_value_is_zero(asked: Asked, value: str = _value) -> None:
        if value in asked.query.values():
            asked.query = {"startingVersion": "0"}


def _with_status(status: int) -> Callable[[Answer], None]:
    def spoil(answer: Answer) -> None:
        answer.status = status

    return spoil


spoils("feed.unknown", f"{TABLE}/changes", statuses=(404,))(_with_status(400))
spoils("feed.token", f"{TABLE}/changes", statuses=(401,))(_with_status(403))


@spoils("feed.content-type", "/tables/orders/changes")
def _text(answer: Answer) -> None:
    answer.headers["content-type"] = "text/plain"


@spoils("feed.file-id-hash", "/tables/orders/changes")
def _as_requested(answer: Answer) -> None:
    if "fileidhash" in answer.headers:
        answer.headers["fileidhash"] = answer.asked.headers["fileidhash"]


def _number(asked: Asked, name: str, default: int) -> int:
    text = asked.query.get(name, "")
    return int(text) if text.isdigit() else default


@misreads("feed.needs-a-start", "/tables/orders/changes")
def _start_by_default(asked: Asked) -> None:
    if not asked.query:
        asked.query["startingVersion"] = "0"


@misreads("feed.end-before-start", "/tables/orders/changes")
def _no_end_before_the_start(asked: Asked) -> None:
    if _number(asked, "endingVersion", 1000) < _number(asked, "startingVersion", 0) < 1000:
        del asked.query["endingVersion"]


@misreads("feed.start-after-latest", "/tables/orders/changes")
def _start_of_today(asked: Asked) -> None:
    if _number(asked, "startingVersion", 0) > 1000:
        asked.query["startingVersion"] = "0"


@spoils("feed.default-end", "/tables/orders/changes")
def _one_line_less_without_an_end(answer: Answer) -> None:
    if answer.asked.query.keys() == {"startingVersion"}:
        answer.lines = answer.lines[:-1]


@misreads("feed.times", "/tables/orders/changes")
def _no_end_in_time(asked: Asked) -> None:
    asked.query.pop("endingTimestamp", None)


@spoils("feed.not-recorded", "/tables/products/changes", statuses=(400,))
def _feed_of_every_table(answer: Answer) -> None:
    answer.status = 200


@spoils("feed.change-type", "/tables/orders/changes")
def _data_in_place_of_changes(answer: Answer) -> None:
    lines = answer.lines
    actions = [line["file"]["deltaSingleAction"] for line in lines if "file" in line]
    add = next(action["add"] for action in actions if "add" in action)
    for action in actions:
        if "cdc" in action:
            action["cdc"].update(path=add["path"], size=add["size"])
    answer.lines = lines


@spoils("stream.complete", "/tables/readings/query", "POST")
def _one_file_less(answer: Answer) -> None:
    if answer.asked.document.get("startingVersion") and answer.format == "parquet":
        answer.lines = answer.lines[:-1]
