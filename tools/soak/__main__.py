"""The command line of the soak tests; each prints its counts and exits with 1 after a failure."""

from __future__ import annotations

import argparse
import signal
import sys
from types import ModuleType

from tools.soak import (
    assets,
    compositions,
    dialect,
    early_ends,
    engines,
    faults,
    follow,
    listing,
    positions,
    spark_cluster,
    spark_kills,
    spark_large,
    spark_merge,
    streams,
    urls,
)

# Each soak test is a module with ``HELP``, ``add_arguments(parser)`` and ``run(arguments) -> exit code``.
SOAKS: dict[str, ModuleType] = {
    "assets": assets,
    "compositions": compositions,
    "dialect": dialect,
    "early-ends": early_ends,
    "engines": engines,
    "faults": faults,
    "follow": follow,
    "listing": listing,
    "positions": positions,
    "spark-cluster": spark_cluster,
    "spark-kills": spark_kills,
    "spark-large": spark_large,
    "spark-merge": spark_merge,
    "streams": streams,
    "urls": urls,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    commands = parser.add_subparsers(dest="soak", required=True)
    for name, soak in SOAKS.items():
        command = commands.add_parser(name, help=soak.HELP, description=soak.__doc__)
        command.add_argument("--seed", type=int, default=1, help="seed of the random generator (default 1)")
        soak.add_arguments(command)
    arguments = parser.parse_args()
    # A shell starts background jobs with SIGINT ignored; without this, no read could be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code: int = SOAKS[arguments.soak].run(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
