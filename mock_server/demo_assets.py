"""Sample assets besides tables, for ``--demo``. They are written at every start, always with the same content.

``demo.shop.documents`` is a volume with text files, a CSV file and a picture; ``demo.shop.churn`` is a model in
MLflow's layout with two versions that are ready and one that is not; ``demo.shop.sales-report`` is an agent skill.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from . import asset_files
from .catalog import AssetEntry

_SCHEMA = "shop"
_PICTURE_SIDE = 32

_README = """The documents of a small shop.

reports/    one text for each month
pictures/   the sign above the door
prices.csv  what things cost
"""
_REPORTS = {
    "2026-01.md": "# January 2026\n\nLamps sold well; the chairs came late.\n",
    "2026-02.md": "# February 2026\n\nThe chairs came, and were sold.\n",
}
_PRICES = "product_id,name,price\n1,lamp,24.50\n2,chair,89.00\n3,shelf,120.00\n"

_SKILL = """---
name: sales-report
description: Writes a monthly report of the shop's sales. Use it when someone asks how a month went.
license: Apache-2.0
compatibility: Needs Python 3 and the table demo.shop.orders.
allowed-tools: Read Bash(python:*)
metadata:
  author: the shop
  version: "1.0"
---

# Sales report

1. Read the orders of the month from `demo.shop.orders`.
2. Run `scripts/total.py` with the amounts on its standard input.
3. Write the text as [the layout](references/layout.md) says.
"""
_SKILL_LAYOUT = "# Layout\n\nOne heading with the month, one sentence with the total, one for what was unusual.\n"
_SKILL_SCRIPT = '''"""Print the total of the amounts on standard input, one a line."""

import sys
from decimal import Decimal

print(sum(Decimal(line) for line in sys.stdin if line.strip()))
'''

_MLMODEL = """artifact_path: model
flavors:
  python_function:
    code: code
    data: data
    loader_module: churn
    python_version: "3.11"
model_size_bytes: {size}
model_uuid: {uuid}
run_id: {run}
utc_time_created: "2026-01-{day:02} 08:00:00.000000"
"""
_MODEL_CODE = '''"""A model of two numbers: who has not ordered for long is likely to leave."""

import json
import pathlib


class Churn:
    def __init__(self, weights):
        self.weights = weights

    def predict(self, model_input, params=None):
        days = model_input["days_since_order"]
        return [min(1.0, self.weights["base"] + self.weights["per_day"] * float(one)) for one in days]


def _load_pyfunc(path):
    return Churn(json.loads((pathlib.Path(path) / "weights.json").read_text(encoding="utf-8")))
'''
_WEIGHTS = {1: {"base": 0.1, "per_day": 0.01}, 2: {"base": 0.05, "per_day": 0.02}, 3: {"base": 0.0, "per_day": 0.03}}


def build(root: Path, share: str) -> tuple[AssetEntry, ...]:
    """Write the sample assets below ``root``, and return them as assets of ``share``."""
    folder = root / _SCHEMA
    documents: dict[str, str | bytes] = {
        "README.txt": _README,
        "prices.csv": _PRICES,
        **{f"reports/{name}": text for name, text in _REPORTS.items()},
        "pictures/sign.png": _picture(),
    }
    _write(folder / "documents", documents)
    _write(
        folder / "sales-report",
        {"SKILL.md": _SKILL, "references/layout.md": _SKILL_LAYOUT, "scripts/total.py": _SKILL_SCRIPT},
    )
    model = (share, _SCHEMA, "churn")
    for number in _WEIGHTS:
        _write(folder / "churn" / str(number), _model_files(number))
    versions = tuple(
        asset_files.version(
            model,
            number,
            folder / "churn" / str(number),
            "READY" if number < len(_WEIGHTS) else "PENDING_REGISTRATION",
            {"runId": _run(number), "comment": f"Trained on the orders of week {number}"},
        )
        for number in _WEIGHTS
    )
    return (
        asset_files.volume((share, _SCHEMA, "documents"), folder / "documents"),
        asset_files.skill((share, _SCHEMA, "sales-report"), folder / "sales-report"),
        asset_files.model(
            model,
            folder / "churn",
            {"comment": "How likely a customer is to leave"},
            versions=versions,
            aliases={"champion": 2, "baseline": 1},
        ),
    )


def _model_files(number: int) -> dict[str, str | bytes]:
    weights = json.dumps(_WEIGHTS[number])
    about = _MLMODEL.format(size=len(weights), uuid=_run(number + 100), run=_run(number), day=4 + number)
    return {"MLmodel": about, "code/churn.py": _MODEL_CODE, "data/weights.json": weights}


def _run(number: int) -> str:
    return f"{number:032x}"


def _write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def _picture() -> bytes:
    """Return a small picture as PNG: bands of color, without interlacing."""
    side = range(_PICTURE_SIDE)
    rows = b"".join(b"\0" + bytes(value for x in side for value in (8 * x, 8 * y, 128)) for y in side)
    header = struct.pack(">IIBBBBB", _PICTURE_SIDE, _PICTURE_SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    parts = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
