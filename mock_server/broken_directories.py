"""Violations of the sentences about directory access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .violations import TABLE, Answer, Asked, misreads, spoils

_API = f"{TABLE}/temporary-table-credentials"
_KEYS = {"accessKeyId": "simulated", "secretAccessKey": "simulated", "sessionToken": "simulated"}


def _with(**fields: object) -> Callable[[Answer], None]:
    """Return a change of credentials in answers to the kit, whose requests have a body; ours have none."""

    def spoil(answer: Answer) -> None:
        if answer.asked.body:
            answer.document = {"credentials": answer.document["credentials"] | fields}

    return spoil


def _elsewhere(is_asked: Callable[[dict[str, Any]], bool]) -> Callable[[Answer], None]:
    def spoil(answer: Answer) -> None:
        if answer.asked.body and is_asked(answer.asked.document):
            _with(location="file:///elsewhere")(answer)

    return spoil


def _with_status(status: int) -> Callable[[Answer], None]:
    def spoil(answer: Answer) -> None:
        answer.status = status

    return spoil


spoils("directory.credentials", _API, "POST")(_with(gcpOauthToken={}))
spoils("directory.one-kind", _API, "POST")(
    _with(awsTempCredentials=_KEYS, azureUserDelegationSas={"sasToken": "simulated"})
)
spoils("directory.expiration", _API, "POST")(_with(expirationTime=1_600_000_000_000))
spoils("directory.default-location", _API, "POST")(_elsewhere(lambda asked: not asked))
spoils("directory.main-location", _API, "POST")(
    _elsewhere(lambda asked: asked.get("location", "").endswith("/products"))
)
spoils("directory.auxiliary-location", _API, "POST")(
    _elsewhere(lambda asked: asked.get("location", "").endswith("/products-more"))
)
spoils("directory.token", _API, "POST", statuses=(401,))(_with_status(400))
spoils("directory.unknown", _API, "POST", statuses=(404,))(_with_status(400))


@spoils("directory.location", "/tables/products/metadata")
def _without_location(answer: Answer) -> None:
    if answer.format == "delta":
        lines = answer.lines
        del lines[1]["metaData"]["location"]
        answer.lines = lines


@spoils("directory.other-location", _API, "POST", statuses=(400,))
def _credentials_for_everything(answer: Answer) -> None:
    if isinstance(answer.asked.document["location"], str):
        answer.status = 200


@misreads("directory.malformed", _API, "POST")
def _number_as_no_location(asked: Asked) -> None:
    if asked.body and not isinstance(asked.document.get("location", ""), str):
        asked.document = {}


@spoils("access-modes.url", "/tables/orders/query", "POST")
def _no_such_api(answer: Answer) -> None:
    if answer.format == "delta" and answer.asked.document == {"limitHint": 1}:
        answer.status = 501


@spoils("directory.log", _API, "POST")
def _credentials_for_an_empty_directory(answer: Answer) -> None:
    if not answer.asked.body:
        content = answer.document["credentials"]
        answer.document = {"credentials": content | {"location": f"{content['location']}-more"}}
