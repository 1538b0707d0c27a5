"""The rules for the order and content of a response's lines, tested without a server."""

from __future__ import annotations

import email.utils
import json
from collections.abc import Sequence
from typing import Any

import pytest
from requests.structures import CaseInsensitiveDict

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SharedFile,
    TableAction,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.errors import (
    DeltaSharingError,
    ProtocolError,
    RequestError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.http.retry import Transient
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol import lines
from delta_sharing_client.protocol.deviations import Deviations
from delta_sharing_client.protocol.line_blocks import LineBlock
from delta_sharing_client.protocol.line_order import CheckedResponse, ResponseRules, unreadable
from delta_sharing_client.protocol.lines import Subject, UrlLives
from delta_sharing_client.protocol.names import AssetName

DELTA, PARQUET = ResponseFormat.DELTA, ResponseFormat.PARQUET
SNAPSHOT, CHANGES = Operation.SNAPSHOT, Operation.CHANGES
SCHEMA = '{"type":"struct","fields":[]}'
METADATA = {"id": "t", "schemaString": SCHEMA, "format": {"provider": "parquet"}, "partitionColumns": []}
HEADS: dict[ResponseFormat, list[dict[str, Any]]] = {
    DELTA: [
        {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 2}}},
        {"metaData": {"deltaMetadata": METADATA}},
    ],
    PARQUET: [{"protocol": {"minReaderVersion": 1}}, {"metaData": METADATA}],
}
VERSION = {"delta-table-version": "7"}
VIEW = {"delta-sharing-capabilities": "cdfonviews=true"}


NOW = 1_700_000_000_000


@pytest.fixture
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "steady_ms", lambda: NOW)


class Response:
    """A checked response, and its lines that are still unread. Lines may be added even after the last one was read."""

    def __init__(self, headers: dict[str, str] | None = None, **rules: Any) -> None:
        subject = Subject(doing="Querying s.d.t", table="s.d.t", secrets=list, status=200, content_type="x")
        rules = {"table": AssetName("s", "d", "t"), "operation": SNAPSHOT, "formats": (DELTA, PARQUET), **rules}
        self._blocks: list[LineBlock] = []
        self.checked = CheckedResponse(
            subject,
            ResponseRules(**rules),
            CaseInsensitiveDict(VERSION if headers is None else headers),
            Deviations("Querying s.d.t"),
            self,
            lambda: None,
        )

    def __iter__(self) -> Response:
        return self

    def __next__(self) -> LineBlock:
        if not self._blocks:
            raise StopIteration
        return self._blocks.pop()

    def receive(self, documents: Sequence[dict[str, Any]]) -> None:
        if documents:
            self._blocks += [LineBlock("\n".join(map(json.dumps, documents)).encode(), complete=True)]


def begin_with(response: Response, *documents: dict[str, Any]) -> CheckedResponse:
    response.receive(documents)
    response.checked.begin()
    return response.checked


def open_response(
    response_format: ResponseFormat = DELTA, headers: dict[str, str] | None = None, **rules: Any
) -> Response:
    response = Response(headers, **rules)
    begin_with(response, *HEADS[response_format])
    return response


def actions_of(response: Response, *documents: dict[str, Any]) -> Sequence[TableAction]:
    response.receive(documents)
    return [action for actions in response.checked.actions() for action in actions]


def delta(kind: str = "add", name: str = "f", action: dict[str, Any] | None = None, **wrapper: Any) -> dict[str, Any]:
    fields = {"path": f"https://x/{name}", "partitionValues": {}, "size": 5, **(action or {})}
    return {"file": {"id": name, **wrapper, "deltaSingleAction": {kind: fields}}}


def parquet(kind: str = "file", name: str = "f", **fields: Any) -> dict[str, Any]:
    return {kind: {"id": name, "url": f"https://x/{name}", **fields}}


# === The first lines ===


@pytest.mark.parametrize("response_format", [DELTA, PARQUET])
def test_head_is_read_from_the_first_two_lines(response_format: ResponseFormat) -> None:
    response = begin_with(Response(), {}, HEADS[response_format][0], {}, HEADS[response_format][1])
    assert (response.head.version, response.head.response_format, response.head.metadata.id) == (
        7,
        response_format,
        "t",
    )
    assert response.head.protocol.min_reader_version == 1
    assert response.status is None


