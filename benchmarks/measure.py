"""Runs a case: starts one server with the case's connection, and runs every contender in new processes, in random
order."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import venv
from collections.abc import Iterator
from typing import Any

import requests

from benchmarks import limits
from benchmarks.cases import Case

HERE = pathlib.Path(__file__).parent
INCUMBENT = "delta-sharing"
INCUMBENT_PYTHON = "DELTA_SHARING_INCUMBENT_PYTHON"
_START_SECONDS = 30
_RUN_SECONDS = 900


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """The measurements of one contender in one case: ``seconds`` of every repeat, other numbers of the last repeat.

    ``memory``: bytes above the idle process, the maximum of the repeats. ``processor``: processor seconds, the minimum
    of the repeats. ``connections``: the number of connections that the server accepted, including REST. ``refused``:
    responses with status 429. ``frame``: bytes of the result, if measured. With the profiler, ``calls`` is the number
    of Python calls, and processor seconds are given by stage.
    """

    contender: str
    seconds: list[float]
    rows: int
    requests: int
    bytes: int
    memory: int
    processor: float = 0.0
    connections: int = 0
    refused: int = 0
    frame: int = 0
    calls: int = 0
    stages: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        return max(self.seconds) - min(self.seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A case, its measurements, and the value of its reference (bytes or seconds)."""

    case: Case
    measured: list[Measured]
    reference: float | None


def run(case: Case) -> Result:
    """Measure ``case`` and return its numbers.

    Raises
    ------
    RuntimeError
        If a contender fails, or if two contenders read a different number of rows.
    """
    if any(contender.startswith("incumbent") for contender in case.contenders):
        incumbent_python()  # raises its error before the table is created
    directory = case.table()
    results: dict[str, list[dict[str, Any]]] = {contender: [] for contender in case.contenders}
    with contextlib.ExitStack() as running:
        served = (directory, running.enter_context(serve(directory, case)))
        others = {name: table() for name, table in case.baselines.items()}
        plain = dataclasses.replace(case, tls=False)
        baselines = {name: (other, running.enter_context(serve(other, plain))) for name, other in others.items()}
        for repeat in range(case.repeats):
            # The order is random, because the first reader has colder caches.
            for contender in random.sample(case.contenders, len(case.contenders)):
                if repeat and contender in case.once:
                    continue
                place, server = baselines.get(contender, served)
                server.reset()
                numbers = work(
                    {
                        "contender": contender,
                        "action": case.action,
                        "arguments": {**case.arguments, **case.special.get(contender, {})},
                        "profile": str(server.profile),
                        "table": f"bench.default.{place.name}",
                        "directory": str(place),
                    },
                    server.authority,
                )
                results[contender].append(numbers | server.stats())
    alike = [contender for contender in results if contender not in case.baselines and contender not in case.special]
    counts = {contender: results[contender][-1]["rows"] for contender in alike}
    if len(set(counts.values())) > 1:
        raise RuntimeError(f"in the case {case.name}, the contenders read different numbers of rows: {counts}")
    measured = [
        Measured(
            contender=contender,
            seconds=[run["seconds"] for run in runs],
            rows=runs[-1]["rows"],
            requests=runs[-1]["requests"],
            bytes=runs[-1]["bytes"],
            memory=max(run["peak_bytes"] - run["idle_bytes"] for run in runs),
            processor=min(run["processor"] for run in runs),
            connections=runs[-1]["connections"],
            refused=runs[-1]["refused"],
            frame=runs[-1]["frame"],
            calls=runs[-1]["calls"],
            stages=runs[-1]["stages"],
        )
        for contender, runs in results.items()
    ]
    return Result(case=case, measured=measured, reference=_reference(case, directory))


