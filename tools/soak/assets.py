"""Very large volumes: list a million files, and download a file of 10 GB with programs that are killed.

The store generates its content (``tools.soak.asset_store``). ``files()`` and ``download()`` read the listing;
``download()`` is a dry run by default, which also lists the files, checks their names and compares them. Programs that
are killed at random moments download the large file until one finishes: after each kill no file has the final name, and
the next program does not request the stored bytes again. At the end every byte is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

import delta_sharing_client as ds
import mock_server
from benchmarks.workers import peak_bytes
from mock_server import asset_files, catalog
from tools.soak import asset_store

HELP = "list a million files of a volume, and download 10 GB with programs that are killed"

_MEGABYTE = 1_000_000
# A few bytes per file may be kept: for the detection of duplicate names, and for the path in the result.
_BYTES_A_FILE = 130
_SLACK = 60 * _MEGABYTE
_LARGE_SLACK = 90 * _MEGABYTE
_KEYS = {"awsTempCredentials": {"accessKeyId": "k", "secretAccessKey": "s", "sessionToken": "t"}}
_PROGRAM = (
    "import json, sys, delta_sharing_client as ds\n"
    "from benchmarks.workers import peak_bytes\n"
    "job = json.loads(sys.argv[1])\n"
    "client = ds.SharingClient(job['profile'], options=ds.ReadOptions(storage_options=job['store'], progress=False))\n"
    "volume = client.volume('s.d.one')\n"
    "list(volume.files())\n"
    "idle = peak_bytes()\n"
    "volume.download(job['target'])\n"
    "print(peak_bytes() - idle)\n"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=1_000_000, help="files of the listing (default a million)")
    parser.add_argument("--bytes", type=int, default=10_000_000_000, help="size of the large file (default 10 GB)")
    parser.add_argument("--kills", type=int, default=5, help="programs that are killed (default 5)")
    parser.add_argument("--directory", type=Path, help="where downloads go (default: a temporary directory)")
    parser.add_argument("--whole", action="store_true", help="also download all files of the listing, and compare them")


def run(arguments: argparse.Namespace) -> int:
    wrong: list[str] = []
    with _serving(arguments) as job, tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        if arguments.files:
            wrong += _listing(job, Path(folder) / "many", arguments)
        if arguments.bytes:
            wrong += _large(job, Path(folder) / "one", arguments)
    sys.stdout.write("".join(f"FAILED: {each}\n" for each in wrong))
    return 1 if wrong else 0


@contextlib.contextmanager
def _serving(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the store and a sharing server; yield the settings that a client needs to read from them."""
    size = ["--files", str(max(1, arguments.files)), "--bytes", str(arguments.bytes)]
    command = [sys.executable, "-m", "tools.soak.asset_store", *size]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
            volumes = [asset_files.volume(("s", "d", name), f"s3://b/{name}") for name in ("many", "one")]
            with mock_server.running(catalog.build((), assets=volumes), vendors={"s3": lambda *_: _KEYS}) as server:
                store = {"endpoint": endpoint, "region": "us-east-1"}
                yield {"profile": dict(server.profile), "store": store}
        finally:
            process.terminate()


def _listing(job: dict[str, Any], target: Path, arguments: argparse.Namespace) -> list[str]:
    options = ds.ReadOptions(storage_options=job["store"], progress=False)
    wrong = []
    with ds.SharingClient(job["profile"], options=options) as client:
        volume = client.volume("s.d.many")
        next(volume.files())
        volume.download(target, asset_store.key(0).partition("/")[2], dry_run=True)
        idle, began = peak_bytes(), time.monotonic()
        count = sum(1 for _ in volume.files())
        wrong += _told("files()", count, arguments.files, idle, began, 0)
        began = time.monotonic()
        planned = volume.download(target, dry_run=True)
        wrong += _told("download(dry_run=True)", len(planned.downloaded), arguments.files, idle, began, _BYTES_A_FILE)
        del planned
        if arguments.whole:
            began = time.monotonic()
            done = volume.download(target)
            wrong += _told("download()", len(done.downloaded), arguments.files, idle, began, _BYTES_A_FILE)
            wrong += _compared(target, arguments.files)
            began = time.monotonic()
            wrong += _told(
                "download() again", volume.download(target).unchanged, arguments.files, idle, began, _BYTES_A_FILE
            )
    return wrong


def _told(what: str, count: int, expected: int, idle: int, began: float, bytes_a_file: int) -> list[str]:
    peak, seconds = peak_bytes() - idle, time.monotonic() - began
    sys.stdout.write(f"{what}: {count:,} files in {seconds:.0f} s, {peak / _MEGABYTE:.0f} MB above an idle process\n")
    sys.stdout.flush()
    allowed = _SLACK + bytes_a_file * expected
    wrong = [] if count == expected else [f"{what}: {count} files, and not {expected}"]
    if peak > allowed:
        wrong.append(f"{what}: {peak / _MEGABYTE:.0f} MB is more than {allowed / _MEGABYTE:.0f} MB")
    return wrong


def _compared(target: Path, files: int) -> list[str]:
    for number in range(files):
        path = target / asset_store.key(number).partition("/")[2]
        if path.read_bytes() != asset_store.content(number):
            return [f"{path.name} has other bytes"]
    return []


def _large(job: dict[str, Any], target: Path, arguments: argparse.Namespace) -> list[str]:
    chance, wrong, kills = random.Random(arguments.seed), [], 0
    command = [sys.executable, "-c", _PROGRAM, json.dumps({**job, "target": str(target)})]
    path, began = target / "file.bin", time.monotonic()
    while True:
        limit = None if kills == arguments.kills else chance.uniform(2, 15)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                output = process.communicate(timeout=limit)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
        if process.returncode >= 0:
            break
        if path.exists():
            wrong.append(f"after kill {kills} the file has its name")
    if process.returncode:
        return [*wrong, f"the last program ended with {process.returncode}"]
    sent = int(requests.get(f"{job['store']['endpoint']}/sent", timeout=60).text)
    peak = int(output)
    sys.stdout.write(
        f"{arguments.bytes / 1e9:.1f} GB in {time.monotonic() - began:.0f} s with {kills} kills: {sent / 1e9:.2f} GB "
        f"sent, {peak / _MEGABYTE:.0f} MB above an idle process\n"
    )
    if peak > _LARGE_SLACK:
        wrong.append(f"the large file needed {peak / _MEGABYTE:.0f} MB")
    # Each kill may lose the bytes of the requests in flight.
    if sent > arguments.bytes + (kills + 1) * 64 * 16 * 1024 * 1024:
        wrong.append(f"{sent} bytes were sent for {arguments.bytes}")
    return wrong + _compared_blocks(path, arguments.bytes)


def _compared_blocks(path: Path, size: int) -> list[str]:
    if path.stat().st_size != size:
        return [f"the large file has {path.stat().st_size} bytes, and not {size}"]
    with path.open("rb") as stream:
        number = 0
        while data := stream.read(asset_store.BLOCK):
            if data != asset_store.block(number)[: len(data)]:
                return [f"the large file has other bytes in block {number}"]
            number += 1
    left = sorted(entry.name for entry in (path.parent / ".delta-sharing").iterdir())
    return [] if left == ["files.jsonl", "lock"] else [f"what stays beside the large file: {left}"]
