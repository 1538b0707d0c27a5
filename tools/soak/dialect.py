"""Random conditions as a filter and in DuckDB's SQL: the same rows, or refused by one.

The table has a column of every type (``tests/dialect.py``). Conditions compare columns with constants of every form and
with each other, compute and cast, and are combined by AND, OR and NOT. The reference is DuckDB, which reads a Parquet
file with the same rows.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path

from tests.dialect import COLUMNS, opened

HELP = "random conditions as a filter and in SQL"

_PLACES = [*COLUMNS, "s.x", "s.`y.z`", "s.Deep.in"]
_NUMBERS = ["i8", "i16", "i32", "i64", "huge", "f32", "f64", "dec", "wide", "p_int"]
_TIMES = ["day", "ts", "ntz", "p_day", "s.Deep.in"]
_CONSTANTS = [
    "0",
    "1",
    "-1",
    "7",
    "127",
    "300",
    "1.5",
    "2.50",
    "1.25",
    "0.1",
    "-0.0",
    "1e0",
    "2.5E0",
    ".5",
    "9007199254740993",
    "16777217",
    "-9223372036854775808",
    "1e-300",
    "NULL",
    "TRUE",
    "CAST('NaN'~AS~DOUBLE)",
    "CAST('-inf'~AS~FLOAT)",
    "CAST(1.25~AS~DECIMAL(3,1))",
    "CAST('0.1'~AS~FLOAT)",
    "''",
    "'a'",
    "'DE'",
    "'it''s'",
    "'Ü'",
    "'12'",
    "'1.5'",
    "'a\\b'",
    "'%'",
    "'2024-01-31'",
    "'2024-1-31'",
    "'2024-01'",
    "DATE'2024-02-29'",
    "'2024-01-31T05:00:00Z'",
    "X'61'",
    "X''",
    "'2024-01-31~07:00:00+02:00'",
    "TIMESTAMP'2024-01-31~05:00:00'",
    "TIMESTAMP'2024-01-31~05:00:00Z'",
    "'2024-01-31~05'",
    "'2024-03-10~02:30:00.000001'",
    "'2024-03-10~02:30:00.0000011'",
    "'0001-01-01'",
    "'9999-12-31'",
    '"DE"',
    "now()",
    "current_date()",
]
_TYPES = [
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(20,2)",
    "DECIMAL(10)",
    "DECIMAL(3,1)",
    "DECIMAL",
    "BOOLEAN",
    "STRING",
    "DATE",
    "TIMESTAMP",
]
_TESTS = (
    "{0} = {1}", "{0} <> {1}", "{0} < {1}", "{0} >= {1}", "{1} <= {0}", "{0} IN ({1}, {2})", "{0} NOT IN ({1}, {2})",
    "{0} BETWEEN {1} AND {2}", "{0} NOT BETWEEN {1} AND {2}", "{0} IS NULL", "{0} IS NOT NULL",
    "{0} IS DISTINCT FROM {1}", "{0} IS NOT DISTINCT FROM {1}", "coalesce({0}, {1}) = {2}", "{0} LIKE {1}",
    "{0} NOT LIKE {1}", "{0} ILIKE {1}", "{0} LIKE '%!%' ESCAPE '!'", "{0} IS TRUE", "{0}", "starts_with({0}, {1})",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--conditions", type=int, default=20_000)


def run(arguments: argparse.Namespace) -> int:
    draw, counts = random.Random(arguments.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as paths:
        for number in range(arguments.conditions):
            text = _condition(draw, depth=2)
            expected, found = paths.oracle(text), paths.filters["filter"](text)
            by_sql = paths.queries["sql"](text) if number % 20 == 0 else expected
            accepted = [ids for ids in (expected, found, by_sql) if isinstance(ids, frozenset)]
            counts["compared" if len(accepted) == 3 else "refused by one" if accepted else "refused"] += 1
            if any(ids != accepted[0] for ids in accepted):
                counts["different"] += 1
                print(f"{text}\n  SQL {_shown(expected)}, filter {_shown(found)}, ds.sql {_shown(by_sql)}", flush=True)
    print(dict(counts))
    return 1 if counts["different"] or not counts["compared"] else 0


def _shown(verdict: frozenset[int] | str) -> str:
    return verdict if isinstance(verdict, str) else f"{len(verdict)} rows {sorted(verdict)[:5]}"


def _condition(draw: random.Random, depth: int) -> str:
    if depth and draw.random() < 0.4:
        kind = draw.choice([" AND ", " OR ", "NOT "])
        parts = [_condition(draw, depth - 1) for _ in range(1 if kind == "NOT " else 2)]
        parts = [f"({part})" if draw.random() < 0.6 else part for part in parts]
        return kind + parts[0] if kind == "NOT " else kind.join(parts)
    operand = _operand(draw)
    others = [_operand(draw) if draw.random() < 0.15 else _constant(draw) for _ in range(2)]
    return draw.choice(_TESTS).format(operand, *others)


def _constant(draw: random.Random) -> str:
    return draw.choice(_CONSTANTS).replace("~", " ")


def _operand(draw: random.Random) -> str:
    form = draw.randrange(12)
    if form == 0:
        return f"{draw.choice(_NUMBERS)} {draw.choice('+-*/%')} {draw.choice([*_NUMBERS, '2', '1.5', '3E0', '-7'])}"
    if form == 1:
        return f"CAST({draw.choice(_PLACES)} AS {draw.choice(_TYPES)})"
    if form == 2:
        unit = draw.choice(["DAY", "MONTH", "HOUR", "YEAR", "SECOND", "WEEK"])
        return f"{draw.choice(_TIMES)} {draw.choice('+-')} INTERVAL '{draw.randrange(-3, 40)}' {unit}"
    if form == 3:
        return f"{draw.choice(['year', 'month', 'day', 'date'])}({draw.choice(_TIMES)})"
    if form == 4:
        return f"{draw.choice(['lower', 'upper', 'length'])}({draw.choice(['p_text', 'UPPER', 's.`y.z`'])})"
    name = draw.choice(_PLACES)
    is_plain = name.startswith("s.") or name.isidentifier()
    return name if is_plain else "`" + name.replace("`", "``") + "`"
