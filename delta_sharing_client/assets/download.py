"""Downloads the missing and changed files of an asset into a directory, each completely or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import os
import shutil
from array import array
from pathlib import Path

from delta_sharing_client.assets.directory import Directory, Patterns, checked_path, matcher
from delta_sharing_client.assets.file_list import FileList
from delta_sharing_client.assets.naming import Disk, ExistingCheck, PathCheck, same_key
from delta_sharing_client.assets.state import Origin, State
from delta_sharing_client.assets.transfers import Transfers, content_md5, digest_of
from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.place import StoredFile
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fingerprints import Fingerprints, hashes
from delta_sharing_client.run.progress import progress_bar


@dataclasses.dataclass(frozen=True, slots=True)
class Download(os.PathLike[str]):
    """The result of a download, or of a dry run; it can be used as the path of its directory.

    Attributes
    ----------
    directory:
        The directory that contains the files.
    downloaded:
        The paths of the files that were missing or had changed, in the order of the listing.
    unchanged:
        The number of files that were already in the directory.
    removed:
        The paths of files of earlier downloads that a skill or a model version no longer has.
    bytes:
        The total size of the downloaded files.
    dry_run:
        Whether this was a dry run, so that nothing was downloaded or removed.
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


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Which files to download, as ``FileAsset.download`` documents the parameters; ``removes`` means that files which
    the asset no longer has are removed."""

    path: str = ""
    pattern: Patterns | None = None
    exclude: Patterns = ()
    removes: bool = False
    force: bool = False
    dry_run: bool = False


def download(directory: Directory, target: Path, choice: Choice) -> Download:
    """Implement ``FileAsset.download``."""
    with contextlib.closing(_listed(directory, target, choice)) as files:
        state = State(target, _origin(directory))
        if choice.dry_run:
            with contextlib.closing(state), contextlib.closing(_wanted(directory, files, state, choice)) as missing:
                return _done(target, files, missing, _removed(directory, files, state, choice), dry_run=True)
        _check_writable(target)
        with state.writing(), contextlib.closing(_wanted(directory, files, state, choice)) as missing:
            removed = _removed(directory, files, state, choice)
            _check_space(target, missing.bytes, str(directory.ref))
            report = ScanReport()
            with progress_bar(f"downloading {directory.ref}", directory.options.progress, report):
                Transfers(directory, state, missing, report).run()
            return _done(target, files, missing, [path for path in removed if state.remove(path)])


def _listed(directory: Directory, target: Path, choice: Choice) -> FileList:
    """Return the files to download, after checking that ``target`` can hold all of them."""
    subject = str(directory.ref)
    files = FileList()
    try:
        disk = Disk.of(target, may_write=not choice.dry_run)
        paths, existing = PathCheck(disk, subject), ExistingCheck(target, subject)
        for file in directory.files(choice.path, choice.pattern, exclude=choice.exclude):
            paths.add(file.path)
            existing.add(file.path)
            files.add(file)
        paths.check(file.path for file in files)
    except BaseException:
        files.close()
        raise
    return files


def _done(target: Path, files: FileList, missing: FileList, removed: list[str], *, dry_run: bool = False) -> Download:
    return Download(
        directory=target,
        downloaded=tuple(file.path for file in missing),
        unchanged=files.count - missing.count,
        removed=tuple(removed),
        bytes=missing.bytes,
        dry_run=dry_run,
    )


def _origin(directory: Directory) -> Origin:
    """Return what identifies the asset and the location of its files, without revealing either."""
    profile, ref = directory.asset.rest.profile, directory.ref
    # Another version of a model is the same asset. Names are not case-sensitive.
    asset = (profile.endpoint.rstrip("/"), ref.kind.noun, str(ref.name).lower())
    return Origin(*(_digest((*asset, *more)) for more in ((), (str(ref).lower(), directory.asset._files_location()))))


def _digest(facts: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(facts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _wanted(directory: Directory, files: FileList, state: State, choice: Choice) -> FileList:
    """Return the files that are missing in the local directory, or differ from those in the store; all with
    ``force``."""
    missing = FileList()
    try:
        for file in files:
            if choice.force or not _is_here(directory, file, state):
                missing.add(file)
    except BaseException:
        missing.close()
        raise
    return missing


def _is_here(directory: Directory, file: StoredFile, state: State) -> bool:
    local = state.local(file.path)
    if local is None or local.st_size != file.size:
        return False
    etag = file.etag
    if etag is None:
        # The listing does not identify the version.
        etag = directory.stat(file.path).etag
    if state.is_noted(file.path, etag, file.size):
        return True
    expected = content_md5(file)
    if etag is None or expected is None or digest_of(state.directory / file.path) != expected:
        return False
    state.verified(file.path, etag, local)
    return True


def _removed(directory: Directory, files: FileList, state: State, choice: Choice) -> list[str]:
    """Return the paths of chosen files that earlier downloads of the asset wrote, and that it no longer has."""
    if not choice.removes:
        return []
    folder = checked_path(choice.path, directory.ref)
    start, matches = f"{folder}/" if folder else "", matcher(choice.pattern, choice.exclude)
    present = Fingerprints()
    present.add(hashes(file.path for file in files), array("q", itertools.repeat(1, files.count)))
    gone = [
        path
        for path in state.written()
        if path.startswith(start) and (matches is None or matches(path[len(start) :])) and not present.has_any([path])
    ]
    # Where the disk ignores case, a file that was renamed in the store may be the file with the earlier name.
    alike: dict[str, list[str]] = {}
    for path in gone:
        alike.setdefault(same_key(path), []).append(path)
    kept = {
        path
        for file in (files if alike else ())
        for path in alike.get(same_key(file.path), ())
        if state.is_one_file(path, file.path)
    }
    return [path for path in gone if path not in kept]


def _check_writable(target: Path) -> None:
    """Raise ``UsageError`` unless ``target`` is a directory or can become one."""
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"Cannot create the directory '{target}': {error.strerror}.") from None
    if not os.access(target, os.W_OK | os.X_OK):
        raise UsageError(f"Expected a directory to write into, but '{target}' is not writable.")


def _check_space(target: Path, needed: int, subject: str) -> None:
    free = shutil.disk_usage(target).free
    if needed > free:
        raise UsageError(
            f"The download of {subject} needs {needed:,} bytes, but the disk of '{target}' has only {free:,}; free "
            "some space, choose another directory, or choose fewer files with a pattern."
        )
