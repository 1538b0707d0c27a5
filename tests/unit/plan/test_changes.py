"""Plans for the change data feed: files, their rows, and the schema."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    DeletionVectorDescriptor,
    Metadata,
    Protocol,
    RemoveFile,
    SharedFile,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file
from delta_sharing_client.errors import (
    DataError,
    ProtocolError,
    SchemaChangeError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.plan.changes import FeedPart, plan_changes, stream_changes
from delta_sharing_client.plan.explain import explain
from delta_sharing_client.plan.read_request import ChangesRequest
from delta_sharing_client.plan.tasks import Change, ChangeKind, ScanPlan, ScanStream
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import col
from tests.unit.storages import Storage, fast_options, metadata, parquet_bytes, rows_of, table_state
from tests.vectors import encode_inline, poisoned

SCHEMA = pa.schema([("id", pa.int64())])
TIME = 1_700_000_000_123


class Feed:
    """A change feed: its actions, and their files in a storage."""

    def __init__(self, storage: Storage, head: Metadata | None = None) -> None:
        self.storage = storage
        self.head = head or metadata(SCHEMA)
        self.actions: list[Any] = []

    def file(self, kind: type, version: int, name: str, ids: Sequence[int] | pa.Table, **fields: Any) -> SharedFile:
        table = ids if isinstance(ids, pa.Table) else pa.table({"id": pa.array(ids, pa.int64())})
        blob = parquet_bytes(table)
        self.storage.files[name] = blob
        file_id = fields.pop("file_id", f"id-{name}")
        action = kind(path=self.storage.url(name, f"{kind.__name__}-{version}"), size=len(blob), **fields)
        self.actions.append(SharedFile(action, file_id, version=version, timestamp=TIME + version))
        return self.actions[-1]

    def change_last(self, **fields: Any) -> None:
        """Replace these fields of the last action."""
        self.actions[-1] = replace(self.actions[-1], **fields)

    def add(self, version: int, name: str, ids: Sequence[int] | pa.Table, **fields: Any) -> SharedFile:
        return self.file(AddFile, version, name, ids, **fields)

    def remove(self, version: int, name: str, ids: Sequence[int] | pa.Table, **fields: Any) -> SharedFile:
        return self.file(RemoveFile, version, name, ids, **fields)

    def cdc(self, version: int, name: str, ids: Sequence[int], types: Sequence[str], **fields: Any) -> SharedFile:
        table = pa.table({"id": pa.array(ids, pa.int64()), "_change_type": list(types)})
        return self.file(AddCdcFile, version, name, table, **fields)

    def plan(self, columns: Sequence[str] | None = None, **request: Any) -> ScanPlan:
        paths = None if columns is None else tuple((name,) for name in columns)
        changes = ChangesRequest(starting_version=0, columns=paths, **request)
        return plan_changes(table_state(self.head), self.actions, changes, fast_options())

    def read(self, columns: Sequence[str] | None = None, report: ScanReport | None = None, **request: Any) -> pa.Table:
        return rows_of(self.plan(columns, **request), report)

    def rows(self, **request: Any) -> list[tuple[Any, ...]]:
        rows = self.read(["id", "_change_type", "_commit_version"], **request).to_pylist()
        return [tuple(row.values()) for row in rows]


@pytest.fixture
def feed(storage: Storage) -> Feed:
    return Feed(storage)


def vector(*positions: int) -> DeletionVectorDescriptor:
    return encode_inline(DeletionVector.from_positions(positions))


@pytest.mark.parametrize("kind", [AddFile, RemoveFile, AddCdcFile])
def test_file_that_is_sent_twice_for_one_version_is_refused(storage: Storage, kind: type) -> None:
    feed = Feed(storage)
    feed.file(kind, 1, "a", pa.table({"id": [1], "_change_type": ["insert"]}))
    feed.file(kind, 2, "a", pa.table({"id": [1], "_change_type": ["insert"]}))
    assert feed.read().num_rows == 2
    feed.actions.append(feed.actions[-1])
    with pytest.raises(ProtocolError, match="each file of version 2 once"):
        feed.plan()
    action = replace(feed.actions[-1].action, path="https://host/another.parquet")
    feed.actions[-1] = replace(feed.actions[-1], action=action)
    with pytest.raises(ProtocolError, match="two with one id"):
        feed.plan()


def test_file_without_id_sent_twice_is_refused(feed: Feed) -> None:
    for signature in "xy":
        feed.add(2, "a", [1], file_id=None)
        feed.change_last(action=replace(feed.actions[-1].action, path=feed.storage.url("a", signature)))
    with pytest.raises(ProtocolError, match="each file of version 2 once"):
        feed.plan()


def test_feed_columns_have_their_types(feed: Feed) -> None:
    feed.add(1, "a", [1])
    rows = feed.read()
    assert rows.schema == pa.schema(
        [
            ("id", pa.int64()),
            ("_change_type", pa.string()),
            ("_commit_version", pa.int64()),
            ("_commit_timestamp", pa.timestamp("ms", tz="UTC")),
        ]
    )
    commit_time = datetime.datetime.fromtimestamp(TIME // 1000, datetime.timezone.utc).replace(microsecond=124_000)
    assert rows.to_pylist() == [
        {"id": 1, "_change_type": "insert", "_commit_version": 1, "_commit_timestamp": commit_time}
    ]


def test_column_of_a_view_may_be_named_like_a_feed_column(storage: Storage) -> None:
    rows = pa.table({"id": [1, 2], "_commit_version": [7, 8]})
    feed = Feed(storage, metadata(rows.schema))
    feed.add(1, "a", rows)

    changes = feed.read(["id"], of_view=True, filter=col("_commit_version") == 7)

    assert changes["id"].to_pylist() == [1]


def test_adds_are_inserts_and_removes_are_deletes_by_version(feed: Feed) -> None:
    feed.remove(3, "a", [1, 2])
    feed.add(1, "a", [1, 2])
    feed.add(2, "b", [3])
    assert feed.rows() == [
        (1, "insert", 1),
        (2, "insert", 1),
        (3, "insert", 2),
        (1, "delete", 3),
        (2, "delete", 3),
    ]


def test_change_files_replace_data_files_of_their_version(feed: Feed) -> None:
    feed.add(1, "a", [1, 2])
    feed.remove(2, "a", [1, 2])
    feed.add(2, "b", [1, 5])
    feed.cdc(2, "c", [2, 5], ["update_preimage", "update_postimage"])
    assert feed.rows()[2:] == [(2, "update_preimage", 2), (5, "update_postimage", 2)]


def test_files_without_data_change_contribute_no_rows(feed: Feed) -> None:
    feed.remove(1, "a", [1, 2], data_change=False)
    feed.add(1, "b", [1, 2], data_change=False)
    assert feed.read().num_rows == 0
    feed.add(1, "c", [3])
    assert feed.rows() == [(3, "insert", 1)]


def test_change_type_column_of_a_data_file_is_ignored(feed: Feed) -> None:
    feed.add(1, "a", pa.table({"id": [1], "_change_type": ["delete"]}))
    assert feed.rows() == [(1, "insert", 1)]


def test_a_change_file_without_change_types_is_an_error(feed: Feed) -> None:
    feed.file(AddCdcFile, 1, "c", [1])
    with pytest.raises(DataError, match="_change_type"):
        feed.rows()


# === Deletion vectors ===


@pytest.mark.parametrize("same_id", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, (1, 3), [(11, "delete", 5), (13, "delete", 5)]),
        ((1, 3), None, [(11, "insert", 5), (13, "insert", 5)]),
        ((1, 2), (2, 4), [(14, "delete", 5), (11, "insert", 5)]),
        ((1, 2), (1, 2, 3), [(13, "delete", 5)]),
        ((1, 2), (1, 2), []),
        (None, None, []),
    ],
)
def test_add_and_remove_of_a_file_give_only_the_changed_rows(
    feed: Feed, before: tuple[int, ...] | None, after: tuple[int, ...] | None, expected: list[Any], same_id: bool
) -> None:
    ids = range(10, 16)
    names = {} if same_id else {"file_id": None}
    # The pair has only the changed rows; the others must not be read.
    others = sorted({*range(6)} - ({*(before or ())} ^ {*(after or ())}))
    rows = poisoned(pa.table({"id": pa.array(ids, pa.int64())}), others)
    feed.remove(5, "a", rows, deletion_vector=None if before is None else vector(*before), **names)
    feed.add(5, "a", rows, deletion_vector=None if after is None else vector(*after), **names)
    # Each URL has its own signature.
    assert feed.actions[0].action.path != feed.actions[1].action.path
    assert feed.rows() == expected
    assert feed.rows(filter=parse_filter("id + 1 > 0 AND 1 / id < 1")) == expected


def test_add_and_remove_in_different_versions_are_not_a_pair(feed: Feed) -> None:
    feed.remove(5, "a", [1, 2], deletion_vector=vector(0))
    feed.add(6, "a", [1, 2], deletion_vector=vector(1))
    assert feed.rows() == [(2, "delete", 5), (1, "insert", 6)]


def test_vectors_of_a_pair_take_one_request(feed: Feed, storage: Storage) -> None:
    blob, descriptors = encode_file(
        [DeletionVector.from_positions([1]), DeletionVector.from_positions([1, 2])], "placeholder"
    )
    storage.put("dv", blob)
    before, after = (
        DeletionVectorDescriptor("p", storage.url("dv", str(i)), d.size_in_bytes, d.cardinality, d.offset)
        for i, d in enumerate(descriptors)
    )
    feed.remove(5, "a", [1, 2, 3], deletion_vector=before)
    feed.add(5, "a", [1, 2, 3], deletion_vector=after)
    assert feed.rows() == [(3, "delete", 5)]
    assert len(storage.requested("dv")) == 1


def test_same_vector_signed_twice_is_not_a_change(feed: Feed, storage: Storage) -> None:
    blob, (d,) = encode_file([DeletionVector.from_positions([1])], "placeholder")
    storage.put("dv", blob)
    for kind, signature in ((feed.remove, "x"), (feed.add, "y")):
        descriptor = DeletionVectorDescriptor(
            "p", storage.url("dv", signature), d.size_in_bytes, d.cardinality, d.offset
        )
        kind(5, "a", [1, 2, 3], deletion_vector=descriptor)
    assert feed.plan().tasks == []


def test_changed_files_are_matched_by_id_before_path(feed: Feed) -> None:
    for name, path, file_id in (("a", "b", "id-a"), ("b", "a", "id-b")):
        feed.remove(5, name, [1, 2], file_id=file_id)
        feed.change_last(action=replace(feed.actions[-1].action, path=feed.storage.url(path, "moved")))
    feed.add(5, "a", [1, 2], deletion_vector=vector(0))
    changes = [(task.file_id, task.only is not None) for task in feed.plan().tasks]
    assert changes == [("id-b", False), ("id-a", True)]


def test_files_without_ids_are_distinguished_by_path(feed: Feed) -> None:
    for name, ids in (("a", [1, 2]), ("b", [3, 4])):
        feed.remove(5, name, ids, file_id=None)
        feed.add(5, name, ids, deletion_vector=vector(1), file_id=None)
    feed.add(5, "c", [5], file_id=None)
    assert feed.rows() == [(2, "delete", 5), (4, "delete", 5), (5, "insert", 5)]


# === Partitions, filters, limits ===


def test_files_of_every_kind_have_partition_values(storage: Storage) -> None:
    schema = pa.schema([("p", pa.string()), ("id", pa.int64())])
    feed = Feed(storage, metadata(schema, ["p"]))
    feed.add(1, "a", [1], partition_values={"p": "x"})
    feed.remove(2, "a", [1], partition_values={"p": "x"})
    feed.cdc(3, "c", [2], ["insert"], partition_values={"p": None})
    assert feed.read()["p"].to_pylist() == ["x", "x", None]


@pytest.mark.parametrize(
    ("predicate", "expected", "files"),
    [
        (col("_commit_version") >= 2, [2, 3, 4], 2),
        (col("_change_type") == "delete", [2, 4], 2),
        (col("_change_type") != "insert", [2, 4], 2),
        (col("_commit_timestamp") < datetime.datetime.fromtimestamp(1_700_000_000.125, datetime.timezone.utc), [1], 1),
        ((col("_commit_version") == 3) & (col("id") == 4), [4], 1),
    ],
    ids=str,
)
def test_filters_on_feed_columns_skip_files(feed: Feed, predicate: Any, expected: list[int], files: int) -> None:
    feed.add(1, "a", [1])
    feed.remove(2, "b", [2])
    feed.cdc(3, "c", [3, 4], ["insert", "delete"])
    assert feed.read(["id"], filter=predicate)["id"].to_pylist() == expected
    assert len(feed.storage.requests) == files


def test_statistics_of_another_version_skip_no_row(feed: Feed) -> None:
    # The tight bounds of the add action cover the remaining rows, not the deleted row 9.
    feed.remove(5, "a", [1, 2, 9])
    stats = {"numRecords": 3, "tightBounds": True, "minValues": {"id": 1}, "maxValues": {"id": 2}}
    feed.add(5, "a", [1, 2, 9], deletion_vector=vector(2), stats=json.dumps(stats))
    assert feed.rows(filter=col("id") == 9) == [(9, "delete", 5)]


def test_limit_reads_no_unneeded_file(feed: Feed) -> None:
    for version in range(1, 30):
        feed.add(version, f"f{version}", [version, version], stats='{"numRecords": 2}')
    assert feed.rows(limit=3) == [(1, "insert", 1), (1, "insert", 1), (2, "insert", 2)]
    assert len(feed.storage.requests) == 2


def test_feed_columns_alone_need_no_file(feed: Feed) -> None:
    feed.add(1, "a", [1, 2], stats='{"numRecords": 2}')
    assert feed.read(["_commit_version"]).to_pydict() == {"_commit_version": [1, 1]}
    assert feed.storage.requests == []


def test_columns_are_in_the_requested_order(feed: Feed) -> None:
    feed.add(1, "a", [1])
    assert feed.read(["_commit_version", "id"]).column_names == ["_commit_version", "id"]


def test_table_column_named_like_a_feed_column_is_refused(storage: Storage) -> None:
    feed = Feed(storage, metadata(pa.schema([("_change_type", pa.string())])))
    with pytest.raises(UsageError, match="_change_type"):
        feed.plan()


def test_explain_of_changes_names_table_and_version(feed: Feed) -> None:
    feed.add(1, "a", [1])
    text = explain(feed.plan(["id"], filter=col("_commit_version") < 5))
    assert "Changes of share.schema.t, version 1" in text
    assert "http" not in text


@pytest.mark.parametrize("missing", ["version", "timestamp"])
def test_a_file_without_version_or_timestamp_is_refused(feed: Feed, missing: str) -> None:
    feed.add(1, "a", [1])
    feed.change_last(**{missing: None})
    with pytest.raises(ProtocolError, match="id-a"):
        feed.plan()


# === Schema changes ===


def described(*fields: tuple[str, Any], partitions: Sequence[str] = (), **properties: str) -> Metadata:
    columns = [
        {"name": name, "type": data_type, "nullable": True, "metadata": {}} if isinstance(data_type, str) else data_type
        for name, data_type in fields
    ]
    text = json.dumps({"type": "struct", "fields": columns})
    return metadata(text, partitions, {key.replace("__", "."): value for key, value in properties.items()})


def mapped(name: str, physical: str, number: int, data_type: str = "long", nullable: bool = True) -> dict[str, Any]:
    keys = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number}
    return {"name": name, "type": data_type, "nullable": nullable, "metadata": keys}


def test_older_rows_have_nulls_and_widened_types(storage: Storage) -> None:
    feed = Feed(storage, described(("id", "integer")))
    feed.add(1, "a", pa.table({"id": pa.array([1], pa.int32())}))
    feed.actions.append(VersionedMetadata(2, described(("id", "long"), ("name", "string"))))
    feed.add(2, "b", pa.table({"id": [2**40], "name": ["new"]}))
    rows = feed.read(["id", "name"])
    assert rows.to_pydict() == {"id": [1, 2**40], "name": [None, "new"]}


NESTED = {"type": "struct", "fields": [{"name": "y", "type": "long", "nullable": True, "metadata": {}}]}


@pytest.mark.parametrize(
    ("new", "value"),
    [("integer", 7), ("string", "x"), ("decimal(5,2)", decimal.Decimal("1.25")), (NESTED, {"y": 7})],
    ids=str,
)
def test_rows_from_before_void_became_a_type_have_nulls(storage: Storage, new: Any, value: object) -> None:
    """Delta protocol, "Void Type": data files omit the column."""
    field = {"name": "v", "type": new, "nullable": True, "metadata": {}}
    feed = Feed(storage, described(("id", "long"), ("v", "void")))
    feed.add(1, "a", pa.table({"id": [1]}))
    feed.actions.append(VersionedMetadata(2, described(("id", "long"), ("v", field))))
    feed.add(2, "b", pa.table({"id": [2], "v": [value]}))
    assert feed.read(["id", "v"]).to_pydict() == {"id": [1, 2], "v": [None, value]}
    assert feed.read(["id"], filter=col("v").is_null()).to_pydict() == {"id": [1]}


def test_columns_and_filter_use_the_last_schema(storage: Storage) -> None:
    feed = Feed(storage, described(("id", "long")))
    feed.actions.append(VersionedMetadata(2, described(("id", "long"), ("name", "string"))))
    plan = feed.plan(["NAME", "_change_type"], filter=col("name").is_null())
    assert plan.output_schema.names == ["name", "_change_type"]


def test_last_schema_has_the_highest_version_in_any_order(storage: Storage) -> None:
    schemas = [described(*((name, "long") for name in "abcd"[:count])) for count in (1, 2, 3, 4)]
    for order in itertools.permutations(range(1, 4)):
        feed = Feed(storage, schemas[0])
        feed.actions += [VersionedMetadata(version, schemas[version]) for version in order]
        assert feed.plan(["d"]).output_schema.names == ["d"]


BREAKING = {
    "void again": (described(("x", "long")), described(("x", "void")), "from long to void"),
    "dropped": (described(("id", "long"), ("x", "long")), described(("id", "long")), "'x' was dropped"),
    "narrowed": (described(("x", "long")), described(("x", "integer")), "from long to integer"),
    "another type": (described(("x", "string")), described(("x", "long")), "from string to long"),
    "partitions": (
        described(("id", "long"), ("x", "long")),
        described(("id", "long"), ("x", "long"), partitions=["x"]),
        "partition columns",
    ),
    "renamed": (
        described(("x", mapped("x", "p1", 1)), delta__columnMapping__mode="name"),
        described(("y", mapped("y", "p1", 1)), delta__columnMapping__mode="name"),
        "'x' was renamed to 'y'",
    ),
    "dropped and added again": (
        described(("x", mapped("x", "p1", 1)), delta__columnMapping__mode="name"),
        described(("x", mapped("x", "p2", 2)), delta__columnMapping__mode="name"),
        "'x' was dropped",
    ),
    "not null": (
        described(("x", mapped("x", "x", 1))),
        described(("x", mapped("x", "x", 1, nullable=False))),
        "became NOT NULL",
    ),
}


@pytest.mark.parametrize("change", BREAKING)
def test_error_of_a_breaking_change_names_its_version(storage: Storage, change: str) -> None:
    before, after, reason = BREAKING[change]
    feed = Feed(storage, before)
    feed.actions += [VersionedMetadata(7, after), VersionedMetadata(9, after)]
    with pytest.raises(SchemaChangeError, match=reason) as caught:
        feed.plan()
    assert caught.value.version == 7
    assert "up to version 6 and those from version 7 on separately" in str(caught.value)


@pytest.mark.parametrize(
    "columns", [["_CHANGE_TYPE"], [("_Commit_Version",)], ["_change_type", "_commit_version", "_commit_timestamp"]]
)
def test_feed_column_names_are_case_insensitive(storage: Storage, columns: Any) -> None:
    before, after, _ = BREAKING["dropped"]
    request = ChangesRequest(starting_version=0, columns=columns)
    plan = plan_changes(table_state(before), [VersionedMetadata(7, after)], request, fast_options())
    assert len(plan.output_schema.names) == len(columns)


def test_error_of_an_unversioned_change_names_no_version(storage: Storage) -> None:
    before, after, reason = BREAKING["dropped"]
    feed = Feed(storage, before)
    feed.actions.append(VersionedMetadata(None, after))
    with pytest.raises(SchemaChangeError, match=f"The schema changed in a way that .*{reason}") as caught:
        feed.plan()
    assert caught.value.version is None
    assert "Read the changes" not in str(caught.value)


def test_schema_error_names_the_table(storage: Storage) -> None:
    feed = Feed(storage, metadata("no schema"))
    feed.actions.append(VersionedMetadata(2, described(("id", "long"))))
    with pytest.raises(ProtocolError) as caught:
        feed.plan()
    assert caught.value.table == "share.schema.t"


def test_unchanged_schema_is_not_a_change(storage: Storage) -> None:
    feed = Feed(storage, described(("id", "long")))
    feed.actions.append(VersionedMetadata(7, described(("id", "long"))))
    feed.add(8, "a", [1])
    assert feed.rows() == [(1, "insert", 8)]


def test_enabling_column_mapping_is_not_a_change(storage: Storage) -> None:
    feed = Feed(storage, described(("id", "long")))
    feed.add(1, "a", [1])
    later = described(("id", mapped("id", "id", 1)), delta__columnMapping__mode="name")
    feed.actions.append(VersionedMetadata(2, later))
    feed.add(3, "b", [2])
    assert feed.rows() == [(1, "insert", 1), (2, "insert", 3)]


def test_unsupported_protocol_in_the_feed_is_refused(feed: Feed) -> None:
    feed.actions.append(VersionedProtocol(4, Protocol(3, 7, ["fromTheFuture"], ["fromTheFuture"])))
    with pytest.raises(UnsupportedFeatureError, match="fromTheFuture") as caught:
        feed.plan()
    assert caught.value.table == "share.schema.t"


@pytest.mark.parametrize("columns", [["id"], ["_change_type"], []])
@pytest.mark.parametrize("before", [None, (1, 77)])
def test_vector_past_the_end_of_a_file_is_refused(
    feed: Feed, columns: list[str], before: tuple[int, ...] | None
) -> None:
    old_vector = {"deletion_vector": vector(*before)} if before else {}
    feed.remove(1, "a", range(10), **old_vector)
    feed.add(1, "a", range(10), deletion_vector=vector(1, 77))
    if before:
        file = feed.actions.pop()
        feed.actions.append(replace(file, action=replace(file.action, deletion_vector=vector(1, 2, 77))))
    with pytest.raises(DataError, match=r"contains row 77, counted from 0, but the file has only 10 rows.*id-a"):
        feed.read(columns)


# === Parts of a feed ===


def streamed(*parts: FeedPart, end: Metadata | None = None, **request: Any) -> ScanStream:
    table = table_state(end or parts[-1].metadata, version=9)
    return stream_changes(table, parts, ChangesRequest(starting_version=0, **request), fast_options())


def versions(stream: ScanStream) -> list[int]:
    return [task.change.commit_version for task in stream.every_file() if task.change is not None]


def parts_of_one_file(feed: Feed, listed: list[int]) -> list[FeedPart]:
    """Return the parts for versions 1 to 3; each listed version is appended to ``listed``."""

    def actions(version: int) -> Iterator[Any]:
        listed.append(version)
        yield feed.add(version, f"f{version}", [version], stats='{"numRecords": 1}')

    return [FeedPart(version, feed.head, actions(version)) for version in (1, 2, 3)]


def test_parts_are_planned_as_they_are_listed(feed: Feed) -> None:
    listed: list[int] = []
    stream = streamed(*parts_of_one_file(feed, listed))
    first = next(stream.every_file())
    assert (first.change, listed) == (Change(ChangeKind.INSERT, 1, TIME + 1), [1])
    assert versions(stream) == [2, 3]


@pytest.mark.parametrize(("limit", "expected"), [(1, [1]), (2, [1, 2]), (9, [1, 2, 3])])
def test_parts_of_a_feed_beyond_the_limit_are_not_listed(feed: Feed, limit: int, expected: list[int]) -> None:
    listed: list[int] = []
    stream = streamed(*parts_of_one_file(feed, listed), limit=limit)
    assert versions(stream) == listed == expected


def test_parts_of_a_feed_share_one_schema_history(feed: Feed) -> None:
    before, after = described(("id", "long")), described(("id", "long"), ("name", "string"))
    other = described(("id", "string"))
    one, two, three = (feed.add(version, f"f{version}", [version]) for version in (1, 2, 3))

    parts = FeedPart(None, before, [one]), FeedPart(2, after, [two]), FeedPart(3, after, [three])
    assert versions(streamed(*parts)) == [1, 2, 3]

    # Versions 1 and 2 do not fit the last schema; the error shows where to split the feed.
    parts = FeedPart(None, other, [one]), FeedPart(2, other, [two]), FeedPart(3, after, [three])
    with pytest.raises(SchemaChangeError, match="in version 3") as caught:
        versions(streamed(*parts))
    assert caught.value.version == 3
    # The feed's own columns fit any schema.
    assert versions(streamed(*parts, columns=["_commit_version"])) == [1, 2, 3]
    for columns in (["id"], ["_commit_version", "id"], None):
        with pytest.raises(SchemaChangeError):
            versions(streamed(*parts, columns=columns))
    with pytest.raises(SchemaChangeError):
        versions(streamed(*parts, columns=["_commit_version"], filter=col("id") > 1))


def test_rows_before_a_schema_error_are_not_returned(feed: Feed) -> None:
    before, after, _ = BREAKING["another type"]
    actions = [feed.add(1, "a", [1])]
    stream = streamed(FeedPart(None, before, actions), FeedPart(2, after, []))
    with pytest.raises(SchemaChangeError, match="in version 2"):
        next(stream.every_file())


def test_feed_must_end_with_the_schema_of_the_table(feed: Feed) -> None:
    head, more = described(("id", "long")), described(("id", "long"), ("name", "string"))
    add = feed.add(1, "a", [1])
    with pytest.raises(ProtocolError, match="must end with the schema that the server states for version 9"):
        versions(streamed(FeedPart(None, head, [add]), end=more))
    assert versions(streamed(FeedPart(None, head, [add]), end=more, columns=["_change_type"])) == [1]
    assert versions(streamed(FeedPart(None, head, [add, VersionedMetadata(1, more)]), end=more)) == [1]
    assert versions(streamed(end=head)) == []


# === Views, vectors and statistics ===


def test_feed_of_a_view_has_timestamps_and_no_versions(feed: Feed) -> None:
    feed.add(1, "a", [1])
    feed.change_last(version=None, timestamp=TIME + 5)
    feed.remove(1, "b", [2])
    feed.change_last(version=None, timestamp=TIME + 3)
    plan = feed.plan(of_view=True)
    assert plan.output_schema.names == ["id", "_change_type", "_commit_timestamp"]
    assert [task.file_id for task in plan.tasks] == ["id-b", "id-a"]
    assert plan.context.version is None
    feed.cdc(1, "c", [3], ["insert"])
    feed.change_last(version=None, timestamp=TIME + 4)
    assert [task.file_id for task in feed.plan(of_view=True).tasks] == ["id-b", "id-c", "id-a"]
    feed.cdc(1, "d", [3], ["insert"])
    feed.change_last(version=None, timestamp=TIME + 3)
    with pytest.raises(
        UnsupportedFeatureError, match="change files and added or removed files with the same timestamp"
    ):
        feed.plan(of_view=True)
    feed.actions = [replace(feed.actions[0], timestamp=None)]
    with pytest.raises(ProtocolError, match="must have a version and a timestamp"):
        feed.plan(of_view=True)


def test_a_plan_has_the_last_version_of_the_feed(feed: Feed) -> None:
    assert feed.plan().context.version is None
    feed.add(4, "a", [1])
    feed.add(2, "b", [1])
    assert feed.plan().context.version == 4
    assert feed.plan().context.is_change_feed


@pytest.mark.parametrize("field", ["storage_type", "offset", "size_in_bytes", "cardinality", "path_or_inline_dv"])
def test_vectors_with_a_different_field_are_a_change(feed: Feed, field: str) -> None:
    before = DeletionVectorDescriptor("p", "https://h/dv?sig=1", 34, 1, 1)
    other = {"storage_type": "u", "path_or_inline_dv": "https://h/dw?sig=1"}.get(field, 35)
    feed.remove(5, "a", [1, 2], deletion_vector=before)
    feed.add(5, "a", [1, 2], deletion_vector=before)
    assert feed.plan().tasks == []
    action = replace(feed.actions[1].action, deletion_vector=replace(before, **{field: other}))
    feed.change_last(action=action)
    kinds = [task.change.kind for task in feed.plan().tasks if task.change is not None]
    assert kinds == [ChangeKind.DELETE, ChangeKind.INSERT]


def test_changes_use_the_statistics_of_their_own_action(feed: Feed) -> None:
    """The statistics of ``remove`` describe the deleted rows, those of ``add`` the inserted rows."""
    stats = '{{"numRecords": 3, "tightBounds": true, "minValues": {{"id": {0}}}, "maxValues": {{"id": {1}}}}}'
    feed.remove(5, "a", [1, 2, 9], deletion_vector=vector(2), stats=stats.format(1, 2))
    feed.add(5, "a", [1, 2, 9], deletion_vector=vector(0), stats=stats.format(2, 9))
    assert feed.rows(filter=col("id") == 9) == [(9, "insert", 5)]
    assert [task.num_records for task in feed.plan().tasks] == [3, 3]
    plan = feed.plan(filter=col("id") == 9)
    assert (len(plan.tasks), plan.skipped.by_statistics) == (1, 1)


@pytest.mark.parametrize("predicate", [None, col("id") > 0])
def test_add_actions_row_count_applies_to_both_tasks(feed: Feed, predicate: Any) -> None:
    feed.remove(5, "a", [1, 2, 9], deletion_vector=vector(2))
    feed.add(5, "a", [1, 2, 9], deletion_vector=vector(0), stats='{"numRecords": 3}')
    assert [task.num_records for task in feed.plan(filter=predicate).tasks] == [3, 3]


def test_schema_change_in_the_first_version_has_no_remedy(storage: Storage) -> None:
    feed = Feed(storage, described(("x", "string")))
    feed.actions.append(VersionedMetadata(0, described(("x", "long"))))
    with pytest.raises(SchemaChangeError, match=r"changed in version 0 .* from string to long\. \(") as caught:
        feed.plan()
    assert "Read the changes" not in str(caught.value)
    assert caught.value.version == 0


def test_remove_takes_partition_values_from_its_add(storage: Storage) -> None:
    schema = pa.schema([("p", pa.string()), ("id", pa.int64())])
    feed = Feed(storage, metadata(schema, ["p"]))
    feed.remove(5, "a", [1, 2])
    feed.add(5, "a", [1, 2], deletion_vector=vector(1), partition_values={"p": "x"})
    assert feed.rows(filter=col("p") == "x") == [(2, "delete", 5)]
    assert feed.rows(filter=col("p") == "y") == []
    assert feed.rows(filter=(col("p") == "x") & (col("id") > 1)) == [(2, "delete", 5)]
    assert feed.plan(filter=col("p") == "y").skipped.by_partition == 1


@pytest.mark.parametrize("kind", [AddFile, RemoveFile, AddCdcFile])
def test_partition_values_and_statistics_skip_files_together(storage: Storage, kind: type) -> None:
    schema = pa.schema([("p", pa.string()), ("id", pa.int64())])
    feed = Feed(storage, metadata(schema, ["p"]))
    columns = {"id": [1, 2], "_change_type": ["insert", "delete"]} if kind is AddCdcFile else {"id": [1, 2]}
    stats = {} if kind is AddCdcFile else {"stats": '{"numRecords": 2, "minValues": {"id": 1}, "maxValues": {"id": 2}}'}
    feed.file(kind, 5, "a", pa.table(columns), partition_values={"p": "x"}, **stats)
    matching, other = ((col("p") == value) | (col("id") > 100) for value in "xy")
    assert [row[0] for row in feed.rows(filter=matching)] == [1, 2]
    assert feed.plan(filter=other).skipped.by_statistics == (0 if kind is AddCdcFile else 1)


def test_removed_file_may_lack_a_size(feed: Feed) -> None:
    feed.remove(5, "a", [1, 2])
    feed.change_last(action=replace(feed.actions[-1].action, size=None))
    assert [task.size for task in feed.plan().tasks] == [-1]
    assert feed.rows() == [(1, "delete", 5), (2, "delete", 5)]
    assert feed.plan(limit=0).skipped.bytes == 0


def test_removed_file_may_lack_partition_values(storage: Storage) -> None:
    schema = pa.schema([("p", pa.string()), ("id", pa.int64())])
    feed = Feed(storage, metadata(schema, ["p"]))
    feed.remove(5, "a", [1, 2])
    assert feed.read(["p", "id"]).to_pydict() == {"p": [None, None], "id": [1, 2]}
    assert feed.rows(filter=col("p").is_null()) == [(1, "delete", 5), (2, "delete", 5)]
    assert feed.rows(filter=col("p") == "x") == []
