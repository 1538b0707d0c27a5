"""The installed versions of libraries; `scripts/versions oldest` runs the tests with the oldest supported versions."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from deltalake import DeltaTable

PANDAS = int(pd.__version__.partition(".")[0])
PYARROW = int(pa.__version__.partition(".")[0])
# pandas 1 always uses nanoseconds.
TIME_UNIT = "us" if PANDAS >= 2 else "ns"
# Tables with files that old versions of pyarrow cannot open, and the first version that can.
NEWEST_TYPES = {"variant-stats-no-checkpoint": 22}


def is_too_new(table: str) -> bool:
    """Whether a table of the golden corpus has files that this pyarrow cannot open."""
    return NEWEST_TYPES.get(table, 0) > PYARROW


_PARQUET_SETTINGS = {"write_page_checksum": 15, "page_checksum_verification": 15, "store_decimal_as_integer": 17}
VERIFIES_PAGES = PYARROW >= 15
TAKES_VIEWS = PYARROW >= 16


def parquet_settings(**settings: object) -> dict[str, object]:
    """Return those of the settings for a Parquet writer or reader that this pyarrow supports."""
    return {name: value for name, value in settings.items() if _PARQUET_SETTINGS.get(name, 0) <= PYARROW}


# Older versions of sqlglot do not distinguish date_add from dateadd.
KNOWS_DATE_ADD = sqlglot.parse_one("date_add(a, 1)", read="databricks").key == "tsordsadd"


def understood(cases: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the cases whose first value is SQL that this sqlglot supports."""
    return [case for case in cases if KNOWS_DATE_ADD or not re.search(r"\bdate_?add\(", case[0])]


def rows_of_deltalake(table: DeltaTable, column: str) -> list[Any]:
    """Return the values of a column in the files that deltalake lists. They are read one by one, because an old pyarrow
    does not accept the schemas of deltalake."""
    results: list[Any] = []
    for uri in table.file_uris():
        results += pq.ParquetFile(uri).read([column])[column].to_pylist()
    return results
