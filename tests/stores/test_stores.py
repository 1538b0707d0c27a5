"""Directory access to emulators of the stores of Azure and Google, and to an S3 server.

`scripts/stores` and `scripts/s3` start these servers.

The golden tables have the same rows from a store and by URL; credentials expire during a read.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from mock_server import catalog
from tests.golden.test_golden import READABLE, TABLES, Served, assert_matches, shared_name
from tests.stores.conftest import Store
from tests.tables import TableWriter, rows_of

pytestmark = pytest.mark.stores

DIRECTORY = ds.ReadOptions(access_mode=ds.AccessMode.DIR, max_attempts=2)

# The log of the excluded table has a local path, which does not exist in a store.
BOTH_WAYS = [name for name in READABLE if name != "table-with-dv-special-char.encoded"]


def shared(store: Store, root: pathlib.Path, name: str) -> catalog.TableEntry:
    """Upload a local table to the store, and return its entry: by URL it is read locally, and as a directory from the
    store."""
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        store.put(f"{root.name}/{path.relative_to(root).as_posix()}", path.read_bytes())
    (entry,) = catalog.from_mapping({f"golden.corpus.{name}": root}).tables
    return dataclasses.replace(entry, storage=f"{store.root}/{root.name}")


@pytest.fixture(scope="module")
def served(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("stores")
    entries = [shared(store, TABLES[name].stage(base / shared_name(name)), shared_name(name)) for name in READABLE]
    options = dataclasses.replace(DIRECTORY, storage_options=store.storage_options)
    with (
        mock_server.running(tables=catalog.build(entries), vendors=store.vendors, s3=store.s3) as server,
        ds.SharingClient(server.profile, options=options) as client,
    ):
        yield Served(base, client)


@pytest.mark.filterwarnings("ignore::delta_sharing_client.delta.log.log_files.LastCheckpointWarning")
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_golden_table_in_a_store_has_the_rows_read_by_url(store: Store, served: Served, name: str) -> None:
    table = served.table(name)
    by_url = dataclasses.replace(table.options, access_mode=ds.AccessMode.URL)
    direct = table.scan()

    rows = direct.to_arrow()

    assert f"access: the table's directory, {store.root}/" in direct.explain()
    assert_matches(TABLES[name], TABLES[name].latest_version, rows)
    assert rows.equals(table.scan(options=by_url).to_arrow())
    for query in TABLES[name].change_queries:
        if not query.get("refuse") and query.get("rows") is not None:
            span = {"starting_version": int(query["start_version"]), "ending_version": int(query["end_version"])}
            changes = table.changes(**span)
            assert f"{store.root}/" in changes.explain()
            expected = table.changes(**span, options=by_url).to_arrow()
            # The timestamp of a commit may be the modification time of its file, which differs in the store.
            found, expected = (rows.drop_columns("_commit_timestamp") for rows in (changes.to_arrow(), expected))
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def test_credentials_expiring_during_a_read_are_renewed(store: Store, tmp_path: pathlib.Path) -> None:
    writer = TableWriter(tmp_path / f"long-{time.time_ns()}", pa.schema([("id", pa.int64()), ("text", pa.string())]))
    writer.insert(*(writer.file(rows_of([number])) for number in range(12)))
    given: list[float] = []

    def counted(scheme: str) -> Callable[[str, float], Mapping[str, object]]:
        def vend(location: str, seconds: float) -> Mapping[str, object]:
            given.append(time.monotonic())
            return store.vendors[scheme](location, seconds)

        return vend

    entry = shared(store, writer.path, "long")
    options = dataclasses.replace(
        DIRECTORY, storage_options=store.storage_options, max_concurrent_requests=1, max_bytes_in_flight=1
    )
    with (
        mock_server.running(
            tables=catalog.build([entry]),
            vendors={name: counted(name) for name in store.vendors},
            credentials_ttl=3.0,
            s3=store.s3,
        ) as server,
        ds.SharingClient(server.profile, options=options) as client,
    ):
        ids = []
        with client.table("golden.corpus.long").scan().to_batches() as batches:
            for batch in batches:
                ids += batch["id"].to_pylist()
                time.sleep(0.5)

    assert sorted(ids) == list(range(12))
    assert len(given) > 2
    # Each renewal was before the previous credentials expired.
    assert all(later - earlier < 3.5 for earlier, later in itertools.pairwise(given))


def test_expired_credentials_are_an_error_without_secrets(store: Store, tmp_path: pathlib.Path) -> None:
    if store.ended is None:
        pytest.skip("This store takes every token.")
    writer = TableWriter(tmp_path / f"ended-{time.time_ns()}", pa.schema([("id", pa.int64()), ("text", pa.string())]))
    writer.insert(writer.file(rows_of([1])))
    options = dataclasses.replace(DIRECTORY, storage_options=store.storage_options)
    entry = dataclasses.replace(shared(store, writer.path, "ended"), modes=("dir",))
    with (
        mock_server.running(tables=catalog.build([entry]), vendors=store.ended, s3=store.s3) as server,
        ds.SharingClient(server.profile, options=options) as client,
        pytest.raises(ds.DeltaSharingError, match="credentials") as caught,
    ):
        client.table("golden.corpus.ended").scan().to_arrow()
    assert not any(secret in str(caught.value) for secret in ("sig=", "planted"))


def test_partition_is_read_in_another_process(store: Store, served: Served, tmp_path: pathlib.Path) -> None:
    import pickle
    import sys

    if not READABLE:
        pytest.skip("DELTA_GOLDEN_TABLES names no golden tables.")
    name = "data-reader-partition-values" if "data-reader-partition-values" in READABLE else READABLE[0]
    scan = served.table(name).scan()
    parts = scan.partitions(2)
    (tmp_path / "parts").write_bytes(pickle.dumps(parts))
    program = (
        "import pickle, sys; print(sum(b.num_rows for p in pickle.load(open(sys.argv[1], 'rb')) for b in p.read()))"
    )
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "parts")],
        capture_output=True, text=True, timeout=120, check=True, env=environment,
    )  # fmt: skip
    assert int(run.stdout) == scan.to_arrow().num_rows
