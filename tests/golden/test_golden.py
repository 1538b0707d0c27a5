"""Every golden table is read from a server, in both response formats and at every version."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.delta import features
from delta_sharing_client.delta.log import delta_table as log
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.protocol import windows
from tests.effort import sample, with_last
from tests.golden import corpus
from tests.unit.decode.eager import make_gentle
from tests.versions import is_too_new

pytestmark = pytest.mark.golden

TABLES = {table.name: table for table in corpus.tables()}
READABLE = sorted(name for name, table in TABLES.items() if table.outcome in ("read", "read-or-refuse"))
# The corpus expects a refusal, but this client now supports geometry and geography. The table has no rows.
READ_SINCE = {"table-with-geo"}
REFUSED = sorted(name for name, table in TABLES.items() if table.outcome == "refuse" and name not in READ_SINCE)
LOG_ONLY = sorted(name for name, table in TABLES.items() if table.outcome == "log-only")
FORMATS = ("delta", "parquet")


class Served:
    """A copy of the corpus and the server that shares it."""

    def __init__(self, root: pathlib.Path, client: ds.SharingClient) -> None:
        self.root = root
        self.client = client

    def table(self, name: str) -> ds.SharedTable:
        return self.client.table(f"golden.corpus.{shared_name(name)}")

    def parquet_refusals(self, name: str, version: int) -> list[str]:
        snapshot = log.DeltaLog.open(self.root / shared_name(name)).snapshot(version)
        return list(features.parquet_format_refusals(snapshot.protocol, snapshot.metadata))


def shared_name(name: str) -> str:
    """Return a name without dots. The protocol allows none in names of tables ("Names"), but some directories of the
    corpus have dots."""
    return name.replace(".", "_")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("golden")
    root = base / "golden" / "corpus"
    root.mkdir(parents=True)
    for table in TABLES.values():
        table.stage(root / shared_name(table.name))
    with mock_server.running(tables=base) as server, ds.SharingClient(server.profile) as client:
        yield Served(root, client)


def cases() -> list[tuple[str, int, str]]:
    results = []
    for name in READABLE:
        table = TABLES[name]
        versions = sorted({*table.versions, table.latest_version})
        for wire, one_in in (("delta", 2), ("parquet", 3)):
            results += [(name, version, wire) for version in with_last(versions, one_in)]
    return results


@pytest.mark.parametrize(("name", "version", "wire"), cases())
def test_golden_version_has_the_expected_rows(served: Served, name: str, version: int, wire: str) -> None:
    table = TABLES[name]
    scan = served.table(name).scan(version=version, response_format=wire)
    if "refuse" in table.versions.get(version, {}):
        with pytest.raises(DeltaSharingError):
            scan.to_arrow()
        return
    if wire == "parquet" and served.parquet_refusals(name, version):
        with pytest.raises(DeltaSharingError, match=r"(?i)delta"):
            scan.to_arrow()
        return
    if is_too_new(name) and version == table.latest_version:
        with pytest.raises(DeltaSharingError, match="Update pyarrow"):
            scan.to_arrow()
        return
    assert_matches(table, version, scan.to_arrow())
    with pytest.MonkeyPatch.context() as patch:
        # Read again in the smallest batches, like a consumer that may stop early.
        make_gentle(patch)
        assert_matches(table, version, scan.to_arrow())


@pytest.mark.parametrize("name", sample([name for name in READABLE if not is_too_new(name)], 4))
def test_golden_table_is_read_in_the_default_format(served: Served, name: str) -> None:
    table = TABLES[name]
    rows = served.table(name).scan().to_arrow()
    assert_matches(table, table.latest_version, rows)
    frame = served.table(name).scan().to_pandas()
    assert list(frame.columns) == rows.schema.names
    assert len(frame) == rows.num_rows


@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_golden_table_is_refused(served: Served, name: str, wire: str) -> None:
    with pytest.raises(DeltaSharingError) as refusal:
        served.table(name).scan(response_format=wire).to_arrow()
    assert len(str(refusal.value)) > 20


@pytest.mark.parametrize("name", sorted(READ_SINCE & set(TABLES)))
def test_golden_table_with_geometry_has_its_columns(served: Served, name: str) -> None:
    rows = served.table(name).scan(response_format="delta").to_arrow()
    assert rows.num_rows == 0
    assert rows.schema.names == ["geom", "geog"]


@pytest.mark.parametrize("name", LOG_ONLY)
def test_reading_a_golden_table_without_data_files_fails(served: Served, name: str) -> None:
    with pytest.raises(DeltaSharingError):
        served.table(name).scan().to_arrow()


@pytest.mark.parametrize("name", sorted(name for name, t in TABLES.items() if t.outcome == "empty-or-refuse"))
def test_golden_table_with_two_path_spellings_has_no_rows(served: Served, name: str) -> None:
    try:
        rows = served.table(name).scan().to_arrow()
    except DeltaSharingError:
        return
    assert rows.num_rows == 0


@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize(
    ("name", "position"), [(name, i) for name, t in TABLES.items() for i in range(len(t.change_queries))]
)
def test_golden_change_feed_has_the_expected_rows(
    served: Served, name: str, position: int, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = TABLES[name].change_queries[position]
    start, end = int(str(query["start_version"])), int(str(query["end_version"]))
    changes = served.table(name).changes(starting_version=start, ending_version=end, response_format=wire)
    if query.get("refuse") or query.get("rows") is None:
        with pytest.raises(DeltaSharingError):
            changes.to_arrow()
        return
    if wire == "parquet" and served.parquet_refusals(name, end):
        with pytest.raises(DeltaSharingError, match=r"(?i)delta"):
            changes.to_arrow()
        return
    rows = changes.to_arrow()
    columns = [str(column) for column in query["columns"]]  # type: ignore[attr-defined]
    schema = pa.schema([rows.schema.field(column) for column in columns])
    canonical_rows = sorted(map(repr, corpus.arrow_rows(rows.select(columns))))
    assert canonical_rows == sorted(map(repr, corpus.json_rows(query["rows"], schema)))  # type: ignore[arg-type]
    assert rows.schema.field("_commit_timestamp").type == pa.timestamp("ms", tz="UTC")
    for few in (1, 3):
        monkeypatch.setattr(windows, "FEW", few)
        assert changes.to_arrow().equals(rows)


def predicate_cases() -> list[tuple[str, int]]:
    return [(name, i) for name in READABLE for i in range(len(TABLES[name].expected.get("predicates") or []))]  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "position"), predicate_cases())
def test_filter_on_golden_table_returns_the_expected_count(served: Served, name: str, position: int) -> None:
    predicate = TABLES[name].expected["predicates"][position]  # type: ignore[index]
    rows = served.table(name).scan(filter=predicate["sql"]).to_arrow()
    assert rows.num_rows == predicate["matching_rows"]


@pytest.mark.parametrize(
    ("name", "position"),
    [(name, i) for name in READABLE for i in range(len(TABLES[name].expected.get("timestamp_queries") or []))],  # type: ignore[arg-type]
)
def test_time_travel_on_golden_table_reads_the_right_version(served: Served, name: str, position: int) -> None:
    table = TABLES[name]
    query = table.expected["timestamp_queries"][position]  # type: ignore[index]
    moment = pa.scalar(query["timestamp_ms"], pa.timestamp("ms", tz="UTC")).as_py().isoformat().replace("+00:00", "Z")
    scan = served.table(name).scan(timestamp=moment)
    if "refuse" in query:
        with pytest.raises(DeltaSharingError):
            scan.to_arrow()
        return
    try:
        rows = scan.to_arrow()
    except DeltaSharingError:
        assert "refuse_or_version" in query
        return
    assert_matches(table, query.get("version", query.get("refuse_or_version")), rows)


def assert_matches(table: corpus.GoldenTable, version: int, rows: pa.Table) -> None:
    facts = table.versions.get(version) or table.expected
    assert rows.schema.names == list(facts.get("columns") or table.expected["columns"])  # type: ignore[call-overload]
    count = table.row_count(version)
    if count is not None:
        assert rows.num_rows == count
    expected = table.expected_rows(version, rows.schema)
    if expected is not None:
        canonical_rows = sorted(map(repr, corpus.arrow_rows(rows)))
        assert canonical_rows == sorted(map(repr, expected.elements()))
    for column, wanted in table.checks(version).items():
        found_facts = corpus.column_facts(rows, column)
        comparable = {key: value for key, value in wanted.items() if key in found_facts or key == "nulls"}
        assert json.dumps({k: found_facts[k] for k in comparable}) == json.dumps(comparable), column
