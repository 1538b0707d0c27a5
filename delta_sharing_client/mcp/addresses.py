"""The URIs of the files that an assistant reads: ``skill://share/schema/name/path``, ``volume://share/schema/name/path``
and ``model://share/schema/name/version/path``."""

from __future__ import annotations

import dataclasses
from urllib.parse import quote, unquote

from delta_sharing_client.errors import NotFoundError, UsageError
from delta_sharing_client.protocol.names import AssetName

SKILL, VOLUME, MODEL = "skill", "volume", "model"
TEMPLATES = {
    SKILL: "skill://{share}/{schema}/{name}/{+path}",
    VOLUME: "volume://{share}/{schema}/{name}/{+path}",
    MODEL: "model://{share}/{schema}/{name}/{version}/{+path}",
}
# Names of files that are not UTF-8 keep their bytes.
_ERRORS = "surrogateescape"


@dataclasses.dataclass(frozen=True)
class Address:
    """A file or directory of an asset; ``path`` is empty for the asset's own directory. Only a model has a version."""

    scheme: str
    asset: AssetName
    path: str
    version: int | None = None

    @classmethod
    def parse(cls, uri: str) -> Address:
        """Return the address that ``uri`` states. Raises ``NotFoundError`` if it is not one."""
        scheme, separator, rest = uri.partition("://")
        parts = [unquote(part, errors=_ERRORS) for part in rest.split("/")]
        count = 4 if scheme == MODEL else 3
        is_one = scheme in TEMPLATES and separator and len(parts) >= count
        if not is_one or not all(part and "/" not in part for part in parts):
            raise unknown(uri)
        version = parts[3] if scheme == MODEL else "0"
        if not (version.isascii() and version.isdigit() and len(version) < 19):
            raise unknown(uri)
        try:
            asset = AssetName(*parts[:3])
        except UsageError:
            raise unknown(uri) from None
        return cls(scheme, asset, "/".join(parts[count:]), int(version) if scheme == MODEL else None)

    def __str__(self) -> str:
        version = [] if self.version is None else [str(self.version)]
        names = [self.asset.share, self.asset.schema, self.asset.name, *version]
        parts = [*names, *self.path.split("/")] if self.path else names
        return f"{self.scheme}://{'/'.join(quote(part, safe='', errors=_ERRORS) for part in parts)}"

    def at(self, path: str) -> Address:
        """Return the address of another path of the asset."""
        return dataclasses.replace(self, path=path)


def unknown(uri: object, reason: str = "") -> NotFoundError:
    """Return the error for a URI at which nothing is served."""
    told = str(uri)
    return NotFoundError(f"No resource is served at '{told[:1000]}'{reason and f': {reason}'}.")
