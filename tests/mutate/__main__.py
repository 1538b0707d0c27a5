"""Change the code in one place at a time and say which changes no test notices.

    python -m tests.mutate predicates           # a room, or several; without names all of them
    python -m tests.mutate delta --only paths   # mutants whose key holds a text
    python -m tests.mutate delta --record       # write the list of survivors anew, with the reasons that it has

``tests/mutate/survivors.txt`` lists the known survivors, with the reason why each is no mistake of the tests, and those
that nobody has looked at. A survivor that is not in it fails the command, and so does a line that names none.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from tests.mutate.mutants import Mutant
from tests.mutate.run import Mutate, Outcome, run

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "delta_sharing_client"
LIST = Path(__file__).with_name("survivors.txt")
OPEN = "not looked at yet"
# The tests of these rooms are quick and meet each other's code; those of the protocol speak to a server.
PURE = tuple(f"tests/unit/{room}" for room in ("predicates", "delta", "parquet", "plan", "read"))
ROOMS = {
    "predicates": PURE,
    "delta": PURE,
    "parquet": PURE,
    "plan": (*PURE, "tests/unit/test_planning.py"),
    "read": PURE,
    "protocol": ("tests/unit/protocol",),
}


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", choices=[*ROOMS, []], metavar="ROOM", help=", ".join(ROOMS))
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants whose key holds this text")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth mutant: a sample")
    parser.add_argument("--record", action="store_true", help="write the list of survivors anew")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell of each mutant")
    chosen = parser.parse_args()
    known = dict(line.split(" # ", 1) for line in LIST.read_text().splitlines() if line) if LIST.exists() else {}
    wrong = 0
    for room in chosen.rooms or ROOMS:
        outcomes = _outcomes(room, chosen)
        if chosen.record:
            tried = {one.mutant.key for one in outcomes} if chosen.only or chosen.every > 1 else None
            known = _recorded(room, known, outcomes, tried)
        wrong += _report(room, outcomes, known, whole=not chosen.only and chosen.every == 1)
    if chosen.record:
        LIST.write_text("".join(f"{key} # {reason}\n" for key, reason in sorted(known.items())))
    return int(wrong > 0)


def _outcomes(room: str, chosen: argparse.Namespace) -> list[Outcome]:
    outcomes: list[Outcome] = []
    counted = 0

    def choose(mutant: Mutant) -> bool:
        nonlocal counted
        counted += chosen.only in mutant.key
        return chosen.only in mutant.key and counted % chosen.every == 0

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if chosen.verbose or outcome.verdict in ("survived", "uncovered"):
            spot = f"{outcome.mutant.path.relative_to(ROOT)}:{outcome.mutant.line}"
            told = f"{outcome.verdict:10} {spot}  {outcome.mutant.key.partition('::')[2]}"
            print(f"{told}  [{outcome.tests} tests, {outcome.seconds:.1f} s]", flush=True)

    code = run(list(ROOMS[room]), Mutate(PACKAGE, sorted((PACKAGE / room).rglob("*.py")), choose, tell))
    if code not in (0, 5):
        sys.exit(f"The tests of {room} cannot be run (pytest ended with {code}).")
    return outcomes


def _survivors(outcomes: list[Outcome]) -> list[str]:
    return [one.mutant.key for one in outcomes if one.verdict in ("survived", "uncovered")]


def _recorded(room: str, known: dict[str, str], outcomes: list[Outcome], tried: set[str] | None) -> dict[str, str]:
    left = {
        key: reason
        for key, reason in known.items()
        if not key.startswith(f"{room}/") or (tried is not None and key not in tried)
    }
    return left | {key: known.get(key, OPEN) for key in _survivors(outcomes)}


def _report(room: str, outcomes: list[Outcome], known: dict[str, str], *, whole: bool) -> int:
    survivors = _survivors(outcomes)
    counts = Counter(one.verdict for one in outcomes)
    equal = [key for key in survivors if known.get(key, OPEN) != OPEN]
    judged = len(outcomes) - counts["impossible"] - len(equal)
    dead = counts["killed"] + counts["hung"]
    new = [key for key in survivors if key not in known]
    gone = [key for key in known if key.startswith(f"{room}/") and key not in survivors] if whole else []
    print(
        f"{room}: {dead} of {judged} mutants are killed, {dead / max(judged, 1):.1%} ({counts['hung']} never ended); "
        f"{len(survivors) - len(equal)} survive, {counts['uncovered']} are in lines that no test reaches; "
        f"{len(equal)} more change nothing, {counts['impossible']} are no program; "
        f"{sum(one.seconds for one in outcomes):.0f} s, {time.process_time():.0f} s of them here."
    )
    for title, keys in (("Not in the list:", new), ("In the list, but no survivors:", gone)):
        if keys:
            print(title, *keys, sep="\n  ")
    return len(new) + len(gone)


if __name__ == "__main__":
    sys.exit(main())
