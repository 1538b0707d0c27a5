"""Serves the tables, runs cases, and compares their results with those in plain Python."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import delta_sharing_client as ds
import mock_server
from tests.compositions import decoders
from tests.compositions.cases import Asked, Case, Generator, expected
from tests.compositions.outputs import Runner, read_of, visible
from tests.compositions.tables import Model, Rows, write_delta, write_iceberg

SUBJECTS = ("delta", "delta changes", "iceberg")
Uses = Counter[str]


class Subject:
    """A table whose scans, or whose changes, are composed."""

    def __init__(self, client: ds.SharingClient, model: Model, folder: Path, *, changes: bool) -> None:
        self._table = client.table(model.name)
        self._model = model
        self._folder = folder
        self._changes = changes
        self._ordered: dict[Asked, Rows] = {}

    def run(self, numbers: Iterable[int], seed: int, uses: Uses) -> Iterator[str]:
        """Run the cases ``numbers`` and yield a description of each one that fails."""
        generator = Generator(self._model, seed, changes=self._changes)
        with decoders.counted() as counted, contextlib.closing(Runner(self._folder)) as runner:
            for number in numbers:
                case = generator.case(number)
                uses[f"by_{case.output}".replace("-", "_")] += 1
                if (problem := self._problem(case, runner)) is not None:
                    yield f"{case}\n  {problem}\n  (python -m tools.soak compositions --seed {seed} --case {number})"
        uses.update(counted)

    def _problem(self, case: Case, runner: Runner) -> str | None:
        right = visible(case, expected(case, self._rows(case.asked), self._model))
        try:
            with decoders.applied(case.settings):
                results = runner.results(case, read_of(self._table, case.asked))
        except Exception as error:  # any error is a failure: all cases are valid
            return f"{type(error).__name__}: {error}"
        wrong = next((result for result in results if result != right), None)
        return None if wrong is None else f"expected {_short(right)}\n  found    {_short(wrong)}"

    def _rows(self, asked: Asked) -> Rows:
        """Return the rows of a version or of a feed that were written, in the order in which the whole is read."""
        whole = Asked(version=asked.version, start=asked.start, end=asked.end, row_lineage=not self._changes)
        if whole not in self._ordered:
            places: dict[Any, int] = {}
            for place, row in enumerate(read_of(self._table, whole).to_arrow().to_pylist()):
                assert places.setdefault(_key(row), place) == place, "a row was read twice"
            rows = self._written(whole)
            assert set(map(_key, rows)) == set(places)
            self._ordered[whole] = sorted(rows, key=lambda row: places[_key(row)])
        return self._ordered[whole]

    def _written(self, asked: Asked) -> Rows:
        if asked.start is None:
            version = max(self._model.snapshots) if asked.version is None else asked.version
            return self._model.snapshots[version]
        assert self._model.feed is not None
        last = max(self._model.snapshots) if asked.end is None else asked.end
        return [row for row in self._model.feed if asked.start <= row["_commit_version"] <= last]


def _key(row: Any) -> Any:
    return row["id"], row.get("_change_type"), row.get("_commit_version")


def _short(result: Any) -> str:
    text = f"{len(result)} rows: {result}" if isinstance(result, list) else str(result)
    return text[:600]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Callable[[str], Subject]]:
    """Write and serve the tables in ``folder``; yield a function that returns the subject of one of ``SUBJECTS``."""
    delta, iceberg = write_delta(folder / "delta"), write_iceberg(folder / "iceberg")
    tables = {delta.name: folder / "delta", iceberg.name: folder / "iceberg"}
    with mock_server.running(tables=tables) as server, ds.SharingClient(server.profile) as client:
        yield lambda name: Subject(
            client, iceberg if name == "iceberg" else delta, folder, changes=name.endswith("changes")
        )
