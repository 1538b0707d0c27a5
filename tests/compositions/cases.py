"""Cases at random, and their results in plain Python."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.compositions.conditions import Condition, Owner, Row, some_condition
from tests.compositions.tables import Model, Rows

FEED = ("_change_type", "_commit_version", "_commit_timestamp")


# === The options of a read ===


@dataclass(frozen=True)
class Asked:
    """The arguments of ``scan()``, or of ``changes()`` if there is a ``start``; ``second`` is given to ``where()``."""

    columns: tuple[str, ...] | None = None
    condition: Condition | None = None
    second: Condition | None = None
    limit: int | None = None
    version: int | None = None
    row_lineage: bool = False
    batch_rows: int | None = None
    start: int | None = None
    end: int | None = None

    def names(self, model: Model) -> tuple[str, ...]:
        """Return the columns of the result. Those of row lineage are added unless one of them is selected."""
        if self.start is not None:
            return self.columns or (*model.columns, *FEED)
        added = model.lineage if self.row_lineage else ()
        chosen = self.columns or tuple(model.columns)
        return chosen if set(added) & set(chosen) else (*chosen, *added)

    def rows(self, rows: Rows, model: Model) -> Rows:
        """Return the result for ``rows``, which are in the order of the read."""
        conditions = [one for one in (self.condition, self.second) if one is not None]
        kept = [row for row in rows if all(one.keeps(row) for one in conditions)]
        kept = kept if self.limit is None else kept[: self.limit]
        return [project(row, self.names(model)) for row in kept]


def project(row: Row, columns: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a row, in this order; a path selects one field of a struct."""
    found: dict[str, Any] = {}
    for name in columns:
        column, _, inner = name.partition(".")
        value = row[column]
        found[column] = value if not inner or value is None else {inner: value[inner]}
    return found


# === What is stacked on it ===


@dataclass(frozen=True)
class Step:
    """``filter`` with a condition, ``select`` of columns, or ``head`` with a number of rows."""

    kind: str
    condition: Condition | None = None
    columns: tuple[str, ...] = ()
    rows: int = 0

    def apply(self, rows: Rows, owner: Owner) -> Rows:
        if self.condition is not None:
            return [row for row in rows if self.condition.keeps(row, owner)]
        return rows[: self.rows] if self.kind == "head" else [project(row, self.columns) for row in rows]


@dataclass(frozen=True)
class Case:
    """A read, its output, the steps that are stacked on it, and how the query ends.

    ``end`` is ``rows``, ``count``, ``sums``, ``groups``, ``top``, ``keys`` (a join with a few ids) or ``self`` (a join
    of the query with the read). ``settings`` are names of ``decoders``.
    """

    number: int
    table: str
    asked: Asked
    output: str
    steps: tuple[Step, ...]
    end: str
    settings: tuple[str, ...]
    is_twice: bool

    @property
    def owner(self) -> Owner:
        """Whose semantics the conditions of the steps have."""
        owners: dict[str, Owner] = {"polars-lazy": "polars", "dataset": "arrow", "duckdb": "duckdb", "spark": "spark"}
        return owners.get(self.output, "scan")

    def __str__(self) -> str:
        lines = [
            f"case {self.number} of {self.table}, by {self.output}, settings: {', '.join(self.settings) or 'none'}"
        ]
        for field in dataclasses.fields(Asked):
            value = getattr(self.asked, field.name)
            if value is not None and value is not False:
                shown = value.sql("scan") if isinstance(value, Condition) else value
                lines.append(f"  {field.name}: {shown}")
        for step in self.steps:
            shown = step.condition.sql("scan") if step.condition is not None else step.columns or step.rows
            lines.append(f"  then {step.kind}: {shown}")
        return "\n".join([*lines, f"  end: {self.end}{', twice' if self.is_twice else ''}"])


KEYS = (1, 8, 33, 41, 47, 62, 96, 97, 5000)
TOP = 5


def expected(case: Case, rows: Rows, model: Model) -> Any:
    """Return the result of ``case``; ``rows`` are all rows of the version or the feed, in the order of the read."""
    read = found = case.asked.rows(rows, model)
    for step in case.steps:
        found = step.apply(found, case.owner)
    if case.end == "rows":
        return [normal(row) for row in found]
    if case.end == "count":
        return len(found)
    ids = [row["id"] for row in found]
    if case.end == "sums":
        return len(ids), sum(ids) if ids else None, min(ids, default=None)
    if case.end == "groups":
        return sorted(Counter(one % 4 for one in ids).items())
    if case.end == "top":
        return sorted(ids, reverse=True)[:TOP]
    others = KEYS if case.end == "keys" else [row["id"] for row in read]
    return Counter(one for one in ids for other in others if other == one)


