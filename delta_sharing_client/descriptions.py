"""Describes a table and its versions as JSON values with stable names."""

from __future__ import annotations

from delta_sharing_client.delta.data_types import type_text
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.instants import instant_text
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.sources.contents import stated_formats
from delta_sharing_client.table import SharedTable, TableDetails, VersionChanges


def describe_table(
    table: SharedTable, version: int | str | None = None, timestamp: str | None = None
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return the facts about ``table``, and its columns, at a version or timestamp, by default of the latest version.

    Columns of unsupported types are included, without ``nullable``. Raises the errors of ``SharedTable.metadata``.
    """
    return describe_details(table, table.metadata(version=version, timestamp=timestamp))


def describe_details(table: SharedTable, details: TableDetails) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return the facts and columns of ``describe_table`` from the metadata of ``table``."""
    protocol = details.protocol
    is_of_response = details.response_format is not ResponseFormat.AUTO
    facts: dict[str, object] = {
        "table": str(table.name),
        "id": details.id,
        "name": details.name,
        "description": details.description,
        "tableFormat": details.table_format.value,
        "formats": list(stated_formats(table.rest, table.name)) or [details.table_format.value],
        "version": details.version,
        "format": details.response_format.value if is_of_response else None,
        "minReaderVersion": protocol.min_reader_version if is_of_response else None,
        "readerFeatures": list(protocol.reader_features or ()) if is_of_response else None,
        "partitionColumns": list(details.partition_columns),
        "sizeInBytes": details.size,
        "numFiles": details.num_files,
        "configuration": dict(details.configuration),
    }
    schema = parse_schema(details.schema_string)
    columns: list[dict[str, object]] = [
        {
            "column": field.name,
            "type": type_text(field.type),
            "nullable": field.nullable,
            "comment": field.metadata.get("comment"),
        }
        for field in schema.fields
    ]
    for item in schema.all_left_out:
        type_shown = f"{item.type} (not supported, left out)"
        columns.append({"column": ".".join(item.path), "type": type_shown, "nullable": None, "comment": None})
    return facts, columns


def describe_version(one: VersionChanges) -> dict[str, object]:
    """Return the facts about a version of a table's history."""
    return {
        "version": one.version,
        "timestamp": instant_text(one.timestamp),
        "operation": one.operation,
        "operationParameters": dict(one.operation_parameters) or None,
        "inserts": one.inserts,
        "updates": one.updates,
        "deletes": one.deletes,
    }
