"""Volumes, models and skills: listings, single assets, versions, aliases and credentials."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import delta_sharing_client as ds
from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import (
    AuthError,
    NotFoundError,
    ProtocolError,
    RequestError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.asset_kinds import KINDS, MODEL, MODEL_VERSION, SKILL, TABLE, VOLUME, AssetRef
from delta_sharing_client.protocol.names import AssetName, Table
from tests.unit.protocol import wire

S = "/shares/s/schemas/d"
NAME = AssetName("s", "d", "v")
OTHERS = [kind for kind in KINDS if kind is not TABLE]
REQUIRED = {
    "volumes": {"storageLocation": "s3://b/v"},
    "models": {},
    "skills": {"storageLocation": "s3://b/v", "description": "what it does"},
}
AWS = {"accessKeyId": "planted-1", "secretAccessKey": "planted-2", "sessionToken": "planted-3"}
CLOUDS = {
    "awsTempCredentials": AWS,
    "azureUserDelegationSas": {"sasToken": "planted-4"},
    "gcpOauthToken": {"oauthToken": "planted-5"},
    "r2Credentials": AWS,
}


def item_of(kind, name="v", **fields):
    return {"name": name, "schema": "d", "share": "s", **REQUIRED[kind.plural], **fields}


def serve_names(server, kind, *names):
    """Serve one share and schema with assets of one kind."""
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "s"}]}))
    server.on("GET", "/shares/s/schemas", wire.as_json({"items": [{"name": "d"}]}))
    server.on("GET", f"/shares/s/all-{kind.plural}", wire.as_json({"items": [item_of(kind, name) for name in names]}))


def version_item(version=3, **fields):
    place = {"modelName": "v", "schema": "d", "share": "s", "storageLocation": "s3://b/v/3"}
    return {**place, "version": version, "status": "READY", **fields}


# --- listings ---


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.plural)
def test_listing_has_all_pages_and_fields(server, rest, kind):
    first = {"items": [item_of(kind, "a", shareId="1", id="2")], "nextPageToken": "x"}
    second = {"items": [item_of(kind, "b", futureField={"a": [1]})], "nextPageToken": ""}
    for path in (f"{S}/{kind.plural}", f"/shares/s/all-{kind.plural}"):
        server.on("GET", path, wire.as_json(first), wire.as_json({"nextPageToken": "y"}), wire.as_json(second))

    for assets in (rest.list_assets(kind, "s", "d"), rest.list_all_assets(kind, "s")):
        assert [(one.name, one.schema, one.share, one.share_id, one.id) for one in assets] == [
            ("a", "d", "s", "1", "2"),
            ("b", "d", "s", None, None),
        ]
    assert [request.query.get("pageToken") for request in server.requests] == [None, "x", "y"] * 2


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.plural)
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html><head><title>404 Not Found</title></head></html>"),
        (404, b'{"errorCode": "RESOURCE_DOES_NOT_EXIST", "message": "no such path"}'),
        (405, b"Method Not Allowed"),
        (501, b'{"errorCode": "NOT_IMPLEMENTED", "message": "no"}'),
    ],
)
def test_listing_is_empty_if_the_server_lacks_the_asset_type(server, rest, sleeps, kind, status, body):
    server.on("GET", "/shares/s/schemas", wire.as_json({"items": [{"name": "D"}, {"name": "e"}]}))
    for path in (f"{S}/{kind.plural}", f"/shares/s/schemas/D/{kind.plural}", f"/shares/s/all-{kind.plural}"):
        server.on("GET", path, wire.Reply(status, body))

    assert rest.list_assets(kind, "s", "d") == []
    assert rest.list_all_assets(kind, "s") == []
    # The second schema is not requested, and no request is repeated.
    assert len(server.requests) == 5
    assert sleeps == []


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.plural)
@pytest.mark.parametrize(("status", "error"), [(401, AuthError), (403, AuthError), (400, RequestError)])
def test_refused_listing_is_an_error(server, rest, kind, status, error):
    for path in (f"{S}/{kind.plural}", f"/shares/s/all-{kind.plural}"):
        server.on("GET", path, wire.error(status, "PERMISSION_DENIED"))

    with pytest.raises(error):
        rest.list_assets(kind, "s", "d")
    with pytest.raises(error):
        rest.list_all_assets(kind, "s")


@pytest.mark.parametrize("reply", ["outage", "login page", "cut off"])
def test_broken_response_to_a_listing_is_an_error(server, rest, reply):
    body = {"outage": b"", "login page": b"<html><title>Sign in</title></html>", "cut off": b'{"items": [{"name"'}
    server.on("GET", "/shares/s/all-volumes", wire.Reply(503 if reply == "outage" else 200, body[reply]))

    with pytest.raises((ProtocolError, RequestError), match="Listing all volumes of share s"):
        rest.list_all_assets(VOLUME, "s")


def test_listing_a_missing_schema_or_share_is_an_error(server, rest):
    serve_names(server, VOLUME)

    with pytest.raises(NotFoundError, match=r"Did you mean 's\.d'"):
        rest.list_assets(VOLUME, "s", "dd")
    server.on("GET", "/shares/s/schemas/dd/volumes", wire.error(501, "NOT_IMPLEMENTED"))
    with pytest.raises(NotFoundError, match=r"Did you mean 's\.d'"):
        rest.list_assets(VOLUME, "s", "dd")
    with pytest.raises(NotFoundError, match="These exist: s"):
        rest.list_all_assets(VOLUME, "unlike")


def test_volumes_are_listed_by_schema_without_the_share_endpoint(server, rest):
    server.on("GET", "/shares/s/schemas", wire.as_json({"items": [{"name": "d"}, {"name": "e"}]}))
    server.on("GET", f"{S}/volumes", wire.as_json({"items": [item_of(VOLUME, "a")]}))
    server.on(
        "GET", "/shares/s/schemas/e/volumes", wire.as_json({"items": [{"name": "b", "storageLocation": "s3://b"}]})
    )

    assert [(one.schema, one.name) for one in rest.list_all_assets(VOLUME, "s")] == [("d", "a"), ("e", "b")]


def test_invalid_items_are_skipped_and_logged(server, rest, caplog):
    bad = [{"name": "a"}, item_of(VOLUME, "../etc"), item_of(VOLUME, "x" * 256), item_of(VOLUME, "")]
    bad += [{**item_of(VOLUME, "n"), "schema": None}]
    server.on("GET", "/shares/s/all-volumes", wire.as_json({"items": [*bad, item_of(VOLUME, "good")]}))

    with caplog.at_level(logging.WARNING):
        assert [one.name for one in rest.list_all_assets(VOLUME, "s")] == ["good"]
    assert len([record for record in caplog.records if "left out" in record.getMessage()]) == len(bad)

    for one, problem in zip(
        bad, ["storageLocation", "slash", "255", "needs a name", "schema needs a name"], strict=True
    ):
        server.on("GET", "/shares/s/all-volumes", wire.as_json({"items": [one]}))
        with pytest.raises(ProtocolError, match=problem):
            rest.list_all_assets(VOLUME, "s")


# --- one asset ---


def test_skill_has_all_fields_of_the_response(server, rest):
    fields = {"license": "MIT", "compatibility": "git", "allowedTools": "Read  Bash(git:*)", "metadata": {"k": "v"}}
    server.on("GET", f"{S}/skills/v", wire.as_json(item_of(SKILL, id="1", shareId="2", **fields)))

    skill = SharingClient(rest.profile).skill("s.d.v")

    assert server.requests == []
    assert (skill.description, skill.storage_location, skill.license) == ("what it does", "s3://b/v", "MIT")
    assert (skill.compatibility, skill.allowed_tools) == ("git", ("Read", "Bash(git:*)"))
    assert (skill.metadata, skill.id, skill.share_id) == ({"k": "v"}, "1", "2")
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.plural)
def test_error_of_a_missing_asset_suggests_the_nearest_name(server, rest, kind):
    serve_names(server, kind, "documents")

    for status in (404, 405, 501):
        server.on("GET", f"{S}/{kind.plural}/document", wire.error(status, "NOT_IMPLEMENTED"))
        with pytest.raises(NotFoundError, match=r"Did you mean 's\.d\.documents'") as caught:
            rest.get_asset(kind, AssetName("s", "d", "document"))
        assert f"{kind.noun} s.d.document" in str(caught.value)
    with pytest.raises(
        NotFoundError,
        match=rf"'list_all_{kind.plural}\(\)' or 'delta-sharing {kind.plural}' to list what is shared",
    ):
        rest.get_asset(kind, AssetName("s", "d", "unlike"))


def test_missing_table_error_names_a_volume_of_the_same_name(server, rest):
    serve_names(server, VOLUME, "documents")
    for path in ("/shares/s/all-tables", f"{S}/tables"):
        server.on("GET", path, wire.as_json({}))
    server.on("GET", f"{S}/volumes/documents", wire.as_json(item_of(VOLUME, "documents")))

    with pytest.raises(
        NotFoundError, match=r"There is a volume with this name: see 'client\.volume\(\)' or 'delta-sharing ls'"
    ):
        rest.get_table(AssetName("s", "d", "documents"))


def test_asset_without_a_required_field_is_an_error(server, rest):
    server.on("GET", f"{S}/volumes/v", wire.as_json({"name": "v", "schema": "d", "share": "s"}))

    with pytest.raises(ProtocolError, match=r"Looking up volume s\.d\.v: .*'storageLocation' is missing"):
        rest.get_asset(VOLUME, NAME)


def test_table_has_the_formats_of_the_response(server, rest, table):
    item = {"name": "t", "schema": "d", "share": "s", "id": "1", "format": "Delta, iceberg,"}
    server.on("GET", f"{S}/tables/t", wire.as_json(item))

    expected = Table("t", "s", "d", "1", formats=("delta", "iceberg"))
    client = SharingClient(rest.profile)
    assert rest.get_table(table) == expected
    assert [client.get_table("s.d.t"), client.get_table(table), client.get_table(expected)] == [expected] * 3
    assert asyncio.run(client.get_table_async("s.d.t")) == expected


@pytest.mark.parametrize("status", [404, 405, 501])
def test_table_is_found_in_the_listing_without_its_own_endpoint(server, rest, table, status):
    server.on("GET", f"{S}/tables/t", wire.Reply(status, b"<html>"))
    server.on("GET", f"{S}/tables", wire.as_json({"items": [{"name": "T", "id": "1"}]}))

    assert rest.get_table(table) == Table("T", "s", "d", "1")
    server.on("GET", f"{S}/tables", wire.as_json({"items": [{"name": "u"}]}))
    with pytest.raises(NotFoundError):
        rest.get_table(table)


# --- models ---


def test_model_lists_its_versions_and_finds_one_by_alias(server, rest):
    fields = {"id": "i", "source": "runs:/1", "runId": "1", "comment": "c"}
    bare = {"version": 4, "status": "READY", "storageLocation": "s3://b/v/4"}
    server.on("GET", f"{S}/models/v/versions", wire.as_json({"items": [version_item(**fields), bare]}))
    server.on("GET", f"{S}/models/v/versions/3", wire.as_json(version_item(status="PENDING_REGISTRATION")))
    server.on("GET", f"{S}/models/v/aliases/champion", wire.as_json(version_item(4)))
    model = SharingClient(rest.profile).model("s.d.v")

    third, fourth = model.versions()

    assert repr(model.versions()) == "[ModelVersion(s.d.v, version=3), ModelVersion(s.d.v, version=4)]"
    assert (third.version, third.status, third.storage_location) == (3, "READY", "s3://b/v/3")
    assert (third.id, third.source, third.run_id, third.comment) == ("i", "runs:/1", "1", "c")
    assert (fourth._item.model_name, fourth._item.schema, fourth._item.share) == ("v", "d", "s")
    assert model.version(3).status == "PENDING_REGISTRATION"
    assert model.alias("champion").version == 4
    assert model.version(3)._ref.path == ("shares", "s", "schemas", "d", "models", "v", "versions", "3")


def test_error_of_a_missing_version_lists_the_versions(server, rest):
    serve_names(server, MODEL, "v")
    server.on("GET", f"{S}/models/v/versions", wire.as_json({"items": [version_item(1), version_item(3)]}))

    with pytest.raises(NotFoundError, match=r"version 2 of model s\.d\.v failed.*Its versions are 1, 3"):
        rest.get_model_version(NAME, 2)
    with pytest.raises(NotFoundError, match=r"alias 'old' of model s\.d\.v failed"):
        rest.get_model_alias(NAME, "old")
    with pytest.raises(NotFoundError, match=r"Did you mean 's\.d\.v'"):
        rest.list_model_versions(AssetName("s", "d", "vv"))


def test_response_about_a_different_version_is_an_error(server, rest):
    server.on("GET", f"{S}/models/v/versions/3", wire.as_json(version_item(2)))

    with pytest.raises(ProtocolError, match=r"version 3 of model s\.d\.v: the response describes version 2"):
        rest.get_model_version(NAME, 3)


@pytest.mark.parametrize("version", [-1, True, "3", 3.0, None])
def test_invalid_version_number_is_refused(rest, version):
    with pytest.raises(UsageError, match="version number of model"):
        SharingClient(rest.profile).model("s.d.v").version(version)


@pytest.mark.parametrize("alias", ["", "a/b", "..", None])
def test_invalid_alias_is_refused(rest, alias):
    with pytest.raises(UsageError, match="An alias n"):
        rest.get_model_alias(NAME, alias)


# --- credentials ---


REFS = [AssetRef(TABLE, NAME), AssetRef(VOLUME, NAME), AssetRef(SKILL, NAME), AssetRef(MODEL_VERSION, NAME, 3)]


def credentials_path(ref, segment=0):
    return "/".join(("", *ref.path, ref.kind.credentials[segment]))


@pytest.mark.parametrize("ref", REFS, ids=str)
@pytest.mark.parametrize("cloud", list(CLOUDS))
@pytest.mark.parametrize("nested", [False, True])
def test_credentials_may_be_nested_or_at_the_top_level(server, rest, ref, cloud, nested):
    fields = {cloud: CLOUDS[cloud], "expirationTime": 5, **({"location": "s3://b/v"} if ref.kind is TABLE else {})}
    unset = dict.fromkeys((name for name in CLOUDS if name != cloud), None)
    body = {"credentials": {**unset, **fields}} if nested else {**unset, **fields}
    server.on("POST", credentials_path(ref), wire.as_json(body))

    credentials = rest.credentials(ref, "s3://b/v")

    assert credentials.kinds == (cloud,)
    assert (credentials.location, credentials.expiration_time) == ("s3://b/v", 5)
    assert type(credentials).__name__ == "TemporaryCredentials"
    assert "planted" not in repr(credentials)
    assert server.requests[0].body == ({"location": "s3://b/v"} if ref.kind is TABLE else "")
    assert pickle.loads(pickle.dumps(credentials)) == credentials


def test_aws_access_point_is_kept(server, rest):
    arn = "arn:aws:s3:us-west-2:1:accesspoint/a"
    server.on("POST", credentials_path(REFS[1]), wire.as_json({"awsTempCredentials": {**AWS, "accessPoint": arn}}))

    assert rest.credentials(REFS[1], "s3://b/v").aws_temp_credentials.access_point == arn


@pytest.mark.parametrize("ref", REFS, ids=str)
def test_zero_or_two_kinds_of_credentials_are_refused(server, rest, ref):
    server.on("POST", credentials_path(ref), wire.as_json({"location": "s3://b/v", "expirationTime": 5}))
    with pytest.raises(UnsupportedFeatureError, match=r"'awsTempCredentials', .* 's3', found none of them") as none:
        rest.credentials(ref, "s3://b/v")

    two = {name: CLOUDS[name] for name in ("gcpOauthToken", "r2Credentials")}
    split = {"awsTempCredentials": AWS, "credentials": {"location": "s3://b/v", "r2Credentials": AWS}}
    for body, first in ((two, "gcpOauthToken"), (split, "awsTempCredentials")):
        server.on("POST", credentials_path(ref), wire.as_json({"location": "s3://b/v", **body}))
        with pytest.raises(ProtocolError, match=f"exactly one kind of credentials, found '{first}' and 'r2C") as caught:
            rest.credentials(ref, "s3://b/v")
        assert "planted" not in str(caught.value)
    assert str(ref) in str(none.value)


def test_table_credentials_need_a_location(server, rest):
    server.on("POST", credentials_path(REFS[0]), wire.as_json({"credentials": {"awsTempCredentials": AWS}}))

    with pytest.raises(ProtocolError, match="no 'location'"):
        rest.credentials(REFS[0])


def test_malformed_credentials_are_not_shown(server, rest):
    for body in (
        {"awsTempCredentials": {**AWS, "sessionToken": 7}},
        {"awsTempCredentials": {"accessKeyId": "planted-1"}},
    ):
        server.on("POST", credentials_path(REFS[1]), wire.as_json(body | {"gcpOauthToken": "planted-9"}))
        with pytest.raises(ProtocolError) as caught:
            rest.credentials(REFS[1], "s3://b/v")
        assert "planted" not in str(caught.value)


@pytest.mark.parametrize("status", [404, 405, 501])
def test_version_credentials_fall_back_to_the_second_path(server, rest, sleeps, status):
    ref = REFS[3]
    server.on("POST", credentials_path(ref), wire.error(status, "NOT_IMPLEMENTED", "first"))
    server.on("POST", credentials_path(ref, 1), wire.as_json({"awsTempCredentials": AWS}))

    assert rest.credentials(ref, "s3://b/v").kinds == ("awsTempCredentials",)
    assert sleeps == []

    server.on("POST", credentials_path(ref, 1), wire.error(status, "NOT_IMPLEMENTED", "second"))
    with pytest.raises(RequestError, match="first"):
        rest.credentials(ref, "s3://b/v")


def test_403_for_credentials_is_not_retried_at_the_second_path(server, rest):
    server.on("POST", credentials_path(REFS[3]), wire.error(403, "PERMISSION_DENIED"))

    with pytest.raises(AuthError):
        rest.credentials(REFS[3], "s3://b/v")
    assert len(server.requests) == 1


def test_credentials_of_a_model_without_a_version_are_refused(rest):
    with pytest.raises(UsageError, match="one of its versions"):
        rest.credentials(AssetRef(MODEL, NAME))


# --- the client ---


def test_asset_names_ignore_case():
    assert AssetName("S", "d", "V") == AssetName("s", "D", "v")
    assert len({AssetName("S", "d", "V"), AssetName("s", "D", "v"), AssetName("s", "d", "w")}) == 2
    assert AssetName("s", "d", "v") != "s.d.v"


def test_client_lists_assets_of_each_kind(server, rest):
    for kind in OTHERS:
        serve_names(server, kind, "a", "b")
        server.on("GET", f"{S}/{kind.plural}", wire.as_json({"items": [item_of(kind, "a")]}))
    client = SharingClient(rest.profile, ReadOptions(read_timeout=7))

    assert repr(client.list_volumes("s.d")) == "[Volume(s.d.a)]"
    assert repr(client.list_models(ds.Schema("d", "s"))) == "[Model(s.d.a)]"
    assert repr(client.list_skills("s.d")) == "[Skill(s.d.a)]"
    earlier = len(server.requests)
    volumes = client.list_all_volumes()
    assert len(server.requests) == earlier + 2
    assert [str(one) for one in (*volumes, *client.list_all_models("s"), *client.list_all_skills("s"))] == [
        *("s.d.a", "s.d.b") * 3
    ]
    earlier = len(server.requests)
    assert volumes[0].storage_location == "s3://b/v"
    assert volumes[0].options.read_timeout == 7
    assert pickle.loads(pickle.dumps(volumes[0])).storage_location == "s3://b/v"
    assert len(server.requests) == earlier
    html = volumes._repr_html_()
    assert "storage_location" in html
    assert "share_id" not in html
    with pytest.raises(UsageError, match=r"Expected a volume as share\.schema\.volume"):
        client.volume("a.b")


def test_asynchronous_listings_equal_synchronous_ones(server, rest):
    for kind in OTHERS:
        serve_names(server, kind, "a")
        server.on("GET", f"{S}/{kind.plural}", wire.as_json({"items": [item_of(kind, "b")]}))
    client = SharingClient(rest.profile)

    async def list_all():
        listed = [client.list_volumes_async("s.d"), client.list_models_async("s.d"), client.list_skills_async("s.d")]
        everything = [
            client.list_all_volumes_async(),
            client.list_all_models_async("s"),
            client.list_all_skills_async(),
        ]
        return await asyncio.gather(*listed, *everything)

    assert [repr(assets) for assets in asyncio.run(list_all())] == [
        *("[Volume(s.d.b)]", "[Model(s.d.b)]", "[Skill(s.d.b)]"),
        *("[Volume(s.d.a)]", "[Model(s.d.a)]", "[Skill(s.d.a)]"),
    ]


def test_client_and_assets_are_thread_safe(server, rest):
    for kind in OTHERS:
        serve_names(server, kind, "v", "w")
        server.on("GET", f"{S}/{kind.plural}/v", wire.as_json(item_of(kind, id="1")))
    server.on("GET", f"{S}/models/v/versions", wire.as_json({"items": [version_item(1), version_item(2)]}))
    client = SharingClient(rest.profile)
    volume, model, skill = client.volume("s.d.v"), client.model("s.d.v"), client.skill("s.d.v")
    calls = [
        lambda: volume.storage_location,
        lambda: [one.version for one in model.versions()],
        lambda: skill.description,
        lambda: [str(one) for one in client.list_all_volumes()],
        lambda: list(client["s"]["d"])[-2:],
    ]
    for kind in KINDS:
        server.on("GET", f"{S}/{kind.plural}", wire.as_json({"items": []}))
    server.on("GET", f"{S}/skills", wire.as_json({"items": [item_of(SKILL, "v"), item_of(SKILL, "w")]}))
    start = threading.Barrier(20)

    def call(number):
        start.wait(30)
        return calls[number % len(calls)]()

    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(call, range(20)))
    expected = ["s3://b/v", [1, 2], "what it does", ["s.d.v", "s.d.w"], ["skill:v", "skill:w"]]
    assert results == expected * 4
