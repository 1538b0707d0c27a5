"""The lines of a response, in either response format (protocol, "API Response Format in Parquet" and "... in Delta").

A million file lines must take only seconds, so msgspec encodes each line from a few typed structs. Nothing is cached,
because every response has new URLs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Union

import msgspec

from delta_sharing_client.delta import deletion_vectors, paths
from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    DeletionVectorDescriptor,
    Metadata,
    Protocol,
    RemoveFile,
)
from delta_sharing_client.errors import ProtocolError

from .capabilities import FileIdHash, Format
from .s3 import S3Grant, is_s3
from .signing import Grant, Use

_encode = msgspec.json.Encoder().encode
PartitionValues = dict[str, Union[str, None]]

# The name contains characters that JSON strings may contain unescaped, but that some code treats as line breaks.
_U2028_NAME = "line\u2028paragraph\u2029next\u0085end"


class _ParquetFile(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    url: str
    id: str
    partition_values: PartitionValues
    size: int
    stats: Union[str, None] = None
    version: Union[int, None] = None
    timestamp: Union[int, None] = None
    expiration_timestamp: Union[int, None] = None


class _ParquetFileLine(msgspec.Struct, gc=False):
    file: _ParquetFile


class _DeltaAdd(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    path: str
    partition_values: PartitionValues
    size: int
    modification_time: int
    data_change: bool
    stats: Union[str, None] = None
    tags: Union[PartitionValues, None] = None
    deletion_vector: Union[DeletionVectorDescriptor, None] = None
    base_row_id: Union[int, None] = None
    default_row_commit_version: Union[int, None] = None
    clustering_provider: Union[str, None] = None


class _DeltaRemove(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    path: str
    data_change: bool
    size: int
    deletion_timestamp: Union[int, None] = None
    extended_file_metadata: Union[bool, None] = None
    partition_values: Union[PartitionValues, None] = None
    stats: Union[str, None] = None
    tags: Union[PartitionValues, None] = None
    deletion_vector: Union[DeletionVectorDescriptor, None] = None
    base_row_id: Union[int, None] = None
    default_row_commit_version: Union[int, None] = None


class _DeltaCdc(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    path: str
    partition_values: PartitionValues
    size: int
    data_change: bool
    tags: Union[PartitionValues, None] = None


class _SingleAction(msgspec.Struct, omit_defaults=True, gc=False):
    add: Union[_DeltaAdd, None] = None
    remove: Union[_DeltaRemove, None] = None
    cdc: Union[_DeltaCdc, None] = None


class _DeltaFile(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    id: str
    delta_single_action: _SingleAction
    size: int
    deletion_vector_file_id: Union[str, None] = None
    version: Union[int, None] = None
    timestamp: Union[int, None] = None
    expiration_timestamp: Union[int, None] = None


class _DeltaFileLine(msgspec.Struct, gc=False):
    file: _DeltaFile


@dataclasses.dataclass(frozen=True, slots=True)
class Quirks:
    """How a response deviates from a correct one: the faults that apply to it."""

    no_expiration: bool = False
    no_stats: bool = False
    size_offset: int = 0
    empty_nulls: bool = False
    odd_names: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A changed file: its action, its version, and the version's time in milliseconds since the epoch."""

    action: AddFile | RemoveFile | AddCdcFile
    version: int
    timestamp_ms: int | None


