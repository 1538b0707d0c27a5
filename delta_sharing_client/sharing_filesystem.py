"""All volumes of a profile as one fsspec file system: ``pd.read_csv("delta-sharing://share.schema.volume/a.csv")``."""

from __future__ import annotations

import errno
import os
from typing import Any

from fsspec.spec import AbstractFileSystem

from delta_sharing_client.assets.filesystem import AssetFileSystem
from delta_sharing_client.client import SharingClient
from delta_sharing_client.options import ReadOptions


class SharingFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The volumes of a profile, read-only. A path is ``share.schema.volume/path``, and may begin with
    ``delta-sharing://``.

    Registered with fsspec under the protocol ``delta-sharing``, so that pandas, Dask and others open such URLs.
    Picklable, but a profile that was given as a dictionary is in the pickle. Methods raise the errors of the volume's
    methods, ``FileNotFoundError`` for a path that does not exist, and ``OSError`` (``EROFS``) for everything that
    writes.

    Parameters
    ----------
    profile:
        As for ``SharingClient``; by default the environment variable ``DELTA_SHARING_PROFILE``.
    options:
        The limits of requests, as for ``SharingClient``.
    """

    protocol = "delta-sharing"
    root_marker = ""
    cachable = False

    def __init__(self, profile: Any = None, options: ReadOptions | None = None, **storage_options: Any) -> None:
        super().__init__(**storage_options)
        self._profile = profile
        self._options = options
        self._client: SharingClient | None = None
        self._volumes: dict[str, AssetFileSystem] = {}

    def __repr__(self) -> str:
        return "SharingFileSystem()"

    def __reduce__(self) -> Any:
        return SharingFileSystem, (self._profile, self._options)

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
        """List a directory of a volume, or a single file; without a path, the volumes of all shares."""
        name, inner = self._split(path)
        if not name:
            names = [str(volume.full_name) for volume in self._opened().list_all_volumes()]
            entries = [{"name": one, "size": 0, "type": "directory"} for one in names]
        else:
            entries = [_within(name, entry) for entry in self._volume(name).ls(inner)]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Return the properties of a file or directory."""
        name, inner = self._split(path)
        if not name:
            return {"name": "", "size": 0, "type": "directory"}
        if not inner:
            # Lists the volume, because a name alone sends no request.
            self._volume(name).ls("")
        return _within(name, self._volume(name).info(inner))

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """List everything below a directory, as fsspec specifies, without a request for each directory."""
        name, inner = self._split(path)
        if not name:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        found = self._volume(name).find(inner, maxdepth=maxdepth, withdirs=withdirs, detail=True, **options)
        entries = {f"{name}/{one}" if one else name: _within(name, entry) for one, entry in found.items()}
        return entries if detail else list(entries)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        """Return the bytes of a file, or of a range in it; negative positions count from the end."""
        name, inner = self._file(path)
        return self._volume(name).cat_file(inner, start, end)

    def modified(self, path: str) -> Any:
        """Return when a file was last written."""
        return self.info(path).get("LastModified")

    def _open(self, path: str, mode: str = "rb", **_: object) -> Any:
        name, inner = self._file(path)
        return self._volume(name)._open(inner, mode)

    def _refused(self, path: str, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Shared volumes are read-only", path)

    mkdir = makedirs = rmdir = rm = rm_file = cp_file = copy = mv = put = put_file = pipe_file = touch = _refused

    # === Common helpers ===

    def _split(self, path: str) -> tuple[str, str]:
        name, _, inner = self._strip_protocol(path).strip("/").partition("/")
        return name, inner

    def _file(self, path: str) -> tuple[str, str]:
        name, inner = self._split(path)
        if not inner:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return name, inner

    def _opened(self) -> SharingClient:
        if self._client is None:
            self._client = SharingClient(self._profile, options=self._options)
        return self._client

    def _volume(self, name: str) -> AssetFileSystem:
        if name not in self._volumes:
            self._volumes[name] = self._opened().volume(name).filesystem()
        return self._volumes[name]


def _within(volume: str, entry: dict[str, Any]) -> dict[str, Any]:
    return entry | {"name": f"{volume}/{entry['name']}" if entry["name"] else volume}
