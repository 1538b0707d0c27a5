from __future__ import annotations

import json

from delta_sharing_client.cli.commands import type_text
from delta_sharing_client.delta.schema import parse_schema


def test_every_kind_of_type_is_one_line_of_text() -> None:
    def column(name: str, kind: object) -> dict[str, object]:
        return {"name": name, "type": kind, "nullable": True, "metadata": {}}

    inner = {"type": "struct", "fields": [column("x", "long"), column("y", "decimal(38,2)")]}
    schema = {
        "type": "struct",
        "fields": [
            column("a", {"type": "array", "elementType": inner, "containsNull": True}),
            column("m", {"type": "map", "keyType": "string", "valueType": "varchar(5)", "valueContainsNull": True}),
            column("t", "timestamp_ntz"),
        ],
    }

    assert [type_text(field.type) for field in parse_schema(json.dumps(schema)).fields] == [
        "array<struct<x: long, y: decimal(38,2)>>",
        "map<string, varchar(5)>",
        "timestamp_ntz",
    ]
