"""Random Spark SQL queries over two tables: joins, set operations, groups, windows, subqueries, limits.

``python -m tests.spark.plans [NUMBER [SEED]]`` runs that many (300 by default): see ``test_plans``.

Every relation has the columns ``id, k, p, d, t``, so that any two can be combined, and every result is
deterministic: limited rows are ordered by all columns, or counted. Names in braces stand for relations.
"""

from __future__ import annotations

import datetime
import random
import sys
from typing import Any, NamedTuple

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int32()),
        ("p", pa.string()),
        ("d", pa.float64()),
        ("t", pa.string()),
        ("day", pa.date32()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("unused", pa.string()),
    ]
)
_ALL = "id, k, p, d, t"


class Plan(NamedTuple):
    """A query, and the query of the relation ``{kept}`` in it, which is cached if ``cached``."""

    kept: str
    cached: bool
    query: str


def rows(number: int, seed: int) -> list[dict[str, Any]]:
    """Return rows of ``SCHEMA``, some of which are equal in all columns that queries use."""
    draw = random.Random(seed)
    found: list[dict[str, Any]] = []
    for position in range(number):
        nested = {"x": draw.choice([None, 0, 1, 2]), "y": draw.choice(["a", "b", None])}
        row = {
            "id": position,
            "k": draw.choice([None, 0, 1, 2, 3, 2**31 - 1]),
            "p": f"p{position * 4 // number}",
            "d": draw.choice([None, float("nan"), 0.1, 1.0, -2.5, float("inf")]),
            "t": draw.choice([None, "", "a", "ab", "it's", "Ünï%_\\"]),
            "day": draw.choice([None, datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)]),
            "s": draw.choice([None, nested]),
            "unused": "x" * 100,
        }
        found.append({**row, "id": position - 1} if position % 7 == 6 else row)
    return found


def plans(number: int, seed: int) -> list[Plan]:
    """Return ``count`` plans; a larger count returns the same ones first."""
    draw = random.Random(seed)
    return [Plan(_relation(draw, 1, kept=False), draw.random() < 0.5, _relation(draw, 3)) for _ in range(number)]


def _relation(draw: random.Random, depth: int, *, kept: bool = True) -> str:
    """Return a query that returns the columns ``_ALL`` and nests queries at most ``depth`` levels deep."""

    def below() -> str:
        return _relation(draw, depth - 1, kept=kept)

    if depth == 0 or draw.random() < 0.1:
        return _leaf(draw, kept=kept)
    form = draw.choice(_FORMS)
    if form == "where":
        return f"SELECT * FROM ({below()}) WHERE {_condition(draw)}"
    if form == "set":
        kind = draw.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"])
        return f"({below()}) {kind} ({below()})"
    if form == "join":
        kind = draw.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        return f"SELECT a.id, b.k, a.p, b.d, b.t FROM ({below()}) a {kind} ({below()}) b ON {_key(draw)}"
    if form == "half":
        return f"SELECT a.* FROM ({below()}) a LEFT {draw.choice(['SEMI', 'ANTI'])} JOIN ({below()}) b ON {_key(draw)}"
    if form == "group":
        keys = draw.choice(["k", "p", "k, p"])
        of_rest = {name: f"{draw.choice(['min', 'max'])}({name}) AS {name}" for name in ("k", "p", "d", "t")}
        columns = ", ".join(name if name in keys.split(", ") else text for name, text in of_rest.items())
        number = draw.choice(["count(*)", "sum(id)", "count(DISTINCT t)", "count(d)"])
        having = draw.choice(["", " HAVING count(*) > 1"])
        return f"SELECT {number} AS id, {columns} FROM ({below()}) GROUP BY {keys}{having}"
    if form == "window":
        rank = draw.choice(["row_number()", "rank()", "lag(k) "])
        window = f"{rank} OVER (PARTITION BY {draw.choice(['p', 'k'])} ORDER BY {_ALL})"
        return f"SELECT id, CAST({window} AS int) AS k, p, d, t FROM ({below()})"
    if form == "ranked":
        ranked = f"SELECT *, row_number() OVER (PARTITION BY p ORDER BY {_ALL}) AS n FROM ({below()})"
        return f"SELECT {_ALL} FROM ({ranked}) WHERE n <= {draw.choice([1, 3])}"
    if form == "subquery":
        test = draw.choice(
            [
                "a.id > (SELECT min(id) + 3 FROM ({}))",
                "a.k IN (SELECT k FROM ({}))",
                "a.k NOT IN (SELECT k FROM ({}) WHERE k IS NOT NULL)",
                "EXISTS (SELECT 1 FROM ({}) b WHERE b.id = a.id AND b.t = a.t)",
                "NOT EXISTS (SELECT 1 FROM ({}) b WHERE b.k = a.k)",
                "a.id = (SELECT max(b.id) FROM ({}) b WHERE b.p = a.p)",
            ]
        )
        return f"SELECT * FROM ({below()}) a WHERE {test.replace('{}', below())}"
    if form == "limit":
        offset = draw.choice(["", " OFFSET 2"])
        return f"SELECT * FROM ({below()}) ORDER BY {_ALL} LIMIT {draw.choice([0, 1, 5, 1000])}{offset}"
    if form == "counted":
        limited = f"SELECT * FROM ({below()}) LIMIT {draw.choice([0, 1, 7, 30])}"
        return f"SELECT count(*) AS id, 0 AS k, '' AS p, 0D AS d, '' AS t FROM ({limited})"
    return f"SELECT DISTINCT * FROM ({below()})"


