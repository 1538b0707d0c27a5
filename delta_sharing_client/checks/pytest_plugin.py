"""A plugin for pytest: ``pytest --delta-sharing-conformance PROFILE`` adds a test for each check of the server.

pytest loads it in every run, so everything else is imported when the option is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from delta_sharing_client.checks.check import Check
    from delta_sharing_client.checks.checked_server import Server


_OPENED = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("delta-sharing", "conformance of a Delta Sharing or OpenSharing server")
    group.addoption("--delta-sharing-conformance", metavar="PROFILE", help="Check the server of this profile.")
    group.addoption("--delta-sharing-share", metavar="SHARE", help="Look only at this share.")
    group.addoption(
        "--delta-sharing-only",
        metavar="WHAT,...",
        help="Run only these checks, as in delta-sharing conformance --only.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Open the server. A wrong profile ends the run here, before tests are distributed."""
    profile = config.getoption("--delta-sharing-conformance")
    if profile is None:
        return
    from delta_sharing_client.checks.run import opened, selected
    from delta_sharing_client.errors import DeltaSharingError

    only = config.getoption("--delta-sharing-only")
    try:
        checks = selected(only.split(",") if only else None)
        server = opened(profile, share=config.getoption("--delta-sharing-share"))
    except DeltaSharingError as error:
        raise pytest.UsageError(str(error)) from None
    config.add_cleanup(server.close)
    config.stash[_OPENED] = checks, server


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the checks to the tests of the run."""
    checks, server = config.stash.get(_OPENED, ([], None))
    items.extend(_CheckItem.from_parent(session, check=one, server=server) for one in checks)


class _CheckItem(pytest.Item):
    """A check as a test; what is not offered or not testable is skipped."""

    def __init__(self, *, check: Check, server: Server, **more: Any) -> None:
        super().__init__(name=f"conformance[{check.id}]", **more)
        self._check = check
        self._server = server

    def runtest(self) -> None:
        from delta_sharing_client.checks.check import Outcome
        from delta_sharing_client.checks.run import result_of

        result = result_of(self._check, self._server)
        if result.outcome is Outcome.FAILS:
            raise _Broken(f"{result.check.statement}\n({result.check.source})\n{result.reason}\n{result.exchange}")
        if result.outcome is not Outcome.HOLDS:
            pytest.skip(f"{result.outcome.value}: {result.reason}")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, _Broken):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, int | None, str]:
        return self._check.source, None, self.name


class _Broken(Exception):
    """The server breaks the requirement of a check."""
