"""Imports optional dependencies when they are used. If one is missing, the error says how to install it."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from delta_sharing_client.errors import UsageError

# The import names of the packages that each extra in pyproject.toml installs.
_PACKAGES = {
    "aws": ("boto3",),
    "azure": ("azure",),
    "browse": ("starlette", "uvicorn", "markdown_it"),
    "conformance": ("jsonschema", "referencing", "yaml"),
    "duckdb": ("duckdb",),
    "excel": ("xlsxwriter",),
    "gcp": ("google",),
    "geopandas": ("geopandas",),
    "iceberg": ("pyiceberg",),
    "jwt": ("jwt", "cryptography"),
    # All but "mcp" itself are its dependencies.
    "mcp": ("mcp", "mcp_types", "anyio", "pydantic"),
    "polars": ("polars",),
    "server": ("starlette", "uvicorn", "yaml"),
    "spark": ("pyspark",),
    "storage": ("yaml",),
}


def load(module: str, extra: str) -> ModuleType:
    """Import and return ``module``, a package of ``extra`` or a module of ours that needs one.

    Raises ``UsageError`` with the ``pip install`` line if the extra is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in _PACKAGES[extra]:
            raise
        raise UsageError(
            f"This needs the package '{package}', which is not installed. Run: {_pip_install(extra)}."
        ) from None


def what_needs(extra: str, what: str) -> str | None:
    """Return a sentence that says how to open ``what`` (a plural), if ``extra`` is not installed."""
    missing = next((name for name in _PACKAGES[extra] if importlib.util.find_spec(name) is None), None)
    return missing and f"{what} need the package '{missing}', which is not installed: {_pip_install(extra)}"


def _pip_install(extra: str) -> str:
    return f'pip install "delta-sharing-client[{extra}]"'


def load_other(package: str, why: str) -> ModuleType:
    """Import and return a module of a package that no extra installs. Raises ``UsageError`` if it is not installed;
    ``why`` says what needs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as missing:
        name = package.partition(".")[0]
        if (missing.name or "").partition(".")[0] != name:
            raise
        raise UsageError(
            f"{why} needs the package '{name}', which is not installed. Run: pip install {name}."
        ) from None
