"""The command ``delta-sharing``: list, describe and read shared tables."""

from __future__ import annotations

from collections.abc import Sequence

from delta_sharing_client.cli.commands import app
from delta_sharing_client.cli.program import run

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``delta-sharing`` with ``arguments`` (default: those of the process) and return its exit code, a
    ``cli.program.ExitCode``.

    Errors are printed as one line on stderr; nothing is raised.
    """
    return run(app, arguments)
