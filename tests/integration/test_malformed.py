"""Malformed responses raise one of our errors, which names the mistake; no rows are returned."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import delta_sharing_client as ds
from tools.fuzz.wire import table_for
from tools.fuzz.wire_seeds import ADD, END, HEAD_DELTA, HEAD_PARQUET, PARQUET_FILE, SCHEMA_STRING


def answer(*lines: Any) -> bytes:
    return b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)


def with_schema(text: str) -> bytes:
    head = copy.deepcopy(HEAD_DELTA)
    head[1]["metaData"]["deltaMetadata"]["schemaString"] = text
    return answer(*head, END)


def with_file(**changes: Any) -> bytes:
    return answer(*HEAD_PARQUET, {"file": {**PARQUET_FILE, **changes}}, END)


def with_add(**changes: Any) -> bytes:
    return answer(*HEAD_DELTA, {"file": {"id": "f1", "deltaSingleAction": {"add": {**ADD, **changes}}}}, END)


def with_vector(**changes: Any) -> bytes:
    return with_add(deletionVector={**ADD["deletionVector"], **changes})


def fields(*names: str) -> str:
    made = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    return json.dumps({"type": "struct", "fields": made})


def deep(opening: str, closing: str, inner: str = "1", levels: int = 50_000) -> str:
    return opening * levels + inner + closing * levels


ANSWERS = {
    "nothing": b"",
    "no JSON": answer(b"<html>"),
    "deep JSON": answer(b'{"protocol": ' + deep("[", "]").encode() + b"}"),
    "a line that is a list": answer([]),
    "two things in one line": answer({**HEAD_PARQUET[0], **HEAD_PARQUET[1]}),
    "metadata first": answer(*HEAD_PARQUET[::-1]),
    "half a line": answer(*HEAD_PARQUET, {"file": PARQUET_FILE})[:-40],
    "bytes that are no UTF-8": answer(*HEAD_PARQUET, b'{"file": {"id": "\xff\xfe", "url": "https://h/f"}}'),
    "half a surrogate pair": answer(*HEAD_PARQUET, b'{"file": {"id": "\\ud800", "url": "https://h/f"}}', b"x"),
    "duplicate columns": with_schema(fields("a", "A")),
    "deep schema": with_schema(deep('{"type":"array","containsNull":true,"elementType":', "}", '"long"')),
    "deep schema that parses": with_schema(
        deep('{"type":"array","containsNull":true,"elementType":', "}", '"long"', 400)
    ),
    "schema that is no JSON": with_schema("{"),
    "schema that is a number": with_schema("5"),
    "type that is a number": with_schema(SCHEMA_STRING.replace('"long"', "5")),
    "decimal of 99 digits": with_schema(SCHEMA_STRING.replace("decimal(10,2)", "decimal(99,2)")),
    "partition column that is none": answer(
        HEAD_PARQUET[0], {"metaData": {**HEAD_PARQUET[1]["metaData"], "partitionColumns": ["nope"]}}, END
    ),
    "negative size": with_file(size=-1),
    "size beyond 64 bits": with_file(size=2**63),
    "size of four hundred digits": with_file(size=10**400),
    "size as words": with_file(size="many"),
    "negative size in delta": with_add(size=-2),
    "negative version": with_file(version=-1),
    "partition values as a list": with_file(partitionValues=["x"]),
    "partition value as a list": with_file(partitionValues={"p": [1]}),
    "no URL": with_file(url=None),
    "a file of this machine": with_file(url="file:///etc/passwd"),
    "a relative path": with_file(url="part-0.parquet"),
    "a path that climbs": with_file(url="../../part-0.parquet"),
    "vector of negative size": with_vector(sizeInBytes=-1),
    "vector of negative cardinality": with_vector(cardinality=-1),
    "vector at a negative offset": with_vector(offset=-1),
    "vector of an unknown storage": with_vector(storageType="z"),
    "vector in a file of this machine": with_vector(pathOrInlineDv="file:///etc/passwd"),
    "an error at the end": answer(*HEAD_DELTA, {"endStreamAction": {"errorMessage": "out of luck"}}),
    "more after the end": answer(*HEAD_DELTA, END, END),
    "a page that is itself": answer(*HEAD_DELTA, {"endStreamAction": {"nextPageToken": "again"}}),
}


@pytest.mark.filterwarnings("ignore::delta_sharing_client.IncompleteReadWarning")
@pytest.mark.parametrize("name", ANSWERS)
def test_malformed_response_is_refused(name: str) -> None:
    with pytest.raises(ds.DeltaSharingError, match=r"s\.d\.t"):
        table_for(ANSWERS[name]).scan().to_arrow()


STATISTICS = ["", "{", "[]", "5", deep("[", "]"), deep('{"a":', "}"), '{"numRecords": -5}', '{"numRecords": 1e400}']


@pytest.mark.parametrize("stats", [*STATISTICS, '{"minValues": {"a": "x"}}'], ids=lambda text: text[:20])
def test_malformed_statistics_skip_no_file(stats: str) -> None:
    plan = table_for(with_file(stats=stats)).scan(filter="a > 1000").plan()
    assert len(plan.tasks) == 1


@pytest.mark.parametrize(
    "text", [deep("(", ")", "a = 1"), deep("NOT ", "", "a = 1"), "a < " + "9" * 100_000], ids=["(", "NOT", "9"]
)
def test_invalid_filters_are_refused_with_a_short_message(text: str) -> None:
    with pytest.raises(ds.UsageError) as caught:
        table_for(with_file()).scan(filter=text)
    assert len(str(caught.value)) < 1000


def test_long_filter_is_accepted() -> None:
    assert len(table_for(with_file()).scan(filter="a IN (" + "1," * 20_000 + "1)").plan().tasks) == 1


@pytest.mark.parametrize("version", ["x", "-1", "1.5", "\u00b2", "9" * 5000])
def test_malformed_version_headers_are_refused(version: str) -> None:
    with pytest.raises(ds.ProtocolError, match=r"s\.d\.t"):
        table_for(b"", headers={"Delta-Table-Version": version}).version()


@pytest.mark.parametrize("delay", ["\u00b2", "9" * 400, "Mon, 01 Jan 0001 00:00:00 GMT", "x", ""])
def test_malformed_retry_after_does_not_hide_the_http_status(delay: str) -> None:
    with pytest.raises(ds.DeltaSharingError, match="503"):
        table_for(b"busy", status=503, headers={"Retry-After": delay}).version()
