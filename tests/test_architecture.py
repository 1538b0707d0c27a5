"""Rules for the code that a test can check: imports, public names, sizes, module names, secrets."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import typer

import delta_sharing_client as ds
from delta_sharing_client import compat, errors, testing
from delta_sharing_client.cli.commands import app
from delta_sharing_client.spark import source_options as spark_options

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("delta_sharing_client", "mock_server", "pyspark_delta_sharing")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PUBLIC_API = ROOT / "tests" / "public_api.txt"
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 60
MAX_POSITIONAL = 7
# In these files the parameters of a function are the options of a command, so there may be many.
COMMAND_LINES = (
    "delta_sharing_client/cli/asset_files.py",
    "delta_sharing_client/cli/commands.py",
    "delta_sharing_client/cli/provider_checks.py",
    "mock_server/command.py",
)
# Modules that only one module of their own directory imports, and why each has its own subject.
NOUNS_WITH_ONE_READER = {
    "assets/written_files.py": "a file format: one line for each file; state.py has the whole folder",
    "assets/transfers.py": "several downloads at a time; download.py chooses the files",
    "browse/assets.py": "assets besides tables; routes.py has the paths",
    "browse/column_facts.py": "facts about the values of a column; tables.py answers for a table",
    "browse/conditions.py": "conditions from shown values; tables.py answers for a table",
    "browse/sorted_rows.py": "an order of rows in bounded memory; previews.py has the pages",
    "browse/markdown.py": "Markdown as a tree of elements; folders.py has the files",
    "browse/previews.py": "first rows and costs; routes.py has the paths",
    "browse/query_box.py": "queries in SQL; routes.py has the paths",
    "browse/routes.py": "the paths of requests and their responses; page.py listens",
    "browse/tables.py": "facts about one table; routes.py has the paths",
    "cli/commands.py": "the commands; program.py is the process around them",
    "cli/shares.py": "the commands that list and describe, and read no rows",
    "delta/log/checkpoint_reader.py": "a file format: checkpoints of every kind",
    "delta/variant/encoding.py": "a specification: Variant Binary Encoding",
    "iceberg/positions.py": "a file format: position delete files",
    "iceberg/table_schema.py": "a schema in Iceberg's JSON",
    "iceberg/file_bounds.py": "which files may have matching rows",
    "mcp/extension.py": "an extension of the protocol: methods for skills and directories",
    "mcp/server.py": "the server of every transport; http_server.py has one of them",
    "mcp/tools.py": "the tools of an assistant; server.py implements the protocol",
    "predicates/sql.py": "the grammar of SQL; parse.py also reads tuples",
    "predicates/string_literals.py": "a token of SQL; sql.py has the grammar",
    "protocol/response_stream.py": "a response from the network: its pages, polls and resumptions",
    "decode/row_groups.py": "a file whose footer is read first; file.py chooses between the two ways",
    "decode/whole_file.py": "a file that is downloaded at once; file.py chooses between the two ways",
    "run/engine.py": "the files of one read, on the loop; batches.py returns their rows to threads and coroutines",
    "sources/either_source.py": "which of two ways works; choosing.py says which two there are",
    "sources/log_source.py": "a Delta log in storage; choosing.py chooses it",
    "storage/refusals.py": "what the errors of stores mean",
    "storage/server_urls.py": "one of the places: files behind URLs that the server signs",
    "storage/signing.py": "a specification: AWS Signature Version 4",
    "spark/push_down.py": "the Java classes in the driver, and the check that they work",
    "spark/file_rows.py": "files of an asset as rows; datasource.py has Spark's interface",
}


def test_tests_compare_times_only_with_stopwatch() -> None:
    """Comparing a time with a constant fails on a busy machine; ``Stopwatch`` allows for the load."""
    compared = re.compile(r"assert .*(?:monotonic|perf_counter|process_time|thread_time)\(\) - \w+ *<|SOON *= *\d")
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.name != "time_limits.py"
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if compared.search(line)
    ]

    assert places == []


def test_imports_follow_the_contracts(tmp_path: Path) -> None:
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


def test_public_names_are_sorted_and_unique() -> None:
    assert list(ds.__all__) == sorted(set(ds.__all__))
    assert [name for name in ds.__all__ if not hasattr(ds, name)] == []


def test_both_lists_of_public_names_are_equal() -> None:
    """``__init__.py`` has every name twice: in an import for type checkers, and in the table of lazy imports."""
    tree = ast.parse(Path(ds.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    seen = {
        (node.module, item.name)
        for node in imports
        if node.module and node.module.startswith("delta_sharing_client")
        for item in node.names
    }

    assert seen == {(home, name) for home, names in ds._HOMES.items() for name in names}
    assert {name for _, name in seen} == set(ds.__all__)


def test_every_error_is_public_and_in_the_error_tree() -> None:
    kinds = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}

    assert kinds <= set(ds.__all__)
    assert kinds == set(re.findall(r"(?:^    |── )(\w+(?:Error|Warning))\b", errors.__doc__ or "", re.MULTILINE))


def test_public_signatures_equal_the_recorded_ones() -> None:
    """Set UPDATE_PUBLIC_API=1 to record an intended change; the diff is then part of the review."""
    lines = [line for name in ds.__all__ for line in _signatures(name, getattr(ds, name))]
    for module in (compat, testing):
        home = module.__name__.rpartition(".")[2]
        for name in module.__all__:
            value = getattr(module, name)
            # The module also has names of the main package, which are recorded above.
            known = value is getattr(ds, name, None)
            lines += [f"{home}: {line}" for line in ([name] if known else _signatures(name, value))]
    lines += _command_lines(typer.main.get_command(app), "delta-sharing")
    lines += [f"deltaSharing: option {name}" for name in spark_options.names()]
    result = "".join(f"{line}\n" for line in lines)
    if os.environ.get("UPDATE_PUBLIC_API"):
        PUBLIC_API.write_text(result)

    assert result == PUBLIC_API.read_text()


def test_every_public_name_has_a_docstring() -> None:
    missing = [
        line.split("(")[0]
        for name in ds.__all__
        for line, value in _members(name, getattr(ds, name))
        if callable(value) and not inspect.getdoc(value)
    ]

    assert missing == []


# Members that need not document errors: they fail only for arguments of a wrong type, or, for assets, the class
# documents the errors of the first use of an attribute.
RAISES_NOTHING = re.compile(
    r"\w+Error\.|Scan(?:Report)\.|ConformanceReport\.|Partition\.(?:files|schema)|\w+\.(?:limit_rows|report)$|SharingClient\.close"
    r"|Profile\.(?:expiration_time|reread)|Table\.full_name"
    r"|(?:Volume|Model|ModelVersion|Skill)\.(?:allowed_tools|comment|compatibility|description|facts|id|license"
    r"|metadata|name|run_id|schema|share|share_id|source|status|storage_location)$"
    r"|ColumnBuilder\.|ScanPlan\.(?:bytes|close|known_rows|output_schema|pending)$"
    r"|FollowedChanges\.(?:completes_version|end_version|id|is_repeat|is_snapshot|number|start_version)$"
)


def test_every_public_function_documents_its_errors() -> None:
    silent = [
        name
        for public in ds.__all__
        for line, value in _members(public, getattr(ds, public))
        if inspect.isfunction(value) and not RAISES_NOTHING.match(name := line.split("(")[0])
        if not re.search(r"Raises\b|Error|Errors as", inspect.getdoc(value) or "")
    ]

    assert silent == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= MAX_FILE_LINES
    is_command_line = path.relative_to(ROOT).as_posix() in COMMAND_LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES, f"{node.name} is too long"
            positional = len(node.args.posonlyargs) + len(node.args.args)
            assert positional <= MAX_POSITIONAL or is_command_line, (
                f"{node.name} has {positional} positional parameters"
            )


def test_modules_with_one_user_in_their_room_have_a_reason() -> None:
    package = ROOT / "delta_sharing_client"
    alone = set()
    for path, users in _importers(package).items():
        # Modules of checks register them, so that one module imports all of them.
        is_registered = path.name in ("__init__.py", "__main__.py") or path.name.endswith("_checks.py")
        if not is_registered and len(users) == 1 and users.pop().parent == path.parent:
            alone.add(path.relative_to(package).as_posix())

    assert alone == set(NOUNS_WITH_ONE_READER)


def test_no_two_modules_have_the_same_name() -> None:
    names = Counter(path.name for path in (ROOT / "delta_sharing_client").rglob("*.py"))

    assert [name for name, count in names.items() if count > 1 and not name.startswith("__")] == []


def test_every_property_test_counts_its_cases() -> None:
    """A property without the relevant cases tests nothing (``tests.quota``)."""
    uncounted = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            decorators = {ast.unparse(one).partition("(")[0] for one in getattr(node, "decorator_list", ())}
            if "given" in decorators and "meets" not in decorators:
                uncounted.append(f"{path.relative_to(ROOT)}: {node.name}")  # type: ignore[attr-defined]

    assert uncounted == []


def test_docstring_references_exist() -> None:
    """Check every ``room.module`` and ``room.module.name`` in comments and docstrings."""
    package = ROOT / "delta_sharing_client"
    rooms = [path.name for path in package.iterdir() if (path / "__init__.py").exists()]
    pattern = re.compile(rf"``({'|'.join(rooms)})\.([a-z_]+|[A-Z]\w+)(?:\.(\w+))?``")
    others = {("http", "client"), ("http", "response")}  # modules of Python, and words of ASGI
    missing = []
    for path in SOURCES:
        for room, module, name in pattern.findall(path.read_text()):
            home = package / room / f"{module}.py"
            if (room, module) in others:
                continue
            if not home.exists() or (
                name and not re.search(rf"^(?:def|class) {name}\b|^{name}\b", home.read_text(), re.M)
            ):
                missing.append(f"{path.relative_to(ROOT)}: {room}.{module}{'.' if name else ''}{name}")

    assert missing == []


@pytest.mark.parametrize(
    ("statement", "never"),
    [
        ("import delta_sharing_client.cli", ("requests", "pyarrow", "pandas", "rich.table")),
        ("from delta_sharing_client import SharingClient", ("pyarrow", "pandas", "sqlglot", "fsspec", "polars")),
        (
            "from delta_sharing_client import load_as_pandas",
            ("typer", "pydantic", "rich", "sqlglot", "fsspec", "polars"),
        ),
        ("from delta_sharing_client import load_as_arrow", ("pandas", "sqlglot", "fsspec", "polars", "duckdb")),
        # The modules that listings import, even if the server has an Iceberg catalog.
        (
            "import delta_sharing_client.cli, delta_sharing_client.client, delta_sharing_client.iceberg.catalog",
            ("pyarrow", "numpy", "pandas", "sqlglot", "aiohttp"),
        ),
        ("import delta_sharing_client.spark.datasource", ("pandas", "sqlglot", "fsspec", "rich")),
    ],
)
def test_unneeded_modules_are_not_imported(statement: str, never: tuple[str, ...]) -> None:
    code = f"{statement}\nimport sys\nprint([name for name in {never!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)

    assert run.stdout.strip() == "[]"


def test_files_name_no_machine_and_contain_no_secret() -> None:
    patterns = {
        "a path of one machine": re.compile(r"(?<![\w.])/(?:home|root|Users|work|farm)/\w"),
        "a private key": re.compile(r"-----BEGIN (?:\w+ )?PRIVATE KEY-----\n[A-Za-z0-9+/]{40}"),
        "an access key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bdapi[0-9a-f]{32}\b|\bgh[pousr]_\w{36}\b"),
        "an address of a package index": re.compile(r"(?:index-url|find-links|trusted-host)\s*[=: ]\s*\S+"),
    }
    results = [
        f"{path}: {what}"
        for path in _tracked_text_files()
        for what, pattern in patterns.items()
        if pattern.search((ROOT / path).read_text(encoding="utf-8", errors="replace"))
    ]

    assert results == []


def _importers(package: Path) -> dict[Path, set[Path]]:
    """Return, for each module of ``package``, the modules of the package that import it."""
    files = sorted(package.rglob("*.py"))
    users: defaultdict[str, set[Path]] = defaultdict(set)
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(package.name):
                for name in (node.module, *(f"{node.module}.{item.name}" for item in node.names)):
                    users[name].add(path)
    return {path: users[".".join(path.relative_to(ROOT).with_suffix("").parts)] for path in files}


def _tracked_text_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git work tree: what belongs to the repository is unknown")
    suffixes = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".ipynb", ""}
    # The logs of tables are left out: they are data, whose contents other writers chose.
    return [
        name
        for name in listed.stdout.split("\0")
        if name
        and Path(name).suffix in suffixes
        and "_delta_log" not in name
        and (ROOT / name).is_file()
        and name != Path(__file__).resolve().relative_to(ROOT).as_posix()
    ]


def _command_lines(command: Any, words: str) -> list[str]:
    """Return a line for each command, with its arguments and options, because scripts depend on their names and
    defaults."""
    if hasattr(command, "commands"):
        nested = sorted(command.commands.items())
        return [line for name, inner in nested for line in _command_lines(inner, f"{words} {name}")]
    asked = [
        f"{'/'.join([*one.opts, *one.secondary_opts])}{'' if one.default in (None, False) else f'={one.default}'}"
        for one in command.params
    ]
    return [] if command.hidden else [f"{words}: {', '.join(asked)}"]


def _signatures(name: str, value: object) -> list[str]:
    return [line for line, _ in _members(name, value)]


def _members(name: str, value: object) -> list[tuple[str, object]]:
    """Return ``(line, object)`` for a public name, and for the public members that a class defines or inherits from
    us."""
    if not inspect.isclass(value):
        # A fixture is not a function here: its signature does not matter, as pytest passes its arguments.
        return [(f"{name}{_signature(value)}" if inspect.isfunction(value) else name, value)]
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    lines: list[tuple[str, object]] = [(f"class {name}({bases})", value)]
    for member in sorted(dir(value)):
        static = inspect.getattr_static(value, member)
        owner = next((cls for cls in value.__mro__ if member in vars(cls)), None)
        ours = owner is not None and owner.__module__.startswith("delta_sharing_client")
        if member == "__init__" and ours and "__init__" in vars(value) and static.__module__ != "typing":
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
    # Annotations are left out: callers depend on names and defaults, and mypy checks the types.
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(value).parameters.values()]  # type: ignore[arg-type]
    return str(inspect.Signature(parameters))


@pytest.mark.parametrize(
    "accessor",
    [
        # pyarrow's metadata of a chunk may throw a C++ exception, which ends the process. Use parquet.chunks instead.
        r"row_group\([^)]*\)\.column\(",
        # On the result of a kernel, this property crashes pyarrow 14. Use arrow_forms.count_true instead.
        r"(?<!mask)\.true_count\b",
    ],
)
def test_nothing_calls_arrow_functions_that_abort_the_process(accessor: str) -> None:
    calls = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(accessor, line)
    ]
    assert not calls
