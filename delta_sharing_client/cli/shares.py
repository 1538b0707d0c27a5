"""The commands that list and describe what is shared; ``commands`` registers them.

A command's imports run when it is called, as in ``commands``.
"""

import contextlib
import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from delta_sharing_client import optional
from delta_sharing_client.cli import asset_files
from delta_sharing_client.cli.asset_files import ModelAliasOption, ModelVersionOption, StorageOption
from delta_sharing_client.cli.program import (
    Settings,
    everything,
    names_of_assets,
    names_of_schemas,
    names_of_shares,
    open_asset,
    open_client,
    version_of_text,
)
from delta_sharing_client.errors import NotFoundError, UsageError
from delta_sharing_client.redact import scrub

if TYPE_CHECKING:
    from delta_sharing_client.client import SharingClient
    from delta_sharing_client.protocol.names import AssetName

ShareArgument = Annotated[str, typer.Argument(metavar="SHARE", autocompletion=names_of_shares)]
WhereArgument = Annotated[Optional[str], typer.Argument(metavar="[SHARE[.SCHEMA]]", autocompletion=names_of_schemas)]
InsideArgument = Annotated[
    Optional[str], typer.Argument(metavar="[SHARE[.SCHEMA[.ASSET/[PATH]]]]", autocompletion=names_of_schemas)
]
AssetArgument = Annotated[
    str, typer.Argument(metavar="ASSET", help="share.schema.name", autocompletion=names_of_assets)
]
VersionOption = Annotated[
    Optional[str],
    typer.Option(
        "--version", metavar="N", help="Version of the table (Iceberg: snapshot, branch or tag), or of the model."
    ),
]
TimestampOption = Annotated[
    Optional[str],
    typer.Option("--timestamp", metavar="ISO8601", help="Read the version that was current at that time."),
]
AliasOption = Annotated[
    Optional[str], typer.Option("--alias", metavar="NAME", help="Version of the model that this alias names.")
]
KindOption = Annotated[
    Optional[str],
    typer.Option("--kind", metavar="KIND", help="table, volume, model or skill; by default the first with this name."),
]


# The kinds of assets, in the order in which a name is looked up.
KIND_NOUNS = ("table", "volume", "model", "skill")


def tables(settings: Settings, where: WhereArgument = None) -> None:
    """List all tables, or those of a share or schema.

    Example: delta-sharing tables
    Example: delta-sharing tables demo.shop
    """
    from delta_sharing_client.cli import output
    from delta_sharing_client.sources.contents import share_and_schema

    client = open_client(settings.profile)
    if where is None:
        listed = client.list_all_tables()
    else:
        try:
            share, schema = share_and_schema(client._rest, where)
        except NotFoundError as error:
            _refuse_asset(client, where, error)
            raise
        listed = client.list_all_tables(share) if schema is None else client.list_tables(f"{share}.{schema}")
    items = [
        {"table": str(table), "share": table.share, "schema": table.schema, "name": table.name, "id": table.id}
        for table in listed
    ]
    output.show_listing(items, ["table", "id"], settings)


