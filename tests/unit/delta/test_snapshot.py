from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.actions import (
    Action,
    AddCdcFile,
    AddFile,
    DeletionVectorDescriptor,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    RowIdHighWaterMark,
    SharedFile,
    Transaction,
)
from delta_sharing_client.delta.log.log_lines import read_actions
from delta_sharing_client.delta.paths import shared_file_key
from delta_sharing_client.delta.snapshot import (
    Replay,
    Snapshot,
    Want,
    is_reconciled,
    table_schema,
    without_conflicts,
)
from delta_sharing_client.errors import ProtocolError
from tests.quota import meets, met
from tests.time_limits import Stopwatch

SCHEMA = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'
HEAD: list[Action] = [Protocol(1, 2), Metadata(id="t", schema_string=SCHEMA)]


def _vector(name: str, offset: int | None = 1, storage: str = "u") -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(storage, name, 4, 1, offset)  # type: ignore[arg-type]


def _paths(snapshot: Snapshot) -> list[tuple[str, str | None]]:
    return [(f.path, f.deletion_vector.unique_id if f.deletion_vector else None) for f in snapshot.files]


@pytest.mark.parametrize("provider", ["parquet", "Parquet", "PARQUET"])
def test_parquet_provider_is_case_insensitive(provider: str) -> None:
    metadata = Metadata(id="t", schema_string=SCHEMA, format=Format(provider))
    assert Snapshot.from_actions(7, [Protocol(1), metadata]).metadata.format.provider == provider


def test_newest_action_of_each_kind_and_key_wins() -> None:
    snapshot = Snapshot.from_actions(
        7,
        [
            *HEAD,
            AddFile("a", size=1),
            AddFile("b", size=1),
            Transaction("app", 1),
            Transaction("app", 0),
            DomainMetadata("d", "1"),
            DomainMetadata("e", "1"),
            AddFile("a", size=2),
            RemoveFile("b"),
            AddCdcFile("c", size=1),
            DomainMetadata("d", "", removed=True),
            Protocol(2, 5),
        ],
        table="s.s.t",
    )
    assert [(f.path, f.size) for f in snapshot.files] == [("a", 2)]
    assert snapshot.transactions == {"app": Transaction("app", 0)}
    assert set(snapshot.domain_metadata) == {"e"}
    assert snapshot.protocol == Protocol(2, 5)
    assert (snapshot.version, snapshot.table, snapshot.timestamp_ms) == (7, "s.s.t", None)


@pytest.mark.parametrize(
    ("added", "removed"), [("/x/y z", "file:/x/y%20z"), ("file:///x/y", "/x/y"), ("a%20b", "a b"), ("a%2Fb", "a/b")]
)
def test_paths_are_compared_in_canonical_form(added: str, removed: str) -> None:
    assert Snapshot.from_actions(1, [*HEAD, AddFile(added, size=1), RemoveFile(removed)]).files == []


def test_shared_file_is_identified_by_id_not_signature() -> None:
    vector = _vector("https://host/dv.bin?sig=1", storage="p")
    signed_again = _vector("https://host/dv.bin?sig=2", storage="p")
    first = SharedFile(AddFile("https://host/f?sig=1", size=1, deletion_vector=vector), "id")
    same = SharedFile(AddFile("https://other/f?sig=2", size=1, deletion_vector=signed_again), "id")
    assert shared_file_key(first) == shared_file_key(same)
    other = AddFile("x", size=1, deletion_vector=_vector("https://host/dv.bin?sig=3", 9, "p"))
    assert shared_file_key(first) != shared_file_key(SharedFile(other, "id"))
    named = SharedFile(AddFile("x", size=1, deletion_vector=signed_again), "id", "dv")
    elsewhere = _vector("https://moved/dv.bin", storage="p")
    moved = SharedFile(AddFile("x", size=1, deletion_vector=elsewhere), "id", "dv")
    assert shared_file_key(named) == shared_file_key(moved)
    unnamed, unnamed_again = (SharedFile(AddFile(f"https://host/f?sig={n}", size=1)) for n in (1, 2))
    assert shared_file_key(unnamed) == shared_file_key(unnamed_again)
    assert shared_file_key(SharedFile(AddCdcFile("c", size=1), "id")) == "id"


