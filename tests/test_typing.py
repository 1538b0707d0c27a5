"""A user's program is type-checked with the types of the package: the examples of the pages, and every form of a value
that is accepted."""

from __future__ import annotations

import enum
import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client import options
from tests.examples import examples

ROOT = Path(__file__).resolve().parent.parent
# Examples do not annotate their own functions, and pyarrow has no types.
OF_THE_PROGRAM = {"no-untyped-def", "no-untyped-call", "import-untyped"}
# In the examples for notebooks of Databricks, this name exists.
PREDEFINED = re.compile(r'Name "spark" is not defined')


def type_errors(folder: Path) -> list[str]:
    """Return the errors that ``mypy --strict`` finds in the programs in ``folder``."""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), str(folder)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    return [line for line in errors if line.rpartition("[")[2].rstrip("]") not in OF_THE_PROGRAM]


# Each line is accepted when it runs (tests of the functions concerned), so it must be accepted by a type checker.
ACCEPTED = """
import datetime
import os
import pathlib
from collections.abc import AsyncIterator, Iterator

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import delta_sharing_client as ds

path = pathlib.Path("my.share")
profile: dict[str, object] = {"shareCredentialsVersion": 1, "endpoint": "https://h", "bearerToken": "t"}
client = ds.SharingClient(path, options=ds.ReadOptions(max_attempts=1))
ds.SharingClient("my.share"); ds.SharingClient(profile); ds.SharingClient(ds.Profile.load(path)); ds.SharingClient()

ds.ReadOptions(headers={"X-Key": "k"}, storage_options={"region": "eu"}, user_agent="p", total_timeout=None)
ds.ReadOptions(progress=lambda progress: print(progress.rows), ca_bundle=path, client_certificate=("a", path))
ds.ReadOptions(read_timeout=1, connect_timeout=0.5, client_certificate="both.pem", proxy="")
chosen: str = os.environ.get("FORMAT", "delta")
ds.ReadOptions(table_format=chosen)

table: ds.SharedTable = client.table("s.s.t", format="iceberg")
client.table("s.s.t", chosen)
scan: ds.Scan = table.scan(["a", ("b", "c")], filter="a > 1", limit=1, version=2, response_format="delta")
table.scan(filter=[("a", ">", 1), ("b", "in", [1, 2])])
table.scan(filter=[[("a", ">", 1)], [("b", "is", None)]])
table.scan(filter=ds.col("a") > 1); table.scan(filter=(ds.col("a") > 1) & ~(ds.col("b") == "x"))
table.scan(filter=ds.col("a"))
table.scan(filter=pl.col("a") > 1); table.scan(filter=pc.field("a") > 1)
table.scan(timestamp="2026-01-01"); table.scan(timestamp=datetime.datetime.now(datetime.timezone.utc))
table.scan(timestamp=datetime.date(2026, 1, 1)); table.scan(timestamp=pd.Timestamp("2026-01-01"))
scan.where("a > 1").where(ds.col("a") > 1).select("a", ("b", "c")).limit(3).at_version("branch").at_version(3)
changes: ds.Changes = table.changes(1, 2, filter="a > 1"); table.changes(starting_timestamp="2026-01-01")

frame: pd.DataFrame = scan.to_pandas(); scan.to_pandas("pyarrow"); scan.to_pandas(dtype_backend="numpy_nullable")
polars: pl.DataFrame = scan.to_polars(); lazy: pl.LazyFrame = scan.to_polars(lazy=True)
rows: pa.Table = scan.to_arrow(); count: int = scan.count(); written: int = scan.to_parquet(path) + scan.to_csv("a.csv")
batches: Iterator[pa.RecordBatch] = scan.to_batches(rows=10)
for batch in scan.to_batches(): print(batch)
with scan.to_batches() as opened: next(opened)
for part in scan.partitions(3): print(sum(batch.num_rows for batch in part.read()))
report: ds.ScanReport | None = scan.report
plan: ds.ScanPlan = scan.plan()
own_batches: ds.Batches = scan.to_batches()
dataset: ds.SharedDataset = scan.to_dataset()
asynchronous: ds.AsyncBatches = scan.to_batches_async()
changed: list[ds.VersionChanges] = table.history()
protocol: ds.Protocol = table.protocol()
column: ds.ColumnBuilder = ds.col("a")
name: ds.AssetName = table.name

for step in table.follow("cursor", trigger="available-now"): step.commit()
steps: ds.Follow = table.follow(path, starting_version="latest", every=10)


async def read() -> AsyncIterator[int]:
    async with scan.to_batches_async() as opened:
        async for batch in opened:
            yield batch.num_rows
    async for step in steps:
        yield step.number
    whole: pa.Table = await scan.to_arrow_async()
    yield whole.num_rows + await scan.count_async()
    for listed in await client.list_all_tables_async():
        yield len(listed.name)

copied: ds.Replica = table.replicate(path, retention=None); table.replicate("copy", columns=["a"], version=3)
loaded: pd.DataFrame = ds.load_as_pandas("my.share#s.s.t", limit=1, filter=pl.col("a") > 1)
ds.load_as_arrow(table); ds.load_as_polars(client.list_all_tables()[0]); ds.scan_polars(path.as_posix() + "#s.s.t")

for file in client.volume("s.s.v").files("a", "*.pdf"): print(file.path, file.size)
volume: ds.Volume = client.volume("s.s.v"); volume.download(path, pattern="*.csv").downloaded; volume.open("a").read()
version: ds.ModelVersion = client.model("s.s.m").version(3); skill: ds.Skill = client.skill("s.s.k")
for share in client: print(client[share])
try: table.version()
except ds.OutOfMemoryError as error: print(error.table)
except (ds.DataError, ds.UsageError) as error: print(error.file_id)
"""