class Renderer:
    """Creates the lines of one response for one table.

    Parameters
    ----------
    table_root:
        The table's directory, for resolving paths that lead out of it.
    response_format, id_hash:
        The format of the response, and how its file ids are derived.
    grant:
        Signs the URLs.
    access:
        The metadata's fields for access modes.
    """

    def __init__(
        self,
        table_root: Path,
        response_format: Format,
        id_hash: FileIdHash,
        grant: Grant | S3Grant,
        quirks: Quirks,
        access: Mapping[str, Any],
    ) -> None:
        self.format = response_format
        self._access = access
        self._root = table_root
        self._is_s3 = isinstance(grant, S3Grant)
        self._sign = {use: grant.signer(use) for use in Use}
        self._sign_add = grant.signer(Use.ADD)
        self._quirks = quirks
        self._hash: Callable[..., Any] = hashlib.md5 if id_hash is FileIdHash.PARQUET else hashlib.sha256
        self._expires = None if quirks.no_expiration else grant.expires_ms

    @property
    def expires_ms(self) -> int | None:
        """When the URLs expire, in milliseconds since the epoch; ``None`` if the response does not say."""
        return self._expires

    def protocol(self, protocol: Protocol, version: int | None = None) -> bytes:
        """Return a protocol line; ``version`` marks it as historical (only in the delta format)."""
        if self.format is Format.PARQUET:
            return _line({"protocol": {"minReaderVersion": 1}})
        content: dict[str, Any] = {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
        }
        if protocol.reader_features is not None:
            content["readerFeatures"] = protocol.reader_features
        if protocol.writer_features is not None:
            content["writerFeatures"] = protocol.writer_features
        wrapper: dict[str, Any] = {"deltaProtocol": content}
        if version is not None:
            wrapper["version"] = version
        return _line({"protocol": wrapper})

    def metadata(
        self, metadata: Metadata, *, version: int | None = None, size: int | None = None, files: int | None = None
    ) -> bytes:
        """Return a metadata line; ``size`` (in bytes) and ``files`` (their number) describe the whole table."""
        facts = {"version": version, "size": size, "numFiles": files}
        present = {name: value for name, value in facts.items() if value is not None} | dict(self._access)
        if self.format is Format.PARQUET:
            return _line({"metaData": {**self._parquet_metadata(metadata), **present}})
        content: dict[str, Any] = {
            "id": metadata.id,
            **self._names(metadata),
            "format": {"provider": metadata.format.provider, "options": metadata.format.options},
            "schemaString": metadata.schema_string,
            "partitionColumns": metadata.partition_columns,
            "configuration": metadata.properties,
        }
        if metadata.created_time is not None:
            content["createdTime"] = metadata.created_time
        return _line({"metaData": {"deltaMetadata": content, **present}})

    def adds(self, adds: Iterable[AddFile], version: int | None, timestamp_ms: int | None) -> bytes:
        """Return the lines of live files; ``version`` and its time are given only for time travel."""
        if self.format is Format.PARQUET:
            return b"".join([self._parquet_add(add, version, timestamp_ms) for add in adds])
        return b"".join([self._delta_add(add, version, timestamp_ms) for add in adds])

    def change(self, change: Change) -> bytes:
        """Return the line of one changed file."""
        if self.format is Format.PARQUET:
            return self._parquet_change(change)
        action = change.action
        if isinstance(action, AddFile):
            return self._delta_add(action, change.version, change.timestamp_ms)
        url, file_id = self._locate(action.path, self._sign[Use.REMOVE if isinstance(action, RemoveFile) else Use.CDC])
        size = (action.size or 0) + self._quirks.size_offset
        vector, vector_id = None, None
        if isinstance(action, RemoveFile):
            vector, vector_id = self._vector(action.deletion_vector)
            single = _SingleAction(
                remove=_DeltaRemove(
                    url, action.data_change, size, action.deletion_timestamp, action.extended_file_metadata,
                    self._values(action.partition_values), self._stats(action.stats), action.tags, vector,
                    action.base_row_id, action.default_row_commit_version,
                )
            )  # fmt: skip
        else:
            values = self._values(action.partition_values) or {}
            single = _SingleAction(cdc=_DeltaCdc(url, values, size, action.data_change, action.tags))
        file = _DeltaFile(file_id, single, size, vector_id, change.version, change.timestamp_ms, self._expires)
        return _encode(_DeltaFileLine(file)) + b"\n"

    def _parquet_add(self, add: AddFile, version: int | None, timestamp_ms: int | None) -> bytes:
        url, file_id = self._locate(add.path, self._sign_add)
        file = _ParquetFile(
            url, file_id, self._values(add.partition_values) or {}, add.size + self._quirks.size_offset,
            self._stats(add.stats), version, timestamp_ms, self._expires,
        )  # fmt: skip
        return _encode(_ParquetFileLine(file)) + b"\n"

    def _delta_add(self, add: AddFile, version: int | None, timestamp_ms: int | None) -> bytes:
        url, file_id = self._locate(add.path, self._sign_add)
        vector, vector_id = (None, None) if add.deletion_vector is None else self._vector(add.deletion_vector)
        size = add.size + self._quirks.size_offset
        action = _DeltaAdd(
            url, self._values(add.partition_values) or {}, size, add.modification_time, add.data_change,
            self._stats(add.stats), add.tags, vector, add.base_row_id, add.default_row_commit_version,
            add.clustering_provider,
        )  # fmt: skip
        file = _DeltaFile(file_id, _SingleAction(action), size, vector_id, version, timestamp_ms, self._expires)
        return _encode(_DeltaFileLine(file)) + b"\n"

    def _parquet_change(self, change: Change) -> bytes:
        action = change.action
        stats: str | None = None
        if isinstance(action, AddFile):
            kind, use, stats = "add", Use.ADD, self._stats(action.stats)
        elif isinstance(action, RemoveFile):
            kind, use = "remove", Use.REMOVE
        else:
            kind, use = "cdf", Use.CDC
        url, file_id = self._locate(action.path, self._sign[use])
        file = _ParquetFile(
            url, file_id, self._values(action.partition_values) or {}, (action.size or 0) + self._quirks.size_offset,
            stats, change.version, change.timestamp_ms, self._expires,
        )  # fmt: skip
        return _encode({kind: file}) + b"\n"

    def _locate(self, path: str, sign: Callable[[str], str]) -> tuple[str, str]:
        """Return the signed URL and the id of the file with this path in the log."""
        # Almost all paths in a log are canonical, and this check must be cheap for a million of them.
        local = path if "%" not in path and ":" not in path and ".." not in path else self._local(path)
        return sign(local), self._hash(local.encode("utf-8", "surrogateescape")).hexdigest()

    def _local(self, path: str) -> str:
        if self._is_s3 and is_s3(path):
            return path
        resolved = paths.resolve(self._root, path)
        try:
            return resolved.relative_to(self._root).as_posix()
        except ValueError:
            return resolved.as_posix()

    def _vector(self, vector: DeletionVectorDescriptor | None) -> tuple[DeletionVectorDescriptor | None, str | None]:
        """Return the descriptor to send, with a signed URL of its file, and the id of the file."""
        if vector is None or vector.storage_type == "i":
            return vector, None
        if vector.storage_type == "u":
            path = deletion_vectors.relative_path(vector)
        else:
            path = self._local(vector.path_or_inline_dv)
        url = self._sign[Use.DELETION_VECTOR](path)
        shared = DeletionVectorDescriptor("p", url, vector.size_in_bytes, vector.cardinality, vector.offset)
        return shared, self._hash(path.encode("utf-8", "surrogateescape")).hexdigest()

    def _values(self, values: PartitionValues | None) -> PartitionValues | None:
        if values and self._quirks.empty_nulls:
            return {name: "" if value is None else value for name, value in values.items()}
        return values

    def _stats(self, stats: str | None) -> str | None:
        return None if self._quirks.no_stats else stats

    def _parquet_metadata(self, metadata: Metadata) -> dict[str, Any]:
        content: dict[str, Any] = {
            "id": metadata.id,
            **self._names(metadata),
            "format": {"provider": metadata.format.provider},
            "schemaString": _public_schema(metadata.schema_string),
            "partitionColumns": metadata.partition_columns,
            "configuration": {},
        }
        if metadata.properties.get("delta.enableChangeDataFeed", "").lower() == "true":
            content["configuration"] = {"enableChangeDataFeed": "true"}
        return content

    def _names(self, metadata: Metadata) -> dict[str, str]:
        name, description = metadata.name, metadata.description
        if self._quirks.odd_names:
            name, description = _U2028_NAME, f"described\u2028as {_U2028_NAME}"
        given = {"name": name, "description": description}
        return {key: value for key, value in given.items() if value is not None}


