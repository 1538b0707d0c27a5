"""How tables of the formats differ: the columns of their row lineage, and what they lack, with a row for each lack that
makes the sentence of its refusal."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.options import TableFormat
from delta_sharing_client.plan.read_columns import ICEBERG_LINEAGE_FIELDS, ROW_LINEAGE_FIELDS
from delta_sharing_client.protocol.names import AssetName


class Trait(enum.Enum):
    """Something that not every table has."""

    CHANGES = enum.auto()
    FOLLOWING = enum.auto()
    COPY = enum.auto()
    VERSION_ORDER = enum.auto()


class Lack(NamedTuple):
    """A trait that tables of a ``kind`` do not have; ``instead`` is a sentence that says what to use."""

    kind: str
    what: str
    instead: str

    def error(self, table: AssetName) -> UnsupportedFeatureError:
        """Return the error for a use of ``table`` that needs this."""
        return UnsupportedFeatureError(
            f"{self.kind} has no {self.what}. {self.instead}", feature=self.what, table=str(table)
        )


_ICEBERG, _FEED = "An Iceberg table", "change data feed"

_LACKS: Mapping[TableFormat, Mapping[Trait, Lack]] = {
    TableFormat.ICEBERG: {
        Trait.CHANGES: Lack(
            _ICEBERG, _FEED, "Compare two of its snapshots: scan(version=...); history() lists their ids."
        ),
        Trait.FOLLOWING: Lack(_ICEBERG, _FEED, "Read its snapshots, by a query that runs at intervals."),
        Trait.COPY: Lack(
            _ICEBERG, "local copy as a Delta table", "Write its rows to a file: scan().to_parquet('rows.parquet')."
        ),
        Trait.VERSION_ORDER: Lack(
            _ICEBERG,
            "order of versions",
            "Call history() without a starting or ending version, and choose snapshots by their timestamps.",
        ),
    },
}


_LINEAGE = {TableFormat.ICEBERG: ICEBERG_LINEAGE_FIELDS}


def lineage_fields(table_format: TableFormat) -> tuple[pa.Field, ...]:
    """Return the columns of row lineage that a read of such a table can add."""
    return _LINEAGE.get(table_format, ROW_LINEAGE_FIELDS)


def lack(table_format: TableFormat, trait: Trait) -> Lack | None:
    """Return the row for tables of this format, ``None`` if they have the trait."""
    return _LACKS.get(table_format, {}).get(trait)


def refusal(table_format: TableFormat, trait: Trait, table: AssetName) -> UnsupportedFeatureError:
    """Return the error for a use of ``table`` that needs a trait which tables of this format lack."""
    return _LACKS[table_format][trait].error(table)
