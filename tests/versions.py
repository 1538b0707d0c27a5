"""The versions that the tests run with, which are old ones on purpose in `.ci/versions oldest`."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

PANDAS = int(pd.__version__.partition(".")[0])
PYARROW = int(pa.__version__.partition(".")[0])
# pandas 1 counts nanoseconds, whatever comes.
TIME_UNIT = "us" if PANDAS >= 2 else "ns"
# Tables with files that an old pyarrow does not open, and the first that does.
NEWEST_TYPES = {"variant-stats-no-checkpoint": 22}


def is_too_new(table: str) -> bool:
    """Whether a table of the golden corpus has files that this pyarrow does not open."""
    return NEWEST_TYPES.get(table, 0) > PYARROW


_WRITER_SETTINGS = {"write_page_checksum": 15, "store_decimal_as_integer": 17}
VERIFIES_PAGES = PYARROW >= 15
TAKES_VIEWS = PYARROW >= 16


def writer_settings(**settings: object) -> dict[str, object]:
    """Return the settings of a Parquet writer that this pyarrow knows."""
    return {name: value for name, value in settings.items() if _WRITER_SETTINGS.get(name, 0) <= PYARROW}


def rows_of_deltalake(table: DeltaTable, column: str) -> list[Any]:
    """Return the values of a column, of files that deltalake names; an old pyarrow does not take its schemas."""
    found: list[Any] = []
    for uri in table.file_uris():
        found += pq.ParquetFile(uri).read([column])[column].to_pylist()
    return found
