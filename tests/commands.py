"""Run the command ``delta-sharing`` in this process."""

from __future__ import annotations

import pytest

from delta_sharing_client.cli import main


def succeed(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must succeed, and return its output."""
    code = main(arguments)
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out
