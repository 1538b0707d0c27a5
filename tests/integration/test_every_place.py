"""Progress, cancelling and reads that end early work in the same way for every place that files are read from."""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import delta_sharing_client as ds
from tests.local_faults import LocalFaults, injected
from tests.object_stores import PLACES, URLS
from tests.store_matrix import FILES, IDS, LARGE, TABLE, VOLUME, Station, simulated, station
from tests.time_limits import HANGS

# Longer than a test waits, so a call that is not ended fails the test.
STUCK = 10 * HANGS


@pytest.fixture(params=PLACES)
def at(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Station]:
    with injected(), station(simulated(request.param), tmp_path, read_timeout=STUCK, total_timeout=None) as opened:
        yield opened


def is_by_url(at: Station) -> bool:
    return at.proxy.kind == URLS


def hold(at: Station, target: str) -> Callable[[], None]:
    """Let no further response to a request for ``target`` end; return a function that waits until there is one."""
    before = len(at.proxy.requests)
    at.proxy.set_fault(f"slow={STUCK:g}@{target}")

    def wait() -> None:
        deadline = time.monotonic() + HANGS
        while len(at.proxy.requests) == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    return wait


def let_go(at: Station) -> None:
    at.proxy.faults.clear()
    if isinstance(at.proxy, LocalFaults):
        at.proxy.release()


def check_all_is_read(at: Station, here: pathlib.Path) -> None:
    """Check that earlier calls have left nothing behind that would disturb later ones."""
    volume = at.client.volume(VOLUME)
    volume.download(here)
    assert {path: (here / path).read_bytes() for path in FILES} == FILES
    assert {file.path: file.size for file in volume.files()} == {path: len(data) for path, data in FILES.items()}
    assert sorted(at.client.table(TABLE).scan().to_arrow()["id"].to_pylist()) == IDS


# === Progress ===


def test_download_reports_its_progress(at: Station, tmp_path: pathlib.Path) -> None:
    seen: list[ds.Progress] = []
    volume = at.client.volume(VOLUME)
    dataclasses.replace(volume, options=dataclasses.replace(volume.options, progress=seen.append)).download(
        tmp_path / "here"
    )

    total = sum(map(len, FILES.values()))
    last = seen[-1]
    assert (last.files_done, last.files_total) == (len(FILES), len(FILES))
    assert (last.bytes_done, last.bytes_total, last.bytes_fetched) == (total, total, total)
    assert [one.bytes_fetched for one in seen] == sorted(one.bytes_fetched for one in seen)


def test_read_reports_its_progress(at: Station) -> None:
    seen: list[ds.Progress] = []
    options = dataclasses.replace(at.client.table(TABLE).options, progress=seen.append)

    assert at.client.table(TABLE).scan(options=options).to_arrow().num_rows == len(IDS)
    assert (seen[-1].files_done, seen[-1].files_total, seen[-1].rows) == (2, 2, len(IDS))


# === Cancelling ===


@pytest.mark.parametrize(
    ("target", "call"),
    [
        ("api", lambda at, here: anext(at.client.volume(VOLUME).files_async())),
        ("data", lambda at, here: at.client.volume(VOLUME).read_bytes_async(LARGE)),
        ("data", lambda at, here: at.client.volume(VOLUME).download_async(here)),
        ("data", lambda at, here: at.client.table(TABLE).scan().to_arrow_async()),
    ],
    ids=["files", "read_bytes", "download", "scan"],
)
def test_cancelled_task_ends(at: Station, tmp_path: pathlib.Path, target: str, call: Callable[..., Any]) -> None:
    if target == "api" and is_by_url(at):
        pytest.skip("the sharing server lists the files, as tests/unit/run/test_task_queue.py cancels it")
    wait = hold(at, target)

    async def cancelled() -> None:
        task = asyncio.ensure_future(call(at, tmp_path / "here"))
        await asyncio.to_thread(wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, HANGS)

    asyncio.run(cancelled())
    let_go(at)
    check_all_is_read(at, tmp_path / "here")


@pytest.mark.parametrize("kind", ["file", "listing", "batches"])
def test_close_wakes_a_waiting_thread(at: Station, tmp_path: pathlib.Path, kind: str) -> None:
    if kind == "listing" and is_by_url(at):
        pytest.skip("the sharing server lists the files, as tests/unit/run/test_task_queue.py closes it")
    opened: Any = {
        "file": lambda: at.client.volume(VOLUME).open(LARGE),
        "listing": lambda: at.client.volume(VOLUME).files(),
        "batches": lambda: at.client.table(TABLE).scan().to_batches(),
    }[kind]()
    wait = hold(at, "api" if kind == "listing" else "data")
    raised: list[str] = []

    def use() -> None:
        try:
            opened.read(1) if kind == "file" else next(opened)
        except ds.UsageError as error:
            raised.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    wait()
    opened.close()
    thread.join(HANGS)
    assert len(raised) == 1
    assert "closed" in raised[0]
    let_go(at)
    check_all_is_read(at, tmp_path / "here")


# === Early ends ===


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_uses_that_end_early_leave_nothing_behind(at: Station, tmp_path: pathlib.Path, taken: int) -> None:
    volume = at.client.volume(VOLUME)
    listing = volume.files()
    for _ in range(taken):
        next(listing)
    listing.close()  # type: ignore[attr-defined]
    with volume.open(LARGE) as stream:
        assert stream.read(taken * 100) == FILES[LARGE][: taken * 100]
    batches = at.client.table(TABLE).scan().to_batches()
    for _ in range(min(taken, 1)):
        next(batches)
    batches.close()

    async def first() -> None:
        async with volume.files_async() as files:
            for _ in range(taken):
                await anext(files)

    asyncio.run(first())
    check_all_is_read(at, tmp_path / "here")


def test_memory_of_closed_reads_is_free(at: Station) -> None:
    """More reads than a client has connections and room for: each must give back what it had."""
    volume = at.client.volume(VOLUME)
    for _ in range(2 * volume.options.max_concurrent_requests):
        volume.open(LARGE).close()
        volume.files().close()  # type: ignore[attr-defined]
    assert volume.read_bytes(LARGE) == FILES[LARGE]
