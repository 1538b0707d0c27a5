"""Volumes, skills and models: shared assets, their directories and stores, and the responses of each API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from delta_sharing_client.checks.check import Outcome
from delta_sharing_client.checks.run import conformance
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.redact import Secret
from mock_server import asset_files, catalog, demo
from mock_server.catalog import AssetKind
from mock_server.config import from_yaml
from mock_server.errors import ConfigError
from mock_server.s3 import S3Settings, _split
from tests.unit.mock_server.helpers import Api, error_of

SHOP = "shares/s/schemas/shop"
SKILL = "---\nname: report\ndescription: Writes a report\nallowed-tools: Read Bash\nmetadata: {n: 1}\n---\n\n# Report\n"
PLURALS = [kind.value for kind in AssetKind]
CREDENTIALS = {
    "volumes": "volumes/docs/temporary-volume-credentials",
    "skills": "skills/report/temporary-skill-credentials",
    "models": "models/churn/versions/2/temporary-model-version-credentials",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create the directories of a volume, a skill and a model with two versions."""
    files = {"docs/a.txt": "a", "report/SKILL.md": SKILL, "churn/1/MLmodel": "x", "churn/2/MLmodel": "y"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "churn" / "notes").mkdir()
    return tmp_path


@pytest.fixture
def shared(folder: Path, start: Callable[..., Api]) -> Api:
    return start(
        {},
        volumes={"s.shop.docs": folder / "docs"},
        skills={"s.shop.report": folder / "report"},
        models={"s.shop.churn": folder / "churn"},
        aliases={"s.shop.churn": {"champion": 2}},
        credentials_ttl=60,
    )


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[S3Settings, Any]]:
    """A local S3 server with a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    secret = "planted-secret"
    settings = S3Settings(
        endpoint=f"http://{host}:{port}",
        region="us-east-1",
        access_key_id="planted-key",
        secret_access_key=Secret(secret),
    )
    resource = boto3.resource(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region,
        aws_access_key_id="planted-key",
        aws_secret_access_key=secret,
    )
    try:
        yield settings, resource.create_bucket(Bucket="files")
    finally:
        server.stop()


def test_directories_are_listed_and_described(shared: Api, folder: Path) -> None:
    names = {"schema": "shop", "share": "s"}
    (volume,) = shared.get(f"{SHOP}/volumes").json()["items"]
    assert volume == {
        "name": "docs",
        **names,
        "shareId": volume["shareId"],
        "id": volume["id"],
        "storageLocation": (folder / "docs").as_uri(),
    }
    (skill,) = shared.get(f"{SHOP}/skills").json()["items"]
    properties = {"description": "Writes a report", "allowedTools": "Read Bash", "metadata": {"n": "1"}}
    assert skill | properties | {"storageLocation": (folder / "report").as_uri()} == skill
    (model,) = shared.get(f"{SHOP}/models").json()["items"]
    assert model["storageLocation"] == (folder / "churn").as_uri()
    for plural, item in zip(PLURALS, (volume, skill, model), strict=True):
        assert shared.get(f"shares/s/all-{plural}").json()["items"] == [item]
        assert shared.get(f"{SHOP}/{plural}/{item['name']}").json() == item
    assert len({volume["id"], skill["id"], model["id"]}) == 3
    assert [schema["name"] for schema in shared.get("shares/s/schemas").json()["items"]] == ["shop"]


def test_versions_of_a_model_are_listed_and_found_by_alias(shared: Api, folder: Path) -> None:
    first, second = shared.get(f"{SHOP}/models/churn/versions").json()["items"]
    assert (first["version"], second["version"], second["status"]) == (1, 2, "READY")
    assert (second["modelName"], second["storageLocation"]) == ("churn", (folder / "churn" / "2").as_uri())
    assert shared.get(f"{SHOP}/models/churn/aliases/champion").json() == second
    for missing in ("versions/x", "versions/02"):
        assert error_of(shared.get(f"{SHOP}/models/churn/{missing}")) == (404, "RESOURCE_DOES_NOT_EXIST")


@pytest.mark.parametrize("plural", PLURALS)
def test_kit_holds_with_several_assets(folder: Path, start: Callable[..., Api], plural: str) -> None:
    for name in ("a", "b", "c"):
        (folder / name / "1").mkdir(parents=True)
        for file in (folder / name / "SKILL.md", folder / name / "1" / "MLmodel"):
            file.write_text(SKILL.replace("report", name))
    api = start({}, **{plural: {f"s.shop.{name}": folder / name for name in ("a", "b", "c")}})

    assert conformance(api.server.profile, only=[plural]).failed == ()
    for wrong in ("maxResults=-1", "maxResults=x", "pageToken=x"):
        assert error_of(api.get(f"{SHOP}/{plural}?{wrong}")) == (400, "INVALID_PARAMETER_VALUE")


@pytest.mark.parametrize("plural", PLURALS)
def test_local_directory_credentials_have_only_an_expiration(shared: Api, plural: str) -> None:
    before = time.time()
    answer = shared.session.post(f"{shared.server.endpoint}{SHOP}/{CREDENTIALS[plural]}").json()
    assert answer.keys() == {"expirationTime"}
    assert before + 59 < answer["expirationTime"] / 1000 < time.time() + 61
    shared.server.set_fault("expired-credentials:1")
    assert shared.post(f"{SHOP}/{CREDENTIALS[plural]}").json()["expirationTime"] / 1000 < time.time()


def test_credentials_of_versions_have_two_paths(start: Callable[..., Api], tmp_path: Path) -> None:
    api = start(demo.build(tmp_path))
    churn = "shares/demo/schemas/shop/models/churn"
    # The specification and the README of OpenSharing name the endpoint differently.
    for name in ("temporary-model-version-credentials", "temporary-model-credentials"):
        assert api.post(f"{churn}/versions/2/{name}").json().keys() == {"expirationTime"}
        refused = api.post(f"{churn}/versions/3/{name}")
        assert error_of(refused) == (400, "INVALID_PARAMETER_VALUE")
        assert "only versions with the status READY" in refused.json()["message"]


@pytest.mark.parametrize("plural", PLURALS)
def test_s3_credentials_read_below_the_location(
    s3: tuple[S3Settings, Any], start: Callable[..., Api], plural: str
) -> None:
    settings, bucket = s3
    names = {"volumes": "docs", "skills": "report", "models": "churn"}
    asset, location = ("s", "shop", names[plural]), f"s3://files/some where/{names[plural]}"
    shared = {
        "volumes": lambda: asset_files.volume(asset, location),
        "skills": lambda: asset_files.skill(asset, location, {"description": "Writes a report"}),
        "models": lambda: asset_files.model(asset, versions=(asset_files.version(asset, 2, location),)),
    }
    bucket.put_object(Key=f"some where/{names[plural]}/a.txt", Body=b"content")
    api = start(catalog.build((), assets=[shared[plural]()]), s3=settings)
    answer = api.post(f"{SHOP}/{CREDENTIALS[plural]}").json()
    assert answer.keys() == {"awsTempCredentials", "expirationTime"}
    keys = answer["awsTempCredentials"]
    client = boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region,
        aws_access_key_id=keys["accessKeyId"],
        aws_secret_access_key=keys["secretAccessKey"],
        aws_session_token=keys["sessionToken"],
    )
    key = f"some where/{names[plural]}/a.txt"
    assert client.get_object(Bucket="files", Key=key)["Body"].read() == b"content"
    bucket.put_object(Key=f"some where/{names[plural]}/SKILL.md", Body=SKILL.encode())
    store = ReadOptions(storage_options={"endpoint": settings.endpoint, "region": settings.region})
    report = conformance(api.server.profile, only=[plural], options=store)
    assert report.failed == ()
    read = {"volumes": "volumes.files", "skills": "skills.skill-file", "models": "models.files"}[plural]
    assert {result.check.id: result.outcome for result in report.results}[read] is Outcome.HOLDS


def test_ids_of_assets_are_the_same_at_every_start(folder: Path, start: Callable[..., Api]) -> None:
    given: Any = {
        "volumes": {"s.shop.report": folder / "docs", "s.shop.docs": folder / "docs"},
        "skills": {"s.shop.report": folder / "report"},
        "models": {"s.shop.report": folder / "churn"},
    }
    ids: list[list[str]] = []
    for _ in range(2):
        api = start({}, **given)
        items = [item for plural in PLURALS for item in api.get(f"{SHOP}/{plural}").json()["items"]]
        items += api.get(f"{SHOP}/models/report/versions").json()["items"]
        ids.append([item["id"] for item in items])
        assert {item.get("shareId") for item in items} == {None, api.get("shares/s").json()["share"]["id"]}
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(ids[0]) == 6


def test_custom_credential_vendors_support_other_stores(start: Callable[..., Api]) -> None:
    asked = []

    def vend(location: str, lifetime: float) -> dict[str, object]:
        asked.append((location, lifetime))
        return {"gcpOauthToken": {"oauthToken": "planted"}}

    api = start({}, volumes={"s.shop.docs": "gs://b/docs/"}, vendors={"gs": vend}, credentials_ttl=7)
    assert api.post(f"{SHOP}/{CREDENTIALS['volumes']}").json()["gcpOauthToken"] == {"oauthToken": "planted"}
    assert asked == [("gs://b/docs/", 7)]


def test_local_directories_are_shared_with_this_machine_only(folder: Path, start: Callable[..., Api]) -> None:
    for assets in (
        {"volumes": {"s.shop.docs": folder / "docs"}},
        {"models": {"s.shop.churn": {1: folder / "churn" / "1"}}},
    ):
        with pytest.raises(ConfigError, match="only with its own users"):
            start({}, host="0.0.0.0", **assets)


def test_assets_are_shared_next_to_a_directory_of_tables(tables: Path, folder: Path, start: Callable[..., Api]) -> None:
    api = start(tables, volumes={"default.default.docs": folder / "docs"})
    assert [item["name"] for item in api.get("shares/default/all-volumes").json()["items"]] == ["docs"]
    assert "plain" in [item["name"] for item in api.get("shares/default/all-tables").json()["items"]]


@pytest.mark.parametrize(
    ("assets", "problem"),
    [
        ({"volumes": {"s.d.v": "missing"}}, "expected at 'missing'"),
        ({"volumes": {"s.d": "s3://b/v"}}, r"must be 'share\.schema\.volume'"),
        ({"volumes": {"s.d.a b": "s3://b/v"}}, "name of a volume must be 1 to 255 characters without dot, space"),
        ({"volumes": {"s.d.a/b": "s3://b/v"}}, "not 'a/b'"),
        ({"volumes": {"s.d\x7f.v": "s3://b/v"}}, "name of a schema"),
        ({"volumes": {"s s.d.v": "s3://b/v"}}, "name of a share must be 1 to 255 characters without space"),
        ({"models": {f"s.d.{'m' * 256}": {1: "s3://b/v"}}}, "name of a model"),
        ({"skills": {"s.d.Report": "report"}}, "lowercase letters, digits and single hyphens"),
        ({"skills": {"s.d.re--port": "report"}}, "single hyphens"),
        ({"skills": {"s.d.-report": "report"}}, "single hyphens"),
        ({"skills": {f"s.d.{'r' * 65}": "report"}}, "at most 64"),
        ({"skills": {"s.d.other": "report"}}, "must be the name of its directory, 'report'"),
        ({"skills": {"s.d.docs": "docs"}}, "SKILL.md' cannot be read"),
        ({"skills": {"s.d.far": "s3://b/far"}}, "it has no description"),
        ({"models": {"s.d.m": {1: "docs"}}, "aliases": {"s.d.m": {"a": 2}}}, "names version 2, which does not exist"),
        ({"aliases": {"s.d.m": {"a": 2}}}, "no such model is shared"),
    ],
)
def test_invalid_assets_are_refused(
    folder: Path, start: Callable[..., Api], monkeypatch: pytest.MonkeyPatch, assets: dict[str, Any], problem: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=problem):
        start({}, **assets)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# Report\n", "must begin with front matter"),
        ("---\n- a\n---\n", "must begin with front matter"),
        ("---\nname: [\n---\n", "is not YAML"),
        ("---\ndescription: &d a report\nlicense: *d\n---\n", "is not YAML: it has the alias"),
        ("---\nname: report\n---\n", "it has no description"),
        (f"---\ndescription: {'x' * 1025}\n---\n", "at most 1024"),
        (f"---\ndescription: d\ncompatibility: {'x' * 501}\n---\n", "at most 500"),
    ],
)
def test_skill_with_wrong_front_matter_is_refused(
    folder: Path, start: Callable[..., Api], text: str, problem: str
) -> None:
    (folder / "report" / "SKILL.md").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        start({}, skills={"s.d.report": folder / "report"})


CONFIG = """
shares:
- name: s
  schemas:
  - name: shop
    volumes:
    - {name: docs, location: docs, id: "1"}
    - {name: far, location: "abfss://c@a.dfs.core.windows.net/far"}
    skills:
    - {name: report, location: report, license: MIT, compatibility: git, allowedTools: Read, metadata: {k: v}}
    - {name: far, location: "s3://b/far", description: It is far away}
    models:
    - {name: churn, location: churn, comment: who leaves, aliases: {champion: 1}}
    - name: other
      versions:
      - {version: 4, location: "s3://b/other/4", runId: r, source: "runs:/r", comment: c, id: "9"}
      - {version: 5, location: "s3://b/other/5", status: FAILED_REGISTRATION}
      aliases: {best: 4}