@pytest.mark.parametrize(
    ("documents", "error", "message"),
    [
        ([], Transient, "no protocol line"),
        ([{}], Transient, "no protocol line"),
        ([{"endStreamAction": {}}], Transient, "no protocol line"),
        ([HEADS[DELTA][1]], ProtocolError, "line 1 of the response is malformed: the first line must contain protocol"),
        ([{"protocol": {}}], ProtocolError, "protocol must contain minReaderVersion or deltaProtocol"),
        ([{**HEADS[DELTA][0], **HEADS[DELTA][1]}], ProtocolError, "expected exactly one of .*; found protocol, metaD"),
        ([HEADS[DELTA][0]], Transient, "no metaData line"),
        ([HEADS[DELTA][0], {"endStreamAction": {}}], Transient, "no metaData line"),
        (
            [HEADS[DELTA][0]] * 2,
            ProtocolError,
            "line 2 of the response is malformed: the second line must",
        ),
        ([HEADS[DELTA][0], delta()], ProtocolError, "line 2 .* the second line must contain metaData"),
        ([HEADS[DELTA][0], {**HEADS[DELTA][1], **delta()}], ProtocolError, "found metaData, file"),
        ([HEADS[DELTA][0], HEADS[PARQUET][1]], ProtocolError, "Expected deltaMetadata in"),
        ([HEADS[PARQUET][0], HEADS[DELTA][1]], ProtocolError, "Expected schemaString"),
        ([HEADS[PARQUET][0], {"metaData": {"id": "t"}}], ProtocolError, "Expected schemaString"),
        (
            [HEADS[DELTA][0], {"metaData": {"deltaMetadata": {**METADATA, "format": {"provider": "ORC"}}}}],
            UnsupportedFeatureError,
            "found the format 'ORC'",
        ),
        (
            [HEADS[PARQUET][0], {"metaData": {**METADATA, "format": {"provider": "orc"}}}],
            UnsupportedFeatureError,
            "'orc'",
        ),
        ([{"endStreamAction": {"errorMessage": "no", "httpStatusErrorCode": 400}}], RequestError, "no"),
        ([HEADS[DELTA][0], {"endStreamAction": {"errorMessage": "no"}}], RequestError, "no"),
        ([{"queryStatus": {}, "protocol": {}}], ProtocolError, "found protocol, queryStatus"),
        ([{"queryStatus": {}}, HEADS[DELTA][0]], ProtocolError, "line 2 .* queryStatus must be the only line"),
    ],
)
def test_invalid_first_line_is_refused(documents: list[dict[str, Any]], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        begin_with(Response(), *documents)
    failure = caught.value.error if isinstance(caught.value, Transient) else caught.value
    assert isinstance(failure, DeltaSharingError)
    assert failure.table == "s.d.t"


def test_first_line_may_be_the_status_of_a_running_query() -> None:
    response = begin_with(Response(), {"queryStatus": {"queryId": "q"}}, {}, {"endStreamAction": {}})
    assert response.status is not None
    assert response.status.query_id == "q"


@pytest.mark.parametrize(
    ("formats", "response_format", "is_refused"),
    [((DELTA,), DELTA, False), ((DELTA,), PARQUET, False), ((PARQUET,), PARQUET, False), ((PARQUET,), DELTA, True)],
)
def test_parquet_is_accepted_if_only_delta_was_requested(
    formats: tuple[ResponseFormat, ...], response_format: ResponseFormat, is_refused: bool
) -> None:
    if is_refused:
        with pytest.raises(ProtocolError, match="requested the parquet response format, found delta"):
            open_response(response_format, formats=formats)
    else:
        assert open_response(response_format, formats=formats).checked.head.response_format is response_format


@pytest.mark.parametrize(
    ("header", "metadata_version", "rules", "version"),
    [
        ("7", None, {}, 7),
        ("7", 6, {}, 7),
        ("0", 6, {}, 0),
        (None, 6, {}, 6),
        (None, 0, {}, 0),
        (None, None, {"version": 5}, 5),
        (None, None, {"version": 0}, 0),
        (None, None, {"starting_version": 4, "ending_version": 9}, 4),
        ("4", None, {"starting_version": 3}, 4),
        (None, None, {}, None),
        ("7", None, {"version": 6}, None),
    ],
)
def test_version_comes_from_header_metadata_or_request(
    header: str | None, metadata_version: int | None, rules: dict[str, Any], version: int | None
) -> None:
    response = Response({} if header is None else {"delta-table-version": header}, **rules)
    metadata = {
        "metaData": {"deltaMetadata": METADATA, **({} if metadata_version is None else {"version": metadata_version})}
    }
    head = (HEADS[DELTA][0], metadata)
    if version is None:
        with pytest.raises(ProtocolError, match=r"no .* header|requested version 6, found version 7"):
            begin_with(response, *head)
    else:
        checked_head = begin_with(response, *head).head
        assert (checked_head.version, checked_head.metadata_version) == (version, metadata_version)


@pytest.mark.parametrize(
    ("modes", "lists_files", "message"),
    [
        (None, True, None),
        ([], True, None),
        (["url"], True, None),
        (["DIR", "URL"], True, None),
        (["dir"], True, "directory access only"),
        (["dir"], False, None),
        (["Volume"], True, "found 'volume', which this client"),
        (["zip", "Volume"], True, "found 'volume', 'zip', which this client"),
        (["volume"], False, None),
    ],
)
def test_table_without_url_access_is_refused_for_reads(
    modes: list[str] | None, lists_files: bool, message: str | None
) -> None:
    response = Response(lists_files=lists_files)
    metadata = {"deltaMetadata": METADATA, "accessModes": modes, "size": 3, "numFiles": 2, "location": "s3://b"}
    head = (HEADS[DELTA][0], {"metaData": {**metadata, "auxiliaryLocations": ["s3://c"]}})
    if message is not None:
        with pytest.raises(UnsupportedFeatureError, match=message) as caught:
            begin_with(response, *head)
        assert caught.value.table == "s.d.t"
        return
    described = begin_with(response, *head).head
    assert (described.table_size, described.num_files) == (3, 2)
    assert (described.location, described.auxiliary_locations) == ("s3://b", ("s3://c",))
    assert described.access_modes == tuple(modes or ())


def test_unsupported_access_modes_are_listed_alphabetically() -> None:
    error = unreadable("Reading t", "t", ["volume", "model", "share"])
    assert "found 'model', 'share', 'volume', which this client" in error.message
    assert error.feature == "accessModes model, share, volume"


def test_all_fields_of_parquet_metadata_are_read() -> None:
    metadata = {
        **METADATA,
        "format": {"provider": "Parquet", "options": {"a": "b"}},
        "partitionColumns": ["p"],
        "configuration": {"k": "v", "gone": None},
        "name": "n",
        "description": "d",
    }
    response = begin_with(Response(), HEADS[PARQUET][0], {"metaData": metadata})
    expected = Metadata(
        id="t",
        schema_string=SCHEMA,
        format=Format("Parquet", {"a": "b"}),
        partition_columns=["p"],
        configuration={"k": "v"},
        name="n",
        description="d",
    )
    assert response.head.metadata == expected
    assert open_response(PARQUET).checked.head.metadata.configuration is None


# === Files ===


def test_each_kind_of_file_is_read_in_both_formats(fixed_clock: None) -> None:
    response = open_response(operation=CHANGES)
    fields = {"version": 7, "timestamp": 9, "expirationTimestamp": NOW + 120_000, "deletionVectorFileId": "v"}
    assert list(actions_of(response, *(delta(kind, **fields) for kind in ("add", "remove", "cdc")))) == [
        SharedFile(kind("https://x/f", partition_values={}, size=5), "f", "v", 7, 9, NOW + 60_000)
        for kind in (AddFile, RemoveFile, AddCdcFile)
    ]
    response = open_response(PARQUET, operation=CHANGES)
    fields = {
        "version": 7,
        "timestamp": 9,
        "expirationTimestamp": NOW + 120_000,
        "size": 5,
        "partitionValues": {"p": "1"},
    }
    fields["stats"] = "{}"
    kinds = {"file": AddFile, "add": AddFile, "remove": RemoveFile, "cdf": AddCdcFile}
    assert list(actions_of(response, *(parquet(name, **fields) for name in kinds))) == [
        SharedFile(kind("https://x/f", partition_values={"p": "1"}, size=5, **stats), "f", None, 7, 9, NOW + 60_000)
        for kind in kinds.values()
        for stats in ({} if kind is AddCdcFile else {"stats": "{}"},)
    ]


def test_missing_fields_of_a_file_have_defaults() -> None:
    (file,) = actions_of(open_response(PARQUET), parquet())
    assert file == SharedFile(AddFile("https://x/f", {}, -1), "f")
    (removed,) = actions_of(open_response(PARQUET, operation=CHANGES), parquet("remove", version=7))
    assert removed.action == RemoveFile("https://x/f", partition_values={})  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["add", "remove", "cdc"])
