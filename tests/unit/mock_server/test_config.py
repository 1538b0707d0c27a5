"""The reference server's configuration file is parsed, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mock_server.app import create_app
from mock_server.catalog import Catalog, TableFormat, from_directory
from mock_server.config import ServerConfig, from_yaml
from mock_server.errors import ConfigError
from tests.unit.mock_server.helpers import Api

FULL = """
version: 1
shares:
- name: "sales"
  schemas:
  - name: "eu"
    tables:
    - name: "orders"
      location: "tables/orders"
      id: "11111111-1111-1111-1111-111111111111"
      historyShared: true
      startVersion: 2
    - name: "plain"
      location: "file:///data/plain"
- name: "empty"
authorization:
  bearerToken: "the-secret"
host: "localhost"
port: 8080
endpoint: "/delta-sharing/"
preSignedUrlTimeoutSeconds: 900
deltaTableCacheSize: 10
stalenessAcceptable: false
evaluatePredicateHints: true
evaluateJsonPredicateHints: false
queryTablePageSizeLimit: 100
queryTablePageTokenTtlMs: 2000
refreshTokenTtlMs: 3000
"""


def write(folder: Path, text: str, name: str = "server.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_complete_configuration_file_is_parsed(tmp_path: Path) -> None:
    config = from_yaml(write(tmp_path, FULL))
    orders, plain = config.catalog.tables
    assert (orders.share, orders.schema, orders.name) == ("sales", "eu", "orders")
    assert orders.location == (tmp_path / "tables" / "orders").resolve()
    assert (orders.id, orders.history_shared, orders.start_version) == (
        "1" * 8 + "-1111-1111-1111-" + "1" * 12,
        True,
        2,
    )
    assert (plain.location, plain.history_shared, plain.start_version) == (Path("/data/plain"), False, 0)
    assert config.catalog.shares() == ["sales", "empty"]
    assert config.catalog.schemas_of("EMPTY") == []
    assert (config.host, config.port, config.prefix, config.url_ttl) == ("localhost", 8080, "/delta-sharing", 900.0)
    assert (config.sql_hints, config.json_hints, config.json_hints_v2) == (True, False, True)
    assert (config.page_size_limit, config.page_token_ttl, config.refresh_token_ttl) == (100, 2.0, 3.0)
    assert config.check_token
    assert config.token.reveal() == "the-secret"
    assert "the-secret" not in repr(config)


def test_defaults_match_the_reference_server(tmp_path: Path) -> None:
    config = from_yaml(write(tmp_path, "version: 1\nshares: []\n", "s.yml"))
    assert not config.check_token
    assert config.token.reveal()
    assert (config.port, config.prefix, config.url_ttl) == (80, "/delta-sharing", 3600.0)
    assert config.refresh_token_ttl == 3600.0
    assert (config.sql_hints, config.json_hints, config.json_hints_v2) == (False, True, True)


TABLE = "shares: [{name: s, schemas: [{name: d, tables: [%s]}]}]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 2", "version must be 1"),
        ("version: one", "version must be a whole number, found a string"),
        ("[]", "expected keys and values, found a list"),
        ("", "expected keys and values, found nothing"),
        ("shares: {", "is not YAML"),
        ("shares: text", "shares must be a list, found a string"),
        ("shares: [{schemas: []}]", r"shares\[0\]: name is missing"),
        ("shares: [{name: a}, {name: A}]", "the name 'A' is used twice"),
        (f"shares: [{{name: a, displayName: {'x' * 256}}}]", "displayName must have at most 255 characters, found 256"),
        (f"shares: [{{name: a, comment: {'x' * 65_537}}}]", "comment must have at most 65536 characters, found 65537"),
        (f"shares: [{{name: a, properties: {{{'k' * 256}: v}}}}]", "of properties must have at most 255 characters"),
        (f"shares: [{{name: a, properties: {{k: {'v' * 1001}}}}}]", "'k' of properties must have at most 1000"),
        (
            f"shares: [{{name: a, properties: {{{', '.join(f'k{n}: v' for n in range(51))}}}}}]",
            "there must be at most 50 properties, found 51",
        ),
        (TABLE % "{name: t}", "location is missing"),
        (TABLE % "{name: t, location: 5}", "location must be a string"),
        (TABLE % "{name: t, location: 'abfss://bucket/t'}", "local directory or an s3:// address, not 'abfss:'"),
        (TABLE % "{name: t, location: x, accessModes: []}", "accessModes must be a list of 'url' and 'dir'"),
        (TABLE % "{name: t, location: x, accessModes: [file]}", "accessModes must be a list of 'url' and 'dir'"),
        (TABLE % "{name: t, location: x, accessModes: dir}", "accessModes must be a list of strings, found a string"),
        (TABLE % "{name: t, location: 's3://b/t', accessModes: [dir]}", "so historyShared must be true"),
        (TABLE % "{name: t, location: x, startVersion: -1}", "startVersion must be 0 or more"),
        (TABLE % "{name: t, location: x, historyShared: 1}", "historyShared must be true or false"),
        (TABLE % "{name: t, location: x}, {name: T, location: y}", "used twice"),
        ("port: '80'", "port must be a whole number"),
        ("preSignedUrlTimeoutSeconds: 0", "URL lifetime must be more than 0"),
        ("endpoint: '/'", "endpoint must be a path"),
        ("authorization: text", "authorization: expected keys and values"),
        ("prot: 80", r"server.yaml: there is no key 'prot'\. Did you mean 'port'\?"),
        ("5: 80", "there is no key '5'. The keys are: .*, shares, .*"),
        ("authorization: {bearertoken: x}", "authorization: there is no key 'bearertoken'. Did you mean 'bearerToken'"),
        ("shares: [{name: a, schema: []}]", r"shares\[0\]: there is no key 'schema'. Did you mean 'schemas'"),
        ("shares: [{name: s, schemas: [{name: d, table: []}]}]", "Did you mean 'tables'"),
        (TABLE % "{name: t, location: x, history: true}", r"tables\[0\]: there is no key 'history'. Did you mean"),
    ],
)
def test_invalid_configuration_is_refused_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        from_yaml(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_missing_and_non_yaml_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.yaml or \.yml"):
        from_yaml(write(tmp_path, FULL, "server.json"))
    with pytest.raises(ConfigError, match="cannot be read"):
        from_yaml(tmp_path / "none.yaml")


@pytest.mark.parametrize("option", [{"url_ttl": 0}, {"latency": -1}, {"bandwidth": 0}, {"prefix": "x"}])
def test_options_out_of_range_are_refused(tmp_path: Path, option: dict[str, float]) -> None:
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    with pytest.raises(ConfigError):
        ServerConfig(catalog=from_directory(tmp_path), **option)  # type: ignore[arg-type]


def test_older_configuration_key_for_history_is_accepted(tmp_path: Path) -> None:
    (table,) = from_yaml(write(tmp_path, TABLE % "{name: t, location: x, cdfEnabled: true}")).catalog.tables
    assert table.history_shared


def test_location_without_a_table_is_refused_at_the_start(tmp_path: Path) -> None:
    config = from_yaml(write(tmp_path, TABLE % "{name: t, location: missing}"))
    with pytest.raises(ConfigError, match=r"'s\.d\.t' was expected at '.*missing', but there is neither a _delta_log."):
        create_app(config)


def test_configured_shares_and_tables_are_listed(tmp_path: Path, tables: Path, start: Callable[..., Api]) -> None:
    config = from_yaml(
        write(
            tmp_path,
            f"""
