"""Fixtures: the browser that ``scripts/browser`` names, and the directory of its screenshots."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium

BINARY = "DELTA_SHARING_CHROMIUM"
PICTURES = "DELTA_SHARING_PICTURES"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    binary = os.environ.get(BINARY)
    if not binary:
        pytest.skip(f"{BINARY} is not set; scripts/browser installs Chromium and names it")
    chromium = Chromium(binary)
    yield chromium
    chromium.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get(PICTURES) or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
