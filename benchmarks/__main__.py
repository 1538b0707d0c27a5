"""``python -m benchmarks [--case NAME ...] [--repeats N] [--json FILE] [--save]``."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Annotated, Optional

import typer
from rich.console import Console

from benchmarks import goals, measure, results
from benchmarks.cases import CASES


def main(
    case: Annotated[Optional[list[str]], typer.Option(help="A case to run; by default all cases.")] = None,
    repeats: Annotated[Optional[int], typer.Option(help="Maximum number of repeats per contender.")] = None,
    json_file: Annotated[Optional[pathlib.Path], typer.Option("--json", help="Write the numbers to this file.")] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Store the numbers in benchmarks/results.json, RESULTS.md and results.svg.")
    ] = False,
) -> None:
    """Compare this client with other readers and physical limits, all in one run."""
    names = case or list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise typer.BadParameter(f"there is no case {', '.join(unknown)}; the cases are {', '.join(CASES)}")
    console = Console(width=140)
    items = []
    for name in names:
        console.print(f"[bold]{name}[/]: {CASES[name].goal}")
        try:
            chosen = CASES[name]
            most = chosen.repeats if repeats is None else min(repeats, chosen.repeats)
            result = measure.run(dataclasses.replace(chosen, repeats=most))
        except RuntimeError as error:
            console.print(f"Error: {error}", markup=False, soft_wrap=True)
            raise typer.Exit(1) from None
        console.print(results.table(result))
        for line in (*goals.verdicts(result), *results.shares(result)):
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        items.append(result)
        if save:
            results.save([result])
    facts = [results.facts(result) for result in items]
    console.print(results.overview(facts))
    if json_file is not None:
        json_file.write_text(json.dumps({"machine": results.machine(), "results": facts}, indent=2), "utf-8")


if __name__ == "__main__":
    typer.run(main)
