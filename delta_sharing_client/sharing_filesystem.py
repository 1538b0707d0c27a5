"""All volumes of a profile as one fsspec file system: ``pd.read_csv("delta-sharing://share.schema.volume/a.csv")``."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

from delta_sharing_client.assets.filesystem import AssetFileSystem, ReadOnlyFileSystem
from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import NotFoundError, UsageError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.names import AssetName

# The storage options of every fsspec file system.
_OF_FSSPEC = frozenset(
    (
        *("asynchronous", "batch_size", "loop", "skip_instance_cache"),
        *("listings_expiry_time", "max_paths", "use_listings_cache"),
    )
)


class SharingFileSystem(ReadOnlyFileSystem):
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

    Raises ``UsageError`` for a storage option that is neither one of these nor one of all fsspec file systems.
    """

    def __init__(self, profile: Any = None, options: ReadOptions | None = None, **storage_options: Any) -> None:
        for name in storage_options:
            if name not in _OF_FSSPEC:
                raise UsageError(
                    f"Unknown storage option '{name}': expected 'profile', the path of a profile file, or 'options', a "
                    "ReadOptions."
                )
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
        if not self._split(path)[0]:
            names = [str(volume.full_name) for volume in self._opened().list_all_volumes()]
            entries = [{"name": one, "size": 0, "type": "directory"} for one in names]
        else:
            with self._volume(path) as (fs, name, inner):
                entries = [_within(name, entry) for entry in fs.ls(inner)]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Return the properties of a file or directory."""
        if not self._split(path)[0]:
            return {"name": "", "size": 0, "type": "directory"}
        with self._volume(path) as (fs, name, inner):
            if not inner:
                # Lists the volume, because a name alone sends no request.
                fs.ls("")
            return _within(name, fs.info(inner))

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """List everything below a directory, as fsspec specifies, without a request for each directory."""
        if not self._split(path)[0]:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        with self._volume(path) as (fs, name, inner):
            found = fs.find(inner, maxdepth=maxdepth, withdirs=withdirs, detail=True, **options)
        entries = {f"{name}/{one}" if one else name: _within(name, entry) for one, entry in found.items()}
        return entries if detail else list(entries)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        """Return the bytes of a file, or of a range in it; negative positions count from the end."""
        with self._volume(path) as (fs, _name, inner):
            return fs.cat_file(inner, start, end)

    def _open(self, path: str, mode: str = "rb", **_: object) -> Any:
        with self._volume(path) as (fs, _name, inner):
            return fs._open(inner, mode)

    # === Common helpers ===

    def _split(self, path: str) -> tuple[str, str]:
        name, _, inner = self._strip_protocol(path).strip("/").partition("/")
        return name, inner

    def _opened(self) -> SharingClient:
        if self._client is None:
            self._client = SharingClient(self._profile, options=self._options)
        return self._client

    @contextlib.contextmanager
    def _volume(self, path: str) -> Iterator[tuple[AssetFileSystem, str, str]]:
        """Yield the file system of the volume in ``path``, the volume's name, and the path in it.

        In errors of the block, paths are whole. A volume that is not shared is a path that does not exist.
        """
        name, inner = self._split(path)
        if name not in self._volumes:
            try:
                volume = AssetName.parse(name, "volume")
            except UsageError as error:
                raise FileNotFoundError(errno.ENOENT, error.message.rstrip("."), path) from None
            self._volumes[name] = self._opened().volume(volume).filesystem()
        try:
            yield self._volumes[name], name, inner
        except NotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, error.message.rstrip("."), path) from None
        except OSError as error:
            error.filename = path
            raise


def _within(volume: str, entry: dict[str, Any]) -> dict[str, Any]:
    return entry | {"name": f"{volume}/{entry['name']}" if entry["name"] else volume}
