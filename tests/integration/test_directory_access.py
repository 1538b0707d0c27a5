"""Directory access: the choice of access mode, credentials and their renewal, and refusals."""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.writer import write_checkpoint
from delta_sharing_client.protocol.messages import TemporaryCredentials
from delta_sharing_client.redact import Secret
from delta_sharing_client.run.batches import Batches
from mock_server import catalog, demo
from mock_server.s3 import S3Settings
from tests.regressions.hand_made import HandMadeTable
from tests.served import served
from tests.tables import TableWriter, rows_of
from tests.unit.delta.log_builder import LogBuilder, metadata

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
QUICK = ds.ReadOptions(max_attempts=2, max_retry_seconds=1, access_mode=ds.AccessMode.DIR)
FEED = {"delta.enableChangeDataFeed": "true"}
DEMO_OPERATIONS = ["CREATE TABLE AS SELECT", "RENAME COLUMN", "WRITE", "DELETE", "UPDATE", "OPTIMIZE", "WRITE"]


@pytest.fixture
def writer(tmp_path: pathlib.Path) -> TableWriter:
    return TableWriter(tmp_path / "shared", SCHEMA, properties=FEED)


@pytest.fixture
def local(writer: TableWriter) -> Iterator[tuple[mock_server.RunningServer, ds.SharedTable]]:
    with (
        mock_server.running(tables={"s.d.t": writer.path}, local_directories=True) as server,
        ds.SharingClient(server.profile, options=QUICK) as client,
    ):
        yield server, client.table("s.d.t")


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A local S3 server with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        resource = boto3.resource(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="planted-key",
            aws_secret_access_key="planted-secret",
        )
        bucket = resource.create_bucket(Bucket="tables")
        settings = S3Settings(
            endpoint=endpoint,
            region="us-east-1",
            access_key_id="planted-key",
            secret_access_key=Secret("planted-secret"),
        )
        yield bucket, settings
    finally:
        server.stop()


@pytest.fixture
def in_s3(writer: TableWriter, store: Any) -> Iterator[tuple[mock_server.RunningServer, ds.SharedTable]]:
    writer.insert(writer.file(rows_of([1, 2])), writer.file(rows_of([3])))
    bucket, settings = store
    bucket.objects.all().delete()
    for path in sorted(path for path in writer.path.rglob("*") if path.is_file()):
        bucket.upload_file(str(path), f"a/t/{path.relative_to(writer.path).as_posix()}")
    options = dataclasses.replace(QUICK, storage_options={"endpoint": settings.endpoint, "region": "us-east-1"})
    with (
        mock_server.running(tables=catalog.from_mapping({"s.d.t": "s3://tables/a/t"}), s3=settings) as server,
        ds.SharingClient(server.profile, options=options) as client,
    ):
        yield server, client.table("s.d.t")


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


# --- choice of access mode ---


def test_directory_supports_snapshots_time_travel_and_changes(local: Any, writer: TableWriter) -> None:
    _server, table = local
    first = writer.file(rows_of([1, 2]))
    writer.insert(first, writer.file(rows_of([3])))
    writer.commit(remove=[first], add=[first.deleting(0)])
    writer.commit(add=[writer.file(rows_of([4, 5]))])

    assert ids(table.scan().to_arrow()) == [2, 3, 4, 5]
    assert ids(table.scan(version=1).to_arrow()) == [1, 2, 3]
    assert ids(table.scan(filter="id > 3").to_arrow()) == [4, 5]
    assert table.scan(limit=1).to_arrow().num_rows == 1
    assert table.scan(columns=[]).to_arrow().num_rows == 4
    changes = table.changes(starting_version=2).to_arrow().to_pylist()
    assert sorted((row["_change_type"], row["id"], row["_commit_version"]) for row in changes) == [
        ("delete", 1, 2),
        ("insert", 4, 3),
        ("insert", 5, 3),
    ]
    by_url = table.changes(starting_version=0, options=ds.ReadOptions()).to_arrow()
    assert sorted(map(repr, table.changes(starting_version=0).to_arrow().to_pylist())) == sorted(
        map(repr, by_url.to_pylist())
    )


