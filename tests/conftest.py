"""Fixtures of all tests: they hide the developer's settings, choose a hypothesis profile and start servers."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

from tests.effort import QUICK

GOLDEN_VARIABLE = "DELTA_GOLDEN_TABLES"
INCUMBENT_VARIABLE = "DELTA_SHARING_INCUMBENT_PYTHON"

# The tables that tests may write: the server is started with these names, before the tables exist.
TABLE_NAMES = ["t", "u", "dv", "empty", "feed", "large", "long", "nested", "none", "odd", "small", "timed"]

hypothesis.settings.register_profile("default", deadline=None)
# A failure in CI must be reproducible, and its report must contain what is needed to repeat it.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=10)
hypothesis.settings.load_profile("quick" if QUICK else "ci" if os.environ.get("CI") else "default")

# The number of parameters of each test in a quick run.
QUICK_PARAMETERS = 3

# Fixtures that start a server.
SERVERS = {"serve", "lake", "storage", "listed", "raw"}

_PERSONAL = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "ftp_proxy",
    "delta_sharing_profile",
    "xdg_config_home",
)


@pytest.fixture(scope="session", autouse=True)
def _no_personal_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide proxies, the profile variable, ``~/.netrc`` and everything else in the home directory from every test."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in _PERSONAL:
            patch.delenv(name, raising=False)
            patch.delenv(name.upper(), raising=False)
        patch.setenv("HOME", str(home))
        patch.setenv("USERPROFILE", str(home))
        patch.setenv("NETRC", str(home / "no-netrc"))
        # Tests must not depend on the width and colours of the terminal.
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _interrupts_reach_processes() -> None:
    """Stop ignoring SIGINT. A shell without job control starts background processes with SIGINT ignored, and the
    processes that tests start and interrupt would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def incumbent_python() -> str:
    """The path of the interpreter in whose environment the PyPI package ``delta-sharing`` is installed."""
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
    """A running ``mock_server`` that shares the tables of its demo."""
    from mock_server import demo

    return serve(tables=demo.build(tmp_path_factory.mktemp("demo")))


@pytest.fixture
def lake(tmp_path: pathlib.Path) -> Iterator[Lake]:
    """A directory of tables and the server that shares them."""
    import mock_server
    from mock_server.catalog import Catalog

    root = tmp_path / "lake"
    root.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        # The server normally refuses to start if a table does not exist; tests write their tables later.
        patch.setattr(Catalog, "require_locations", lambda catalog: None)
        with mock_server.running(tables={f"share.schema.{name}": root / name for name in TABLE_NAMES}) as server:
            yield Lake(root, server)


class Lake:
    """The directory in which a test writes tables, and the URLs under which they are shared."""

    def __init__(self, root: pathlib.Path, server: Any) -> None:
        self.root = root
        self.server = server

    def url(self, table: str) -> str:
        return f"{self.server.profile_path}#share.schema.{table}"


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_golden = pytest.mark.skip(reason=f"{GOLDEN_VARIABLE} is not set; it names a folder of conformance tables")
    for item in items:
        if item.get_closest_marker("golden") and not os.environ.get(GOLDEN_VARIABLE):
            item.add_marker(no_golden, append=False)
        # All tests with a Spark session share one session and one JVM, so they run in the same process.
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
        if SERVERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("server")
    if QUICK:
        taken: Counter[str] = Counter()
        for item in items:
            taken[item.nodeid.partition("[")[0]] += 1
            if taken[item.nodeid.partition("[")[0]] > QUICK_PARAMETERS:
                item.add_marker("more_parameters")
    # Tests that only one worker can run start first, as otherwise the others would wait for them at the end.
    items.sort(key=lambda item: (not item.get_closest_marker("spark"), not item.get_closest_marker("xdist_group")))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    # The collected tests live until the end; traversing ten thousand of them in every garbage collection made
    # hypothesis five times as slow.
    gc.collect()
    gc.freeze()
    if session.config.getoption("loadgroup", False):
        lost = [
            item.nodeid for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
        ]
        if lost:
            raise pytest.UsageError(f"These versions of pytest and pytest-xdist lose groups of tests: {lost[0]}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test marked ``alone`` in a separate process, so that its effects do not reach other tests."""
    if not pyfuncitem.get_closest_marker("alone") or os.environ.get("TEST_ALONE"):
        return None
    name = pyfuncitem.nodeid.partition("@")[0]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", name]
    run = subprocess.run(
        command,
        env={**os.environ, "TEST_ALONE": "1"},
        cwd=pyfuncitem.config.rootpath,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        pytest.fail(f"{run.stdout}{run.stderr}", pytrace=False)
    return True
