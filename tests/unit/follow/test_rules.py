"""A stream's handling of commits and schema changes, without Spark."""

from __future__ import annotations

import json

import pytest

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    DeletionVectorDescriptor,
    Metadata,
    RemoveFile,
    SharedFile,
)
from delta_sharing_client.errors import AuthError, DataError, DeltaSharingError, RequestError, TransportError
from delta_sharing_client.follow.admission import appended_files, change_files, units
from delta_sharing_client.follow.follow_request import OnChange
from delta_sharing_client.follow.follower import VersionClock, may_pass
from delta_sharing_client.follow.versions import difference, fingerprint

VECTOR = DeletionVectorDescriptor("i", "x", 4, 1)


def add(name: str, vector: DeletionVectorDescriptor | None = None) -> SharedFile:
    return SharedFile(AddFile(path=name, deletion_vector=vector), name)


def remove(name: str, vector: DeletionVectorDescriptor | None = None) -> SharedFile:
    return SharedFile(RemoveFile(path=name, deletion_vector=vector), name)


def cdc(name: str) -> SharedFile:
    return SharedFile(AddCdcFile(path=name), name)


def appended(actions: list[SharedFile], policy: OnChange) -> object:
    try:
        return [file.file_id for file in appended_files(actions, 7, policy)]
    except DataError as error:
        return str(error)


def test_appends_are_read_with_any_option() -> None:
    for policy in OnChange:
        assert appended([add("b"), add("a")], policy) == ["a", "b"]
        assert appended([], policy) == []


def test_deletes_fail_unless_an_option_ignores_them() -> None:
    message = appended([remove("a")], OnChange.FAIL)
    assert "Detected deleted data in version 7" in str(message)
    assert "ignoreDeletes" in str(message)
    for policy in (OnChange.IGNORE_DELETES, OnChange.IGNORE_CHANGES, OnChange.SKIP_CHANGE_COMMITS):
        assert appended([remove("a")], policy) == []


@pytest.mark.parametrize("actions", [[remove("a"), add("b")], [remove("a"), add("a", VECTOR)]])
def test_updates_fail_unless_an_option_ignores_them(actions: list[SharedFile]) -> None:
    for policy in (OnChange.FAIL, OnChange.IGNORE_DELETES):
        message = str(appended(actions, policy))
        assert "Detected a data update in version 7" in message
        assert "skipChangeCommits" in message
    assert appended(actions, OnChange.IGNORE_CHANGES) == [actions[1].file_id]
    assert appended(actions, OnChange.SKIP_CHANGE_COMMITS) == []


def test_change_files_replace_data_files_and_stay_together() -> None:
    files = change_files([add("z"), cdc("c"), remove("a"), cdc("b")])
    assert [file.file_id for file in files] == ["b", "c"]
    assert units(files) == (0, 0)


def test_added_and_removed_files_are_ordered_by_id() -> None:
    files = change_files([add("c"), remove("a"), add("b")])
    assert [file.file_id for file in files] == ["a", "b", "c"]
    assert units(files) == (0, 1, 2)


def test_files_with_the_same_id_stay_together() -> None:
    files = change_files([add("a"), remove("a"), add("b")])
    assert [type(file.action) for file in files] == [RemoveFile, AddFile, AddFile]
    assert units(files) == (0, 0, 1)


def test_files_of_a_commit_with_a_deletion_vector_stay_together() -> None:
    assert units(change_files([add("a", VECTOR), remove("a"), add("b")])) == (0, 0, 0)


def test_file_without_id_is_refused() -> None:
    with pytest.raises(DataError, match="without an id"):
        units([SharedFile(AddFile(path="x"))])


# --- schemas ---


def table(*columns: tuple[str, object], partition_by: list[str] | None = None, **config: str) -> Metadata:
    fields = [
        {"name": name, "type": kind, "nullable": not str(kind).endswith("!"), "metadata": {}} for name, kind in columns
    ]
    return Metadata(
        id="t",
        schema_string=json.dumps({"type": "struct", "fields": fields}).replace('!"', '"'),
        partition_columns=partition_by or [],
        configuration=config,
    )


def struct(*columns: tuple[str, object]) -> object:
    return json.loads(table(*columns).schema_string)


PLAIN = table(("a", "integer"), ("b", "string"))


@pytest.mark.parametrize(
    ("seen", "fragment"),
    [
        (table(("a", "integer"), ("b", "string")), None),
        (table(("a", "integer")), None),
        (table(("a", "integer!"), ("b", "string")), None),
        (table(("a", "integer"), ("c", "string")), "column 'c' was dropped or renamed"),
        (table(("A", "integer"), ("b", "string")), "column 'A' is now spelled 'a'"),
        (table(("a", "long"), ("b", "string")), "column 'a' changed its type from long to integer"),
        (table(("a", "integer"), ("b", "string"), partition_by=["a"]), "partition columns change"),
    ],
)
def test_columns_already_read_must_fit_the_new_schema(seen: Metadata, fragment: str | None) -> None:
    result = difference(seen, PLAIN)
    assert result is None if fragment is None else fragment in str(result)


