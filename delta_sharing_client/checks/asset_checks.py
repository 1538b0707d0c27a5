"""Checks of volumes, agent skills and models: a row for what all kinds have in common, and what is special in one."""

from __future__ import annotations

import dataclasses
import email.utils
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

from delta_sharing_client.assets.files import FileAsset
from delta_sharing_client.assets.skill_file import SKILL_FILE, front_matter
from delta_sharing_client.checks.check import Failed, Level, NotOffered, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.errors import UsageError
from delta_sharing_client.protocol.names import AssetName

NO_SUCH_NAME = "no-such-name-7f3a"
KEYS = ("awsTempCredentials", "azureUserDelegationSas", "gcpOauthToken", "r2Credentials")
_NAMES = ("name", "modelName", "schema", "share")
_LIMITS = ("minLength", "maxLength", "pattern")
_MOST_FILES = 200
_MOST_BYTES = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of asset: the names of its sections and forms; ``holder`` is what has the files."""

    level: Level
    word: str
    object: str
    holder: str

    @property
    def plural(self) -> str:
        """The segment of its paths."""
        return self.level.subject


VOLUMES = Kind(Level.VOLUMES, "Volume", "Volume Object", "Volume")
SKILLS = Kind(Level.SKILLS, "Skill", "AgentSkill Object", "Skill")
MODELS = Kind(Level.MODELS, "Model", "RegisteredModel Object", "Model Version")
_KINDS = (VOLUMES, SKILLS, MODELS)


class SharedAsset:
    """A listed asset, with the path of its APIs."""

    def __init__(self, server: Server, kind: Kind, number: int = 0) -> None:
        self.server = server
        self.kind = kind
        self.item = server.assets(kind.plural)[number]
        self.names = self.item["share"], self.item["schema"], str(self.item["name"])
        self.listing = ("shares", self.names[0], "schemas", self.names[1], kind.plural)
        self.path = (*self.listing, self.names[2])

    def described(self) -> Answer:
        """Return the response that describes the asset."""
        return self.server.get(*self.path).require()


@dataclasses.dataclass(frozen=True)
class Directory:
    """The directory of an asset's files: where it is, the path of the API for its credentials, and our reader."""

    server: Server
    location: str
    path: tuple[str, ...]
    files: FileAsset

    def credentials(self) -> Answer:
        """Return the response with credentials; ``NotOffered`` without this API."""
        answer = self.server.post(*self.path)
        if self.server.is_absent(answer):
            raise NotOffered(f"{answer.asked} has status {answer.status}.")
        return answer


def directory(server: Server, kind: Kind) -> Directory:
    """Return the directory of the first asset of a kind; for models, of a version."""
    if kind is MODELS:
        model, version = a_version(server)
        number = str(version["version"])
        api = (*model.path, "versions", number, "temporary-model-version-credentials")
        files: FileAsset = server.client.model(AssetName(*model.names)).version(int(number))
        return Directory(server, str(version["storageLocation"]), api, files)
    asset = SharedAsset(server, kind)
    reader = server.client.skill if kind is SKILLS else server.client.volume
    path = (*asset.path, f"temporary-{kind.word.lower()}-credentials")
    return Directory(server, str(asset.item["storageLocation"]), path, reader(AssetName(*asset.names)))


def a_version(server: Server) -> tuple[SharedAsset, dict[str, object]]:
    """Return a listed version of a model, of the model with most versions."""
    models = [SharedAsset(server, MODELS, number) for number in range(min(10, len(server.assets(MODELS.plural))))]
    model = max(models, key=lambda each: len(server.items(*each.path, "versions")))
    for version in server.items(*model.path, "versions"):
        return model, version
    raise NotTestable("The share would need a model with a version that is ready.")


def names_of(items: list[dict[str, object]]) -> list[tuple[str, str]]:
    """Return the names of schema and asset of items, sorted, in lower case."""
    return sorted((str(item.get("schema")).lower(), str(item.get("name")).lower()) for item in items)


def in_another_case(name: str) -> str:
    """Return a name in another case; a name with other letters than those of ASCII as it is."""
    return name.swapcase() if name.isascii() else name


