"""The skills of a share as the extension ``io.modelcontextprotocol/skills`` serves them (SEP-2640): entries with the
front matter, and with the digest and size of every file.

A digest needs the bytes of a file once; it is known until the listing states another version of the file.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import hashlib
import itertools
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from delta_sharing_client.assets.directory import Directory
from delta_sharing_client.assets.naming import is_inside, same_key
from delta_sharing_client.assets.skill import Skill
from delta_sharing_client.assets.skill_file import SKILL_FILE, json_front_matter
from delta_sharing_client.client import SharingClient
from delta_sharing_client.decode.file_bytes import gather
from delta_sharing_client.errors import DataError, DeltaSharingError, NotFoundError
from delta_sharing_client.fetch.place import StoredFile
from delta_sharing_client.mcp.addresses import SKILL, Address, unknown
from delta_sharing_client.mcp.calls import told
from delta_sharing_client.mcp.limits import MB, Limits
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.run import loop
from delta_sharing_client.threads import mapped

S = TypeVar("S")
T = TypeVar("T")

MOST_FILES = 512
MOST_BYTES = 16 * 1024 * 1024
"""The limits of the specification ("Limits"): a host loads no larger skill."""

_NAME = re.compile(r"(?!.{65})[a-z0-9]+(?:-[a-z0-9]+)*")
_AT_ONCE = 8
_MOST_ATTEMPTS = 3
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The entry of a skill. ``digests`` has the digest of each file, as entries state it, SKILL.md first."""

    root: Address
    frontmatter: Mapping[str, Any]
    digests: Mapping[StoredFile, str]

    def entry(self) -> dict[str, object]:
        """Return the ``Skill`` object of the specification."""
        return {
            "uri": str(self.root.at(SKILL_FILE)),
            "frontmatter": self.frontmatter,
            "resources": [
                {"uri": str(self.root.at(file.path)), "digest": digest, "size": file.size}
                for file, digest in self.digests.items()
            ],
        }

    def file(self, path: str) -> StoredFile:
        """Return the file at ``path``. Raises ``NotFoundError`` if there is none."""
        file = next((file for file in self.digests if file.path == path), None)
        if file is None:
            raise unknown(self.root.at(path))
        return file


class NotServed(DataError):
    """A skill that a host could not load."""


@dataclasses.dataclass(frozen=True)
class _Listed:
    """A skill with its files as listed, SKILL.md first, and the last manifest, if any."""

    root: Address
    skill: Skill
    files: Sequence[StoredFile]
    before: Manifest | None

    @property
    def missing(self) -> list[StoredFile]:
        """The files whose digests are not known."""
        known = {} if self.before is None else self.before.digests
        return [file for file in self.files if not (_is_stated(file) and file in known)]

    @property
    def bytes(self) -> int:
        """How many bytes have to be downloaded."""
        return sum(file.size for file in self.missing)


