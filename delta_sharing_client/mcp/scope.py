"""Restricts what an assistant sees of a profile to some shares and tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import NotFoundError
from delta_sharing_client.options import ReadOptions, TableFormat
from delta_sharing_client.protocol.asset_kinds import TABLE, AssetEntry, AssetKind, AssetRef, ItemT
from delta_sharing_client.protocol.names import AssetName, Schema, Share, Table, check_name
from delta_sharing_client.protocol.profile import ProfileSource
from delta_sharing_client.protocol.rest import RestClient


@dataclasses.dataclass(frozen=True)
class Scope:
    """The shares, and the tables of other shares, that an assistant may use; without any, everything. Names match in
    any case."""

    shares: frozenset[str] = frozenset()
    tables: frozenset[AssetName] = frozenset()

    @classmethod
    def of(cls, shares: Iterable[str], tables: Iterable[str]) -> Scope:
        """Return the scope with these shares and full names of tables. Raises ``UsageError`` for a name that is not
        one."""
        return cls(
            frozenset(check_name(share, "share").lower() for share in shares),
            frozenset(AssetName.parse(table) for table in tables),
        )

    @property
    def is_all(self) -> bool:
        """Whether nothing is restricted."""
        return not self.shares and not self.tables

    def has_share(self, share: str) -> bool:
        """Whether all of a share may be used."""
        return self.is_all or share.lower() in self.shares

    def has_part(self, share: str, schema: str | None = None) -> bool:
        """Whether a share, or a schema of it, has anything that may be used."""
        return self.has_share(share) or any(
            table.share.lower() == share.lower() and (schema is None or table.schema.lower() == schema.lower())
            for table in self.tables
        )

    def has(self, kind: AssetKind[Any], name: AssetName) -> bool:
        """Whether an asset may be used."""
        return self.has_share(name.share) or (kind is TABLE and name in self.tables)

    def check(self, kind: AssetKind[Any], name: AssetName) -> None:
        """Raise ``NotFoundError`` for an asset that may not be used."""
        if not self.has(kind, name):
            raise NotFoundError(
                f"No {kind.noun} '{name}' is among the shares and tables to which this server was restricted."
            )


EVERYTHING = Scope()


class ScopedClient(SharingClient):
    """A client that finds only what is in ``scope``."""

    def __init__(self, profile: ProfileSource, options: ReadOptions, scope: Scope) -> None:
        super().__init__(profile, options)
        self._rest: _ScopedRest = _ScopedRest(self._rest.profile, options)
        self._rest.scope = self._scope = scope

    def table(self, name: Any, format: TableFormat | str | None = None) -> Any:  # noqa: A002
        shared = super().table(name, format)
        self._scope.check(TABLE, shared.name)
        return shared

    def list_all_tables(self, share: Share | str | None = None) -> list[Table]:
        # Tables that only an Iceberg catalog lists are not the server's.
        return [table for table in super().list_all_tables(share) if self._scope.has(TABLE, table.full_name)]

    def _name(self, name: str | AssetName, kind: AssetKind[Any]) -> AssetName:
        full = super()._name(name, kind)
        self._scope.check(kind, full)
        return full


class _ScopedRest(RestClient):
    """Lists only what is in ``scope``, also where errors suggest names."""

    scope = EVERYTHING

    def list_shares(self) -> list[Share]:
        shares = super().list_shares()
        listed = {share.name.lower() for share in shares}
        for name in sorted({*self.scope.shares, *(table.share.lower() for table in self.scope.tables)}):
            if name not in listed:
                raise NotFoundError(f"This server was restricted to the share '{name}', but no such share is shared.")
        return [share for share in shares if self.scope.has_part(share.name)]

    def list_schemas(self, share: str) -> list[Schema]:
        return [schema for schema in super().list_schemas(share) if self.scope.has_part(share, schema.name)]

    def list_tables(self, share: str, schema: str) -> list[Table]:
        return [table for table in super().list_tables(share, schema) if self.scope.has(TABLE, table.full_name)]

    def list_all_tables(self, share: str) -> list[Table]:
        return [table for table in super().list_all_tables(share) if self.scope.has(TABLE, table.full_name)]

    def list_assets(self, kind: AssetKind[ItemT], share: str, schema: str) -> list[ItemT]:
        return super().list_assets(kind, share, schema) if self.scope.has_share(share) else []

    def list_all_assets(self, kind: AssetKind[ItemT], share: str, schemas: Sequence[str] | None = None) -> list[ItemT]:
        return super().list_all_assets(kind, share, schemas) if self.scope.has_share(share) else []

    def list_everything(
        self, share: str, schema: str | None, tables: Sequence[Table]
    ) -> tuple[list[str], list[AssetEntry]]:
        allowed = [table for table in tables if self.scope.has(TABLE, table.full_name)]
        schemas, entries = super().list_everything(share, schema, allowed)
        kept = [one for one in entries if self.scope.has(one.kind, AssetName(share, one.schema, one.name))]
        return [name for name in schemas if self.scope.has_part(share, name)], kept

    def is_shared(self, asset: AssetRef) -> bool:
        return self.scope.has(asset.kind, asset.name) and super().is_shared(asset)
