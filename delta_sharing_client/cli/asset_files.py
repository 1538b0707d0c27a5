"""Commands about the files of volumes, skills and models: ``cat``, ``get``, and ``ls`` of a directory.

A command's imports run when it is called, as in ``commands``.
"""

import itertools
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from delta_sharing_client.cli.program import Settings, names_of_assets, open_client
from delta_sharing_client.errors import UsageError
from delta_sharing_client.instants import instant_text
from delta_sharing_client.redact import printable

if TYPE_CHECKING:
    from delta_sharing_client.assets.files import FileAsset
    from delta_sharing_client.client import SharingClient
    from delta_sharing_client.fetch.place import StoredFile
    from delta_sharing_client.protocol.names import AssetName

FileArgument = Annotated[
    str,
    typer.Argument(metavar="ASSET/PATH", help="share.schema.name and a path in it", autocompletion=names_of_assets),
]
FilesArgument = Annotated[
    str,
    typer.Argument(metavar="ASSET[/PATH]", help="share.schema.name, or a path in it", autocompletion=names_of_assets),
]
PatternOption = Annotated[
    Optional[list[str]],
    typer.Option("--pattern", metavar="GLOB", help="Only matching files: '*.pdf', '2024/**/*.csv'; may be repeated."),
]
ExcludeOption = Annotated[
    Optional[list[str]], typer.Option("--exclude", metavar="GLOB", help="No matching files; may be repeated.")
]
ModelVersionOption = Annotated[Optional[int], typer.Option("--version", metavar="N", help="Version of the model.")]
ModelAliasOption = Annotated[
    Optional[str], typer.Option("--alias", metavar="NAME", help="Version of the model that this alias names.")
]
StorageOption = Annotated[
    Optional[list[str]],
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        help="Setting of the store: endpoint, region, virtual_hosted_style_request; may be repeated.",
    ),
]

_BLOCK = 1024 * 1024
# How many files a message names.
_FILES_NAMED = 5
# The kinds of assets that have files, in the order in which a name is looked up.
_NOUNS = ("volume", "skill", "model")


