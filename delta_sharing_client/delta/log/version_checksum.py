"""``<version>.crc``: what the writer of a version found the table to be (Delta log protocol, "Version Checksum File").

The log decides what a table is. Where it does not fit what its writer wrote down, somebody else changed or lost a part
of it since, which a reader can only say: it is reported by a warning with both values.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Union

import msgspec

from delta_sharing_client.delta.actions import Count, Metadata, Protocol
from delta_sharing_client.delta.log.listing import LogListing
from delta_sharing_client.delta.snapshot import Snapshot

_MAX_BYTES = 64 * 1024 * 1024
_LONGEST_VALUE = 300


class VersionChecksumWarning(UserWarning):
    """A table is not what its version checksum says, or the checksum cannot be read."""


class _Checksum(msgspec.Struct, rename="camel", frozen=True):
    """The fields that can be compared without more than the log; a writer may leave out each of them."""

    table_size_bytes: Union[Count, None] = None
    num_files: Union[Count, None] = None
    num_metadata: Union[Count, None] = None
    num_protocol: Union[Count, None] = None
    metadata: Union[Metadata, None] = None
    protocol: Union[Protocol, None] = None
    num_deleted_records: Union[Count, None] = msgspec.field(default=None, name="numDeletedRecordsOpt")
    num_deletion_vectors: Union[Count, None] = msgspec.field(default=None, name="numDeletionVectorsOpt")


def compare_with_checksum(snapshot: Snapshot, listing: LogListing) -> None:
    """Compare ``snapshot`` with the checksum of its version, if there is one in ``listing``.

    Warns
    -----
    VersionChecksumWarning
        They differ, or the checksum is damaged.
    """
    name = listing.checksums.get(snapshot.version)
    if name is None:
        return
    try:
        with listing.directory.open(name) as stream:
            found = _DECODER.decode(stream.read(_MAX_BYTES))
    except FileNotFoundError:
        return
    except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        _warn(f"The version checksum '{name}' of the table '{listing.table}' is ignored: {error}.")
        return
    different = [
        f"'{field}' must be {_short(recorded)}, found {_short(computed)}"
        for field, recorded, computed in _facts(found, snapshot)
        if recorded != computed
    ]
    if different:
        _warn(
            f"The table '{listing.table}' is not what its version checksum '{name}' says: {'; '.join(different)}. "
            f"It is read as its log has it. Tell the provider: the log of version {snapshot.version} may be damaged."
        )


def _facts(found: _Checksum, snapshot: Snapshot) -> Iterator[tuple[str, object, object]]:
    """Yield what both say: a name, the checksum's value, and ours."""
    vectors = [add.deletion_vector for add in snapshot.files if add.deletion_vector is not None]
    computed = {
        "tableSizeBytes": (found.table_size_bytes, sum(add.size for add in snapshot.files)),
        "numFiles": (found.num_files, len(snapshot.files)),
        "numMetadata": (found.num_metadata, 1),
        "numProtocol": (found.num_protocol, 1),
        "numDeletedRecordsOpt": (found.num_deleted_records, sum(vector.cardinality for vector in vectors)),
        "numDeletionVectorsOpt": (found.num_deletion_vectors, len(vectors)),
    }
    yield from ((name, recorded, ours) for name, (recorded, ours) in computed.items() if recorded is not None)
    if found.protocol is not None:
        yield "protocol", _protocol_text(found.protocol), _protocol_text(snapshot.protocol)
    if found.metadata is not None:
        ours = _metadata_facts(snapshot.metadata)
        yield from ((f"metadata.{name}", value, ours[name]) for name, value in _metadata_facts(found.metadata).items())


def _protocol_text(protocol: Protocol) -> str:
    features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    return f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}, features {features}"


def _metadata_facts(metadata: Metadata) -> dict[str, object]:
    try:
        schema = json.dumps(json.loads(metadata.schema_string), sort_keys=True)
    except (ValueError, RecursionError):
        schema = metadata.schema_string
    return {
        "id": repr(metadata.id),
        "schemaString": schema,
        "partitionColumns": metadata.partition_columns,
        "configuration": dict(sorted(metadata.properties.items())),
    }


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _warn(message: str) -> None:
    warnings.warn(message, VersionChecksumWarning, stacklevel=3)


_DECODER = msgspec.json.Decoder(_Checksum)
