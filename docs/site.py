"""What the documentation's site has besides the files of this folder: a hook of mkdocs, see ``mkdocs.yml``.

The first page is the README, the command reference is made from the program, the API reference from the public names.
Notebooks, results, changes and the guide for contributors come from where they lie. Links between files of the
repository lead to the pages that they became, or to the file in the repository if ``PROJECT_HOME`` says where that is.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import delta_sharing_client

ROOT = Path(__file__).resolve().parent.parent
# Pages whose source lies elsewhere in the repository.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "benchmarks/MEASUREMENTS.md": "measurements.md",
}
# A link or a picture; its text may hold one level of brackets.
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
# Each name of the public API once, in the order in which people meet them.
API = {
    "Clients and tables": (
        *("SharingClient", "SharedTable", "TableDetails", "Protocol", "VersionChanges", "Profile", "activate"),
        *("Share", "Schema", "Table", "AssetName"),
    ),
    "Volumes, models and skills": (
        "Volume",
        "Model",
        "ModelVersion",
        "Skill",
        "StoredFile",
        "AsyncFileListing",
        "Download",
    ),
    "Reads": (
        "Scan",
        "Changes",
        "ScanPlan",
        "Batches",
        "AsyncBatches",
        "SharedDataset",
        "Partition",
        "ReadOptions",
        "ScanReport",
        "Progress",
    ),
    "Copies": ("Replica", "Follow", "FollowedChanges"),
    "Checks of a server": ("conformance", "ConformanceReport"),
    "Filters": ("col", "ColumnBuilder", "Expression"),
    "In one call": re.compile("load_|get_|scan_|sql|attach|.*_spark_jar"),
    "Choices": ("AccessMode", "FileIdHash", "InvalidText", "ResponseFormat", "TableFormat", "VariantAs"),
    "Errors and warnings": re.compile(".*(Error|Warning)$"),
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made or come from elsewhere."""
    from mkdocs.structure.files import File

    made = {name: (ROOT / source).read_text() for source, name in PAGES.items()}
    made |= {"commands.md": commands(), "api.md": api(), **notebooks()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    for picture in ROOT.glob("benchmarks/*.svg"):
        files.append(File.generated(config, f"benchmarks/{picture.name}", content=picture.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links into the repository into links of the site."""
    return LINK.sub(lambda found: _link(*found.groups(), page.file.src_uri, config["repo_url"] or "", files), markdown)


def _link(text: str, target: str, page: str, home: str, files: Any) -> str:
    if ":" in target or target.startswith("#"):
        return f"[{text}]({target})"
    source = next((path for path, name in PAGES.items() if name == page), f"docs/{page}")
    if page.startswith("notebooks/"):
        source = page
    path, _, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    name = PAGES.get(path, path.removeprefix("docs/"))
    name = re.sub(r"^(notebooks/.*)\.ipynb$", r"\1.md", name)
    if files.get_file_from_path(name) is not None:
        name = posixpath.relpath(name, posixpath.dirname(page) or ".")
    elif home:
        name = f"{home.rstrip('/')}/blob/main/{path}"
    else:
        return text
    return f"[{text}]({name}#{anchor})" if anchor else f"[{text}]({name})"


# === Made pages ===


def commands() -> str:
    """The command reference, from the program itself."""
    import typer.main

    from delta_sharing_client.cli.commands import app

    lines = ["# Command reference", "", "Made from the program; [a guide](cli.md) says how they go together.", ""]
    for path, command in _commands(typer.main.get_command(app), "delta-sharing"):
        words = [f"{_shown(one)}" for one in command.params if one.param_type_name == "argument"]
        text, examples = _help(command)
        lines += [f"## `{path}`", "", text, "", "```", " ".join([path, *words, "[OPTIONS]"]), "```", ""]
        options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
        if options:
            lines += ["| option | |", "|---|---|"]
            lines += [f"| {_names(one)} | {(one.help or '').replace('|', chr(92) + '|')} |" for one in options]
        if examples:
            lines += ["", "```", *examples, "```"]
        lines.append("")
    return "\n".join(lines)


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in sorted(group.commands.items()):
        if getattr(command, "commands", None):
            yield from _commands(command, f"{path} {name}")
        elif not command.hidden:
            yield f"{path} {name}", command


def _shown(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _help(command: Any) -> tuple[str, list[str]]:
    lines = (command.help or "").strip().splitlines()
    examples = [line.split(":", 1)[1].strip() for line in lines if line.startswith("Example:")]
    return " ".join(line for line in lines if line.strip("\b") and not line.startswith("Example:")), examples


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar}"
    return ", ".join(f"`{name}{value}`" if name.startswith("--") else f"`{name}`" for name in option.opts)


def api() -> str:
    """The API reference: every public name, by groups."""
    left = list(delta_sharing_client.__all__)
    lines = ["# API reference", "", "The names in `delta_sharing_client.__all__`; anything else may move.", ""]
    for title, names in API.items():
        chosen = [one for one in left if names.match(one)] if isinstance(names, re.Pattern) else list(names)
        left = [one for one in left if one not in chosen]
        lines += [f"## {title}", ""]
        lines += [f"::: delta_sharing_client.{name}\n" for name in chosen]
    if left:
        raise ValueError(f"These public names have no place in the API reference of docs/site.py: {', '.join(left)}.")
    return "\n".join([*lines, "## For tests", "", "::: delta_sharing_client.testing.running\n"])


def notebooks() -> dict[str, str | bytes]:
    """The notebooks as pages, with the pictures that they are committed with."""
    from nbconvert import MarkdownExporter

    pages: dict[str, str | bytes] = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        body, resources = MarkdownExporter().from_filename(str(path), {"unique_key": path.stem})
        pages[f"notebooks/{path.stem}.md"] = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
        pages |= {f"notebooks/{name}": content for name, content in resources["outputs"].items()}
    return pages
