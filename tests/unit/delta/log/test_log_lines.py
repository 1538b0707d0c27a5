from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RowIdHighWaterMark,
    Transaction,
)
from delta_sharing_client.delta.log.log_lines import convert_action, parse_commit_info, read_actions
from delta_sharing_client.errors import DeltaSharingError, ProtocolError
from tests.quota import meets, met

ADD = {"path": "p", "partitionValues": {"d": None}, "size": 3, "modificationTime": 4, "dataChange": False}
VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 4, "cardinality": 1}


def _read(*documents: object) -> list[Action]:
    return list(read_actions([json.dumps(item).encode() + b"\n" for item in documents], "0.json"))


def test_every_action_is_read_with_its_fields() -> None:
    add, protocol, metadata, txn, domain, mark = _read(
        {"add": {**ADD, "deletionVector": VECTOR, "baseRowId": 5, "unknownField": {"x": 1}}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["x"]}},
        {"metaData": {"id": "t", "schemaString": "{}", "format": {"provider": "parquet"}, "configuration": None}},
        {"txn": {"appId": "a", "version": 3}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
        {"rowIdHighWaterMark": {"highWaterMark": 9}},
    )
    assert isinstance(add, AddFile)
    assert (add.path, add.partition_values, add.data_change, add.base_row_id) == ("p", {"d": None}, False, 5)
    assert add.deletion_vector is not None
    assert add.deletion_vector.unique_id == "ux@1"
    assert protocol == Protocol(3, 7, [], ["x"])
    assert isinstance(metadata, Metadata)
    assert metadata.properties == {}
    assert txn == Transaction("a", 3)
    assert domain == DomainMetadata("d", "{}", False)
    assert mark == RowIdHighWaterMark(9)


def test_domain_configuration_as_a_map_becomes_a_json_string() -> None:
    (domain,) = _read({"domainMetadata": {"domain": "d", "configuration": {"k": "v"}, "removed": True}})
    assert domain == DomainMetadata("d", '{"k":"v"}', True)


def test_unknown_actions_and_empty_lines_are_skipped() -> None:
    assert list(read_actions([b"\n", b'{"fromTheFuture":{"x":1}}\n', b"  \r\n", b"{}"], "f")) == []


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"add":',
        b"[1]",
        b'{"add":{"partitionValues":{},"size":1}}',
        b'{"add":{"path":"p","size":"1"}}',
        b'{"add":{"path":"p","size":-2}}',
        b'{"add":{"path":"p","size":99999999999999999999}}',
        b'{"add":{"path":"p","modificationTime":1e400}}',
        b'{"add":{"path":"p","partitionValues":[1]}}',
        b'{"add":{"path":"p","size":-1}}',
        b'{"add":{"path":"p"}}',
        b'{"add":{"path":"p","deletionVector":{"storageType":"x","pathOrInlineDv":"","sizeInBytes":1,"cardinality":1}}}',
        b'{"add":{"path":"p","deletionVector":{"storageType":"i","pathOrInlineDv":"","sizeInBytes":-1,"cardinality":1}}}',
        b'{"protocol":{"minReaderVersion":"1"}}',
        b'{"metaData":{"id":"t"}}',
        b'{"add":{"path":"\xff"}}',
        b'{"commitInfo":{"operation":"\xff"}}',
        # Deeper than any stack: since Python 3.14 the limit is the stack's size, not a number of levels.
        b'{"x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
        b'{"commitInfo":' + b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_000 + b"}",
    ],
    ids=lambda line: repr(line[:60]),
)
def test_error_of_an_invalid_line_names_file_and_line_number(line: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"Line 2 of '.*7\.json'"):
        list(read_actions([b'{"txn":{"appId":"a","version":1}}', line], "7.json"))


LIKE_FILES = st.fixed_dictionaries(
    {"path": st.text(max_size=5), "size": st.integers(-2, 20) | st.none() | st.text(max_size=3)},
    optional={
        name: st.none() | st.integers(-5, 5) | st.text(max_size=3) | st.booleans() | st.just({})
        for name in ("partitionValues", "modificationTime", "dataChange", "stats", "add", "deletionVector")
    },
).map(lambda fields: json.dumps(fields).encode())


@meets(refused=20, read=4)
@given(st.binary(max_size=60) | LIKE_FILES)
def test_any_bytes_give_actions_or_an_error(line: bytes) -> None:
    try:
        list(read_actions([line, b'{"add":' + line + b"}"], "f"))
    except DeltaSharingError:
        met("refused")
        return
    met("read")


def test_invalid_fields_of_commit_info_are_ignored() -> None:
    info = {"timestamp": "yesterday", "operation": "MERGE", "operationMetrics": 5, "inCommitTimestamp": 12}
    assert parse_commit_info(json.dumps(info).encode()) == CommitInfo(operation="MERGE", in_commit_timestamp=12)
    assert parse_commit_info(b'"just text"') is None
    assert _read({"commitInfo": {"timestamp": 5, "engineInfo": "x"}}) == [CommitInfo(timestamp=5)]


@pytest.mark.parametrize("first", ["add", "remove"])
@pytest.mark.parametrize("second", ["add", "remove", "cdc", "metaData", "protocol"])
def test_line_with_several_actions_is_refused(first: str, second: str) -> None:
    fields = {
        "add": ADD, "remove": {"path": "p"}, "cdc": {"path": "p", "size": 1}, "protocol": {"minReaderVersion": 1},
        "metaData": {"id": "t", "schemaString": "{}"},
    }  # fmt: skip
    if first == second:
        assert len(_read({first: fields[first]})) == 1
        return
    with pytest.raises(ProtocolError, match=r"Line 1 of '.*' must be one Delta action, found several"):
        _read({first: fields[first], second: fields[second]})


def test_invalid_action_in_a_checkpoint_is_refused() -> None:
    assert convert_action({"appId": "a", "version": 3}, Transaction, "f") == Transaction("a", 3)
    domain = convert_action({"domain": "d", "configuration": {"k": "v"}, "removed": True}, DomainMetadata, "f")
    assert domain == DomainMetadata("d", '{"k":"v"}', True)
    for fields, kind in (({"appId": "a"}, Transaction), ({"domain": 1}, DomainMetadata), ([], Protocol)):
        with pytest.raises(ProtocolError, match=r"A row of 'f' must be a Delta '(txn|domainMetadata|protocol)' action"):
            convert_action(fields, kind, "f")
