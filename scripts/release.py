"""Say whether a commit may be released under a tag: python scripts/release.py v0.2.0

The package, the change log and the conda recipe must name the tag's version, and the change log a day. The page about
releases of dependencies that return wrong data must have been reviewed for this version.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """What keeps ``tag`` from being released; nothing if it may be."""
    version = tag.removeprefix("v")
    found = []
    if not re.fullmatch(r"v\d+\.\d+\.\d+((a|b|rc)\d+)?", tag):
        found.append(f"The tag '{tag}' is not a version such as v1.2.3 or v1.2.3rc1.")
    for path, pattern in (
        ("delta_sharing_client/__init__.py", r'^__version__ = "(.*)"$'),
        ("conda/recipe.yaml", r'^  version: "(.*)"$'),
    ):
        stated = re.findall(pattern, (root / path).read_text(encoding="utf-8"), re.MULTILINE)
        if stated != [version]:
            found.append(f"{path} states {', '.join(stated) or 'no version'}, not {version}.")
    newest = re.findall(r"^## (.*)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    if not re.fullmatch(rf"{re.escape(version)}, \d{{4}}-\d\d-\d\d", newest):
        found.append(f"CHANGELOG.md begins with '{newest}', not with '{version}, YYYY-MM-DD'.")
    page = (root / "docs" / "dependencies.md").read_text(encoding="utf-8")
    reviewed = re.findall(r"^Reviewed for version (\S+) on \d{4}-\d\d-\d\d\.$", page, re.MULTILINE)
    if reviewed != [version]:
        found.append(
            f"docs/dependencies.md was reviewed for {', '.join(reviewed) or 'no version'}, not {version}. Look in the "
            "issue trackers of the dependencies for releases that return wrong data, and change the page."
        )
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit("\n".join(problems(sys.argv[1])))