def enum_values() -> Iterator[str]:
    """Yield a line for each value of each option that is an enum: as text, in capitals, and as a member."""
    yield "import delta_sharing_client as ds"
    for name, kind in options._CHOICES.items():
        for member in kind:
            for value in (repr(member.value), repr(member.value.upper()), f"ds.{kind.__name__}.{member.name}"):
                yield f"ds.ReadOptions({name}={value})"


# Each line is wrong. A filter may be anything for a type checker, because one kind of filter is pyarrow's.
WRONG = """import delta_sharing_client as ds
ds.ReadOptions(table_format=1)
ds.ReadOptions(unknown=1)
ds.SharingClient("p").table("t").scan(limit="5")
ds.SharingClient("p").table("t").scan().nonsense()
ds.no_such_name
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The errors by program. One run, because reading the types of pandas and Polars takes most of its time."""
    pytest.importorskip("mypy", reason="scripts/versions makes environments without it")
    folder = tmp_path_factory.mktemp("programs")
    programs = {"accepted": ACCEPTED, "enums": "\n".join(enum_values()), "wrong": WRONG}
    for example in examples():
        if example.kind in ("here", "spark"):
            programs[re.sub(r"[^a-z0-9]", "_", str(example))] = example.source
    for name, source in programs.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    found: dict[str, list[str]] = {name: [] for name in programs}
    for line in type_errors(folder):
        found[line.partition(".py:")[0]].append(line)
    return found


def test_examples_and_accepted_values_are_typed(errors: dict[str, list[str]]) -> None:
    right = [line for name, lines in errors.items() for line in lines if name != "wrong"]
    assert [line for line in right if not PREDEFINED.search(line)] == []


def test_types_that_are_not_accepted_are_errors(errors: dict[str, list[str]]) -> None:
    """Otherwise the test above could not fail."""
    assert {int(line.split(":")[1]) for line in errors["wrong"]} == set(range(2, len(WRONG.splitlines()) + 1))


def public_parameters() -> Iterator[tuple[str, inspect.Parameter]]:
    for name in ds.__all__:
        thing = getattr(ds, name)
        calls = [thing] if inspect.isfunction(thing) else []
        if inspect.isclass(thing) and not issubclass(thing, enum.Enum):
            calls = [
                each for _, each in inspect.getmembers(thing, inspect.isfunction) if not each.__name__.startswith("_")
            ]
        for call in calls:
            for parameter in inspect.signature(call).parameters.values():
                yield f"{call.__module__}.{call.__qualname__}", parameter


ENUMS = [name for name, kind in vars(options).items() if inspect.isclass(kind) and issubclass(kind, enum.Enum)]


def test_every_parameter_of_an_enum_accepts_text() -> None:
    kinds = "|".join(ENUMS)
    found = {
        (call, parameter.name): str(parameter.annotation)
        for call, parameter in public_parameters()
        if re.search(rf"\b({kinds})\b", str(parameter.annotation))
    }

    assert len(found) >= 7
    assert {place for place, annotation in found.items() if "str" not in annotation} == set()


@pytest.mark.parametrize("name", ENUMS)
def test_every_enum_of_an_option_is_public(name: str) -> None:
    assert getattr(ds, name) is getattr(importlib.import_module("delta_sharing_client.options"), name)


@pytest.mark.parametrize("name", options._CHOICES)
@pytest.mark.parametrize("value", [5, b"auto", True, ["auto"], None], ids=repr)
def test_value_that_is_neither_text_nor_member_is_refused(name: str, value: Any) -> None:
    if (name, value) == ("file_id_hash", None):
        assert ds.ReadOptions(**{name: value}).file_id_hash is None
        return
    with pytest.raises(ds.UsageError, match=rf"'{name}' must be one of '.*', found {re.escape(repr(value))}\."):
        ds.ReadOptions(**{name: value})
