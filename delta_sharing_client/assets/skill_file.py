"""``SKILL.md``: its front matter, and how it differs from the server's listing (Agent Skills specification)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from delta_sharing_client import optional
from delta_sharing_client.errors import DataError
from delta_sharing_client.protocol.messages import SkillItem
from delta_sharing_client.redact import printable

SKILL_FILE = "SKILL.md"
_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_SHOWN = 60


def compare(text: str, item: SkillItem, location: str) -> list[str]:
    """Return how the front matter in ``text`` and the directory's name differ from the listed ``item``, as clauses.

    Fields other than the required name and description are compared only if both state them. Raises ``UsageError`` if
    ``pyyaml`` is not installed.
    """
    differences = []
    folder = unquote(location.rstrip("/").rpartition("/")[2])
    if folder != item.name:
        differences.append(f"its directory is named {_shown(folder)}")
    matter = front_matter(text)
    if matter is None:
        return [*differences, f"{SKILL_FILE} has no front matter that can be read"]
    listed = {
        "name": item.name,
        "description": item.description,
        "license": item.license,
        "compatibility": item.compatibility,
        "allowed-tools": item.allowed_tools,
    }
    for name, value in listed.items():
        stated = _text(matter.get(name))
        is_required = name in ("name", "description")
        if (stated is None or value is None) and not is_required:
            continue
        if stated is None:
            differences.append(f"{SKILL_FILE} has no {name}")
        elif stated.split() != (value or "").split():
            differences.append(f"{SKILL_FILE} has the {name} {_shown(stated)}, the server has {_shown(value or '')}")
    return differences


def front_matter(text: str) -> Mapping[str, Any] | None:
    """Return the fields of the front matter; ``None`` if there is none, or if it cannot be read."""
    return split(text)[0]


def split(text: str) -> tuple[Mapping[str, Any] | None, str]:
    """Return the fields of the front matter, and the text after it; ``None`` and all text if there is none, or if it
    cannot be read."""
    match = _FRONT_MATTER.match(text)
    provider_yaml = optional.load("delta_sharing_client.provider_yaml", "storage")
    try:
        fields = None if match is None else provider_yaml.parse(match[1])
    except provider_yaml.ProviderYamlError:
        fields = None
    return (fields, text[match.end() :]) if match is not None and isinstance(fields, dict) else (None, text)


def json_front_matter(text: str, subject: str) -> dict[str, Any]:
    """Return the fields of the front matter as JSON values, unchanged. Raises ``DataError`` about ``subject`` if there
    is none, or if it cannot be read or has no name or description, and ``UsageError`` if ``pyyaml`` is not
    installed."""
    match = _FRONT_MATTER.match(text)
    provider_yaml = optional.load("delta_sharing_client.provider_yaml", "storage")
    wanted = f"Expected a front matter with name and description at the beginning of {SKILL_FILE} of {subject}"
    try:
        fields = None if match is None else provider_yaml.parse_json(match[1])
    except provider_yaml.ProviderYamlError as error:
        raise DataError(f"{wanted}, but it cannot be read: {error}.") from None
    if not isinstance(fields, dict):
        raise DataError(f"{wanted}, found none.")
    for name in ("name", "description"):
        if not (isinstance(fields.get(name), str) and fields[name].strip()):
            raise DataError(f"{wanted}, but its {name} is missing or is no text.")
    return fields


def _text(value: Any) -> str | None:
    """Return a scalar as a string, and a list as its items separated by spaces."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    return None if value is None or isinstance(value, dict) else str(value)


def _shown(text: str) -> str:
    return f"'{printable(text[:_SHOWN])}{'...' if len(text) > _SHOWN else ''}'"