def is_limit(field: str, rule: str) -> bool:
    """Return whether a rule of a form has its own check, because it limits a text, or counts kinds of credentials."""
    return (field in (*_NAMES, "description", "compatibility") and rule in _LIMITS) or rule in (
        "maxProperties",
        "const",
    )


# === What all kinds have in common ===


def _form(kind: Kind, server: Server) -> None:
    for page in server.pages(*SharedAsset(server, kind).listing):
        page.conforms(f"{kind.word}s", lambda field, rule: not is_limit(field, rule))


def _names(kind: Kind, server: Server) -> None:
    for page in server.pages(*SharedAsset(server, kind).listing):
        page.conforms(f"{kind.word}s", lambda field, rule: field in _NAMES and rule in _LIMITS)


def _all(kind: Kind, server: Server) -> None:
    asset = SharedAsset(server, kind)
    listed = server.items("shares", asset.names[0], f"all-{kind.plural}")
    here = names_of([{**item, "schema": asset.names[1]} for item in server.items(*asset.listing)])
    there = [names for names in names_of(listed) if names[0] == asset.names[1].lower()]
    if here != there:
        raise Failed(
            f"Expected the {len(here)} {kind.plural} of the schema {asset.names[1]} in the listing of the share, found "
            f"{len(there)} there{', with other names' if len(here) == len(there) else ''}."
        )


def require_max_results(server: Server, *path: str) -> None:
    """Raise ``Failed`` if a page of a listing has more than maxResults items."""
    for most in (0, 1):
        page = server.get(*path, params={"maxResults": most}).require()
        if len(page.document().get("items") or []) > most:
            raise Failed(f"Expected at most {most} items with maxResults={most}, found more.", page)


def require_pages(server: Server, key: Callable[[dict[str, Any]], Any], *path: str) -> None:
    """Raise ``Failed`` unless the pages of a listing together have each item, known by its ``key``, once."""
    whole = sorted(map(key, server.items(*path)))
    paged = sorted(map(key, server.items(*path, params={"maxResults": 1})))
    if whole != paged or len(set(whole)) < len(whole):
        raise Failed(
            f"Expected each of {len(set(whole))} items once, found {len(whole)} without maxResults and {len(paged)} "
            "with maxResults=1."
        )


def _max_results(kind: Kind, server: Server) -> None:
    require_max_results(server, *SharedAsset(server, kind).listing)


def _pages(kind: Kind, server: Server) -> None:
    require_pages(server, lambda item: str(item.get("name")).lower(), *SharedAsset(server, kind).listing)


def _get(kind: Kind, server: Server) -> None:
    asset = SharedAsset(server, kind)
    answer = asset.described()
    found = answer.conforms(kind.word, lambda field, rule: not is_limit(field, rule))
    for field, name in zip(("share", "schema", "name"), asset.names, strict=True):
        if found[field].lower() != name.lower():
            raise Failed(f"Expected the {field} '{name}', as in the listing, found '{found[field]}'.", answer)


def _case(kind: Kind, server: Server) -> None:
    asset = SharedAsset(server, kind)
    share, schema, name = map(in_another_case, asset.names)
    if not server.items("shares", share, "schemas", schema, kind.plural):
        raise Failed("Expected the items of the schema, whose name is in another case; found none.", server.latest)
    found = server.get("shares", share, "schemas", schema, kind.plural, name).require()
    if found.document().get("storageLocation") != asset.described().document().get("storageLocation"):
        raise Failed("Expected the same object as for the name in its own case, found another one.", found)


def _ids(kind: Kind, server: Server) -> None:
    asset = SharedAsset(server, kind)
    ids = [item["id"] for item in server.items(*asset.listing) if item.get("id")]
    if not ids:
        raise NotTestable(f"The {kind.plural} would need ids, which are optional.")
    if len(set(ids)) < len(ids):
        raise Failed(f"Expected a different id for each of the {kind.plural}, found one twice.")
    listed = server.get(*asset.listing, fresh=True).require()
    described = asset.described()
    for answer, items in ((listed, listed.document().get("items") or []), (described, [described.document()])):
        if not {item["id"] for item in items if item.get("id")} <= set(ids):
            raise Failed("Expected the same id in each response, found another one.", answer)