def test_directory_finds_the_same_version_by_time_as_by_url(local: Any, writer: TableWriter) -> None:
    _, table = local
    base = datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc)
    for number in range(3):
        writer.insert(writer.file(rows_of([number])))
    for version in range(4):
        moment = (base + datetime.timedelta(hours=version)).timestamp()
        os.utime(writer.path / "_delta_log" / f"{version:020}.json", (moment, moment))
    by_url = dataclasses.replace(table.options, access_mode=ds.AccessMode.URL)

    for minutes in (0, 30, 60, 119, 180):
        moment = base + datetime.timedelta(minutes=minutes)
        rows = ids(table.scan(timestamp=moment).to_arrow())
        assert rows == ids(table.scan(timestamp=moment, options=by_url).to_arrow())
    for moment in (base - datetime.timedelta(hours=1), base + datetime.timedelta(hours=9)):
        with pytest.raises(ds.DeltaSharingError):
            table.scan(timestamp=moment).to_arrow()


def test_directory_finds_the_same_changes_by_time_as_by_url(local: Any, writer: TableWriter) -> None:
    _, table = local
    base = datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc)
    for number in range(3):
        writer.insert(writer.file(rows_of([number])))
    for version in range(4):
        moment = (base + datetime.timedelta(hours=version)).timestamp()
        os.utime(writer.path / "_delta_log" / f"{version:020}.json", (moment, moment))
    by_url = dataclasses.replace(table.options, access_mode=ds.AccessMode.URL)

    def rows(options: ds.ReadOptions, **limits: Any) -> list[str] | str:
        try:
            returned = table.changes(options=options, **limits).to_arrow().to_pylist()
        except ds.DeltaSharingError as error:
            return f"refused: {isinstance(error, (ds.UsageError, ds.RequestError))}"
        return sorted(f"{row['id']} in {row['_commit_version']} at {row['_commit_timestamp']}" for row in returned)

    seen = []
    moments = [base + datetime.timedelta(minutes=minutes) for minutes in (-30, 0, 90, 180, 240)]
    for start in moments:
        result = rows(table.options, starting_timestamp=start)
        assert result == rows(by_url, starting_timestamp=start)
        seen.append(result)
        for end in moments:
            limits = {"starting_timestamp": start, "ending_timestamp": end}
            assert rows(table.options, **limits) == rows(by_url, **limits)
    assert [result if isinstance(result, str) else len(result) for result in seen] == [3, 3, 2, 1, "refused: True"]
    for limits in ({"starting_version": 4}, {"starting_version": 3, "ending_version": 2}):
        assert rows(table.options, **limits) == rows(by_url, **limits) == "refused: True"


def test_delete_gets_partition_values_from_the_added_file(tmp_path: pathlib.Path) -> None:
    writer = TableWriter(tmp_path / "parted", SCHEMA, partition_by=["text"], properties=FEED)
    file = writer.file([{"id": 1, "text": "a"}])
    writer.insert(file)
    writer.commit(protocol={"minReaderVersion": 1, "minWriterVersion": 4}, remove=[file])
    commit = writer.path / "_delta_log" / f"{2:020}.json"

    def leave_out(path: str) -> None:
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for remove in [line["remove"] for line in lines if "remove" in line]:
            # These fields are optional in the log.
            remove.pop("partitionValues", None)
            remove.pop("size", None)
            remove["path"] = path
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))

    with served(writer.path, QUICK, local_directories=True) as table:
        leave_out(file.path)
        rows = table.changes(starting_version=1).to_arrow().to_pylist()
        assert [(row["_change_type"], row["id"], row["text"]) for row in rows] == [
            ("insert", 1, "a"),
            ("delete", 1, "a"),
        ]
        leave_out("text=a/another.parquet")
        with pytest.raises(ds.DataError, match="version 2 removes has no partition values"):
            table.changes(starting_version=1).to_arrow()
        beginning = writer.path / "_delta_log" / f"{0:020}.json"
        removal = next(line for line in commit.read_text().splitlines() if "remove" in json.loads(line))
        beginning.write_text(f"{beginning.read_text()}{removal}\n")
        with pytest.raises(ds.DataError, match="version 0 removes has no partition values"):
            table.changes(starting_version=0).to_arrow()


def test_access_mode_is_an_option_and_shown_by_explain(local: Any, writer: TableWriter) -> None:
    _, table = local
    writer.insert(writer.file(rows_of([1])))
    ways = {mode: table.scan(options=dataclasses.replace(QUICK, access_mode=mode)).explain() for mode in ds.AccessMode}

    assert "access: by URL\n" in ways[ds.AccessMode.AUTO]
    assert "access: by URL\n" in ways[ds.AccessMode.URL]
    assert f"access: the table's directory, {writer.path.as_uri()}\n" in ways[ds.AccessMode.DIR]


