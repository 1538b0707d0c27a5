"""A script may end with starting threads that read: they import and begin everything after the main thread has ended.

Python then refuses to import ``concurrent.futures.thread``, and its pools accept no work.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LATE = """
import os, sys, threading
import delta_sharing_client as ds
main_ended = threading.main_thread().join

def late(call):
    main_ended()
    try:
        import asyncio
        outcome = eval(call, {"ds": ds, "asyncio": asyncio, "profile": sys.argv[1], "folder": sys.argv[2]})
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
    os.write(1, f"read: {call} -> {outcome}\\n".encode())

for call in sys.argv[3:]:
    threading.Thread(target=late, args=(call,)).start()
"""
ORDERS, REFUNDS = (f"ds.SharingClient(profile).table('{name}')" for name in ("demo.shop.orders", "demo.lake.refunds"))
VOLUME = "ds.SharingClient(profile).volume('demo.shop.documents')"
FOLLOWED = f"{ORDERS}.follow(folder + '/cursor', trigger='available-now')"
# For each process: the calls that its threads begin at the same time, each with its outcome. The demo has 2755 orders,
# 285 refunds, which are an Iceberg table, and 5 documents.
CALLS: dict[str, dict[str, object]] = {
    "rows": {
        f"{ORDERS}.scan().to_arrow().num_rows": 2755,
        f"{ORDERS}.scan(limit=7).to_arrow().num_rows": 7,
        "len(ds.load_as_pandas(profile + '#demo.shop.orders'))": 2755,
        "ds.load_as_arrow(profile + '#demo.shop.orders').num_rows": 2755,
    },
    "tables": {
        "len(ds.scan_polars(profile + '#demo.shop.orders').collect())": 2755,
        "ds.sql('SELECT count(*) FROM demo.shop.orders', profile).fetchall()": [(2755,)],
        f"{ORDERS}.scan().to_excel(folder + '/orders.xlsx')": 2755,
        f"{ORDERS}.scan(options=ds.ReadOptions(access_mode='dir')).count()": 2755,
        f"asyncio.run({ORDERS}.scan().to_arrow_async()).num_rows": 2755,
    },
    "others": {
        f"{REFUNDS}.scan().to_arrow().num_rows": 285,
        f"{REFUNDS}.scan(filter='order_id >= 0').to_polars().height": 285,
        f"len(list({VOLUME}.files()))": 5,
        f"len({VOLUME}.download(folder + '/files').downloaded)": 5,
        f"{VOLUME}.open('reports/2026-01.md').read(1)": b"#",
        f"{ORDERS}.replicate(folder + '/copy').downloaded_files > 0": True,
        f"sum(step.count() for step in {FOLLOWED} if not step.commit())": 2755,
    },
}


# Python 3.12 before 3.12.3 starts no thread after the main thread has ended.
@pytest.mark.skipif((3, 12) <= sys.version_info < (3, 12, 3), reason="this Python starts no thread then")
@pytest.mark.parametrize("group", CALLS)
def test_first_read_begins_after_the_main_thread_has_ended(serve_demo: Any, tmp_path: Path, group: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE, str(serve_demo.profile_path), str(tmp_path), *CALLS[group]],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert done.returncode == 0, done.stderr
    outcomes = sorted(line for line in done.stdout.splitlines() if line.startswith("read: "))
    assert outcomes == sorted(f"read: {call} -> {outcome}" for call, outcome in CALLS[group].items())
