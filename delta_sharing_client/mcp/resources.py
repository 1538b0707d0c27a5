"""The files of skills, volumes and model versions as resources, with their bytes as the provider wrote them."""

from __future__ import annotations

import mimetypes

from mcp_types import Resource, ResourceTemplate

from delta_sharing_client.assets.files import FileAsset
from delta_sharing_client.assets.skill_file import SKILL_FILE
from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.listing import list_pages
from delta_sharing_client.fetch.place import StoredFile
from delta_sharing_client.fetch.source import Fetcher
from delta_sharing_client.mcp.addresses import SKILL, TEMPLATES, VOLUME, Address, unknown
from delta_sharing_client.mcp.limits import MB, Limits
from delta_sharing_client.mcp.skills import Manifest, Skills
from delta_sharing_client.run import loop

DIRECTORY = "inode/directory"
MOST_CHILDREN = 500
_MOST_SKILLS = 100
_TEXTS = {
    SKILL: ("Files of agent skills", "A file of an agent skill, such as SKILL.md."),
    VOLUME: ("Files of volumes", "A file of a volume."),
    "model": ("Files of models", "A file of a version of a model, such as version 3."),
}
# Without the tables of this machine's system, which differ.
_TYPES = mimetypes.MimeTypes()
# Python knows it only since 3.14.
_TYPES.add_type("text/markdown", ".md")


class Resources:
    """What ``client`` finds, as resources. Methods raise ``NotFoundError`` for a URI at which nothing is served."""

    def __init__(self, client: SharingClient, skills: Skills, limits: Limits) -> None:
        self._client, self._skills, self._limits = client, skills, limits

    def templates(self) -> list[ResourceTemplate]:
        """Return the forms of all URIs."""
        return [
            ResourceTemplate(uri_template=template, name=_TEXTS[scheme][0], description=_TEXTS[scheme][1])
            for scheme, template in TEMPLATES.items()
        ]

    def listed(self) -> list[Resource]:
        """Return SKILL.md of the first skills; everything else is found by lists, directories and templates."""
        served, _, _ = self._skills.page(None, _MOST_SKILLS)
        return [_skill_file(manifest, manifest.file(SKILL_FILE)) for manifest in served]

    def read(self, uri: str) -> tuple[str | bytes, str]:
        """Return the content of a file, as text if it is UTF-8, and its media type.

        Raises ``UsageError`` for a file that is larger than a call may download, ``DataError`` for one that is replaced
        meanwhile, and the errors of ``FileAsset.files``.
        """
        address = Address.parse(uri)
        if not address.path:
            raise unknown(uri, "this is a directory")
        data = self._skills.read(address) if address.scheme == SKILL else self._read(address)
        media_type = media_type_of(address.path)
        try:
            return data.decode("utf-8"), media_type or "text/plain"
        except UnicodeDecodeError:
            return data, media_type or "application/octet-stream"

    def _read(self, address: Address) -> bytes:
        asset, most = self._asset(address), self._limits.megabytes * MB
        file = asset.stat(address.path)
        if file.size > most:
            raise UsageError(
                f"The file '{address}' has {file.size:,} bytes, but a call may download at most {most:,}; whoever runs "
                "this server can raise --max-megabytes."
            )
        return bytes(loop.cancellable(lambda: asset._directory.read(file.path, file)))

    def children(self, uri: str, cursor: str | None) -> tuple[list[Resource], str | None]:
        """Return the files and directories in a directory, from ``cursor`` on, and the next cursor if there are more.
        Raises ``UsageError`` for a cursor that no call has returned."""
        address = Address.parse(uri)
        offset = 0 if cursor is None else _number(cursor)
        found = self._in_skill(address) if address.scheme == SKILL else self._in_directory(address)
        end = offset + MOST_CHILDREN
        return found[offset:end], str(end) if len(found) > end else None

    def _in_skill(self, address: Address) -> list[Resource]:
        manifest = self._skills.at(address)
        folder = f"{address.path}/" if address.path else ""
        inside = [file for file in manifest.digests if file.path.startswith(folder)]
        if not inside:
            raise unknown(address, "this is no directory")
        names = dict.fromkeys(file.path[len(folder) :].partition("/")[0] for file in inside)
        files = {file.path: file for file in inside}
        places = [folder + name for name in names]
        return [
            _skill_file(manifest, files[place]) if place in files else _folder(manifest.root.at(place))
            for place in places
        ]

    def _in_directory(self, address: Address) -> list[Resource]:
        directory = self._asset(address)._directory
        files: list[StoredFile] = []
        # A store may state a directory on several pages.
        folders: dict[str, None] = {}
        is_there = not address.path

        async def collect() -> None:
            nonlocal is_there
            listed = list_pages(Fetcher(place), address.path, recursive=False, subject=str(directory.ref))
            async for page in listed:
                files.extend(page.files)
                folders.update(dict.fromkeys(page.folders))
                is_there = is_there or bool(page.files or page.folders or address.path in page.markers)

        place = directory.place
        with directory.about(address.path):
            loop.cancellable(collect)
        if not is_there:
            raise unknown(address, "this is no directory")
        return [_folder(address.at(path)) for path in folders] + [_file(address.at(file.path), file) for file in files]

    def _asset(self, address: Address) -> FileAsset:
        if address.version is None:
            return self._client.volume(address.asset)
        return self._client.model(address.asset).version(address.version)


def media_type_of(path: str) -> str | None:
    """Return the media type of a file by its name, if it is known."""
    return _TYPES.guess_type(path)[0]


def _skill_file(manifest: Manifest, file: StoredFile) -> Resource:
    resource = _file(manifest.root.at(file.path), file)
    if file.path != SKILL_FILE:
        return resource
    return resource.model_copy(
        update={"name": manifest.frontmatter["name"], "description": manifest.frontmatter["description"]}
    )


def _file(address: Address, file: StoredFile) -> Resource:
    name = address.path.rpartition("/")[2]
    return Resource(uri=str(address), name=_shown(name), mime_type=media_type_of(name), size=file.size)


def _folder(address: Address) -> Resource:
    return Resource(uri=str(address), name=_shown(address.path.rpartition("/")[2]), mime_type=DIRECTORY)


def _shown(name: str) -> str:
    # A name that is not UTF-8 is no text; its URI keeps the bytes.
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise UsageError(f"Expected a cursor that this server returned, found {cursor[:100]!r}.")
    return int(cursor)