_FORMS = ["where", "set", "join", "half", "group", "window", "ranked", "subquery", "limit", "counted", "distinct"]


def _leaf(draw: random.Random, *, kept: bool) -> str:
    if kept and draw.random() < 0.3:
        return "SELECT * FROM {kept}"
    table = draw.choice(["{one}", "{one}", "{two}"])
    if draw.random() < 0.25:
        table = f"(SELECT * FROM {table} LIMIT 1000)"
    columns = draw.choice([_ALL, _ALL, "id, s.x AS k, p, d, s.y AS t", "id, k, p, 1D AS d, CAST(day AS string) AS t"])
    test = draw.choice(["", f" WHERE {_condition(draw)}", f" WHERE {_condition(draw)} AND {_of_tables(draw)}"])
    return f"SELECT {columns} FROM {table}{test}"


def _key(draw: random.Random) -> str:
    key = draw.choice(["a.id = b.id", "a.id = b.id AND a.p = b.p", "a.id = b.id AND a.k <=> b.k", "a.id = b.k"])
    return f"{key} AND a.d < b.d" if draw.random() < 0.15 else key


def _of_tables(draw: random.Random) -> str:
    return draw.choice(["day >= DATE'2000-01-01'", "s.x > 0", "s.y = 'a'", "s IS NOT NULL", "day IS NULL"])


def _condition(draw: random.Random) -> str:
    simple = [
        f"id {draw.choice(['<', '>=', '<>'])} {draw.randrange(40)}",
        f"k IN ({draw.randrange(4)}, {draw.randrange(4)}, NULL)",
        f"p {draw.choice(['=', '<=>', '>'])} 'p{draw.randrange(4)}'",
        f"d {draw.choice(['<', '>'])} 0.5",
        "d = DOUBLE('NaN')",
        f"t LIKE '{draw.choice(['a%', '%b', '%t%'])}'",
        f"t IS {draw.choice(['', 'NOT '])}NULL",
        "k - 1 > 0",
    ]
    first, second = draw.sample(simple, 2)
    return draw.choice([first, first, f"({first} OR {second})", f"NOT ({first} AND {second})"])


if __name__ == "__main__":
    import os

    import pytest

    os.environ["PLANS"] = sys.argv[1] if len(sys.argv) > 1 else "300"
    os.environ["PLANS_SEED"] = sys.argv[2] if len(sys.argv) > 2 else "4"
    sys.exit(pytest.main(["-n", "0", "-q", "-s", "tests/spark/test_plans.py", "--timeout", "7200"]))
