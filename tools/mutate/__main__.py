"""Change the code in one place at a time and list the changes that no test notices.

    python -m tools.mutate                     # every mutant of every room: hours
    python -m tools.mutate delta --sample 150  # 150 mutants of one room, drawn with --seed
    python -m tools.mutate delta --only paths  # mutants whose key contains this text

``tools/mutate/survivors.txt`` lists the survivors that do not change behaviour, each with a reason. Any other
survivor fails the command, and so does a listed mutant that is killed or no longer exists: the list can only shrink.
"""

from __future__ import annotations

import argparse
import ast
import math
import random
import sys
import time
from collections import Counter
from pathlib import Path

from tools.mutate.copies import ROOT, StartedTests
from tools.mutate.mutants import Mutant, mutants
from tools.mutate.run import Mutate, Outcome, name_of, run

PACKAGE = ROOT / "delta_sharing_client"
LIST = Path(__file__).with_name("survivors.txt")
# The rooms (docs/architecture.md) with their modules; an empty tuple stands for the whole directory or module.
ROOMS: dict[str, tuple[str, ...]] = {
    "predicates": (),
    "delta": (),
    "parquet": (),
    "plan": (),
    "http": (),
    "protocol": (),
    "decode": ("align.py", "bounds.py", "decoder.py", "layout.py", "page_choice.py", "vectors.py"),
    "sources": (),
    "replica.py": (),
    "outputs": (),
    "storage": (),
    "follow": (),
    "fetch": (),
    "run": (),
    "cli": (),
    "mock_server": (),
    "spark": (),
    "assets": (),
    "browse": (),
    "iceberg": (),
    "mcp": (),
}
# The modules beside a room's directory that belong to the room.
BESIDE = {"assets": ("local_folder.py", "part_file.py", "sharing_filesystem.py")}
PROGRAMS = ("__main__.py", "command.py")
_ICEBERG = ("_credentials", "_equality", "_lineage", "_projection", "_shared", "_types")
# Only tests that serve tables reach these rooms, so each room has its own list of tests.
SERVED = {
    "sources": (
        "tests/unit/sources",
        *(f"tests/unit/protocol/test_{name}.py" for name in ("views", "windows")),
        *(
            f"tests/integration/test_{name}.py"
            for name in ("directory_access", "async_queries", "endless_servers", "iceberg", "query_ids")
        ),
    ),
    "replica.py": (
        "tests/unit/test_replica.py",
        "tests/integration/test_replica.py",
        "tests/unit/run/test_progress.py",
    ),
    "outputs": (
        "tests/unit/outputs",
        "tests/unit/test_scans.py",
        *(f"tests/integration/test_{name}.py" for name in ("dataset", "push_down", "variant_outputs")),
    ),
    "storage": (
        "tests/unit/storage",
        *(f"tests/integration/test_{name}.py" for name in ("directory_access", "home_directory")),
    ),
    "follow": (
        "tests/unit/follow",
        "tests/unit/cli/test_following.py",
        *(f"tests/spark/test_{name}.py" for name in ("reader", "source")),
    ),
    "fetch": ("tests/unit/fetch", "tests/unit/run", "tests/integration/test_downloads.py"),
    "run": (
        "tests/unit/run",
        "tests/unit/test_scans.py",
        *(f"tests/integration/test_{name}.py" for name in ("asynchronous", "dataset", "query_ids")),
    ),
    "cli": ("tests/unit/cli", *(f"tests/integration/test_{name}.py" for name in ("cli", "cli_files", "first_hour"))),
    "assets": (
        "tests/unit/assets",
        *(f"tests/unit/test_{name}.py" for name in ("local_folder", "part_file")),
        *(
            f"tests/integration/test_{name}.py"
            for name in (
                "asset_files",
                "consumers",
                "download_options",
                "downloads",
                "filesystems",
                "models_and_skills",
            )
        ),
    ),
    "browse": ("tests/unit/browse", "tests/integration/test_browse.py"),
    "iceberg": (
        "tests/unit/iceberg",
        *(f"tests/integration/test_iceberg{name}.py" for name in ("", *_ICEBERG)),
    ),
    "mcp": (
        "tests/unit/mcp",
        *(f"tests/integration/test_mcp{name}.py" for name in ("", "_dialect", "_lists", "_scope")),
    ),
    "mock_server": ("tests/unit/mock_server", "tests/unit/iceberg/test_avro.py"),
    "spark": tuple(
        f"tests/spark/test_{name}.py"
        for name in (
            *("credentials", "jar", "map_in_arrow", "options", "push_down"),
            *("pushed", "reader", "source", "to_spark", "types"),
        )
    ),
}
# The tests with a Spark session run in copies, because Spark's workers do not see a change in this process.
STARTED = tuple(
    f"tests/spark/test_{name}.py"
    for name in (
        *("batch", "catalog", "connect", "iceberg", "jar", "map_in_arrow", "odd_values", "options", "push_down"),
        *("pushed", "reader", "source", "streaming", "streaming_changes", "to_spark", "types"),
    )
)
# The tests for the other rooms; only those that reach a mutant are run. Tests that start servers or programs are left
# out, because they are too slow.
ABOVE = (
    *(f"tests/unit/{folder}" for folder in ("plan", "decode", "run", "outputs", "follow", "fetch", "storage")),
    *(f"tests/unit/{room}" for room in ROOMS if room not in SERVED),
    "tests/integration/test_names.py",
    *(f"tests/unit/test_{module}.py" for module in ("columns", "instants", "optional", "redact", "scans")),
)


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", choices=[*ROOMS, []], metavar="ROOM", help=", ".join(ROOMS))
    parser.add_argument("--only", default="", metavar="TEXT", help="only mutants whose key contains this text")
    parser.add_argument("--keys", type=Path, metavar="FILE", help="only mutants whose keys are lines of this file")
    parser.add_argument("--sample", type=int, metavar="N", help="test only N random mutants of each room")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the sample")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="the tests to run, instead of all")
    parser.add_argument("-v", "--verbose", action="store_true", help="report each mutant")
    chosen = parser.parse_args()
    known = dict(line.split(" # ", 1) for line in LIST.read_text().splitlines()) if LIST.exists() else {}
    keys = {room: _keys(room) for room in ROOMS}
    gone = [key for key in known if not any(key in mutants_ for mutants_ in keys.values())]
    rooms = {room: _drawn(keys[room], chosen) for room in chosen.rooms or ROOMS}
    outcomes = _outcomes(set().union(*rooms.values()), chosen)
    wrong = sum(
        _report(room, len(keys[room]), [outcomes[key] for key in drawn], known) for room, drawn in rooms.items()
    )
    if gone:
        print("In the list, but no mutants any more:", *gone, sep="\n  ")
    return int(wrong + len(gone) > 0)


