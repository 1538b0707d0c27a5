"""Requests are planned with a real server."""

from __future__ import annotations

import html
import itertools
import json
import pathlib
import re
import types
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest
from msgspec.structs import replace

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.delta.actions import AddFile, SharedFile
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.protocol import windows
from delta_sharing_client.protocol.line_order import unreadable
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.query import TableResponse
from delta_sharing_client.sources import either_source as either
from delta_sharing_client.sources import planning, server_source
from delta_sharing_client.sources.table_source import HeadRequest, Purpose
from mock_server.wire import Renderer
from tests.regressions.hand_made import HandMadeTable


@contextmanager
def shared(
    root: pathlib.Path, *, options: ds.ReadOptions | None = None, **served: Any
) -> Iterator[tuple[ds.SharedTable, mock_server.RunningServer]]:
    with (
        mock_server.running(tables={"s.s.t": root}, **served) as server,
        ds.SharingClient(server.profile, options=options) as client,
    ):
        yield client.table("s.s.t"), server


@pytest.fixture
def partitioned(tmp_path: pathlib.Path) -> HandMadeTable:
    schema = pa.schema([("a", pa.int64()), ("p", pa.string())])
    table = HandMadeTable(tmp_path / "t").create(schema, partition_by=["p"])
    table.commit(*(table.file(pa.table({"a": [i]}), {"p": str(i)}) for i in range(6)))
    return table


def test_read_without_filter_takes_one_query(partitioned: HandMadeTable) -> None:
    with shared(partitioned.root) as (table, server):
        assert len(table.scan().to_pandas()) == 6
        assert {kind: count for kind, count in server.stats()["requests"].items() if kind != "data"} == {"query": 1}


def test_server_skips_files_by_the_hints_of_a_filter(partitioned: HandMadeTable) -> None:
    with shared(partitioned.root) as (table, _):
        assert len(table.scan(filter="p = '3'").plan().tasks) == 1
    with shared(partitioned.root, faults=["ignore-hints"]) as (table, _):
        plan = table.scan(filter="p = '3'").plan()
        assert len(plan.tasks) == 1
        assert plan.skipped.by_partition == 5


def test_limit_with_a_filter_returns_enough_rows(partitioned: HandMadeTable) -> None:
    with shared(partitioned.root) as (table, _):
        assert table.scan(filter="a >= 4", limit=2).to_pandas()["a"].tolist() == [4, 5]


def test_listing_of_several_pages_gives_each_row_once(partitioned: HandMadeTable) -> None:
    partitioned.commit(partitioned.file(pa.table({"a": [9]}), {"p": "9"}))
    with shared(partitioned.root, faults=["page-size=2"]) as (table, _):
        assert sorted(table.scan().to_pandas()["a"]) == [0, 1, 2, 3, 4, 5, 9]


