"""Rules of the code base that a program can check: directions of imports, public names, file lengths, secrets."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import delta_sharing_client as ds

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("delta_sharing_client", "mock_server", "pyspark_delta_sharing")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PUBLIC_API = ROOT / "tests" / "public_api.txt"
MAX_LINES = 400


def test_imports_go_only_in_the_directions_of_the_contracts(tmp_path: Path) -> None:
    command = "from importlinter.cli import lint_imports_command as run; run()"
    run = subprocess.run(
        [sys.executable, "-c", command, "--no-logo", "--cache-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", run.stdout), run.stdout


def test_public_names_are_a_sorted_list_without_repeats() -> None:
    assert list(ds.__all__) == sorted(set(ds.__all__))
    assert [name for name in ds.__all__ if not hasattr(ds, name)] == []


def test_public_signatures_are_the_recorded_ones() -> None:
    """Set UPDATE_PUBLIC_API=1 to record a change that is meant; the difference is then part of the review."""
    found = "".join(f"{line}\n" for name in ds.__all__ for line in _signatures(name, getattr(ds, name)))
    if os.environ.get("UPDATE_PUBLIC_API"):
        PUBLIC_API.write_text(found)

    assert found == PUBLIC_API.read_text()


def test_every_public_name_has_a_docstring() -> None:
    missing = [
        line.split("(")[0]
        for name in ds.__all__
        for line, value in _members(name, getattr(ds, name))
        if callable(value) and not inspect.getdoc(value)
    ]

    assert missing == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_is_short_enough_to_hold_one_noun(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_no_file_of_the_repository_names_a_machine_or_holds_a_secret() -> None:
    patterns = {
        "a path of one machine": re.compile(r"(?<![\w.])/(?:home|root|Users|work|farm)/\w"),
        "a private key": re.compile(r"-----BEGIN (?:\w+ )?PRIVATE KEY-----\n[A-Za-z0-9+/]{40}"),
        "an access key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bdapi[0-9a-f]{32}\b|\bgh[pousr]_\w{36}\b"),
        "an address of a package index": re.compile(r"(?:index-url|find-links|trusted-host)\s*[=: ]\s*\S+"),
    }
    found = [
        f"{path}: {what}"
        for path in _tracked_text_files()
        for what, pattern in patterns.items()
        if pattern.search((ROOT / path).read_text(encoding="utf-8", errors="replace"))
    ]

    assert found == []


def _tracked_text_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git work tree: what belongs to the repository is unknown")
    suffixes = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".ipynb", ""}
    # Logs of real tables are data: what writers put there is not ours to choose.
    return [
        name
        for name in listed.stdout.split("\0")
        if name
        and Path(name).suffix in suffixes
        and "_delta_log" not in name
        and (ROOT / name).is_file()
        and name != Path(__file__).resolve().relative_to(ROOT).as_posix()
    ]


def _signatures(name: str, value: object) -> list[str]:
    return [line for line, _ in _members(name, value)]


def _members(name: str, value: object) -> list[tuple[str, object]]:
    """Return ``(line, object)`` for a public name, and for the public members a class defines or inherits from us."""
    if not inspect.isclass(value):
        return [(f"{name}{_signature(value)}" if callable(value) else name, value)]
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    lines: list[tuple[str, object]] = [(f"class {name}({bases})", value)]
    for member in sorted(dir(value)):
        static = inspect.getattr_static(value, member)
        owner = next((cls for cls in value.__mro__ if member in vars(cls)), None)
        ours = owner is not None and owner.__module__.startswith("delta_sharing_client")
        if member == "__init__" and ours and "__init__" in vars(value):
            lines.append((f"{name}.__init__{_signature(static)}", value))
        elif member.startswith("_") or not ours:
            continue
        elif isinstance(static, property):
            lines.append((f"{name}.{member}", static.fget))
        elif isinstance(static, (staticmethod, classmethod)):
            lines.append((f"{name}.{member}{_signature(getattr(value, member))}", static.__func__))
        elif inspect.isfunction(static):
            lines.append((f"{name}.{member}{_signature(static)}", static))
        else:
            lines.append((f"{name}.{member}", None))
    return lines


def _signature(value: object) -> str:
    # Names and defaults are what callers depend on; annotations are checked by mypy where they stand.
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(value).parameters.values()]  # type: ignore[arg-type]
    return str(inspect.Signature(parameters))
