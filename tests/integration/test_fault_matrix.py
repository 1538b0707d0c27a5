"""Read with each fault of ``mock_server``; the table of the results in ``docs/reliability.md`` is generated from
this."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from mock_server.faults import FAULTS, KINDS, FaultKind, Target
from tests.generated import check_generated
from tests.served import served
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
# Endless responses keep a core busy until the time limit.
ENDLESS = {"endless-pages", "endless-continue"}
COUNT = 40
SHOWN = (Target.API, Target.DATA)


@pytest.mark.filterwarnings("ignore::delta_sharing_client.IncompleteReadWarning")
def test_faults_have_the_results_in_the_documentation(tmp_path: Path) -> None:
    table = TableWriter(tmp_path / "t", pa.schema([("id", pa.int64())]))
    table.insert(rows_of(range(COUNT // 2)), rows_of(range(COUNT // 2, COUNT)))
    cases = [
        (kind, target, often)
        for kind in FAULTS
        if kind.name not in UNNOTICED
        for target in SHOWN
        if kind.target.covers(target)
        for often in (True, False)
    ]
    with ThreadPoolExecutor(24) as pool:
        outcomes = dict(zip(cases, pool.map(lambda case: _outcome(tmp_path / "t", *case), cases), strict=True))

    rows: dict[tuple[str, str], dict[Target, list[str]]] = {}
    for kind, target, _ in cases[::2]:
        pair = (outcomes[kind, target, False], outcomes[kind, target, True])
        rows.setdefault(pair, {}).setdefault(target, []).append(f"`{kind.name}`")
    for name, text in UNNOTICED.items():
        rows[text, ""] = {KINDS[name].target: [f"`{name}`"]}
    lines = ["| once | always | faults of the sharing server | faults of data files |", "|---|---|---|---|"]
    for pair, names in sorted(rows.items(), key=lambda row: row[0][1] != "rows"):
        lines.append(f"| {' | '.join(pair)} | {' | '.join(', '.join(names.get(one, ())) for one in SHOWN)} |")
    assert "wrong" not in outcomes.values()
    check_generated(ROOT / "docs" / "reliability.md", "matrix", "\n".join(lines) + "\n")


def _outcome(path: Path, kind: FaultKind, target: Target, always: bool) -> str:
    """Return ``rows`` or the class of the error."""
    value = VALUES.get(kind.name, None if kind.default is None or kind.counts else f"{kind.default:g}")
    if kind.counts:
        fault = f"{kind.name}={10_000 if always else 1}@{target.value}"
    else:
        fault = kind.name + ("" if value is None else f"={value}") + ("" if always else ":1") + f"@{target.value}"
    options = dataclasses.replace(OPTIONS, total_timeout=6.0) if kind.name in ENDLESS and always else OPTIONS
    with served(path, options, faults=[fault]) as table:
        try:
            rows = table.scan(filter="id >= 0").to_arrow()["id"].to_pylist()
        except ds.DeltaSharingError as error:
            return f"`{type(error).__name__}`"
    return "rows" if rows == list(range(COUNT)) else "wrong"