def test_table_changed_during_planning_is_read_completely(
    partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = server_source.table_metadata

    def describe_then_change(*arguments: Any, **options: Any) -> Any:
        head = described(*arguments, **options)
        wider = pa.schema([("a", pa.int64()), ("p", pa.string()), ("b", pa.string())])
        partitioned.commit(
            partitioned.metadata(wider, ["p"]), partitioned.file(pa.table({"a": [7], "b": ["x"]}), {"p": "3"})
        )
        return head

    monkeypatch.setattr(server_source, "table_metadata", describe_then_change)
    with shared(partitioned.root) as (table, _):
        rows = table.scan(filter="p = '3'").to_arrow()
    assert sorted(rows["a"].to_pylist()) == [3, 7]
    assert rows.schema.names == ["a", "p", "b"]


class Asked(NamedTuple):
    """A sent query and its response."""

    request: Any
    response_format: ds.ResponseFormat
    response: TableResponse


def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Return a list that collects the queries sent from now on."""
    sent: list[Asked] = []
    query_table = server_source.query_table

    def query(rest: Any, table: Any, request: Any, *, response_format: Any = ds.ResponseFormat.AUTO) -> TableResponse:
        sent.append(Asked(request, response_format, query_table(rest, table, request, response_format=response_format)))
        return sent[-1].response

    monkeypatch.setattr(server_source, "query_table", query)
    return sent


def closed_answers(monkeypatch: pytest.MonkeyPatch) -> list[TableResponse]:
    """Return a list that collects the responses closed from now on."""
    results: list[TableResponse] = []
    close = TableResponse.close

    def closing(answer: TableResponse) -> None:
        results.append(answer)
        close(answer)

    monkeypatch.setattr(TableResponse, "close", closing)
    return results


@pytest.mark.parametrize("change", ["another column", "other partition columns", "neither"])
def test_hints_for_a_changed_schema_are_not_sent_again(
    partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Some servers negate the result of skipping: with them, ``NOT (p = '3')`` is only correct for partition
    columns."""
    sent, closed = asked(monkeypatch), closed_answers(monkeypatch)
    described = server_source.table_metadata
    schema = pa.schema([("a", pa.int64()), ("p", pa.string())])
    if change == "another column":
        schema = schema.append(pa.field("b", pa.string()))
    partition_by = [] if change == "other partition columns" else ["p"]

    def describe_then_change(*arguments: Any, **options: Any) -> Any:
        head = described(*arguments, **options)
        partitioned.commit(partitioned.metadata(schema, partition_by))
        return head

    monkeypatch.setattr(server_source, "table_metadata", describe_then_change)
    with shared(partitioned.root) as (table, server):
        plan = table.scan(filter="p <> '3' AND a >= 0", response_format="parquet").plan()
        assert server.stats()["requests"]["query"] == len(sent)
    assert len(plan.tasks) == (6 if partition_by == [] else 5)
    first, *again = sent
    assert '"not"' in first.request.json_predicate_hints
    assert [one.request.json_predicate_hints for one in again] == ([] if change == "neither" else [None])
    assert {one.response_format for one in sent} == {ds.ResponseFormat.PARQUET}
    if change != "neither":
        assert closed[0] is first.response


@pytest.mark.parametrize(
    ("request_", "limit"), [({"limit": 2}, 2), ({"limit": 2, "filter": "a >= 0"}, None), ({}, None)]
)
def test_limit_is_sent_if_it_applies_to_all_rows(
    partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch, request_: dict[str, Any], limit: int | None
) -> None:
    sent = asked(monkeypatch)
    with shared(partitioned.root) as (table, _):
        table.scan(**request_).to_arrow()
    assert [one.request.limit_hint for one in sent] == [limit]


@pytest.mark.parametrize("refused", [True, False])
def test_filter_on_a_past_version_works_with_old_servers(
    partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """Older servers refuse ``GET .../metadata?version=`` or return the latest metadata."""
    described = server_source.table_metadata
    partitioned.commit(partitioned.metadata(pa.schema([("z", pa.int64()), ("p", pa.string())]), ["p"]))

    def latest_only(*arguments: Any, version: int | None = None, timestamp: str | None = None, **options: Any) -> Any:
        if refused and (version is not None or timestamp is not None):
            raise ds.RequestError("the server refused", status=400)
        return described(*arguments, **options)

    monkeypatch.setattr(server_source, "table_metadata", latest_only)
    with shared(partitioned.root) as (table, _):
        for moment in ({"version": 1}, {"timestamp": "2023-11-14T22:14:30Z"}):
            assert table.scan(filter="p = '3' AND a < 9", **moment).to_pandas()["a"].tolist() == [3]
        with pytest.raises(ds.UsageError, match="The column 'a' is not in the table"):
            table.scan(filter="a < 9").to_pandas()
        with pytest.raises(ds.UsageError, match="The column 'b' is not in the table"):
            table.scan(filter="b < 9", version=1).to_pandas()


@pytest.mark.parametrize("moment", [{"version": 1}, {"timestamp": "2023-11-14T22:14:30Z"}])
def test_hints_for_a_past_version_use_its_columns(
    partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch, moment: dict[str, Any]
) -> None:
    partitioned.commit(partitioned.metadata(pa.schema([("z", pa.int64()), ("p", pa.string())]), ["p"]))
    sent = asked(monkeypatch)
    with shared(partitioned.root) as (table, _):
        assert len(table.scan(filter="p = '3'", **moment).plan().tasks) == 1
    assert ["'3'" in (one.request.json_predicate_hints or "").replace('"', "'") for one in sent] == [True]


def test_limit_reads_no_more_of_an_endless_listing_than_needed(
    partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    listed, closed = server_source.live_files, []

    def endless(answer: TableResponse, table: AssetName, most: int) -> Iterator[list[SharedFile]]:
        first = [file for files in listed(answer, table, most) for file in files]
        yield first
        for number in itertools.count():
            taken.append(f"more-{number}")
            action = replace(first[0].action, path=first[0].action.path + str(number))
            yield [SharedFile(action, taken[-1])]

    def close(answer: TableResponse) -> None:
        closed.append(answer)

    monkeypatch.setattr(server_source, "live_files", endless)
    monkeypatch.setattr(TableResponse, "close", close)
    with shared(partitioned.root) as (table, _):
        scan = table.scan(limit=2)
        plan = scan.plan()
        assert plan.skipped.is_cut
        assert len(taken) < 1100
        assert len(closed) == 1
        assert re.search(r"files to read: \d of \d+ or more listed", scan.explain())
        assert scan.to_arrow().num_rows == 2


# --- declared and listed totals ---


@pytest.fixture
def boast(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The server declares two files more than it lists."""
    render_metadata = Renderer.metadata

    def metadata(self: Renderer, *values: Any, files: int | None = None, **others: Any) -> bytes:
        return render_metadata(self, *values, files=None if files is None else files + 2, **others)

    monkeypatch.setattr(Renderer, "metadata", metadata)
    return monkeypatch


@pytest.mark.usefixtures("boast")
def test_incomplete_listing_is_a_warning(partitioned: HandMadeTable) -> None:
    pattern = r"'s.s.t' has 8 files and \d+ bytes at version 1, but it listed 6 files and \d+ bytes"
    with shared(partitioned.root) as (table, _):
        scan = table.scan()
        for read in (scan.to_arrow, scan.to_pandas, lambda: list(scan.to_batches()), scan.count):
            with pytest.warns(ds.IncompleteReadWarning, match=pattern):
                read()
            assert scan.report is None or re.search(pattern, "".join(scan.report.notes))
        assert re.search(pattern, str(scan.report))
        assert re.search(pattern, html.unescape(scan.report._repr_html_()))
        with pytest.warns(ds.IncompleteReadWarning):
            assert re.search(f"  note: .*{pattern}", scan.explain())


def test_require_whole_table_refuses_an_incomplete_listing(
    partitioned: HandMadeTable, tmp_path: pathlib.Path, boast: pytest.MonkeyPatch
) -> None:
    options = ds.ReadOptions(require_whole_table=True)
    with shared(partitioned.root) as (table, _):
        scan = table.scan(options=options)
        for read in (scan.to_arrow, scan.plan, lambda: list(scan.to_batches()), scan.count):
            with pytest.raises(ds.ProtocolError, match=r"has 8 files .* listed 6 files .* 'require_whole_table'"):
                read()
        with pytest.raises(ds.ProtocolError, match="listed 6 files"):
            table.replicate(tmp_path / "copy", options=options)
        boast.undo()
        assert scan.count() == 6


@pytest.mark.parametrize("request_", [{"filter": "p = '3'"}, {"limit": 2}, {"filter": "a < 9", "limit": 1}])
@pytest.mark.parametrize("faults", [[], ["ignore-hints"]])
@pytest.mark.usefixtures("boast")
def test_totals_are_not_compared_if_a_part_is_requested(
    partitioned: HandMadeTable, request_: dict[str, Any], faults: list[str]
) -> None:
    options = ds.ReadOptions(require_whole_table=True)
    with shared(partitioned.root, faults=faults) as (table, _):
        assert table.scan(options=options, **request_).to_arrow().num_rows in (1, 2)


@pytest.mark.parametrize(
    ("totals", "sizes", "message"),
    [
        ((None, 7), [3, 4], None),
        ((2, None), [3, 4], None),
        ((2, 7), [3, -1], None),
        ((None, 8), [3, 4], "has 8 bytes at version 3, but it listed 2 files and 7 bytes"),
        ((3, None), [3, -1], "has 3 files at version 3, but it listed 2 files"),
        ((0, 0), [], None),
    ],
)
def test_listed_totals_are_compared_with_known_table_totals(
    totals: tuple[int | None, int | None], sizes: list[int], message: str | None
) -> None:
    answer = types.SimpleNamespace(
        head=types.SimpleNamespace(num_files=totals[0], table_size=totals[1], version=3),
        blocks=[[SharedFile(AddFile(f"https://h/{at}?x", {}, size), str(at))] for at, size in enumerate(sizes)],
    )
    notes: list[str] = []
    checked = server_source.checked_files(answer, AssetName("s", "s", "t"), 9, ds.ReadOptions(), notes)
    if message is None:
        assert len(list(itertools.chain.from_iterable(checked))) == len(sizes)
        assert notes == []
    else:
        with pytest.warns(ds.IncompleteReadWarning, match=message):
            list(checked)


def test_closing_a_stream_closes_its_response(partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, closed = asked(monkeypatch), closed_answers(monkeypatch)
    with shared(partitioned.root) as (table, _):
        stream = table.scan()._stream()
        assert stream.pending is not None
        assert stream.pending.break_off == sent[0].response.break_off
        stream.close()
        assert sent[0].response in closed


def test_error_late_in_a_listing_names_the_table(partitioned: HandMadeTable) -> None:
    with shared(partitioned.root, faults=["error-in-stream=3"]) as (table, _):
        scan = table.scan(options=ds.ReadOptions(max_attempts=1))
        stream = scan._stream()
        with pytest.raises(ds.DeltaSharingError) as failure:
            list(stream.every_file())
        assert failure.value.table == "s.s.t"


def test_snapshot_from_a_query_names_its_table(partitioned: HandMadeTable) -> None:
    with shared(partitioned.root) as (table, _):
        scan = table.scan()
        snapshot, files, plan = planning.plan_copy(scan._source(), scan.request)
    assert (snapshot.table, snapshot.version, snapshot.timestamp_ms) == ("s.s.t", 1, None)
    assert (snapshot.protocol.min_reader_version, snapshot.metadata.partition_columns) == (1, ["p"])
    assert len(snapshot.files) == len(files) == len(plan.tasks) == 6


# --- the cost of a schema, and its version ---


def test_current_schema_needs_no_query(partitioned: HandMadeTable) -> None:
    with shared(partitioned.root) as (table, server):
        assert table.scan().schema.names == ["a", "p"]
        assert {kind for kind, count in server.stats()["requests"].items() if count} == {"metadata"}


@pytest.mark.parametrize("asked_for", [{"version": 1}, {"timestamp": "2023-11-14T22:14:30Z"}])
def test_past_schema_comes_from_a_query(
    partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch, asked_for: dict[str, Any]
) -> None:
    partitioned.commit(partitioned.metadata(pa.schema([("z", pa.int64()), ("p", pa.string())]), ["p"]))
    with shared(partitioned.root) as (table, _):
        assert table.scan().schema.names == ["z", "p"]
        sent, closed = asked(monkeypatch), closed_answers(monkeypatch)
        assert table.scan(**asked_for).schema.names == ["a", "p"]
        # The client reads only the first file of a long list.
        assert [one.request.limit_hint for one in sent] == [1]
    assert [one.response for one in sent] == [answer for answer in closed if answer is sent[0].response][:1]


def test_lineage_schema_is_refused_without_row_tracking(partitioned: HandMadeTable) -> None:
    with shared(partitioned.root) as (table, _), pytest.raises(ds.UnsupportedFeatureError, match="does not track rows"):
        _ = table.scan(row_lineage=True).schema


def test_schema_matches_the_requested_response_format(tmp_path: pathlib.Path) -> None:
    table = HandMadeTable(tmp_path / "t").create(pa.schema([("a", pa.int64())]), features=["deletionVectors"])
    table.commit(table.file(pa.table({"a": [1, 2]}), removed=[0]))
    with shared(table.root) as (shared_table, _):
        assert shared_table.scan(response_format="delta").schema.names == ["a"]
        with pytest.raises(ds.DeltaSharingError, match=r"(?i)deletion"):
            _ = shared_table.scan(response_format="parquet").schema


def test_collated_column_does_not_disable_other_hints(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collated = {"name": "s", "type": "string", "nullable": True, "metadata": {"__COLLATIONS": {"s": "ICU.de_DE"}}}
    plain = {"name": "a", "type": "long", "nullable": True, "metadata": {}}
    table = HandMadeTable(tmp_path / "t").create(json.dumps({"type": "struct", "fields": [plain, collated]}))
    table.commit(table.file(pa.table({"a": [1], "s": ["x"]})))
    sent = asked(monkeypatch)
    with shared(table.root) as (shared_table, _):
        for filter_ in ("a = 1 AND s = 'x'", "a = 1", "s = 'x'"):
            assert shared_table.scan(filter=filter_).count() == 1
    both, only, none = (one.request.json_predicate_hints for one in sent)
    assert both == only
    assert both is not None
    assert '"a"' in both
    assert none is None


def test_filter_on_replaced_text_is_not_a_hint(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's statistics describe the invalid bytes in the files; partition values are never replaced, so hints
    on them are right."""
    schema = pa.schema([("a", pa.int64()), ("s", pa.string()), ("p", pa.string())])
    table = HandMadeTable(tmp_path / "t").create(schema, partition_by=["p"])
    table.commit(table.file(pa.table({"a": [1], "s": ["x"]}), {"p": "y"}))
    sent = asked(monkeypatch)
    with shared(table.root) as (shared_table, _):
        for filter_ in ("a = 1 AND s = 'x'", "s = 'x'", "p = 'y'"):
            for invalid_text in ("error", "replace"):
                assert shared_table.scan(filter=filter_, options=ds.ReadOptions(invalid_text=invalid_text)).count() == 1
    hints = [one.request.json_predicate_hints or "" for one in sent]
    assert ['"s"' in hint for hint in hints] == [True, False, True, False, False, False]
    assert ['"a"' in hint for hint in hints] == [True, True, False, False, False, False]
    assert ['"p"' in hint for hint in hints] == [False, False, False, False, True, True]


# --- failures that may be caused by the access mode ---


@pytest.mark.parametrize(
    "error",
    [ds.AuthError("no", status=401), ds.RequestError("busy", status=503), ds.ProtocolError("no"), ds.DataError("no")],
    ids=repr,
)
def test_failures_unrelated_to_the_mode_send_no_requests(
    partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch, error: ds.DeltaSharingError
) -> None:
    def fail(*_: Any, **__: Any) -> TableResponse:
        raise error

    with shared(partitioned.root) as (table, server):
        monkeypatch.setattr(server_source, "query_table", fail)
        with pytest.raises(type(error)) as caught:
            table.scan().plan()
        assert caught.value is error
        assert not any(server.stats()["requests"].values())


def test_failed_directory_read_names_the_shared_tables(
    partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> TableResponse:
        raise unreadable("Reading s.s.t", "s.s.t", {"volume"})

    by_directory = ds.ReadOptions(access_mode=ds.AccessMode.DIR)
    with shared(partitioned.root) as (table, _):
        monkeypatch.setattr(server_source, "query_table", fail)
        with pytest.raises(ds.UnsupportedFeatureError, match="found 'volume', which this client cannot read"):
            table.scan(options=by_directory).plan()


@pytest.mark.parametrize(("status", "goes_on"), [(401, False), (403, True)])
def test_refused_directory_access_to_history_falls_back_to_url(
    monkeypatch: pytest.MonkeyPatch, feed: HandMadeTable, status: int, goes_on: bool
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ds.AuthError("no", status=status)

    monkeypatch.setattr("delta_sharing_client.sources.log_source.LogSource.commits", fail)
    with shared(feed.root, options=ds.ReadOptions(access_mode=ds.AccessMode.DIR)) as (table, _):
        if goes_on:
            assert [one.version for one in table.history(1)] == [1, 2, 3, 4, 5]
        else:
            with pytest.raises(ds.AuthError):
                table.history(1)


# --- change data feeds ---


@pytest.fixture
def feed(tmp_path: pathlib.Path) -> HandMadeTable:
    properties = {"delta.enableChangeDataFeed": "true"}
    table = HandMadeTable(tmp_path / "t").create(pa.schema([("a", pa.int64())]), properties=properties)
    for number in range(1, 6):
        table.commit(table.file(pa.table({"a": [number]})))
    return table


@pytest.mark.parametrize(
    ("asked_for", "of_view"),
    [
        ({"starting_version": 1}, False),
        ({"starting_version": 1, "ending_version": 2}, False),
        ({"starting_timestamp": "2023-11-14T22:14:00Z"}, True),
        ({"starting_timestamp": "2023-11-14T22:14:00Z", "ending_version": 3}, False),
    ],
)
def test_feed_by_version_is_not_treated_as_a_views(
    feed: HandMadeTable, monkeypatch: pytest.MonkeyPatch, asked_for: dict[str, Any], of_view: bool
) -> None:
    sent = asked(monkeypatch)
    with shared(feed.root) as (table, _):
        assert table.changes(**asked_for).count() > 0
    assert {one.request.of_view for one in sent} == {of_view}
    # Only the requested versions are listed.
    assert {name: getattr(sent[0].request, name) for name in asked_for} == asked_for


def test_feed_uses_the_requested_response_format(feed: HandMadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    formats: list[ds.ResponseFormat] = []
    check = server_source.check_readable

    def checked(protocol: Any, *values: Any, **options: Any) -> None:
        formats.append(protocol.min_writer_version)
        assert (options["operation"], options["table"]) == (Operation.CHANGES, "s.s.t")
        check(protocol, *values, **options)

    monkeypatch.setattr(server_source, "check_readable", checked)
    with shared(feed.root) as (table, _):
        for wire in ("parquet", "delta"):
            assert table.changes(1, response_format=wire).count() == 5
    # Only the delta response format has the writer features.
    assert [version > 1 for version in formats] == [False, True]


def test_feed_read_in_windows_closes_its_first_response(feed: HandMadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, closed = asked(monkeypatch), closed_answers(monkeypatch)
    monkeypatch.setattr(windows, "FEW", 2)
    with shared(feed.root) as (table, _):
        changes = table.changes(1)
        stream = changes._stream()
        assert sent[0].response in closed
        assert stream.context.version == 5
        assert stream.pending is not None
        stream.pending.break_off()
        with pytest.raises(CancelledError):
            next(stream.every_file())
        stream.close()
        assert sorted(changes.to_arrow()["a"].to_pylist()) == [1, 2, 3, 4, 5]
        # If the end of a feed cannot be read, an error about the whole feed names the first unreadable version.
        checks = iter([None, ds.UnsupportedFeatureError("planted", feature="f"), *[None] * 9])

        def check(*_: object, **__: object) -> None:
            if error := next(checks):
                raise error

        monkeypatch.setattr(server_source, "check_readable", check)
        plan = changes._stream()
        assert plan.pending is None


def test_failed_feed_plan_closes_its_response(feed: HandMadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, closed = asked(monkeypatch), closed_answers(monkeypatch)
    with shared(feed.root) as (table, _), pytest.raises(ds.UsageError, match="'nope' is not in the table"):
        table.changes(1, columns=["nope"]).plan()
    assert sent[0].response in closed


# --- access modes ---


def answering(result: Any) -> Any:
    def answer(*_: Any) -> Any:
        if isinstance(result, ds.DeltaSharingError):
            raise result
        return result

    return answer


def either_of(
    modes: Sequence[str] | ds.DeltaSharingError,
    *,
    access_mode: ds.AccessMode = ds.AccessMode.AUTO,
    by_url: Any = None,
    by_directory: Any = None,
) -> tuple[either.EitherAccess, list[HeadRequest]]:
    """Return a table with these access modes and results, and a list that collects the requests for its modes."""
    sent: list[HeadRequest] = []

    def head(request: HeadRequest) -> Any:
        sent.append(request)
        return answering(modes if isinstance(modes, Exception) else types.SimpleNamespace(access_modes=modes))()

    server = types.SimpleNamespace(
        rest=None, name=AssetName("s", "s", "t"), options=ds.ReadOptions(access_mode=access_mode), head=head,
        files=answering(by_url), commits=answering(None),
    )  # fmt: skip
    directory = types.SimpleNamespace(files=answering(by_directory), commits=answering(["commit"]))
    return either.EitherAccess(cast("Any", server), lambda: cast("Any", directory)), sent


@pytest.mark.parametrize(
    ("modes", "only"),
    [
        (["DIR"], True),
        (["dir", "other"], True),
        (["dir", "URL"], False),
        (["url"], False),
        (["other"], False),
        ([], False),
    ],
)
def test_tables_with_only_directory_access_are_recognized(modes: list[str], only: bool) -> None:
    table, _ = either_of(modes)
    assert table.commits(0, None) == (["commit"] if only else None)


@pytest.mark.parametrize("access_mode", [ds.AccessMode.URL, ds.AccessMode.DIR])
@pytest.mark.parametrize("modes", [["Url", "other"], [], ds.AuthError("no", status=403), ["other"]])
def test_refusal_lists_the_declared_access_modes(access_mode: ds.AccessMode, modes: Any) -> None:
    refused = ds.RequestError("no", status=404)
    table, sent = either_of(modes, access_mode=access_mode, by_url=refused, by_directory=refused)
    with pytest.raises(ds.DeltaSharingError) as caught:
        table.files(ScanRequest(), Purpose.READ)
    assert len(sent) == 1
    if modes == ["other"]:
        assert re.search("found 'other', which this client cannot read", str(caught.value))
    else:
        assert caught.value is refused


@pytest.mark.parametrize("access_mode", [ds.AccessMode.URL, ds.AccessMode.DIR])
def test_access_modes_are_requested_only_after_a_refusal(access_mode: ds.AccessMode) -> None:
    busy, refused = ds.RequestError("busy", status=503), ds.RequestError("no", status=404)
    by_directory = ds.UnsupportedFeatureError("no", feature="storage")
    nameless = ds.UnsupportedFeatureError("no", feature="accessModes")
    of_directory = access_mode is ds.AccessMode.DIR
    for error, count in (
        (busy, 0),
        *((kind("no"), 0) for kind in (ds.ProtocolError, ds.DataError)),
        *((ds.RequestError("no", status=status), int(status == 400)) for status in (400, 429)),
        *((ds.AuthError("no", status=status), int(status == 403)) for status in (401, 403)),
        (refused, 1),
        (nameless, 0 if of_directory else 1),
    ):
        table, sent = either_of([], access_mode=access_mode, by_url=error, by_directory=by_directory)
        with pytest.raises(ds.DeltaSharingError) as caught:
            table.files(ScanRequest(), Purpose.READ)
        assert caught.value is (by_directory if of_directory and error is not nameless else error)
        assert len(sent) == count


def test_query_without_hint_or_limit_requests_all_files(
    partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = asked(monkeypatch)
    with shared(partitioned.root) as (table, _):
        for chosen, is_whole in (
            ({}, True),
            ({"limit": 3}, False),
            ({"filter": "p = '1'"}, False),
            ({"filter": "a + 1 = 2"}, True),
            ({"filter": "a + 1 = 2", "limit": 3}, True),
        ):
            sent.clear()
            table.scan(**chosen).plan()  # type: ignore[arg-type]
            hinted = [one.request.json_predicate_hints or one.request.limit_hint for one in sent]
            assert (hinted == [None]) is is_whole


def test_invalid_filter_sends_no_query(partitioned: HandMadeTable) -> None:
    with shared(partitioned.root) as (table, server):
        with pytest.raises(ds.UsageError, match="nobody"):
            table.scan(filter="nobody = 1").plan()
        assert "query" not in {kind for kind, count in server.stats()["requests"].items() if count}


def test_error_of_an_unsupported_table_names_it(partitioned: HandMadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **named: Any) -> None:
        raise ds.UnsupportedFeatureError("too new", feature="x", table=named.get("table"))

    with shared(partitioned.root) as (table, _):
        monkeypatch.setattr(server_source, "check_readable", refuse)
        with pytest.raises(ds.UnsupportedFeatureError) as caught:
            table.scan().plan()
        assert caught.value.table == "s.s.t"


@pytest.mark.parametrize(
    ("access_mode", "modes", "by_directory"),
    [
        (ds.AccessMode.AUTO, {"dir"}, True),
        (ds.AccessMode.AUTO, {"dir", "other"}, True),
        (ds.AccessMode.AUTO, {"dir", "url"}, False),
        (ds.AccessMode.AUTO, {"url"}, False),
        (ds.AccessMode.AUTO, set(), False),
        (ds.AccessMode.URL, {"dir"}, False),
    ],
)
def test_directory_is_read_if_urls_are_not_offered(
    access_mode: ds.AccessMode, modes: set[str], by_directory: bool
) -> None:
    refused = ds.RequestError("no", status=404)
    table, _ = either_of(sorted(modes), access_mode=access_mode, by_url=refused, by_directory="by directory")
    if by_directory:
        assert table.files(ScanRequest(), Purpose.READ) == "by directory"
    else:
        with pytest.raises(ds.RequestError) as caught:
            table.files(ScanRequest(), Purpose.READ)
        assert caught.value is refused


def test_refused_versions_do_not_ask_the_catalog() -> None:
    refused, name = ds.RequestError("gone", status=404), AssetName("s", "s", "t")

    def window(*_: Any, **__: Any) -> Any:
        raise refused

    delta = types.SimpleNamespace(
        rest=types.SimpleNamespace(server_facts={("formats", name): ()}),
        name=name,
        options=ds.ReadOptions(),
        window=window,
    )
    table = either.EitherFormat(cast("Any", delta), cast("Any", None))
    with pytest.raises(ds.RequestError) as caught:
        table.window(1, 2, feed=True, response_format=ds.ResponseFormat.AUTO)
    assert caught.value is refused
