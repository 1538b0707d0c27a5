"""What the conformance kit offers: a function, a command, a plugin for pytest, and reports in four formats."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.checks import forms, pytest_plugin
from delta_sharing_client.checks.check import Check, Level, Outcome
from delta_sharing_client.checks.conformance_report import ConformanceReport, Result
from delta_sharing_client.checks.run import all_checks
from delta_sharing_client.cli import main
from mock_server.running import RunningServer

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
MARK = "<!-- The tables below are made by: UPDATE_PAGE=1 pytest tests/protocol/test_conformance.py -->\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with mock_server.running(demo=True) as running:
        yield running


def test_page_has_every_check() -> None:
    written = PAGE.read_text("utf-8")
    start = written.index(MARK) + len(MARK)
    if os.environ.get("UPDATE_PAGE"):
        PAGE.write_text(written[:start] + _tables(), "utf-8")

    assert PAGE.read_text("utf-8")[start:] == _tables()


def _tables() -> str:
    text = ""
    for level in Level:
        checks = [one for one in all_checks() if one.level is level]
        if checks:
            text += f"\n### {level.text}\n\n{level.title[0].upper()}{level.title[1:]}.\n\n"
            text += "| check | what the server must do | specification |\n|---|---|---|\n"
            text += "".join(f"| `{one.id}` | {one.statement} | {one.source} |\n" for one in checks)
    return text


def test_checks_are_chosen_by_subject_level_and_id(server: RunningServer) -> None:
    def levels(*only: str) -> set[str]:
        return set(ds.conformance(server.profile, only=only).levels())

    assert levels("listings") == {"listings"}
    assert levels("list.max-results") == {"listings"}
    assert "listings" in levels("tables")
    assert not levels("volumes") & levels("tables")
    with pytest.raises(ds.UsageError, match=r"found 'table'"):
        ds.conformance(server.profile, only=["table"])


def test_refused_profile_and_missing_share_are_errors(server: RunningServer) -> None:
    with pytest.raises(ds.AuthError, match="401"):
        ds.conformance({**server.profile, "bearerToken": "wrong"})
    with pytest.raises(ds.NotFoundError, match="'other'"):
        ds.conformance(server.profile, share="other")
    assert not ds.conformance(server.profile, share="DEMO", only=["listings"]).failed


@pytest.mark.parametrize("package", ["jsonschema", "yaml"])
def test_missing_packages_are_named(server: RunningServer, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    forms.description.cache_clear()

    with pytest.raises(ds.UsageError, match=rf"'{package}'.*conformance"):
        ds.conformance(server.profile)


def test_command_prints_each_format_and_fails_with_5(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "demo.share"
    profile.write_text(json.dumps(server.profile))

    def run(*options: str) -> tuple[int, str]:
        code = main(("conformance", str(profile), "--only", "listings", *options))
        return code, capsys.readouterr().out

    good = run()
    server.set_fault("break-list.max-results")
    bad = {name: run("--format", name) for name in ("text", "json", "junit", "html")}
    server.clear_faults()

    assert (good[0], "No check fails." in good[1]) == (0, True)
    assert {code for code, _ in bad.values()} == {5}
    texts = {name: text for name, (_, text) in bad.items()}
    assert "FAILS  list.max-results" in texts["text"]
    assert "> GET shares/demo/schemas?maxResults=1" in texts["text"]
    outcomes = {one["id"]: one["outcome"] for one in json.loads(texts["json"])["checks"]}
    assert [name for name, outcome in outcomes.items() if outcome == "fails"] == ["list.max-results"]
    (suite,) = ElementTree.fromstring(texts["junit"])
    assert (suite.get("failures"), suite.get("tests")) == ("1", str(len(outcomes)))
    assert texts["html"].startswith("<!doctype html>")
    assert str(server.profile["bearerToken"]) not in "".join(texts.values())


def test_plugin_runs_each_check_as_a_test(server: RunningServer, tmp_path: Path) -> None:
    profile = tmp_path / "demo.share"
    profile.write_text(json.dumps(server.profile))

    def run(*options: str) -> Any:
        # A package that was installed before the plugin was added has no entry point for it.
        is_installed = any(one.value == pytest_plugin.__name__ for one in metadata.entry_points(group="pytest11"))
        plugin = ("-p", "no:cacheprovider", *(() if is_installed else ("-p", pytest_plugin.__name__)))
        command = [sys.executable, "-m", "pytest", "-q", *plugin, "--delta-sharing-conformance", *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    good = run(str(profile), "--delta-sharing-only", "listings")
    server.set_fault("break-list.max-results")
    bad = run(str(profile), "--delta-sharing-only", "listings", "--delta-sharing-share", "demo")
    server.clear_faults()
    wrong = [run(str(tmp_path / "missing.share"), *options) for options in ((), ("-n", "2"))]

    assert good.returncode == 0, good.stdout
    assert bad.returncode == 1
    assert "conformance[list.max-results]" in bad.stdout
    assert "Expected at most 1 item" in bad.stdout
    assert [one.returncode for one in wrong] == [4, 4]
    assert all(re.fullmatch(r"\s*ERROR: There is no profile file [^\n]*\s*", one.stderr + one.stdout) for one in wrong)


HOSTILE = "<script>alert(1)</script> ]]> \x00\x1b[31m \u202e \uffff"


def test_reports_escape_what_a_server_says() -> None:
    one = Check("x.y", Level.LISTINGS, "It holds.", "Nowhere", lambda _: None)
    results = (Result(one, Outcome.FAILS, ds.DeltaSharingError(HOSTILE).message, HOSTILE),)
    report = ConformanceReport("https://h.example.com/<b>", results, dt.datetime.now(dt.timezone.utc))
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.append(tag)

    Tags().feed(report.to_html())

    assert "table" in tags
    assert not {"script", "b"} & set(tags)
    assert json.loads(report.to_json())["checks"][0]["reason"]
    ElementTree.fromstring(report.to_junit())


def test_levels_are_claimed_by_their_worst_check() -> None:
    def claim(*outcomes: Outcome) -> str:
        results = tuple(
            Result(Check(f"c.{number}", Level.FEED, "It holds.", "Nowhere", lambda _: None), outcome)
            for number, outcome in enumerate(outcomes)
        )
        return ConformanceReport("", results, dt.datetime.now(dt.timezone.utc)).levels()["change-feed"]

    assert claim(Outcome.HOLDS) == "held"
    assert claim(Outcome.HOLDS, Outcome.FAILS, Outcome.NOT_OFFERED) == "not held"
    assert claim(Outcome.HOLDS, Outcome.NOT_TESTABLE) == "held as far as testable"
    assert claim(Outcome.NOT_OFFERED) == "not offered"
    assert claim(Outcome.NOT_OFFERED, Outcome.NOT_TESTABLE) == "not testable"