@pytest.mark.parametrize(
    ("size", "wrapper", "expected"),
    [(5, {"size": 6}, 5), (0, {"size": 6}, 0), (None, {"size": 6}, 6), (None, {"size": 0}, 0), (None, {}, None)],
)
def test_size_in_an_action_overrides_the_one_in_its_wrapper(
    kind: str, size: int | None, wrapper: dict[str, int], expected: int | None
) -> None:
    fields = {"path": "https://x/f", **({} if size is None else {"size": size})}
    document = {"file": {"id": "f", "version": 7, **wrapper, "deltaSingleAction": {kind: fields}}}
    (file,) = actions_of(open_response(operation=CHANGES), document)
    missing = None if kind == "remove" else -1
    assert file.action.size == (missing if expected is None else expected)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["add", "remove", "cdf"])
@pytest.mark.parametrize("size", [None, 0, 5])
def test_size_of_a_parquet_file_may_be_missing(kind: str, size: int | None) -> None:
    (file,) = actions_of(open_response(PARQUET, operation=CHANGES), parquet(kind, version=7, size=size))
    assert file.action.size == (-1 if size is None and kind != "remove" else size)  # type: ignore[union-attr]


@pytest.mark.parametrize("operation", [SNAPSHOT, CHANGES])
@pytest.mark.parametrize(
    ("response_format", "document", "reason"),
    [
        (DELTA, parquet(), "expected file.deltaSingleAction, as for all files of a delta response"),
        (DELTA, parquet("add"), "expected file.deltaSingleAction, as for all files of a delta response"),
        (DELTA, parquet("remove"), "expected file.deltaSingleAction, as for all files of a delta response"),
        (
            DELTA,
            {"file": {"id": "f", "deltaSingleAction": {}}},
            "a snapshot may contain only add|deltaSingleAction must contain exactly one of add",
        ),
        (PARQUET, delta(), "each file of a parquet response must have a url"),
        (PARQUET, {"file": {"id": "f"}}, "each file of a parquet response must have a url"),
        (PARQUET, {**parquet(), **parquet("remove")}, "expected exactly one of .*; found file, remove"),
        *(
            (DELTA, {**delta(), **other}, f"expected exactly one of .*; found .*{key}")
            for other in (
                *(parquet(kind) for kind in ("add", "cdf", "remove")),
                *HEADS[DELTA],
                {"endStreamAction": {}},
                {"queryStatus": {}},
            )
            for key in other
        ),
        (DELTA, {"queryStatus": {}}, "queryStatus must be the only line"),
    ],
)
def test_unexpected_line_is_refused(
    operation: Operation, response_format: ResponseFormat, document: dict[str, Any], reason: str
) -> None:
    first = delta(version=7) if response_format is DELTA else parquet(version=7)
    with pytest.raises(ProtocolError, match=f"line 4 of the response is malformed: ({reason})"):
        actions_of(open_response(response_format, operation=operation), first, document)


