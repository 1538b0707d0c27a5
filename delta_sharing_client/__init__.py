"""Read tables shared over the open Delta Sharing protocol as pandas, Arrow, Polars, DuckDB and Spark data.

::

    import delta_sharing_client as ds

    ds.load_as_pandas("my.share#share.schema.table")

    client = ds.SharingClient("my.share")
    client.table("share.schema.table").scan(filter="date >= '2024-01-01'").to_arrow()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delta_sharing_client.client import SharingClient
    from delta_sharing_client.errors import (
        AuthError,
        DataError,
        DeltaSharingError,
        IncompleteReadWarning,
        NotFoundError,
        ProfileError,
        ProtocolError,
        RequestError,
        SchemaChangeError,
        TransportError,
        UnsupportedFeatureError,
        UsageError,
    )
    from delta_sharing_client.fetch.report import Progress, ScanReport
    from delta_sharing_client.follow.steps import Follow, FollowedChanges
    from delta_sharing_client.loaders import (
        add_spark_jar,
        attach,
        get_table_metadata,
        get_table_protocol,
        get_table_version,
        load_as_arrow,
        load_as_duckdb,
        load_as_pandas,
        load_as_polars,
        load_as_spark,
        load_table_changes_as_arrow,
        load_table_changes_as_pandas,
        load_table_changes_as_polars,
        load_table_changes_as_spark,
        scan_polars,
        write_spark_jar,
    )
    from delta_sharing_client.options import AccessMode, FileIdHash, ReadOptions, ResponseFormat, VariantAs
    from delta_sharing_client.predicates.tree import Expression, col
    from delta_sharing_client.protocol.names import Schema, Share, Table
    from delta_sharing_client.protocol.profile import Profile
    from delta_sharing_client.reads import Changes, Scan
    from delta_sharing_client.replica import Replica
    from delta_sharing_client.run.partitions import Partition
    from delta_sharing_client.table import SharedTable, TableDetails

__version__ = "0.2.0.dev0"

__all__ = [
    "AccessMode",
    "AuthError",
    "Changes",
    "DataError",
    "DeltaSharingError",
    "Expression",
    "FileIdHash",
    "Follow",
    "FollowedChanges",
    "IncompleteReadWarning",
    "NotFoundError",
    "Partition",
    "Profile",
    "ProfileError",
    "Progress",
    "ProtocolError",
    "ReadOptions",
    "Replica",
    "RequestError",
    "ResponseFormat",
    "Scan",
    "ScanReport",
    "Schema",
    "SchemaChangeError",
    "Share",
    "SharedTable",
    "SharingClient",
    "Table",
    "TableDetails",
    "TransportError",
    "UnsupportedFeatureError",
    "UsageError",
    "VariantAs",
    "add_spark_jar",
    "attach",
    "col",
    "get_table_metadata",
    "get_table_protocol",
    "get_table_version",
    "load_as_arrow",
    "load_as_duckdb",
    "load_as_pandas",
    "load_as_polars",
    "load_as_spark",
    "load_table_changes_as_arrow",
    "load_table_changes_as_pandas",
    "load_table_changes_as_polars",
    "load_table_changes_as_spark",
    "scan_polars",
    "write_spark_jar",
]

# Imported lazily: a Spark executor needs no pandas, and `delta-sharing --help` needs none of these modules.
_HOMES = {
    "delta_sharing_client.client": ("SharingClient",),
    "delta_sharing_client.errors": (
        "AuthError",
        "DataError",
        "DeltaSharingError",
        "IncompleteReadWarning",
        "NotFoundError",
        "ProfileError",
        "ProtocolError",
        "RequestError",
        "SchemaChangeError",
        "TransportError",
        "UnsupportedFeatureError",
        "UsageError",
    ),
    "delta_sharing_client.follow.steps": ("Follow", "FollowedChanges"),
    "delta_sharing_client.protocol.names": ("Schema", "Share", "Table"),
    "delta_sharing_client.loaders": (
        "add_spark_jar",
        "write_spark_jar",
        "attach",
        "load_as_duckdb",
        "scan_polars",
        "get_table_metadata",
        "get_table_protocol",
        "get_table_version",
        "load_as_arrow",
        "load_as_pandas",
        "load_as_polars",
        "load_as_spark",
        "load_table_changes_as_arrow",
        "load_table_changes_as_pandas",
        "load_table_changes_as_polars",
        "load_table_changes_as_spark",
    ),
    "delta_sharing_client.options": ("AccessMode", "FileIdHash", "ReadOptions", "ResponseFormat", "VariantAs"),
    "delta_sharing_client.predicates.tree": ("Expression", "col"),
    "delta_sharing_client.protocol.profile": ("Profile",),
    "delta_sharing_client.reads": ("Changes", "Scan"),
    "delta_sharing_client.replica": ("Replica",),
    "delta_sharing_client.run.partitions": ("Partition",),
    "delta_sharing_client.fetch.report": ("Progress", "ScanReport"),
    "delta_sharing_client.table": ("SharedTable", "TableDetails"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
