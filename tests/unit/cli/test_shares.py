"""The commands that list and describe: one tree of all assets, and each kind separately."""

from __future__ import annotations

import importlib.util
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client.cli import main
from delta_sharing_client.cli.program import ExitCode

Run = Callable[..., str]
OPTIONS = ["--version", "1", "--alias", "a"]


@pytest.fixture
def run(serve_demo: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command with the demo's profile and return its output, or its error message if ``code`` is given."""

    def command(*arguments: str, code: ExitCode = ExitCode.OK) -> str:
        exit_code = main(["--profile", str(serve_demo.profile_path), *arguments])
        printed = capsys.readouterr()
        assert exit_code == code, printed.err
        return printed.out if code is ExitCode.OK else printed.err

    return command


def test_tree_shows_every_kind_of_asset(run: Run) -> None:
    lines = [line.strip("│├└─ \xa0") for line in run("ls").splitlines()[1:]]
    shop = ["orders", "products", "documents (volume)", "churn (model)", "sales-report (skill)"]
    assert lines == ["demo", "shop", *shop, "weather", "readings", "lake", "refunds"]
    assert [line.strip("│├└─ \xa0") for line in run("ls", "demo.SHOP").splitlines()[1:]] == ["demo", "shop", *shop]
    assert "prices.csv" in run("ls", "demo.shop.documents")
    assert "Did you mean 'demo.shop'?" in run("ls", "demo.shp", code=ExitCode.NOT_FOUND)
    assert json.loads(run("ls", "demo", "--json"))["demo"]["shop"] == {
        "tables": ["orders", "products"],
        "volumes": ["documents"],
        "models": ["churn"],
        "skills": ["sales-report"],
    }


@pytest.mark.parametrize("fault", ["no-assets=404", "no-assets=405", "no-assets=501", "no-all-assets"])
def test_listings_are_empty_for_kinds_that_the_server_lacks(run: Run, serve_demo: Any, fault: str) -> None:
    serve_demo.set_fault(fault)
    try:
        shop = json.loads(run("ls", "--json"))["demo"]["shop"]
        assert shop["tables"] == ["orders", "products"]
        assert shop["volumes"] == (["documents"] if fault == "no-all-assets" else [])
        assert shop["skills"] == (["sales-report"] if fault == "no-all-assets" else [])
    finally:
        serve_demo.clear_faults()


def test_describe_detects_the_kind_of_an_asset(run: Run) -> None:
    for name, kind, fact in (
        ("documents", "volume", "storageLocation"),
        ("churn", "model", "How likely"),
        ("sales-report", "skill", "license"),
    ):
        text = run("describe", f"demo.shop.{name}")
        assert text.splitlines()[0].split() == ["kind", kind]
        assert fact in text
        assert json.loads(run("describe", f"demo.shop.{name}", "--json"))["kind"] == kind
        assert json.loads(run("describe", f"demo.shop.{name}", "--kind", kind.upper(), "--json"))["name"] == name
    text = run("describe", "demo.shop.orders")
    assert text.startswith("table")
    assert ["column", "type", "nullable"] in [line.split()[:3] for line in text.splitlines()]
    assert "order_id" in run("describe", "demo.shop.orders", "--kind", "table")


def test_describe_of_a_model_shows_its_versions(run: Run) -> None:
    output = json.loads(run("describe", "demo.shop.churn", "--json"))
    assert [(one["version"], one["status"]) for one in output["versions"]] == [(1, "READY"), (2, "READY")]
    assert "Trained on the orders of week 2" in run("describe", "demo.shop.churn")
    assert json.loads(run("describe", "demo.shop.churn", "--alias", "Champion", "--json"))["version"] == 2
    pending = json.loads(run("describe", "demo.shop.churn", "--version", "3", "--json"))
    assert (pending["kind"], pending["status"]) == ("model version", "PENDING_REGISTRATION")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["demo.shop.document"], ExitCode.NOT_FOUND, "no table or volume or model or skill with the name"),
        (["demo.shop.document"], ExitCode.NOT_FOUND, "Did you mean the volume 'demo.shop.documents'?"),
        (["demo.shop.document", "--kind", "volume"], ExitCode.NOT_FOUND, "Did you mean 'demo.shop.documents'?"),
        (["demo.shop.order", "--kind", "table"], ExitCode.NOT_FOUND, "Did you mean 'demo.shop.orders'?"),
        (["documents"], ExitCode.USAGE, "Expected an asset as share.schema.asset, found 'documents'. Did you mean"),
        (["demo.shop.churn", "--version", "9"], ExitCode.NOT_FOUND, "Its versions are 1, 2."),
        (["demo.shop.churn", "--alias", "x"], ExitCode.NOT_FOUND, "Alias 'x' of the model"),
        (["demo.shop.churn", *OPTIONS], ExitCode.USAGE, "options that exclude each other"),
        (["demo.shop.churn", "--alias", "a", "--kind", "table"], ExitCode.USAGE, "exclude each other"),
        (["demo.shop.churn", "--timestamp", "2020-01-01", "--kind", "skill"], ExitCode.USAGE, "exclude each other"),
        (["demo.shop.documents", "--version", "1", "--kind", "volume"], ExitCode.USAGE, "exclude each other"),
        (
            ["demo.shop.churn", "--timestamp", "2020-01-01"],
            ExitCode.NOT_FOUND,
            "the metadata of demo.shop.churn failed",
        ),
        (["demo.shop.orders", "--version", "1", "--timestamp", "2020-01-01"], ExitCode.USAGE, "Only one of"),
        (["demo.shop.churn", "--kind", "view"], ExitCode.USAGE, "Expected one of table, volume, model, skill"),
    ],
)
def test_describe_reports_missing_assets_and_wrong_options(
    run: Run, arguments: list[str], code: ExitCode, message: str
) -> None:
    error = run("describe", *arguments, code=code)
    assert message in error
    assert len(error.splitlines()) == 1


