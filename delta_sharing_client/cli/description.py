"""What ``delta-sharing describe`` says of a table."""

from __future__ import annotations

from delta_sharing_client.delta.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    parse_schema,
)
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
    return facts, [_column(field) for field in parse_schema(details.schema_string).fields]


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
