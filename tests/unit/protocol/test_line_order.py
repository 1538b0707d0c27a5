"""The rules of a response's lines, one by one, without a server."""

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
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol import lines
from delta_sharing_client.protocol.body import LineBlock
from delta_sharing_client.protocol.line_order import CheckedResponse, ResponseRules, unreadable
from delta_sharing_client.protocol.lines import Subject, UrlLives
from delta_sharing_client.protocol.loose import Loosened
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.retry import Transient

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
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "steady_ms", lambda: NOW)


class Response:
    """An answer, and what has arrived of its body, which may go on after an end."""

    def __init__(self, headers: dict[str, str] | None = None, **rules: Any) -> None:
        subject = Subject(doing="Querying s.d.t", table="s.d.t", secrets=list, status=200, content_type="x")
        wanted = {"table": AssetName("s", "d", "t"), "operation": SNAPSHOT, "formats": (DELTA, PARQUET), **rules}
        self._arrived: list[LineBlock] = []
        self.answer = CheckedResponse(
            subject,
            ResponseRules(**wanted),
            CaseInsensitiveDict(VERSION if headers is None else headers),
            Loosened("Querying s.d.t"),
            self,
            lambda: None,
        )

    def __iter__(self) -> Response:
        return self

    def __next__(self) -> LineBlock:
        if not self._arrived:
            raise StopIteration
        return self._arrived.pop()

    def arrives(self, documents: Sequence[dict[str, Any]]) -> None:
        if documents:
            self._arrived += [LineBlock("\n".join(map(json.dumps, documents)).encode(), complete=True)]


def began(found: Response, *documents: dict[str, Any]) -> CheckedResponse:
    found.arrives(documents)
    found.answer.begin()
    return found.answer


def begun(form: ResponseFormat = DELTA, headers: dict[str, str] | None = None, **rules: Any) -> Response:
    found = Response(headers, **rules)
    began(found, *HEADS[form])
    return found


def taken(found: Response, *documents: dict[str, Any]) -> Sequence[TableAction]:
    found.arrives(documents)
    return [action for actions in found.answer.actions() for action in actions]


def delta(kind: str = "add", name: str = "f", action: dict[str, Any] | None = None, **wrapper: Any) -> dict[str, Any]:
    fields = {"path": f"https://x/{name}", "partitionValues": {}, "size": 5, **(action or {})}
    return {"file": {"id": name, **wrapper, "deltaSingleAction": {kind: fields}}}


def parquet(kind: str = "file", name: str = "f", **fields: Any) -> dict[str, Any]:
    return {kind: {"id": name, "url": f"https://x/{name}", **fields}}


# === The first lines ===


@pytest.mark.parametrize("form", [DELTA, PARQUET])
def test_the_head_is_the_first_two_lines(form: ResponseFormat) -> None:
    found = began(Response(), {}, HEADS[form][0], {}, HEADS[form][1])
    assert (found.head.version, found.head.response_format, found.head.metadata.id) == (7, form, "t")
    assert found.head.protocol.min_reader_version == 1
    assert found.status is None


