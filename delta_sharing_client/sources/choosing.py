"""The one place that chooses the source of a table by its format and the way of access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_sharing_client.options import ReadOptions, TableFormat
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.sources.either_source import EitherAccess, EitherFormat
from delta_sharing_client.sources.server_source import ServerSource
from delta_sharing_client.sources.table_source import TableSource

if TYPE_CHECKING:
    from delta_sharing_client.sources import iceberg_source


def source_of(rest: RestClient, name: AssetName, options: ReadOptions) -> TableSource:
    """Return the source of a table for one read. Sends no request.

    ``options.table_format`` decides the format; without it, the server, or, if it does not state the format, a refusal.
    """

    def from_directory() -> TableSource:
        # Imported here, because a read by URL does not need it.
        from delta_sharing_client.sources.log_source import LogSource

        return LogSource(server)

    def from_catalog() -> iceberg_source.IcebergSource:
        # Imported here, because Delta tables do not need it.
        from delta_sharing_client.sources.iceberg_source import IcebergSource

        return IcebergSource(rest, name, options)

    if options.table_format is TableFormat.ICEBERG:
        return from_catalog()
    server = ServerSource(rest, name, options)
    delta = EitherAccess(server, from_directory)
    if options.table_format is TableFormat.DELTA or rest.profile.iceberg_endpoint is None:
        return delta
    return EitherFormat(delta, from_catalog)
