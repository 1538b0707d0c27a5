"""Run the Python examples of README and docs as they are."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclasses.dataclass(frozen=True)
class Example:
    """A block of code. ``kind`` is its environment: ``here``, ``spark``, or the package that its title names."""

    page: str
    number: int
    kind: str
    source: str

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"

    def run(self, **names: Any) -> dict[str, Any]:
        """Run the block with only ``names`` defined, and return the names it defines."""
        with mock.patch.dict(os.environ):  # environment variables that the example sets are removed after it
            exec(compile(self.source, str(self), "exec"), names)
        return names

    def results(self, **names: Any) -> list[Result]:
        """Run the block like ``run``; return the result of each call, and for each loop the number of its values."""
        seen = _Seen()
        tree = ast.fix_missing_locations(_Watched().visit(ast.parse(self.source)))
        with mock.patch.dict(os.environ):
            exec(compile(tree, str(self), "exec"), {**names, _Watched.NAME: seen})
        return seen.results


@dataclasses.dataclass
class Result:
    """A value in an example, and the code that created it. ``rounds`` is the number of values of a loop."""

    code: str
    value: object
    rounds: int | None = None

    @property
    def rows(self) -> int | None:
        """The number of rows of the value; ``None`` for values without rows, such as a client, a schema or the
        description of a read."""
        value: Any = self.value
        if self.rounds is not None:
            return self.rounds
        kind = f"{type(value).__module__}.{type(value).__name__}"
        if kind.startswith(("pandas.", "polars.", "pyarrow.")) and kind.endswith(("Frame", "Table", "Batch", "Series")):
            return int((value.collect() if kind.endswith("LazyFrame") else value).shape[0])
        if kind.endswith("DuckDBPyRelation"):
            return len(value.fetchall())
        if kind.endswith("replica.Replica"):
            return int(value.num_files)
        return len(value) if isinstance(value, list) else None


class _Seen:
    """Records the values of a watched example."""

    def __init__(self) -> None:
        self.results: list[Result] = []

    def value(self, value: Any, code: str) -> Any:
        self.results.append(Result(code, value))
        return value

    def loop(self, values: Iterable[Any], code: str) -> Iterator[Any]:
        self.results.append(result := Result(code, values, 0))
        for value in values:
            result.rounds = (result.rounds or 0) + 1
            yield value

    async def async_loop(self, values: Any, code: str) -> AsyncIterator[Any]:
        self.results.append(result := Result(code, values, 0))
        async for value in values:
            result.rounds = (result.rounds or 0) + 1
            yield value


class _Watched(ast.NodeTransformer):
    """Passes the results of calls and the values of loops through ``_Seen``."""

    NAME = "_seen_by_the_test"

    def _through(self, method: str, node: ast.expr) -> ast.expr:
        code = ast.Constant(ast.unparse(node))
        watcher = ast.Attribute(ast.Name(self.NAME, ast.Load()), method, ast.Load())
        self.generic_visit(node)
        return ast.copy_location(ast.Call(watcher, [node, code], []), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self._through("value", node)

    def visit_Await(self, node: ast.Await) -> ast.expr:
        return self._through("value", node)

    def visit_For(self, node: ast.For) -> ast.For:
        node.iter = self._through("loop", node.iter)
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AsyncFor:
        node.iter = self._through("async_loop", node.iter)
        node.body = [self.visit(statement) for statement in node.body]
        return node


def examples(kind: str | None = None) -> list[Example]:
    """Return the examples of one kind, or all of them."""
    results = []
    for page in PAGES:
        blocks = re.findall(r"^```python([^\n]*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for number, (marks, source) in enumerate(blocks, start=1):
            title = re.findall(r'title="([^"]*)"', marks)
            with_spark = "SparkSession" in source or re.search(r"\bspark\.read", source)
            mine = "spark" if with_spark else "here"
            results.append(Example(page.name, number, mine if title in ([], ["here"]) else title[0], source))
    return [example for example in results if kind in (None, example.kind)]
