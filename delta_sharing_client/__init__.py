"""Reads data and files that are shared over the open Delta Sharing and OpenSharing protocols.

Shared tables become pandas, Arrow, Polars, DuckDB or Spark data. Files of volumes, models and agent skills are read
unchanged.

::

    import delta_sharing_client as ds

    ds.load_as_pandas("my.share#share.schema.table")

    client = ds.SharingClient("my.share")
    client.table("share.schema.table").scan(filter="date >= '2024-01-01'").to_arrow()
    client.list_all_volumes()
"""

from __future__ import annotations

# Imported now, because Python refuses to import it once the main thread has ended. Threads may still read then, and
# most of our modules, asyncio among them, need it.
import concurrent.futures.thread as _pools  # noqa: F401
import importlib
from typing import TYPE_CHECKING

# Imported first: from here on, a fork waits until other threads have finished importing our modules.
import delta_sharing_client.errors as _errors
import delta_sharing_client.forks as _forks
import delta_sharing_client.tracebacks as _tracebacks

if TYPE_CHECKING:
    from delta_sharing_client.assets.directory import AsyncFileListing as AsyncFileListing
    from delta_sharing_client.assets.download import Download as Download
    from delta_sharing_client.assets.model import Model as Model
    from delta_sharing_client.assets.model import ModelVersion as ModelVersion
    from delta_sharing_client.assets.skill import Skill as Skill
    from delta_sharing_client.assets.volume import Volume as Volume
    from delta_sharing_client.checks.conformance_report import ConformanceReport as ConformanceReport
    from delta_sharing_client.checks.run import conformance as conformance
    from delta_sharing_client.client import SharingClient as SharingClient
    from delta_sharing_client.delta.actions import Protocol as Protocol
    from delta_sharing_client.errors import AuthError as AuthError
    from delta_sharing_client.errors import DataError as DataError
    from delta_sharing_client.errors import DeltaSharingError as DeltaSharingError
    from delta_sharing_client.errors import IncompleteReadWarning as IncompleteReadWarning
    from delta_sharing_client.errors import NotFoundError as NotFoundError
    from delta_sharing_client.errors import OutOfMemoryError as OutOfMemoryError
    from delta_sharing_client.errors import ProfileError as ProfileError
    from delta_sharing_client.errors import ProtocolError as ProtocolError
    from delta_sharing_client.errors import RequestError as RequestError
    from delta_sharing_client.errors import SchemaChangeError as SchemaChangeError
    from delta_sharing_client.errors import SkillWarning as SkillWarning
    from delta_sharing_client.errors import TransportError as TransportError
    from delta_sharing_client.errors import UnsupportedFeatureError as UnsupportedFeatureError
    from delta_sharing_client.errors import UsageError as UsageError
    from delta_sharing_client.fetch.place import StoredFile as StoredFile
    from delta_sharing_client.fetch.report import Progress as Progress
    from delta_sharing_client.fetch.report import ScanReport as ScanReport
    from delta_sharing_client.follow.steps import Follow as Follow
    from delta_sharing_client.follow.steps import FollowedChanges as FollowedChanges
    from delta_sharing_client.loaders import add_spark_jar as add_spark_jar
    from delta_sharing_client.loaders import attach as attach
    from delta_sharing_client.loaders import get_table_metadata as get_table_metadata
    from delta_sharing_client.loaders import get_table_protocol as get_table_protocol
    from delta_sharing_client.loaders import get_table_version as get_table_version
    from delta_sharing_client.loaders import load_as_arrow as load_as_arrow
    from delta_sharing_client.loaders import load_as_duckdb as load_as_duckdb
    from delta_sharing_client.loaders import load_as_pandas as load_as_pandas
    from delta_sharing_client.loaders import load_as_polars as load_as_polars
    from delta_sharing_client.loaders import load_as_spark as load_as_spark
    from delta_sharing_client.loaders import load_table_changes_as_arrow as load_table_changes_as_arrow
    from delta_sharing_client.loaders import load_table_changes_as_pandas as load_table_changes_as_pandas
    from delta_sharing_client.loaders import load_table_changes_as_polars as load_table_changes_as_polars
    from delta_sharing_client.loaders import load_table_changes_as_spark as load_table_changes_as_spark
    from delta_sharing_client.loaders import scan_polars as scan_polars
    from delta_sharing_client.loaders import sql as sql
    from delta_sharing_client.loaders import write_spark_jar as write_spark_jar
    from delta_sharing_client.options import AccessMode as AccessMode
    from delta_sharing_client.options import FileIdHash as FileIdHash
    from delta_sharing_client.options import InvalidText as InvalidText
    from delta_sharing_client.options import ReadOptions as ReadOptions
    from delta_sharing_client.options import ResponseFormat as ResponseFormat
    from delta_sharing_client.options import TableFormat as TableFormat
    from delta_sharing_client.options import VariantAs as VariantAs
    from delta_sharing_client.outputs.dataset import SharedDataset as SharedDataset
    from delta_sharing_client.plan.tasks import ScanPlan as ScanPlan
    from delta_sharing_client.predicates.tree import ColumnBuilder as ColumnBuilder
    from delta_sharing_client.predicates.tree import Expression as Expression
    from delta_sharing_client.predicates.tree import col as col
    from delta_sharing_client.protocol.activation import activate as activate
    from delta_sharing_client.protocol.names import AssetName as AssetName
    from delta_sharing_client.protocol.names import Schema as Schema
    from delta_sharing_client.protocol.names import Share as Share
    from delta_sharing_client.protocol.names import Table as Table
    from delta_sharing_client.protocol.profile import Profile as Profile
    from delta_sharing_client.replica import Replica as Replica
    from delta_sharing_client.run.batches import AsyncBatches as AsyncBatches
    from delta_sharing_client.run.batches import Batches as Batches
    from delta_sharing_client.run.partitions import Partition as Partition
    from delta_sharing_client.scans import Changes as Changes
    from delta_sharing_client.scans import Scan as Scan
    from delta_sharing_client.table import SharedTable as SharedTable
    from delta_sharing_client.table import TableDetails as TableDetails
    from delta_sharing_client.table import VersionChanges as VersionChanges

