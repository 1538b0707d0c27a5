"""What the documentation says is true: tables are made from the code, examples run, links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from delta_sharing_client.cli import main
from delta_sharing_client.delta.features import markdown_table
from delta_sharing_client.delta.schema import parse_schema, to_arrow_schema
from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.outputs import pandas as frames
from delta_sharing_client.spark.types import to_spark_type
from mock_server.faults import FAULTS
from tests.generated import check_generated

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# One type a line of the table: its name there, and as a schemaString has it.
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
    "interval day to second": "interval day to second",
    "interval year to month": "interval year to month",
    "void": "void",
    "array": {"type": "array", "elementType": "long", "containsNull": True},
    "map": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    "struct": {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]},
}


def test_the_feature_table_is_the_one_of_the_code() -> None:
    check_generated(ROOT / "docs" / "features.md", "features", markdown_table())


def test_the_table_of_faults_is_the_one_of_the_code() -> None:
    lines = ["| fault | what goes wrong | target |", "|---|---|---|"]
    for kind in FAULTS:
        value = "=VALUE" if kind.required or kind.default is not None else ""
        default = "" if kind.default is None else f" (VALUE: {kind.default:g})"
        lines.append(f"| `{kind.name}{value}` | {kind.doc}{default} | {kind.target.value} |")

    check_generated(ROOT / "docs" / "server.md", "faults", "\n".join(lines) + "\n")


def test_the_type_table_is_what_the_outputs_give() -> None:
    lines = ["| Delta | Arrow | pandas | NOT NULL in pandas | `numpy_nullable` | `pyarrow` | Polars | DuckDB | Spark |"]
    lines += ["|---" * 9 + "|"]
    for name, kind in TYPES.items():
        schema, required = _schema(kind, nullable=True), _schema(kind, nullable=False)
        cells = [name, _arrow(schema), _pandas(schema), _pandas(required)]
        cells += [_pandas(schema, "numpy_nullable"), _pandas(schema, "pyarrow"), _polars(schema), _duckdb(schema)]
        cells += [_spark(kind)]
        lines.append("| " + " | ".join([cells[0], *(f"`{cell}`" for cell in cells[1:])]) + " |")

    check_generated(ROOT / "docs" / "types.md", "types", "\n".join(lines) + "\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_other_pages_and_files_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())

    assert [target for target in targets if ":" not in target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize(
    "page", [ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_the_paths_that_developers_are_sent_to_exist(page: Path) -> None:
    paths = re.findall(r"`((?:\w+/)*\w+\.(?:py|md|toml|txt)|(?:\w+/)+)`", page.read_text())

    missing = [
        path for path in paths if not any((folder / path).exists() for folder in (ROOT, ROOT / "delta_sharing_client"))
    ]
    assert missing == []
    assert len(paths) > 5


# The page about Spark needs a session: tests/spark/test_examples.py runs it.
EXAMPLES = [page for page in PAGES if "```python\n" in page.read_text() and page.name != "spark.md"]


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.name)
def test_the_python_examples_of_a_page_run_in_order(page: Path, example_folder: Path) -> None:
    names: dict[str, Any] = {}

    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "cli.md"], ids=lambda page: page.name)
def test_the_command_lines_of_a_page_run(
    page: Path, example_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTA_SHARING_PROFILE", "demo.share")
    blocks = "".join(re.findall(r"```\w*\n(.*?)```", page.read_text(), re.DOTALL))
    commands = [line for line in blocks.splitlines() if re.match(r"delta-sharing [a-z-]", line)]

    for command in commands:
        assert main(shlex.split(command, comments=True)[1:]) == 0, (command, capsys.readouterr().err)
    assert commands
    assert capsys.readouterr().out


@pytest.fixture
def example_folder(serve_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with ``demo.share``, the profile of a server with the demo's tables."""
    (tmp_path / "demo.share").write_text(json.dumps(serve_demo.profile))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _schema(kind: object, *, nullable: bool) -> pa.Schema:
    field = {"name": "c", "type": kind, "nullable": nullable, "metadata": {}}
    return to_arrow_schema(parse_schema(json.dumps({"type": "struct", "fields": [field]})))


def _arrow(schema: pa.Schema) -> str:
    return str(schema.field(0).type)


def _pandas(schema: pa.Schema, backend: Any = "numpy") -> str:
    dtype = str(frames.to_pandas(schema, [], backend)["c"].dtype)
    # pandas 2 has object where pandas 3 has its own string type.
    return "str" if pa.types.is_string(schema.field(0).type) and dtype == "object" else dtype


def _polars(schema: pa.Schema) -> str:
    dtype = pl.from_arrow(schema.empty_table()).schema["c"]  # type: ignore[union-attr]
    # Before version 2 Polars has no maps.
    return "Map(String, Int64)" if str(dtype) == "List(Struct({'key': String, 'value': Int64}))" else str(dtype)


def _spark(kind: object) -> str:
    schema = json.dumps({"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]})
    try:
        return to_spark_type(parse_schema(schema).fields[0].type, "c").simpleString()
    except UnsupportedFeatureError:
        return "refused"


def _duckdb(schema: pa.Schema) -> str:
    found = str(duckdb.from_arrow(schema.empty_table()).types[0]).replace('"', "")
    # Before version 2 DuckDB has no type without values.
    return "NULL" if schema.field(0).type == pa.null() and found == "INTEGER" else found
