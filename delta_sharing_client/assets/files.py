"""``FileAsset``: an asset that is a directory of files, the base class of volumes, skills and model versions."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from delta_sharing_client import optional
from delta_sharing_client.assets.asset import Asset
from delta_sharing_client.errors import DataError
from delta_sharing_client.local_paths import expanded

if TYPE_CHECKING:
    import pyspark.sql
    from fsspec import AbstractFileSystem

    from delta_sharing_client.assets.directory import AsyncFileListing, Directory
    from delta_sharing_client.assets.download import Download
    from delta_sharing_client.fetch.place import StoredFile


class FileAsset(Asset):
    """An asset that is a directory of files in a store.

    Paths are relative to the directory, with ``/`` between names. Credentials are requested with the first access,
    renewed before they expire, shared by all threads, and pickled with the asset.
    """

    def files(
        self,
        path: str = "",
        pattern: str | Sequence[str] | None = None,
        *,
        exclude: str | Sequence[str] = (),
        recursive: bool = True,
    ) -> Iterator[StoredFile]:
        """List the files of the directory ``path``, or the file ``path`` itself.

        The listing is requested page by page as the iterator is used. It has the order of the store, which is usually
        the order of the paths. Without ``recursive``, the whole listing is read at once.

        Parameters
        ----------
        path:
            A directory or file of the asset; empty for the whole asset.
        pattern:
            Shell wildcards that files must match, as in ``"*.pdf"`` for names, or ``"2024/**/*.csv"``, ``"/*.csv"`` and
            ``"2024/"`` (everything below) for paths relative to ``path``; or a list of such patterns, of which one must
            match.
        exclude:
            Patterns that files must not match.
        recursive:
            Also list the files of all directories below.

        Raises ``NotFoundError`` if there is neither a file nor a directory at ``path``, ``UsageError`` for a malformed
        path or pattern, ``AuthError`` if the store refuses the credentials, and ``DeltaSharingError`` from the server,
        the store or the network.

        Examples
        --------
        >>> from delta_sharing_client import SharingClient
        >>> volume = SharingClient("demo.share").volume("demo.shop.documents")
        >>> sorted(file.path for file in volume.files(pattern="*.md"))
        ['reports/2026-01.md', 'reports/2026-02.md']
        """
        return self._directory.files(path, pattern, exclude=exclude, recursive=recursive)

    def files_async(
        self,
        path: str = "",
        pattern: str | Sequence[str] | None = None,
        *,
        exclude: str | Sequence[str] = (),
        recursive: bool = True,
    ) -> AsyncFileListing:
        """List files as ``files`` does, as an asynchronous iterator for one coroutine at a time.

        ``aclose``, the end of ``async with``, and cancelling the waiting task end the listing. Errors as for ``files``.

        Examples
        --------
        >>> import asyncio
        >>> from delta_sharing_client import SharingClient
        >>> async def names(volume):
        ...     return sorted([file.path async for file in volume.files_async(exclude=["*.md", "*.png"])])
        >>> asyncio.run(names(SharingClient("demo.share").volume("demo.shop.documents")))
        ['README.txt', 'prices.csv']
        """
        from delta_sharing_client.assets.directory import AsyncFileListing

        return AsyncFileListing(self._directory.files(path, pattern, exclude=exclude, recursive=recursive))

    def stat(self, path: str) -> StoredFile:
        """Return the path, size, time and ETag of one file.

        Raises ``NotFoundError`` if there is no such file, and the errors of ``files``.
        """
        with self._directory.wants_file(path):
            return self._directory.stat(path)

    def open(self, path: str) -> io.BufferedReader:
        """Return a seekable binary stream of a file. It reads ahead, and all of its bytes come from one version of the
        file.

        Wrap the stream in ``io.TextIOWrapper`` to read text. Raises ``NotFoundError`` if there is no such file, and the
        errors of ``files``. Reading raises ``DataError`` if the file is replaced meanwhile, and ``TransportError`` if
        the bytes do not arrive.
        """
        from delta_sharing_client.assets.stream import FileStream, OpenFile

        with self._directory.wants_file(path):
            directory = self._directory
            return OpenFile(FileStream(directory, directory.stat(path)))

    def read_bytes(self, path: str) -> bytes:
        """Return the content of a file. Raises ``NotFoundError`` and the other errors of ``open``."""
        with self._directory.wants_file(path):
            return self._directory.read_bytes(path)

    async def read_bytes_async(self, path: str) -> bytes:
        """Return the content of a file, as ``read_bytes`` does. Cancelling the task ends the request. Errors as for
        ``read_bytes``."""
        from delta_sharing_client.run.loop import asynchronously

        return await asynchronously(lambda: self.read_bytes(path))

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """Return the content of a text file. Raises the errors of ``open``, and ``DataError`` if the content is not in
        ``encoding``."""
        data = self.read_bytes(path)
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            raise DataError(
                f"Expected text in {encoding}, found invalid bytes at position {error.start} of the file '{path}' of "
                f"{self._ref}; pass the encoding of the file, or use read_bytes()."
            ) from None

    def filesystem(self) -> AbstractFileSystem:
        """Return the directory as a read-only fsspec file system, for pandas, Polars, DuckDB, ``pyarrow.dataset`` and
        others.

        When it is used, it raises the errors of ``files``, or those of fsspec such as ``FileNotFoundError``.
        """
        from delta_sharing_client.assets.filesystem import AssetFileSystem

        return AssetFileSystem(self._directory)

    def to_spark(
        self,
        spark: pyspark.sql.SparkSession | None = None,
        path: str = "",
        pattern: str | Sequence[str] | None = None,
        *,
        exclude: str | Sequence[str] = (),
        recursive: bool = True,
        columns: Sequence[str] | None = None,
    ) -> pyspark.sql.DataFrame:
        """Return files as rows of a Spark DataFrame, with the columns of Spark's source ``binaryFile`` (extra
        ``spark``).

        The columns are ``path`` (relative to the asset), ``modificationTime`` (null if the server does not state it),
        ``length`` in bytes, and ``content``. The files are listed when a query runs. Executors download the content, of
        files with at most 2 GiB, and only if the query needs it.

        Parameters
        ----------
        spark:
            The session; by default the active one.
        path, pattern, exclude, recursive:
            The files, as in ``files``.
        columns:
            The columns to read, for sessions without push-down; by default all.

        Raises ``UsageError`` if PySpark is not installed, or there is no session, and the errors of ``files``. When the
        DataFrame is used, Spark raises the errors of ``open``, and ``DataError`` for a file that has changed or gone
        since it was listed.
        """
        files = {"path": path, "pattern": pattern, "exclude": exclude, "recursive": recursive}
        module = optional.load("delta_sharing_client.spark.to_spark", "spark")
        return module.files_to_spark(self, spark, files, columns)

    def store(self) -> Any:
        """Return the ``obstore`` store of the directory, which renews its credentials by itself.

        Raises the errors of ``files``, and ``UnsupportedFeatureError`` if the server provides the files by URL.
        """
        from delta_sharing_client.storage.obstores import store_of

        return store_of(self._directory.place, self._ref)

    def download(
        self,
        directory: str | os.PathLike[str],
        path: str = "",
        pattern: str | Sequence[str] | None = None,
        *,
        exclude: str | Sequence[str] = (),
        delete: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> Download:
        """Download files into ``directory``, at their paths in the asset; unchanged files are not downloaded again.

        A file gets its name only when it is complete. The next download continues one that was interrupted or killed.
        Files that exist only in the directory are kept; files with the path of a downloaded file are replaced. The
        folder ``.delta-sharing`` in the directory records the version of each file, and may be deleted.

        Parameters
        ----------
        directory:
            The local directory; it is created if necessary.
        path, pattern, exclude:
            The files to download, as in ``files``; by default all.
        delete:
            Also remove those of the chosen files that a download of the same asset wrote, that the asset no longer has,
            and that nobody changed. If all files of a skill or of a model version are downloaded, they are removed
            anyway.
        force:
            Download all chosen files, also unchanged ones.
        dry_run:
            Only return what would be downloaded and removed.

        Before any file is written, raises ``UsageError`` if the directory cannot hold the files: because a path is not
        allowed on this system or leads out of the directory, two paths are the same on its disk, something else exists
        at a path, or the space does not suffice. Raises ``DataError`` if a file does not arrive as listed, and the
        errors of ``files``.
        """
        from delta_sharing_client.assets.download import Choice, download

        target = self._download_target(Path(expanded(directory)))
        removes = delete or (self._is_whole and not path and pattern is None and not exclude)
        choice = Choice(path, pattern, exclude, removes=removes, force=force, dry_run=dry_run)
        return download(self._directory, target, choice)

    async def download_async(
        self,
        directory: str | os.PathLike[str],
        path: str = "",
        pattern: str | Sequence[str] | None = None,
        *,
        exclude: str | Sequence[str] = (),
        delete: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> Download:
        """Download files as ``download`` does. If the task is cancelled, the download ends, and the next one continues
        it. Errors as for ``download``."""
        from delta_sharing_client.run.loop import asynchronously

        def call() -> Download:
            return self.download(directory, path, pattern, exclude=exclude, delete=delete, force=force, dry_run=dry_run)

        return await asynchronously(call, ends=True)

    _is_whole: ClassVar[bool] = False
    """Whether the files belong together, so that a download removes files of earlier downloads that no longer exist."""

    def _download_target(self, directory: Path) -> Path:
        """Return the directory that ``download`` writes the files into. Raises ``NotFoundError``, and the other errors
        of ``files``."""
        return directory

    @property
    def _directory(self) -> Directory:
        # Imported on first use, because listings of assets need no store and no pyarrow.
        from delta_sharing_client.assets.directory import Directory

        return Directory(self)
