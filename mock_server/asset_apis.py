"""The APIs of volumes, agent skills and models (OpenSharing protocol)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .access import Vending
from .catalog import READY, AssetEntry, AssetKind, Catalog
from .errors import invalid, no_such_api
from .faults import FaultSet
from .listings import Listings, asset_object, version_object

_VERSION_CREDENTIALS = "temporary-model-version-credentials"
# The name in the README of the OpenSharing repository.
_OTHER_VERSION_CREDENTIALS = "temporary-model-credentials"


def _apis() -> dict[tuple[str, ...], tuple[str, AssetKind]]:
    apis: dict[tuple[str, ...], tuple[str, AssetKind]] = {}
    for kind in AssetKind:
        listed = ("shares", "*", "schemas", "*", kind.value)
        apis["GET", "shares", "*", f"all-{kind.value}"] = f"all-{kind.value}", kind
        apis["GET", *listed] = kind.value, kind
        apis["GET", *listed, "*"] = kind.noun, kind
        if kind is not AssetKind.MODEL:  # the files of a model belong to its versions
            name = f"temporary-{kind.noun}-credentials"
            apis["POST", *listed, "*", name] = name, kind
    model = ("shares", "*", "schemas", "*", AssetKind.MODEL.value, "*")
    apis["GET", *model, "versions"] = "model-versions", AssetKind.MODEL
    apis["GET", *model, "versions", "*"] = "model-version", AssetKind.MODEL
    apis["GET", *model, "aliases", "*"] = "model-alias", AssetKind.MODEL
    for name in (_VERSION_CREDENTIALS, _OTHER_VERSION_CREDENTIALS):
        apis["POST", *model, "versions", "*", name] = name, AssetKind.MODEL
    return apis


_APIS = _apis()
_KIND_OF = dict(_APIS.values())
APIS = {path: api for path, (api, _) in _APIS.items()}
"""The APIs by method and path, in which * stands for a name."""


class AssetApis:
    """The APIs of assets besides tables."""

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        listings: Listings,
        faults: FaultSet,
        vending: Vending,
    ) -> None:
        self._catalog = catalog
        self._listings = listings
        self._faults = faults
        self._vending = vending

    def respond(self, api: str, names: Sequence[str], query: Mapping[str, str]) -> dict[str, Any]:
        """Return the response of an API in `APIS`; ``names`` are the names in the request's path. Raises `ApiError` if
        it fails."""
        missing = self._faults.take("no-assets")
        if missing is not None:
            raise no_such_api(f"This server has only tables (fault no-assets={missing.value:g}).", int(missing.value))
        kind, share = _KIND_OF[api], names[0]
        if api == f"all-{kind.value}":
            if self._faults.take("no-all-assets"):
                raise no_such_api(f"The {api} API does not exist (fault no-all-assets).", 404)
            return self._listings.assets(kind, share, None, query)
        if api == kind.value:
            return self._listings.assets(kind, share, names[1], query)
        asset = self._catalog().asset(kind, *names[:3])
        if api == kind.noun:
            return asset_object(asset)
        if api == "model-versions":
            return self._listings.versions(asset, query)
        if api == "model-version":
            return version_object(asset, asset.version(names[3]))
        if api == "model-alias":
            return version_object(asset, asset.aliased(names[3]))
        return self._credentials(api, asset, names)

    def _credentials(self, api: str, asset: AssetEntry, names: Sequence[str]) -> dict[str, Any]:
        location = asset.storage
        if asset.kind is AssetKind.MODEL:
            if api == _VERSION_CREDENTIALS and self._faults.take("other-credentials-path"):
                raise no_such_api(f"The {api} API does not exist (fault other-credentials-path).", 404)
            version = asset.version(names[3])
            if version.status != READY:
                raise invalid(
                    f"Version {version.version} of the model '{asset.full_name}' has the status {version.status}; "
                    f"only versions with the status {READY} have credentials."
                )
            location = version.storage
        assert location is not None
        content = self._vending.credentials(location)
        if self._faults.take("no-credentials"):
            content = {"expirationTime": content["expirationTime"]}
        if self._faults.take("two-credentials"):
            token = {"oauthToken": "simulated"}
            content = {**content, "gcpOauthToken": token, "azureUserDelegationSas": {"sasToken": "simulated"}}
        if self._faults.take("nested-credentials"):
            return {"credentials": {"location": location, **content}}
        return content
