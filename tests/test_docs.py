"""The documentation matches the code: its tables are generated from the code, its examples run, and its links exist."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import polars as pl
import pyarrow as pa
import pytest
import typer.main
from pyiceberg import types as theirs

import delta_sharing_client
from delta_sharing_client import errors
from delta_sharing_client.cli import main
from delta_sharing_client.cli.commands import app
from delta_sharing_client.cli.program import ExitCode, exit_code
from delta_sharing_client.delta.data_types import PrimitiveType
from delta_sharing_client.delta.features import FEATURES, Operation
from delta_sharing_client.delta.schema import parse_schema, to_arrow_schema
from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.iceberg.table_schema import schema_string
from delta_sharing_client.outputs import pandas as frames
from delta_sharing_client.outputs.dataset import known_to_duckdb
from delta_sharing_client.outputs.file_formats import BY_ENDING
from delta_sharing_client.predicates.functions import FUNCTIONS
from delta_sharing_client.predicates.parse import OPERATORS
from delta_sharing_client.spark.source_options import names as spark_options
from delta_sharing_client.spark.types import to_spark_type
from mock_server.config import from_yaml
from mock_server.faults import FAULTS, Target
from tests.examples import PAGES, Example, examples
from tests.generated import check_generated
from tests.versions import PANDAS

ROOT = Path(__file__).resolve().parent.parent
ALL_PAGES = [*PAGES, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"))]

# The types of Iceberg's specification ("Schemas and Data Types"): the name of each in the table, and an example in a
# schema.
ICEBERG_TYPES: dict[str, object] = {
    **{name: name for name in ("boolean", "int", "long", "float", "double", "string", "uuid", "binary", "unknown")},
    **{name: name for name in ("date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")},
    "variant": "variant",
    "decimal(P, S)": "decimal(38, 18)",
    "fixed[L]": "fixed[16]",
    "geometry(C)": "geometry(srid:3857)",
    "geography(C, A)": "geography(srid:4326, karney)",
    "list": {"type": "list", "element-id": 2, "element": "long", "element-required": False},
    "map": {
        "type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "long", "value-required": False,
    },
    "struct": {"type": "struct", "fields": [{"id": 2, "name": "a", "required": False, "type": "long"}]},
}  # fmt: skip

# For each row of the table: its name there, and an example of the type in a schemaString.
TYPES: dict[str, object] = {
    "boolean": "boolean",
    "byte": "byte",
    "short": "short",
    "integer": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "decimal(p, s)": "decimal(38,18)",
    "string, char(n), varchar(n)": "varchar(5)",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "time": "time",
    "timestamp_nanos": "timestamp_nanos",
    "timestamp_nanos_ntz": "timestamp_nanos_ntz",
    "geometry": "geometry(EPSG:3857)",
    "geography": "geography(OGC:CRS84, spherical)",
    "interval day to second": "interval day to second",
    "interval year to month": "interval year to month",
    "void": "void",
    "uuid": "uuid",
    "variant": "variant",
    "array": {"type": "array", "elementType": "long", "containsNull": True},
    "map": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    "struct": {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]},
}


def test_feature_table_matches_the_code() -> None:
    lines = [
        "| feature | who must understand it | supported | note |",
        "|---|---|---|---|",
    ]
    for feature in FEATURES:
        some = ", ".join(operation.value for operation in Operation if operation in feature.operations)
        supported = "yes" if {*Operation} == {*feature.operations} else some or "no"
        lines.append(f"| `{feature.name}` | {feature.kind.value} | {supported} | {feature.note} |")

    assert all(line.count("|") == 5 for line in lines)
    assert any("| `redirectReaderWriter-preview` | reader and writer | no |" in line for line in lines)
    check_generated(ROOT / "docs" / "features.md", "features", "\n".join(lines) + "\n")


def test_list_of_faults_matches_the_code() -> None:
    lines = []
    for target in Target:
        lines += [f"Faults of the target `{target.value}`:", ""]
        for kind in FAULTS:
            if kind.target is target:
                value = "=N" if kind.required else "" if kind.default is None else f"={kind.default:g}"
                lines.append(f"- `{kind.name}{value}`: {kind.doc.replace('VALUE', 'N')}")
        lines.append("")

    check_generated(ROOT / "docs" / "server.md", "faults", "\n".join(lines))


@pytest.mark.skipif(PANDAS < 2, reason="the table has the time units of pandas 2")
def test_type_table_matches_the_outputs() -> None:
    lines = ["| type | Iceberg | Arrow | pandas | `numpy_nullable` | Polars | DuckDB | Spark |", "|---" * 8 + "|"]
    of_iceberg = _of_iceberg()
    for name, kind in TYPES.items():
        schema, required = _schema(kind, nullable=True), _schema(kind, nullable=False)
        cells = [name, "`, `".join(of_iceberg.pop(_kind_of(kind), [])), _arrow(schema), _pandas(schema)]
        cells += [_pandas(schema, "numpy_nullable"), _polars(schema), _duckdb(schema), _spark(kind)]
        # The page states these rules in a sentence.
        assert _pandas(schema, "pyarrow") == f"{_arrow(schema)}[pyarrow]"
        is_nullable = re.fullmatch(r"Int\d+|boolean", _pandas(schema))
        assert _pandas(required) == (_arrow(schema) if is_nullable else _pandas(schema))
        lines.append("| " + " | ".join([cells[0], *(f"`{cell}`" if cell else "none" for cell in cells[1:])]) + " |")

    assert of_iceberg == {}, "an Iceberg type has no line"
    check_generated(ROOT / "docs" / "types.md", "types", "\n".join(lines) + "\n")


def test_type_table_has_every_type_of_pyiceberg() -> None:
    named = {re.sub(r"\W.*", "", name) for name in ICEBERG_TYPES}
    kinds = {*theirs.PrimitiveType.__subclasses__()} - {theirs.DecimalType, theirs.FixedType}
    # pyiceberg spells types like the specification, but has no class for variants.
    known = {re.sub(r"\W.*", "", str(kind())) for kind in kinds}

    assert named == known | {"decimal", "fixed", "struct", "list", "map", "variant"}


def test_vendored_scripts_are_those_of_the_page_on_dependencies() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    stated = re.findall(r"^\| \[.*?\| (\S+) \| `(\S+)` \| .*?\| `([0-9a-f]{64})` \|", page, re.MULTILINE)
    static = ROOT / "delta_sharing_client" / "browse" / "static"

    assert {Path(path).name for _, path, _ in stated} == {path.name for path in static.glob("*.umd.js")}
    for version, path, digest in stated:
        data = (ROOT / path).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        assert f"v{version}\n".encode() in data[:100]
        assert b"Permission is hereby granted" in (static / "chart.LICENSE.txt").read_bytes()


def test_errors_page_lists_every_error_with_its_exit_code() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    codes = {name: int(code) for name, code in re.findall(r"^\| `(\w+)`[^|]*\|[^|]*\| (\d+) \|$", page, re.MULTILINE)}
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    kinds = [kind for kind in kinds if issubclass(kind, errors.DeltaSharingError)]

    assert codes == {kind.__name__: exit_code(kind("One.")) for kind in kinds if kind is not errors.DeltaSharingError}


def test_command_line_page_lists_every_exit_code() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    table = page[page.index("| exit code |") :].split("\n\n")[0]

    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == sorted(ExitCode)


def test_command_line_page_lists_every_file_suffix() -> None:
    (row,) = re.findall(r"^\| `--to FILE`.*", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)

    assert set(re.findall(r"`(\.\w+)`", row)) == set(BY_ENDING)


def test_command_line_page_lists_the_options_of_the_help() -> None:
    lines = ["| command | options |", "|---|---|"]
    known = {"--profile", "--json", "--help", "--install-completion", "--show-completion"}
    for path, command in commands_of(typer.main.get_command(app), ""):
        options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
        known.update(name for one in options for name in one.opts)
        own = ["`, `".join(one.opts) for one in options if not {"--profile", "--json"}.intersection(one.opts)]
        if own:
            lines.append(f"| `{path.strip()}` | {'; '.join(f'`{names}`' for names in own)} |")
    page = ROOT / "docs" / "cli.md"

    check_generated(page, "options", "\n".join(lines) + "\n")
    # Every option that the page names outside the table must belong to a command.
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page.read_text())) <= known


def test_spark_page_lists_every_option() -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    table = page[page.index("| option | default |") :].split("\n\n")[0]
    options = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert sorted(options, key=str.lower) == spark_options()


def test_filter_page_lists_every_operator_and_function() -> None:
    page = (ROOT / "docs" / "filters.md").read_text()
    table = page[page.index("| | SQL text |") :].split("\n\n")[0]

    assert [name for name in (*OPERATORS, *FUNCTIONS) if not re.search(rf"[`\"]{re.escape(name)}[`\"(]", table)] == []


def test_every_issue_of_delta_sharing_names_an_existing_test() -> None:
    page = (ROOT / "docs" / "from-delta-sharing.md").read_text()
    table = page[page.index("| issue | what it is about |") :].split("\n\n")[0].splitlines()[2:]
    issues = [number for row in table for number in re.findall(r"#\d+", row.split("|")[1])]

    assert len(issues) >= 20
    assert len(issues) == len(set(issues))
    for row in table:
        (named,) = re.findall(r"`(tests/[^`]+)`", row.split("|")[-2])
        path, _, name = named.partition("::")
        source = (ROOT / path).read_text()
        assert re.search(rf"^def {name}\b" if name else r"^def test_", source, re.MULTILINE), named


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_links_to_other_pages_and_files_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())

    assert [target for target in targets if ":" not in target and not (page.parent / target).exists()] == []


# Links to other sites cannot be checked offline, so whoever adds a link must check it.
HOSTS = {
    "delta.io",
    "developmentseed.org",
    "docs.aws.amazon.com",
    "docs.databricks.com",
    "docs.snowflake.com",
    "github.com",
    "modelcontextprotocol.io",
    "www.chartjs.org",
}


def test_external_links_point_to_known_sites() -> None:
    text = "".join(page.read_text() for page in ALL_PAGES)
    links = re.findall(r"\]\(([^)\s]*:[^)\s]*)\)", text)
    parts = [urlsplit(link) for link in links]

    assert [link for link in links if not re.fullmatch(r"https://[\w.-]+(/[\w./~%-]*)?(#[\w-]+)?", link)] == []
    assert {part.hostname for part in parts} == HOSTS
    # Links to GitHub name at least an owner and a repository.
    assert [part.path for part in parts if part.hostname == "github.com" and part.path.strip("/").count("/") < 1] == []


def test_site_builds_without_warnings_or_external_requests(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip

    assert built.returncode == 0, built.stdout + built.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert {"index.html", "api.html", "commands.html", "09_troubleshooting.html"} <= {page.name for page in pages}
    loaded = re.compile(r"""<(?:script|img|iframe|link rel=.?stylesheet)[^>]* (?:src|href)=["']?(https?:[^"' >]+)""")
    assert [found for page in pages for found in loaded.findall(page.read_text())] == []
    commands = (tmp_path / "commands.html").read_text()
    assert [name for name in ("sql", "replicate", "profile check") if f"delta-sharing {name}" not in commands] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_adjacent_code_blocks_fit_a_window_of_1280_pixels(page: Path) -> None:
    pairs = re.findall(r'^<div class="grid" markdown>$(.*?)^</div>$', page.read_text(), re.MULTILINE | re.DOTALL)
    assert [line for pair in pairs for line in pair.splitlines() if len(line) > 57] == []


def test_changelog_starts_with_the_current_version() -> None:
    version = delta_sharing_client.__version__
    newest = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    released = version.partition(".dev")[0]

    assert newest == f"{released} (unreleased)" if ".dev" in version else newest.startswith(f"{released}, 2")


# The change log mentions paths that no longer exist.
CURRENT_PAGES = [page for page in ALL_PAGES if page.name != "CHANGELOG.md"]


def test_paths_in_pages_exist() -> None:
    folders = (ROOT, ROOT / "delta_sharing_client")
    beginnings = {path.name for folder in folders for path in folder.iterdir() if path.is_dir()}
    named = [
        (page.name, path)
        for page in CURRENT_PAGES
        for path in re.findall(r"`(\.?\w+(?:/[\w.-]+)*/?)(?:::\w+)?`", page.read_text())
        if ("/" in path and path.split("/")[0] in beginnings)
        or (page.name in ("architecture.md", "CONTRIBUTING.md") and re.search(r"/|\.(py|md|toml|txt)$", path))
    ]
    # The table of rooms has some module names without the directory.
    modules = {path.name for path in (ROOT / "delta_sharing_client").rglob("*.py")}

    assert len(named) > 100
    missing = [
        (page, path)
        for page, path in named
        if path not in modules and not any((one / path).exists() for one in folders)
    ]
    assert missing == []


def test_tests_named_in_pages_exist() -> None:
    tests = [(path.stem, path.read_text()) for path in (ROOT / "tests").rglob("test_*.py")]
    names = {stem: "" for stem, _ in tests}
    for stem, source in tests:
        names[stem] += "\n".join(["", *re.findall(r"\bdef (test_\w+)", source)])
    named = [
        (page.name, module, part)
        for page in CURRENT_PAGES
        for module, part in re.findall(r"`(?:\w+/)*(test_\w+)(?:\.py)?(?:(?:: |::)(\w+))?`", page.read_text())
    ]

    assert len(named) > 50
    # A page may name a test, a file of tests, or a file and a part of the name of one of its tests.
    every = "\n".join(names.values()).split()
    missing = [one for one in named if one[2] not in names.get(one[1], "") or one[1] not in {*names, *every}]
    assert missing == []


def test_architecture_names_every_module_of_the_top_level() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    modules = {path.name for path in (ROOT / "delta_sharing_client").glob("[!_]*.py")}

    assert {name for name in modules if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("example", examples("here"), ids=str)
def test_python_example_runs_and_returns_rows(example: Example, example_folder: Path, serve_demo: Any) -> None:
    serve_demo.reset_stats()

    results = [result for result in example.results() if result.rows is not None]

    assert [result.code for result in results if not result.rows] == []
    assert results or "data" not in serve_demo.stats()["requests"]


def test_example_without_rows_is_reported(example_folder: Path) -> None:
    source = """
import asyncio
import duckdb
import delta_sharing_client as ds

table = ds.SharingClient("demo.share").table("demo.shop.orders")
scan = table.scan(filter="amount > {amount}")
print(scan.to_pandas())
lazy = scan.to_polars(lazy=True)
connection = duckdb.connect()
rows = scan.to_duckdb(connection).fetchall()
for batch in scan.to_batches():
    print(batch)


async def read():
    async for batch in scan.to_batches_async():
        print(await scan.to_arrow_async())


asyncio.run(read())
"""
    actual = Example("page", 1, "here", source.replace("{amount}", "500")).results()
    empty = Example("page", 1, "here", source.replace("{amount}", "900")).results()

    with_rows = [result for result in actual if result.rows is not None]
    kinds = {type(result.value).__name__ for result in with_rows}
    assert kinds >= {"DataFrame", "LazyFrame", "DuckDBPyRelation", "list", "Batches", "AsyncBatches", "Table"}
    assert all(result.rows for result in with_rows)
    without = {type(result.value).__name__ for result in empty if result.rows == 0}
    # A scan without rows may return no batch or an empty one, so batches are not required here.
    assert without >= {"DataFrame", "LazyFrame", "DuckDBPyRelation", "list"}


@pytest.mark.interop
@pytest.mark.parametrize("example", examples("delta-sharing"), ids=str)
def test_delta_sharing_examples_run_with_that_package(
    example: Example, example_folder: Path, incumbent_python: str
) -> None:
    # A process with that package may abort (SIGABRT) at its end, after the example has run, so it gets three attempts.
    codes = (subprocess.run([incumbent_python, "-c", example.source], timeout=120).returncode for _ in range(3))
    assert next((code for code in codes if code >= 0), None) == 0


@pytest.mark.parametrize("example", examples("here"), ids=str)
def test_examples_need_only_the_installed_package(example: Example) -> None:
    assert re.findall(r"\b(?:import|from) (?:mock_server|tests|benchmarks)\b", example.source) == []


def test_examples_have_known_kinds() -> None:
    kinds = {example.kind for example in examples()}

    # Examples of the kinds "JVM connector" and "psycopg" are not run: they need the connector's jar and a Postgres
    # server.
    assert kinds == {"here", "spark", "delta-sharing", "JVM connector", "psycopg"}


# Lines in blocks without a language that no test runs as they are, and what covers them instead.
NOT_RUN = {
    r"bash (scripts/|\.ci/run)": "they are the suite and its demonstration",
    r"(venv/bin/)?pip install |python -m venv |source venv": "scripts/wheels installs each extra",
    r"delta-sharing serve": "a server does not end by itself: tests/unit/mock_server/test_main.py starts it",
    r"delta-sharing \[": "how a command line is made",
    r"export DELTA_SHARING_PROFILE=": "the test of commands sets it",
    r"pytest --delta-sharing-conformance ": "tests/protocol/test_conformance.py runs the plugin",
    r"spark-submit |  (--packages |job\.py)": "one needs the JVM connector's jar, which the suite does not download",
}
DRAWINGS = {
    ("architecture.md", "protocol and servers"),
    ("conformance.md", "FAILS  list.max-results"),
    ("replica.md", "_delta_log/"),
}


def test_every_block_is_run_or_exempt_with_a_reason(tmp_path: Path) -> None:
    used, drawn, unknown = set(), set(), []
    # The server's example configuration shares these directories.
    for directory in ("documents", "churn/1", "churn/2", "skills/report"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "skills/report/SKILL.md").write_text("---\ndescription: Writes a report\n---\n")
    for page in PAGES:
        for marks, block in re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            language = marks.split(" ")[0]
            # tests above and in tests/spark run blocks marked "python", and test_engines.py runs blocks marked "py"
            if language in ("python", "py"):
                continue
            # test_recipes.py runs all blocks of this page, and checks that none is missing
            if page.name == "recipes.md":
                continue
            if language == "json":  # the configuration of a program that starts our MCP server
                (servers,) = json.loads(block).values()
                for server in servers.values():
                    if "url" in server:
                        # The server that the command in the text before starts.
                        assert server["url"].endswith("/mcp")
                        continue
                    assert (server["command"], main([*server["args"], "--help"])) == ("delta-sharing", ExitCode.OK)
                continue
            if language == "yaml":
                (tmp_path / "server.yaml").write_text(block)
                assert from_yaml(tmp_path / "server.yaml").catalog
                continue
            if drawing := {one for one in DRAWINGS if one[0] == page.name and one[1] in block}:
                drawn |= drawing
                continue
            for line in filter(None, block.splitlines()):
                reasons = [start for start in NOT_RUN if re.match(start, line)]
                used.update(reasons)
                if not reasons and not re.match(r"delta-sharing [a-z-]", line):
                    unknown.append((page.name, line))

    assert unknown == []
    assert used == set(NOT_RUN)
    assert drawn == DRAWINGS


# ``delta-sharing serve`` does not exit by itself, so other tests run it.
COMMAND = re.compile(r"^delta-sharing (?!serve)[a-z-].*", re.MULTILINE)
WITH_COMMANDS = [page for page in PAGES if COMMAND.search(page.read_text())]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_command_lines_of_a_page_run(
    page: Path, example_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTA_SHARING_PROFILE", "demo.share")
    monkeypatch.setattr("delta_sharing_client.loopback.wait", lambda ended: None)
    activated = (example_folder / "demo.share").read_bytes()
    monkeypatch.setattr("delta_sharing_client.http.sessions.fetched", lambda *_, **__: (200, activated))
    blocks = "".join(re.findall(r"^```[^\n]*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
    commands = COMMAND.findall(blocks)

    for command in commands:
        words = shlex.split(command, comments=True)[1:]
        assert main(words) == 0, (command, capsys.readouterr().err)
        printed = capsys.readouterr()
        # The command must print rows (below a header, if it prints one), or report that it wrote rows to a file.
        name = words[2] if words[0] == "-p" else words[0]
        has_header = name in ("head", "read", "changes", "sql") and not {"--json", "--explain"} & {*words}
        assert len(printed.out.splitlines()) > has_header or re.search(r"[1-9]\d* rows .*written", printed.err), command
    assert commands


@pytest.fixture
def example_folder(serve_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with ``demo.share``, the profile of a server with the demo tables."""
    (tmp_path / "demo.share").write_text(json.dumps(serve_demo.profile))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands_of(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in sorted(group.commands.items()):
        if getattr(command, "commands", None):
            yield from commands_of(command, f"{path} {name}")
        elif not command.hidden:
            yield f"{path} {name}", command


def _schema(kind: object, *, nullable: bool) -> pa.Schema:
    if kind == "variant":  # by default, variants are JSON text
        return pa.schema([pa.field("c", pa.string(), nullable)])
    field = {"name": "c", "type": kind, "nullable": nullable, "metadata": {}}
    return to_arrow_schema(parse_schema(json.dumps({"type": "struct", "fields": [field]})))


def _kind_of(kind: object) -> object:
    """Return a key that is the same for all types of one row of the table."""
    field = {"name": "c", "type": kind, "nullable": True, "metadata": {}}
    parsed = parse_schema(json.dumps({"type": "struct", "fields": [field]})).fields[0].type
    return parsed.base if isinstance(parsed, PrimitiveType) else type(parsed)


def _of_iceberg() -> dict[object, list[str]]:
    """Return the names of Iceberg's types by the keys of ``_kind_of``."""
    results: dict[object, list[str]] = {}
    for name, kind in ICEBERG_TYPES.items():
        schema = {"type": "struct", "fields": [{"id": 1, "name": "c", "required": False, "type": kind}]}
        converted = json.loads(schema_string(schema))["fields"][0]["type"]
        results.setdefault(_kind_of(converted), []).append(name)
    return results


def _arrow(schema: pa.Schema) -> str:
    return str(schema.field(0).type)


def _pandas(schema: pa.Schema, backend: Any = "numpy") -> str:
    dtype = str(frames.to_pandas(schema, [], backend)["c"].dtype)
    # pandas 2 uses object where pandas 3 has a string type.
    return "str" if pa.types.is_string(schema.field(0).type) and dtype == "object" else dtype


def _polars(schema: pa.Schema) -> str:
    dtype = pl.from_arrow(schema.empty_table()).schema["c"]  # type: ignore[union-attr]
    # Polars before version 2 has no maps.
    return "Map(String, Int64)" if str(dtype) == "List(Struct({'key': String, 'value': Int64}))" else str(dtype)


def _spark(kind: object) -> str:
    schema = json.dumps({"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]})
    try:
        return to_spark_type(parse_schema(schema).fields[0].type, "c").simpleString()
    except UnsupportedFeatureError:
        return "refused"


def _duckdb(schema: pa.Schema) -> str:
    result = str(duckdb.from_arrow(known_to_duckdb(schema).empty_table()).types[0]).replace('"', "")
    # DuckDB before version 2 has no null type.
    return "NULL" if schema.field(0).type == pa.null() and result == "INTEGER" else result
