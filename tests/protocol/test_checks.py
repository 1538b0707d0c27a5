"""Each check of the conformance kit holds on our server, and fails if, and only if, its own sentence is broken."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from requests.structures import CaseInsensitiveDict

import mock_server
from delta_sharing_client.checks.check import Outcome
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.run import all_checks, conformance
from delta_sharing_client.checks.shared_tables import CAPABILITIES
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.http.body import Response
from delta_sharing_client.protocol.transport import Request, Transport
from delta_sharing_client.redact import scrub
from mock_server import catalog, demo
from mock_server.running import RunningServer
from mock_server.violations import VIOLATIONS, Asked

# A secret in JSON that is not masked.
SECRET = re.compile(r'"(?:accessKeyId|secretAccessKey|sessionToken|sasToken|oauthToken|refreshToken)":\s*"(?!\*\*\*)')
ROOT = Path(__file__).resolve().parents[2]
IDS = [check.id for check in all_checks()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The demo with a widened column: a server on which every check can be tested."""
    shared = demo.build(tmp_path_factory.mktemp("demo"))
    widened = catalog.entry("demo", "lake", "widened", ROOT / "tests" / "tables_spark" / "type-widening" / "delta")
    with mock_server.running(dataclasses.replace(shared, tables=(*shared.tables, widened))) as running:
        yield running


@pytest.fixture(autouse=True)
def no_faults(server: RunningServer) -> Iterator[None]:
    yield
    server.clear_faults()


def test_every_check_holds_on_the_demo(server: RunningServer) -> None:
    report = conformance(server.profile)

    assert [(result.check.id, result.reason) for result in report.results if result.outcome is not Outcome.HOLDS] == []
    assert len(report.results) == len(IDS)


def test_every_check_has_a_violation() -> None:
    assert sorted(VIOLATIONS) == sorted(IDS)


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    """The answers of the server without violations."""
    return {}


