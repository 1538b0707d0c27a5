"""The command ``delta-sharing``: what is shared with me, what does it look like, give me the rows."""

from __future__ import annotations

from collections.abc import Sequence

from delta_sharing_client.cli.commands import app
from delta_sharing_client.cli.program import run

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``delta-sharing`` with ``arguments`` (default: those of the process) and return its exit code.

    Codes are those of ``cli.program.ExitCode``. Nothing is raised: errors become one line on stderr.
    """
    return run(app, arguments)