@pytest.mark.parametrize("kinds", [("add", "remove"), ("add", "cdc"), ("remove", "cdc"), ("add", "remove", "cdc")])
def test_wrapper_with_several_actions_is_refused(kinds: tuple[str, ...]) -> None:
    actions = {kind: {"path": "https://x/f", "partitionValues": {}, "size": 1} for kind in kinds}
    document = {"file": {"id": "f", "version": 7, "deltaSingleAction": actions}}
    with pytest.raises(ProtocolError, match="must contain exactly one of add, remove and cdc"):
        actions_of(open_response(operation=CHANGES), document)
    with pytest.raises(ProtocolError, match="a snapshot may contain only add actions"):
        actions_of(open_response(), document)


@pytest.mark.parametrize("kind", ["remove", "cdf"])
def test_snapshot_with_removed_or_changed_files_is_refused(kind: str) -> None:
    with pytest.raises(ProtocolError, match="a snapshot may contain only files"):
        actions_of(open_response(PARQUET), parquet(kind))
    with pytest.raises(ProtocolError, match="a snapshot may contain only add actions"):
        actions_of(open_response(), delta({"cdf": "cdc"}.get(kind, kind)))


def test_first_renewal_is_due_before_any_url_expires(fixed_clock: None) -> None:
    def expiring(minutes: int | None) -> int | None:
        return None if minutes is None else NOW + minutes * 60_000

    def end_line(minutes: int | None) -> dict[str, object]:
        return {"endStreamAction": {"minUrlExpirationTimestamp": expiring(minutes)}}

    response = open_response(PARQUET)
    assert response.checked.first_renewal is None
    # A URL is renewed a minute before it expires.
    for expires, renewal in ((None, None), (50, 49), (60, 49), (40, 39), (None, 39)):
        actions_of(response, parquet(expirationTimestamp=expiring(expires)))
        assert response.checked.first_renewal == expiring(renewal)
    actions_of(response, end_line(45))
    assert response.checked.first_renewal == expiring(39)
    for renewal, expected in ((30, 29), (None, 39), (40, 39)):
        response = open_response(PARQUET)
        actions_of(response, parquet(expirationTimestamp=expiring(40)), end_line(renewal))
        assert response.checked.first_renewal == expiring(expected)
    response = open_response(PARQUET)
    actions_of(response, end_line(30))
    assert response.checked.first_renewal == expiring(29)


