"""The PyPI package ``delta-sharing`` against our server: it lists and reads the same, wherever it can read.

It runs in its own environment (``DELTA_SHARING_INCUMBENT_PYTHON``), because its pins do not fit ours.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mock_server import demo
from tests.golden import corpus

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

READER = Path(__file__).with_name("read_frames.py")
SPARK_TABLES = Path(__file__).resolve().parents[1] / "tables_spark"
MODES = {False: "parquet", True: "delta"}

# Where the other package is wrong, and why: an entry that starts to agree must be taken out.
WRONG_ROWS = {
    "spark.tables.all-types as delta": "wraps INT96 timestamps beyond the range of nanoseconds; longs become floats",
    "spark.tables.schema-evolved as parquet": "leaves out struct fields that a file does not have",
}
# One table of each kind is enough: what it cannot read is its own affair, but it must read these.
MUST_READ = (
    *("demo.shop.products as parquet", "demo.shop.products as delta", "demo.shop.orders as delta"),
    *("spark.tables.plain as parquet", "spark.tables.deletion-vectors as delta", "spark.tables.mapping-id as delta"),
    *("spark.tables.timestamp-ntz as delta", "spark.tables.partition-all-types as delta"),
)


@dataclasses.dataclass(frozen=True)
class Answers:
    """What both packages answered to the same requests, by ``table as mode``."""

    ours: dict[str, Any]
    theirs: dict[str, Any]


@pytest.fixture(scope="module")
def answers(serve: Callable[..., Any], incumbent_python: str, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    base = tmp_path_factory.mktemp("incumbent")
    tables = {table.full_name: table.location for table in demo.build(base / "demo").tables}
    tables |= {f"spark.tables.{path.parent.name}": path for path in sorted(SPARK_TABLES.glob("*/delta"))}
    for golden in corpus.tables():
        if golden.outcome in ("read", "read-or-refuse"):
            golden.stage(base / "golden" / golden.name)
            tables[f"golden.tables.{golden.name.replace('.', '_')}"] = base / "golden" / golden.name
    server = serve(tables=tables)
    requests = {"listing": {"table": None}}
    for name in tables:
        requests |= {f"{name} as {MODES[delta]}": {"table": name, "delta": delta, "changes": None} for delta in MODES}
    for name, start in (("demo.weather.readings", 0), ("spark.tables.change-feed", 1)):
        requests |= {
            f"changes of {name} as {MODES[delta]}": {"table": name, "delta": delta, "changes": start} for delta in MODES
        }
    return Answers(
        ours=_ask(sys.executable, "delta_sharing_client", server.profile_path, requests),
        theirs=_ask(incumbent_python, "delta_sharing", server.profile_path, requests),
    )


def test_both_list_the_same_tables(answers: Answers) -> None:
    assert len(answers.ours["listing"]["tables"]) >= 3
    assert answers.theirs["listing"] == answers.ours["listing"]


def test_both_read_the_same_rows_wherever_the_other_can_read(answers: Answers) -> None:
    different = {
        name for name, theirs in answers.theirs.items() if "error" not in theirs and theirs != answers.ours[name]
    }

    assert different == set(WRONG_ROWS)


def test_the_other_reads_one_table_of_every_kind(answers: Answers) -> None:
    read = {name for name, theirs in answers.theirs.items() if "error" not in theirs}

    assert sorted({*MUST_READ, "changes of demo.weather.readings as parquet"} - read) == []
    assert all(answers.ours[name]["rows"] for name in MUST_READ)


def _ask(python: str, package: str, profile: Path, requests: dict[str, Any]) -> dict[str, Any]:
    run = subprocess.run(
        [python, str(READER), package, str(profile)],
        input="".join(f"{json.dumps(request)}\n" for request in requests.values()),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return dict(zip(requests, map(json.loads, run.stdout.splitlines()), strict=True))