@pytest.mark.parametrize(
    ("documents", "error", "message"),
    [
        ([], Transient, "no protocol line"),
        ([{}], Transient, "no protocol line"),
        ([{"endStreamAction": {}}], Transient, "no protocol line"),
        ([HEADS[DELTA][1]], ProtocolError, "line 1 of the response is malformed: the first line must hold protocol"),
        ([{"protocol": {}}], ProtocolError, "protocol needs minReaderVersion or deltaProtocol"),
        ([{**HEADS[DELTA][0], **HEADS[DELTA][1]}], ProtocolError, "expected exactly one of .*; found protocol, metaD"),
        ([HEADS[DELTA][0]], Transient, "no metaData line"),
        ([HEADS[DELTA][0], {"endStreamAction": {}}], Transient, "no metaData line"),
        ([HEADS[DELTA][0]] * 2, ProtocolError, "line 2 of the response is malformed: the second line must hold metaD"),
        ([HEADS[DELTA][0], delta()], ProtocolError, "line 2 .* the second line must hold metaData"),
        ([HEADS[DELTA][0], {**HEADS[DELTA][1], **delta()}], ProtocolError, "found metaData, file"),
        ([HEADS[DELTA][0], HEADS[PARQUET][1]], ProtocolError, "Expected deltaMetadata in"),
        ([HEADS[PARQUET][0], HEADS[DELTA][1]], ProtocolError, "Expected schemaString"),
        ([HEADS[PARQUET][0], {"metaData": {"id": "t"}}], ProtocolError, "Expected schemaString"),
        (
            [HEADS[DELTA][0], {"metaData": {"deltaMetadata": {**METADATA, "format": {"provider": "ORC"}}}}],
            UnsupportedFeatureError,
            "found the format 'ORC'",
        ),
        ([{"endStreamAction": {"errorMessage": "no", "httpStatusErrorCode": 400}}], RequestError, "no"),
        ([HEADS[DELTA][0], {"endStreamAction": {"errorMessage": "no"}}], RequestError, "no"),
        ([{"queryStatus": {}, "protocol": {}}], ProtocolError, "found protocol, queryStatus"),
        ([{"queryStatus": {}}, HEADS[DELTA][0]], ProtocolError, "line 2 .* queryStatus must be the only line"),
    ],
)
def test_invalid_first_line_is_refused(documents: list[dict[str, Any]], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        began(Response(), *documents)
    failure = caught.value.error if isinstance(caught.value, Transient) else caught.value
    assert isinstance(failure, DeltaSharingError)
    assert failure.table == "s.d.t"


def test_running_query_has_only_a_status() -> None:
    found = began(Response(), {"queryStatus": {"queryId": "q"}}, {}, {"endStreamAction": {}})
    assert found.status is not None
    assert found.status.query_id == "q"


@pytest.mark.parametrize(
    ("formats", "form", "is_refused"),
    [((DELTA,), DELTA, False), ((DELTA,), PARQUET, False), ((PARQUET,), PARQUET, False), ((PARQUET,), DELTA, True)],
)
def test_format_is_a_requested_one_or_the_old_servers(
    formats: tuple[ResponseFormat, ...], form: ResponseFormat, is_refused: bool
) -> None:
    if is_refused:
        with pytest.raises(ProtocolError, match="asked for the parquet response format, found delta"):
            begun(form, formats=formats)
    else:
        assert begun(form, formats=formats).answer.head.response_format is form


@pytest.mark.parametrize(
    ("header", "described", "rules", "version"),
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
def test_version_comes_from_the_header_or_the_request(
    header: str | None, described: int | None, rules: dict[str, Any], version: int | None
) -> None:
    found = Response({} if header is None else {"delta-table-version": header}, **rules)
    metadata = {"metaData": {"deltaMetadata": METADATA, **({} if described is None else {"version": described})}}
    head = (HEADS[DELTA][0], metadata)
    if version is None:
        with pytest.raises(ProtocolError, match=r"no .* header|asked for version 6, found version 7"):
            began(found, *head)
    else:
        told = began(found, *head).head
        assert (told.version, told.metadata_version) == (version, described)


@pytest.mark.parametrize(
    ("modes", "lists_files", "refused"),
    [
        (None, True, None),
        ([], True, None),
        (["url"], True, None),
        (["DIR", "URL"], True, None),
        (["dir"], True, "directory access only"),
        (["dir"], False, None),
        (["Volume"], True, "shared as 'volume', not as files"),
        (["zip", "Volume"], True, "shared as 'volume', 'zip', not as files"),
        (["volume"], False, None),
    ],
)
def test_access_is_by_url(modes: list[str] | None, lists_files: bool, refused: str | None) -> None:
    found = Response(lists_files=lists_files)
    described = {"deltaMetadata": METADATA, "accessModes": modes, "size": 3, "numFiles": 2, "location": "s3://b"}
    head = (HEADS[DELTA][0], {"metaData": {**described, "auxiliaryLocations": ["s3://c"]}})
    if refused is not None:
        with pytest.raises(UnsupportedFeatureError, match=refused) as caught:
            began(found, *head)
        assert caught.value.table == "s.d.t"
        return
    told = began(found, *head).head
    assert (told.table_size, told.num_files, told.location, told.auxiliary_locations) == (3, 2, "s3://b", ("s3://c",))
    assert told.access_modes == tuple(modes or ())


def test_other_ways_of_access_are_named_in_order() -> None:
    error = unreadable("Reading t", "t", ["volume", "model", "share"])
    assert "shared as 'model', 'share', 'volume', not as files" in error.message
    assert error.feature == "accessModes model, share, volume"


def test_the_metadata_of_a_parquet_response_has_all_its_fields() -> None:
    told = {
        **METADATA,
        "format": {"provider": "Parquet", "options": {"a": "b"}},
        "partitionColumns": ["p"],
        "configuration": {"k": "v", "gone": None},
        "name": "n",
        "description": "d",
    }
    found = began(Response(), HEADS[PARQUET][0], {"metaData": told})
    expected = Metadata(
        id="t",
        schema_string=SCHEMA,
        format=Format("Parquet", {"a": "b"}),
        partition_columns=["p"],
        configuration={"k": "v"},
        name="n",
        description="d",
    )
    assert found.head.metadata == expected
    assert begun(PARQUET).answer.head.metadata.configuration is None


# === Files ===


def test_a_file_of_each_kind_is_read_in_both_formats(stopped: None) -> None:
    found = begun(operation=CHANGES)
    told = {"version": 7, "timestamp": 9, "expirationTimestamp": NOW + 120_000, "deletionVectorFileId": "v"}
    assert list(taken(found, *(delta(kind, **told) for kind in ("add", "remove", "cdc")))) == [
        SharedFile(kind("https://x/f", partition_values={}, size=5), "f", "v", 7, 9, NOW + 60_000)
        for kind in (AddFile, RemoveFile, AddCdcFile)
    ]
    found = begun(PARQUET, operation=CHANGES)
    told = {
        "version": 7,
        "timestamp": 9,
        "expirationTimestamp": NOW + 120_000,
        "size": 5,
        "partitionValues": {"p": "1"},
    }
    told["stats"] = "{}"
    kinds = {"file": AddFile, "add": AddFile, "remove": RemoveFile, "cdf": AddCdcFile}
    assert list(taken(found, *(parquet(name, **told) for name in kinds))) == [
        SharedFile(kind("https://x/f", partition_values={"p": "1"}, size=5, **stats), "f", None, 7, 9, NOW + 60_000)
        for kind in kinds.values()
        for stats in ({} if kind is AddCdcFile else {"stats": "{}"},)
    ]


def test_missing_file_fields_are_unknown() -> None:
    (found,) = taken(begun(PARQUET), parquet())
    assert found == SharedFile(AddFile("https://x/f", {}, -1), "f")
    (removed,) = taken(begun(PARQUET, operation=CHANGES), parquet("remove", version=7))
    assert removed.action == RemoveFile("https://x/f", partition_values={})  # type: ignore[union-attr]
    for size, wrapped, expected in ((5, 6, 5), (-1, 6, 6), (None, 6, 6), (None, None, -1), (0, 6, 0)):
        told = {} if wrapped is None else {"size": wrapped}
        (found,) = taken(begun(), delta(action={"size": size} if size is not None else {"size": -1}, **told))
        assert found.action.size == expected  # type: ignore[union-attr]


@pytest.mark.parametrize("operation", [SNAPSHOT, CHANGES])
@pytest.mark.parametrize(
    ("form", "document", "reason"),
    [
        (DELTA, parquet(), "a delta response wraps its files as file.deltaSingleAction"),
        (DELTA, parquet("add"), "a delta response wraps its files as file.deltaSingleAction"),
        (DELTA, parquet("remove"), "a delta response wraps its files as file.deltaSingleAction"),
        (
            DELTA,
            {"file": {"id": "f", "deltaSingleAction": {}}},
            "a snapshot holds add|deltaSingleAction must hold exactly one of add",
        ),
        (PARQUET, delta(), "a parquet response gives each file a url"),
        (PARQUET, {"file": {"id": "f"}}, "a parquet response gives each file a url"),
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
def test_a_line_that_does_not_belong_there_is_refused(
    operation: Operation, form: ResponseFormat, document: dict[str, Any], reason: str
) -> None:
    first = delta(version=7) if form is DELTA else parquet(version=7)
    with pytest.raises(ProtocolError, match=f"line 4 of the response is malformed: ({reason})"):
        taken(begun(form, operation=operation), first, document)


@pytest.mark.parametrize("several", [("add", "remove"), ("add", "cdc"), ("remove", "cdc"), ("add", "remove", "cdc")])
def test_a_wrapper_holds_one_action(several: tuple[str, ...]) -> None:
    actions = {kind: {"path": "https://x/f", "partitionValues": {}, "size": 1} for kind in several}
    document = {"file": {"id": "f", "version": 7, "deltaSingleAction": actions}}
    with pytest.raises(ProtocolError, match="must hold exactly one of add, remove and cdc"):
        taken(begun(operation=CHANGES), document)
    with pytest.raises(ProtocolError, match="a snapshot holds add actions only"):
        taken(begun(), document)


@pytest.mark.parametrize("kind", ["remove", "cdf"])
def test_a_snapshot_has_files_only(kind: str) -> None:
    with pytest.raises(ProtocolError, match="a snapshot holds files only"):
        taken(begun(PARQUET), parquet(kind))
    with pytest.raises(ProtocolError, match="a snapshot holds add actions only"):
        taken(begun(), delta({"cdf": "cdc"}.get(kind, kind)))


def test_the_first_url_to_expire_counts(stopped: None) -> None:
    def expiring(minutes: int | None) -> int | None:
        return None if minutes is None else NOW + minutes * 60_000

    def ending(minutes: int | None) -> dict[str, object]:
        return {"endStreamAction": {"minUrlExpirationTimestamp": expiring(minutes)}}

    found = begun(PARQUET)
    assert found.answer.first_renewal is None
    # A minute before it expires.
    for expires, least in ((None, None), (50, 49), (60, 49), (40, 39), (None, 39)):
        taken(found, parquet(expirationTimestamp=expiring(expires)))
        assert found.answer.first_renewal == expiring(least)
    taken(found, ending(45))
    assert found.answer.first_renewal == expiring(39)
    for least, expected in ((30, 29), (None, 39), (40, 39)):
        found = begun(PARQUET)
        taken(found, parquet(expirationTimestamp=expiring(40)), ending(least))
        assert found.answer.first_renewal == expiring(expected)
    found = begun(PARQUET)
    taken(found, ending(30))
    assert found.answer.first_renewal == expiring(29)


def lives(date: str | None, monkeypatch: pytest.MonkeyPatch) -> UrlLives:
    monkeypatch.setattr(lines, "steady_ms", lambda: NOW)
    return UrlLives(date)


def http_date(ms: int) -> str:
    return email.utils.formatdate(ms / 1000, usegmt=True)


@pytest.mark.parametrize("ahead", [-7_200_000, 0, 7_200_000])
def test_url_lives_for_the_stated_time(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock may differ from this machine's by ``ahead``, and is in its header ``Date``."""
    found = lives(http_date(NOW + ahead), monkeypatch)
    for life, renewed in ((3_600_000, 3_540_000), (120_000, 60_000), (60_000, 30_000), (5_000, 2_500), (2, 1)):
        assert found.renewal(NOW + ahead + life) == NOW + renewed
    for life in (0, -1, -3_600_000):
        assert found.renewal(NOW + ahead + life) is None
    seconds = (NOW + ahead) // 1000 + 3_600
    assert found.renewal(seconds) == NOW + 3_540_000


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_without_a_date_a_url_is_not_expired_on_arrival(date: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lives(date, monkeypatch)
    assert found.renewal(NOW + 3_600_000) == NOW + 3_540_000
    assert [found.renewal(stated) for stated in (NOW - 1, NOW, 0, -5, -(2**62))] == [None] * 5
    assert (found.renewal(2**63 - 1) or 0) < 2**62


def test_the_time_since_a_response_counts_for_its_later_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    found = lives(http_date(NOW), monkeypatch)
    monkeypatch.setattr(lines, "steady_ms", lambda: NOW + 600_000)
    assert found.renewal(NOW + 3_600_000) == NOW + 3_540_000
    assert found.renewal(NOW + 610_000) == NOW + 605_000
    assert found.renewal(NOW + 590_000) is None


# === Changes ===


@pytest.mark.parametrize(("version", "kept"), [(2, None), (3, True), (5, True), (6, False), (None, None)])
def test_changes_are_those_of_the_range(version: int | None, kept: bool | None) -> None:
    found = begun(PARQUET, operation=CHANGES, starting_version=3, ending_version=5)
    if kept is None:
        reason = "needs its version" if version is None else "version 2 is before the range that starts at 3"
        with pytest.raises(ProtocolError, match=f"line 3 of the response is malformed: .*{reason}"):
            taken(found, parquet(version=version))
    else:
        assert len(taken(found, parquet(version=version))) == kept


def test_snapshot_files_need_no_version() -> None:
    found = begun(PARQUET, starting_version=3, ending_version=5)
    assert len(taken(found, parquet(version=1), parquet(version=9), parquet())) == 3


def test_metadata_and_protocols_in_a_range_have_their_version() -> None:
    found = begun(operation=CHANGES, starting_version=3, ending_version=5)
    protocol = {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 2}, "version": 5}}
    metadata = {"metaData": {"deltaMetadata": METADATA, "version": 4}}
    assert list(taken(found, metadata, protocol)) == [
        VersionedMetadata(4, Metadata(id="t", schema_string=SCHEMA)),
        VersionedProtocol(5, Protocol(1, 2)),
    ]
    late = [{name: {**line[name], "version": 6}} for line in (metadata, protocol) for name in line]
    assert list(taken(found, *late)) == []
    unknown = {"metaData": {"deltaMetadata": METADATA}}
    assert list(taken(found, unknown)) == [VersionedMetadata(None, Metadata(id="t", schema_string=SCHEMA))]


@pytest.mark.parametrize(("form", "key"), [(DELTA, "deltaProtocol"), (PARQUET, "minReaderVersion")])
def test_a_later_protocol_has_the_form_of_the_first(form: ResponseFormat, key: str) -> None:
    (other,) = {DELTA, PARQUET} - {form}
    with pytest.raises(ProtocolError, match=f"Expected {key} in a protocol line"):
        taken(begun(form, operation=CHANGES), HEADS[other][0])


def test_a_snapshot_has_one_protocol_and_one_metadata() -> None:
    found = begun()
    assert list(taken(found, *HEADS[DELTA])) == []
    with pytest.raises(ProtocolError, match="a snapshot has one protocol"):
        taken(found, {"protocol": {"deltaProtocol": {"minReaderVersion": 2, "minWriterVersion": 5}}})
    with pytest.raises(ProtocolError, match="a snapshot has one metaData"):
        taken(found, {"metaData": {"deltaMetadata": {**METADATA, "id": "u"}}})


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        ({"may_be_view": True}, False),
        ({"may_be_view": True, "starting_version": 3}, True),
        ({"may_be_view": True, "ending_version": 3}, True),
        ({}, True),
    ],
)
def test_the_changes_of_a_view_are_those_between_two_times(rules: dict[str, Any], refused: bool) -> None:
    if refused:
        with pytest.raises(UsageError, match="this is a view"):
            begun(PARQUET, VIEW, operation=CHANGES, **rules)
        return
    found = begun(PARQUET, VIEW, operation=CHANGES, **rules)
    assert (found.answer.head.version, found.answer.head.is_view) == (0, True)
    assert len(taken(found, parquet(timestamp=5))) == 1
    for wrong in ({}, {"version": 3}, {"version": 3, "timestamp": 5}):
        with pytest.raises(ProtocolError, match="each file of a view's changes has a timestamp and no version"):
            taken(found, parquet(**wrong))


# === The end ===


@pytest.mark.parametrize(
    ("promised", "asked", "sent", "complete"),
    [
        ("true", True, True, True),
        ("true", True, False, False),
        ("true", False, False, True),
        ("false", True, False, True),
        (None, True, False, True),
    ],
)
def test_promised_end_of_stream_must_arrive(promised: str | None, asked: bool, sent: bool, complete: bool) -> None:
    headers = dict(VERSION)
    if promised is not None:
        headers["delta-sharing-capabilities"] = f"includeendstreamaction={promised}"
    found = begun(headers=headers, lists_files=asked)
    sent_lines = [{"endStreamAction": {"refreshToken": "r"}}] if sent else []
    if complete:
        taken(found, *sent_lines)
    else:
        with pytest.raises(Transient, match="without the endStreamAction"):
            taken(found, *sent_lines)
    assert (found.answer.end is not None) == sent


def test_lines_after_the_end_are_refused() -> None:
    found = begun()
    assert len(taken(found, delta(), {"endStreamAction": {}}, {})) == 1
    with pytest.raises(ProtocolError, match="endStreamAction must be the last line"):
        taken(found, delta())


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, RequestError), (501, RequestError), (503, Transient), (429, Transient), (None, RequestError)],
)
def test_stream_error_is_retried_if_its_status_allows(status: int | None, error: type[Exception]) -> None:
    found = begun()
    with pytest.raises(error, match="it broke"):
        taken(found, {"endStreamAction": {"errorMessage": "it broke", "httpStatusErrorCode": status}})
