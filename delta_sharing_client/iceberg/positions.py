"""Reads position delete files, which list deleted rows of data files (Iceberg, "Position Delete Files")."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError, check_memory
from delta_sharing_client.iceberg.deletes import FILE_PATH_FIELD_ID, POSITION_FIELD_ID
from delta_sharing_client.parquet.footer import Footer, open_file
from delta_sharing_client.parquet.reader import ARROW_ERRORS, open_reader

_FIELD_ID = b"PARQUET:field_id"
_BATCH_ROWS = 131_072
_NAMES = {FILE_PATH_FIELD_ID: "file_path", POSITION_FIELD_ID: "pos"}


class PositionDeletes:
    """The positions in one delete file, by data file."""

    def __init__(self, positions: dict[str, DeletionVector]) -> None:
        self._positions = positions

    def of(self, path: str) -> DeletionVector | None:
        """Return the deleted rows of the data file ``path``, ``None`` if there are none."""
        return self._positions.get(path)


def read_positions(data: bytes, records: int, name: str) -> PositionDeletes:
    """Return the positions in a position delete file; ``name`` is the file's name, for errors.

    Raises ``DataError`` if the file is damaged or lacks a column, if its number of rows is not ``records``, as the
    manifest states, or if a position is negative or null.
    """
    buffer = pa.py_buffer(data)
    try:
        footer, _ = open_file(buffer)
        if footer.metadata.num_rows != records:
            raise _wrong(name, f"the manifest states {records} rows, but the file has {footer.metadata.num_rows}")
        leaves = [_leaf(footer, field_id, name) for field_id in (FILE_PATH_FIELD_ID, POSITION_FIELD_ID)]
        by_path: dict[str, list[np.ndarray]] = {}
        reader = open_reader(pa.BufferReader(buffer), footer.metadata)
        groups = list(range(footer.metadata.num_row_groups))
        for batch in reader.iter_batches(_BATCH_ROWS, row_groups=groups, column_indices=sorted(leaves)):
            columns = dict(zip(sorted(leaves), batch.columns, strict=True))
            _collect(columns[leaves[0]], columns[leaves[1]], by_path, name)
    except DataError as error:
        error.file_id = error.file_id or name
        raise
    except ARROW_ERRORS as error:
        check_memory(error)
        raise _wrong(name, f"it cannot be decoded ({type(error).__name__})") from None
    return PositionDeletes({path: _vector(parts, name) for path, parts in by_path.items()})


def union(vectors: Iterable[DeletionVector]) -> DeletionVector:
    """Return all positions of ``vectors``."""
    parts = [vector.positions() for vector in vectors]
    return DeletionVector.from_positions(np.concatenate(parts)) if parts else DeletionVector.from_positions(())


def _collect(paths: pa.Array, positions: pa.Array, by_path: dict[str, list[np.ndarray]], name: str) -> None:
    if paths.null_count or positions.null_count:
        raise _wrong(name, "a row has no file or no position")
    if not pa.types.is_integer(positions.type) or not (
        pa.types.is_string(paths.type) or pa.types.is_binary(paths.type)
    ):
        raise _wrong(name, f"its columns must be strings and integers, found {paths.type} and {positions.type}")
    encoded = paths.cast(pa.string()).dictionary_encode()
    numbers, codes = positions.to_numpy(), encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    for code, path in enumerate(encoded.dictionary.to_pylist()):
        by_path.setdefault(path, []).append(numbers[order[starts[code] : starts[code + 1]]])


def _vector(parts: list[np.ndarray], name: str) -> DeletionVector:
    positions = np.concatenate(parts)
    if len(positions) and int(positions.min()) < 0:
        raise _wrong(name, f"a position must be 0 or more, found {int(positions.min())}")
    return DeletionVector.from_positions(positions)


def _leaf(footer: Footer, field_id: int, name: str) -> int:
    """Return the number of the Parquet column with ``field_id``, found by its name if the file has no ids."""
    text = str(field_id).encode()
    has_ids = any(_FIELD_ID in (field.metadata or {}) for field in footer.arrow)
    for place, field in enumerate(footer.arrow):
        if (field.metadata or {}).get(_FIELD_ID) == text or (not has_ids and field.name == _NAMES[field_id]):
            # The deleted rows themselves may follow as further columns, but never precede these.
            if any(pa.types.is_nested(before.type) for before in list(footer.arrow)[:place]):
                break
            return place
    raise _wrong(name, f"it has no column '{_NAMES[field_id]}'")


def _wrong(name: str, reason: str) -> DataError:
    return DataError(f"The position delete file '{name}' cannot be used: {reason}.", file_id=name)
