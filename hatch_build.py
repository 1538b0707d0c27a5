"""What a build adds to ``pyproject.toml``: the long description, the project's links, and the server inside of wheels.

Links in the README are relative. A package index shows the README alone, so the build gives them a base: the
environment variable ``PROJECT_HOME``, the address of the repository at its forge. The release workflow sets it. Without
it the metadata names no home, and links to files become plain text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

HOME = "PROJECT_HOME"
PICTURE = re.compile(r"!\[([^\]]*)\]\((?![a-z]+:)([^)\s]+)\)\n?")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)\s]+)\)")


class ServerHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts ``mock_server`` into wheels as ``delta_sharing_client._server``, a name that only this project can want.

    In a clone, and so in an editable installation, it is the package ``mock_server``.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the folder for wheels that hold the code; an editable one only points to it."""
        if version == "standard":
            build_data["force_include"]["mock_server"] = "delta_sharing_client/_server"


class HomeHook(MetadataHookInterface):
    """Makes the fields ``readme`` and ``urls``, which depend on where the project lives."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to ``metadata``."""
        root = Path(self.root)
        home = os.environ.get(HOME, "").rstrip("/")
        version = re.search(r'^__version__ = "(.*)"$', (root / "delta_sharing_client/__init__.py").read_text(), re.M)[1]  # type: ignore[index]
        tree = "main" if "dev" in version else f"v{version}"
        text = long_description((root / "README.md").read_text(encoding="utf-8"), home, tree)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = links(home, tree) if home else {}


def long_description(readme: str, home: str, tree: str) -> str:
    """Return the README with absolute links below ``home``, or without its relative ones if there is no home."""
    if not home:
        return LINK.sub(r"\1", PICTURE.sub("", readme))
    readme = PICTURE.sub(rf"![\1]({home}/raw/{tree}/\2)\n", readme)
    return LINK.sub(rf"[\1]({home}/blob/{tree}/\2)", readme)


def links(home: str, tree: str) -> dict[str, str]:
    """Return the links that a package index shows beside the long description."""
    return {
        "Homepage": home,
        "Documentation": f"{home}/tree/{tree}/docs",
        "Changelog": f"{home}/blob/{tree}/CHANGELOG.md",
        "Issues": f"{home}/issues",
        "Source": home,
    }
