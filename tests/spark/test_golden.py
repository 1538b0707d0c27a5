"""Golden tables and tables written by Delta Lake for Spark, read as Spark DataFrames: both formats, classic
sessions, Spark Connect, and planned tasks as on PySpark 3.5."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

import mock_server
from delta_sharing_client.delta import features
from delta_sharing_client.delta.log import delta_table as log
from delta_sharing_client.delta.schema import parse_schema, to_arrow_schema
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES, DeltaSharingAlias
from delta_sharing_client.spark.source_options import SparkOptions
from delta_sharing_client.spark.to_spark import planned_frame
from delta_sharing_client.spark.types import target_schema
from tests.effort import ALL, sample
from tests.golden import corpus
from tools.tables.make_spark_tables import rows

# Each test runs hundreds of queries, and some logs have an invalid _last_checkpoint on purpose. The warning is
# ignored for whole tests, because catch_warnings in one thread would also restore the filters of the others.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::delta_sharing_client.delta.log.log_files.LastCheckpointWarning"),
]

OWN = pathlib.Path(__file__).parent.parent / "tables_spark"
FORMATS = ("delta", "parquet")
T = TypeVar("T")
# A few tables at a time: the driver's work for one overlaps with the tasks of another.
AT_ONCE = 4


def own_tables() -> dict[str, corpus.GoldenTable]:
    paths = sorted(OWN.glob("*/expected.json"))
    return {p.parent.name: corpus.GoldenTable(p.parent.name, p.parent, json.loads(p.read_text("utf-8"))) for p in paths}


def golden_tables() -> dict[str, corpus.GoldenTable]:
    return {table.name: table for table in corpus.tables()}


class Reads:
    """A session, and how it reads: by the format, or by tasks planned in advance as on PySpark 3.5."""

    def __init__(self, session: Any, kind: str) -> None:
        self.session, self.kind = session, kind

    @property
    def is_first(self) -> bool:
        """Whether this session reads all tables, and not only a sample."""
        return self.kind == "classic" or not HAS_DATA_SOURCES

    def share_of(self, items: Sequence[T], one_in: int) -> Sequence[T]:
        """Return ``items``, or a sample for the other sessions: they use the same reader, so a few tables are
        enough."""
        return items if self.is_first else sample(items, one_in)

    def load(self, url: str, **options: object) -> Any:
        given = {name: str(value) for name, value in options.items()}
        if self.kind == "tasks":
            source = DeltaSharingAlias({}, SparkOptions.parse({**given, "path": url}).for_batch())
            return planned_frame(self.session, source, source.schema())
        return self.session.read.format("deltaSharing").options(**given).load(url)


@pytest.fixture(scope="module", params=["classic", "connect", "tasks"])
def session(request: pytest.FixtureRequest, spark: Any) -> Iterator[Reads]:
    """A classic or Connect session, and its way to read; both sessions use the same JVM."""
    if request.param != "tasks" and not HAS_DATA_SOURCES:
        pytest.skip("PySpark 3.5 has no Python data sources")
    if request.param != "connect":
        yield Reads(spark, request.param)
        return
    from pyspark.sql.connect.session import SparkSession

    remote = SparkSession.builder.remote(request.getfixturevalue("connect_url")).getOrCreate()
    yield Reads(remote, request.param)
    remote.stop()


def to_arrow(frame: Any) -> pa.Table:
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    return pa.Table.from_batches(frame._collect_as_arrow(), target_schema(frame.schema))


class Served:
    """The tables, copied to a directory, and their server."""

    def __init__(self, root: pathlib.Path, tables: dict[str, corpus.GoldenTable], server: Any) -> None:
        self.root, self.tables, self.server = root, tables, server

    def url(self, name: str) -> str:
        return f"{self.server.profile_path}#golden.corpus.{shared_name(name)}"

    def readable(self) -> list[str]:
        return sorted(name for name, table in self.tables.items() if table.outcome in ("read", "read-or-refuse"))

    def snapshot(self, name: str) -> Any:
        return log.DeltaLog.open(self.root / name).snapshot()

    def is_beyond(self, name: str) -> bool:
        """Return whether a table has a type that this PySpark lacks: VARIANT on 3.5."""
        schema = self.snapshot(name).metadata.schema_string
        return '"variant"' in schema and not hasattr(spark_types, "VariantType")

    def refused_in_parquet(self, name: str) -> bool:
        snapshot = self.snapshot(name)
        return bool(features.parquet_format_refusals(snapshot.protocol, snapshot.metadata))


def shared_name(name: str) -> str:
    return name.replace(".", "_")  # a table name must not contain a dot


def serve(tables: dict[str, corpus.GoldenTable], base: pathlib.Path) -> Iterator[Served]:
    for table in tables.values():
        table.stage(base / table.name)
    # Some directories of the corpus are not tables, and a server does not start with them.
    served = {
        f"golden.corpus.{shared_name(name)}": base / name for name in tables if (base / name / "_delta_log").is_dir()
    }
    with mock_server.running(tables=served) as server:
        yield Served(base, tables, server)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if corpus.folder() is None:
        pytest.skip(f"{corpus.ENVIRONMENT} is not set, and the conformance tables are not part of this repository")
    yield from serve(golden_tables(), tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    assert own_tables(), f"{OWN} holds the tables that make_spark_tables.py wrote"
    yield from serve(own_tables(), tmp_path_factory.mktemp("own"))


@pytest.mark.golden
@pytest.mark.parametrize("wire", FORMATS)
def test_every_golden_table_equals_its_expected_rows(session: Reads, golden: Served, wire: str) -> None:
    check_all(session, golden, wire)


@pytest.mark.parametrize("wire", FORMATS)
def test_our_tables_equal_those_delta_lake_for_spark_reads(session: Reads, own: Served, wire: str) -> None:
    check_all(session, own, wire)


def test_our_change_feeds_equal_those_of_delta_lake_for_spark(session: Reads, own: Served) -> None:
    queries = [
        (name, query) for name, table in own.tables.items() if not own.is_beyond(name) for query in table.change_queries
    ]
    assert len(queries) >= 10
    for name, query in session.share_of(queries, 4):
        bounds = {"startingVersion": query["start_version"], "endingVersion": query["end_version"]}
        frame = session.load(own.url(name), readChangeFeed="true", **bounds)
        wanted = [str(column) for column in query["columns"]]  # type: ignore[attr-defined]
        assert_rows(frame.select(*[f"`{column}`" for column in wanted]), query["rows"], f"{name} changes")


def test_our_row_lineage_equals_that_of_delta_lake_for_spark(session: Reads, own: Served) -> None:
    tables = [
        (name, table.expected["row_lineage"])
        for name, table in own.tables.items()
        if table.expected.get("row_lineage") is not None and not own.is_beyond(name)
    ]
    assert len(tables) >= 5
    for name, expected in session.share_of(tables, 3):
        frame = session.load(own.url(name), rowLineage="true")
        assert frame.columns[-2:] == ["_row_id", "_row_commit_version"]
        assert_rows(frame, expected, f"{name} row lineage")


def check_all(session: Reads, served: Served, wire: str) -> None:
    names = served.readable()
    if wire == "parquet":
        # Each refusal starts a Python worker; tests/golden checks all of them, so a few are enough here.
        refused = [name for name in names if served.refused_in_parquet(name)]
        names = [name for name in names if name not in refused[4:]]
    if session.is_first:
        # tests/golden reads all tables with the same engine, so Spark reads some with each type and feature, and few
        # of them in parquet format.
        names = list(sample(names, 6, 1)) if wire == "parquet" else one_of_each_kind(served, names)
    else:
        names = list(session.share_of(names, 5 if wire == "delta" else 10))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        failures = [text for text in pool.map(lambda name: check(session, served, name, wire), names) if text]
    assert not failures, "\n".join(failures)


def one_of_each_kind(served: Served, names: list[str]) -> list[str]:
    """Return tables that together have each type, as a partition column and as another, each table feature and each
    column mapping; other tables differ only in their logs and files."""
    chosen, covered = [], set[object]()
    for name in names:
        protocol, metadata = served.snapshot(name).protocol, served.snapshot(name).metadata
        partitions = set(metadata.partition_columns)
        aspects: set[object] = {
            (str(field.type), field.name in partitions)
            for field in to_arrow_schema(parse_schema(metadata.schema_string))
        }
        aspects |= {*(protocol.reader_features or ())}
        aspects.add((metadata.configuration.get("delta.columnMapping.mode"), bool(partitions)))
        if ALL or not aspects <= covered:
            chosen.append(name)
            covered |= aspects
    assert len(chosen) >= 20
    return chosen


def check(session: Reads, served: Served, name: str, wire: str) -> str | None:
    """Read one table as a DataFrame and compare it; return what is wrong, or ``None``."""
    table = served.tables[name]
    refused = wire == "parquet" and served.refused_in_parquet(name)
    try:
        frame = session.load(served.url(name), responseFormat=wire)
        if refused:
            frame.collect()
            return f"{name}: the format {wire} cannot carry it, but it was read"
        schema = to_arrow_schema(parse_schema(served.snapshot(name).metadata.schema_string))
        if name == "char-varchar" and wire == "parquet":
            # The parquet format has no column metadata, so Spark does not know about padding.
            frame = frame.selectExpr(
                "rpad(a, 5, ' ') AS a",
                "b",
                "IF(s IS NULL, NULL, struct(rpad(s.c, 2, ' ') AS c)) AS s",
                "rpad(p, 3, ' ') AS p",
            )
        if table.expected.get("rows") is not None:
            assert_rows(frame, table.expected["rows"], name)
            return None
        found = to_arrow(frame)
        expected = table.expected_rows(table.latest_version, schema)
        if expected is not None:
            assert sorted(map(repr, corpus.arrow_rows(found))) == sorted(map(repr, expected.elements()))
        assert table.row_count(table.latest_version) in (None, found.num_rows)
        return None
    except Exception as error:
        if refused and re.search(r"(?i)delta", str(error)):
            return None
        if served.is_beyond(name) and "has the type 'variant'" in str(error):
            return None
        return f"{name}: {type(error).__name__}: {str(error)[-1500:]}"


def assert_rows(frame: Any, expected: Any, name: str) -> None:
    """Compare the rows of ``frame`` with the JSON rows of the corpus."""
    if "variant" in frame.schema.simpleString():
        # Arrow returns a variant as its metadata and value; only Python rows have decoded variants.
        assert rows(frame) == sorted(expected, key=lambda row: json.dumps(row, sort_keys=True)), name
        return
    found = to_arrow(frame)
    left = sorted(map(repr, corpus.arrow_rows(found)))
    right = sorted(map(repr, corpus.json_rows(expected, found.schema)))
    assert left == right, (
        f"{name}: {[row for row in left if row not in right][:3]} != {[row for row in right if row not in left][:3]}"
    )
