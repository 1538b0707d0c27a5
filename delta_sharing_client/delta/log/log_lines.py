"""Decodes and encodes the lines of a commit, a compacted log file or a JSON checkpoint (Delta log protocol, "Actions").

Unknown actions and fields are ignored, as the protocol requires; known ones must be complete and of the right type.
Fields that only a sharing server sends are never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, Union

import msgspec

from delta_sharing_client.delta.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    RowIdHighWaterMark,
    Sidecar,
    Transaction,
)
from delta_sharing_client.delta.features import TABLE_FEATURES_READER_VERSION, TABLE_FEATURES_WRITER_VERSION
from delta_sharing_client.errors import DataError, ProtocolError

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
ACTION_NAMES: dict[type, str] = {
    Protocol: "protocol",
    Metadata: "metaData",
    AddFile: "add",
    RemoveFile: "remove",
    AddCdcFile: "cdc",
    Transaction: "txn",
    DomainMetadata: "domainMetadata",
    RowIdHighWaterMark: "rowIdHighWaterMark",
    CommitInfo: "commitInfo",
    CheckpointMetadata: "checkpointMetadata",
    Sidecar: "sidecar",
}


def read_actions(lines: Iterable[bytes], source: str) -> Iterator[Action]:
    """Decode newline-delimited JSON actions, in order; unknown actions, unknown fields and empty lines are skipped.

    ``source`` is the name of the file. Raises ``ProtocolError``, which names the file and the line, if a line is not
    JSON, is nested too deep, has several actions, lacks a required field or has a value of the wrong type.
    """
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        try:
            item = _DECODER.decode(line)
            file = item.add if item.add is not None else item.remove
            others = [] if file is not None else _other_actions(item)
        except RecursionError:
            raise ProtocolError(
                f"Line {number} of '{source}' must be a Delta action, but its JSON is nested too deep."
            ) from None
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ProtocolError(f"Line {number} of '{source}' must be a Delta action: {error}.") from None
        if file is not None:
            both = item.add is not None and item.remove is not None
            if both or item.cdc is not None or item.meta_data is not None or item.protocol is not None:
                raise ProtocolError(
                    f"Line {number} of '{source}' must be one Delta action, found several, whose order is unknown."
                )
            if file.size is not None and file.size < 0:
                raise ProtocolError(f"Line {number} of '{source}' must have a 'size' of 0 or more, found {file.size}.")
            yield file
        else:
            yield from others


def convert_action(fields: object, kind: type[_Struct], source: str) -> _Struct:
    """Return the action of type ``kind`` with the JSON ``fields`` of a checkpoint row; ``ProtocolError`` if one is
    missing or wrong."""
    try:
        if kind is DomainMetadata:
            return _domain_metadata(msgspec.convert(fields, _DomainMetadataLine))  # type: ignore[return-value]
        return msgspec.convert(fields, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ProtocolError(f"A row of '{source}' must be a Delta {ACTION_NAMES[kind]!r} action: {error}.") from None


def action_fields(action: Action) -> dict[str, Any]:
    """Return the fields of ``action`` as JSON values.

    Raises ``DataError`` if the size of a file is unknown, because a log must state it.
    """
    if isinstance(action, Protocol):
        return _protocol_fields(action)
    if isinstance(action, (AddFile, AddCdcFile)) and action.size < 0:
        raise DataError("A log must state the size of every file, but the size of this one is unknown.")
    fields: dict[str, Any] = msgspec.to_builtins(action)
    for name, default in _ALWAYS_WRITTEN.get(type(action), {}).items():
        fields.setdefault(name, default)
    return fields


def action_line(action: Action) -> bytes:
    """Return ``action`` as one line of a commit, with its line break."""
    return msgspec.json.encode({ACTION_NAMES[type(action)]: action_fields(action)}) + b"\n"


# === Reading ===


class _DomainMetadataLine(msgspec.Struct, rename="camel"):
    # The configuration is a string today; in the first specification it was a map.
    domain: str
    configuration: Union[str, dict[str, object]] = ""
    removed: bool = False


class _Line(msgspec.Struct, rename="camel"):
    add: Union[AddFile, None] = None
    remove: Union[RemoveFile, None] = None
    cdc: Union[AddCdcFile, None] = None
    protocol: Union[Protocol, None] = None
    meta_data: Union[Metadata, None] = None
    txn: Union[Transaction, None] = None
    domain_metadata: Union[_DomainMetadataLine, None] = None
    row_id_high_water_mark: Union[RowIdHighWaterMark, None] = None
    checkpoint_metadata: Union[CheckpointMetadata, None] = None
    sidecar: Union[Sidecar, None] = None
    # Writers may put anything here, so it is decoded leniently, below.
    commit_info: msgspec.Raw = msgspec.Raw(b"null")


_DECODER = msgspec.json.Decoder(_Line)


def _other_actions(item: _Line) -> list[Action]:
    actions: list[Action] = []
    for action in (
        item.cdc,
        item.protocol,
        item.meta_data,
        item.txn,
        item.row_id_high_water_mark,
        item.checkpoint_metadata,
        item.sidecar,
    ):  # not a comprehension, which would cost a call for each of many lines with change files
        if action is not None:
            actions.append(action)
    if item.domain_metadata is not None:
        actions.append(_domain_metadata(item.domain_metadata))
    raw = bytes(item.commit_info)
    if raw != b"null" and (info := parse_commit_info(raw)) is not None:
        actions.append(info)
    return actions


def _domain_metadata(line: _DomainMetadataLine) -> DomainMetadata:
    configuration = line.configuration
    if not isinstance(configuration, str):
        configuration = msgspec.json.encode(configuration).decode()
    return DomainMetadata(line.domain, configuration, line.removed)


def parse_commit_info(raw: bytes) -> CommitInfo | None:
    """Decode the known fields of a ``commitInfo``, without those of the wrong type; ``None`` if it is not an object."""
    try:
        return msgspec.json.decode(raw, type=CommitInfo)
    except msgspec.ValidationError:
        document = msgspec.json.decode(raw)
    if not isinstance(document, dict):
        return None
    fields = {}
    for name in CommitInfo.__struct_encode_fields__:
        try:
            msgspec.convert({name: document.get(name)}, CommitInfo)
        except msgspec.ValidationError:
            continue
        fields[name] = document.get(name)
    return msgspec.convert(fields, CommitInfo)


# === Writing ===

# Fields that a log must have, with the default values for which the structs omit them.
_ALWAYS_WRITTEN: dict[type, dict[str, object]] = {
    AddFile: {"partitionValues": {}, "dataChange": True, "modificationTime": 0},
    AddCdcFile: {"partitionValues": {}, "dataChange": False},
    RemoveFile: {"dataChange": True},
    Metadata: {"format": msgspec.to_builtins(Format()), "partitionColumns": [], "configuration": {}},
}


def _protocol_fields(protocol: Protocol) -> dict[str, Any]:
    # A sharing response may omit the writer's version and features; a log must have them, and they must fit the
    # reader's.
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