def test_url_access_is_used_if_no_directory_is_shared(writer: TableWriter, caplog: pytest.LogCaptureFixture) -> None:
    writer.insert(writer.file(rows_of([1])))
    with (
        served(writer.path, QUICK) as shared,
        caplog.at_level(logging.WARNING),
    ):
        scan = shared.scan()
        assert ids(scan.to_arrow()) == [1]
        assert "access: by URL, because the table's directory cannot be read: " in scan.explain()
    assert "is read by URL" in caplog.text


def answered(monkeypatch: pytest.MonkeyPatch, table: ds.SharedTable, error: ds.DeltaSharingError) -> None:
    """Make requests for credentials fail with ``error``."""

    def credentials(*_: object, **__: object) -> TemporaryCredentials:
        raise error

    monkeypatch.setattr(type(table.rest), "credentials", credentials)


def test_url_access_is_used_if_credentials_are_refused(
    local: Any, writer: TableWriter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, table = local
    writer.insert(writer.file(rows_of([1, 2])))
    answered(monkeypatch, table, ds.AuthError("Credentials are for others.", status=403))

    assert ids(table.scan().to_arrow()) == [1, 2]
    assert "Credentials are for others." in table.scan().explain()
    assert ids(table.changes(starting_version=1).to_arrow()) == [1, 2]
    assert [entry.inserts for entry in table.history()] == [2]
    assert "is read by URL" in caplog.text

    answered(monkeypatch, table, ds.AuthError("Who is it?", status=401))
    with pytest.raises(ds.AuthError, match="Who is it"):
        table.scan().to_arrow()


def test_url_access_is_used_for_unknown_kinds_of_credentials(
    local: Any, writer: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, table = local
    writer.insert(writer.file(rows_of([1, 2])))
    answer = {"credentials": {"location": "r2://b/t", "r2TempCredentials": {"key": "planted"}, "expirationTime": 1}}
    body = json.dumps(answer).encode()
    fetch = type(table.rest).fetch
    monkeypatch.setattr(
        type(table.rest),
        "fetch",
        lambda self, request: (None, body) if request.path[-1].startswith("temporary") else fetch(self, request),
    )

    assert ids(table.scan().to_arrow()) == [1, 2]
    assert "with the scheme 'r2', found none of them" in table.scan().explain()


@pytest.mark.parametrize("mode", list(ds.AccessMode))
def test_error_says_that_the_asset_is_shared_as_a_volume(
    local: Any, writer: TableWriter, monkeypatch: pytest.MonkeyPatch, mode: ds.AccessMode
) -> None:
    _, table = local
    writer.insert(writer.file(rows_of([1])))
    monkeypatch.setattr(mock_server.table_apis, "access_of", lambda entry: {"accessModes": ["volume"]}, raising=True)
    answered(monkeypatch, table, ds.RequestError("It has none.", status=400))

    scan = table.scan(options=dataclasses.replace(QUICK, access_mode=mode))
    with pytest.raises(ds.UnsupportedFeatureError, match="expected the access mode 'url' or 'dir', found 'volume'"):
        scan.to_arrow()

    def refuse(*arguments: Any, **others: Any) -> None:
        raise ds.AuthError("Not by URL.", status=403)

    monkeypatch.setattr("delta_sharing_client.sources.server_source.query_table", refuse)
    with pytest.raises(ds.UnsupportedFeatureError, match="expected the access mode 'url' or 'dir', found 'volume'"):
        scan.to_arrow()


def test_server_gives_credentials_only_below_the_table(in_s3: Any) -> None:
    _, table = in_s3
    given = table.rest.temporary_table_credentials(table.name, "s3://tables/a/t/part=1")
    assert given.location == "s3://tables/a/t/part=1"
    for elsewhere in ("s3://tables/a/tt", "s3://tables/a/t/../u", "s3://tables/a/t/%2E%2E/u", "s3://tables/a"):
        with pytest.raises(ds.RequestError, match="must be the table's location"):
            table.rest.temporary_table_credentials(table.name, elsewhere)


def test_directory_only_table_is_read_without_options(writer: TableWriter, tmp_path: pathlib.Path) -> None:
    writer.insert(writer.file(rows_of([7])))
    shared = catalog.from_mapping({"s.d.t": writer.path})
    only = catalog.build([dataclasses.replace(entry, modes=("dir",)) for entry in shared.tables])
    with (
        mock_server.running(tables=only, local_directories=True) as server,
        ds.SharingClient(server.profile, options=ds.ReadOptions(max_attempts=2)) as client,
    ):
        table = client.table("s.d.t")
        assert ids(table.scan().to_arrow()) == [7]
        assert ids(table.changes(starting_version=0).to_arrow()) == [7]
        assert table.replicate(tmp_path / "copy").num_files == 1
        by_url = ds.ReadOptions(max_attempts=2, access_mode=ds.AccessMode.URL)
        with pytest.raises(ds.DeltaSharingError, match="directory access only"):
            table.scan(options=by_url).to_arrow()


def test_changes_of_a_table_without_a_change_feed_are_refused(tmp_path: pathlib.Path) -> None:
    writer = TableWriter(tmp_path / "plain", SCHEMA)
    writer.insert(writer.file(rows_of([1])))
    with (
        served(writer.path, QUICK, local_directories=True) as table,
        pytest.raises(ds.UnsupportedFeatureError, match="were not recorded"),
    ):
        table.changes(starting_version=0).to_arrow()


def test_unrecorded_versions_of_a_change_feed_are_refused(tmp_path: pathlib.Path) -> None:
    narrow, wide = pa.schema([("id", pa.int64())]), SCHEMA
    hand_made = HandMadeTable(tmp_path / "altered").create(narrow, properties=FEED)
    hand_made.commit(hand_made.file(pa.table({"id": [1]})))
    hand_made.commit(hand_made.metadata(wide, (), FEED), hand_made.file(pa.table({"id": [2], "text": ["b"]})))
    hand_made.commit(hand_made.metadata(wide), hand_made.file(pa.table({"id": [3], "text": ["c"]})))
    hand_made.commit(hand_made.metadata(wide, (), FEED), hand_made.file(pa.table({"id": [4], "text": ["d"]})))
    with served(hand_made.root, QUICK, local_directories=True) as table:

        def rows(start: int, end: int) -> list[tuple[int, int, str | None]]:
            returned = table.changes(starting_version=start, ending_version=end).to_arrow().to_pylist()
            return sorted((row["_commit_version"], row["id"], row["text"]) for row in returned)

        assert rows(0, 2) == [(1, 1, None), (2, 2, "b")]
        assert rows(4, 4) == [(4, 4, "d")]
        for start in (0, 2, 3):
            with pytest.raises(ds.UnsupportedFeatureError, match="version 3 were not recorded"):
                rows(start, 4)


# --- locations ---


def test_only_declared_auxiliary_locations_are_read(writer: TableWriter, tmp_path: pathlib.Path) -> None:
    aside, elsewhere = tmp_path / "aside", tmp_path / "elsewhere"
    for folder, number in ((aside, 1), (elsewhere, 2)):
        file = writer.file(rows_of([number]))
        folder.mkdir()
        (writer.path / file.path).rename(folder / "x y.parquet")
        writer.insert(dataclasses.replace(file, path=f"{folder.as_uri()}/x%20y.parquet"))
    shared = catalog.from_mapping({"s.d.t": writer.path})
    entries = [dataclasses.replace(entry, auxiliary=(aside.as_uri(),), modes=("dir",)) for entry in shared.tables]
    with (
        mock_server.running(tables=catalog.build(entries), local_directories=True) as server,
        ds.SharingClient(server.profile, options=QUICK) as client,
    ):
        table = client.table("s.d.t")
        assert ids(table.scan(version=1).to_arrow()) == [1]
        with pytest.raises(ds.UnsupportedFeatureError, match="outside of the locations that are shared"):
            table.scan().to_arrow()


def test_log_path_outside_the_table_is_refused(local: Any, writer: TableWriter) -> None:
    _, table = local
    file = writer.file(rows_of([1]))
    (writer.path / file.path).rename(writer.path.parent / "out.parquet")
    writer.insert(dataclasses.replace(file, path="%2E%2E/out.parquet"))

    with pytest.raises(ds.DataError, match="stay inside the table"):
        table.scan().to_arrow()


# --- credentials ---


def test_s3_table_is_read_with_temporary_credentials(in_s3: Any, caplog: pytest.LogCaptureFixture) -> None:
    _, table = in_s3
    scan = table.scan()
    with caplog.at_level(logging.DEBUG):
        assert ids(scan.to_arrow()) == [1, 2, 3]

    plan = table.scan().plan()
    texts = [scan.explain(), repr(plan), repr(plan.context.place)]
    # The servers of the test run in this process and also write log records.
    texts += [record.getMessage() for record in caplog.records if record.name.startswith("delta_sharing_client")]
    given = plan.context.place._places["s3://tables/a/t"][1].renewal.current()
    for secret in (given.reveal("secret_access_key"), given.reveal("session_token")):
        assert secret
        assert not [text for text in texts if secret in text]


def test_error_for_a_deleted_file_names_the_table(in_s3: Any, store: Any) -> None:
    _, table = in_s3
    bucket, _ = store
    plan = table.scan().plan()
    for item in bucket.objects.filter(Prefix="a/t/"):
        if item.key.endswith(".parquet"):
            item.delete()

    with pytest.raises(ds.DataError, match="it is missing") as caught:
        list(Batches(plan))
    assert caught.value.table == "s.d.t"
    bucket.objects.all().delete()
    with pytest.raises(ds.DeltaSharingError, match="_delta_log"):
        table.scan().plan()


def test_directory_history_has_every_version_and_its_operation(tmp_path: pathlib.Path) -> None:
    tables = demo.build(tmp_path)
    with (
        mock_server.running(tables=tables, local_directories=True) as server,
        ds.SharingClient(server.profile, options=QUICK) as client,
    ):
        orders = client.table("demo.shop.orders")
        by_url = dataclasses.replace(orders, options=dataclasses.replace(QUICK, access_mode=ds.AccessMode.URL))
        versions, counted = orders.history(), by_url.history()

        assert [one.version for one in versions] == [*range(7)]
        assert [one.operation for one in versions] == DEMO_OPERATIONS
        assert {one.operation for one in counted} == {None}
        kept = {one.version: (one.timestamp, one.inserts, one.updates, one.deletes) for one in counted}
        for one in versions:
            assert kept.get(one.version, (one.timestamp, 0, 0, 0)) == (
                one.timestamp, one.inserts, one.updates, one.deletes
            )  # fmt: skip
        assert str(versions[3]) == "version 3, 2026-01-08 08:00:00: DELETE, 0 inserts, 0 updates, 245 deletes"
        assert "<th" in versions._repr_html_()  # type: ignore[attr-defined]
        assert ">operation<" in versions._repr_html_()  # type: ignore[attr-defined]
        assert ">operation<" not in counted._repr_html_()  # type: ignore[attr-defined]
        assert [one.version for one in orders.history(3, 4)] == [3, 4]


def test_history_has_no_counts_where_no_feed_was_recorded(tmp_path: pathlib.Path) -> None:
    log = LogBuilder(tmp_path / "t").start()
    log.commit(1, {"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "userName": "me"}})
    log.commit(2, {"commitInfo": {"operation": 5, "operationParameters": ["x"]}}, metadata(configuration=FEED))
    log.commit(3, {"commitInfo": {"operation": "OPTIMIZE"}})
    with served(log.root, QUICK, local_directories=True) as table:
        versions = table.history()

    assert [(one.operation, one.inserts) for one in versions] == [
        (None, None),
        ("WRITE", None),
        (None, 0),
        ("OPTIMIZE", 0),
    ]
    assert versions[1].operation_parameters == {"mode": "Append"}
    assert str(versions[1]).endswith(": WRITE, changes not recorded")
    assert hash(versions[1]) == hash(dataclasses.replace(versions[1]))
    assert "WRITE" in versions._repr_html_()  # type: ignore[attr-defined]


def test_history_starts_at_the_first_commit_in_the_log(tmp_path: pathlib.Path) -> None:
    log = LogBuilder(tmp_path / "t").start(configuration=FEED)
    for version in (1, 2, 3):
        log.commit(version, {"commitInfo": {"operation": f"V{version}"}})
    then = DeltaLog.open(log.root).snapshot(2)
    write_checkpoint(log.directory / f"{2:020}.checkpoint.parquet", [then.protocol, then.metadata])
    for version in (0, 1):
        (log.directory / f"{version:020}.json").unlink()
    with served(log.root, QUICK, local_directories=True) as table:
        assert [(one.version, one.operation) for one in table.history()] == [(2, "V2"), (3, "V3")]


def test_history_by_url_requests_no_credentials(
    local: tuple[mock_server.RunningServer, ds.SharedTable],
) -> None:
    server, table = local
    by_url = dataclasses.replace(table, options=dataclasses.replace(QUICK, access_mode=ds.AccessMode.AUTO))

    assert {one.operation for one in by_url.history()} <= {None}
    assert "temporary-table-credentials" not in server.stats()["requests"]