shares:
- name: s
  displayName: Sales
  comment: all of them
  properties: {{owner: me}}
  schemas: [{{name: d, tables: [{{name: t, location: "{tables / "plain"}", displayName: T}}]}}]
- name: bare
""",
        )
    )
    api = start(config.catalog)
    first, bare = api.get("shares").json()["items"]
    details = {"displayName": "Sales", "comment": "all of them", "properties": {"owner": "me"}}
    assert {key: first[key] for key in details} == details
    assert bare.keys() == {"name", "id"}
    assert api.get("shares/s").json()["share"] == first
    assert api.get("shares/s/all-tables").json()["items"][0]["displayName"] == "T"
    with pytest.raises(ConfigError, match="owner must be a string"):
        from_yaml(write(tmp_path, "shares: [{name: s, properties: {owner: 5}}]"))


def test_formats_of_a_table_come_from_its_directory(tmp_path: Path) -> None:
    for name, folders in (("delta", ["_delta_log"]), ("iceberg", ["metadata"]), ("both", ["_delta_log", "metadata"])):
        for folder in folders:
            (tmp_path / name / folder).mkdir(parents=True)
        if "metadata" in folders:
            (tmp_path / name / "metadata" / "v1.metadata.json").write_text("{}")
    tables = "".join(f"\n    - name: {name}\n      location: {name}" for name in ("delta", "iceberg", "both"))
    text = f"version: 1\nshares:\n- name: s\n  schemas:\n  - name: d\n    tables:{tables}\n"
    formats = {table.name: table.formats for table in from_yaml(write(tmp_path, text)).catalog.tables}
    delta, iceberg = TableFormat.DELTA, TableFormat.ICEBERG
    assert formats == {"delta": (delta,), "iceberg": (iceberg,), "both": (delta, iceberg)}


@pytest.mark.parametrize(
    ("option", "least", "below"),
    [("port", 0, -1), ("port", 65535, 65536), ("url_ttl", 0.001, 0), ("latency", 0, -0.001), ("bandwidth", 0.5, 0)],
)
def test_configured_numbers_beyond_their_limits_are_refused(option: str, least: float, below: float) -> None:
    catalog = Catalog({}, (), {}, ())
    assert getattr(ServerConfig(catalog=catalog, **{option: least}), option) == least  # type: ignore[misc]
    with pytest.raises(ConfigError, match=f"not {below}"):
        ServerConfig(catalog=catalog, **{option: below})  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("models: [{name: m, location: X, wrong: 1}]", r"models\[0\]: there is no key 'wrong'"),
        (
            "models: [{name: m, versions: [{version: 1, location: X, wrong: 1}]}]",
            r"versions\[0\]: there is no key 'wrong'",
        ),
        ("volumes: [{name: v, location: X, wrong: 1}]", r"volumes\[0\]: there is no key 'wrong'"),
        ("skills: [{name: k, location: k, wrong: 1}]", r"skills\[0\]: there is no key 'wrong'"),
    ],
)
def test_unknown_keys_in_assets_are_refused(tmp_path: Path, text: str, where: str) -> None:
    (tmp_path / "X").mkdir()
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "SKILL.md").write_text("---\nname: k\ndescription: d\n---\n")
    with pytest.raises(ConfigError, match=where):
        from_yaml(write(tmp_path, f"shares: [{{name: s, schemas: [{{name: d, {text}}}]}}]"))
