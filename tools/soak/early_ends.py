"""End reads early, at random moments and in every way: of few and many files, from fast and slow servers, and of long
listings.

After each read, threads, sockets, memory and temporary files must be released within a second.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import faulthandler
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.delta.schema import from_arrow_schema, schema_to_json
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.outputs.streams import end_on_interrupt
from tools.soak import listing
from tools.soak.resources import Resources, Starved, count_pools, resident_bytes, wait_until_back

HELP = "end reads early, in every way, and check that everything is released"

_HANGS_SECONDS = 60.0
# The allocators of Arrow and of the system keep some freed memory.
_RESIDENT_SLACK = 256 * 1024 * 1024
_SERVERS: dict[str, dict[str, object]] = {
    "fast": {},
    "slow": {"latency": 0.02, "bandwidth": 30_000_000},
    "stuck": {"faults": ("slow=30@data",)},
}
# The number of files, and of rows per file, of each table; the broken tables have a file that cannot be decoded.
_TABLES = {"few": (5, 60_000), "many": (60, 2_000), "few-broken": (5, 60_000), "many-broken": (60, 2_000)}


@dataclasses.dataclass(frozen=True)
class Case:
    """A read that ends early, and the random generator that chooses the moment."""

    chance: random.Random
    scan: ds.Scan
    profiles: dict[str, Path]
    seconds: float
    starved: Starved

    def moment(self) -> float:
        """Return a random delay in seconds, usually a short one."""
        return float(self.chance.random() ** 3 * 0.15)


End = Callable[[Case], float]
"""Ends a read and returns when (``time.monotonic``) it was told to end; raises ``AssertionError`` if it did not."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=2000, help="number of early ends (default 2000)")
    parser.add_argument("--seconds", type=float, default=1e9, help="seconds after which no further read begins")
    parser.add_argument(
        "--within", type=float, default=1.0, help="seconds until everything must be released (default 1)"
    )
    parser.add_argument("--verbose", action="store_true", help="print a line for each read")
    parser.add_argument("--pipes", type=int, default=100, help="number of runs of 'delta-sharing read TABLE | head -1'")