def url_lives(date: str | None, monkeypatch: pytest.MonkeyPatch) -> UrlLives:
    monkeypatch.setattr(lines, "steady_ms", lambda: NOW)
    return UrlLives(date)


def http_date(ms: int) -> str:
    return email.utils.formatdate(ms / 1000, usegmt=True)


@pytest.mark.parametrize("ahead", [-7_200_000, 0, 7_200_000])
def test_lifetime_of_a_url_is_measured_by_the_server_clock(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's clock, shown in its ``Date`` header, is ``ahead`` milliseconds ahead of the client's clock."""
    urls = url_lives(http_date(NOW + ahead), monkeypatch)
    for lifetime, renewed in ((3_600_000, 3_540_000), (120_000, 60_000), (60_000, 30_000), (5_000, 2_500), (2, 1)):
        assert urls.renewal(NOW + ahead + lifetime) == NOW + renewed
    for lifetime in (0, -1, -3_600_000):
        assert urls.renewal(NOW + ahead + lifetime) is None
    seconds = (NOW + ahead) // 1000 + 3_600
    assert urls.renewal(seconds) == NOW + 3_540_000


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_past_expiration_is_ignored_without_a_date_header(date: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = url_lives(date, monkeypatch)
    assert urls.renewal(NOW + 3_600_000) == NOW + 3_540_000
    assert [urls.renewal(stated) for stated in (NOW - 1, NOW, 0, -5, -(2**62))] == [None] * 5
    assert (urls.renewal(2**63 - 1) or 0) < 2**62


def test_lifetime_of_a_url_starts_when_its_response_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = url_lives(http_date(NOW), monkeypatch)
    monkeypatch.setattr(lines, "steady_ms", lambda: NOW + 600_000)
    assert urls.renewal(NOW + 3_600_000) == NOW + 3_540_000
    assert urls.renewal(NOW + 610_000) == NOW + 605_000
    assert urls.renewal(NOW + 590_000) is None


# === Changes ===


@pytest.mark.parametrize(("version", "is_kept"), [(2, None), (3, True), (5, True), (6, False), (None, None)])
def test_changes_outside_the_range_are_dropped_or_refused(version: int | None, is_kept: bool | None) -> None:
    response = open_response(PARQUET, operation=CHANGES, starting_version=3, ending_version=5)
    if is_kept is None:
        reason = "must have a version" if version is None else "version 2, before the first requested one, 3"
        with pytest.raises(ProtocolError, match=f"line 3 of the response is malformed: .*{reason}"):
            actions_of(response, parquet(version=version))
    else:
        assert len(actions_of(response, parquet(version=version))) == is_kept


def test_snapshot_files_need_no_version() -> None:
    response = open_response(PARQUET, starting_version=3, ending_version=5)
    assert len(actions_of(response, parquet(version=1), parquet(version=9), parquet())) == 3


def test_metadata_and_protocol_of_a_range_have_versions() -> None:
    response = open_response(operation=CHANGES, starting_version=3, ending_version=5)
    protocol = {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 2}, "version": 5}}
    metadata = {"metaData": {"deltaMetadata": METADATA, "version": 4}}
    assert list(actions_of(response, metadata, protocol)) == [
        VersionedMetadata(4, Metadata(id="t", schema_string=SCHEMA)),
        VersionedProtocol(5, Protocol(1, 2)),
    ]
    late = [{name: {**line[name], "version": 6}} for line in (metadata, protocol) for name in line]
    assert list(actions_of(response, *late)) == []
    unknown = {"metaData": {"deltaMetadata": METADATA}}
    assert list(actions_of(response, unknown)) == [VersionedMetadata(None, Metadata(id="t", schema_string=SCHEMA))]


@pytest.mark.parametrize(("response_format", "key"), [(DELTA, "deltaProtocol"), (PARQUET, "minReaderVersion")])
def test_protocol_in_the_other_format_is_refused(response_format: ResponseFormat, key: str) -> None:
    (other,) = {DELTA, PARQUET} - {response_format}
    with pytest.raises(ProtocolError, match=f"Expected {key} in the protocol line"):
        actions_of(open_response(response_format, operation=CHANGES), HEADS[other][0])


def test_second_protocol_or_metadata_of_a_snapshot_must_be_equal() -> None:
    response = open_response()
    assert list(actions_of(response, *HEADS[DELTA])) == []
    with pytest.raises(ProtocolError, match="a second protocol line of a snapshot must be equal"):
        actions_of(response, {"protocol": {"deltaProtocol": {"minReaderVersion": 2, "minWriterVersion": 5}}})
    with pytest.raises(ProtocolError, match="a second metaData line of a snapshot must be equal"):
        actions_of(response, {"metaData": {"deltaMetadata": {**METADATA, "id": "u"}}})


@pytest.mark.parametrize(
    ("rules", "is_refused"),
    [
        ({"may_be_view": True}, False),
        ({"may_be_view": True, "starting_version": 3}, True),
        ({"may_be_view": True, "ending_version": 3}, True),
        ({}, True),
    ],
)
def test_changes_of_a_view_have_timestamps_and_no_versions(rules: dict[str, Any], is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(UsageError, match="this is a view"):
            open_response(PARQUET, VIEW, operation=CHANGES, **rules)
        return
    response = open_response(PARQUET, VIEW, operation=CHANGES, **rules)
    assert (response.checked.head.version, response.checked.head.is_view) == (0, True)
    assert len(actions_of(response, parquet(timestamp=5))) == 1
    for wrong in ({}, {"version": 3}, {"version": 3, "timestamp": 5}):
        with pytest.raises(ProtocolError, match="each file of a view's changes must have a timestamp and no version"):
            actions_of(response, parquet(**wrong))


# === The end ===


@pytest.mark.parametrize(
    ("promised", "requested", "sent", "is_complete"),
    [
        ("true", True, True, True),
        ("true", True, False, False),
        ("true", False, False, True),
        ("false", True, False, True),
        (None, True, False, True),
    ],
)
def test_missing_end_of_stream_is_an_error_if_promised(
    promised: str | None, requested: bool, sent: bool, is_complete: bool
) -> None:
    headers = dict(VERSION)
    if promised is not None:
        headers["delta-sharing-capabilities"] = f"includeendstreamaction={promised}"
    response = open_response(headers=headers, lists_files=requested)
    sent_lines = [{"endStreamAction": {"refreshToken": "r"}}] if sent else []
    if is_complete:
        actions_of(response, *sent_lines)
    else:
        with pytest.raises(Transient, match="without the endStreamAction"):
            actions_of(response, *sent_lines)
    assert (response.checked.end is not None) == sent


def test_line_after_the_end_of_stream_is_refused() -> None:
    response = open_response()
    assert len(actions_of(response, delta(), {"endStreamAction": {}}, {})) == 1
    with pytest.raises(ProtocolError, match="endStreamAction must be the last line"):
        actions_of(response, delta())


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, RequestError), (501, RequestError), (503, Transient), (429, Transient), (None, RequestError)],
)
def test_status_of_a_stream_error_decides_whether_to_retry(status: int | None, error: type[Exception]) -> None:
    response = open_response()
    with pytest.raises(error, match="it broke"):
        actions_of(response, {"endStreamAction": {"errorMessage": "it broke", "httpStatusErrorCode": status}})