def normal(value: Any) -> Any:
    """Return a value in a form that compares equal for all outputs."""
    if isinstance(value, Mapping):
        return tuple((name, normal(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(normal, value))
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime()
    return "NaN" if isinstance(value, float) and value != value else value


# === At random ===

EAGER = (
    "arrow", "reader", "batches", "pandas", "pandas-arrow", "polars", "partitions", "async", "capsule", "count",
    "parquet", "arrow-file", "jsonl", "csv",
)  # fmt: skip
LAZY = ("polars-lazy", "dataset", "duckdb", "spark")
SETTINGS = ("dictionaries", "windows", "no streaming", "one by one")
SIZES = ("eager", "late", "gentle", *(None for _ in range(5)))


class Generator:
    """Creates the cases of a table: the same for the same ``seed``."""

    def __init__(self, model: Model, seed: int, *, changes: bool) -> None:
        self._model = model
        self._seed = seed
        self._changes = changes

    def case(self, number: int) -> Case:
        chance = random.Random(f"{self._model.name} {self._changes} {self._seed} {number}")
        asked = self._asked(chance)
        output = chance.choice(LAZY) if chance.random() < 0.7 else chance.choice(EAGER)
        steps, end = self._stack(chance, asked, output)
        settings = [one for one in SETTINGS if chance.random() < 0.25]
        if (size := chance.choice(SIZES)) is not None:
            settings.append(size)
        return Case(number, self._model.name, asked, output, steps, end, tuple(settings), chance.random() < 0.1)

    def _constants(self, chance: random.Random, column: str) -> Any:
        if column in self._model.values:
            return chance.choice(self._model.values[column])
        if column == "_change_type":
            return chance.choice(["insert", "delete", "update_preimage", "update_postimage", "other"])
        return chance.choice([0, 1, 2, 3, 5, 47, 120, 160]) if column == "_row_id" else chance.randint(0, 6)

    def _condition(self, chance: random.Random, columns: Sequence[str], *, inverts: bool = True) -> Condition:
        return some_condition(chance, columns, lambda column: self._constants(chance, column), inverts=inverts)

    def _asked(self, chance: random.Random) -> Asked:
        options: dict[str, Any] = {}
        added: tuple[str, ...] = ()
        if self._changes:
            last = max(self._model.snapshots)
            options["start"] = chance.choice([0, 0, 1, 2, 3, last])
            options["end"] = chance.choice([None, None, chance.randint(options["start"], last)])
            added = FEED
        else:
            options["version"] = chance.choice([None, None, *self._model.snapshots])
            options["row_lineage"] = chance.random() < 0.3
            added = self._model.lineage if options["row_lineage"] else ()
        names = [*self._model.columns, *added]
        if chance.random() < 0.7:
            chosen = chance.sample(names, chance.randint(1, 5))
            chosen = [one if one != "s" or chance.random() < 0.5 else chance.choice(["s.a", "s.b"]) for one in chosen]
            options["columns"] = tuple(chosen if "id" in chosen or chance.random() < 0.2 else ["id", *chosen])
        testable = [*names, "s.a"]
        if chance.random() < 0.65:
            options["condition"] = self._condition(chance, testable)
            if chance.random() < 0.15:
                options["second"] = self._condition(chance, testable)
        if chance.random() < 0.3:
            options["limit"] = chance.choice([0, 1, 3, 10, 40, 100, 1000])
        if chance.random() < 0.4:
            options["batch_rows"] = chance.choice([1, 7, 7, 7, 20])
        return Asked(**options)

    def _stack(self, chance: random.Random, asked: Asked, output: str) -> tuple[tuple[Step, ...], str]:
        if output in EAGER:
            return (), "count" if output == "count" else "rows"
        visible = list(asked.names(self._model))
        whole = {"s"} if {"s", "s.a"} & set(visible) else set()
        steps: list[Step] = []
        for _ in range(chance.choice([0, 1, 1, 1, 2, 2, 3])):
            steps.append(step := self._step(chance, visible, whole, output))
            visible = list(step.columns) or visible
            if step.kind != "filter" and output in ("dataset", "spark"):
                break  # these engines have no query of a query
        ends = ["rows", "rows", "count"]
        if "id" in visible and output in ("polars-lazy", "duckdb"):
            ends += ["sums", "groups", "top", "keys", "self"]
        return tuple(steps), chance.choice(ends)

    def _step(self, chance: random.Random, visible: Sequence[str], whole: set[str], output: str) -> Step:
        testable = [*visible, *(["s.a"] if "s" in visible and "s.a" not in visible else [])]
        # If only another field of the struct is selected, this field is not visible.
        unseen = {"s", "s.b", "l", "_commit_timestamp"} | ({"s.a"} if "s" not in whole else set())
        testable = [one for one in testable if one not in unseen]
        kind = chance.choice(["filter", "filter", "filter", "select", "head"])
        if kind == "filter" and testable:
            return Step(kind, self._condition(chance, testable, inverts=output != "spark"))
        if kind == "head":
            return Step(kind, rows=chance.choice([0, 1, 5, 30, 150]))
        tops = list(dict.fromkeys(one.split(".")[0] for one in visible))
        chosen = chance.sample(tops, chance.randint(1, len(tops)))
        return Step("select", columns=tuple(chosen))
