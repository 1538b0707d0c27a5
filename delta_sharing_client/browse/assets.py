"""Requests for shares, schemas and assets of all kinds, and for the facts about assets other than tables."""

from __future__ import annotations

from delta_sharing_client.browse.asked import Asked
from delta_sharing_client.browse.session import Session
from delta_sharing_client.errors import NotFoundError, UsageError
from delta_sharing_client.instants import instant_text
from delta_sharing_client.protocol.asset_kinds import BY_NOUN, TABLE
from delta_sharing_client.search import find
from delta_sharing_client.sources.contents import assets_in, schemas_of_share

_MOST_ASSETS = 100_000


def start(session: Session, asked: Asked) -> dict[str, object]:
    """Return the profile's name, when its token expires, and the shares."""
    session.described.clear()
    expires = session.client._rest.profile.expiration_time
    return {
        "profile": session.profile_text,
        "expires": None if expires is None else instant_text(expires),
        "shares": [{"name": share.name, "comment": share.comment} for share in session.client.list_shares()],
    }


def schemas(session: Session, asked: Asked) -> dict[str, object]:
    """Return the names of the schemas of a share."""
    return {"schemas": [schema.name for schema in schemas_of_share(session.client._rest, asked.text("share"))]}


def listed(session: Session, asked: Asked) -> dict[str, object]:
    """Return the kind, schema and name of each asset in a schema, or in a whole share."""
    names, entries = assets_in(session.client._rest, asked.text("share"), asked.text("schema") or None)
    return {
        "schemas": names,
        "assets": [[entry.kind.noun, entry.schema, entry.name] for entry in entries[:_MOST_ASSETS]],
        "inAll": len(entries),
    }


def searched(session: Session, asked: Asked) -> dict[str, object]:
    """Return the kind and full name of each asset with all words of ``text`` in its name, comment or columns, with its
    columns that have one; how many tables a further search would describe, how many have failed, and why."""
    found, unread = find(session.client, asked.text("text"), None, session.described)
    assets = [
        [one.kind.noun, [one.name.share, one.name.schema, one.name.name], [name for name, _ in one.columns]]
        for one in found[:_MOST_ASSETS]
    ]
    reasons = [reason for reason in unread if reason is not None]
    return {
        "found": assets,
        "left": len(unread) - len(reasons),
        "failed": len(reasons),
        "reason": session.masked(reasons[0]) if reasons else None,
    }


def described(session: Session, asked: Asked) -> dict[str, object]:
    """Return the facts about a volume, model or skill, and the versions of a model."""
    kind = asked.text("kind")
    if kind not in BY_NOUN or kind == TABLE.noun:
        raise UsageError(f"Expected a volume, model or skill, found {kind!r}.")
    asset = getattr(session.client, kind)(asked.full_name)
    # People do not need the location of the files.
    facts = {name: _plain(value) for name, value in asset.facts().items() if "location" not in name.lower()}
    description: dict[str, object] = {"facts": facts}
    if kind == "model":
        description["versions"] = [
            {"version": one.version, "status": one.status, "comment": one.comment}
            | {name: value for name, value in one.facts().items() if name in ("source", "run_id", "id")}
            for one in asset.versions()
        ]
    return description


def alias(session: Session, asked: Asked) -> dict[str, object]:
    """Return the version to which an alias of a model points; ``None`` if there is no such alias."""
    try:
        return {"version": session.client.model(asked.full_name).alias(asked.text("alias")).version}
    except NotFoundError:
        return {"version": None}


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (str, int, float, dict, list)) else str(value)
