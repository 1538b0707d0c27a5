"""Measures the reads after the first: each contender is one long-running process, and the order is random.

    python -m benchmarks.turns [--repeats N] [--line LINE] [--tables LIST] [--jobs LIST] [--before CHECKOUT] [--save]

The cases of ``python -m benchmarks`` measure first reads, each in a new process. Here, everything is imported before
the clock starts. The jobs and their contenders are in ``benchmarks/jobs.py``; ``before`` is this client from a
different checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import data, jobs, tpch
from benchmarks.results import save_turns

# The number of files, and of rows per file.
RANDOM_TABLES = {"16x12MB": (16, 100_000), "64x1.2MB": (64, 10_000), "400x250kB": (400, 2_000)}
# The number of columns, of row groups, and of rows per row group.
GROUPED_TABLES = {"1000-row-groups": (11, 1_000, 1_000), "1000-columns": (1_000, 200, 100)}
REAL_TABLES = {
    "lineitem": tpch.line_items,
    "lineitem-plain": tpch.plain_line_items,
    "orders": tpch.orders,
    "events": tpch.events,
    "plan-100k": lambda: data.listed_table("plan-100k", 100_000),
    "changes": lambda: data.history_table("changes", versions=1_000, rows=200),
}
CHECKED = "-checked"
"""The suffix of random and grouped tables whose pages have checksums."""
_GBIT = 125_000_000
LINES: dict[str, dict[str, Any]] = {
    "loopback": {},
    "tls": {"tls": True},
    **{f"{each}ms": {"latency": each / 1000} for each in (5, 20, 50, 200)},
    **{f"{each}gbit": {"bandwidth": each * _GBIT} for each in (1, 10)},
}
_ROOT = Path(__file__).parents[1]


def measure(line: str, tables: list[str], names: list[str], repeats: int, before: Path | None) -> list[dict[str, Any]]:
    """Return and print, for each table and job, the contenders' median seconds and processor seconds, and the median
    ratios of the rounds."""
    from mock_server import running

    places = {name: _place(name) for name in tables}
    served = {f"s.s.t{place}": places[name] for place, name in enumerate(tables)}
    results = []
    with running(tables=served, **LINES[line]) as server:
        environment = dict(os.environ)
        if line == "tls":
            environment |= {"REQUESTS_CA_BUNDLE": str(server.ca_path), "SSL_CERT_FILE": str(server.ca_path)}
        for table, name in zip(served, tables, strict=True):
            for job in names:
                if not jobs.fits(job, name):
                    continue
                question = {"profile": dict(server.profile), "table": table, "folder": str(places[name])}
                results.append(_turns(line, name, job, question, repeats, before, environment))
    return results


def _turns(
    line: str,
    table: str,
    job: str,
    question: dict[str, Any],
    repeats: int,
    before: Path | None,
    environment: dict[str, str],
) -> dict[str, Any]:
    contenders = [*jobs.contenders(job), *(["before"] if before else [])]
    workers = {name: _worker(name, job, before, environment) for name in contenders}
    return take_turns(workers, question, repeats, (line, table, job))


def take_turns(
    workers: dict[str, Any], question: dict[str, Any], repeats: int, about: tuple[str, str, str]
) -> dict[str, Any]:
    """Measure each contender in every round, in random order; return and print the medians and ratios to "ours".

    ``about`` names the connection, the table and the job. A worker writes one line of JSON for each line that it reads.
    """
    results: dict[str, list[dict[str, Any]]] = {contender: [] for contender in workers}
    for turn in range(repeats + 1):
        for contender in random.sample(list(workers), len(workers)):
            answer = _ask(workers[contender], question)
            if turn:  # the first round is a warm-up
                results[contender].append(answer)
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    return _report(*about, results)


def _place(name: str) -> Path:
    if name in REAL_TABLES:
        return REAL_TABLES[name]() / "bench" / "default" / name
    plain, is_checked = name.removesuffix(CHECKED), name.endswith(CHECKED)
    table = f"turns-{name.replace('.', '-')}"
    if plain in GROUPED_TABLES:
        root = data.grouped_table(table, *GROUPED_TABLES[plain], checksums=is_checked)
    else:
        root = data.wide_table(table, *RANDOM_TABLES[plain], checksums=is_checked)
    return root / "bench" / "default" / table


def _worker(contender: str, job: str, before: Path | None, environment: dict[str, str]) -> Any:
    home, name = (before or _ROOT, "ours") if contender == "before" else (_ROOT, contender)
    python = sys.executable
    if contender == "incumbent":
        from benchmarks.measure import incumbent_python

        python = incumbent_python()
    command = [python, str(_ROOT / "benchmarks" / "jobs.py"), name, job]
    own = {**environment, "PYTHONPATH": str(home)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own, cwd=home)


def _ask(worker: Any, question: dict[str, Any]) -> dict[str, Any]:
    worker.stdin.write(json.dumps(question) + "\n")
    worker.stdin.flush()
    answer: dict[str, Any] = json.loads(worker.stdout.readline())
    return answer


def _report(line: str, table: str, job: str, results_of: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    results = {json.dumps(answer["result"]) for answers in results_of.values() for answer in answers}
    assert len(results) == 1, f"the contenders disagree about {job} of {table}: {results}"
    medians = {
        contender: {kind: statistics.median(answer[kind] for answer in answers) for kind in ("seconds", "processor")}
        for contender, answers in results_of.items()
    }
    ratios = {
        contender: {kind: _ratio(results_of, contender, kind) for kind in ("seconds", "processor")}
        for contender in results_of
        if contender != "ours"
    }
    sys.stdout.write(f"{line} {table} {job}: ours {_shown(medians['ours'])}")
    for contender, ratio in ratios.items():
        times = f"{ratio['seconds']:.2f} x ({ratio['processor']:.2f})"
        sys.stdout.write(f"; {contender} {_shown(medians[contender])}, ours takes {times}")
    sys.stdout.write("\n")
    sys.stdout.flush()
    return {"line": line, "table": table, "job": job, "medians": medians, "ratios": ratios}


def _shown(median: dict[str, float]) -> str:
    return f"{median['seconds']:.3f} s ({median['processor']:.2f})"


def _ratio(results_of: dict[str, list[dict[str, Any]]], other: str, kind: str) -> float:
    """Return the median of the ratios within each round, because the speed of the machine changes between rounds."""
    return statistics.median(
        mine[kind] / max(theirs[kind], 1e-6) for mine, theirs in zip(results_of["ours"], results_of[other], strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__)
    random_tables = [*RANDOM_TABLES, *GROUPED_TABLES]
    names = [*REAL_TABLES, *random_tables, *(name + CHECKED for name in random_tables)]
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--line", choices=LINES, action="append")
    parser.add_argument("--tables", default="lineitem", help=f"of {', '.join(names)}")
    parser.add_argument("--jobs", default=",".join(jobs.JOBS), help="of " + ", ".join(jobs.JOBS))
    parser.add_argument("--before", type=Path, help="a checkout of this project to compare with")
    parser.add_argument("--save", action="store_true", help="store the figures in turns.json and RESULTS.md")
    given = parser.parse_args()
    results = []
    for line in given.line or ["loopback", "20ms", "50ms"]:
        results += measure(line, given.tables.split(","), given.jobs.split(","), given.repeats, given.before)
        if given.save:
            save_turns(results)


if __name__ == "__main__":
    main()
