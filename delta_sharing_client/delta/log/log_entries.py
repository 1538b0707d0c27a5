"""Actions as another engine must find them in a log: every required field written out, nothing that only a sharing
server knows (Delta log protocol, "Actions")."""

from __future__ import annotations

from typing import Any

import msgspec

from delta_sharing_client.delta.actions import (
    Action,
    AddCdcFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    RowIdHighWaterMark,
    Transaction,
)
from delta_sharing_client.delta.features import TABLE_FEATURES_READER_VERSION, TABLE_FEATURES_WRITER_VERSION
from delta_sharing_client.errors import DataError

_SHARING_FIELDS = (
    "fileId",
    "sharedDeletionVectorId",
    "sharedVersion",
    "sharedTimestamp",
    "sharedExpiration",
)


def action_name(action: Action) -> str:
    """Return the key under which a log holds ``action``."""
    return _NAMES[type(action)]


def action_fields(action: Action) -> dict[str, Any]:
    """Return the fields of ``action`` as JSON values.

    Raises
    ------
    DataError
        A file's size is not known; a log must say it.
    """
    fields: dict[str, Any] = msgspec.to_builtins(action)
    for name in _SHARING_FIELDS:
        fields.pop(name, None)
    if isinstance(action, (AddFile, AddCdcFile)):
        if action.size < 0:
            raise DataError("a log must say the size of every file, but it is not known", file_id=action.file_id)
        fields["partitionValues"] = dict(action.partition_values)
        fields["dataChange"] = action.data_change
        if isinstance(action, AddFile):
            fields["modificationTime"] = action.modification_time
    elif isinstance(action, RemoveFile):
        fields["dataChange"] = action.data_change
    elif isinstance(action, Metadata):
        fields["format"] = {"provider": action.format.provider, "options": dict(action.format.options)}
        fields["partitionColumns"] = list(action.partition_columns)
        fields["configuration"] = dict(action.properties)
    elif isinstance(action, Protocol):
        fields = _protocol_fields(action)
    return fields


def action_line(action: Action) -> bytes:
    """Return ``action`` as one line of a commit, with its line end."""
    return msgspec.json.encode({action_name(action): action_fields(action)}) + b"\n"


def _protocol_fields(protocol: Protocol) -> dict[str, Any]:
    # A sharing answer may leave the writer's half out; a log has both, and they must agree.
    reader, writer = protocol.min_reader_version, max(protocol.min_writer_version, 1)
    reader_features = protocol.reader_features
    writer_features = list(protocol.writer_features or ())
    if reader >= TABLE_FEATURES_READER_VERSION:
        writer = TABLE_FEATURES_WRITER_VERSION
        writer_features += [name for name in reader_features or () if name not in writer_features]
    fields: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader >= TABLE_FEATURES_READER_VERSION:
        fields["readerFeatures"] = list(reader_features or ())
    if writer >= TABLE_FEATURES_WRITER_VERSION:
        fields["writerFeatures"] = writer_features
    return fields


_NAMES: dict[type, str] = {
    AddFile: "add",
    RemoveFile: "remove",
    AddCdcFile: "cdc",
    Protocol: "protocol",
    Metadata: "metaData",
    Transaction: "txn",
    DomainMetadata: "domainMetadata",
    RowIdHighWaterMark: "rowIdHighWaterMark",
}
