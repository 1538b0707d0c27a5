"""Checkpoints as streams of actions: classic, multi-part and V2 with sidecars (Delta log protocol, "Checkpoints").

Parquet is read by the columns that are needed and row group by row group, so a checkpoint of a million files holds
neither all its statistics nor two copies of its rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.actions import (
    Action,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    RowIdHighWaterMark,
    Sidecar,
    Transaction,
)
from delta_sharing_client.delta.log.checkpoint_rows import FileRows, other_rows
from delta_sharing_client.delta.log.lines import read_actions
from delta_sharing_client.delta.log.listing import Checkpoint
from delta_sharing_client.delta.paths import is_absolute, resolve
from delta_sharing_client.delta.snapshot import Want
from delta_sharing_client.errors import DataError, ProtocolError

SIDECAR_DIRECTORY = "_sidecars"
BATCH_ROWS = 32_768
_OTHER: dict[str, type] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "txn": Transaction,
    "domainMetadata": DomainMetadata,
    "rowIdHighWaterMark": RowIdHighWaterMark,
    "checkpointMetadata": CheckpointMetadata,
    "sidecar": Sidecar,
}


def read_checkpoint(checkpoint: Checkpoint, want: Want = Want.STATS) -> Iterator[Action]:
    """Stream the actions of a checkpoint, its sidecars' included.

    ``remove`` actions come only with :attr:`Want.TOMBSTONES`, ``stats`` of files only with :attr:`Want.STATS`; where a
    checkpoint has statistics or partition values as structs only, the texts are made from them.

    Raises
    ------
    DataError
        A file is missing or is not readable Parquet.
    ProtocolError
        A row is not a valid action, a sidecar names sidecars, or the checkpoint says it is of another version.
    """
    sidecars: list[Sidecar] = []
    for path in checkpoint.files:
        for action in _manifest_actions(path, want):
            if isinstance(action, Sidecar):
                sidecars.append(action)
            elif isinstance(action, CheckpointMetadata) and action.version != checkpoint.version:
                raise ProtocolError(
                    f"{path.name} must be the checkpoint of version {checkpoint.version}, but says {action.version}"
                )
            else:
                yield action
    for sidecar in sidecars:
        yield from _sidecar_actions(_sidecar_path(sidecar, checkpoint.files[0].parent), want)


def read_table_state(checkpoint: Checkpoint) -> Iterator[Action]:
    """Stream only the actions of a checkpoint that are not about files: protocol, metadata and their like."""
    for path in checkpoint.files:
        if path.suffix == ".json":
            yield from (action for action in _manifest_actions(path, Want.NOTHING) if type(action) in _OTHER.values())
        else:
            with _opened(path) as parquet:
                yield from _other_actions(parquet, path)


def _manifest_actions(path: Path, want: Want) -> Iterator[Action]:
    if path.suffix == ".json":
        try:
            with path.open("rb") as stream:
                yield from read_actions(stream, path.name)
        except OSError as error:
            raise DataError(f"the checkpoint {path.name} cannot be read: {error.strerror}") from None
        return
    with _opened(path) as parquet:
        yield from _other_actions(parquet, path)
        yield from _file_actions(parquet, path, want)


def _sidecar_actions(path: Path, want: Want) -> Iterator[Action]:
    with _opened(path) as parquet:
        if any(isinstance(action, Sidecar) for action in _other_actions(parquet, path)):
            raise ProtocolError(f"the sidecar {path.name} must hold file actions only, but it names sidecars")
        yield from _file_actions(parquet, path, want)


def _sidecar_path(sidecar: Sidecar, log_directory: Path) -> Path:
    if is_absolute(sidecar.path):
        return resolve(log_directory, sidecar.path)
    return resolve(log_directory / SIDECAR_DIRECTORY, sidecar.path)


def _other_actions(parquet: pq.ParquetFile, path: Path) -> Iterator[Action]:
    columns = [name for name in parquet.schema_arrow.names if name in _OTHER]
    if not columns:
        return
    for batch in parquet.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
        for name in columns:
            yield from other_rows(batch.column(name), _OTHER[name], path.name)


def _file_actions(parquet: pq.ParquetFile, path: Path, want: Want) -> Iterator[Action]:
    for column, wanted in (("add", True), ("remove", Want.TOMBSTONES in want)):
        if not wanted or column not in parquet.schema_arrow.names:
            continue
        rows = FileRows(parquet, column, want, path.name)
        for group in range(parquet.metadata.num_row_groups):
            yield from _group_actions(parquet, rows, column, group)


def _group_actions(parquet: pq.ParquetFile, rows: FileRows, column: str, group: int) -> Iterator[Action]:
    batches = _batches(parquet, group, rows.leaves(structs=False))
    for number, batch in enumerate(batches):
        if rows.lacks_statistics(batch.column(column)):
            # Rare, so only now the struct form is read as well, from this batch on. (The null counts in the footer
            # would tell beforehand, but asking a damaged file for them aborts the process.)
            for again in islice(_batches(parquet, group, rows.leaves(structs=True)), number, None):
                yield from rows.actions(again.column(column))
            return
        yield from rows.actions(batch.column(column))


def _batches(parquet: pq.ParquetFile, group: int, leaves: list[str]) -> Iterator[pa.RecordBatch]:
    return parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=leaves, use_threads=False)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as parquet:
            names = parquet.schema_arrow.names
            if len(set(names)) != len(names):
                raise ProtocolError(f"the checkpoint file {path.name} must have each column once, found {names}")
            yield parquet
    except (OSError, pa.ArrowException, EOFError, UnicodeError) as error:
        reason = "it does not exist" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        raise DataError(f"the checkpoint file {path.name} cannot be read: {reason}") from None