class Skills:
    """The skills that ``client`` finds. A call downloads what ``limits`` allow. Thread-safe."""

    def __init__(self, client: SharingClient, limits: Limits) -> None:
        self._client, self._limits = client, limits
        self._known: dict[Address, Manifest] = {}
        self._logged: dict[AssetName, str] = {}

    def page(self, after: Address | None, most: int) -> tuple[list[Manifest], dict[str, str], Address | None]:
        """Return the skills in the order of their addresses, from the one that follows ``after``: those of ``most``
        that can be served; the reasons why others cannot, by URI; and where to continue, ``None`` at the end."""
        skills = {_root(skill): skill for skill in self._client.list_all_skills()}
        left = sorted((root for root in skills if after is None or _order(root) > _order(after)), key=_order)
        listed = _mapped(lambda root: self._tried(skills[root], self._list), left[:most])
        end, size = 0, 0
        for one in listed:
            size += one.bytes if isinstance(one, _Listed) else 0
            if end and size > self._limits.megabytes * MB:
                break
            end += 1
        found = _mapped(
            lambda one: one if isinstance(one, str) else self._tried(one.skill, lambda _: self._digested(one)),
            listed[:end],
        )
        results = dict(zip(left, found, strict=False))
        refused = {str(root.at(SKILL_FILE)): one for root, one in results.items() if isinstance(one, str)}
        served = [one for one in results.values() if isinstance(one, Manifest)]
        return served, refused, left[end - 1] if len(left) > end else None

    def _tried(self, skill: Skill, call: Callable[[Skill], T]) -> T | str:
        try:
            return call(skill)
        except DeltaSharingError as error:
            reason = told(str(error))
        if self._logged.get(skill.full_name) != reason:
            self._logged[skill.full_name] = reason
            _log.warning("The skill %s is not served to assistants: %s", skill.full_name, reason)
        return reason

    def at(self, address: Address) -> Manifest:
        """Return the skill at ``address``. Raises ``NotFoundError`` unless it is shared with exactly this spelling and
        hosts can load it, and the errors of ``Skill.files``."""
        return self._at(address, self._client.skill(address.asset))

    def _at(self, address: Address, skill: Skill) -> Manifest:
        try:
            manifest = self.manifest(skill)
        except NotServed as error:
            raise unknown(address, error.message.removesuffix(".")) from None
        if str(manifest.root) != str(address.at("")):
            raise unknown(address)
        return manifest

    def manifest(self, skill: Skill) -> Manifest:
        """Return the manifest of ``skill`` as its files are now.

        Raises ``NotServed`` if a host could not load it: it is too large, its front matter is damaged or has another
        name, or its files cannot be stored side by side. Raises the errors of ``Skill.files``.
        """
        return self._digested(self._list(skill))

    def _list(self, skill: Skill) -> _Listed:
        root = _root(skill)
        if not _NAME.fullmatch(root.asset.name):
            raise NotServed(f"'{skill}' is no name of a skill: expected lowercase letters, digits and single hyphens.")
        listed = _Listed(root, skill, _files(skill), self._known.get(root))
        if listed.bytes > self._limits.megabytes * MB:
            raise NotServed(
                f"The files of skill {skill} have {listed.bytes / MB:,.1f} MB, but a call may download at most "
                f"{self._limits.megabytes:,} MB; whoever runs this server can raise --max-megabytes."
            )
        return listed

    def _digested(self, listed: _Listed) -> Manifest:
        for attempt in range(_MOST_ATTEMPTS):
            try:
                return self._digested_once(listed if attempt == 0 else self._list(listed.skill))
            except NotServed:
                raise
            except (NotFoundError, DataError) as error:
                # Files were replaced or removed since they were listed.
                problem = error.message
        raise DataError(f"The files of skill {listed.skill} are not as they were listed: {problem.removesuffix('.')}.")

    def _digested_once(self, listed: _Listed) -> Manifest:
        root, skill, before = listed.root, listed.skill, listed.before
        read, text = _read(skill._directory, listed.missing)
        frontmatter = _frontmatter(skill, text) if before is None or listed.files[0] in read else before.frontmatter
        if frontmatter["name"] != root.asset.name:
            raise NotServed(
                f"Expected the name '{root.asset.name}' in the front matter of {skill._ref}, found "
                f"'{frontmatter['name'][:100]}'."
            )
        known = {} if before is None else before.digests
        digests = {file: read.get(file) or known[file] for file in listed.files}
        manifest = self._known[root] = Manifest(root, frontmatter, digests)
        return manifest

    def read(self, address: Address) -> bytes:
        """Return the file at ``address``; its digest is the one in the manifest now. Raises ``NotFoundError`` if there
        is none, ``DataError`` if it changes meanwhile, and the errors of ``manifest``."""
        skill = self._client.skill(address.asset)
        return self.read_file(skill, self._at(address, skill), address.path)

    def read_file(self, skill: Skill, manifest: Manifest, path: str) -> bytes:
        """Return the file at ``path``, as ``read`` does, if the ``manifest`` of ``skill`` has it."""
        file, directory = manifest.file(path), skill._directory
        data = bytes(loop.cancellable(lambda: directory.read(file.path, file)))
        if _digest(data) != manifest.digests[file]:
            # The listing states the same version for other bytes, or the file was replaced since it was listed.
            self._known.pop(manifest.root, None)
            raise DataError(f"The file '{path}' of {skill._ref} was replaced while it was read; read it again.")
        return data