def _files(room: str) -> list[Path]:
    place = PACKAGE / room if (PACKAGE / room).exists() else ROOT / room
    if place.is_file():
        return [place]
    # Programs are tested only in separate processes, which do not see a change.
    result = (path for path in place.rglob("*.py") if path.name not in PROGRAMS)
    own = [place / name for name in ROOMS[room]] or sorted(result)
    return [*own, *(PACKAGE / name for name in BESIDE.get(room, ()))]


def _keys(room: str) -> list[str]:
    paths = [(path, name_of(path)) for path in _files(room)]
    return [mutant.key for path, name in paths for mutant in mutants(path, name, ast.parse(path.read_text()))]


def _drawn(keys: list[str], chosen: argparse.Namespace) -> list[str]:
    listed = None if chosen.keys is None else set(chosen.keys.read_text().splitlines())
    keys = [key for key in keys if chosen.only in key and (listed is None or key in listed)]
    if chosen.sample is None or chosen.sample >= len(keys):
        return keys
    return random.Random(chosen.seed).sample(keys, chosen.sample)


def _outcomes(wanted: set[str], chosen: argparse.Namespace) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}

    def tell(outcome: Outcome) -> None:
        outcomes[outcome.mutant.key] = outcome
        if chosen.verbose or outcome.verdict in ("survived", "uncovered"):
            spot = f"{outcome.mutant.path.relative_to(ROOT)}:{outcome.mutant.line}"
            line = f"{outcome.verdict:10} {spot}  {outcome.mutant.key.partition('::')[2]}"
            untried = f", {outcome.untried} not tried" if outcome.untried else ""
            print(f"{line}  [{outcome.tests} tests{untried}, {outcome.seconds:.1f} s]", flush=True)

    def choose(mutant: Mutant) -> bool:
        return mutant.key in wanted

    files = [path for room in ROOMS for path in _files(room)]
    tests = [test for room in chosen.rooms or ROOMS for test in SERVED.get(room, ABOVE)]
    if code := run(
        chosen.tests or list(dict.fromkeys(tests)), Mutate(files, choose, tell, StartedTests(STARTED, _files("spark")))
    ):
        sys.exit(f"The tests cannot be run (pytest ended with {code}).")
    return outcomes


def _report(room: str, population: int, outcomes: list[Outcome], known: dict[str, str]) -> int:
    survivors = [one.mutant.key for one in outcomes if one.verdict in ("survived", "uncovered")]
    counts = Counter(one.verdict for one in outcomes)
    new = [key for key in survivors if key not in known]
    dead = [one.mutant.key for one in outcomes if one.mutant.key in known and one.mutant.key not in survivors]
    killed = counts["killed"] + counts["hung"]
    judged = killed + len(new)
    print(
        f"{room}: {killed} of {judged} mutants are killed, {killed / max(judged, 1):.1%}"
        f"{_confidence(killed, judged) if len(outcomes) < population else ''} ({counts['hung']} never ended); "
        f"{len(new)} survive, of which {counts['uncovered']} are in lines that no test reaches; "
        f"{sum(one.untried > 0 for one in outcomes)} have tests that were not tried; "
        f"{len(survivors) - len(new)} more do not change behaviour, {counts['impossible']} are not valid programs; "
        f"{sum(one.seconds for one in outcomes):.0f} s, {time.process_time():.0f} s of the processor here."
    )
    for title, expected in (("Not in the list:", new), ("In the list, but killed:", dead)):
        if expected:
            print(title, *expected, sep="\n  ")
    return len(new) + len(dead)


def _confidence(killed: int, judged: int) -> str:
    """Return the 95% confidence interval (Wilson) of the fraction of killed mutants in the whole room."""
    if not judged:
        return ""
    z = 1.96
    share, width = killed / judged, z * z / judged
    middle = share + width / 2
    half = z * math.sqrt(share * (1 - share) / judged + width / (4 * judged))
    return f" (of all, 95% sure: {(middle - half) / (1 + width):.1%} to {(middle + half) / (1 + width):.1%})"


if __name__ == "__main__":
    sys.exit(main())