def cat(
    settings: Settings,
    file: FileArgument,
    version: ModelVersionOption = None,
    alias: ModelAliasOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Write a file of a volume, skill or model to stdout.

    Example: delta-sharing cat demo.shop.documents/prices.csv
    Example: delta-sharing cat demo.shop.churn/MLmodel --alias champion
    """
    asset, path = open_files(settings, file, version, alias, storage_option)
    if not path:
        raise UsageError(_which_file(asset, file))
    with asset.open(path) as stream:
        if sys.stdout.isatty():
            _show(stream, path)
        else:
            shutil.copyfileobj(stream, sys.stdout.buffer, _BLOCK)
            sys.stdout.buffer.flush()


def get(
    settings: Settings,
    files: FilesArgument,
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Directory to write into; it is created.")],
    pattern: PatternOption = None,
    exclude: ExcludeOption = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove downloaded files that the asset no longer has.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Download unchanged files, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be downloaded.")] = False,
    version: ModelVersionOption = None,
    alias: ModelAliasOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Download the files of a volume, skill or model. Repeat it to download only changed files.

    Example: delta-sharing get demo.shop.documents documents --pattern "*.md"
    Example: delta-sharing get demo.shop.documents docs --delete --exclude "*.tmp"
    Example: delta-sharing get demo.shop.sales-report skills
    Example: delta-sharing get demo.shop.churn churn --alias champion
    """
    from delta_sharing_client.cli import output

    asset, path = open_files(settings, files, version, alias, storage_option)
    done = asset.download(
        directory, path, pattern or None, exclude=exclude or (), delete=delete, force=force, dry_run=dry_run
    )
    if settings.as_json:
        output.print_json(
            {
                "directory": str(done.directory),
                "downloaded": list(done.downloaded),
                "removed": list(done.removed),
                "unchanged": done.unchanged,
                "bytes": done.bytes,
                "dryRun": done.dry_run,
            }
        )
        return
    for mark, paths in (("", done.downloaded), ("removed: ", done.removed)):
        for one in paths if dry_run or mark else ():
            sys.stdout.write(f"{mark}{printable(one)}\n")
    did = "would download" if dry_run else "downloaded"
    sys.stdout.write(
        f"{did} {len(done.downloaded)} files, {done.bytes} bytes, into {printable(str(done.directory))}; "
        f"{done.unchanged} unchanged\n"
    )


COMMANDS: dict[str, Callable[..., None]] = {"cat": cat, "get": get}


def list_files(
    settings: Settings,
    text: str,
    *,
    recursive: bool,
    version: int | None = None,
    alias: str | None = None,
    storage_option: Sequence[str] | None = None,
) -> None:
    """Print a directory of an asset: its subdirectories, and its files with size and time."""
    from delta_sharing_client.cli import output

    asset, path = open_files(settings, text, version, alias, storage_option)
    if recursive and not settings.as_json:
        # Files are printed as they arrive, because a volume may have millions.
        for file in asset.files(path):
            sys.stdout.write(f"{file.size:>14}  {_time(file) or '':<27}  {printable(file.path)}\n")
        return
    items = list(_items(asset, path, recursive=recursive))
    output.show_listing(items, ["path", "size", "modified"], settings)


def _items(asset: "FileAsset", path: str, *, recursive: bool) -> Iterator[dict[str, Any]]:
    if not recursive:
        folders = asset.filesystem().ls(path) if not path or asset.filesystem().isdir(path) else []
        yield from ({"path": f"{one['name']}/", "size": None} for one in folders if one["type"] == "directory")
    for file in asset.files(path, recursive=recursive):
        yield {"path": file.path, "size": file.size, "modified": _time(file), "etag": file.etag}


def _time(file: "StoredFile") -> str | None:
    return None if file.modified is None else instant_text(file.modified)


def open_files(
    settings: Settings,
    text: str,
    version: int | None,
    alias: str | None,
    storage_option: Sequence[str] | None = None,
) -> "tuple[FileAsset, str]":
    """Return the asset and the path in it for ``[<profile>#]share.schema.name[/path]``.

    If several assets have this name, volumes come before skills, and skills before models. With a version or alias,
    only models are considered.
    """
    from delta_sharing_client.protocol.names import AssetName

    profile, name, path = _split(settings.profile, text)
    client = open_client(profile, storage_options=_storage_options(storage_option))
    full_name = AssetName.parse(name, "asset")
    noun = "model" if version is not None or alias is not None else _noun(client, full_name)
    if noun != "model":
        return (client.skill if noun == "skill" else client.volume)(full_name), path
    if version is not None and alias is not None:
        raise UsageError("Expected only one of --version and --alias, found both.")
    model = client.model(full_name)
    if alias is not None:
        return model.alias(alias), path
    if version is None:
        versions = ", ".join(str(one.version) for one in model.versions()) or "none that is ready"
        raise UsageError(
            f"Expected a version of model {full_name}: give --version or --alias. Its versions: {versions}."
        )
    return model.version(version), path


def _which_file(asset: "FileAsset", text: str) -> str:
    """Return the message for the name of an asset where the name of one of its files was expected."""
    found = [one.path for one in itertools.islice(asset.files(), _FILES_NAMED + 1)]
    if not found:
        return f"'{text}' has no files."
    files = f"{', '.join(found[:_FILES_NAMED])}{' and others' if len(found) > _FILES_NAMED else ''}"
    return f"Expected the path of a file, such as '{text}/{found[0]}'. '{text}' has {files}."


def _noun(client: "SharingClient", name: "AssetName") -> str:
    from delta_sharing_client.protocol.asset_kinds import BY_NOUN, AssetRef

    nouns = (noun for noun in _NOUNS if client._rest.is_shared(AssetRef(BY_NOUN[noun], name)))
    # If no asset has this name, the error is about a volume.
    return next(nouns, "volume")


def _split(profile: str | None, text: str) -> tuple[str | None, str, str]:
    """Return the profile, the full name and the path."""
    from delta_sharing_client.protocol.names import split_files_url

    named, name, path = split_files_url(text)
    if named is not None and profile not in (None, named):
        raise UsageError(f"Two profiles were given, {profile!r} and {named!r}; give one of them.")
    return named or profile, name, path


def _storage_options(settings: Sequence[str] | None) -> dict[str, str]:
    options = {}
    for one in settings or ():
        name, mark, value = one.partition("=")
        if not mark or not name:
            raise UsageError(f"Expected --storage-option as NAME=VALUE, such as 'region=eu-west-1', found {name!r}.")
        options[name] = value
    return options


def _show(stream: Any, path: str) -> None:
    """Print a text file in the terminal. Other files are refused, because their bytes could control the terminal."""
    for line in stream:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise UsageError(
                f"The file '{path}' is not text; write it to a file: 'delta-sharing cat ... > file'."
            ) from None
        sys.stdout.write(printable(text.rstrip("\r\n").expandtabs()) + "\n")
