"""A release has correct metadata, complete files and secure workflows."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import delta_sharing_client

ROOT = Path(__file__).resolve().parent.parent
HOME = "https://example.org/owner/name"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _metadata(home: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "hatchling", "metadata"]
    environment = {**os.environ, "PROJECT_HOME": home}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True)
    metadata: dict[str, Any] = json.loads(run.stdout)
    return metadata


def test_metadata_without_a_home_page_has_no_broken_link() -> None:
    metadata = _metadata("")
    text = metadata["readme"]["text"]

    assert not metadata.get("urls")
    assert "reliability" in text
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []
    assert "![" not in text


def test_every_link_in_the_metadata_uses_the_home_page() -> None:
    metadata = _metadata(HOME)
    text = metadata["readme"]["text"]
    relative = re.findall(r"\]\((?!https://)([^)]*)\)", (ROOT / "README.md").read_text())

    assert set(metadata["urls"].values()) >= {HOME, f"{HOME}/blob/main/CHANGELOG.md"}
    assert all(url.startswith(HOME) for url in metadata["urls"].values())
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []
    assert len(relative) > 20
    assert text.count(f"]({HOME}/") == len(relative)
    assert f"]({HOME}/raw/main/docs/overview.svg)" in text


def test_links_of_a_release_point_to_its_tag() -> None:
    long_description = runpy.run_path(str(ROOT / "hatch_build.py"))["long_description"]
    readme = "[a](docs/a.md#b) ![c](d.svg)\n[e](https://x.org) `[f](g)`"

    made = f"[a]({HOME}/blob/v1.2.3/docs/a.md#b) ![c]({HOME}/raw/v1.2.3/d.svg)\n[e](https://x.org)"
    assert long_description(readme, HOME, "v1.2.3").startswith(made)
    assert long_description(readme, "", "main").startswith("a [e](https://x.org)")


def test_no_file_names_a_home_page_of_the_project() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git work tree: what belongs to the repository is unknown")
    named = re.compile(r"\b(?:github|gitlab|pypi|readthedocs|conda)\.(?:com|org|io)/[\w./-]*delta-sharing-client")
    texts = {".py", ".md", ".toml", ".yml", ".yaml", ".ipynb", ".txt", ".cfg"}
    paths = [ROOT / name for name in listed.stdout.split("\0") if Path(name).suffix in texts]
    results = [path for path in paths if path.is_file() and named.search(path.read_text("utf-8", "replace"))]

    assert results == []


def test_sdist_and_wheel_have_the_expected_contents(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as file:
        sdist = {name.partition("/")[2] for name in file.getnames()}
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as file:
        wheel = set(file.namelist())
        license_texts = [name for name in wheel if name.endswith("licenses/LICENSE")]

    expected = {
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "SECURITY.md",
        "constraints.txt",
        "mkdocs.yml",
        "pyproject.toml",
    }
    assert expected | {"tests/conftest.py", "tests/test_release.py", "tests/unit/predicates/test_parse.py"} <= sdist
    assert "delta_sharing_client/_server/app.py" in wheel
    assert {name.partition("/")[0] for name in wheel} - {
        "delta_sharing_client",
        "pyspark_delta_sharing",
        "pyspark_delta_sharing_alias",
    } == {f"delta_sharing_client-{delta_sharing_client.__version__}.dist-info"}
    assert "delta_sharing_client/py.typed" in wheel
    assert len(license_texts) == 1


def test_extras_contain_no_developer_packages() -> None:
    groups = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"])

    assert {"test", "docs", "dev"} <= groups
    assert not groups & set(PROJECT["optional-dependencies"])


def test_page_of_dependencies_has_each_excluded_release() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    requirements = [Requirement(line) for line in lines]
    excluded = {f"{one.name}{item}" for one in requirements for item in one.specifier if item.operator == "!="}

    assert excluded == set(re.findall(r"excludes `(\S+)`", page))
    assert "pyarrow!=25.0.0" in excluded


def test_conda_recipe_has_the_requirements_of_the_package() -> None:
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    run = recipe["requirements"]["run"]
    optional = recipe["requirements"]["run_constraints"]
    extras = [Requirement(line) for lines in PROJECT["optional-dependencies"].values() for line in lines]
    # Conda has no extras, so a cap that an extra puts on a dependency of the package is not in the recipe.
    extras = [one for one in extras if one.name not in {Requirement(line).name for line in PROJECT["dependencies"]}]

    assert recipe["context"]["version"] == delta_sharing_client.__version__
    assert _named(run) == _named([f"python {PROJECT['requires-python']}", *PROJECT["dependencies"]])
    assert _named(optional) == _named([str(one) for one in extras if one.name != "delta-sharing-client"])
    assert recipe["build"]["python"]["entry_points"] == [f"{a} = {b}" for a, b in PROJECT["scripts"].items()]


def _named(lines: list[str]) -> dict[str, str]:
    """Return the version ranges by package name; some packages have the prefix "python-" on conda-forge."""
    parsed = [Requirement(line) for line in lines]
    return {one.name.lower().removeprefix("python-"): str(one.specifier) for one in parsed}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_and_every_script_exists(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    used = [step["uses"] for job in jobs.values() for step in job.get("steps", ()) if "uses" in step]
    scripts = re.findall(r"(?:\.ci|scripts)/[\w.-]+", path.read_text())

    assert used
    assert [name for name in used if not re.fullmatch(r"[\w-]+/[\w.-]+@[0-9a-f]{40}", name)] == []
    assert [name for name in scripts if not (ROOT / name).exists()] == []
    assert all("timeout-minutes" in job or "uses" in job for job in jobs.values())


def test_release_is_tested_on_three_systems_without_secrets() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    workflow = yaml.safe_load(text)
    jobs = workflow["jobs"]

    assert {name.partition("-")[0] for name in jobs["systems"]["strategy"]["matrix"]["system"]} == {
        "ubuntu",
        "macos",
        "windows",
    }
    assert set(jobs["publish"]["needs"]) == {"build", "systems", "suite"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in text


def test_tag_must_match_the_version_in_every_file(tmp_path: Path) -> None:
    problems = runpy.run_path(str(ROOT / "scripts" / "release.py"))["problems"]
    (tmp_path / "delta_sharing_client").mkdir()
    (tmp_path / "conda").mkdir()
    (tmp_path / "delta_sharing_client" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "conda" / "recipe.yaml").write_text('context:\n  version: "1.2.3"\n')
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changes\n\n## 1.2.3, 2026-12-01\n")
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "dependencies.md"
    page.write_text("Reviewed for version 1.2.3 on 2026-11-30.\n")

    assert problems("v1.2.3", tmp_path) == []
    assert len(problems("v1.2.4", tmp_path)) == 4
    page.write_text("Reviewed for version 1.2.2 on 2026-01-01.\n")
    assert [problem.partition(".md was")[0] for problem in problems("v1.2.3", tmp_path)] == ["docs/dependencies"]
    page.write_text("Reviewed for version 1.2.3 on 2026-11-30.\n")
    assert len(problems("1.2.3", tmp_path)) == 1
    changes.write_text("# Changes\n\n## 1.2.3 (unreleased)\n\n## 1.2.2, 2026-01-01\n")
    assert problems("v1.2.3", tmp_path) == [
        "CHANGELOG.md begins with '1.2.3 (unreleased)', not with '1.2.3, YYYY-MM-DD'."
    ]
    # A development version cannot be released.
    assert problems(f"v{delta_sharing_client.__version__}") != [] or ".dev" not in delta_sharing_client.__version__


@pytest.mark.parametrize("name", ["bug.yml", "feature.yml"])
def test_issue_forms_are_valid(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text())
    fields = [field for field in form["body"] if field["type"] != "markdown"]

    assert {"name", "description", "body"} <= set(form)
    assert {field["type"] for field in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_sdist_tests_import_only_installed_packages() -> None:
    """``scripts/wheels`` runs the tests of the sdist with these extras and the dependency group ``test``."""
    extras = re.search(r'install "\$work/tests" .*\[(.*)\]', (ROOT / "scripts" / "wheels").read_text())
    assert extras is not None
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    lines = list(PROJECT["dependencies"])
    for extra in extras[1].split(","):
        lines += PROJECT["optional-dependencies"][extra]
    for entry in groups["test"]:
        lines += [entry] if isinstance(entry, str) else groups[entry["include-group"]]
    installed = {Requirement(line).name.lower() for line in lines}
    # These packages are installed as dependencies of the others.
    installed |= {"numpy", "packaging", "pluggy"}

    missing = {}
    homes = metadata.packages_distributions()
    tests = ROOT / "tests"
    for path in [*tests.glob("*.py"), *(tests / "unit").glob("*.py"), *(tests / "unit" / "delta").rglob("*.py")]:
        for node in ast.parse(path.read_text()).body:
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                for distribution in homes.get(name.partition(".")[0], ()):
                    if distribution.lower() not in installed | {"delta-sharing-client"}:
                        missing[f"{path.name}: {name}"] = distribution
    assert missing == {}
