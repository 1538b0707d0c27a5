"""Show what pyiceberg and this client read from truncated manifests: ``python -m tools.damaged_manifests``."""

from __future__ import annotations

import collections
import sys
import tempfile
from pathlib import Path

from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from delta_sharing_client.errors import DataError
from delta_sharing_client.iceberg.avro import read_avro
from tests.iceberg.lake import FOLDER


def main() -> None:
    (whole,) = list((FOLDER / "many-manifests" / "table" / "metadata").glob("*-m0.avro"))[:1]
    data = whole.read_bytes()
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cut.avro"
        for length in range(1, len(data), 7):
            path.write_bytes(data[:length])
            try:
                with AvroFile(PyArrowFileIO().new_input(f"file://{path}")) as file:
                    outcome = f"{len(list(file))} records, no error"
            except Exception as error:
                outcome = type(error).__name__
            try:
                ours = f"{len(list(read_avro(data[:length], 'cut.avro').records))} records, no error"
            except DataError:
                ours = "DataError"
            counts[f"pyiceberg: {outcome}; here: {ours}"] += 1
    for outcome, count in counts.most_common():
        sys.stdout.write(f"{count:5} lengths  {outcome}\n")


if __name__ == "__main__":
    main()
