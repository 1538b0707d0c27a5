"""Fixtures of the scan tests; what they are made of is in ``support``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest

from tests.unit.scan.support import Storage, Table, metadata, running_storage


@pytest.fixture
def storage() -> Iterator[Storage]:
    with running_storage() as found:
        yield found


@pytest.fixture
def make_table(storage: Storage) -> Callable[..., Table]:
    """Make an empty shared table; keywords are table properties, ``__`` for a dot."""

    def make(schema: pa.Schema | str, partition_columns: Sequence[str] = (), **configuration: str) -> Table:
        properties = {key.replace("__", "."): value for key, value in configuration.items()}
        return Table(storage, metadata(schema, partition_columns, properties))

    return make