"""


def test_configuration_file_declares_assets(folder: Path) -> None:
    path = folder / "server.yaml"
    path.write_text(CONFIG)
    docs, far, report, far_skill, churn, other = from_yaml(path).catalog.assets
    assert (docs.kind, docs.full_name, docs.id, docs.storage) == (
        *(AssetKind.VOLUME, "s.shop.docs", "1"),
        (folder / "docs").as_uri(),
    )
    assert far.storage == "abfss://c@a.dfs.core.windows.net/far"
    own = {"license": "MIT", "compatibility": "git", "allowedTools": "Read", "metadata": {"k": "v"}}
    assert report.about == {"description": "Writes a report", **own}
    assert far_skill.about == {"description": "It is far away"}
    assert (churn.about, dict(churn.aliases)) == ({"comment": "who leaves"}, {"champion": 1})
    assert [version.version for version in churn.versions] == [1, 2]
    assert other.storage is None
    assert other.versions[0].about == {"id": "9", "source": "runs:/r", "runId": "r", "comment": "c"}
    assert [(one.version, one.status) for one in other.versions] == [(4, "READY"), (5, "FAILED_REGISTRATION")]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("volumes: [{name: v}]", "location is missing"),
        ("volumes: [{name: v, location: docs, size: 1}]", "no key 'size'"),
        ("volumes: [{name: v, location: docs}, {name: V, location: docs}]", "used twice"),
        ("skills: [{name: report, location: report, metadata: {k: 1}}]", "k must be a string"),
        ("models: [{name: m}]", "location is missing"),
        ("models: [{name: m, versions: [{version: 1, location: docs, status: DONE}]}]", "must be one of PENDING"),
        ("models: [{name: m, versions: [{version: x, location: docs}]}]", "version must be a whole number"),
        ("models: [{name: m, location: churn, aliases: {a: 7}}]", "names version 7, which does not exist"),
        (
            "models: [{name: m, versions: [{version: 1, location: docs}, {version: 1, location: docs}]}]",
            "two versions with the same number",
        ),
        ("models: [{name: m, versions: [{location: docs}]}]", "must have a number of 1 or more, not 0"),
    ],
)
def test_invalid_assets_in_a_configuration_file_are_refused(folder: Path, line: str, problem: str) -> None:
    path = folder / "server.yaml"
    path.write_text(f"shares: [{{name: s, schemas: [{{name: d, {line}}}]}}]\n")
    with pytest.raises(ConfigError, match=problem):
        from_yaml(path)


def test_demo_shares_every_kind_of_asset(start: Callable[..., Api], tmp_path: Path) -> None:
    api = start(demo.build(tmp_path))
    results = {plural: api.get(f"shares/demo/all-{plural}").json()["items"] for plural in PLURALS}
    assert {plural: [item["name"] for item in items] for plural, items in results.items()} == {
        "volumes": ["documents"],
        "skills": ["sales-report"],
        "models": ["churn"],
    }
    folder = tmp_path / "shop"
    assert (folder / "documents" / "pictures" / "sign.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "sales-report" / "SKILL.md").exists()
    assert (folder / "churn" / "2" / "MLmodel").exists()


@pytest.mark.parametrize(
    ("location", "folder", "file"),
    [
        ("s3://b/a/c", "a/c/", "a/c"),
        ("s3a://b/a/c/", "a/c/", "a/c/"),
        ("s3://b/a", "a/", "a"),
        ("s3://b/", "", ""),
        ("s3://b", "", ""),
    ],
)
def test_s3_url_is_split_into_bucket_and_key(location: str, folder: str, file: str) -> None:
    assert _split(location) == ("b", folder)
    assert _split(location, folder=False) == ("b", file)


def test_asset_location_becomes_a_url_and_must_exist(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    url = (tmp_path / "a b").resolve().as_uri()
    assert "%20" in url
    assert [
        asset_files.storage_of(tmp_path / "a b"),
        asset_files.storage_of(str(tmp_path / "a b")),
        asset_files.storage_of(url),
    ] == [url] * 3
    assert asset_files.storage_of("s3://b/a b") == "s3://b/a b"
    for missing in (str(tmp_path / "c"), (tmp_path / "c").as_uri()):
        with pytest.raises(ConfigError, match="A directory was expected at"):
            asset_files.storage_of(missing)
