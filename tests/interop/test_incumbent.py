"""With our server, the PyPI package ``delta-sharing`` lists the same tables as we do, and reads the same rows from
every table that it supports.

It runs in its own environment (``DELTA_SHARING_INCUMBENT_PYTHON``), because its requirements conflict with ours.
Tables that it cannot read or reads wrongly are listed; remove an entry once the package reads its table correctly.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client.delta.log.delta_table import DeltaLog
from mock_server import demo
from tests import versions
from tests.effort import sample
from tests.interop.served_tables import change_queries, names, serving, shared_name

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("incumbent"),  # all reads are made once, in one worker
    # Some conformance tables have a wrong checksum in ``_last_checkpoint`` on purpose.
    pytest.mark.filterwarnings("ignore::delta_sharing_client.delta.log.log_files.LastCheckpointWarning"),
]

READER = Path(__file__).with_name("read_frames.py")
MODES = {False: "parquet", True: "delta"}

# The reader features that the package declares to servers, for snapshots and for change feeds. The server refuses a
# table that needs any other feature.
ADVERTISED = {
    "snapshot": {"deletionvectors", "columnmapping", "timestampntz", "v2checkpoint", "vacuumprotocolcheck"},
    "changes": {"deletionvectors", "columnmapping", "v2checkpoint", "vacuumprotocolcheck"},
}
ERRORS = {
    "golden.dat-multi_partitioned.v0 as parquet": "Cannot partition on binary",
    "golden.dat-iceberg_compat_v1.v1 as delta": "Writer features must be Writer-only",
    "golden.void-column as parquet": "Could not parse datatype: void",
    "golden.void-column as delta": "Unsupported Delta table type: 'void'",
    "spark.void-columns as parquet": "Could not parse datatype: void",
    "spark.void-columns as delta": "Unsupported Delta table type: 'void'",
    "spark.change-feed changes as delta": "Start and end version schemas are different",
    "spark.change-feed-vectors changes as delta": "Start and end version schemas are different",
    "spark.pair-feed-committime changes as delta": "In-commit timestamp is enabled but not found",
}
WRONG_ROWS = {
    "spark.all-types as delta": "wraps INT96 timestamps beyond the range of nanoseconds; longs become floats",
    "spark.schema-evolved as parquet": "leaves out struct fields that a file does not have",
    "spark.old-statistics as parquet": "gives timestamps below a struct as numbers of nanoseconds",
    # The package pairs an add and a remove by their URLs, but a server signs each URL separately.
    "golden.cdf-table-with-dv.v4 changes as delta": "takes no difference of deletion vectors",
    "golden.compacted-log-files-table.v10 changes as delta": "takes no difference of deletion vectors",
    "spark.pair-vectors-feed changes as delta": "takes no difference of deletion vectors",
}


@dataclasses.dataclass(frozen=True)
class Request:
    """One read: the name of the table here and on the server, the response format, and, for changes, the first
    version."""

    name: str
    table: str
    delta: bool
    changes: int | None
    path: Path

    def __str__(self) -> str:
        return f"{self.name}{' changes' if self.changes is not None else ''} as {MODES[self.delta]}"

    def is_refused(self) -> bool:
        """Whether the server must refuse the other package, because the package does not declare the table's
        features."""
        advertised = ADVERTISED["snapshot" if self.changes is None else "changes"]
        needed = DeltaLog.open(self.path).snapshot().protocol.reader_features or ()
        return self.delta and not {name.lower() for name in needed} <= advertised


@dataclasses.dataclass(frozen=True)
class Answers:
    """The responses of both packages to the same requests."""

    requests: Mapping[str, Request]
    ours: Mapping[str, Any]
    theirs: Mapping[str, Any]

    def both(self) -> Iterator[tuple[Request, Any, Any]]:
        return ((request, self.ours[name], self.theirs[name]) for name, request in self.requests.items())


@pytest.fixture(scope="module")
def answers(incumbent_python: str, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    base = tmp_path_factory.mktemp("incumbent")
    # The other package supports only Delta tables.
    made = demo.build(base / "demo").tables
    samples = {table.full_name: Path(table.location) for table in made if Path(table.location, "_delta_log").is_dir()}
    with serving(base / "golden", samples) as served:
        tables = [(name, name, path) for name, path in samples.items()]
        tables += [(name, shared_name(name), served.paths[name]) for name in names()]
        listed = [Request(*table[:2], delta, None, table[2]) for table in tables for delta in MODES]
        feeds = {name: start for name, start, _ in reversed(change_queries())} | {"demo.weather.readings": 0}
        listed += [
            Request(*table[:2], delta, feeds[table[0]], table[2])
            for table in tables
            if table[0] in feeds
            for delta in MODES
        ]
        requests = {str(request): request for request in listed}
        assert len(requests) == len(listed)
        if versions.PANDAS < 2:
            del requests["spark.all-types as delta"]  # pandas 1 has no timestamps before 1677
        chosen = {*sample(list(requests), 2), *ERRORS, *WRONG_ROWS}
        requests = {name: request for name, request in requests.items() if name in chosen}
        profile = served.server.profile_path
        return Answers(
            requests,
            ours=_ask(sys.executable, "delta_sharing_client", profile, requests),
            theirs=_ask(incumbent_python, "delta_sharing", profile, requests),
        )


def test_both_packages_list_the_same_tables(answers: Answers) -> None:
    assert len(answers.ours["listing"]["tables"]) > 80
    assert answers.theirs["listing"] == answers.ours["listing"]


def test_we_read_every_table_that_delta_sharing_reads(answers: Answers) -> None:
    failed = {str(request): ours["error"] for request, ours, _ in answers.both() if "error" in ours}

    assert [name for name, error in failed.items() if "UNSUPPORTED_OPERATION" not in error] == []
    assert [name for name in failed if not name.endswith("as parquet")] == []
    assert [name for name in failed if "error" not in answers.theirs[name]] == []


def test_delta_sharing_fails_only_for_the_known_tables(answers: Answers) -> None:
    refused, failed = set(), {}
    for request, ours, theirs in answers.both():
        if "error" in ours or "error" not in theirs:
            continue
        if "UNSUPPORTED_OPERATION" in theirs["error"]:
            refused.add(str(request))
        else:
            failed[str(request)] = theirs["error"]

    assert refused == {
        str(request) for request, ours, _ in answers.both() if "error" not in ours and request.is_refused()
    }
    assert set(failed) == _known(ERRORS, answers)
    assert [name for name, error in failed.items() if ERRORS[name] not in error] == []


def test_both_packages_read_the_same_rows(answers: Answers) -> None:
    compared, different = 0, set()
    for request, ours, theirs in answers.both():
        if "error" in ours or "error" in theirs:
            continue
        compared += 1
        if request.changes is not None and request.delta:
            # The other package truncates commit timestamps to whole seconds in this format.
            ours = _in_whole_seconds(ours)
            assert theirs == _in_whole_seconds(theirs), request
        if theirs != ours:
            different.add(str(request))

    assert compared > 60
    assert different == _known(WRONG_ROWS, answers)


def _known(listed: Mapping[str, str], answers: Answers) -> set[str]:
    """Return the entries of ``listed`` that were read; the conformance tables are optional."""
    return {name for name in listed if name in answers.requests}


def _in_whole_seconds(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    place = answer["columns"].index("_commit_timestamp")
    rows = [[*row[:place], f"{row[place][:19]}.000000", *row[place + 1 :]] for row in answer["rows"]]
    return {**answer, "rows": sorted(rows, key=json.dumps)}


def _ask(python: str, package: str, profile: Path, requests: Mapping[str, Request]) -> dict[str, Any]:
    asked: dict[str, Any] = {
        name: {"table": request.table, "delta": request.delta, "changes": request.changes}
        for name, request in requests.items()
    }
    asked["listing"] = {"table": None}
    run = subprocess.run(
        [python, str(READER), package, str(profile)],
        input="".join(f"{json.dumps(request)}\n" for request in asked.values()),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return dict(zip(asked, map(json.loads, run.stdout.splitlines()), strict=True))
