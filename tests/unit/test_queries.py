"""Errors of DuckDB are told without its words around them; queries are translated for Spark if they mean the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from delta_sharing_client import queries
from delta_sharing_client.errors import OutOfMemoryError, UsageError

CLIENT: Any = None


class Rows:
    """A reader whose rows are those of ``batches``."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Invalid Input Error: exporting a stream from the Arrow source failed: DataError: The file is short.", ""),
        (
            "Invalid Input Error: reading the Arrow source failed: Unknown error: The file is short.. Detail: Python "
            'exception: Traceback (most recent call last):\n  File "/x.py"\nx.DataError: The file is short.',
            "",
        ),
        (
            "Invalid Input Error: arrow_scan: get_next failed(): Invalid: The file is short.. Detail: Python exception:"
            ' Traceback (most recent call last):\n  File "/x.py", line 1, in read',
            "",
        ),
        ("DataError: The file is short.\n\nAt:\n  /a/limited_reads.py(90): take\n  /x.py(3): run\n", ""),
        ("Invalid Input Error: The hour is At: noon", "Invalid Input Error: The hour is At: noon"),
    ],
)
def test_error_of_a_read_has_no_words_around_it(text: str, told: str) -> None:
    with pytest.raises(UsageError) as raised, queries.errors_of(CLIENT):
        raise duckdb.InvalidInputException(text)
    assert raised.value.message == f"DuckDB cannot run the SQL. {told or 'The file is short.'}"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Conversion Error: no number", UsageError),
        ("Out of Memory Error: no block\nPossible solutions: * buy some", OutOfMemoryError),
    ],
)
def test_failure_after_the_first_rows_has_its_kind(
    text: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("a", pa.int64())])
    relation = duckdb.sql("SELECT 1 AS a")

    def fail() -> Any:
        yield from pa.table({"a": [1]}, schema).to_batches()
        raise OSError(text)

    monkeypatch.setattr(queries, "reader_of", lambda relation: contextlib.nullcontext(Rows(schema, fail())))
    taken: list[pa.RecordBatch] = []
    with pytest.raises(kind, match=text.partition("\n")[0]) as raised, queries.rows_of(CLIENT, relation) as reader:
        taken.extend(reader)
    assert "buy some" not in str(raised.value)


@pytest.mark.parametrize(
    ("query", "in_spark"),
    [
        ("SELECT a FROM s.d.t", "SELECT a FROM c.s.d.t"),
        ('SELECT x."a b" FROM "s-1".d.t x', "SELECT x.`a b` FROM c.`s-1`.d.t AS x"),
        ("FROM s.d.t", "SELECT * FROM c.s.d.t"),
        ("WITH w AS (FROM s.d.t) SELECT * FROM w", "WITH w AS ( SELECT * FROM c.s.d.t ) SELECT * FROM w"),
        ("SELECT a FROM s.d.t ORDER BY a", "SELECT a FROM c.s.d.t ORDER BY a NULLS LAST"),
        ("SELECT CAST(a AS DATE) FROM s.d.t", "SELECT CAST(a AS DATE) FROM c.s.d.t"),
        ("SELECT CAST(a AS INTEGER) FROM s.d.t", None),
        ("SELECT date_diff('month', a, b) FROM s.d.t", None),
        ("SELECT a FROM s.d.t WHERE b LIKE 'x\\_%'", None),
        ("SELECT a[1] FROM s.d.t", None),
        ("SELECT DISTINCT ON (a) b FROM s.d.t", None),
        ("SELECT a FROM s.d.t ASOF JOIN s.d.u USING (a)", None),
        ("SELECT a FROM s.d.t USING SAMPLE 10 ROWS", None),
        ("SELECT a FROM s.d.t, range(3)", None),
        ("SELECT list_cosine_similarity(a, b) FROM s.d.t", None),
        ("SELECT s.d.t.a FROM s.d.t", None),
        ("SELECT * FROM s.d.t QUALIFY row_number() OVER (PARTITION BY a) = 1", None),
        ("DESCRIBE s.d.t", None),
        ("SUMMARIZE s.d.t", None),
        ("SHOW TABLES", None),
    ],
)
def test_query_is_translated_only_where_it_means_the_same(query: str, in_spark: str | None) -> None:
    found = queries.in_spark(query, "c")
    assert (None if found is None else " ".join(found.split())) == in_spark


@pytest.mark.parametrize(
    "value",
    [
        "340282366920938463463374607431768211455::UHUGEINT",
        "'12:00:00+02'::TIMETZ",
        "'101'::BIT",
        "[{'a': '101'::BIT}]",
        "MAP {1: '12:00:00+02'::TIMETZ}",
        "[1::UHUGEINT]::UHUGEINT[1]",
    ],
)
def test_types_that_arrow_lacks_are_refused_by_column(value: str) -> None:
    relation = duckdb.sql(f"SELECT 1 AS a, {value} AS b")
    with pytest.raises(UsageError, match=r"The column 'b' has the type .*CAST"), queries.rows_of(CLIENT, relation):
        pass


def test_other_types_reach_arrow_with_their_values() -> None:
    values = (
        *("170141183460469231731687303715884105727::HUGEINT", "'x'::ENUM('x', 'y')", "[1, 2]::INTEGER[2]"),
        *(
            "MAP {'a': 1}",
            "{'a': 1, 'b': [1]}",
            "DATE '2024-02-29'",
            "TIMESTAMP '2024-01-01 00:00:00.123456'",
            "'x'::BLOB",
        ),
    )
    relation = duckdb.sql(f"SELECT {', '.join(f'{value} AS c{number}' for number, value in enumerate(values))}")
    with queries.rows_of(CLIENT, relation) as reader:
        (row,) = reader.read_all().to_pylist()
    (expected,) = relation.fetchall()
    found = [
        dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value
        for value in row.values()
    ]
    assert [found[0], *found[1:2], list(found[2]), *found[3:]] == [
        int(expected[0]),
        expected[1],
        list(expected[2]),
        *expected[3:],
    ]


def test_deeply_nested_sql_is_refused_in_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"cannot be parsed|too many levels"):
        queries.relation(CLIENT, f"SELECT {'(' * 5000}1{')' * 5000}", duckdb.connect())
