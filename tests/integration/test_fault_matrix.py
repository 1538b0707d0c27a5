"""Read with each fault of ``mock_server``; the table of the results in ``docs/reliability.md`` is generated from
this."""

from __future__ import annotations

import dataclasses
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from mock_server.faults import FAULTS, FaultKind, Target
from tests.generated import check_generated
from tests.tables import TableWriter, rows_of

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ds.ReadOptions(
    max_attempts=2, max_retry_seconds=12.0, connect_timeout=5.0, read_timeout=2.5, total_timeout=20.0, progress=False
)
# Values for faults that have no documented value, or whose documented value would take too long.
VALUES = {
    # With a larger value, some bytes would arrive before each reset, so the read would progress and finally succeed.
    "cut-connection-after": "0",
    "throttle": "1",
    "page-size": "1",
    "async-pending": "1",
    # Much longer than read_timeout, because on a busy machine the reading thread may wait seconds for a core.
    "slow": "9",
    "429-retry-after": "0",
    "error-body": "1000000",
}
# Faults that no client can detect over plain HTTP.
UNNOTICED = {
    "corrupt-body": "not detected if the byte is part of a value; over HTTPS, it is an error",
    "lose-lines": "not detected unless the server states the number of files; over HTTPS, a cut connection is an error",
}
# Endless responses keep a core busy until the time limit, so the test uses a fraction of the limit that the table
# shows.
ENDLESS = {"endless-pages", "endless-continue"}
COUNT = 40
# The durations in the table are from the run that generated it, and are not compared.
SECONDS = r", \d+\.\d s"


@pytest.mark.filterwarnings("ignore::delta_sharing_client.IncompleteReadWarning")
def test_faults_have_the_results_in_the_documentation(tmp_path: Path) -> None:
    table = TableWriter(tmp_path / "t", pa.schema([("id", pa.int64())]))
    table.insert(rows_of(range(COUNT // 2)), rows_of(range(COUNT // 2, COUNT)))
    cases = [
        (kind, target, often)
        for kind in FAULTS
        if kind.name not in UNNOTICED
        for target in (Target.API, Target.DATA)
        if kind.target.covers(target)
        for often in (True, False)
    ]
    with ThreadPoolExecutor(4 if os.environ.get("UPDATE_DOCS") else 24) as pool:
        outcomes = dict(zip(cases, pool.map(lambda case: _outcome(tmp_path / "t", *case), cases), strict=True))

    lines = ["| fault | target | once | always |", "|---|---|---|---|"]
    for kind in FAULTS:
        if kind.name in UNNOTICED:
            lines.append(f"| {kind.doc.replace('VALUE', 'N')} | {kind.target.value} | {UNNOTICED[kind.name]} | |")
        for target in (Target.API, Target.DATA):
            if (kind, target, True) in outcomes:
                once, always = outcomes[kind, target, False], outcomes[kind, target, True]
                lines.append(f"| {kind.doc.replace('VALUE', 'N')} | {target.value} | {once} | {always} |")
    assert "wrong" not in " ".join(lines)
    check_generated(ROOT / "docs" / "reliability.md", "matrix", "\n".join(lines) + "\n", but=SECONDS)


def _outcome(path: Path, kind: FaultKind, target: Target, always: bool) -> str:
    """Return ``rows`` or the class of the error, and the elapsed seconds."""
    value = VALUES.get(kind.name, None if kind.default is None or kind.counts else f"{kind.default:g}")
    if kind.counts:
        fault = f"{kind.name}={10_000 if always else 1}@{target.value}"
    else:
        fault = kind.name + ("" if value is None else f"={value}") + ("" if always else ":1") + f"@{target.value}"
    is_cut = kind.name in ENDLESS and always and not os.environ.get("UPDATE_DOCS")
    options = dataclasses.replace(OPTIONS, total_timeout=6.0) if is_cut else OPTIONS
    with (
        mock_server.running(tables={"s.s.t": path}, faults=[fault]) as server,
        ds.SharingClient(server.profile, options) as client,
    ):
        began = time.monotonic()
        try:
            rows = client.table("s.s.t").scan(filter="id >= 0").to_arrow()["id"].to_pylist()
        except ds.DeltaSharingError as error:
            return f"`{type(error).__name__}`, {time.monotonic() - began:.1f} s"
        took = time.monotonic() - began
    return f"rows, {took:.1f} s" if rows == list(range(COUNT)) else "wrong"
