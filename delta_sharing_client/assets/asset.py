"""The base class of all assets: their names, and the server's description of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.lazy import lazy
from delta_sharing_client.notebook import html_facts
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.asset_kinds import AssetKind, AssetRef
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import printable, scrub

AssetT = TypeVar("AssetT", bound="Asset")


@dataclasses.dataclass(frozen=True, repr=False)
class Asset:
    """An asset of a share. Creating it sends no request. Thread-safe and picklable.

    ``full_name`` is ``share.schema.name``. Attributes that only the server knows are requested on first use, which
    raises ``NotFoundError`` if there is no such asset, and ``DeltaSharingError`` from the server or the network.
    """

    _kind: ClassVar[AssetKind[Any]]

    full_name: AssetName
    rest: RestClient
    options: ReadOptions

    @lazy
    def _item(self) -> Any:
        """The object that the server sent, requested on first use."""
        return self.rest.get_asset(self._kind, self.full_name)

    @classmethod
    def _listed(cls: type[AssetT], item: Any, rest: RestClient) -> AssetT:
        """Return the asset for an ``item`` of a listing, without requesting the item again."""
        asset = cls(AssetName(item.share, item.schema, item.name), rest, rest.options)
        vars(asset)["_item"] = item
        return asset

    def _files_location(self) -> str:
        """Return the URL of its files in their store, as the server states it."""
        location: str = self._item.storage_location
        return location

    @property
    def _ref(self) -> AssetRef:
        """The reference to the asset, for requests."""
        return AssetRef(self._kind, self.full_name)

    @property
    def name(self) -> str:
        """The name within the schema."""
        return self.full_name.name

    @property
    def schema(self) -> str:
        """The name of the schema."""
        return self.full_name.schema

    @property
    def share(self) -> str:
        """The name of the share."""
        return self.full_name.share

    @property
    def id(self) -> str | None:
        """An id that does not change, if the server has one."""
        asset_id: str | None = self._item.id
        return asset_id

    @property
    def share_id(self) -> str | None:
        """An id of the share that does not change, if the server has one."""
        own_id: str | None = getattr(self._item, "share_id", None)
        return own_id

    def facts(self) -> Mapping[str, object]:
        """Return the server's description of the asset, by attribute name, without secrets."""
        fields = msgspec.structs.asdict(self._item)
        return {name: scrub(value) if isinstance(value, str) else value for name, value in fields.items()}

    def __repr__(self) -> str:
        return printable(f"{type(self).__name__}({self.full_name})")

    def __str__(self) -> str:
        return str(self.full_name)

    def _repr_html_(self) -> str:
        try:
            facts = self.facts()
        except DeltaSharingError as error:
            facts = {type(error).__name__: str(error)}
        return html_facts(str(self._ref), facts)
