"""Compares downloads of a volume with obstore in a plain loop and with s3fs, from one S3 server.

    python -m benchmarks.downloads [--repeats N] [--cases LIST] [--s3fs PYTHON] [--directory FOLDER] [--save]

The store is versitygw, which ``bash scripts/s3`` builds (``--server`` names a different binary). The cases are 1,000
files of 20 kB, 16 files of 25 MB, and the listing of 100,000 files. Large files are uploaded in one request, so that
the ETag is the MD5 of the content, which only this client verifies, or in parts, as most programs do. A first round
finds the numbers of tasks and threads with which the plain loops are fastest. Then each round runs every contender in
random order in a separate process; the clock starts after the imports. Each ratio is the median over all rounds, of
the seconds and of the processor seconds, compared with the contender that is fastest in the round.
``--s3fs`` is the interpreter of a separate environment with s3fs, which needs a different version of botocore.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3

import mock_server
from benchmarks.results import save_downloads
from mock_server import asset_files, catalog

CASES = {"small": (1_000, 20_000), "large": (16, 25_000_000), "parts": (16, 25_000_000), "list": (100_000, 100)}
TITLES = {
    "small": "1,000 files of 20 kB",
    "large": "16 files of 25 MB whose ETags are MD5",
    "parts": "16 files of 25 MB, uploaded in parts",
    "list": "listing of 100,000 files",
}
# The most that our seconds and our processor seconds may be, as multiples of the fastest contender's.
GOALS = {"small": (1.2, 1.6), "large": (1.2, 1.0), "parts": (1.2, 1.0), "list": (1.2, 2.0)}
MOST_MEMORY = 200_000_000
TASKS = (4, 8, 16, 32, 64)
BUCKET, REGION = "benchmark", "us-east-1"
KEY, SECRET = "benchmark-key", "benchmark-secret"
VOLUME = "s.d.files"
_ROOT = Path(__file__).parents[1]
_SERVER = _ROOT / ".ci" / "env-s3" / "bin" / "versitygw-v1.8.0"
_START_SECONDS = 30

Figures = dict[str, Any]


@contextlib.contextmanager
def store(server: Path, folder: Path) -> Iterator[str]:
    """Run the S3 server with its objects in ``folder``, and yield its endpoint."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    account = ["--access", KEY, "--secret", SECRET]
    process = subprocess.Popen([server, "--port", address, *account, "--keep-alive", "--quiet", "posix", folder])
    try:
        _wait_for(address)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def _wait_for(address: str) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def fill(endpoint: str, case: str, objects: Path) -> None:
    """Put the files of ``case`` into the store, whose directory is ``objects``, unless they exist."""
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name=REGION, aws_access_key_id=KEY, aws_secret_access_key=SECRET
    )
    if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    count, size = CASES[case]
    source = random.Random(case)
    last = f"{case}/{(count - 1) // 1000:03}/{count - 1:06}.bin"
    if client.list_objects_v2(Bucket=BUCKET, Prefix=last).get("KeyCount"):
        return
    for number in range(count):
        key, data = f"{case}/{number // 1000:03}/{number:06}.bin", source.randbytes(size)
        if case == "parts":
            client.upload_fileobj(io.BytesIO(data), BUCKET, key)
            continue
        # Written as the server writes an object, because an upload takes ten times as long.
        path = objects / BUCKET / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.setxattr(path, "user.etag", f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'.encode())


class Turns:
    """The contenders of one case."""

    def __init__(self, case: str, job: dict[str, Any], scratch: Path, s3fs: Path | None) -> None:
        self._case, self._job, self._scratch = case, job, scratch
        self._python = {"s3fs": str(s3fs)}
        self.contenders: dict[str, dict[str, Any]] = {"ours": {}, "s3fs": {}}
        if s3fs is None:
            del self.contenders["s3fs"]
        if case == "list":
            self.contenders["obstore-list"] = {}
            return
        for way in ("obstore-tasks", "obstore-threads"):
            results = {tasks: self._run(way, {"tasks": tasks})["seconds"] for tasks in TASKS}
            sys.stdout.write(f"{case}: {way}: {', '.join(f'{n}: {s:.2f} s' for n, s in results.items())}\n")
            self.contenders[way] = {"tasks": min(results, key=results.__getitem__)}

    def take(self, repeats: int) -> dict[str, list[Figures]]:
        """Return the measurements of each contender."""
        figures: dict[str, list[Figures]] = {name: [] for name in self.contenders}
        for _ in range(repeats):
            for name in random.sample(list(self.contenders), len(self.contenders)):
                figures[name].append(self._run(name, self.contenders[name]))
        return figures

    def _run(self, contender: str, arguments: dict[str, Any]) -> Figures:
        target = self._scratch / "target"
        job = {**self._job, "contender": contender, "target": str(target), **arguments}
        command = [self._python.get(contender, sys.executable), str(Path(__file__).with_name("download_jobs.py"))]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        try:
            run = subprocess.run(
                [*command, json.dumps(job)], env=environment, cwd=_ROOT, capture_output=True, text=True, check=False
            )
            if run.returncode:
                raise SystemExit(f"{contender} failed with code {run.returncode}: {run.stderr}")
            answer: Figures = json.loads(run.stdout)
            self._check(contender, answer, target)
        finally:
            shutil.rmtree(target, ignore_errors=True)
        return answer

    def _check(self, contender: str, answer: Figures, target: Path) -> None:
        count, size = CASES[self._case]
        total = 0 if self._case == "list" else sum(one.stat().st_size for one in target.rglob("*.bin"))
        if answer["files"] != count or total != (0 if self._case == "list" else count * size):
            raise SystemExit(f"{contender} downloaded the wrong files: {answer['files']} of {count}, {total} bytes")


def report(case: str, turns: Turns, figures: dict[str, list[Figures]]) -> dict[str, Any]:
    """Print and return the medians, and the ratios of each round."""
    result: dict[str, Any] = {"case": case, "title": TITLES[case], "goal": GOALS[case], "contenders": {}}
    best = [min(others, key=lambda one: one["seconds"]) for others in _others(figures)]
    for name, answers in figures.items():
        pairs = zip(figures["ours"], answers, strict=True)
        result["contenders"][name] = {
            **turns.contenders[name],
            "seconds": statistics.median(one["seconds"] for one in answers),
            "processor": statistics.median(one["processor"] for one in answers),
            "peak_bytes": max(one["peak_bytes"] for one in answers),
            "ratio": statistics.median(mine["seconds"] / theirs["seconds"] for mine, theirs in pairs),
        }
    for ratio, figure in (("ratio", "seconds"), ("processor_ratio", "processor")):
        pairs = zip(figures["ours"], best, strict=True)
        result[ratio] = statistics.median(mine[figure] / other[figure] for mine, other in pairs)
    for name, one in result["contenders"].items():
        tasks = f" of {one['tasks']}" if "tasks" in one else ""
        sys.stdout.write(
            f"{case}: {name}{tasks}: {one['seconds']:.2f} s ({one['processor']:.2f} s of processor, "
            f"{one['peak_bytes'] / 1e6:.0f} MB), ours takes {one['ratio']:.2f} times as long\n"
        )
    sys.stdout.write(
        f"{case}: ours takes {result['ratio']:.2f} times as long as the fastest of each turn, and "
        f"{result['processor_ratio']:.2f} times its processor time\n"
    )
    sys.stdout.flush()
    return result


def _others(figures: dict[str, list[Figures]]) -> Iterator[tuple[Figures, ...]]:
    return zip(*(answers for name, answers in figures.items() if name != "ours"), strict=True)


def measure(case: str, endpoint: str, scratch: Path, repeats: int, s3fs: Path | None) -> dict[str, Any]:
    """Return the measurements of one case."""
    fill(endpoint, case, scratch / "objects")
    settings = {"endpoint": endpoint, "region": REGION}
    keys = {"accessKeyId": KEY, "secretAccessKey": SECRET, "sessionToken": ""}
    asset = asset_files.volume(tuple(VOLUME.split(".")), f"s3://{BUCKET}/{case}")
    with mock_server.running(
        catalog.build((), assets=[asset]), vendors={"s3": lambda *_: {"awsTempCredentials": keys}}
    ) as server:
        job = {
            "action": "list" if case == "list" else "get",
            "profile": dict(server.profile),
            "volume": VOLUME,
            "store": settings,
            "bucket": BUCKET,
            "prefix": case,
            "key": KEY,
            "secret": SECRET,
        }
        turns = Turns(case, job, scratch, s3fs)
        return report(case, turns, turns.take(repeats))


def main() -> int:
    """Run the program that the module docstring describes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.downloads", description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cases", default=",".join(CASES), help="of " + ", ".join(CASES))
    parser.add_argument("--server", type=Path, default=_SERVER, help="versitygw")
    parser.add_argument("--s3fs", type=Path, help="the interpreter of an environment with s3fs")
    parser.add_argument(
        "--directory", type=Path, help="directory for the store's objects and the downloads; it is not removed"
    )
    parser.add_argument("--save", action="store_true", help="keep the figures in downloads.json and RESULTS.md")
    given = parser.parse_args()
    with contextlib.ExitStack() as running:
        folder = given.directory or Path(running.enter_context(tempfile.TemporaryDirectory()))
        objects = folder / "objects"
        objects.mkdir(parents=True, exist_ok=True)
        endpoint = running.enter_context(store(given.server, objects))
        results = [measure(case, endpoint, folder, given.repeats, given.s3fs) for case in given.cases.split(",")]
    if given.save:
        save_downloads(results)
    memory = max(one["contenders"]["ours"]["peak_bytes"] for one in results)
    is_met = all(one["ratio"] <= one["goal"][0] and one["processor_ratio"] <= one["goal"][1] for one in results)
    return 0 if memory <= MOST_MEMORY and is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