def test_refused_token_is_an_error_in_every_listing(run: Run, serve_demo: Any) -> None:
    serve_demo.set_fault("401-first=1000")
    try:
        for command in ("tables", "ls"):
            assert "refused the credentials" in run(command, code=ExitCode.AUTH)
    finally:
        serve_demo.clear_faults()


SHOP = [
    ("table", "demo.shop.orders"),
    ("table", "demo.shop.products"),
    ("volume", "demo.shop.documents"),
    ("model", "demo.shop.churn"),
    ("skill", "demo.shop.sales-report"),
]
OTHERS = [("table", "demo.weather.readings"), ("table", "demo.lake.refunds")]


@pytest.mark.parametrize(
    ("place", "schema", "items"),
    [
        ("demo.shop", "shop", SHOP),
        ("DEMO", None, [*SHOP, ("table", "demo.weather.readings"), ("table", "demo.lake.refunds")]),
    ],
)
def test_describe_of_a_schema_or_share_shows_its_assets(
    run: Run, place: str, schema: str | None, items: list[tuple[str, str]]
) -> None:
    output = json.loads(run("describe", place, "--json"))
    assert (output["share"], output["schema"]) == ("demo", schema)
    assert ("comment" in output) is (schema is None)
    assert sorted((one["kind"], one["name"]) for one in output["assets"]) == sorted(items)
    shown = run("describe", place)
    assert all(f"{kind:6}  {name}" in shown for kind, name in items)
    assert shown.splitlines()[0].split() == ["share", "demo"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["demo.shp"], ExitCode.NOT_FOUND, "Did you mean 'demo.shop'?"),
        (["orders"], ExitCode.USAGE, "found 'orders'. Did you mean 'demo.shop.orders'?"),
        (["nothing"], ExitCode.USAGE, "Expected an asset as share.schema.asset, found 'nothing'."),
        (["demo.shop", "--version", "1"], ExitCode.USAGE, "found 'demo.shop'"),
        (["demo.shop", "--kind", "table"], ExitCode.USAGE, "found 'demo.shop'"),
    ],
)
def test_describe_of_an_invalid_name_is_an_error(run: Run, arguments: list[str], code: ExitCode, message: str) -> None:
    assert message in run("describe", *arguments, code=code)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tables demo.shop.orders", "Expected a share or schema, found the table 'demo.shop.orders'; "),
        (
            "tables demo.shop.documents",
            "'delta-sharing describe demo.shop.documents' shows it.",
        ),
        ("cat demo.shop.documents", "such as 'demo.shop.documents/README.txt'. 'demo.shop.documents' has README.txt, "),
        ("read demo.shop.orders --where a", "No such option: --where; it is called '--filter' here. See: "),
        ("read demo.shop.orders --output a", "it is called '--to' here"),
        ("download demo.shop.documents", "No such command 'download'; it is called 'get' here. See: delta-sharing"),
        ("query 'SELECT 1'", "it is called 'sql' here"),
        # This command has no option for a file.
        ("count demo.shop.orders --output a", "No such option: --output. See: delta-sharing count --help"),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(run: Run, words: str, message: str) -> None:
    assert message in run(*shlex.split(words), code=ExitCode.USAGE)


def test_tree_says_which_packages_are_missing(
    serve_demo: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = str(serve_demo.profile_path)
    assert main(["-p", profile, "ls"]) == ExitCode.OK
    assert capsys.readouterr().err == ""
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("pyiceberg", "yaml") else find(name))
    assert main(["-p", profile, "ls"]) == ExitCode.OK
    packages = {"iceberg": "Iceberg tables need the package 'pyiceberg'", "storage": "Skills need the package 'yaml'"}
    assert capsys.readouterr().err.splitlines() == [
        f'{text}, which is not installed: pip install "delta-sharing-client[{extra}]"'
        for extra, text in packages.items()
    ]
    assert main(["-p", profile, "ls", "demo.weather"]) == ExitCode.OK
    assert "Skills" not in capsys.readouterr().err


def test_expired_and_refused_tokens_have_one_exit_code(serve_demo: Any, tmp_path: Path) -> None:
    fields = json.loads(serve_demo.profile_path.read_text())
    for change in ({"expirationTime": "2020-01-01T00:00:00Z"}, {"bearerToken": "other"}):
        (tmp_path / "a.share").write_text(json.dumps(fields | change))
        assert main(["-p", str(tmp_path / "a.share"), "ls"]) == ExitCode.AUTH
