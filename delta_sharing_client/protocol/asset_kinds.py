"""The kinds of assets that a share can contain: their names, paths and objects (OpenSharing protocol)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from delta_sharing_client.protocol.messages import ModelItem, ModelVersionItem, SkillItem, TableItem, VolumeItem
from delta_sharing_client.protocol.names import AssetName

ItemT = TypeVar("ItemT")


@dataclasses.dataclass(frozen=True, slots=True)
class AssetKind(Generic[ItemT]):
    """A kind of asset.

    Parameters
    ----------
    noun, plural:
        The names of the kind in messages. ``plural`` is also a segment of paths, and the endpoint ``all-<plural>``
        lists the assets of a share.
    command:
        The command of ``delta-sharing`` that shows the content of an asset.
    item:
        The class of the object that describes an asset in responses.
    credentials:
        The last segment of the path for temporary credentials; several if servers differ, the protocol's first. Empty
        if only the versions of an asset have credentials.
    """

    noun: str
    plural: str
    command: str
    item: type[ItemT]
    credentials: tuple[str, ...]


TABLE = AssetKind("table", "tables", "head", TableItem, ("temporary-table-credentials",))
VOLUME = AssetKind("volume", "volumes", "ls", VolumeItem, ("temporary-volume-credentials",))
MODEL = AssetKind("model", "models", "describe", ModelItem, ())
SKILL = AssetKind("skill", "skills", "ls", SkillItem, ("temporary-skill-credentials",))
MODEL_VERSION = AssetKind(
    "model version",
    "versions",
    "describe",
    ModelVersionItem,
    ("temporary-model-version-credentials", "temporary-model-credentials"),
)
KINDS = (TABLE, VOLUME, MODEL, SKILL)
"""The kinds that a schema lists, in the order in which they are shown."""
BY_NOUN: Mapping[str, AssetKind[Any]] = {kind.noun: kind for kind in KINDS}


class AssetEntry(NamedTuple):
    """An asset in a listing of all kinds, with the server's spelling of its names, and its comment or description, if
    the listing has one."""

    kind: AssetKind[Any]
    schema: str
    name: str
    comment: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AssetRef:
    """A reference to one asset for requests and messages: its kind and full name, and the number of a model version."""

    kind: AssetKind[Any]
    name: AssetName
    version: int | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """The path of the asset below the endpoint, as unencoded segments."""
        plural = MODEL.plural if self.version is not None else self.kind.plural
        path = ("shares", self.name.share, "schemas", self.name.schema, plural, self.name.name)
        return path if self.version is None else (*path, self.kind.plural, str(self.version))

    def __str__(self) -> str:
        """Return, for example, ``volume demo.shop.documents`` or ``version 3 of model demo.shop.churn``."""
        if self.version is None:
            return f"{self.kind.noun} {self.name}"
        return f"version {self.version} of model {self.name}"
