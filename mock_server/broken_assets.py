"""Violations of the sentences about volumes, agent skills and models."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from .violations import SCHEMA, SHARE, Answer, Asked, misreads, spoils

_VERSIONS = f"{SCHEMA}/models/[^/]+/versions"
_FAR = "file:///nowhere/{name}"
_KEYS = {"accessKeyId": "simulated", "secretAccessKey": "simulated", "sessionToken": "simulated"}


def first_with(**fields: object) -> Callable[[Answer], None]:
    """Return a change of the first item of a listing, or of a single object; ``None`` removes a field."""

    def spoil(answer: Answer) -> None:
        document = answer.document
        item: dict[str, Any] = document["items"][0] if document.get("items") else document
        for name, value in fields.items():
            item[name] = value() if callable(value) else value
            if value is None:
                del item[name]
        answer.document = document

    return spoil


def with_status(status: int) -> Callable[[Answer], None]:
    """Return a change of the status of a response."""

    def spoil(answer: Answer) -> None:
        answer.status = status

    return spoil


def _with_credentials(**fields: object) -> Callable[[Answer], None]:
    """Return a change of credentials in answers to the kit, whose requests have a body; ours have none."""

    def spoil(answer: Answer) -> None:
        if answer.asked.body:
            answer.document = answer.document | fields

    return spoil


def _last_page_is_empty(answer: Answer) -> None:
    document = answer.document
    if answer.asked.query.get("maxResults") == "1" and "nextPageToken" not in document:
        answer.document = document | {"items": []}


def _without_limit(asked: Asked) -> None:
    asked.query.pop("maxResults", None)


def case_matters(asked: Asked) -> None:
    """Do not find a name in another case, if the demo's own has only lower case."""
    if asked.path.rpartition("/")[2] != asked.path.rpartition("/")[2].lower():
        asked.path += "-other"


def _is_elsewhere(answer: Answer) -> None:
    document = answer.document
    for item in document.get("items", [document]):
        item["storageLocation"] = _FAR.format(name=item["storageLocation"].rstrip("/").rpartition("/")[2])
    answer.document = document


def _break(plural: str, files: str, credentials: str) -> None:
    """Register the violations that all kinds have. ``files`` is the path of what has a directory."""
    noun = plural[:-1]
    listing = f"{SCHEMA}/{plural}"
    one = f"{listing}/[^/]+"
    spoils(f"{plural}.form", listing)(first_with(share=None))
    spoils(f"{plural}.names", listing)(first_with(share="with space"))
    spoils(f"{plural}.all", f"{SHARE}/all-{plural}")(_empty)
    misreads(f"{plural}.max-results", listing)(_without_limit)
    spoils(f"{plural}.pages", listing)(_last_page_is_empty)
    spoils(f"{plural}.get", one)(first_with(schema="other"))
    misreads(f"{plural}.case", one)(case_matters)
    spoils(f"{plural}.ids", listing)(first_with(id=lambda: str(uuid.uuid4())))
    spoils(f"{plural}.share-id", listing)(first_with(shareId="other"))
    spoils(f"{plural}.unknown", one, statuses=(404,))(with_status(400))
    spoils(f"{plural}.unknown-schema", listing, statuses=(404,))(with_status(400))
    spoils(f"{plural}.token", one, statuses=(401,))(with_status(400))
    spoils(f"{plural}.credentials-form", credentials, "POST")(_with_credentials(awsTempCredentials={"accessKeyId": ""}))
    spoils(f"{plural}.credentials-of-one-kind", credentials, "POST")(
        _with_credentials(awsTempCredentials=_KEYS, r2Credentials=_KEYS)
    )
    spoils(f"{plural}.credentials-last", credentials, "POST")(_with_credentials(expirationTime=1_600_000_000_000))
    spoils(f"{plural}.credentials-unknown", credentials, "POST", statuses=(404,))(with_status(400))
    spoils(f"{plural}.credentials-token", credentials, "POST", statuses=(401,))(with_status(200))
    check = f"{plural}.{'skill-file' if noun == 'skill' else 'files'}"
    spoils(check, f"{files}(/[^/]+)?")(_is_elsewhere)


def _empty(answer: Answer) -> None:
    answer.document = {"items": []}


for _plural in ("volumes", "skills"):
    _listing = f"{SCHEMA}/{_plural}"
    _break(_plural, _listing, f"{_listing}/[^/]+/temporary-{_plural[:-1]}-credentials")
_break("models", f"{SCHEMA}/models/[^/]+/(versions|aliases)", f"{_VERSIONS}/[^/]+/temporary-model-version-credentials")

# === Skills ===

spoils("skills.description", f"{SCHEMA}/skills")(first_with(description="x" * 1025))
spoils("skills.compatibility", f"{SCHEMA}/skills")(first_with(compatibility="x" * 501))

spoils("skills.directory", f"{SCHEMA}/skills")(first_with(storageLocation=_FAR.format(name="other")))

# === Versions of models ===

spoils("models.versions-form", _VERSIONS)(first_with(share=None))
spoils("models.versions-ready", _VERSIONS)(first_with(status="FAILED_REGISTRATION"))
misreads("models.versions-max-results", _VERSIONS)(_without_limit)
spoils("models.versions-pages", _VERSIONS)(_last_page_is_empty)
spoils("models.version-get", f"{_VERSIONS}/[^/]+")(first_with(modelName="other"))
spoils("models.version-unknown", f"{_VERSIONS}/[^/]+", statuses=(404,))(with_status(400))
spoils("models.version-ids", _VERSIONS)(first_with(id=lambda: str(uuid.uuid4())))
_ALIAS = f"{SCHEMA}/models/[^/]+/aliases/[^/]+"
spoils("models.alias", _ALIAS)(first_with(version=1))
misreads("models.alias-case", _ALIAS)(case_matters)
spoils("models.alias-unknown", _ALIAS, statuses=(404,))(with_status(400))


@misreads("models.not-ready", f"{_VERSIONS}/3/temporary-model-version-credentials", "POST")
def _credentials_of_another_version(asked: Asked) -> None:
    asked.path = asked.path.replace("/versions/3/", "/versions/2/")
