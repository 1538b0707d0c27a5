"""``Volume``: a directory of arbitrary files (OpenSharing protocol, "Volume Sharing")."""

from __future__ import annotations

from delta_sharing_client.assets.files import FileAsset
from delta_sharing_client.lazy import lazy
from delta_sharing_client.protocol.asset_kinds import VOLUME
from delta_sharing_client.protocol.messages import VolumeItem


class Volume(FileAsset):
    """A shared directory of files, from ``SharingClient.volume`` or a listing.

    Creating it sends no request. Attributes that only the server knows are requested on first use, which raises
    ``NotFoundError`` if the volume does not exist, and ``DeltaSharingError`` from the server or the network.

    Examples
    --------
    >>> from delta_sharing_client import SharingClient
    >>> SharingClient("demo.share").volume("demo.shop.documents")
    Volume(demo.shop.documents)
    """

    _kind = VOLUME

    @lazy
    def _item(self) -> VolumeItem:
        """The object that the server sent, requested on first use."""
        return self.rest.get_asset(VOLUME, self.full_name)

    @property
    def storage_location(self) -> str:
        """The URL of the directory in its store."""
        return self._item.storage_location
