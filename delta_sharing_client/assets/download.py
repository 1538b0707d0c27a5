"""Downloading files of an asset into a directory: what is missing or has changed, complete or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from delta_sharing_client.assets.directory import Directory
from delta_sharing_client.assets.naming import Disk, check_existing, check_paths
from delta_sharing_client.assets.state import Note, State
from delta_sharing_client.assets.transfers import Transfers, content_md5, digest_of
from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.run.progress import progress_bar
from delta_sharing_client.storage.place import StoredFile


@dataclasses.dataclass(frozen=True, slots=True)
class Download(os.PathLike[str]):
    """What a download did, or would do; usable as the path of its directory.

    Attributes
    ----------
    directory:
        The directory that holds the files.
    downloaded:
        The paths of the files that were missing or had changed, in the order of the listing.
    unchanged:
        The number of files that the directory had already.
    removed:
        Files of earlier downloads that a skill or a version of a model does not have any more.
    bytes:
        The size of the downloaded files.
    dry_run:
        Whether nothing was written.
    """

    directory: Path
    downloaded: tuple[str, ...]
    unchanged: int
    removed: tuple[str, ...]
    bytes: int
    dry_run: bool = False

    def __fspath__(self) -> str:
        """Return the path of the directory. Raises no error."""
        return str(self.directory)


def download(
    directory: Directory, target: Path, path: str, pattern: str | None, *, mirror: bool = False, dry_run: bool = False
) -> Download:
    """Do ``FileAsset.download``; with ``mirror`` also remove unchanged files of earlier downloads that are gone."""
    subject = str(directory.ref)
    files = list(directory.files(path, pattern))
    check_paths((file.path for file in files), Disk.of(target), subject)
    check_existing(target, (file.path for file in files), subject)
    state = State(target)
    source = _source(directory)
    if dry_run:
        wanted, removed = _wanted(directory, files, state, source), _removed(files, state, mirror=mirror)
        return _done(target, files, wanted, removed, dry_run=True)
    _check_writable(target)
    with state.writing():
        wanted, removed = _wanted(directory, files, state, source), _removed(files, state, mirror=mirror)
        _check_space(target, sum(file.size for file in wanted), subject)
        report = ScanReport()
        with progress_bar(f"downloading {subject}", directory.options.progress, report):
            Transfers(directory, state, source, wanted, report).run()
        for gone in removed:
            (target / gone).unlink(missing_ok=True)
            state.forget(gone)
    return _done(target, files, wanted, removed)


def _done(
    target: Path,
    files: Sequence[StoredFile],
    wanted: Sequence[StoredFile],
    removed: list[str],
    *,
    dry_run: bool = False,
) -> Download:
    return Download(
        directory=target,
        downloaded=tuple(file.path for file in wanted),
        unchanged=len(files) - len(wanted),
        removed=tuple(removed),
        bytes=sum(file.size for file in wanted),
        dry_run=dry_run,
    )


def _source(directory: Directory) -> str:
    """Return a text that identifies the location of the files, without showing it."""
    profile = directory.asset.rest.profile
    facts = (profile.endpoint, str(directory.ref), directory.asset.files_location())
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def _wanted(directory: Directory, files: Sequence[StoredFile], state: State, source: str) -> list[StoredFile]:
    """Return the files that the local directory does not have as they are in the store."""
    return [file for file in files if not _is_here(directory, file, state, source)]


def _is_here(directory: Directory, file: StoredFile, state: State, source: str) -> bool:
    local = state.local(file.path)
    if local is None or local.st_size != file.size:
        return False
    etag = file.etag
    if etag is None:
        # The listing does not tell versions apart.
        etag = directory.stat(file.path).etag
    if state.is_noted(file.path, source, etag, file.size):
        return True
    expected = content_md5(etag)
    if etag is None or expected is None or digest_of(state.directory / file.path) != expected:
        return False
    state.add(file.path, Note(source, etag, file.size, local.st_mtime_ns))
    return True


def _removed(files: Sequence[StoredFile], state: State, *, mirror: bool) -> list[str]:
    if not mirror:
        return []
    present = {file.path for file in files}
    return [path for path in state.notes if path not in present and state.is_untouched(path)]


def _check_writable(target: Path) -> None:
    """Raise ``UsageError`` unless ``target`` is a directory or can become one."""
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"Cannot make the directory '{target}': {error.strerror}.") from None
    if not os.access(target, os.W_OK | os.X_OK):
        raise UsageError(f"Expected a directory to write into, but '{target}' is not writable.")


def _check_space(target: Path, needed: int, subject: str) -> None:
    free = shutil.disk_usage(target).free
    if needed > free:
        raise UsageError(
            f"The download of {subject} needs {needed:,} bytes, and the disk of '{target}' has {free:,}; free some "
            "space, choose another directory, or fewer files with a pattern."
        )