def work(job: dict[str, Any], authority: pathlib.Path | None = None) -> dict[str, Any]:
    """Run one contender in a new process that trusts ``authority``, and return what it printed."""
    trusted = {} if authority is None else dict.fromkeys(("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"), str(authority))
    python = incumbent_python() if job["contender"].startswith("incumbent") else sys.executable
    finished = subprocess.run(
        [python, str(HERE / "workers.py"), json.dumps(job)],
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
        cwd=HERE.parent,
        env={
            **os.environ,
            **trusted,
            "PYTHONPATH": "",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
    )
    if finished.returncode:
        raise RuntimeError(f"{job['contender']} failed: {finished.stderr.strip().splitlines()[-1:]}")
    return json.loads(finished.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


@functools.cache
def incumbent_python() -> str:
    """Return the interpreter of an environment with the incumbent; the first call creates the environment.

    Raises
    ------
    RuntimeError
        There is no such environment, and it cannot be created. The message says what to do.
    """
    named = os.environ.get(INCUMBENT_PYTHON)
    home = HERE / ".env"
    python = named or str(home / "bin" / "python")
    if named is None and not pathlib.Path(python).exists():
        try:
            venv.create(home, with_pip=True)
            command = [python, "-m", "pip", "install", "--quiet", INCUMBENT]
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(home, ignore_errors=True)
            reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
            raise RuntimeError(
                f"the incumbent cannot be installed into {home.name} ({' '.join(reason)}); set {INCUMBENT_PYTHON} to "
                f"the interpreter of an environment that has {INCUMBENT}"
            ) from None
    try:
        asked = subprocess.run([python, "-c", "import delta_sharing"], capture_output=True, text=True, check=False)
        result = not asked.returncode
    except OSError:
        result = False
    if not result:
        raise RuntimeError(
            f"{INCUMBENT_PYTHON} should name the interpreter of an environment that has {INCUMBENT}; {python!r} does "
            "not run or does not have it"
        )
    return python


class Server:
    """A running mock server, its profile and its counters."""

    def __init__(self, profile: pathlib.Path) -> None:
        self.profile = profile
        facts = json.loads(profile.read_text(encoding="utf-8"))
        self._stats = urllib.parse.urljoin(facts["endpoint"], "/_stats")
        authority = profile.with_suffix(".pem")
        self.authority = authority if authority.exists() else None
        self._headers = {"Authorization": f"Bearer {facts['bearerToken']}"}

    def reset(self) -> None:
        self._ask("POST")

    def stats(self) -> dict[str, int]:
        """Return the counts since the last reset: ``requests`` for data, ``bytes`` of data, ``connections``, and
        ``refused`` requests."""
        counters = self._ask("GET")
        return {
            "requests": counters["requests"].get("data", 0),
            "bytes": counters["bytes"].get("data", 0),
            "connections": counters["connections"],
            "refused": counters["statuses"].get("429", 0),
        }

    def _ask(self, method: str) -> dict[str, Any]:
        trusted = True if self.authority is None else str(self.authority)
        with requests.Session() as session:
            session.trust_env = False
            answer = session.request(method, self._stats, headers=self._headers, timeout=_START_SECONDS, verify=trusted)
        answer.raise_for_status()
        return answer.json()  # type: ignore[no-any-return]


@contextlib.contextmanager
def serve(directory: pathlib.Path, case: Case) -> Iterator[Server]:
    """Start the case's server for ``directory`` with the case's latency and bandwidth, and stop it at the end."""
    with tempfile.TemporaryDirectory() as scratch:
        profile = pathlib.Path(scratch) / "bench.share"
        arguments = ["--profile-out", str(profile)]
        if case.server == "mock_server":
            arguments += ["--tables", str(directory), "--port", "0", "--stats"]
        if case.latency:
            arguments += ["--latency", str(case.latency)]
        if case.tls:
            arguments.append("--tls")
        for fault in case.faults:
            arguments += ["--fault", fault]
        if case.bandwidth:
            arguments += ["--bandwidth", str(case.bandwidth)]
        process = subprocess.Popen(
            [sys.executable, "-m", case.server, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=HERE.parent,
        )
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not profile.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the server did not start")
                time.sleep(0.05)
            yield Server(profile)
        finally:
            process.terminate()
            process.wait()


def _reference(case: Case, directory: pathlib.Path) -> float | None:
    if case.reference == "chunks":
        return limits.chunk_bytes(directory, list(case.arguments["columns"]))  # type: ignore[call-overload]
    if case.reference == "table":
        return limits.table_bytes(directory)
    if case.reference == "line":
        assert case.bandwidth is not None
        return limits.table_bytes(directory) / case.bandwidth
    return None