def _share_id(kind: Kind, server: Server) -> None:
    asset = SharedAsset(server, kind)
    given = {item["shareId"] for item in server.items(*asset.listing) if item.get("shareId")}
    if not given:
        raise NotTestable(f"The {kind.plural} would need a shareId, which is optional.")
    share = server.get("shares", asset.names[0])
    own = share.document()["share"].get("id") if share.status == 200 else None
    if len(given | {own or min(given)}) > 1:
        raise Failed("Expected the id of the share as shareId of each item, found another one.", server.latest)


def _unknown(kind: Kind, server: Server) -> None:
    server.get(*SharedAsset(server, kind).listing, NO_SUCH_NAME).conforms("Error", status=404)


def _unknown_schema(kind: Kind, server: Server) -> None:
    share = SharedAsset(server, kind).names[0]
    server.get("shares", share, "schemas", NO_SUCH_NAME, kind.plural).conforms("Error", status=404)


def _token(kind: Kind, server: Server) -> None:
    asset = SharedAsset(server, kind)
    for path in (asset.listing, asset.path):
        server.get(*path, anonymous=True).conforms("Error", status=401)


def _credentials_token(kind: Kind, server: Server) -> None:
    where = directory(server, kind)
    where.credentials()
    server.post(*where.path, anonymous=True).conforms("Error", status=401)


def _credentials_unknown(kind: Kind, server: Server) -> None:
    where = directory(server, kind)
    where.credentials()
    *_, noun, _, api = where.path
    unknown = "987654321" if kind is MODELS else NO_SUCH_NAME
    server.post(*where.path[:-3], noun, unknown, api).conforms("Error", status=404)


def _credentials(kind: Kind, server: Server) -> None:
    directory(server, kind).credentials().conforms(
        "TemporaryCredentials", lambda field, rule: not is_limit(field, rule)
    )


def _one_kind(kind: Kind, server: Server) -> None:
    where = directory(server, kind)
    found = [name for name in KEYS if where.credentials().require().document().get(name)]
    # A directory of the server's own machine has none.
    if len(found) > 1 or (not found and not where.location.startswith("file:")):
        raise Failed(
            f"Expected exactly one of {', '.join(KEYS)}, found {' and '.join(found) or 'none'}.", where.credentials()
        )


def _expiration(kind: Kind, server: Server) -> None:
    answer = directory(server, kind).credentials().require()
    date = email.utils.parsedate_tz(answer.headers.get("Date", ""))
    now = time.time() if date is None else email.utils.mktime_tz(date)
    if int(answer.document()["expirationTime"]) <= now * 1000:
        raise Failed("Expected an expirationTime after the server's own time, found an earlier one.", answer)


