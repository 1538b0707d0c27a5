"""Run the notebooks here and write their outputs: ``python notebooks/run.py [NAME ...]``.

``--check`` writes nothing. Outputs hold no path of a machine, no port and no token.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbclient
import nbformat
from jupyter_client import KernelManager

FOLDER = Path(__file__).resolve().parent
# Text that must not be in a notebook: paths and ports of one machine, and credentials.
PRIVATE = re.compile(
    r"/(?:home|root|tmp|Users|work)/|127\.0\.0\.1|localhost:|Bearer |Signature="
)
TIMEOUT_SECONDS = 240


def notebooks(names: list[str]) -> list[Path]:
    """The notebooks whose names begin with one of ``names``, or all of them."""
    return [
        path
        for path in sorted(FOLDER.glob("*.ipynb"))
        if not names or path.name.startswith(tuple(names))
    ]


@contextlib.contextmanager
def one_kernel() -> Iterator[KernelManager]:
    """A kernel for several notebooks, which starts with the first."""
    kernel = KernelManager(kernel_name="python3")
    yield kernel
    kernel.shutdown_kernel(now=True)


def executed(path: Path, kernel: KernelManager | None = None) -> nbformat.NotebookNode:
    """Run a notebook in ``kernel`` or a new one; ``CellExecutionError`` if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    # Where one opens it: the kernel starts in the folder of the notebook.
    resources = {"metadata": {"path": str(path.parent)}}
    client = nbclient.NotebookClient(
        notebook,
        km=kernel,
        timeout=TIMEOUT_SECONDS,
        startup_timeout=TIMEOUT_SECONDS,
        kernel_name="python3",
        resources=resources,
    )
    if kernel is not None:
        # Nothing of a notebook before may be there.
        notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    client.execute()
    if kernel is not None:
        del notebook.cells[0]
        client.kc.stop_channels()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            cell.outputs = _merged(
                [one for one in cell.outputs if one.get("name") != "stderr"]
            )
    return notebook


def _merged(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """What was printed in one piece, however the kernel has cut it."""
    merged: list[nbformat.NotebookNode] = []
    for one in outputs:
        if one.output_type == "stream" and merged and merged[-1].output_type == "stream":
            merged[-1].text += one.text
        else:
            merged.append(one)
    return merged


def texts(notebook: nbformat.NotebookNode) -> str:
    """All that a notebook shows as text."""
    parts = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        for one in cell.get("outputs", []):
            parts += [one.get("text", ""), *one.get("traceback", ())]
            parts += [
                str(value)
                for kind, value in one.get("data", {}).items()
                if not kind.startswith("image/")
            ]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="beginnings of file names, such as 02; all without them"
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    for path in notebooks(arguments.names):
        notebook = executed(path)
        if found := PRIVATE.search(texts(notebook)):
            sys.exit(f"{path.name} shows '{found[0]}', which belongs to this machine.")
        if not arguments.check:
            nbformat.write(notebook, path)
        print(f"{path.name}: {len(notebook.cells)} cells", flush=True)


if __name__ == "__main__":
    main()
