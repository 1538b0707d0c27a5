"""The notebooks run from top to bottom, and are committed without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_against_the_demo_server(path: Path, serve_demo: Any, tmp_path: Path) -> None:
    (tmp_path / "demo.share").write_text(json.dumps(serve_demo.profile))
    notebook = nbformat.read(path, as_version=4)

    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()

    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("text/html" in output.get("data", {}) for output in outputs)
    assert serve_demo.profile["bearerToken"] not in json.dumps(outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells

    assert [cell.id for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