def tree(
    settings: Settings,
    where: InsideArgument = None,
    recursive: Annotated[bool, typer.Option("--recursive", "-R", help="List all files below a directory.")] = False,
    version: ModelVersionOption = None,
    alias: ModelAliasOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Show all shared assets, or those of a share or schema, as a tree; or the files of an asset.

    Example: delta-sharing ls
    Example: delta-sharing ls demo.shop
    Example: delta-sharing ls demo.shop.documents/reports
    Example: delta-sharing ls demo.shop.churn/ --version 1 --recursive
    """
    from delta_sharing_client.cli import output
    from delta_sharing_client.protocol.asset_kinds import KINDS
    from delta_sharing_client.sources.contents import assets_in, shares_to_list

    if where is not None and ("/" in where or recursive or version is not None or alias is not None):
        asset_files.list_files(
            settings, where, recursive=recursive, version=version, alias=alias, storage_option=storage_option
        )
        return
    client = open_client(settings.profile)
    try:
        selected = list(shares_to_list(client._rest, where))
    except NotFoundError:
        if where is None or where.count(".") < 2:
            raise
        asset_files.list_files(settings, where, recursive=False, storage_option=storage_option)
        return
    shared: dict[str, dict[str, dict[str, list[str]]]] = {}
    for share, schema in selected:
        listed, entries = assets_in(client._rest, share, schema)
        by_kind = shared.setdefault(share, {name: {} for name in listed})
        for entry in entries:
            by_kind.setdefault(entry.schema, {}).setdefault(entry.kind.plural, []).append(entry.name)
    plurals = [kind.plural for kind in KINDS]
    shared = {
        share: {schema: {plural: by_kind.get(plural, []) for plural in plurals} for schema, by_kind in schemas.items()}
        for share, schemas in shared.items()
    }
    if settings.as_json:
        output.print_json(shared)
        return
    profile = client._rest.profile
    output.print_tree(profile.endpoint, shared)
    has_skills = any(schema["skills"] for schemas in shared.values() for schema in schemas.values())
    for extra, what, is_shown in (
        ("iceberg", "Iceberg tables", profile.iceberg_endpoint is not None),
        ("storage", "Skills", has_skills),
    ):
        if is_shown and (note := optional.what_needs(extra, what)) is not None:
            output.print_note(note)


def share_details(settings: Settings, share: ShareArgument) -> None:
    """Show the server's details of a share.

    Example: delta-sharing share demo
    Example: delta-sharing share demo --json
    """
    from delta_sharing_client.cli import output

    details = open_client(settings.profile).get_share(share)
    facts = {
        "name": details.name,
        "id": details.id,
        "displayName": details.display_name,
        "comment": details.comment,
        "properties": dict(details.properties),
    }
    output.show_facts(facts, settings)


def describe(
    settings: Settings,
    asset: AssetArgument,
    version: VersionOption = None,
    timestamp: TimestampOption = None,
    alias: AliasOption = None,
    kind: KindOption = None,
) -> None:
    """Show a table's schema, version, format, features and size; the server's description of another asset; or the
    contents of a share or schema.

    Example: delta-sharing describe demo.shop.orders
    Example: delta-sharing describe demo.shop
    Example: delta-sharing describe demo.shop.orders --version 0 --json
    Example: delta-sharing describe demo.shop.churn --alias champion
    """
    nouns = _asked_kinds(version, timestamp, alias, kind)
    if len(nouns) == len(KIND_NOUNS) and "#" not in asset and asset.count(".") < 2:
        # A name with too few parts for an asset is refused below.
        with contextlib.suppress(_NoPlace):
            _describe_place(settings, asset)
            return
    client, name = open_asset(settings.profile, asset, nouns[0] if len(nouns) == 1 else "asset")
    for noun in nouns:
        is_last_choice = len(nouns) == 1
        if noun == "table":
            try:
                _describe_table(client, name, version, timestamp, settings)
                return
            except NotFoundError:
                if is_last_choice:
                    raise
        elif is_last_choice or _is_shared(client, noun, name):
            _describe_asset(client, noun, name, version, alias, settings)
            return
    raise NotFoundError(f"There is no {' or '.join(nouns)} with the name '{name}'.{_near(client, name)}")


COMMANDS: dict[str, Callable[..., None]] = {
    "tables": tables,
    "ls": tree,
    "share": share_details,
    "describe": describe,
}


def _shown(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: scrub(value) if isinstance(value, str) else value for name, value in facts.items()}


def _asked_kinds(version: str | None, timestamp: str | None, alias: str | None, kind: str | None) -> list[str]:
    """Return the kinds of assets to which the options apply. Raises ``UsageError`` if the options exclude each
    other."""
    kinds = list(KIND_NOUNS)
    if kind is not None and kind.lower() not in kinds:
        raise UsageError(f"Expected one of {', '.join(kinds)} for --kind, found {kind!r}.")
    fitting = set(kinds if kind is None else [kind.lower()])
    fitting &= {"table"} if timestamp is not None else set(kinds)
    fitting &= {"model"} if alias is not None else set(kinds)
    fitting &= {"table", "model"} if version is not None else set(kinds)
    if not fitting or (version is not None and alias is not None):
        raise UsageError(
            "Expected --timestamp for a table, --alias for a model and --version for either; found options that "
            "exclude each other."
        )
    return [one for one in kinds if one in fitting]


def _is_shared(client: "SharingClient", noun: str, name: "AssetName") -> bool:
    from delta_sharing_client.protocol.asset_kinds import BY_NOUN, AssetRef

    return client._rest.is_shared(AssetRef(BY_NOUN[noun], name))


def _refuse_asset(client: "SharingClient", text: str, error: NotFoundError) -> None:
    """Raise ``UsageError`` from ``error`` if ``text``, where a share or schema was expected, names an asset."""
    from delta_sharing_client.protocol.names import AssetName

    if text.count(".") < 2:
        return
    name = AssetName.parse(text, "asset")
    noun = next((one for one in KIND_NOUNS if _is_shared(client, one, name)), None)
    if noun is not None:
        raise UsageError(
            f"Expected a share or schema, found the {noun} '{text}'; 'delta-sharing describe {text}' shows it."
        ) from error


def _near(client: "SharingClient", name: "AssetName") -> str:
    """Return a sentence that suggests the shared asset, of any kind, with the most similar name; "" if none is
    similar."""
    names = {f"{share}.{one.schema}.{one.name}": one.kind.noun for share, one in everything(client)}
    spelled = {one.lower(): one for one in names}
    near = difflib.get_close_matches(str(name).lower(), spelled, n=1)
    return f" Did you mean the {names[spelled[near[0]]]} '{spelled[near[0]]}'?" if near else ""


def _describe_table(
    client: "SharingClient", name: "AssetName", version: str | None, timestamp: str | None, settings: Settings
) -> None:
    from delta_sharing_client.cli import output
    from delta_sharing_client.descriptions import describe_table

    facts, columns = describe_table(client.table(name), version_of_text(version), timestamp)
    if settings.as_json:
        output.print_json({**facts, "columns": columns})
        return
    output.print_facts(facts)
    output.print_gap()
    output.print_items(columns, ["column", "type", "nullable", "comment"])


class _NoPlace(Exception):
    """No share has this name."""


def _describe_place(settings: Settings, place: str) -> None:
    """Show a share or a schema, and each asset in it with its kind."""
    from delta_sharing_client.cli import output
    from delta_sharing_client.sources.contents import assets_in, share_and_schema

    client = open_client(settings.profile)
    try:
        share, schema = share_and_schema(client._rest, place)
    except NotFoundError:
        raise _NoPlace from None
    described = client.get_share(share)
    facts: dict[str, Any] = {
        "share": described.name,
        "schema": schema,
        **({"comment": described.comment, "properties": dict(described.properties)} if schema is None else {}),
    }
    _, entries = assets_in(client._rest, share, schema)
    items = [{"kind": one.kind.noun, "name": f"{share}.{one.schema}.{one.name}"} for one in entries]
    if settings.as_json:
        output.print_json({**facts, "assets": items})
        return
    output.print_facts(facts)
    output.print_gap()
    output.print_items(items, ["kind", "name"])


def _describe_asset(
    client: "SharingClient", noun: str, name: "AssetName", version: str | None, alias: str | None, settings: Settings
) -> None:
    import msgspec

    from delta_sharing_client.cli import output
    from delta_sharing_client.protocol.asset_kinds import BY_NOUN, MODEL, MODEL_VERSION

    rest, kind, item = client._rest, BY_NOUN[noun], None
    if alias is not None:
        kind, item = MODEL_VERSION, rest.get_model_alias(name, alias)
    elif version is not None:
        number = version_of_text(version)
        if not isinstance(number, int):
            raise UsageError(f"Expected a number as the --version of a model, found {number!r}.")
        kind, item = MODEL_VERSION, rest.get_model_version(name, number)
    else:
        item = rest.get_asset(kind, name)
    facts: dict[str, Any] = {"kind": kind.noun, **_shown(msgspec.to_builtins(item))}
    versions = [_shown(msgspec.to_builtins(one)) for one in rest.list_model_versions(name)] if kind is MODEL else []
    if settings.as_json:
        output.print_json({**facts, **({"versions": versions} if kind is MODEL else {})})
        return
    output.print_facts(facts)
    if versions:
        output.print_gap()
        output.print_items(versions, ["version", "status", "storageLocation", "comment"])