def end_stream_line(
    *,
    refresh_token: str | None = None,
    next_page_token: str | None = None,
    min_url_expiration: int | None = None,
    error: tuple[int, str] | None = None,
) -> bytes:
    """Return the EndStreamAction, the last line of a response; ``error`` is an HTTP status and a message."""
    content: dict[str, Any] = {}
    if refresh_token is not None:
        content["refreshToken"] = refresh_token
    if next_page_token is not None:
        content["nextPageToken"] = next_page_token
    if min_url_expiration is not None:
        content["minUrlExpirationTimestamp"] = min_url_expiration
    if error is not None:
        content["httpStatusErrorCode"], content["errorMessage"] = error
    return _line({"endStreamAction": content})


def query_status_line(query_id: str, status: str, message: str | None = None) -> bytes:
    """Return the only line of the response for an asynchronous query that has no result, or none yet."""
    content = {"queryId": query_id, "status": status}
    if message is not None:
        content["message"] = message
    return _line({"queryStatus": content})


def _line(content: dict[str, Any]) -> bytes:
    return _encode(content) + b"\n"


def _public_schema(schema_string: str) -> str:
    """Return the schema without field metadata except comments, as the reference server does."""
    try:
        schema = json.loads(schema_string)
    except (ValueError, RecursionError):
        raise ProtocolError("'schemaString' must be the JSON of a struct type, but it cannot be parsed.") from None
    return json.dumps(_public_type(schema), separators=(",", ":"), ensure_ascii=False)


def _public_type(node: Any) -> Any:
    if isinstance(node, list):
        return [_public_type(item) for item in node]
    if not isinstance(node, dict):
        return node
    result = {key: _public_type(value) for key, value in node.items() if key != "metadata"}
    if "metadata" in node:
        metadata = node["metadata"] or {}
        result["metadata"] = {"comment": metadata["comment"]} if "comment" in metadata else {}
    return result
