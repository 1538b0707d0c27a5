"""Answers the catalog of ``PushDown.java``: names below a namespace, the columns and version of a table.

A question is a schema that Spark infers: it costs a Python worker, and no job. Errors are returned in the schema too,
because Spark would wrap an error of a Python worker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pyspark.sql.types import NullType, StructField, StructType

from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import DeltaSharingError, NotFoundError
from delta_sharing_client.protocol.names import Schema
from delta_sharing_client.spark.options import profile_of


def told(options: Mapping[str, str], table: Callable[[], tuple[StructType, int]]) -> StructType:
    """Return the result for the option ``tell``: the names below the option ``namespace``, or the columns of ``table``,
    with the version in an additional last field."""
    given = {name.lower(): value for name, value in options.items()}
    try:
        if given["tell"] == "names":
            return StructType([StructField(name, NullType()) for name in _names(given)])
        columns, version = table()
        return StructType([*columns.fields, _note(**{"delta-sharing-version": version})])
    except DeltaSharingError as error:
        status = 404 if isinstance(error, NotFoundError) else 0
        return StructType([_note(**{"delta-sharing-error": str(error), "delta-sharing-status": status})])


def _names(given: Mapping[str, str]) -> list[str]:
    namespace: list[str] = json.loads(given["namespace"])
    with SharingClient(profile_of(given)) as client:
        if not namespace:
            return [share.name for share in client.list_shares()]
        if len(namespace) == 1:
            return [schema.name for schema in client.list_schemas(namespace[0])]
        return [table.name for table in client.list_tables(Schema(name=namespace[1], share=namespace[0]))]


def _note(**metadata: object) -> StructField:
    return StructField("note", NullType(), metadata=metadata)