__version__ = "0.2.0.dev0"

# These modules are imported lazily: a Spark executor needs no pandas, and `delta-sharing --help` needs none of them.
_HOMES = {
    "delta_sharing_client.assets.directory": ("AsyncFileListing",),
    "delta_sharing_client.assets.download": ("Download",),
    "delta_sharing_client.assets.model": ("Model", "ModelVersion"),
    "delta_sharing_client.assets.skill": ("Skill",),
    "delta_sharing_client.assets.volume": ("Volume",),
    "delta_sharing_client.checks.conformance_report": ("ConformanceReport",),
    "delta_sharing_client.checks.run": ("conformance",),
    "delta_sharing_client.client": ("SharingClient",),
    "delta_sharing_client.errors": (
        "AuthError",
        "DataError",
        "DeltaSharingError",
        "IncompleteReadWarning",
        "NotFoundError",
        "OutOfMemoryError",
        "ProfileError",
        "ProtocolError",
        "RequestError",
        "SchemaChangeError",
        "SkillWarning",
        "TransportError",
        "UnsupportedFeatureError",
        "UsageError",
    ),
    "delta_sharing_client.follow.steps": ("Follow", "FollowedChanges"),
    "delta_sharing_client.protocol.names": ("AssetName", "Schema", "Share", "Table"),
    "delta_sharing_client.loaders": (
        "add_spark_jar",
        "write_spark_jar",
        "attach",
        "load_as_duckdb",
        "scan_polars",
        "sql",
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
    "delta_sharing_client.options": (
        "AccessMode",
        "FileIdHash",
        "InvalidText",
        "ReadOptions",
        "ResponseFormat",
        "TableFormat",
        "VariantAs",
    ),
    "delta_sharing_client.predicates.tree": ("ColumnBuilder", "Expression", "col"),
    "delta_sharing_client.protocol.activation": ("activate",),
    "delta_sharing_client.protocol.profile": ("Profile",),
    "delta_sharing_client.scans": ("Changes", "Scan"),
    "delta_sharing_client.replica": ("Replica",),
    "delta_sharing_client.run.partitions": ("Partition",),
    "delta_sharing_client.run.batches": ("AsyncBatches", "Batches"),
    "delta_sharing_client.plan.tasks": ("ScanPlan",),
    "delta_sharing_client.outputs.dataset": ("SharedDataset",),
    "delta_sharing_client.delta.actions": ("Protocol",),
    "delta_sharing_client.fetch.report": ("Progress", "ScanReport"),
    "delta_sharing_client.fetch.place": ("StoredFile",),
    "delta_sharing_client.table": ("SharedTable", "TableDetails", "VersionChanges"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

_tracebacks.shorten_in_ipython()

# Hidden from type checkers: they see the imports above, and because of this function they would accept every name.
if not TYPE_CHECKING:
    __all__ = sorted(_HOME_OF)

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        _forks.check()
        with _errors.within_limits():
            value = getattr(importlib.import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return __all__
