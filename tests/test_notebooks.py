"""The notebooks run from top to bottom, and each cell has the kinds of output that are committed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from notebooks.run import PRIVATE, executed, notebooks, one_kernel, texts
from tests.versions import PANDAS

pytestmark = pytest.mark.skipif(PANDAS < 2, reason="the notebooks have the time units of pandas 2")

PLAIN = [pytest.mark.xdist_group("notebooks")]
WITH_SPARK = [pytest.mark.spark, pytest.mark.xdist_group("notebooks with Spark")]
NOTEBOOKS = [
    pytest.param(path, id=path.stem, marks=WITH_SPARK if "spark" in path.stem else PLAIN) for path in notebooks([])
]


def test_first_notebook_links_to_all_others() -> None:
    first, *others = notebooks([])

    assert re.findall(r"\]\((\w+\.ipynb)\)", texts(nbformat.read(first, 4))) == [path.name for path in others]


@pytest.mark.parametrize("path", notebooks([]), ids=lambda path: path.stem)
def test_committed_outputs_are_complete_and_name_no_machine(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert PRIVATE.findall(texts(notebook)) == []
    links = re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", texts(notebook))
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    with one_kernel() as kernel:
        yield kernel


@pytest.fixture(scope="module")
def spark_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One kernel, and so one JVM, for all notebooks with Spark; its sessions are as small and fast as in other
    tests."""
    from tests.spark.conftest import SETTINGS, forked_workers, quick_workers

    folder = tmp_path_factory.mktemp("spark-conf")
    settings = "".join(f"{name} {value}\n" for name, value in SETTINGS.items())
    (folder / "spark-defaults.conf").write_text(settings)
    with (
        pytest.MonkeyPatch.context() as patch,
        quick_workers(tmp_path_factory),
        forked_workers(folder),
        one_kernel() as kernel,
    ):
        patch.setenv("SPARK_CONF_DIR", str(folder))
        yield kernel


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebook_has_the_committed_kinds_of_output(path: Path, request: pytest.FixtureRequest) -> None:
    kernel = request.getfixturevalue("spark_kernel" if "spark" in path.stem else "kernel")
    assert _shown(executed(path, kernel)) == _shown(nbformat.read(path, 4))


def _shown(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """Return the kinds of output of each cell. The contents are not compared, because numbers and the widths of tables
    depend on the machine and on versions."""
    return [
        [f"{one.output_type} {sorted(one.get('data', {}))}" for one in cell.get("outputs", [])]
        for cell in notebook.cells
    ]
