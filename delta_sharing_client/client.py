"""``SharingClient``, which lists the assets that a profile's server shares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from delta_sharing_client.errors import (
    UsageError,
    add_advice,
)
from delta_sharing_client.notebook import ListedInNotebook, html_facts, html_rows
from delta_sharing_client.options import ReadOptions, TableFormat, chosen
from delta_sharing_client.protocol.asset_kinds import BY_NOUN, MODEL, SKILL, TABLE, VOLUME, AssetEntry, AssetKind
from delta_sharing_client.protocol.names import AssetName, Schema, Share, Table, check_name
from delta_sharing_client.protocol.profile import Profile, ProfileSource
from delta_sharing_client.protocol.rest import RestClient, listed_by
from delta_sharing_client.sources.contents import assets_in, schemas_of_share, tables_of_schema, tables_of_share

if TYPE_CHECKING:
    from delta_sharing_client.assets.asset import AssetT
    from delta_sharing_client.assets.model import Model
    from delta_sharing_client.assets.skill import Skill
    from delta_sharing_client.assets.volume import Volume
    from delta_sharing_client.table import SharedTable


T = TypeVar("T")


class SharingClient:
    """Lists the shares, schemas, tables and other assets of a profile. Thread-safe, picklable, and a context manager.

    All methods raise ``AuthError``, ``NotFoundError``, ``RequestError``, ``TransportError``, ``ProtocolError``, and
    ``ProfileError`` once the token has expired.

    Parameters
    ----------
    profile:
        Path, URL, open file, mapping or ``Profile``; ``None`` for the environment variable
        ``DELTA_SHARING_PROFILE``. Raises ``ProfileError`` if it cannot be used.
    options:
        Timeouts, limits and other options of reads.

    Examples
    --------
    >>> client = SharingClient("demo.share")
    >>> [str(table) for table in client.list_all_tables()]
    ['demo.shop.orders', 'demo.shop.products', 'demo.weather.readings', 'demo.lake.refunds']
    """

    def __init__(self, profile: ProfileSource = None, options: ReadOptions | None = None) -> None:
        options = chosen(options, ReadOptions())
        self._rest = RestClient(Profile.load(profile, options), options)

    def __repr__(self) -> str:
        return f"SharingClient({self._rest.profile.endpoint!r})"

    def _repr_html_(self) -> str:
        profile = self._rest.profile
        facts = {
            "server": profile.endpoint,
            "credentials": type(profile.credentials).__name__,
            "expire": profile.expiration_time,
            "what is shared": "client.list_all_tables()",
        }
        return html_facts("Delta Sharing client", facts)

    def __enter__(self) -> SharingClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections. The client stays usable."""
        self._rest.close()

    def table(self, name: str | Table | AssetName, format: TableFormat | str | None = None) -> SharedTable:  # noqa: A002
        """Return a shared table, given as ``share.schema.table`` (the share may contain dots), or as a ``Table``.

        ``format`` is ``"delta"``, ``"iceberg"`` or ``"auto"`` (the format that the server states; Delta if the table
        has both); by default, the client's options decide. For a full name this sends no request; whether the table
        exists is checked when it is used. Raises ``UsageError`` if ``name`` is not a full name (the tables are then
        listed, so that the message can suggest one), or if ``format`` is none of the three.

        Examples
        --------
        >>> SharingClient("demo.share").table("demo.shop.orders")
        SharedTable(demo.shop.orders)
        """
        # Imported here, because listings do not need it.
        from delta_sharing_client.table import SharedTable

        options = self._rest.options
        if format is not None:
            options = dataclasses.replace(options, table_format=format)
        return SharedTable(self._table_name(name), self._rest, options)

    def _table_name(self, name: str | Table | AssetName) -> AssetName:
        return AssetName(name.share, name.schema, name.name) if isinstance(name, Table) else self._name(name, TABLE)

    def _name(self, name: str | AssetName, kind: AssetKind[Any]) -> AssetName:
        if isinstance(name, AssetName):
            return name
        try:
            return AssetName.parse(name, kind.noun)
        except UsageError as error:
            if isinstance(name, str) and "#" in name:
                add_advice(error, "The client has a profile: pass only the name after '#'.")
            elif isinstance(name, str) and (near := self._rest.near_names(name, [kind])):
                add_advice(error, near)
            raise

    def volume(self, name: str | AssetName) -> Volume:
        """Return a shared volume, given as ``share.schema.volume``.

        For a full name this sends no request; whether the volume exists is checked when it is used. Raises
        ``UsageError`` if ``name`` is not a full name; the volumes are then listed, so that the message can suggest one.

        Examples
        --------
        >>> SharingClient("demo.share").volume("demo.shop.documents")
        Volume(demo.shop.documents)
        """
        from delta_sharing_client.assets.volume import Volume

        return Volume(self._name(name, VOLUME), self._rest, self._rest.options)

    def model(self, name: str | AssetName) -> Model:
        """Return a shared model, given as ``share.schema.model``. Raises the errors of ``volume``."""
        from delta_sharing_client.assets.model import Model

        return Model(self._name(name, MODEL), self._rest, self._rest.options)

    def skill(self, name: str | AssetName) -> Skill:
        """Return a shared agent skill, given as ``share.schema.skill``. Raises the errors of ``volume``."""
        from delta_sharing_client.assets.skill import Skill

        return Skill(self._name(name, SKILL), self._rest, self._rest.options)

    def __getitem__(self, share: str) -> Contents:
        """Return a share, so that ``client["share"]["schema"]["table"]`` is a table.

        This sends no request, unless the name contains a dot: then the shares are listed, and ``UsageError`` is raised
        if it is not one of them.

        Examples
        --------
        >>> SharingClient("demo.share")["demo"]["shop"]["orders"]
        SharedTable(demo.shop.orders)
        """
        check_name(share, "share")
        if "." in share and share not in self:
            steps = "".join(f"[{name!r}]" for name in share.split("."))
            write = (
                f"a table, write client.table({share!r})" if share.count(".") > 1 else f"a schema, write client{steps}"
            )
            raise UsageError(f"No share is called {share!r}. For {write}.")
        return Contents(self, (share,))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all shares, from one listing. Raises the errors of ``list_shares``."""
        return iter([share.name for share in self.list_shares()])

    def __contains__(self, share: object) -> bool:
        """Return whether a share has this name, ignoring case. This lists the shares.

        Raises the errors of ``list_shares``.

        Raises ``UsageError`` if ``share`` is not a string.
        """
        return _is_listed(share, self)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def list_shares(self) -> list[Share]:
        """Return all shares. Raises ``DeltaSharingError`` if the sign-in, the server or the network fails."""
        return ListedInNotebook(self._rest.list_shares())

    def get_share(self, share: Share | str) -> Share:
        """Return one share, given by its name or as a ``Share``.

        Raises the errors of ``list_shares``, and ``NotFoundError`` if the share does not exist.
        """
        return self._rest.get_share(_share_name(share))

    def list_schemas(self, share: Share | str) -> list[Schema]:
        """Return the schemas of a share, given by its name or as a ``Share``.

        Schemas that only the server's Iceberg catalog lists come last.

        Raises the errors of ``list_shares``, and ``NotFoundError`` if the share does not exist.
        """
        return ListedInNotebook(schemas_of_share(self._rest, _share_name(share)))

    def list_tables(self, schema: Schema | str) -> list[Table]:
        """Return the tables of a schema, given as a ``Schema`` or as ``share.schema``.

        Tables that only the server's Iceberg catalog lists come last.

        Raises the errors of ``list_shares``, ``NotFoundError`` if the schema does not exist, and ``UsageError`` if
        ``schema`` is neither a ``Schema`` nor ``share.schema``.
        """
        tables = tables_of_schema(self._rest, *_share_and_schema(schema))
        return ListedInNotebook(listed_by(table, self._rest) for table in tables)

    def get_table(self, table: Table | AssetName | str) -> Table:
        """Return one table as the server describes it, given as ``share.schema.table`` or as a ``Table``.

        The result has the table's ``formats`` if the server states them.

        Raises the errors of ``list_shares``, ``NotFoundError`` if the table does not exist, and ``UsageError`` if
        ``table`` is not a full name.
        """
        return self._rest.get_table(self._table_name(table))

    def list_all_tables(self, share: Share | str | None = None) -> list[Table]:
        """Return the tables of all schemas of one share, or of all shares.

        Raises the errors of ``list_shares``, and ``NotFoundError`` if the share does not exist.
        """
        tables = (table for name in self._shares(share) for table in tables_of_share(self._rest, name))
        return ListedInNotebook(listed_by(table, self._rest) for table in tables)

    def list_volumes(self, schema: Schema | str) -> list[Volume]:
        """Return the volumes of a schema (a ``Schema`` or ``share.schema``); none if the server has no volumes.

        Raises the errors of ``list_tables``.
        """
        from delta_sharing_client.assets.volume import Volume

        return self._listed(Volume, schema)

    def list_models(self, schema: Schema | str) -> list[Model]:
        """Like ``list_volumes``, for models. Raises the errors of ``list_tables``."""
        from delta_sharing_client.assets.model import Model

        return self._listed(Model, schema)

    def list_skills(self, schema: Schema | str) -> list[Skill]:
        """Like ``list_volumes``, for agent skills. Raises the errors of ``list_tables``."""
        from delta_sharing_client.assets.skill import Skill

        return self._listed(Skill, schema)

    def list_all_volumes(self, share: Share | str | None = None) -> list[Volume]:
        """Return the volumes of all schemas of one share, or of all shares; none if the server has no volumes.

        Raises the errors of ``list_all_tables``.
        """
        from delta_sharing_client.assets.volume import Volume

        return self._listed_in_shares(Volume, share)

    def list_all_models(self, share: Share | str | None = None) -> list[Model]:
        """Like ``list_all_volumes``, for models. Raises the errors of ``list_all_tables``."""
        from delta_sharing_client.assets.model import Model

        return self._listed_in_shares(Model, share)

    def list_all_skills(self, share: Share | str | None = None) -> list[Skill]:
        """Like ``list_all_volumes``, for agent skills. Raises the errors of ``list_all_tables``."""
        from delta_sharing_client.assets.skill import Skill

        return self._listed_in_shares(Skill, share)

    def _listed(self, asset: type[AssetT], schema: Schema | str) -> list[AssetT]:
        items = self._rest.list_assets(asset._kind, *_share_and_schema(schema))
        return ListedInNotebook(asset._listed(item, self._rest) for item in items)

    def _listed_in_shares(self, asset: type[AssetT], share: Share | str | None) -> list[AssetT]:
        items = (item for name in self._shares(share) for item in self._rest.list_all_assets(asset._kind, name))
        return ListedInNotebook(asset._listed(item, self._rest) for item in items)

    def _shares(self, share: Share | str | None) -> list[str]:
        return [_share_name(share)] if share is not None else [one.name for one in self._rest.list_shares()]

    async def list_shares_async(self) -> list[Share]:
        """Like ``list_shares``, for a coroutine. Raises the errors of ``list_shares``."""
        return await _asynchronously(self.list_shares)

    async def list_schemas_async(self, share: Share | str) -> list[Schema]:
        """Like ``list_schemas``, for a coroutine. Raises the errors of ``list_schemas``."""
        return await _asynchronously(lambda: self.list_schemas(share))

    async def list_tables_async(self, schema: Schema | str) -> list[Table]:
        """Like ``list_tables``, for a coroutine. Raises the errors of ``list_tables``."""
        return await _asynchronously(lambda: self.list_tables(schema))

    async def get_table_async(self, table: Table | AssetName | str) -> Table:
        """Like ``get_table``, for a coroutine. Raises the errors of ``get_table``."""
        return await _asynchronously(lambda: self.get_table(table))

    async def list_all_tables_async(self, share: Share | str | None = None) -> list[Table]:
        """Like ``list_all_tables``, for a coroutine. Raises the errors of ``list_all_tables``."""
        return await _asynchronously(lambda: self.list_all_tables(share))

    async def list_volumes_async(self, schema: Schema | str) -> list[Volume]:
        """Like ``list_volumes``, for a coroutine. Raises the errors of ``list_volumes``."""
        return await _asynchronously(lambda: self.list_volumes(schema))

    async def list_all_volumes_async(self, share: Share | str | None = None) -> list[Volume]:
        """Like ``list_all_volumes``, for a coroutine. Raises the errors of ``list_all_volumes``."""
        return await _asynchronously(lambda: self.list_all_volumes(share))

    async def list_models_async(self, schema: Schema | str) -> list[Model]:
        """Like ``list_models``, for a coroutine. Raises the errors of ``list_models``."""
        return await _asynchronously(lambda: self.list_models(schema))

    async def list_all_models_async(self, share: Share | str | None = None) -> list[Model]:
        """Like ``list_all_models``, for a coroutine. Raises the errors of ``list_all_models``."""
        return await _asynchronously(lambda: self.list_all_models(share))

    async def list_skills_async(self, schema: Schema | str) -> list[Skill]:
        """Like ``list_skills``, for a coroutine. Raises the errors of ``list_skills``."""
        return await _asynchronously(lambda: self.list_skills(schema))

    async def list_all_skills_async(self, share: Share | str | None = None) -> list[Skill]:
        """Like ``list_all_skills``, for a coroutine. Raises the errors of ``list_all_skills``."""
        return await _asynchronously(lambda: self.list_all_skills(share))


@dataclasses.dataclass(frozen=True)
class Contents:
    """A share or a schema, known by its path of names. Indexing a share returns a schema; indexing a schema, a table.

    In a schema, the key of a table is its name. The keys of other assets begin with their kind: ``"volume:documents"``
    returns a ``Volume``; ``model:`` and ``skill:`` work alike. The key of a table begins with ``table:`` only if its
    name begins with one of these prefixes.

    Iterating yields all keys, and ``in`` looks for one of them, ignoring case. Either lists the schemas, or the assets
    of all kinds, once. Raises the errors of ``SharingClient.list_schemas`` and ``SharingClient.list_tables``.
    """

    client: SharingClient
    path: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        if len(self.path) == 2:
            return self._asset(name)
        inner = (*self.path, name)
        check_name(name, "schema")
        if "." in name and name not in self:
            write = f"client.table({'.'.join(inner)!r})"
            raise UsageError(f"No schema {name!r} is shared. For a table, write {write}.")
        return Contents(self.client, inner)

    def _asset(self, key: str) -> SharedTable | Volume | Model | Skill:
        noun, name = _split_key(check_name(key, "asset"))
        share, schema = self.path
        asset = AssetName(share, schema, name)
        client = self.client
        by_noun: dict[str, Callable[[AssetName], SharedTable | Volume | Model | Skill]] = {
            TABLE.noun: client.table, VOLUME.noun: client.volume, MODEL.noun: client.model, SKILL.noun: client.skill
        }  # fmt: skip
        return by_noun[noun](asset)

    def __iter__(self) -> Iterator[str]:
        if len(self.path) == 1:
            return iter([schema.name for schema in self.client.list_schemas(self.path[0])])
        return iter([_key(entry) for entry in self._entries()])

    def __contains__(self, name: object) -> bool:
        return _is_listed(name, self)

    def __repr__(self) -> str:
        return f"Contents({'.'.join(self.path)})"

    def _repr_html_(self) -> str:
        title = ".".join(self.path)
        if len(self.path) == 1:
            return html_rows(title, ["schema"], [[name] for name in self])
        rows = [[entry.name, entry.kind.noun, f"[{_key(entry)!r}]"] for entry in self._entries()]
        return html_rows(title, ["name", "kind", "key"], rows)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _entries(self) -> list[AssetEntry]:
        return assets_in(self.client._rest, *self.path)[1]


def _key(entry: AssetEntry) -> str:
    is_plain = entry.kind is TABLE and _split_key(entry.name) == (TABLE.noun, entry.name)
    return entry.name if is_plain else f"{entry.kind.noun}:{entry.name}"


def _split_key(key: str) -> tuple[str, str]:
    noun, _, name = key.partition(":")
    return (noun.lower(), name) if name and noun.lower() in BY_NOUN else (TABLE.noun, key)


def _is_listed(name: object, names: Iterable[str]) -> bool:
    if not isinstance(name, str):
        raise UsageError(f"Expected a name as a string before 'in', found {type(name).__name__}.")
    return name.lower() in {listed.lower() for listed in names}


def _share_and_schema(schema: Schema | str) -> tuple[str, str]:
    if isinstance(schema, Schema):
        return schema.share, schema.name
    share, _, name = schema.rpartition(".") if isinstance(schema, str) else ("", "", "")
    if not share or not name:
        raise UsageError(
            f"Expected a schema as 'share.schema', or a Schema from list_schemas(), found {schema!r}. For all "
            "schemas of a share, call list_all_tables(share), list_all_volumes(share) and so on."
        )
    return share, name


def _share_name(share: Share | str) -> str:
    return share.name if isinstance(share, Share) else share


async def _asynchronously(call: Callable[[], T]) -> T:
    # Imported here, because only coroutines need it.
    from delta_sharing_client.run.loop import asynchronously

    return await asynchronously(call)
