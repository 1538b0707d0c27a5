"""Defects of the PyPI package ``delta-sharing`` 1.4.2 that this client does not have, one test each.

The tests have the numbers of the list of defects from which they were written.
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from tests.http_server import Exchange, HttpServer
from tests.regressions.hand_made import HandMadeTable
from tests.versions import TIME_UNIT

UTC = datetime.timezone.utc
BIG = 9007199254740993  # the smallest integer that float64 cannot represent
FORMATS = ("parquet", "delta")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "default" / "default"


@contextmanager
def shared(
    folder: pathlib.Path, name: str, **options: Any
) -> Iterator[tuple[ds.SharedTable, mock_server.RunningServer]]:
    with (
        mock_server.running(tables=folder.parent.parent, **options) as server,
        ds.SharingClient(server.profile, ds.ReadOptions(max_attempts=2, max_retry_seconds=2)) as client,
    ):
        yield client.table(f"default.default.{name}"), server


def numbers(folder: pathlib.Path, files: int = 5, name: str = "numbers") -> HandMadeTable:
    table = HandMadeTable(folder / name).create(pa.schema([("a", pa.int64())]))
    table.commit(*(table.file(pa.table({"a": [10 * i, 10 * i + 1]})) for i in range(files)))
    return table


# --- silently wrong results ---


def test_01_json_hints_survive_other_parameters(folder: pathlib.Path) -> None:
    table = HandMadeTable(folder / "t").create(pa.schema([("a", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    table.commit(*(table.file(pa.table({"a": [i]}), {"p": str(i)}) for i in range(5)))
    hints = {"op": "equal", "children": [
        {"op": "column", "name": "p", "valueType": "string"}, {"op": "literal", "value": "3", "valueType": "string"},
    ]}  # fmt: skip
    with shared(folder, "t") as (_, server):
        frame = ds.load_as_pandas(
            f"{server.profile_path}#default.default.t",
            limit=10,
            jsonPredicateHints=json.dumps(hints),
            use_delta_format=False,
            convert_in_batches=True,
        )
        assert frame["a"].tolist() == [3]
        assert server.stats()["requests"]["data"] == 1


@pytest.mark.parametrize("wire", FORMATS)
def test_02_predicates_filter_rows_when_the_server_ignores_them(folder: pathlib.Path, wire: str) -> None:
    numbers(folder)
    with shared(folder, "numbers", faults=["ignore-hints"]) as (table, _):
        assert table.scan(filter="a > 20", response_format=wire).to_pandas()["a"].tolist() == [21, 30, 31, 40, 41]


@pytest.mark.parametrize("wire", FORMATS)
def test_03_columns_in_another_case_keep_values_and_names(folder: pathlib.Path, wire: str) -> None:
    table = HandMadeTable(folder / "t").create(pa.schema([("Amount", pa.int64())]))
    table.commit(table.file(pa.table({"AMOUNT": [1]})), table.file(pa.table({"amount": [2]})))
    with shared(folder, "t") as (shared_table, _):
        assert shared_table.scan(response_format=wire).to_arrow().to_pydict() == {"Amount": [1, 2]}


@pytest.mark.parametrize("wire", FORMATS)
def test_04_long_partition_with_a_null_keeps_every_digit(folder: pathlib.Path, wire: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("p", pa.int64())])
    table = HandMadeTable(folder / "t").create(schema, partition_by=["p"])
    rows = pa.table({"a": pa.array([BIG, None], pa.int64())})
    table.commit(table.file(rows, {"p": str(BIG)}), table.file(rows, {"p": None}))
    with shared(folder, "t") as (shared_table, _):
        frame = shared_table.scan(response_format=wire).to_pandas()
    assert frame.dtypes.tolist() == [pd.Int64Dtype(), pd.Int64Dtype()]
    assert frame["p"].tolist() == [BIG, BIG, pd.NA, pd.NA]
    assert frame["a"].tolist() == [BIG, pd.NA, BIG, pd.NA]


@pytest.mark.parametrize("wire", FORMATS)
def test_05_int96_beyond_the_range_of_nanoseconds_does_not_wrap(folder: pathlib.Path, wire: str) -> None:
    moment = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    old = datetime.datetime(1, 1, 1, tzinfo=UTC)
    table = HandMadeTable(folder / "t").create(pa.schema([("at", pa.timestamp("us", tz="UTC"))]))
    rows = pa.table({"at": pa.array([moment, old, None], pa.timestamp("us", tz="UTC"))})
    table.commit(table.file(rows, use_deprecated_int96_timestamps=True))
    with shared(folder, "t") as (shared_table, _):
        assert shared_table.scan(response_format=wire).to_arrow()["at"].to_pylist() == [moment, old, None]


@pytest.mark.parametrize("wire", FORMATS)
def test_06_timestamp_partitions_are_utc_in_every_spelling(folder: pathlib.Path, wire: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    table = HandMadeTable(folder / "t").create(schema, partition_by=["at"])
    spellings = ["2024-05-01 10:00:00", "2024-05-01 10:00:00.000000", "2024-05-01T10:00:00.000000Z", None]
    table.commit(*(table.file(pa.table({"a": [i]}), {"at": text}) for i, text in enumerate(spellings)))
    with shared(folder, "t") as (shared_table, _):
        frame = shared_table.scan(response_format=wire).to_pandas()
    moment = pd.Timestamp("2024-05-01 10:00:00", tz="UTC")
    assert frame["at"].dtype == f"datetime64[{TIME_UNIT}, UTC]"
    assert frame["at"].tolist()[:3] == [moment] * 3
    assert frame["at"].isna().tolist() == [False, False, False, True]


def test_07_changes_are_the_rows_of_a_new_deletion_vector(folder: pathlib.Path) -> None:
    table = HandMadeTable(folder / "t").create(
        pa.schema([("a", pa.int64())]),
        properties={"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"},
        features=["deletionVectors"],
    )
    added = table.file(pa.table({"a": list(range(10))}))
    table.commit(added)
    table.commit(table.removal(added), table.without(added, [3]), operation="DELETE")
    with shared(folder, "t") as (shared_table, _):
        frame = shared_table.changes(starting_version=2).to_pandas()
    assert frame[["a", "_change_type", "_commit_version"]].to_numpy().tolist() == [[3, "delete", 2]]


@pytest.mark.parametrize("wire", FORMATS)
def test_08_change_timestamps_keep_their_milliseconds(folder: pathlib.Path, wire: str) -> None:
    table = HandMadeTable(folder / "t").create(
        pa.schema([("a", pa.int64())]), properties={"delta.enableChangeDataFeed": "true"}
    )
    table.commit(table.file(pa.table({"a": [1]})))
    log = folder / "t" / "_delta_log" / "00000000000000000001.json"
    os.utime(log, ns=(1_700_000_100_123_000_000, 1_700_000_100_123_000_000))
    with shared(folder, "t") as (shared_table, server):
        stamps = shared_table.changes(starting_version=1, response_format=wire).to_arrow()["_commit_timestamp"]
        assert stamps.cast(pa.int64()).to_pylist() == [1_700_000_100_123]
        url = f"{server.profile_path}#default.default.t"
        frame = ds.load_table_changes_as_pandas(url, starting_version=1)
        assert frame["_commit_timestamp"].tolist() == [1_700_000_100_123]


@pytest.mark.parametrize("fault", ["truncate-body:20", "lose-lines=1:20"])
def test_09_truncated_response_is_an_error(folder: pathlib.Path, fault: str) -> None:
    numbers(folder)
    with (
        shared(folder, "numbers", faults=[fault, "close-delimited@api"]) as (table, _),
        pytest.raises(ds.DeltaSharingError),
    ):
        table.scan().to_pandas()


@pytest.mark.parametrize("wire", FORMATS)
def test_10_every_page_is_read(folder: pathlib.Path, wire: str) -> None:
    numbers(folder)
    with shared(folder, "numbers", faults=["page-size=2"]) as (table, _):
        assert len(table.scan(response_format=wire).to_pandas()) == 10


@pytest.mark.parametrize("wire", FORMATS)
def test_11_limit_does_not_download_every_file(folder: pathlib.Path, wire: str) -> None:
    numbers(folder, files=20)
    with shared(folder, "numbers", faults=["ignore-hints"]) as (table, server):
        assert table.scan(limit=1, response_format=wire).to_pandas()["a"].tolist() == [0]
        assert server.stats()["requests"]["data"] <= 4


@pytest.mark.parametrize("wire", FORMATS)
def test_12_types_come_from_the_schema_and_not_from_files(folder: pathlib.Path, wire: str) -> None:
    table = HandMadeTable(folder / "t").create(pa.schema([("a", pa.int64()), ("b", pa.int32()), ("s", pa.string())]))
    table.commit(table.file(pa.table({"a": pa.array([1], pa.int32())})))
    with shared(folder, "t") as (shared_table, _):
        rows = shared_table.scan(response_format=wire).to_arrow()
    assert rows.schema.types == [pa.int64(), pa.int32(), pa.string()]
    assert rows.to_pylist() == [{"a": 1, "b": None, "s": None}]


@pytest.mark.parametrize("wire", FORMATS)
def test_13_empty_results_have_the_same_dtypes(folder: pathlib.Path, wire: str) -> None:
    schema = pa.schema([
        ("l", pa.int64()), ("d", pa.date32()), ("at", pa.timestamp("us", tz="UTC")), ("b", pa.bool_()),
        ("x", pa.decimal128(5, 2)), ("s", pa.string()), ("f", pa.float32()),
    ])  # fmt: skip
    row = {"l": 1, "d": datetime.date(2024, 1, 1), "at": datetime.datetime(2024, 1, 1, tzinfo=UTC), "b": True,
           "x": decimal.Decimal("1.25"), "s": "x", "f": 1.5}  # fmt: skip
    table = HandMadeTable(folder / "t").create(schema)
    table.commit(table.file(pa.Table.from_pylist([row], schema=schema)))
    with shared(folder, "t") as (shared_table, _):
        full = shared_table.scan(response_format=wire).to_pandas()
        empty = shared_table.scan(limit=0, response_format=wire).to_pandas()
        none = shared_table.scan(filter="l > 5", response_format=wire).to_pandas()
    assert len(full) == 1
    assert len(empty) == len(none) == 0
    assert full.dtypes.tolist() == empty.dtypes.tolist() == none.dtypes.tolist()


def test_14_old_version_before_deletion_vectors_is_read(folder: pathlib.Path) -> None:
    table = HandMadeTable(folder / "t").create(pa.schema([("a", pa.int64())]))
    added = table.file(pa.table({"a": [1, 2, 3]}))
    table.commit(added)
    upgrade = {"minReaderVersion": 3, "minWriterVersion": 7}
    upgrade |= {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    table.commit({"protocol": upgrade}, table.removal(added), table.without(added, [0]))
    with shared(folder, "t") as (shared_table, server):
        assert shared_table.scan(version=1).to_pandas()["a"].tolist() == [1, 2, 3]
        assert "metadata" not in server.stats()["requests"]
        assert shared_table.scan().to_pandas()["a"].tolist() == [2, 3]


# --- crashes on valid input ---


@pytest.mark.parametrize("wire", FORMATS)
def test_15_error_message_of_the_server_is_shown(folder: pathlib.Path, wire: str) -> None:
    numbers(folder)
    with shared(folder, "numbers", faults=["error-in-stream=1"]) as (table, _), pytest.raises(ds.RequestError) as error:
        table.scan(response_format=wire).to_pandas()
    assert "default.default.numbers" in str(error.value)


def test_16_parquet_response_is_read_if_delta_was_requested(folder: pathlib.Path) -> None:
    numbers(folder)
    with shared(folder, "numbers", faults=["wrong-format"]) as (table, _):
        assert len(table.scan(response_format="delta").to_pandas()) == 10
        assert len(table.scan(response_format="auto").to_pandas()) == 10


def test_16_delta_response_is_refused_if_parquet_was_requested(folder: pathlib.Path) -> None:
    numbers(folder)
    with (
        shared(folder, "numbers", faults=["wrong-format"]) as (table, _),
        pytest.raises(ds.ProtocolError, match="delta"),
    ):
        table.scan(response_format="parquet").to_pandas()


@pytest.mark.parametrize("kind", ["timestamp_ntz", "void", "char(3)", "varchar(3)", "interval day to second"])
def test_17_rare_column_types_are_read(folder: pathlib.Path, kind: str) -> None:
    fields = [{"name": "a", "type": "long", "nullable": True, "metadata": {}},
              {"name": "odd", "type": kind, "nullable": True, "metadata": {}}]  # fmt: skip
    features = ["timestampNtz"] if kind == "timestamp_ntz" else []
    table = HandMadeTable(folder / "t").create(json.dumps({"type": "struct", "fields": fields}), features=features)
    table.commit(table.file(pa.table({"a": [1]})))
    with shared(folder, "t") as (shared_table, _):
        assert shared_table.scan(columns=["a"]).to_pandas()["a"].tolist() == [1]
        assert shared_table.scan().to_arrow()["odd"].to_pylist() == [None]


@pytest.mark.parametrize("wire", FORMATS)
def test_18_binary_and_decimal_partitions_are_read(folder: pathlib.Path, wire: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.binary()), ("d", pa.decimal128(10, 2))])
    table = HandMadeTable(folder / "t").create(schema, partition_by=["b", "d"])
    table.commit(
        table.file(pa.table({"a": [1]}), {"b": "hi", "d": "-1.50"}),
        table.file(pa.table({"a": [2]}), {"b": "", "d": ""}),
    )
    with shared(folder, "t") as (shared_table, _):
        rows = shared_table.scan(response_format=wire).to_arrow().to_pylist()
    assert rows == [{"a": 1, "b": b"hi", "d": decimal.Decimal("-1.50")}, {"a": 2, "b": None, "d": None}]


# --- a server whose responses each test defines ---

PROTOCOL = {"protocol": {"minReaderVersion": 1}}
SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]})


@contextmanager
def answering(reply: Callable[[str], tuple[bytes, dict[str, str]]]) -> Iterator[ds.SharingClient]:
    """Run a server whose responses one function makes: ``reply(path)`` returns body and headers."""

    def answer(exchange: Exchange) -> None:
        body, headers = reply(exchange.path)
        exchange.reply(200, body, headers)

    with HttpServer(answer) as server:
        profile = {
            "shareCredentialsVersion": 1,
            "endpoint": f"{server.url}/prefix/",
            "bearerToken": "token-of-a-test",
        }
        with ds.SharingClient(profile, ds.ReadOptions(max_attempts=2, max_retry_seconds=2)) as client:
            yield client


def ndjson(*lines: object, end: bytes = b"\n") -> bytes:
    return end.join(json.dumps(line, ensure_ascii=False).encode() for line in lines) + end


def answer(body: bytes, **headers: str) -> tuple[bytes, dict[str, str]]:
    return body, {"Delta-Table-Version": "0", "Content-Type": "application/x-ndjson"} | headers


def test_19_missing_partitions_and_null_configuration_are_valid() -> None:
    metadata = {
        "metaData": {"id": "1", "format": {"provider": "parquet"}, "schemaString": SCHEMA, "configuration": None}
    }
    file = {"file": {"url": "http://127.0.0.1:1/f", "id": "f", "size": 10}}
    with answering(lambda path: answer(ndjson(PROTOCOL, metadata, file))) as client:
        plan = client.table("s.s.t").scan().plan()
    assert [task.file_id for task in plan.tasks] == ["f"]


@pytest.mark.parametrize("wire", FORMATS)
def test_20_change_feed_with_historical_metadata_is_read(folder: pathlib.Path, wire: str) -> None:
    properties = {"delta.enableChangeDataFeed": "true"}
    table = HandMadeTable(folder / "t").create(pa.schema([("a", pa.int64())]), properties=properties)
    table.commit(table.file(pa.table({"a": [1]})))
    wider = pa.schema([("a", pa.int64()), ("b", pa.string())])
    table.commit(table.metadata(wider, (), properties), table.file(pa.table({"a": [2], "b": ["x"]})))
    with shared(folder, "t") as (shared_table, _):
        frame = shared_table.changes(starting_timestamp="2023-01-01", response_format=wire).to_pandas()
    assert frame["a"].tolist() == [1, 2]
    assert frame["b"].isna().tolist() == [True, False]


@pytest.mark.parametrize("wire", FORMATS)
def test_21_files_without_rows_are_read(folder: pathlib.Path, wire: str) -> None:
    table = HandMadeTable(folder / "t").create(pa.schema([("a", pa.int64())]))
    table.commit(table.file(pa.table({"a": pa.array([], pa.int64())})))
    with shared(folder, "t") as (_, server):
        url = f"{server.profile_path}#default.default.t"
        frame = ds.load_as_pandas(url, use_delta_format=wire == "delta", convert_in_batches=True)
    assert frame["a"].dtype == pd.Int64Dtype()
    assert len(frame) == 0


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_22_only_newlines_end_a_line(end: bytes) -> None:
    name = "one\u2028two\u2029three\u0085four"
    metadata = {"metaData": {"id": "1", "name": name, "format": {"provider": "parquet"}, "schemaString": SCHEMA}}
    with answering(
        lambda path: answer(ndjson(PROTOCOL, metadata, end=end), **{"Content-Type": "text/plain"})
    ) as client:
        assert client.table("s.s.t").metadata().name == name


def test_23_listings_may_have_several_lines_or_be_empty() -> None:
    def reply(path: str) -> tuple[bytes, dict[str, str]]:
        listing = {} if path.endswith("/schemas") else {"items": [{"name": "one"}], "nextPageToken": ""}
        return json.dumps(listing, indent=2).encode(), {}

    with answering(reply) as client:
        assert [share.name for share in client.list_shares()] == ["one"]
        assert client.list_schemas("one") == []


def test_24_names_are_percent_encoded_and_a_share_may_have_dots() -> None:
    paths = []

    def reply(path: str) -> tuple[bytes, dict[str, str]]:
        paths.append(path)
        return answer(b"")

    with answering(reply) as client:
        assert client.table("my.share.sch#ema.ta?ble x").version() == 0
    assert paths == ["/prefix/shares/my.share/schemas/sch%23ema/tables/ta%3Fble%20x/version"]


def test_25_relative_path_and_version_2_bearer_token_work(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(folder)
    with shared(folder, "numbers") as (_, server):
        profile = server.profile | {"shareCredentialsVersion": 2, "type": "bearer_token"}
        (tmp_path / "v2.share").write_text(json.dumps(profile), "utf-8")
        monkeypatch.chdir(tmp_path)
        assert len(ds.SharingClient(pathlib.Path("v2.share")).list_all_tables()) == 1
        assert len(ds.load_as_pandas("v2.share#default.default.numbers")) == 10


def test_26_newer_protocol_error_suggests_an_upgrade() -> None:
    metadata = {"metaData": {"id": "1", "format": {"provider": "parquet"}, "schemaString": SCHEMA}}
    with (
        answering(lambda path: answer(ndjson({"protocol": {"minReaderVersion": 2}}, metadata))) as client,
        pytest.raises(ds.UnsupportedFeatureError, match=r"(?i)upgrade"),
    ):
        client.table("s.s.t").scan(response_format="parquet").to_pandas()


# --- HTTP, authentication, concurrency ---


def test_27_threads_may_read_with_different_formats(folder: pathlib.Path) -> None:
    numbers(folder)
    failures: list[BaseException] = []
    with shared(folder, "numbers", latency=0.005) as (table, _):

        def read(wire: str) -> None:
            try:
                for _ in range(8):
                    scan = table.scan(response_format=wire)
                    assert len(scan.to_pandas()) == 10
                    assert table.metadata().num_files == 5
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=read, args=(wire,)) for wire in FORMATS * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_28_netrc_file_does_not_replace_the_bearer_token(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(folder)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login wrong password wrong\n", "utf-8")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with shared(folder, "numbers") as (table, _):
        assert len(table.scan().to_pandas()) == 10