def _files(kind: Kind, server: Server) -> None:
    files = directory(server, kind).files
    server.latest = None
    try:
        listed = list(itertools.islice(files.files(), _MOST_FILES))
        if not listed:
            raise NotTestable(f"The {kind.holder.lower()} would need a file.")
        file = min(listed, key=lambda each: (not each.size, each.size))
        if file.size > _MOST_BYTES:
            raise NotTestable(f"The {kind.holder.lower()} would need a file of at most {_MOST_BYTES} bytes.")
        content = files.read_bytes(file.path)
        with files.open(file.path) as stream:
            stream.seek(len(content) // 2)
            rest = stream.read()
    except UsageError as error:
        raise NotTestable(str(error)) from None
    if len(content) != file.size or content[len(content) // 2 :] != rest:
        raise Failed(f"Expected the {file.size} bytes of a listed file, whole and in ranges; found others.")


_ROWS: tuple[tuple[str, str, str, Callable[[Kind, Server], None]], ...] = (
    ("form", "The listing of a schema's {plural} has the form that the specification says.",
     "List {word}s in a Schema", _form),
    ("names", "Names have the length and the characters that are allowed.", "{object}; Names", _names),
    ("all", "The listing of a share has the {plural} of its schemas.", "List All {word}s in a Share", _all),
    ("max-results", "A page has at most maxResults items.", "List {word}s in a Schema", _max_results),
    ("pages", "The pages of a listing together have each item once.", "List {word}s in a Schema", _pages),
    ("get", "The description has the form that the specification says, and the names of the listing.",
     "Get {word}", _get),
    ("case", "Names in paths are case-insensitive.", "Get {word}", _case),
    ("ids", "An id is unique within its share, and the same in each response.", "{object}", _ids),
    ("share-id", "The shareId is the id of the share.", "{object}", _share_id),
    ("unknown", "An unknown name is a 404, with errorCode and message.", "Get {word}", _unknown),
    ("unknown-schema", "An unknown schema is a 404, with errorCode and message.",
     "List {word}s in a Schema", _unknown_schema),
    ("token", "A request without a token is a 401, with errorCode and message.", "List {word}s in a Schema", _token),
    ("credentials-form", "Temporary credentials have the form that the specification says.",
     "Generate Temporary {holder} Credentials; TemporaryCredentials", _credentials),
    ("credentials-of-one-kind", "Temporary credentials are for one store.",
     "Generate Temporary {holder} Credentials", _one_kind),
    ("credentials-last", "Temporary credentials expire in the future.", "TemporaryCredentials", _expiration),
    ("credentials-token", "Credentials are refused to a request without a token, with a 401.",
     "Generate Temporary {holder} Credentials", _credentials_token),
    ("credentials-unknown", "Credentials for an unknown name are a 404, with errorCode and message.",
     "Generate Temporary {holder} Credentials", _credentials_unknown),
    ("files", "With the credentials, files below the storageLocation can be listed and read.",
     "Generate Temporary {holder} Credentials", _files),
)  # fmt: skip
for _suffix, _statement, _section, _run in _ROWS:
    for _kind in _KINDS:
        if not (_kind is SKILLS and _suffix == "files"):  # the file of a skill has its own check
            _words = {**dataclasses.asdict(_kind), "plural": _kind.plural}
            check(
                f"{_kind.plural}.{_suffix}", _kind.level, _statement.format(**_words),
                f"OpenSharing, {_section.format(**_words)}",
            )(functools.partial(_run, _kind))  # fmt: skip


# === Skills ===


def _limit(field: str) -> Callable[[Server], None]:
    def run(server: Server) -> None:
        asset = SharedAsset(server, SKILLS)
        if not any(item.get(field) for item in server.items(*asset.listing)):
            raise NotTestable(f"The share would need a skill with the field {field}, which is optional.")
        for page in server.pages(*asset.listing):
            page.conforms("Skills", lambda name, rule: name == field and rule in _LIMITS)

    return run


check(
    "skills.description", Level.SKILLS, "A description has at most 1,024 characters.", "OpenSharing, AgentSkill Object"
)(_limit("description"))
check(
    "skills.compatibility", Level.SKILLS, "The field compatibility has at most 500 characters.",
    "OpenSharing, AgentSkill Object",
)(_limit("compatibility"))  # fmt: skip


@check(
    "skills.directory", Level.SKILLS, "The name of a skill is the name of its directory.",
    "OpenSharing, AgentSkill Object",
)  # fmt: skip
def _skill_directory(server: Server) -> None:
    for item in server.assets(SKILLS.plural):
        name = item["storageLocation"].rstrip("/").rpartition("/")[2]
        if name != item["name"]:
            raise Failed(f"Expected a directory called '{item['name']}' as storageLocation, found '{name}'.")


@check(
    "skills.skill-file", Level.SKILLS,
    "With the credentials, SKILL.md can be read below the storageLocation; its front matter has the name of the skill, "
    "and a description.",
    "OpenSharing, Generate Temporary Skill Credentials; Agent Skills specification",
)  # fmt: skip
def _skill_file(server: Server) -> None:
    files = directory(server, SKILLS).files
    server.latest = None
    try:
        matter = front_matter(files.read_text(SKILL_FILE))
    except UsageError as error:
        raise NotTestable(str(error)) from None
    name, description = ((matter or {}).get(field) for field in ("name", "description"))
    if name != files.name or not isinstance(description, str):
        raise Failed(
            f"Expected a front matter in {SKILL_FILE} with the name '{files.name}' and a description, found the name "
            f"{name!r} and {'a' if description else 'no'} description."
        )
