"""Runs one download or listing by one contender; ``benchmarks.downloads`` starts it as a separate process.

The first argument is the job as JSON; the measurements are written to stdout as JSON. Everything is imported before the
clock starts.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# obstore's default of 10 MiB is slower.
_CHUNK = 1024 * 1024

Job = dict[str, Any]


def ours(job: Job) -> Callable[[], int]:
    """Return the job for this client, which reads a volume of the sharing server."""
    import delta_sharing_client as ds

    # Imported on first use.
    import delta_sharing_client.assets.download

    def volume() -> Any:
        options = ds.ReadOptions(storage_options=job["store"], progress=False)
        return ds.SharingClient(job["profile"], options=options).volume(job["volume"])

    # This imports the remaining modules. The measured download requests credentials again.
    volume().download(job["target"], pattern="nothing", dry_run=True)
    measured = volume()
    if job["action"] == "list":
        return lambda: sum(1 for _ in measured.files())
    return lambda: len(measured.download(job["target"]).downloaded)


def _store(job: Job) -> Any:
    from obstore.store import S3Store

    return S3Store(
        job["bucket"],
        prefix=job["prefix"],
        access_key_id=job["key"],
        secret_access_key=job["secret"],
        client_options={"allow_http": True},
        config=job["store"],
    )


def obstore_tasks(job: Job) -> Callable[[], int]:
    """Return the job for obstore in a plain loop of ``tasks`` tasks, which list, request and write each chunk."""
    import obstore

    store = _store(job)
    target = Path(job["target"])

    async def run() -> int:
        paths = iter([one["path"] for page in obstore.list(store) for one in page])
        count = 0

        async def work() -> None:
            nonlocal count
            for path in paths:
                answer = await obstore.get_async(store, path)
                place = target / path
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("wb", buffering=0) as out:
                    async for chunk in answer.stream(min_chunk_size=_CHUNK):
                        out.write(chunk)
                count += 1

        await asyncio.gather(*(work() for _ in range(job["tasks"])))
        return count

    return lambda: asyncio.run(run())


def obstore_threads(job: Job) -> Callable[[], int]:
    """Return the job for obstore in a plain loop of ``tasks`` threads."""
    import obstore

    store = _store(job)
    target = Path(job["target"])

    def one(path: str) -> int:
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb", buffering=0) as out:
            for chunk in obstore.get(store, path).stream(min_chunk_size=_CHUNK):
                out.write(chunk)
        return 1

    def run() -> int:
        with ThreadPoolExecutor(job["tasks"]) as pool:
            return sum(pool.map(one, [one["path"] for page in obstore.list(store) for one in page]))

    return run


def obstore_list(job: Job) -> Callable[[], int]:
    """Return the job for obstore's own listing, which returns one dictionary per file."""
    import obstore

    store = _store(job)
    return lambda: sum(1 for page in obstore.list(store, chunk_size=1000) for _ in page)


def s3fs_get(job: Job) -> Callable[[], int]:
    """Return the job for ``s3fs``, the file system of fsspec for S3."""
    import s3fs

    files = s3fs.S3FileSystem(
        key=job["key"],
        secret=job["secret"],
        endpoint_url=job["store"]["endpoint"],
        client_kwargs={"region_name": job["store"]["region"]},
    )
    source = f"{job['bucket']}/{job['prefix']}"

    def run() -> int:
        if job["action"] == "list":
            return len(files.find(source))
        files.get(f"{source}/", job["target"], recursive=True)
        return sum(len(names) for _, _, names in os.walk(job["target"]))

    return run


CONTENDERS: dict[str, Callable[[Job], Callable[[], int]]] = {
    "ours": ours,
    "obstore-tasks": obstore_tasks,
    "obstore-threads": obstore_threads,
    "obstore-list": obstore_list,
    "s3fs": s3fs_get,
}


def main() -> None:
    job: Job = json.loads(sys.argv[1])
    action = CONTENDERS[job["contender"]](job)
    processor, began = time.process_time(), time.perf_counter()
    files = action()
    seconds = time.perf_counter() - began
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    figures = {
        "files": files,
        "seconds": seconds,
        "processor": time.process_time() - processor,
        "peak_bytes": int(peak[1]) * 1024 if peak else 0,
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
    # obstore's tasks sometimes abort a process that exits normally.
    os._exit(0)


if __name__ == "__main__":
    main()
