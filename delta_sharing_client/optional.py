"""Optional dependencies: imported where they are used, with the install line when they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from delta_sharing_client.errors import UsageError


def load(module: str, extra: str) -> ModuleType:
    """Import and return ``module``.

    Raises
    ------
    UsageError
        If it is not installed; the message has the ``pip install`` line with ``extra``.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != module.partition(".")[0]:
            raise
        raise UsageError(
            f"this output needs {module}, which is not installed; run: pip install 'delta-sharing-client[{extra}]'"
        ) from None
