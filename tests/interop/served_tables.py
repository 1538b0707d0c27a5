"""A server of every table that a reader must read: the conformance tables and the tables that Spark wrote."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote, urlsplit

import delta_sharing_client as ds
import mock_server
from mock_server.signing import ABSOLUTE, RELATIVE
from tests.golden import corpus
from tests.integration import spark_rows


def names() -> list[str]:
    """Return the names of the tables: ``spark.<name>``, and ``golden.<name>`` if the environment names the corpus."""
    golden = [f"golden.{table.name}" for table in corpus.tables() if table.outcome in ("read", "read-or-refuse")]
    return [*golden, *(f"spark.{table.name}" for table in spark_rows.tables())]


def change_queries() -> list[tuple[str, int, int]]:
    """Return each change feed that must be read, as its table, first version and last version."""
    listed = [(f"golden.{table.name}", query) for table in corpus.tables() for query in table.change_queries]
    listed += [(f"spark.{table.name}", query) for table in spark_rows.tables() for query in table.change_queries]
    return [
        (name, int(query["start_version"]), int(query["end_version"]))  # type: ignore[call-overload]
        for name, query in listed
        if "refuse" not in query
    ]


@dataclasses.dataclass(frozen=True)
class ServedTables:
    """The directories of the tables by name, and a client of the server that shares them."""

    paths: Mapping[str, pathlib.Path]
    client: ds.SharingClient
    server: mock_server.RunningServer

    def table(self, name: str) -> ds.SharedTable:
        return self.client.table(shared_name(name))

    def readable_versions(self, name: str) -> Sequence[int]:
        """Return the versions that can be read, oldest first."""
        kind, _, bare = name.partition(".")
        if kind == "spark":
            table = spark_rows.SparkTable(bare)
            return [version for version in table.versions if not table.is_gone(version)]
        golden = next(table for table in corpus.tables() if table.name == bare)
        gone = {version for version, facts in golden.versions.items() if "refuse" in facts}
        return sorted({*golden.versions, golden.latest_version} - gone)

    def local_file(self, name: str, url: str) -> pathlib.Path:
        """Return the path of the local file that the server shares at ``url``."""
        _, kind, _, path = urlsplit(url).path.split("/", 3)
        assert kind in (RELATIVE, ABSOLUTE)
        return self.paths[name] / unquote(path) if kind == RELATIVE else pathlib.Path("/" + unquote(path))


@contextlib.contextmanager
def serving(base: pathlib.Path, others: Mapping[str, pathlib.Path] | None = None) -> Iterator[ServedTables]:
    """Serve all tables of ``names()``, and the tables ``others``, whose keys are shared names.

    Tables that must be prepared are copied to ``base`` first.
    """
    paths = {f"spark.{table.name}": table.path for table in spark_rows.tables()}
    for table in corpus.tables():
        if table.outcome in ("read", "read-or-refuse"):
            paths[f"golden.{table.name}"] = table.stage(base / table.name)
    shared = {**{shared_name(name): path for name, path in paths.items()}, **(others or {})}
    with mock_server.running(tables=shared) as server, ds.SharingClient(server.profile) as client:
        yield ServedTables(paths, client, server)


def shared_name(name: str) -> str:
    """Return the shared name of a table, such as ``golden.tables.<table>``; dots in directory names become
    underscores."""
    kind, _, bare = name.partition(".")
    return f"{kind}.tables.{bare.replace('.', '_')}"
