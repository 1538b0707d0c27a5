"""A table with a column of every type, and every way to give it a condition as text."""

from __future__ import annotations

import contextlib
import datetime
import io
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import delta_sharing_client as ds
import mock_server
from delta_sharing_client import queries
from delta_sharing_client.browse.page import running
from delta_sharing_client.cli import main
from delta_sharing_client.mcp.limits import Limits
from delta_sharing_client.mcp.tools import Tools
from tests.tables import TableWriter
from tests.visitor import Visitor

TABLE = "share.shop.odd"
UTC = datetime.timezone.utc
_NAN, _INF = float("nan"), float("inf")
_DATES = [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2024, 1, 31), datetime.date(2024, 2, 29)]
_CLOCKS = [
    datetime.datetime(1582, 10, 4, 1),
    datetime.datetime(2024, 1, 31),
    datetime.datetime(2024, 1, 31, 5),
    datetime.datetime(2024, 3, 10, 2, 30, 0, 1),
]
_TEXTS = [
    "",
    "a",
    "A",
    "DE",
    "it's",
    'say "x"',
    "Ünï",
    "\U0001f600",
    "100%",
    "Straße",
    "ΑΣ",
    "a_b",
    "a\\b",
    "a\nb",
    "12",
    "2024-01-31",
]
# For each column its type and its values, which recur; the numbers of values have few common divisors.
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 100, 127, None]),
    "i16": (pa.int16(), [-32768, -5, 0, 7, 300]),
    "i32": (pa.int32(), [-7, 0, 1, 2, 7, 300, 16777217, None]),
    "i64": (pa.int64(), [-(2**53) - 1, 0, 3, 7, 2**53, 2**53 + 1, None]),
    "huge": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "f32": (pa.float32(), [_NAN, -0.0, 0.1, 1.5, 2.5, 16777216.0, -_INF, _INF, None]),
    "f64": (pa.float64(), [_NAN, -0.0, 0.1, 2.5, -2.5, _INF, -_INF, 9007199254740992.0, 1e-300, 3.0, None]),
    "dec": (pa.decimal128(10, 2), [Decimal(v) for v in ("-99999999.99", "0", "1.25", "2.50", "-2.50", "7")] + [None]),
    "wide": (pa.decimal128(38, 10), [Decimal(v) for v in ("1E-10", "0", "-1.5", "1234567890123456789012345678.5")]),
    "text": (pa.string(), [*_TEXTS, None]),
    "bin": (pa.binary(), [b"", b"\x00", b"a", b"\\x61", b"\xff\xfe", None]),
    "flag": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [*_DATES, None]),
    "ts": (pa.timestamp("us", "UTC"), [*(clock.replace(tzinfo=UTC) for clock in _CLOCKS), None]),
    "ntz": (pa.timestamp("us"), [*reversed(_CLOCKS), None]),
    "s": (
        pa.struct([("x", pa.int32()), ("y.z", pa.string()), ("Deep", pa.struct([("in", pa.date32())]))]),
        [
            None,
            {"x": 5, "y.z": "b", "Deep": {"in": _DATES[2]}},
            {"x": None, "y.z": None, "Deep": None},
            {"x": 0, "y.z": "DE", "Deep": {"in": None}},
        ],
    ),
    "tags": (pa.list_(pa.string()), [["a", None], [], None]),
    "m": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [], None]),
    "UPPER": (pa.string(), ["DE", "de", None]),
    "a space": (pa.int32(), [1, 2, None]),
    "dot.ted": (pa.string(), ["x", "y"]),
    "back`tick": (pa.string(), ["x", "", None]),
    'dou"ble': (pa.string(), ["x", "z"]),
    "größe": (pa.int32(), [1, 5]),
    "select": (pa.int32(), [1, None]),
    "p_int": (pa.int32(), [10, None]),
    "p_text": (pa.string(), ["it's/b=%25", None]),
    "p_day": (pa.date32(), [_DATES[1], _DATES[3]]),
}
PARTITIONS = ("p_int", "p_text", "p_day")
ROWS = [
    {"id": number, **{name: values[number % len(values)] for name, (_, values) in COLUMNS.items()}}
    for number in range(99)  # one page of the page
]


def _schema(*, is_mapped: bool) -> pa.Schema:
    ids = itertools.count(1)

    def field(name: str, data_type: pa.DataType) -> pa.Field:
        if pa.types.is_struct(data_type):
            data_type = pa.struct([field(one.name, one.type) for one in data_type])
        number = next(ids)
        physical = name if name in PARTITIONS or name in ("x", "y.z", "Deep", "in") else f"col-{number}"
        mapping = {"delta.columnMapping.id": str(number), "delta.columnMapping.physicalName": json.dumps(physical)}
        return pa.field(name, data_type, metadata=mapping if is_mapped else None)

    return pa.schema([field("id", pa.int64()), *(field(name, kind) for name, (kind, _) in COLUMNS.items())])


