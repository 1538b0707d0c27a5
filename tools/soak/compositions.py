"""Options of a read, outputs and queries of engines, composed at random and compared with plain Python."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from tests.compositions.run import SUBJECTS, served

HELP = "compose options, outputs and queries of engines, and compare the rows with plain Python"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=int, default=5000, help="cases of each table (default 5000)")
    parser.add_argument("--case", type=int, help="run only the case with this number")
    parser.add_argument("--subject", choices=SUBJECTS, help="run only the cases of this table")


def run(arguments: argparse.Namespace) -> int:
    numbers = range(arguments.cases) if arguments.case is None else [arguments.case]
    failures = 0
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as subject:
        for name in SUBJECTS if arguments.subject is None else [arguments.subject]:
            uses: Counter[str] = Counter()
            for failure in subject(name).run(numbers, arguments.seed, uses):
                failures += 1
                print(failure, flush=True)
            shown = ", ".join(f"{use} {count}" for use, count in sorted(uses.items()))
            print(f"{name}: {len(numbers)} cases; {shown}", flush=True)
    print(f"{failures} failures")
    return 1 if failures else 0
