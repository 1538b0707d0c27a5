"""What every test stands on: no settings of the person who runs it, one hypothesis profile, servers on real tables."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

GOLDEN_VARIABLE = "DELTA_GOLDEN_TABLES"
INCUMBENT_VARIABLE = "DELTA_SHARING_INCUMBENT_PYTHON"

hypothesis.settings.register_profile("default", deadline=None)
# A failure on the build machine must fail again on the next run, and must say how to get there.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")

_PERSONAL = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy", "delta_sharing_profile")


@pytest.fixture(scope="session", autouse=True)
def _no_personal_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide proxies, the profile variable, ``~/.netrc`` and everything else in the home folder from every test."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in _PERSONAL:
            patch.delenv(name, raising=False)
            patch.delenv(name.upper(), raising=False)
        patch.setenv("HOME", str(home))
        patch.setenv("USERPROFILE", str(home))
        patch.setenv("NETRC", str(home / "no-netrc"))
        # Width and colour of the terminal must not decide what a test sees.
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def incumbent_python() -> str:
    """An interpreter that has the PyPI package ``delta-sharing``."""
    python = os.environ.get(INCUMBENT_VARIABLE)
    if not python:
        pytest.skip(f"{INCUMBENT_VARIABLE} is not set; .ci/run makes such an environment")
    return python


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Any]]:
    """``serve(tables=..., **options)`` starts a ``mock_server`` that runs until the session ends."""
    import mock_server

    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(mock_server.running(**options))


@pytest.fixture(scope="session")
def serve_demo(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A running ``mock_server`` with the tables of its demo."""
    from mock_server import demo

    return serve(tables=demo.build(tmp_path_factory.mktemp("demo")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_golden = pytest.mark.skip(reason=f"{GOLDEN_VARIABLE} is not set; it names a folder of conformance tables")
    for item in items:
        if item.get_closest_marker("golden") and not os.environ.get(GOLDEN_VARIABLE):
            item.add_marker(no_golden, append=False)
        # One JVM at a time: two of them do not fit two cores.
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