@pytest.fixture
def only_violated(answers: dict[str, Answer], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send only requests that the violation of the check ``name`` is about: the others have the answers of before."""
    ask = Server.ask

    def known(self: Server, method: str, path: tuple[str, ...], **more: Any) -> Answer:
        asked = Asked(method, "/".join(("", *path)), {}, {}, b"")
        if more.get("fresh") or any(violation.fits(asked) for violation in VIOLATIONS[name]):
            return ask(self, method, path, **more)
        key = repr((method, path, sorted(more.items())))
        if key not in answers:
            answers[key] = ask(self, method, path, **more)
        self.latest = answers[key]
        return self.latest

    monkeypatch.setattr(Server, "ask", known)


@pytest.mark.usefixtures("only_violated")
@pytest.mark.parametrize("name", IDS)
def test_violation_fails_its_check_and_no_other(server: RunningServer, name: str) -> None:
    server.set_fault(f"break-{name}")

    report = conformance(server.profile)

    assert {result.check.id: result.reason for result in report.failed}.keys() == {name}
    assert {result.outcome for result in report.results} == {Outcome.HOLDS, Outcome.FAILS}
    text = report.to_text()
    assert scrub(text, [server.profile["bearerToken"]]) == text
    assert SECRET.findall(text) == []


@pytest.mark.parametrize(("of_unknown", "outcome"), [(500, Outcome.NOT_OFFERED), (404, Outcome.FAILS)])
def test_status_of_unknown_paths_means_not_offered(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, of_unknown: int, outcome: Outcome
) -> None:
    """Spring's status for a path that no controller has is 500 in delta-sharing-gateway (40904e6, 2026)."""
    ask = Transport.ask

    def asked(self: Transport, request: Request, *, anonymous: bool = False) -> tuple[Response, bytes]:
        response, body = ask(self, request, anonymous=anonymous)
        if request.path[-1] in ("volumes", "all-volumes"):
            response = dataclasses.replace(response, status=500)
        elif response.status == 404 and len(request.path) == 1:
            response = dataclasses.replace(response, status=of_unknown)
        return response, body

    monkeypatch.setattr(Transport, "ask", asked)
    report = conformance(server.profile, only=["volumes.form", "volumes.get"])
    assert [result.outcome for result in report.results] == [outcome] * 2
    # A check that fails shows the response of the API, not of the unknown path.
    assert all("/volumes" in result.exchange for result in report.failed)


def test_delta_format_is_not_offered_by_a_server_of_parquet_alone(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a server does not know the capabilities header: it ignores it, and does not send it."""
    ask = Transport.ask

    def asked(self: Transport, request: Request, *, anonymous: bool = False) -> tuple[Response, bytes]:
        response, body = ask(self, dataclasses.replace(request, headers={}), anonymous=anonymous)
        sent = {name: value for name, value in response.headers.items() if name.lower() != CAPABILITIES}
        return dataclasses.replace(response, headers=CaseInsensitiveDict(sent)), body

    monkeypatch.setattr(Transport, "ask", asked)
    report = conformance(server.profile, only=[name for name in IDS if name.startswith("delta.")])
    assert {result.outcome for result in report.results} == {Outcome.NOT_OFFERED}
    # One reason is told once, with all its checks.
    text = report.to_text()
    assert text.count("NOT OFFERED") == 1
    assert all(result.check.id in text for result in report.results)


def test_urls_of_malformed_files_are_not_testable(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One mistake is one failure. This one is of delta-sharing-server-rs (f5e81bee, 2023)."""
    ask = Transport.ask

    def asked(self: Transport, request: Request, *, anonymous: bool = False) -> tuple[Response, bytes]:
        response, body = ask(self, request, anonymous=anonymous)
        return response, re.sub(rb'(?m)^(\{"file":)(.*)\}$', rb'\1{"file":\2}}', body)

    monkeypatch.setattr(Transport, "ask", asked)
    report = conformance(server.profile, only=["query.files", *(name for name in IDS if name.startswith("urls."))])
    found = {result.check.id: result.outcome for result in report.results}
    assert found.pop("query.files") is Outcome.FAILS
    assert set(found.values()) == {Outcome.NOT_TESTABLE}


def test_iceberg_catalog_may_have_no_prefix(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iceberg's own REST test server (1.10.1) has none."""
    ask, prefix = Transport.ask, ""

    def asked(self: Transport, request: Request, *, anonymous: bool = False) -> tuple[Response, bytes]:
        nonlocal prefix
        if request.path[:2] == ("v1", "namespaces"):
            request = dataclasses.replace(request, path=("v1", *prefix.split("/"), *request.path[1:]))
        response, body = ask(self, request, anonymous=anonymous)
        if request.path == ("v1", "config") and response.status == 200:
            document = json.loads(body)
            prefix = document["overrides"].pop("prefix")
            body = json.dumps(document).encode()
        return response, body

    monkeypatch.setattr(Transport, "ask", asked)
    report = conformance(server.profile, only=["iceberg"])
    assert {result.outcome for result in report.results} == {Outcome.HOLDS}


def test_secrets_of_a_response_are_masked_wherever_it_ends() -> None:
    secret = "kY7" + "x" * 60
    body = json.dumps(
        {"awsTempCredentials": {"secretAccessKey": f'{secret}"{secret}'}, "url": f"https://h/f?sig={secret}"}
    )
    for end in range(len(body) + 1):
        assert secret[:8] not in Answer(f"POST x {body[:end]}", 200, {}, body[:end].encode()).shown([])
    assert secret not in Answer("POST x", 200, {}, body.replace("x", "x" * 10_000).encode()).shown([])


def test_skill_file_with_another_name_fails(tmp_path: Path) -> None:
    skill = tmp_path / "report"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: other\ndescription: Writes a report\n---\n")
    with mock_server.running({}, skills={"s.d.report": skill}) as running:
        (result,) = conformance(running.profile, only=["skills.skill-file"]).failed

    assert "with the name 'report' and a description, found the name 'other' and a description" in result.reason


def test_requests_are_few_however_much_is_shared(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, asked = Transport.ask, Counter[tuple[str, ...]]()

    def many(self: Transport, request: Request, *, anonymous: bool = False) -> tuple[Response, bytes]:
        """Every share has many schemas, all of which are empty but for the demo's own."""
        asked[request.path] += 1
        path, depth = request.path, len(request.path)
        is_listing = request.method == "GET" and path[0] == "shares" and depth in (1, 3) and path[-1] in NAMES
        if any(name.startswith("more") for name in path):
            request = dataclasses.replace(request, path=("shares",))
        response, body = ask(self, request, anonymous=anonymous)
        if request.path != path:
            body = b'{"items": []}'
        if is_listing and response.status == 200 and not request.params:
            listed = json.loads(body)
            listed["items"] += [
                {"name": f"more{number}", "share": path[1] if depth > 1 else ""} for number in range(500)
            ]
            body = json.dumps(listed).encode()
        return response, body

    monkeypatch.setattr(Transport, "ask", many)
    conformance(server.profile, only=["listings", "volumes", "skills"])
    assert any(path[1:2] == ("more1",) for path in asked)
    assert len(asked) < 1_000


NAMES = ("shares", "schemas")


def test_request_that_fails_is_sent_for_one_check_alone(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, failed = Transport.ask, Counter[str]()

    def unavailable(self: Transport, request: Request, *, anonymous: bool = False) -> tuple[Response, bytes]:
        if request.path[-1] == "changes":
            failed[f"{request.path} {request.params} {request.headers} {anonymous}"] += 1
            raise DeltaSharingError("The server is busy.")
        return ask(self, request, anonymous=anonymous)

    monkeypatch.setattr(Transport, "ask", unavailable)
    report = conformance(server.profile, only=["change-feed"])
    assert len([result for result in report.failed if "busy" in result.reason]) > 1
    assert set(failed.values()) == {1}
