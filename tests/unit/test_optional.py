"""Optional dependencies: missing ones are reported, and errors inside them are not hidden."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from delta_sharing_client import optional

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("polars", "polars", "ds.SharingClient(P).table('s.s.t').scan().to_polars(lazy=True)"),
        ("duckdb", "duckdb", "ds.SharingClient(P).table('s.s.t').scan().to_duckdb()"),
        ("pyspark", "spark", "ds.SharingClient(P).table('s.s.t').scan().to_spark()"),
        ("jwt", "jwt", "ds.SharingClient(SIGNED).list_shares()"),
        *((package, "mcp", "optional.load('delta_sharing_client.mcp.server', 'mcp')") for package in ("mcp", "anyio")),
        ("pyspark", "spark", "ds.load_as_spark('p.share#s.s.t', delta_sharing_profile=P)"),
    ],
)
def test_missing_extra_error_shows_the_install_command(package: str, extra: str, use: str, tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None  # as if it were not installed
import delta_sharing_client as ds
from delta_sharing_client import optional
P = {{"shareCredentialsVersion": 1, "endpoint": "http://127.0.0.1:1/", "bearerToken": "x"}}
AUTH = {{"tokenEndpoint": "http://127.0.0.1:1/", "clientId": "c", "issuer": "i", "privateKey": {{"privateKey": "k"}}}}
SIGNED = {{**P, "shareCredentialsVersion": 2, "type": "oauth_jwt_bearer_private_key_jwt", "auth": AUTH}}
import json, pathlib
pathlib.Path("p.share").write_text(json.dumps(P))
try:
    {use}
except ds.UsageError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=60
    )

    assert run.stdout.strip().endswith(f'Run: pip install "delta-sharing-client[{extra}]".'), run.stdout + run.stderr


def test_packages_of_the_extras_match_pyproject() -> None:
    lines = re.findall(r"^(\w+) = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    declared = [(extra, package) for extra, listed in lines for package in re.findall(r"\"([\w-]+)", listed)]
    for extra, packages in optional._PACKAGES.items():
        assert (
            extra,
            {"azure": "azure-identity", "google": "google-auth", "jwt": "PyJWT", "yaml": "pyyaml"}.get(
                packages[0], packages[0]
            ),
        ) in declared


def test_import_error_inside_a_module_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_with_a_gap.py").write_text("import another_module_that_nobody_has\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="another_module"):
        optional.load("module_with_a_gap", "polars")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