def _root(skill: Skill) -> Address:
    """Return the address of a skill with its names as the server spells them."""
    item, name = skill._item, skill.full_name
    stated = AssetName(item.share or name.share, item.schema or name.schema, item.name)
    return Address(SKILL, stated if stated == name else name, "")


def _mapped(call: Callable[[S], T], items: Sequence[S]) -> list[T]:
    # In copies of this context, so that a cancelled call ends what its threads have started, too.
    inside = [(contextvars.copy_context(), item) for item in items]
    return mapped(lambda one: one[0].run(call, one[1]), inside, most=_AT_ONCE, name="skills")


def _order(root: Address) -> tuple[str, str, str]:
    return root.asset.share, root.asset.schema, root.asset.name


def _files(skill: Skill) -> list[StoredFile]:
    """Return the files of a skill, SKILL.md first. Raises ``NotServed`` if a host could not load them."""
    with contextlib.closing(skill._directory.files()) as listing:
        files = list(itertools.islice(listing, MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise NotServed(f"The skill {skill} has more than {MOST_FILES} files, so hosts need not load it.")
    total = sum(file.size for file in files)
    if total > MOST_BYTES:
        raise NotServed(f"The skill {skill} has {total:,} bytes, more than {MOST_BYTES:,}, so hosts need not load it.")
    if not any(file.path == SKILL_FILE for file in files):
        raise NotServed(f"The skill {skill} has no {SKILL_FILE}.")
    _check_paths([file.path for file in files], skill)
    return sorted(files, key=lambda file: (file.path != SKILL_FILE, file.path))


def _check_paths(paths: Sequence[str], skill: Skill) -> None:
    """Raise ``NotServed`` unless any file system can hold all ``paths`` in one directory."""
    known: dict[str, tuple[str, bool]] = {}
    if len(set(paths)) < len(paths):
        raise NotServed(f"The store lists a file of the skill {skill} twice.")
    for path in paths:
        if not is_inside(path):
            raise NotServed(f"The skill {skill} has a file at '{path}', which no directory can hold.")
        names = path.split("/")
        for depth in range(1, len(names) + 1):
            place = "/".join(names[:depth]), depth == len(names)
            other = known.setdefault(same_key(place[0]), place)
            if other != place:
                raise NotServed(
                    f"The skill {skill} has a file at '{path}' beside '{other[0]}', which some systems do not "
                    "distinguish."
                )


def _is_stated(file: StoredFile) -> bool:
    """Return whether a listing that states the same facts again states the same content."""
    return file.etag is not None or file.modified is not None


def _read(directory: Directory, files: Sequence[StoredFile]) -> tuple[dict[StoredFile, str], bytes]:
    """Return the digest of each file, and the content of SKILL.md if it is among them."""
    digests: dict[StoredFile, str] = {}
    text = b""
    left: Iterator[StoredFile] = iter(files)

    async def read_next() -> None:
        nonlocal text
        for file in left:
            data = await directory.read(file.path, file)
            digests[file] = _digest(data)
            if file.path == SKILL_FILE:
                text = bytes(data)

    async def read_all() -> None:
        await gather([read_next() for _ in range(min(len(files), directory.options.max_concurrent_requests))])

    if files:
        loop.cancellable(read_all)
    return digests, text


def _digest(data: bytes | memoryview) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _frontmatter(skill: Skill, data: bytes) -> Mapping[str, Any]:
    try:
        return json_front_matter(data.decode("utf-8"), str(skill._ref))
    except UnicodeDecodeError as error:
        raise NotServed(f"Expected UTF-8 in {SKILL_FILE} of {skill._ref}, but byte {error.start} is not.") from None
    except DataError as error:
        raise NotServed(error.message) from None
