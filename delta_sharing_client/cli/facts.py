"""What commands tell of a table, a local copy and temporary credentials: names and JSON values."""

from __future__ import annotations

import datetime

import msgspec

from delta_sharing_client.delta.data_types import ArrayType, DataType, DecimalType, MapType, StructField, StructType
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.errors import UsageError
from delta_sharing_client.protocol.messages import TemporaryCredentials
from delta_sharing_client.replica import Replica
from delta_sharing_client.table import SharedTable


def describe_table(
    table: SharedTable, version: int | None, timestamp: str | None
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return the facts of ``table`` at a version or timestamp (default: now), and its columns, as JSON values."""
    details = table.metadata(version=version, timestamp=timestamp)
    protocol = details.protocol
    facts: dict[str, object] = {
        "table": str(table.name),
        "id": details.id,
        "name": details.name,
        "description": details.description,
        "version": details.version,
        "format": details.response_format.value,
        "minReaderVersion": protocol.min_reader_version,
        "readerFeatures": list(protocol.reader_features or ()),
        "partitionColumns": list(details.partition_columns),
        "sizeInBytes": details.size,
        "numFiles": details.num_files,
        "configuration": dict(details.configuration),
    }
    schema = parse_schema(details.schema_string)
    columns = [_column(field) for field in schema.fields]
    for item in schema.all_left_out:
        told = f"{item.type} (not supported, left out)"
        columns.append({"column": ".".join(item.path), "type": told, "nullable": None, "comment": None})
    return facts, columns


def _column(field: StructField) -> dict[str, object]:
    return {
        "column": field.name,
        "type": type_text(field.type),
        "nullable": field.nullable,
        "comment": field.metadata.get("comment"),
    }


def type_text(data_type: DataType) -> str:
    """Return ``data_type`` on one line, such as ``array<struct<a: long>>``, in the names of the Delta log."""
    if isinstance(data_type, StructType):
        return f"struct<{', '.join(f'{field.name}: {type_text(field.type)}' for field in data_type.fields)}>"
    if isinstance(data_type, ArrayType):
        return f"array<{type_text(data_type.element)}>"
    if isinstance(data_type, MapType):
        return f"map<{type_text(data_type.key)}, {type_text(data_type.value)}>"
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    return data_type.name


def instant_text(instant: datetime.datetime) -> str:
    """Return an instant as rows show theirs: ``2024-01-31T10:00:00Z``."""
    return instant.astimezone(datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def retention(days: float) -> datetime.timedelta:
    """Return ``days`` as a duration; ``UsageError`` if it is longer than one can be."""
    try:
        return datetime.timedelta(days=days)
    except (OverflowError, ValueError):
        raise UsageError(f"The option --keep-days must be a number of days such as 7, found {days}.") from None


def copy_facts(done: Replica) -> dict[str, object]:
    """Return what ``--json`` prints of an update; the keys are stable."""
    return {
        "directory": str(done.directory),
        "version": done.version,
        "localVersion": done.local_version,
        "numFiles": done.num_files,
        "sizeInBytes": done.size,
        "downloadedFiles": done.downloaded_files,
        "downloadedBytes": done.downloaded_bytes,
        "deletedFiles": done.deleted_files,
    }


def copy_text(done: Replica) -> str:
    """Return one line for people: what the copy holds now, and what this update did."""
    return (
        f"{done.directory} holds version {done.version}: {done.num_files} files, {done.size} bytes; "
        f"downloaded {done.downloaded_files} files, {done.downloaded_bytes} bytes, deleted {done.deleted_files} files"
    )


def storage_facts(credentials: TemporaryCredentials, show_secrets: bool) -> dict[str, object]:
    """Return what the server answered on temporary credentials, with the keys masked unless ``show_secrets``."""
    facts: dict[str, object] = {"location": credentials.location, "expirationTime": credentials.expiration_time}
    for kind in ("aws_temp_credentials", "azure_user_delegation_sas", "gcp_oauth_token"):
        given = getattr(credentials, kind)
        keys = {} if given is None else msgspec.structs.asdict(given)
        facts.update({name: value if show_secrets else "***" for name, value in keys.items()})
    return facts