def test_server_only_fields_are_ignored_in_a_log() -> None:
    """Files with the same ``fileId`` are two files, because a log identifies files by path."""
    lines = [
        b'{"add": {"path": "%b", "size": 1, "fileId": "same", "sharedDeletionVectorId": "v"}}' % path
        for path in (b"a", b"b")
    ]
    assert [file.path for file in Snapshot.from_actions(1, [*HEAD, *read_actions(lines, "1.json")]).files] == ["a", "b"]


keys = st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "x", "y"]))


@meets(removed=5, cut=3)
@given(st.lists(st.tuples(st.booleans(), keys), min_size=1, max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_replay_equals_a_dictionary_for_any_batches(
    steps: list[tuple[bool, tuple[str, str | None]]], cuts: list[int]
) -> None:
    actions: list[Action] = []
    expected: dict[tuple[str, str | None], int] = {}
    for number, (is_add, (path, name)) in enumerate(steps):
        vector = None if name is None else _vector(name)
        if is_add:
            actions.append(AddFile(path, size=number, deletion_vector=vector))
            expected[path, name] = number
        else:
            actions.append(RemoveFile(path, deletion_vector=vector))
            met("removed", expected.pop((path, name), None) is not None)
    met("cut", any(0 < cut < len(actions) for cut in cuts))
    replay = Replay()
    replay.apply(HEAD)
    bounds = [0, *sorted(min(cut, len(actions)) for cut in cuts), len(actions)]
    for start, stop in pairwise(bounds):
        replay.apply(actions[start:stop])
    assert sorted(f.size for f in replay.snapshot(1).files) == sorted(expected.values())


@meets(reordered=24)
@given(st.permutations(range(6)))
def test_reconciled_actions_may_come_in_any_order(order: list[int]) -> None:
    met("reordered", order != sorted(order))
    actions: list[Action] = [*HEAD, AddFile("a", size=1), AddFile("b", size=1, deletion_vector=_vector("x"))]
    actions += [RemoveFile("b"), RemoveFile("c")]
    assert is_reconciled(actions)
    snapshot = Snapshot.from_actions(1, [actions[i] for i in order])
    assert sorted(_paths(snapshot)) == [("a", None), ("b", "ux@1")]


@pytest.mark.parametrize(("missing", "left"), [("protocol", HEAD[1:]), ("metaData", HEAD[:1])])
def test_table_without_protocol_or_metadata_is_refused(missing: str, left: list[Action]) -> None:
    with pytest.raises(ProtocolError, match=f"must have a '{missing}' action") as caught:
        Snapshot.from_actions(3, left, table="t")
    assert (caught.value.table, caught.value.version) == ("t", 3)


def test_statistics_and_tombstones_are_kept_on_request() -> None:
    def snapshot(want: Want) -> Snapshot:
        replay = Replay(want)
        replay.apply([*HEAD, AddFile("a", size=1, stats="{}"), RemoveFile("b"), RemoveFile("c"), AddFile("c", size=1)])
        return replay.snapshot(1)

    assert [f.stats for f in snapshot(Want.STATS).files] == ["{}", None]
    assert snapshot(Want.STATS).tombstones == ()
    assert [f.stats for f in snapshot(Want.TOMBSTONES).files] == [None, None]
    assert [f.path for f in snapshot(Want.TOMBSTONES).tombstones] == ["b"]


MAPPED = (
    '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,'
    '"metadata":{"delta.columnMapping.physicalName":"col-1","delta.columnMapping.id":1}}]}'
)


@pytest.mark.parametrize(("mode", "physical"), [("name", "col-1"), ("id", "col-1"), ("none", "a"), (None, "a")])
def test_schema_has_physical_names_with_column_mapping(mode: str | None, physical: str) -> None:
    configuration = {} if mode is None else {"delta.columnMapping.mode": mode}
    metadata = Metadata(id="t", schema_string=MAPPED, configuration=configuration)
    assert Snapshot.from_actions(0, [Protocol(2, 5), metadata]).schema.fields[0].physical_name == physical


def test_replay_of_100000_files_takes_linear_time() -> None:
    actions = [AddFile(f"part-{i:08}.parquet", size=i) for i in range(100_000)]
    random.Random(1).shuffle(actions)
    clock = Stopwatch()
    snapshot = Snapshot.from_actions(1, [*HEAD, *actions])
    # The limit is hundreds of times the usual duration, but steps that grow with the number of files would take hours.
    assert clock.within(60)
    assert len(snapshot.files) == 100_000


def test_repr_of_a_snapshot_lists_no_files() -> None:
    snapshot = Snapshot.from_actions(0, [*HEAD, AddFile("https://host/f?sig=secret", size=1)])
    assert "secret" not in repr(snapshot)


def test_contradictory_commit_is_refused() -> None:
    one, other = _vector("x"), _vector("x", 40)
    valid: list[Action] = [
        *HEAD, AddFile("a"), AddFile("b", deletion_vector=one), RemoveFile("b", deletion_vector=other),
        RemoveFile("c"), AddFile("d"), RemoveFile("d", deletion_vector=one), Transaction("t", 1), Transaction("t", 2),
    ]  # fmt: skip
    assert list(without_conflicts(valid, "x.json")) == valid
    for conflict, message in (
        (HEAD[0], "at most one 'protocol' action"),
        (HEAD[1], "at most one 'metaData' action"),
        (AddFile("a"), "found two for 'a'"),
        (AddFile("%61", size=3), "found two for '%61'"),
        (RemoveFile("a"), "found two for 'a'"),
        (AddFile("b"), "found two for 'b'"),
        (RemoveFile("b"), "found two for 'b'"),
        (RemoveFile("c", deletion_vector=one), "found two for 'c'"),
        (AddFile("c"), "found two for 'c'"),
    ):
        with pytest.raises(ProtocolError, match=f"^'x.json' must have {message}|{message}"):
            list(without_conflicts([*valid, conflict], "x.json"))
    with pytest.raises(ProtocolError) as caught:
        list(without_conflicts([AddFile("https://h/a?sig=secret")] * 2, "x.json"))
    assert "secret" not in str(caught.value)


def test_repeated_or_conflicting_actions_are_not_reconciled() -> None:
    reconciled: list[Action] = [
        *HEAD, AddFile("a"), RemoveFile("b"), AddFile("a", deletion_vector=_vector("x")), Transaction("t", 1),
        Transaction("u", 1), DomainMetadata("t", ""), RowIdHighWaterMark(3), AddCdcFile("a"), AddCdcFile("a"),
    ]  # fmt: skip
    assert is_reconciled(reconciled)
    domain = DomainMetadata("t", "x", removed=True)
    for action in (*reconciled[:-2], RemoveFile("a"), AddFile("b"), AddFile("%61"), Transaction("u", 2), domain):
        assert not is_reconciled([*reconciled, action])


def test_partition_column_must_be_a_column() -> None:
    for partition_columns, message in ((["b"], "partition column 'b' must be a column"), (["a", "b"], "'b'")):
        with pytest.raises(ProtocolError, match=message) as caught:
            table_schema(Metadata(id="t", schema_string=SCHEMA, partition_columns=partition_columns), table="s.s.t")
        assert caught.value.table == "s.s.t"
    assert table_schema(Metadata(id="t", schema_string=SCHEMA, partition_columns=["A"])).names == ["a"]
