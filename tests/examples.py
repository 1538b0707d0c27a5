"""The Python examples of README and docs, each as it stands."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclasses.dataclass(frozen=True)
class Example:
    """A block of code; ``kind`` is what it runs with: ``here``, ``spark``, or another package that its title names."""

    page: str
    number: int
    kind: str
    source: str

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"

    def run(self, **names: Any) -> dict[str, Any]:
        """Run it alone, where it finds nothing but ``names``, and return what it has defined."""
        with mock.patch.dict(os.environ):  # what it sets there is its own
            exec(compile(self.source, str(self), "exec"), names)
        return names


def examples(kind: str | None = None) -> list[Example]:
    """The examples of one kind, or all of them."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```python([^\n]*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for number, (marks, source) in enumerate(blocks, start=1):
            title = re.findall(r'title="([^"]*)"', marks)
            with_spark = "SparkSession" in source or re.search(r"\bspark\.read", source)
            mine = "spark" if with_spark else "here"
            found.append(Example(page.name, number, mine if title in ([], ["here"]) else title[0], source))
    return [example for example in found if kind in (None, example.kind)]
