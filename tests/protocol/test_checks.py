"""Each check of the conformance kit holds on our server, and fails if, and only if, its own sentence is broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mock_server
from delta_sharing_client.checks.check import Outcome
from delta_sharing_client.checks.run import all_checks, conformance
from mock_server.running import RunningServer
from mock_server.violations import VIOLATIONS

IDS = [check.id for check in all_checks()]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """The demo: a server on which every check can be tested."""
    with mock_server.running(demo=True) as running:
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


@pytest.mark.parametrize("name", IDS)
def test_violation_fails_its_check_and_no_other(server: RunningServer, name: str) -> None:
    server.set_fault(f"break-{name}")

    report = conformance(server.profile)

    assert {result.check.id: result.reason for result in report.failed}.keys() == {name}
    assert {result.outcome for result in report.results} == {Outcome.HOLDS, Outcome.FAILS}
