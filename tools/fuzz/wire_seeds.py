"""Valid inputs of ``tools.fuzz.wire``: responses of both formats, profiles, schemas, logs and filters."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

TOKEN = "planted-token"
SIGNATURE = "planted-signature"
PROFILE = {"shareCredentialsVersion": 1, "endpoint": "https://sharing.example/api", "bearerToken": TOKEN}
SCHEMA = pa.schema(
    [("a", pa.int64()), ("p", pa.string()), ("s", pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))]))]
)
SCHEMA_STRING = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "long", "nullable": True, "metadata": {"delta.columnMapping.id": 1}},
            {"name": "p", "type": "string", "nullable": True, "metadata": {}},
            {
                "name": "s",
                "type": {
                    "type": "struct",
                    "fields": [
                        {"name": "x", "type": "double", "nullable": False, "metadata": {}},
                        {
                            "name": "y",
                            "type": {"type": "array", "elementType": "decimal(10,2)", "containsNull": True},
                            "nullable": True,
                            "metadata": {},
                        },
                    ],
                },
                "nullable": True,
                "metadata": {},
            },
        ],
    }
)
STATS = json.dumps(
    {
        "numRecords": 7,
        "minValues": {"a": 1, "s": {"x": 0.5}},
        "maxValues": {"a": 9, "s": {"x": 2}},
        "nullCount": {"a": 0},
    }
)
URL = "https://storage.example/part-0.parquet?X-Amz-Signature=" + SIGNATURE
VECTOR = {"storageType": "p", "pathOrInlineDv": URL, "offset": 1, "sizeInBytes": 40, "cardinality": 2}
END = {"endStreamAction": {"refreshToken": "r", "nextPageToken": "", "minUrlExpirationTimestamp": 4102444800000}}
HEAD_PARQUET: list[Any] = [
    {"protocol": {"minReaderVersion": 1}},
    {
        "metaData": {
            "id": "t", "format": {"provider": "parquet"}, "schemaString": SCHEMA_STRING, "partitionColumns": ["p"],
            "configuration": {"enableChangeDataFeed": "true"}, "version": 3, "size": 10, "numFiles": 1,
        }
    },
]  # fmt: skip
HEAD_DELTA: list[Any] = [
    {
        "protocol": {
            "deltaProtocol": {
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"],
            }
        }
    },
    {
        "metaData": {
            "version": 3,
            "deltaMetadata": {
                "id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": SCHEMA_STRING,
                "partitionColumns": ["p"], "configuration": {"delta.enableDeletionVectors": "true"},
            },
        }
    },
]  # fmt: skip
ADD = {
    "path": URL, "partitionValues": {"p": "x"}, "size": 100, "modificationTime": 1, "dataChange": True, "stats": STATS,
    "deletionVector": VECTOR, "baseRowId": 0, "defaultRowCommitVersion": 1,
}  # fmt: skip
PARQUET_FILE = {"url": URL, "id": "f1", "partitionValues": {"p": "x"}, "size": 100, "stats": STATS, "version": 1}
PARQUET_FILE |= {"timestamp": 1, "expirationTimestamp": 4102444800000}


def _delta_file(**action: Any) -> dict[str, Any]:
    wrapped = {"id": f"f{len(action)}", "deletionVectorFileId": "d", "version": 1, "timestamp": 1, "size": 100}
    return {"file": {**wrapped, "expirationTimestamp": 4102444800000, "deltaSingleAction": action}}


def _ndjson(*lines: Any) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def seeds(name: str) -> list[bytes]:
    """Return valid inputs of a target."""
    remove = {"path": URL, "partitionValues": {"p": "x"}, "size": 100, "deletionTimestamp": 1, "dataChange": True}
    cdc = {"path": URL, "partitionValues": {"p": "x"}, "size": 100, "dataChange": False}
    results: dict[str, list[bytes]] = {
        "query": [
            _ndjson(*HEAD_PARQUET, {"file": PARQUET_FILE}, END),
            _ndjson(*HEAD_DELTA, _delta_file(add=ADD), END),
            _ndjson({"queryStatus": {"queryId": "q", "status": "pending"}}),
            _ndjson(*HEAD_DELTA, {"endStreamAction": {"errorMessage": "no", "httpStatusErrorCode": 500}}),
        ],
        "changes": [
            _ndjson(
                *HEAD_PARQUET,
                {"add": {**PARQUET_FILE, "version": 3}},
                {"remove": {**PARQUET_FILE, "version": 4}},
                {"cdf": {**PARQUET_FILE, "version": 5}},
                END,
            ),
            _ndjson(*HEAD_DELTA, _delta_file(add=ADD), _delta_file(remove=remove), HEAD_DELTA[1], END),
            _ndjson(*HEAD_DELTA, _delta_file(cdc=cdc), HEAD_DELTA[0], END),
        ],
        "listing": [
            json.dumps(
                {
                    "items": [{"name": "s", "id": "1", "share": "s", "schema": "d"}],
                    "nextPageToken": "x",
                    "share": {"name": "s"},
                }
            ).encode(),
            b'{"items": null}',
            b'{"items": [{"name": "t", "share": "s", "schema": "d", "accessModes": ["url"]}], "share": {"name": "s"}}',
        ],
        "failure": [
            b"\x98\nnot found",
            b'\xc8bytes\n{"errorCode": "X", "message": "' + TOKEN.encode() + b'"}',
            b"\x323\n{}",
        ],
        "profile": [
            json.dumps(PROFILE).encode(),
            json.dumps(
                {
                    "shareCredentialsVersion": 2,
                    "type": "oauth_client_credentials",
                    "endpoint": "https://h/",
                    "tokenEndpoint": "https://h/token",
                    "clientId": "c",
                    "clientSecret": "s",
                    "scope": "x",
                    "expirationTime": "2100-01-01T00:00:00.000Z",
                }
            ).encode(),
        ],
        "schema": [SCHEMA_STRING.encode()],
        "log": [
            _ndjson(
                {"commitInfo": {"timestamp": 1, "operation": "WRITE", "inCommitTimestamp": 2}},
                HEAD_DELTA[0]["protocol"]["deltaProtocol"] and {"protocol": HEAD_DELTA[0]["protocol"]["deltaProtocol"]},
                {"metaData": HEAD_DELTA[1]["metaData"]["deltaMetadata"]},
                {"add": ADD},
                {"remove": remove},
                {"cdc": cdc},
                {"txn": {"appId": "a", "version": 1}},
                {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
            )
        ],
        "sql": [
            b"a > 1 AND p IN ('x', 'y') OR NOT (s.x <= -2.5E3)",
            b"`a` BETWEEN 1 AND 2 AND p LIKE 'a%' ESCAPE '!' AND startswith(p, 'b')",
            b"p IS NOT NULL AND a <=> CAST('5' AS BIGINT) AND s.x IS NOT DISTINCT FROM 1.0",
            b"DATE '2024-01-01' < p AND TIMESTAMP '2024-01-01 00:00:00' > p OR p = X'1F'",
        ],
        "json_hints": [
            json.dumps(
                {
                    "op": "and",
                    "children": [
                        {
                            "op": "greaterThan",
                            "children": [
                                {"op": "column", "name": "a", "valueType": "long"},
                                {"op": "literal", "value": "5", "valueType": "long"},
                            ],
                        },
                        {
                            "op": "not",
                            "children": [
                                {"op": "isNull", "children": [{"op": "column", "name": "p", "valueType": "string"}]}
                            ],
                        },
                    ],
                }
            ).encode()
        ],
        "names": [b"s.d.t", b"a.b.c.d", "ü.☃.t".encode()],
    }  # fmt: skip
    return results["query"] if name == "filtered_query" else results[name]
