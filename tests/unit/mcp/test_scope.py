"""Which names are in a scope, compared with a list of names."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from delta_sharing_client.errors import NotFoundError, UsageError
from delta_sharing_client.mcp.scope import Scope, _ScopedRest
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.asset_kinds import KINDS, TABLE, VOLUME, AssetEntry, AssetRef
from delta_sharing_client.protocol.listings import Listings
from delta_sharing_client.protocol.messages import VolumeItem
from delta_sharing_client.protocol.names import AssetName, Schema, Share, Table
from delta_sharing_client.protocol.profile import Profile

SHARES, SCHEMAS, NAMES = ("a", "b", "c"), ("x", "y"), ("t", "u")
TABLES = [AssetName(*parts) for parts in itertools.product(SHARES, SCHEMAS, NAMES)]
SCOPES = [
    ((), ("b.x.t",)),
    (("a",), ()),
    (("A",), ("B.Y.U", "b.x.t")),
    (("a", "c"), ("a.x.t",)),
    ((), ("a.x.t", "c.y.u")),
]


def allowed(shares: tuple[str, ...], tables: tuple[str, ...]) -> set[str]:
    lowered = {name.lower() for name in tables}
    return {str(name) for name in TABLES if name.share in {one.lower() for one in shares} or str(name) in lowered}


@pytest.mark.parametrize(("shares", "tables"), SCOPES)
def test_scope_has_its_shares_and_tables(shares: Any, tables: Any) -> None:
    scope, names = Scope.of(shares, tables), allowed(shares, tables)
    whole = {share.lower() for share in shares}
    assert not scope.is_all
    for table in TABLES:
        for spelled in (table, AssetName(*str(table).upper().split("."))):
            assert scope.has(TABLE, spelled) is (str(table) in names)
            for kind in KINDS:
                if kind is not TABLE:
                    assert scope.has(kind, spelled) is (table.share in whole)
    for share in SHARES:
        assert scope.has_share(share.upper()) is (share in whole)
        assert scope.has_part(share.upper()) is any(name.startswith(f"{share}.") for name in names)
        for schema in SCHEMAS:
            assert scope.has_part(share, schema.upper()) is any(name.startswith(f"{share}.{schema}.") for name in names)
    assert scope.has_part("A" if "a" in whole else "a", "unknown") is ("a" in whole)


def test_empty_scope_has_everything() -> None:
    scope = Scope.of((), ())
    assert scope == Scope()
    assert scope.is_all
    assert scope.has(VOLUME, AssetName("z", "z", "z"))
    assert scope.has_part("z", "z")
    scope.check(TABLE, AssetName("z", "z", "z"))


@pytest.mark.parametrize(("shares", "tables"), [(("a/b",), ()), ((), ("a",))])
def test_invalid_names_are_refused(shares: tuple[str, ...], tables: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        Scope.of(shares, tables)


@pytest.mark.parametrize(("shares", "tables"), SCOPES)
def test_listings_are_restricted(monkeypatch: pytest.MonkeyPatch, shares: Any, tables: Any) -> None:
    def table(name: AssetName) -> Table:
        return Table(name.name, name.share, name.schema)

    def volumes(share: str, schemas: Any) -> list[VolumeItem]:
        return [VolumeItem("v", "s3://b/v", schema, share) for schema in schemas]

    fakes: dict[str, Any] = {
        "list_shares": lambda self: [Share(share) for share in SHARES],
        "list_schemas": lambda self, share: [Schema(schema, share) for schema in SCHEMAS],
        "list_tables": lambda self, share, schema: [
            table(name) for name in TABLES if (name.share, name.schema) == (share, schema)
        ],
        "list_all_tables": lambda self, share: [table(name) for name in TABLES if name.share == share],
        "list_assets": lambda self, kind, share, schema: volumes(share, [schema]),
        "list_all_assets": lambda self, kind, share, schemas=None: volumes(share, schemas or SCHEMAS),
        "list_everything": lambda self, share, schema, listed: (
            [schema] if schema else list(SCHEMAS),
            [*(AssetEntry(TABLE, one.schema, one.name) for one in listed), AssetEntry(VOLUME, "x", "v")],
        ),
        "is_shared": lambda self, asset: True,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(Listings, name, fake)
    profile = {"shareCredentialsVersion": 1, "endpoint": "https://host.invalid/", "bearerToken": "t"}
    rest = _ScopedRest(Profile.load(profile), ReadOptions())
    rest.scope = Scope.of(shares, tables)
    names, whole = allowed(shares, tables), {share.lower() for share in shares}
    assert [share.name for share in rest.list_shares()] == sorted({name[0] for name in names})
    for share in SHARES:
        own = {name for name in names if name.startswith(f"{share}.")}
        assert {schema.name for schema in rest.list_schemas(share)} == {name.split(".")[1] for name in own}
        assert {str(one.full_name) for one in rest.list_all_tables(share)} == own
        assert (
            bool(rest.list_all_assets(VOLUME, share)) is bool(rest.list_assets(VOLUME, share, "x")) is (share in whole)
        )
        everything = [table(name) for name in TABLES if name.share == share]
        schemas, entries = rest.list_everything(share, None, everything)
        assert set(schemas) == {name.split(".")[1] for name in own}
        expected = {(TABLE, *name.split(".")[1:]) for name in own} | ({(VOLUME, "x", "v")} if share in whole else set())
        assert {(one.kind, one.schema, one.name) for one in entries} == expected
        for schema in SCHEMAS:
            listed = {str(one.full_name) for one in rest.list_tables(share, schema)}
            assert listed == {name for name in own if name.split(".")[1] == schema}
    for name in TABLES:
        assert rest.is_shared(AssetRef(TABLE, name)) is (str(name) in names)
        assert rest.is_shared(AssetRef(VOLUME, name)) is (name.share in whole)
    rest.scope = Scope.of(("z",), ("y.x.t",))
    with pytest.raises(NotFoundError, match="restricted to the share 'y', but no such share"):
        rest.list_shares()
