"""The PyPI package ``deltalake`` reads what we write: local copies, and logs rebuilt from responses.

The tests use the query engine of ``deltalake``, because ``to_pyarrow_table`` supports neither deletion vectors nor
column mapping.
"""

from __future__ import annotations

import pathlib
import re
from collections import Counter
from collections.abc import Iterator

import deltalake
import pyarrow as pa
import pytest

import delta_sharing_client as ds
from tests.effort import sample, with_last
from tests.golden import corpus
from tests.interop.rebuilt import rebuild_feed, rebuild_snapshot
from tests.interop.served_tables import ServedTables, change_queries, names, serving
from tests.versions import TAKES_VIEWS

# The reader features that deltalake refuses by name.
UNSUPPORTED = {
    "typeWidening": "TypeWidening",
    "typeWidening-preview": "TypeWideningPreview",
    "vacuumProtocolCheck": "VacuumProtocolCheck",
    "variantShredding-preview": "VariantShreddingPreview",
}
# The tables that deltalake cannot read correctly at their latest version, and the reason or its error. Remove a table
# once deltalake can read it.
WRONG_ROWS = {"spark.all-types": "INT96 timestamps beyond the range of nanoseconds wrap around"}
ERRORS = {
    "spark.geospatial": "Unsupported Delta table type: 'geometry",
    "spark.widening-partition": "Failed to parse value '2020-01-01'",  # a date partition widened to timestamp
}
FEED_ERRORS = {
    "spark.geospatial": "Unsupported Delta table type: 'geometry",
    "spark.change-feed-null-partitions-mapped": "Column mapping is not supported",
    "spark.pair-mapid-feed": "Column mapping is not supported",
    "spark.pair-mapname-feed": "Column mapping is not supported",
    "golden.cdf-column-mapping-name-mode": "Column mapping is not supported",
    "spark.pair-widening-feed": "TypeWidening",
    "spark.vacuumed": "VacuumProtocolCheck",
}
WRONG_FEEDS = {"spark.change-feed-vectors": "takes no difference of the deletion vectors of a remove and an add"}
RAW_VARIANTS = ds.ReadOptions(variant_as=ds.VariantAs.STRUCT)

pytestmark = pytest.mark.skipif(not TAKES_VIEWS, reason="deltalake returns views, which this pyarrow does not support")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedTables]:
    with serving(tmp_path_factory.mktemp("tables")) as served:
        yield served


@pytest.mark.parametrize("name", sample(names(), 2))
def test_local_copy_of_every_version_has_the_same_rows(served: ServedTables, name: str, tmp_path: pathlib.Path) -> None:
    table = served.table(name)
    versions = served.readable_versions(name)
    copies = [table.replicate(tmp_path, version=version) for version in with_last(versions, 6)]

    assert copies[-1].version == table.version()
    assert table.replicate(tmp_path).downloaded_bytes == 0
    assert_same_rows(name, tmp_path, copies[-1].local_version, table.scan(options=RAW_VARIANTS).to_arrow())
    earlier = copies[len(copies) // 2]
    if earlier is not copies[-1] and name not in ERRORS:
        rows = table.scan(version=earlier.version, options=RAW_VARIANTS).to_arrow()
        assert_same_rows(f"{name} before", tmp_path, earlier.local_version, rows)


@pytest.mark.parametrize("name", sample(names(), 2, 1))
def test_rebuilt_log_over_local_files_has_the_same_rows(
    served: ServedTables, name: str, tmp_path: pathlib.Path
) -> None:
    snapshot = rebuild_snapshot(served, name, tmp_path)

    log = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "_delta_log").glob("*.json"))
    assert "X-Amz-Signature" not in log
    assert_same_rows(name, tmp_path, snapshot.version, served.table(name).scan(options=RAW_VARIANTS).to_arrow())


@pytest.mark.parametrize(("name", "start", "end"), change_queries())
def test_rebuilt_log_of_a_change_feed_has_the_same_changes(
    served: ServedTables, name: str, start: int, end: int, tmp_path: pathlib.Path
) -> None:
    first = rebuild_feed(served, name, start, end, tmp_path)

    ours = served.table(name).changes(start, end, options=RAW_VARIANTS).to_arrow()
    ours = ours.drop_columns(["_commit_timestamp"])
    if name in FEED_ERRORS:
        with pytest.raises(deltalake.exceptions.DeltaError, match=FEED_ERRORS[name]):
            deltalake.DeltaTable(tmp_path).load_cdf(first, end)
        return
    opened = deltalake.DeltaTable(tmp_path)
    theirs = pa.table(opened.load_cdf(first, end).read_all()).select(ours.column_names)
    assert_equal(ours, theirs, name if name in WRONG_FEEDS else None)


def assert_same_rows(name: str, directory: pathlib.Path, version: int, ours: pa.Table) -> None:
    if name in ERRORS:
        with pytest.raises(deltalake.exceptions.DeltaError, match=re.escape(ERRORS[name])):
            queried(deltalake.DeltaTable(directory, version=version))
        return
    opened = deltalake.DeltaTable(directory, version=version)
    features = set(opened.protocol().reader_features or ())
    refused = [UNSUPPORTED[feature] for feature in features & set(UNSUPPORTED)]
    if refused:
        with pytest.raises(deltalake.exceptions.DeltaError, match=re.escape(refused[0])):
            queried(opened)
        return

    assert opened.version() == version
    assert_equal(ours, queried(opened), name if name in WRONG_ROWS else None)


def assert_equal(ours: pa.Table, theirs: pa.Table, known_wrong: str | None) -> None:
    assert theirs.column_names == ours.column_names
    counts = Counter(corpus.arrow_rows(corpus.conform(theirs, ours.schema)))
    expected = Counter(corpus.arrow_rows(ours))
    if known_wrong is not None:
        assert counts != expected, f"deltalake reads {known_wrong} now: remove it from the list"
        return
    assert counts - expected == expected - counts


def queried(table: deltalake.DeltaTable) -> pa.Table:
    return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