def write(path: pathlib.Path) -> None:
    """Write the rows as a Delta table with column mapping, one file for each combination of partition values."""
    schema = _schema(is_mapped=True)
    writer = TableWriter(
        path,
        schema,
        partition_by=PARTITIONS,
        properties={"delta.columnMapping.mode": "name"},
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
    )
    parts: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for row in ROWS:
        parts.setdefault(tuple(row[name] for name in PARTITIONS), []).append(row)
    writer.insert(*(writer.file(rows, row_group_size=25) for rows in parts.values()))


Verdict = frozenset[int] | str
"""The ids of the rows for which a condition holds, or the error."""


class Refused(Exception):
    """The command line or the page refused a condition."""


Path = Callable[[str], Verdict]


@dataclass
class Paths:
    """Every path of a condition. ``filters`` take the text of a filter, ``queries`` have it in SQL after WHERE."""

    filters: dict[str, Path]
    queries: dict[str, Path]
    explain: Callable[[str], dict[str, Any]]
    plain: duckdb.DuckDBPyConnection
    run: dict[str, Callable[[str], list[Any]]]
    """Returns the rows of a query over the shared table, for each of ``queries``."""

    @property
    def all(self) -> dict[str, Path]:
        return self.filters | self.queries

    def oracle(self, text: str) -> Verdict:
        """Return what DuckDB says of the same rows in a Parquet file, read by itself."""
        return _verdict(lambda text: [row[0] for row in self.plain.execute(_query("plain", text)).fetchall()])(text)

    def by_queries(self, texts: list[str]) -> dict[str, dict[str, Verdict]]:
        """Return what each of ``queries`` says of each text, of which none may be refused, in few queries."""
        found: dict[str, dict[str, Verdict]] = {text: {} for text in texts}
        for name, run in self.run.items():
            for some in (texts[start : start + 50] for start in range(0, len(texts), 50)):
                branches = [
                    f"SELECT {number}, string_agg(id, ' ') FROM {TABLE} WHERE {text.rstrip(';')}\n"
                    for number, text in enumerate(some)
                ]
                for number, ids in run("UNION ALL ".join(branches)):
                    found[some[number]][name] = frozenset(map(int, (ids or "").split()))
        return found


def _query(table: str, text: str) -> str:
    return f"SELECT id FROM {table} WHERE {text}\n"


def _verdict(path: Callable[[str], list[int]]) -> Path:
    def verdict(text: str) -> Verdict:
        try:
            ids = path(text)
        except (ds.DeltaSharingError, duckdb.Error, pl.exceptions.PolarsError, Refused) as error:
            return str(error) or type(error).__name__
        assert len(ids) == len(set(ids)), "a row is returned twice"
        return frozenset(ids)

    return verdict


@contextlib.contextmanager
def opened(folder: pathlib.Path) -> Iterator[Paths]:
    """Serve the table and yield the paths to it."""
    write(folder / "odd")
    pq.write_table(pa.Table.from_pylist(ROWS, _schema(is_mapped=False)), folder / "plain.parquet")
    plain = queries.connect()
    plain.execute(f"CREATE VIEW plain AS SELECT * FROM '{folder / 'plain.parquet'}'")
    with (
        mock_server.running(tables={TABLE: folder / "odd"}) as server,
        ds.SharingClient(server.profile_path) as client,
        running(str(server.profile_path)) as page,
    ):
        tools, visitor = Tools(client, Limits()), Visitor(page.address)
        table = client.table(TABLE)

        def by_tool(query: str) -> list[Any]:
            result: Any = tools.query(query)
            assert "cut" not in result
            return list(result["rows"])

        run = {"sql": lambda query: queries.relation(client, query).fetchall(), "query": by_tool}
        lists: dict[str, Callable[[str], list[int]]] = {
            "filter": lambda text: table.scan(["id"], text).to_arrow()["id"].to_pylist(),
            "lazy": lambda text: (
                ds.scan_polars(f"{server.profile_path}#{TABLE}", filter=text).select("id").collect()["id"].to_list()
            ),
            "command line": lambda text: _by_command(server.profile_path, text),
            "page": lambda text: _by_page(visitor, text),
        }
        yield Paths(
            filters={name: _verdict(path) for name, path in lists.items()},
            queries={name: _verdict(partial(_ids, query)) for name, query in run.items()},
            explain=lambda text: tools.explain(TABLE, ["id"], text),
            plain=plain,
            run=run,
        )


def _ids(run: Callable[[str], list[Any]], text: str) -> list[int]:
    return [row[0] for row in run(_query(TABLE, text))]


def _by_command(profile: pathlib.Path, text: str) -> list[int]:
    printed, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    arguments = ("head", TABLE, "-p", str(profile), "-n", "1000", "--columns", "id", "--json", f"--filter={text}")
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        code = main(arguments)
    if code:
        raise Refused(errors.getvalue())
    printed.flush()
    return [json.loads(line)["id"] for line in printed.buffer.getvalue().splitlines()]


def _by_page(visitor: Visitor, text: str) -> list[int]:
    response = visitor.answer("plan", {"name": TABLE.split("."), "columns": ["id"], "filter": text})
    if response.status_code == 200:
        response = visitor.answer("preview", {"plan": response.json()["plan"]})
    if response.status_code != 200:
        raise Refused(response.json()["error"])
    assert not response.json()["isMore"]
    return [int(row[0]) for row in response.json()["rows"]]
