"""``FileAsset``: an asset that is a directory of files; once for volumes, skills and versions of models."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from delta_sharing_client.assets.asset import Asset
from delta_sharing_client.errors import DataError
from delta_sharing_client.local_paths import expanded

if TYPE_CHECKING:
    from delta_sharing_client.assets.directory import Directory
    from delta_sharing_client.assets.download import Download
    from delta_sharing_client.assets.filesystem import AssetFileSystem
    from delta_sharing_client.storage.place import StoredFile


class FileAsset(Asset):
    """An asset that is a directory of files in a store.

    Paths are relative to the directory, with ``/`` between names. Credentials are requested with the first access,
    renewed before they end, shared by all threads, and pickled with the asset.
    """

    def files(self, path: str = "", pattern: str | None = None, *, recursive: bool = True) -> Iterator[StoredFile]:
        """List the files of the directory ``path``, or the file ``path`` itself.

        The listing is read page by page as the iterator is used, in the order of the store, which is usually that of
        the paths; without ``recursive`` it is held as a whole.

        Parameters
        ----------
        path:
            A directory of the asset; empty for all of it.
        pattern:
            Lists only matching files: shell wildcards, as in ``"*.pdf"`` for names or ``"2024/**/*.csv"`` for paths
            relative to ``path``.
        recursive:
            Also list the files of all directories below.

        Raises ``NotFoundError`` if there is neither a file nor a directory of this name, ``UsageError`` for a
        malformed path or pattern, ``AuthError`` if the store refuses the credentials, and ``DeltaSharingError`` from
        the server, the store or the network.

        Examples
        --------
        >>> from delta_sharing_client import SharingClient
        >>> volume = SharingClient("demo.share").volume("demo.shop.documents")
        >>> sorted(file.path for file in volume.files(pattern="*.md"))
        ['reports/2026-01.md', 'reports/2026-02.md']
        """
        return self._directory.files(path, pattern, recursive=recursive)

    def stat(self, path: str) -> StoredFile:
        """Return size, time and ETag of one file.

        Raises ``NotFoundError`` if there is none, and the errors of ``files``.
        """
        with self._directory.wants_file(path):
            return self._directory.stat(path)

    def open(self, path: str) -> io.BufferedReader:
        """Open a file for reading bytes: seekable, reading ahead, all of one version of the file.

        Wrap it in ``io.TextIOWrapper`` to read text. Raises ``NotFoundError`` if there is no such file, and the errors
        of ``files``. Reading raises ``DataError`` if the file is replaced meanwhile, and ``TransportError`` if its
        bytes do not arrive.
        """
        with self._directory.wants_file(path):
            return self._directory.open(path)

    def read_bytes(self, path: str) -> bytes:
        """Return the content of a file. Errors as ``open``."""
        with self._directory.wants_file(path):
            return self._directory.read_bytes(path)

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """Return the content of a text file. Errors as ``open``, and ``DataError`` if it has another encoding."""
        data = self.read_bytes(path)
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            raise DataError(
                f"Expected text in {encoding}, found other bytes at {error.start} of the file '{path}' of {self.ref}; "
                "give its encoding, or use read_bytes()."
            ) from None

    def filesystem(self) -> AssetFileSystem:
        """Return the directory as a read-only file system of fsspec, for pandas, Polars, DuckDB, ``pyarrow.dataset``
        and others. Errors as ``files``, or those of fsspec such as ``FileNotFoundError``, when it is used.
        """
        from delta_sharing_client.assets.filesystem import AssetFileSystem

        return AssetFileSystem(self._directory)

    def store(self) -> Any:
        """Return the ``obstore`` store of the directory, which renews its credentials by itself.

        Errors as ``files``, and ``UnsupportedFeatureError`` if the server gives the files by URL.
        """
        return self._directory.store()

    def download(
        self,
        directory: str | os.PathLike[str],
        path: str = "",
        pattern: str | None = None,
        *,
        dry_run: bool = False,
    ) -> Download:
        """Download files into ``directory``, under their paths in the asset; unchanged files are not downloaded
        again.

        A file gets its name only when it is complete. The next download continues an interrupted or killed one.
        Files that only the directory has are kept; others are replaced. The folder ``.delta-sharing`` in it records
        the version of each file, and may be deleted.

        Parameters
        ----------
        directory:
            The local directory; it is created if necessary.
        path, pattern:
            The files to download, as in ``files``; by default all.
        dry_run:
            Only return what would be downloaded.

        Raises ``UsageError`` if the directory cannot hold the files (a name that this system does not allow or that
        leads out of the directory, two names that are one here, a file in place of a directory, no space), before
        anything is written; ``DataError`` if a file does not arrive as listed; and the errors of ``files``.
        """
        from delta_sharing_client.assets.download import download

        target = self.download_target(Path(expanded(directory)))
        mirror = self.is_whole and not path and pattern is None
        return download(self._directory, target, path, pattern, mirror=mirror, dry_run=dry_run)

    is_whole: ClassVar[bool] = False
    """Whether the files only make sense together, so that a download removes those of other versions."""

    def download_target(self, directory: Path) -> Path:
        """Return the directory that ``download`` writes the files into. Errors as ``files``."""
        return directory

    def files_location(self) -> str:
        """Return the URL of the directory in its store, as the server states it. Errors as ``files``."""
        location: str = self.item.storage_location
        return location

    @property
    def _directory(self) -> Directory:
        # Imported on first use, because listings of assets need no store and no pyarrow.
        from delta_sharing_client.assets.directory import Directory

        return Directory(self)
