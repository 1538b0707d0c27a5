"""Fixtures: the browser that ``scripts/browser`` names, the page of the demo, and the directory of its screenshots."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client.browse.page import Running, running
from tests.browser.chromium import Chromium

BINARY = "DELTA_SHARING_CHROMIUM"
PICTURES = "DELTA_SHARING_PICTURES"
AXE = "DELTA_SHARING_AXE"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    binary = os.environ.get(BINARY)
    if not binary:
        pytest.skip(f"{BINARY} is not set; scripts/browser installs Chromium and names it")
    chromium = Chromium(binary)
    yield chromium
    chromium.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The program axe-core, which checks accessibility."""
    path = os.environ.get(AXE)
    if not path:
        pytest.skip(f"{AXE} is not set; scripts/browser fetches axe-core and names it")
    return Path(path).read_text("utf-8")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get(PICTURES) or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def page(serve_demo: Any) -> Iterator[Running]:
    with running(str(serve_demo.profile_path)) as found:
        yield found


@pytest.fixture(autouse=True)
def _no_problems(request: pytest.FixtureRequest) -> Iterator[None]:
    chromium: Chromium = request.getfixturevalue("browser")
    chromium.problems.clear()
    chromium.requested.clear()
    chromium.look_like(1200, 800)
    yield
    chromium.send("Runtime.evaluate", expression="1")
    assert chromium.problems == []
    # The page may only send requests to this machine; Chromium's viewer of PDF is an extension.
    ours = ("http://127.0.0.1:", "about:", "file:", "chrome-extension:")
    assert [url for url in chromium.requested if not url.startswith(ours)] == []
