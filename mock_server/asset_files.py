"""Directories that are shared as volumes, skills and models; the listings are made from their content.

A skill's directory contains ``SKILL.md``, whose front matter describes the skill (Agent Skills specification). A
model's directory contains a directory for each version, named by its number.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union
from urllib.parse import urlsplit
from urllib.request import url2pathname

from delta_sharing_client import provider_yaml

from .catalog import READY, AssetEntry, AssetKind, VersionEntry, asset_id, split_name, unique_assets
from .errors import ConfigError, shown

# The names that OpenSharing, "Names", allows.
_NAME = re.compile(r"[^ /\x00-\x1f\x7f]{1,255}").fullmatch
Location = Union[str, "os.PathLike[str]"]
STATUSES = ("PENDING_REGISTRATION", "FAILED_REGISTRATION", READY)
_SKILL_FILE = "SKILL.md"
# The limits of OpenSharing, "AgentSkill Object".
_SKILL_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*").fullmatch
_MOST_NAME, _MOST_DESCRIPTION, _MOST_COMPATIBILITY = 64, 1024, 500
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)


def volume(names: tuple[str, str, str], location: Location, about: Mapping[str, object] | None = None) -> AssetEntry:
    """Return the volume ``names`` (share, schema, name) whose files are at ``location``."""
    return _entry(AssetKind.VOLUME, names, storage_of(location), about)


def skill(names: tuple[str, str, str], location: Location, about: Mapping[str, object] | None = None) -> AssetEntry:
    """Return a skill; fields that ``about`` lacks are taken from the front matter of a local ``SKILL.md``.

    Raises `ConfigError` if the skill has no description, or if its name differs from the directory's name.
    """
    storage = storage_of(location)
    told = {**_front_matter(storage), **(about or {})}
    name, directory = names[2], storage.rstrip("/").rpartition("/")[2]
    problem = None
    if _SKILL_NAME(name) is None or len(name) > _MOST_NAME:
        problem = f"its name must be at most {_MOST_NAME} lowercase letters, digits and single hyphens"
    elif name != directory:
        problem = f"its name must be the name of its directory, '{directory}'"
    elif not told.get("description"):
        problem = "it has no description"
    elif len(str(told["description"])) > _MOST_DESCRIPTION:
        problem = f"its description must have at most {_MOST_DESCRIPTION} characters"
    elif len(str(told.get("compatibility", ""))) > _MOST_COMPATIBILITY:
        problem = f"its compatibility must have at most {_MOST_COMPATIBILITY} characters"
    if problem is not None:
        raise ConfigError(f"The skill '{'.'.join(names)}' cannot be shared: {problem}.")
    return _entry(AssetKind.SKILL, names, storage, told)


def model(
    names: tuple[str, str, str],
    location: Location | None = None,
    about: Mapping[str, object] | None = None,
    *,
    versions: tuple[VersionEntry, ...] = (),
    aliases: Mapping[str, int] | None = None,
) -> AssetEntry:
    """Return a model; without ``versions``, its versions are the numbered directories in a local ``location``.

    Raises `ConfigError` if an alias names a version that does not exist.
    """
    storage = None if location is None else storage_of(location)
    if not versions and storage is not None and (root := local_directory(storage)) is not None:
        numbers = sorted(int(path.name) for path in root.iterdir() if path.name.isdecimal() and path.is_dir())
        versions = tuple(version(names, number, root / str(number)) for number in numbers)
    full_name = ".".join(names)
    known = [one.version for one in versions]
    if len(set(known)) < len(known):
        raise ConfigError(f"The model '{full_name}' has two versions with the same number.")
    for alias, number in (aliases or {}).items():
        if number not in known:
            raise ConfigError(
                f"The alias '{alias}' of the model '{full_name}' names version {number}, which does not exist."
            )
    entry = _entry(AssetKind.MODEL, names, storage, about)
    return dataclasses.replace(entry, versions=versions, aliases=aliases or {})


def version(
    names: tuple[str, str, str],
    number: int,
    location: Location,
    status: str = READY,
    about: Mapping[str, object] | None = None,
) -> VersionEntry:
    """Return version ``number`` of the model ``names``, whose files are at ``location``."""
    if number < 1:
        raise ConfigError(f"A version of the model '{'.'.join(names)}' must have a number of 1 or more, not {number}.")
    if status not in STATUSES:
        raise ConfigError(
            f"The status of a version of '{'.'.join(names)}' must be one of {', '.join(STATUSES)}, not '{status}'."
        )
    given = _own_id(AssetKind.MODEL, (*names[:2], f"{names[2]}\0{number}"), about)
    return VersionEntry(number, storage_of(location), status, {"id": given, **_others(about)})


def from_mappings(
    volumes: Mapping[str, Location] | None = None,
    skills: Mapping[str, Location] | None = None,
    models: Mapping[str, Location | Mapping[int, Location]] | None = None,
    aliases: Mapping[str, Mapping[str, int]] | None = None,
) -> tuple[AssetEntry, ...]:
    """Return assets by full names; a model is a directory of versions, or ``{version: directory}``."""
    found = [volume(split_name(name, "volume"), where) for name, where in (volumes or {}).items()]
    found += [skill(split_name(name, "skill"), where) for name, where in (skills or {}).items()]
    unknown = set(aliases or {}) - set(models or {})
    if unknown:
        raise ConfigError(f"There are aliases for '{min(unknown)}', but no such model is shared.")
    for name, where in (models or {}).items():
        names, own = split_name(name, "model"), (aliases or {}).get(name)
        if isinstance(where, Mapping):
            versions = tuple(version(names, number, place) for number, place in where.items())
            found.append(model(names, versions=versions, aliases=own))
        else:
            found.append(model(names, where, aliases=own))
    return unique_assets(found)


def storage_of(location: Location) -> str:
    """Return the URL of a location; for a local directory, its ``file:`` URL. Raises `ConfigError` if the directory
    does not exist."""
    address = os.fspath(location)
    if "://" in address and not address.startswith("file:"):
        return address
    path = Path(url2pathname(urlsplit(address).path)) if address.startswith("file:") else Path(address)
    if not path.is_dir():
        raise ConfigError(f"A directory was expected at '{path}', but there is none.")
    return path.resolve().as_uri()


def local_directory(storage: str) -> Path | None:
    """Return the directory of a ``file:`` URL; ``None`` for other URLs."""
    return Path(url2pathname(urlsplit(storage).path)) if storage.startswith("file:") else None


def _check_names(kind: AssetKind, names: tuple[str, str, str]) -> None:
    for name, noun in zip(names, ("share", "schema", kind.noun), strict=True):
        if _NAME(name) is None or (noun != "share" and "." in name):
            dot = "" if noun == "share" else "dot, "
            raise ConfigError(
                f"The name of a {noun} must be 1 to 255 characters without {dot}space, slash and control characters, "
                f"not {shown(name)}."
            )


def _entry(
    kind: AssetKind, names: tuple[str, str, str], storage: str | None, about: Mapping[str, object] | None
) -> AssetEntry:
    _check_names(kind, names)
    return AssetEntry(kind, *names, storage, _own_id(kind, names, about), _others(about))


def _own_id(kind: AssetKind, names: tuple[str, str, str], about: Mapping[str, object] | None) -> str:
    return str((about or {}).get("id") or asset_id(kind, *names))


def _others(about: Mapping[str, object] | None) -> dict[str, object]:
    return {name: value for name, value in (about or {}).items() if name != "id" and value is not None}


def _front_matter(storage: str) -> dict[str, object]:
    """Return the fields of a local ``SKILL.md`` under the protocol's names; none for a skill that is not on this
    machine."""
    root = local_directory(storage)
    if root is None:
        return {}
    path = root / _SKILL_FILE
    try:
        matched = _FRONT_MATTER.match(path.read_text(encoding="utf-8-sig"))
        content: Any = provider_yaml.parse(matched[1]) if matched else None
    except OSError as error:
        raise ConfigError(f"The skill's '{path}' cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, provider_yaml.ProviderYamlError) as error:
        raise ConfigError(f"The front matter of '{path}' is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict):
        raise ConfigError(f"'{path}' must begin with front matter: YAML between two lines of three dashes.")
    names = {"description": "description", "license": "license", "compatibility": "compatibility"}
    names["allowed-tools"] = "allowedTools"
    told: dict[str, object] = {ours: str(content[key]) for key, ours in names.items() if content.get(key) is not None}
    if isinstance(content.get("metadata"), dict):
        told["metadata"] = {str(key): str(value) for key, value in content["metadata"].items()}
    return told
