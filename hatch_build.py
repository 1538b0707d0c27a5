"""What a wheel holds beside its packages: the server, under a name that only this project can want.

In a clone, and so in an editable installation, it is the package ``mock_server``.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ServerHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts ``mock_server`` into wheels as ``delta_sharing_client._server``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the folder for wheels that hold the code; an editable one only points to it."""
        if version == "standard":
            build_data["force_include"]["mock_server"] = "delta_sharing_client/_server"