def run(arguments: argparse.Namespace) -> int:
    counts: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    slowest: dict[str, float] = collections.defaultdict(float)
    began = time.monotonic()
    count_pools()
    # Garbage collection is off, so that objects that only it would free count as leaked.
    gc.disable()
    with tempfile.TemporaryDirectory(prefix="early-ends-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        tables = _write_tables(folder / "tables", random.Random(arguments.seed))
        with ThreadPoolExecutor() as starting:
            runs = [mock_server.running(tables, process=True, **options) for options in _SERVERS.values()]
            servers = dict(zip(_SERVERS, starting.map(stack.enter_context, runs), strict=True))
        clients = {kind: ds.SharingClient(str(server.profile_path)) for kind, server in servers.items()}
        profiles = {server.endpoint.rstrip("/"): server.profile_path for server in servers.values()}
        long = stack.enter_context(listing.serving())
        clients["listing"] = ds.SharingClient(str(long))
        profiles[json.loads(long.read_text())["endpoint"]] = long
        _warm_up(clients)
        resident = 0
        starved = stack.enter_context(Starved(os.getpid()))
        for number in range(arguments.count):
            if time.monotonic() - began > arguments.seconds:
                break
            # Each case has its own seed, so that it can be repeated without the others.
            chance = random.Random(f"{arguments.seed} {number}")
            kind, end = _choose(chance)
            label = f"case {number} ({kind})"
            took, failure = _one(
                end,
                Case(chance, _scan(chance, clients, kind), profiles, arguments.within, starved),
                folder,
                label,
            )
            counts[kind] += 1
            if arguments.verbose:
                sys.stdout.write(f"{label}: {time.monotonic() - began:.2f} s, over after {took:.3f} s {failure}\n")
                sys.stdout.flush()
            slowest[kind] = max(slowest[kind], took)
            if failure:
                failures.append(failure)
            if number == min(200, arguments.count // 2):
                resident = resident_bytes()
        if (grown := resident_bytes() - resident) > _RESIDENT_SLACK:
            failures.append(f"{grown} bytes more in RAM than after the first cases")
        for number in range(arguments.pipes):
            counts["| head -1"] += 1
            took, failure = _pipe(servers["fast"].profile_path, ("few", "many")[number % 2], arguments.within)
            slowest["| head -1"] = max(slowest["| head -1"], took)
            if failure:
                failures.append(f"pipe {number}: {failure}")
    for kind in sorted(counts):
        sys.stdout.write(f"{kind:20} {counts[kind]:5} ends, the slowest was over after {slowest[kind]:.3f} s\n")
    for failure in failures:
        sys.stdout.write(f"FAILED {failure}\n")
    total, seconds = sum(counts.values()), time.monotonic() - began
    sys.stdout.write(f"{total} early ends in {seconds:.0f} s, seed {arguments.seed}: {len(failures)} failed\n")
    return 1 if failures else 0


def _one(end: End, case: Case, folder: Path, label: str) -> tuple[float, str]:
    """Run one case; return the seconds until everything was released, and the failure if any."""
    gc.collect()
    before = Resources.now(folder)
    # If the case hangs, this prints all stacks and ends the soak test.
    faulthandler.dump_traceback_later(_HANGS_SECONDS, exit=True)
    try:
        ended = end(case)
    except (AssertionError, DeltaSharingError, OSError, subprocess.SubprocessError) as error:
        return 0.0, f"{label}: {type(error).__name__}: {error}"
    finally:
        faulthandler.cancel_dump_traceback_later()
    left = wait_until_back(before, folder, ended, case.seconds, case.starved)
    took = time.monotonic() - ended - case.starved.since(ended)
    return took, f"{label}: not released: {left}" if left else ""


def _choose(chance: random.Random) -> tuple[str, End]:
    kinds = list(_ENDS)
    kind = chance.choices(kinds, [_ENDS[kind][0] for kind in kinds])[0]
    return kind, _ENDS[kind][1]


def _scan(chance: random.Random, clients: dict[str, ds.SharingClient], kind: str) -> ds.Scan:
    # A stuck server never sends a first batch, so a read from it can only be ended from outside.
    from_outside = kind in ("interrupt", "closed elsewhere", "interrupt of pandas")
    if kind != "error in a file" and chance.random() < 0.25:
        return _adjusted(chance, _listed(chance, clients["listing"], kind))
    server = chance.choices(list(_SERVERS), (6, 3, 1 if from_outside else 0))[0]
    table = chance.choice(("few", "many")) + ("-broken" if kind == "error in a file" else "")
    scan = (
        clients[server]
        .table(f"default.default.{table}")
        .scan(
            columns=chance.choice((None, ["id"])),
            filter=chance.choice((None, None, "id >= 1000")),
            limit=chance.randrange(1, 150_000) if kind == "limit" else None,
        )
    )
    return _adjusted(chance, scan)


def _listed(chance: random.Random, client: ds.SharingClient, kind: str) -> ds.Scan:
    """Return a read of many tiny files, or of very many files that need no request, because the listing contains their
    only selected column."""
    reads_on = kind in ("fork", "limit")
    files, columns = chance.choice(((50, None), (2_000, ["id"]), (2_000 if reads_on else 1_000_000, ["number"])))
    limit = chance.randrange(1, 500) if kind == "limit" else None
    condition = chance.choice((None, None, "id >= 5", "number >= 20"))
    return client.table(f"s.s.files-{files}").scan(columns=columns, filter=condition, limit=limit)


def _adjusted(chance: random.Random, scan: ds.Scan) -> ds.Scan:
    return dataclasses.replace(
        scan,
        options=dataclasses.replace(
            scan.options,
            batch_rows=chance.choice((1_000, 16_384, 131_072)),
            max_concurrent_requests=chance.choice((2, 8, 32)),
            max_bytes_in_flight=chance.choice((1, 8_000_000, 256_000_000)),
            progress=chance.random() < 0.05,
        ),
    )


# --- ways to end a read ---


def _take(batches: Iterator[pa.RecordBatch], most: int) -> None:
    for _, _ in zip(range(most), batches, strict=False):
        pass


def _after_batches(case: Case) -> float:
    batches = case.scan.to_batches()
    _take(batches, case.chance.randrange(1, 12))
    time.sleep(case.moment())
    ended = time.monotonic()
    batches.close()
    return ended


def _limit(case: Case) -> float:
    rows = sum(batch.num_rows for batch in case.scan.to_batches())
    assert rows <= (case.scan.request.limit or 0), rows
    return time.monotonic()


def _error_in_a_file(case: Case) -> float:
    try:
        for _ in case.scan.to_batches():
            pass
    except DeltaSharingError as error:
        ended = time.monotonic()
        if isinstance(error, UsageError):
            raise AssertionError(str(error)) from None
        return ended
    raise AssertionError("a broken file was read")


class _ConsumerError(Exception):
    pass


def _error_in_the_consumer(case: Case) -> float:
    stop = case.chance.randrange(1, 10)

    def consume() -> None:
        for number, _ in enumerate(case.scan.to_batches()):
            if number >= stop:
                raise _ConsumerError
        raise _ConsumerError

    try:
        consume()
    except _ConsumerError as error:
        # The error's traceback refers to the frame of the consumer, and the frame to the iterator, so the error is
        # deleted.
        del error
    return time.monotonic()


def _interrupt(case: Case) -> float:
    return _interrupted(case, lambda: collections.deque(case.scan.to_batches(), maxlen=1))


def _interrupt_of_pandas(case: Case) -> float:
    return _interrupted(case, case.scan.to_pandas)


def _interrupted(case: Case, read: Callable[[], object]) -> float:
    sent: list[float] = []
    main, moment = threading.get_ident(), case.moment()

    def interrupt() -> None:
        sent.append(time.monotonic())
        signal.pthread_kill(main, signal.SIGINT)

    timer = threading.Timer(moment, interrupt)
    try:
        timer.start()
        read()
        # The read has finished before the signal; wait for the signal here, where it is caught.
        while not sent or time.monotonic() < sent[0] + case.seconds:
            time.sleep(0.01)
    except KeyboardInterrupt:
        pass
    timer.join()
    return sent[0]


def _dropped(case: Case) -> float:
    batches = case.scan.to_batches()
    _take(batches, case.chance.randrange(1, 6))
    time.sleep(case.moment())
    ended = time.monotonic()
    del batches
    return ended


def _collected(case: Case) -> float:
    batches = case.scan.to_batches()
    _take(batches, case.chance.randrange(1, 6))
    cycle: list[object] = [batches]
    cycle.append(cycle)
    time.sleep(case.moment())
    results: list[float] = []
    # The time starts when the iterator is freed, because a collection also traverses all other objects of this process.
    collected = weakref.ref(batches, lambda _: results.append(time.monotonic()))
    del batches, cycle
    collector = threading.Thread(target=gc.collect)
    collector.start()
    collector.join()
    assert collected() is None
    return results[0]


def _reader_dropped(case: Case) -> float:
    reader = case.scan.to_reader()
    for _ in range(case.chance.randrange(1, 4)):
        with contextlib.suppress(StopIteration):
            reader.read_next_batch()
    time.sleep(case.moment())
    ended = time.monotonic()
    del reader
    return ended


def _closed_elsewhere(case: Case) -> float:
    batches = case.scan.to_batches()
    moment, ended = case.moment(), [0.0]

    def close() -> None:
        time.sleep(moment)
        ended[0] = time.monotonic()
        batches.close()

    closer = threading.Thread(target=close)
    closer.start()
    try:
        for _ in batches:
            pass
    except UsageError as error:
        if "it was closed" not in str(error):
            raise
    closer.join()
    return ended[0]


def _forked(case: Case) -> float:
    batches = case.scan.to_batches()
    _take(batches, case.chance.randrange(1, 6))
    time.sleep(case.moment())
    # The timer of ``_one`` runs in a thread that does not exist in the child.
    faulthandler.register(signal.SIGUSR1)
    child = os.fork()
    if not child:
        code = 1
        try:
            with contextlib.suppress(UsageError, StopIteration):
                next(batches)
                code = 2
            batches.close()
            del batches
            gc.collect()
            # A new read must work in the child.
            read = case.scan.limit(10).to_arrow().num_rows
            code = 0 if code == 1 and read <= 10 else 3
        finally:
            os._exit(code)
    code = _exit_code(child)
    assert code == 0, f"the child ended with {code}"
    for _ in batches:
        pass
    return time.monotonic()


_EXITING = """
import sys, time
import delta_sharing_client as ds
profile, table, batches, moment, end = sys.argv[1:]
rows = ds.SharingClient(profile).table(table).scan().to_batches()
for _, _ in zip(range(int(batches)), rows):
    pass
time.sleep(float(moment))
if end == "closed":
    rows.close()
print(time.monotonic())
"""


def _interpreter_exit(case: Case) -> float:
    """Exit an interpreter that holds a read. It is a new process, because in a forked child the exit would also end
    work of this process."""
    scan = case.scan
    profile = case.profiles[scan.rest.profile.endpoint]
    arguments = [str(profile), str(scan.table), str(case.chance.randrange(1, 6)), str(case.moment())]
    seconds = {}
    # An interpreter that has closed its read shows how long an exit takes on this machine.
    for end in ("closed", "open"):
        command = [sys.executable, "-c", _EXITING, *arguments, end]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
            with Starved(reader.pid) as starved:
                printed, errors = reader.communicate(timeout=_HANGS_SECONDS)
            over = time.monotonic()
        if reader.returncode or errors:
            raise AssertionError(f"the interpreter ended with {reader.returncode}: {errors}")
        seconds[end] = over - float(printed) - starved.since(float(printed))
    took = max(0.0, seconds["open"] - seconds["closed"])
    if took > case.seconds:
        raise AssertionError(f"the interpreter took {took:.3f} s longer to end than one without a read")
    return over - took


def _exit_code(child: int) -> int:
    deadline = time.monotonic() + _HANGS_SECONDS / 2
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            # The process prints its stacks on this signal.
            os.kill(child, signal.SIGUSR1)
            time.sleep(2)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("the process hangs")
        time.sleep(0.001)
    return os.waitstatus_to_exitcode(done[1])


# The ways to end a read, each with its weight in the random choice.
_ENDS: dict[str, tuple[int, End]] = {
    "after batches": (20, _after_batches),
    "limit": (10, _limit),
    "error in a file": (10, _error_in_a_file),
    "error in the consumer": (10, _error_in_the_consumer),
    "interrupt": (12, _interrupt),
    "interrupt of pandas": (5, _interrupt_of_pandas),
    "dropped": (8, _dropped),
    "garbage collected": (6, _collected),
    "reader dropped": (4, _reader_dropped),
    "closed elsewhere": (12, _closed_elsewhere),
    "fork": (4, _forked),
    "interpreter exit": (2, _interpreter_exit),
}


def _pipe(profile: Path, table: str, seconds: float) -> tuple[float, str]:
    """Run ``delta-sharing read TABLE | head -1``; return how many seconds the reader ran after ``head`` had ended."""
    command = [sys.executable, "-m", "delta_sharing_client.cli", "read", f"default.default.{table}", "-p", str(profile)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader,
        Starved(reader.pid) as starved,
    ):
        head = subprocess.run(["head", "-1"], stdin=reader.stdout, capture_output=True, timeout=60, check=False)
        ended = time.monotonic()
        assert reader.stdout is not None
        reader.stdout.close()
        try:
            code = reader.wait(30)
        except subprocess.TimeoutExpired:
            reader.kill()
            return 30.0, "the reader hangs"
        took = time.monotonic() - ended - starved.since(ended)
        assert reader.stderr is not None
        errors = reader.stderr.read()
    if (code, head.stdout, errors) != (141, b'"id","text"\n', b""):
        return took, f"exit code {code}, printed {head.stdout!r}, said {errors!r}"
    return took, "" if took < seconds else f"the reader took {took:.3f} s to end"


# --- tables ---


def _write_tables(folder: Path, chance: random.Random) -> Path:
    values = np.random.default_rng(0)
    schema = schema_to_json(from_arrow_schema(pa.schema([("id", pa.int64()), ("text", pa.string())])))
    for name, (files, rows) in _TABLES.items():
        path = folder / name
        log = path / "_delta_log"
        log.mkdir(parents=True)
        metadata = {"id": str(uuid.UUID(int=len(name))), "format": {"provider": "parquet", "options": {}}}
        metadata |= {"schemaString": schema, "partitionColumns": [], "configuration": {}}
        actions: list[dict[str, object]] = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}]
        actions.append({"metaData": metadata})
        text = pa.array(values.integers(0, 1 << 60, rows)).cast(pa.string())
        for number in range(files):
            data = pa.table({"id": np.arange(number * rows, (number + 1) * rows), "text": text})
            file = path / f"part-{number:05}.parquet"
            pq.write_table(data, file, compression="none", use_dictionary=False, row_group_size=20_000)
            add = {"path": file.name, "size": file.stat().st_size, "partitionValues": {}}
            actions.append({"add": add | {"modificationTime": 0, "dataChange": True}})
        if name.endswith("broken"):
            victim = path / f"part-{chance.randrange(files):05}.parquet"
            victim.write_bytes(bytes(victim.stat().st_size))
        (log / f"{0:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    return folder


def _warm_up(clients: dict[str, ds.SharingClient]) -> None:
    """Create what normally remains after a read: Arrow's threads, imports, REST connections, Ctrl-C handling for
    engines."""
    end_on_interrupt()
    for client in clients.values():
        client.list_shares()
    for table in ("few", "many"):
        clients["fast"].table(f"default.default.{table}").scan().to_pandas()
