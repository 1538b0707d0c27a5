"""The examples in docstrings of public names run, and the most used names have an example."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client.scans import ReadOutputs

# Each output of a read must have an example; the Spark tests run the example of ``to_spark``.
OUTPUTS = {f"Scan.{name}" for name in dir(ds.Scan) if not name.startswith("_") and hasattr(ReadOutputs, name)}
MOST_USED = {
    "SharedTable",
    "SharedTable.changes",
    "SharedTable.head",
    "SharedTable.history",
    "SharedTable.scan",
    "SharingClient",
    "SharingClient.table",
    *{
        name
        for name in OUTPUTS - {f"Scan.{field.name}" for field in dataclasses.fields(ds.Scan)}
        if "_async" not in name
    },
    "attach",
    "col",
    "get_table_version",
    "load_as_arrow",
    "load_as_duckdb",
    "load_as_pandas",
    "load_as_polars",
    "load_table_changes_as_pandas",
    "scan_polars",
}


def _examples() -> dict[str, doctest.DocTest]:
    results = {}
    for name in ds.__all__:
        value = getattr(ds, name)
        members = {name: value}
        if inspect.isclass(value):
            members |= {
                f"{name}.{member}": getattr(value, member) for member in dir(value) if not member.startswith("__")
            }
        for path, member in members.items():
            text = inspect.getdoc(member) if callable(member) or isinstance(member, property) else None
            if text and ">>>" in text:
                module = inspect.getmodule(member.fget if isinstance(member, property) else member)
                scope = dict(vars(module)) if module is not None else {}
                results[path] = doctest.DocTestParser().get_doctest(text, scope, path, None, 0)
    return results


EXAMPLES = _examples()


def test_most_used_names_have_examples() -> None:
    assert set(EXAMPLES) >= MOST_USED


@pytest.mark.parametrize("name", [name for name in EXAMPLES if not name.endswith("to_spark")])
def test_docstring_examples_run(name: str, serve_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo.share").write_text(json.dumps(serve_demo.profile))
    monkeypatch.chdir(tmp_path)
    activated = json.dumps(serve_demo.profile).encode()
    monkeypatch.setattr("delta_sharing_client.http.sessions.fetched", lambda *_, **__: (200, activated))
    # The examples use the variable ``table`` of the example of the class SharedTable.
    EXAMPLES[name].globs["table"] = ds.SharingClient("demo.share").table("demo.shop.orders")
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(EXAMPLES[name], out=output.append)

    assert result.attempted
    assert result.failed == 0, "".join(output)
