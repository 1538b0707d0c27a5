"""Checks of the versions and aliases of models."""

from __future__ import annotations

from typing import Any

from delta_sharing_client.checks.asset_checks import (
    KEYS,
    MODELS,
    NO_SUCH_NAME,
    SharedAsset,
    a_version,
    is_limit,
    require_max_results,
    require_pages,
)
from delta_sharing_client.checks.check import Failed, Level, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server

# Aliases are not listed; these are the specification's examples, and other usual ones.
_ALIASES = ("champion", "production", "challenger", "staging", "latest")
_LIST, _GET = "OpenSharing, List Model Versions", "OpenSharing, Get Model Version"
_ALIAS = "OpenSharing, Get Model Version by Alias"
_MOST_LOOKED_FOR = 10


def _versions(server: Server) -> tuple[str, ...]:
    return (*a_version(server)[0].path, "versions")


def _same(answer: Answer, other: dict[str, Any], *fields: str) -> None:
    """Raise ``Failed`` unless a response describes the same version as another object."""
    found = answer.require().document()
    for field in (*fields, "version", "storageLocation"):
        if found.get(field) != other.get(field):
            raise Failed(f"Expected {field} {other.get(field)!r}, found {found.get(field)!r}.", answer)


@check("models.versions-form", Level.MODELS, "Versions are listed as the specification says.", _LIST)
def _form(server: Server) -> None:
    for page in server.pages(*_versions(server)):
        page.conforms("ModelVersions", lambda field, rule: not is_limit(field, rule))


@check("models.versions-ready", Level.MODELS, "Only versions with the status READY are listed.", _LIST)
def _ready(server: Server) -> None:
    for page in server.pages(*_versions(server)):
        page.conforms("ModelVersions", lambda field, rule: field == "status" and rule == "const")


@check("models.versions-max-results", Level.MODELS, "A page has at most maxResults versions.", _LIST)
def _max_results(server: Server) -> None:
    require_max_results(server, *_versions(server))


@check("models.versions-pages", Level.MODELS, "The pages of a listing together have each version once.", _LIST)
def _pages(server: Server) -> None:
    require_pages(server, lambda version: version["version"], *_versions(server))


@check(
    "models.version-get", Level.MODELS, "A version is described as the specification says, and as it is listed.", _GET
)
def _get(server: Server) -> None:
    _, version = a_version(server)
    answer = server.get(*_versions(server), str(version["version"]))
    answer.conforms("ModelVersion", lambda field, rule: not is_limit(field, rule))
    _same(answer, version, "modelName")


@check("models.version-unknown", Level.MODELS, "An unknown version is a 404, with errorCode and message.", _GET)
def _unknown(server: Server) -> None:
    server.get(*_versions(server), "987654321").conforms("Error", status=404)


@check(
    "models.version-ids", Level.MODELS, "The id of a version is unique, and the same in each response.",
    "OpenSharing, ModelVersion Object",
)  # fmt: skip
def _ids(server: Server) -> None:
    path = _versions(server)
    ids = {item["version"]: item["id"] for item in server.items(*path) if item.get("id")}
    if not ids:
        raise NotTestable("The versions would need ids, which are optional.")
    if len(set(ids.values())) < len(ids):
        raise Failed("Expected a different id for each version, found one twice.")
    for number, given in ids.items():
        answer = server.get(*path, str(number)).require()
        if answer.document().get("id") != given:
            raise Failed(f"Expected the id of version {number} as in the listing, found another one.", answer)


@check("models.alias", Level.MODELS, "An alias leads to the whole object of a version.", _ALIAS)
def _alias(server: Server) -> None:
    model, alias = _known_alias(server)
    answer = server.get(*model.path, "aliases", alias)
    found = answer.conforms("ModelVersion", lambda field, rule: not is_limit(field, rule))
    _same(answer, server.get(*model.path, "versions", str(found["version"])).require().document())


@check("models.alias-case", Level.MODELS, "Aliases are case-insensitive.", _ALIAS)
def _alias_case(server: Server) -> None:
    model, alias = _known_alias(server)
    _same(server.get(*model.path, "aliases", alias.upper()), server.get(*model.path, "aliases", alias).document())


@check("models.alias-unknown", Level.MODELS, "An unknown alias is a 404, with errorCode and message.", _ALIAS)
def _alias_unknown(server: Server) -> None:
    server.get(*SharedAsset(server, MODELS).path, "aliases", NO_SUCH_NAME).conforms("Error", status=404)


@check(
    "models.not-ready", Level.MODELS, "Versions that are not ready have no credentials.",
    "OpenSharing, Generate Temporary Model Version Credentials",
)  # fmt: skip
def _not_ready(server: Server) -> None:
    path = _versions(server)
    listed = [int(item["version"]) for item in server.items(*path)]
    hidden = (number for number in range(1, max(listed) + _MOST_LOOKED_FOR) if number not in listed)
    for number in list(hidden)[-_MOST_LOOKED_FOR:]:
        answer = server.get(*path, str(number))
        if answer.status != 200 or answer.document().get("status") == "READY":
            continue
        refused = server.post(*path, str(number), "temporary-model-version-credentials")
        if refused.status < 400 or any(key in refused.body.decode("utf-8", "replace") for key in KEYS):
            raise Failed("Expected an error for a version that is not ready, found credentials.", refused)
        return
    raise NotTestable("The share would need a model with a version that is not ready.")


def _known_alias(server: Server) -> tuple[SharedAsset, str]:
    models = [SharedAsset(server, MODELS, number) for number in range(min(3, len(server.assets(MODELS.plural))))]
    for model in models:
        for alias in _ALIASES:
            if server.get(*model.path, "aliases", alias).status == 200:
                return model, alias
    raise NotTestable(f"The share would need a model with one of the aliases {', '.join(_ALIASES)}.")
