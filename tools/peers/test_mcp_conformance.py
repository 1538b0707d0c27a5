"""MCP's conformance suite against ``delta-sharing mcp --http``: ``bash scripts/mcp``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client import testing

SUITE = os.environ.get("DELTA_SHARING_MCP_SUITE")
pytestmark = pytest.mark.skipif(SUITE is None, reason="the suite has its own environment; see scripts/mcp")

VERSIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
APPLY = {
    "server-initialize",
    "server-session-lifecycle",
    "server-stateless",
    "ping",
    "tools-list",
    "resources-list",
    "sep-2164-resource-not-found",
    "sep-2640-skills-directory",
    "sep-2640-skills-enumeration",
    "sep-2640-skills-manifest",
    "prompts-list",
    "dns-rebinding-protection",
    "caching",
    "http-header-validation",
    "input-required-result-unsupported-methods",
}
_FIXTURE = (
    "it calls a tool, prompt or resource of the suite's own test server, whose name begins with 'test_' or 'test:'"
)
DO_NOT_APPLY = {
    r"tools-call-.*": _FIXTURE,
    r"resources-read-.*|resources-templates-read": _FIXTURE,
    r"prompts-get-.*": _FIXTURE,
    r"server-sse-.*": _FIXTURE,
    r"json-schema-2020-12": _FIXTURE,
    r"elicitation-.*": f"{_FIXTURE}; our tools ask nothing back",
    r"input-required-result-(?!unsupported-methods).*": f"{_FIXTURE}; our tools ask nothing back",
    r"http-custom-header-server-validation": "no tool of ours takes an argument from a header",
    r"logging-set-level": "the server does not declare 'logging'",
    r"completion-complete": "the server does not declare 'completions'",
    r"resources-(un)?subscribe": "the server does not say when a file changes",
    r"tasks-.*": "the server does not declare the extension for tasks",
}
CHECKS_THAT_DO_NOT_APPLY = {
    "sep-2575-server-rejects-undeclared-capability": _FIXTURE,
    "sep-2575-missing-capability-http-400": _FIXTURE,
    "sep-2575-server-sends-prompts-list-changed-on-subscription": f"{_FIXTURE}; our prompts do not change",
    "sep-2575-server-sends-tools-list-changed-on-subscription": f"{_FIXTURE}; our tools do not change",
}
_PASSED = ("SUCCESS", "INFO")


def run(*arguments: str, token: str = "") -> str:
    """Return what the suite's command prints, whatever its exit code."""
    suite = Path(str(SUITE))
    hook = (Path(__file__).parent / "mcp_token.mjs").as_uri()
    command = [str(suite / "node" / "bin" / "node"), "--import", hook, str(suite / ".bin" / "conformance"), *arguments]
    environment = {**os.environ, "MCP_SUITE_TOKEN": token}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False).stdout


@contextlib.contextmanager
def served(folder: Path) -> Iterator[dict[str, Any]]:
    with testing.running() as server:
        (folder / "p.share").write_text(json.dumps(server.profile))
        arguments = ["-p", str(folder / "p.share"), "mcp", "--http", "0", "--json"]
        command = [sys.executable, "-m", "delta_sharing_client", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield json.loads(process.stdout.readline())
            finally:
                process.terminate()


def test_every_scenario_is_known() -> None:
    """A newer version of the suite may have more: each of them applies, or there is a reason."""
    names = set(re.findall(r"^  - ([\w-]+) ", run("list", "--server"), re.MULTILINE))
    unknown = {name for name in names if not any(re.fullmatch(one, name) for one in DO_NOT_APPLY)}
    assert unknown == APPLY


@pytest.mark.parametrize("version", VERSIONS)
def test_what_applies_passes(tmp_path: Path, version: str) -> None:
    failed, passed = {}, set()
    with served(tmp_path) as told:
        token = told["headers"]["Authorization"].removeprefix("Bearer ")
        # Older versions of the protocol have no extensions.
        for scenario in sorted(name for name in APPLY if version == VERSIONS[-1] or "sep-2640" not in name):
            out = tmp_path / scenario
            # The suite refuses a version for an extension.
            which = () if "sep-2640" in scenario else ("--spec-version", version)
            shown = run("server", "--url", told["url"], "--scenario", scenario, "-o", str(out), *which, token=token)
            if not (results := list(out.rglob("checks.json"))):
                assert "not applicable" in shown, shown
                continue
            checks = json.loads(results[0].read_text())
            assert token not in shown + str(checks)
            for check in checks:
                if check["status"] not in _PASSED and check["id"] not in CHECKS_THAT_DO_NOT_APPLY:
                    failed[scenario, check["id"]] = check["status"], check.get("errorMessage")
            passed |= {scenario}
    assert failed == {}
    assert len(passed) == {"2025-06-18": 6, "2025-11-25": 7, "2026-07-28": 12}[version], sorted(passed)