def test_nullability_is_ignored() -> None:
    assert difference(PLAIN, table(("a", "integer!"), ("b", "string!"))) is None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: inner,
        lambda inner: {"type": "array", "elementType": inner, "containsNull": True},
        lambda inner: {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True},
    ],
)
def test_changes_of_nested_fields_are_detected(wrap) -> None:
    read = table(("s", wrap(struct(("x", "integer"), ("y", "string")))))
    assert difference(table(("s", wrap(struct(("x", "integer"))))), read) is None
    assert "x" in str(difference(table(("s", wrap(struct(("x", "long"))))), read))
    assert "z" in str(difference(table(("s", wrap(struct(("z", "integer"))))), read))


def test_column_replaced_under_the_same_name_is_detected() -> None:
    def mapped(physical: str) -> Metadata:
        fields = [
            {"name": "a", "type": "long", "nullable": True, "metadata": {"delta.columnMapping.physicalName": physical}}
        ]
        text = json.dumps({"type": "struct", "fields": fields})
        return Metadata(id="t", schema_string=text, configuration={"delta.columnMapping.mode": "name"})

    assert "another column with that name" in str(difference(mapped("x"), mapped("y")))
    assert difference(mapped("x"), mapped("x")) is None


def test_fingerprint_depends_on_schema_and_partitioning() -> None:
    assert fingerprint(PLAIN) == fingerprint(table(("a", "integer"), ("b", "string"), other="x"))
    assert fingerprint(PLAIN) != fingerprint(table(("a", "integer"), ("b", "string"), partition_by=["b"]))
    assert fingerprint(PLAIN) != fingerprint(table(("a", "long"), ("b", "string")))


# --- polling ---


class Server:
    def __init__(self, *versions: int) -> None:
        self.versions = list(versions)
        self.asked = 0

    def __call__(self) -> int:
        self.asked += 1
        return self.versions.pop(0) if len(self.versions) > 1 else self.versions[0]


def test_version_is_requested_once_per_interval() -> None:
    now, server = [0.0], Server(1, 2, 3)
    clock = VersionClock(server, 30, lambda: now[0])
    assert [clock.latest() for _ in range(1000)] == [1] * 1000
    assert server.asked == 1
    now[0] = 29.9
    assert clock.latest() == 1
    now[0] = 30.0
    assert clock.latest() == 2
    assert server.asked == 2


def test_lower_version_is_ignored() -> None:
    now = [0.0]
    clock = VersionClock(Server(5, 3), 30, lambda: now[0])
    assert clock.latest() == 5
    now[0] = 40.0
    assert clock.latest() == 5


def test_frozen_version_is_not_requested_again() -> None:
    now, server = [0.0], Server(5, 9)
    clock = VersionClock(server, 30, lambda: now[0])
    clock.freeze()
    now[0] = 1e6
    assert clock.latest() == 5
    assert server.asked == 1


class Outage:
    """A server that does not respond for a while, which a fake clock measures."""

    def __init__(self, error: DeltaSharingError, down: range) -> None:
        self.error, self.down, self.now, self.asked = error, down, 0.0, 0

    def __call__(self) -> int:
        self.asked += 1
        if int(self.now) in self.down:
            raise self.error
        return 5 + int(self.now) // 100


@pytest.mark.parametrize("error", [TransportError("down"), RequestError("down", status=503)])
def test_only_outages_shorter_than_the_limit_are_waited_out(error: DeltaSharingError) -> None:
    server = Outage(error, range(10, 250))
    clock = VersionClock(server, 30, lambda: server.now, max_outage=300)
    assert clock.latest() == 5
    for now in range(1, 250):
        server.now = now
        assert clock.latest() == 5
    assert server.asked <= 10
    server.now = 290
    assert clock.latest() == 7
    server.down = range(300, 900)
    for now in range(320, 590, 10):
        server.now = now
        assert clock.latest() == 7
    server.now = 601
    assert clock.latest() == 7
    server.now = 640
    with pytest.raises(type(error)):
        clock.latest()


@pytest.mark.parametrize(
    ("max_outage", "error"),
    [(0, TransportError("down")), (300, RequestError("no such table", status=404)), (300, AuthError("no"))],
)
def test_errors_that_are_not_waited_out_are_raised(max_outage: float, error: DeltaSharingError) -> None:
    server = Outage(error, range(10, 250))
    clock = VersionClock(server, 30, lambda: server.now, max_outage=max_outage)
    assert clock.latest() == 5
    server.now = 40
    with pytest.raises(type(error)):
        clock.latest()


def test_statuses_501_and_505_are_not_transient() -> None:
    results = {
        status: may_pass(RequestError("x", status=status)) for status in (400, 404, 429, 500, 501, 503, 505, 520)
    }
    assert [status for status, passes in results.items() if passes] == [429, 500, 503, 520]
    assert may_pass(TransportError("x"))
