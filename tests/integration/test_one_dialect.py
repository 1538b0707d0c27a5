"""A text means the same condition wherever it is accepted: a filter in Python, on the command line and in the page, a
condition of an assistant's tools, and SQL. DuckDB, which reads the same rows from a Parquet file, is the reference for
SQL; it knows nothing of this package. Ways to read a table besides these share the parser of ``filter``."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import duckdb
import pytest

import delta_sharing_client as ds
from tests.dialect import ROWS, Paths, opened

ROOT = pathlib.Path(__file__).parents[2]
# One condition a line.
SAME = r"""
f32 < 1e-1
dec / 3e0 > 0.4
NOT flag = TRUE
NOT flag IS NULL
flag AND NOT flag OR i32 = 1
i32 = 1 OR i32 = 7 AND flag
flag IS NOT TRUE
NOT flag IS TRUE
i32 * 2 % 3 = 1
i32 % 3 * 2 = 2
i32 / 2 * 2 = 1
i32 >= 1 -- comment
/* a /* b */ c */ i32 = 1
i32 /* a /* b */ = 1 -- */ = 7
i32 = 1 /* ' */ OR text = 'a' /* ' */
i32 = 1 -- '
text = 'a' -- x
text = 'it''s'
text = ''
text LIKE '100!%' ESCAPE '!'
text NOT LIKE '%a%'
length(text) > i8
day(ts) = 31
date(ts) = day
day + INTERVAL 1 DAY = '2024-02-01'
day + INTERVAL '1 day' = '2024-02-01'
day + INTERVAL '1' MONTH = '2024-02-29'
ts + INTERVAL 1 MONTH = '2024-02-29 05:00:00'
ts + INTERVAL '1.5' SECOND > '2024-01-31 05:00:01'
ts + INTERVAL '90 minutes' > '2024-01-31 06:00:00'
ts + INTERVAL 1 WEEK > '2024-02-07'
ts + -INTERVAL 1 DAY < '2024-01-31'
ts + INTERVAL 1 MICROSECOND > '2024-01-31 05:00:00'
day + INTERVAL 5 HOUR = ts
ts > now() - INTERVAL 10 YEAR
day < current_date
day > CAST('2024-01-01' AS DATE)
day > '2024-01-01'::date
ts = '2024-01-31T05:00:00Z'
ts = '2024-01-31 06:00:00 Europe/Berlin'
ts = TIMESTAMP '2024-01-31 05:00:00 UTC'
ts = '2024-01-31 07:00:00+02'
ts BETWEEN '2024-01-01' AND '2024-02-01'
coalesce(i8, 300) = 300
coalesce(ts, '2024-01-31') = '2024-01-31'
coalesce(dec, 0.005) = 0.005
i32 ISNULL
i32 NOTNULL
i32 IS UNKNOWN
flag IS UNKNOWN
i32 IS DISTINCT FROM NULL
flag
s.x > 0.5
s IS NULL
s IS NOT NULL
`back``tick` = 'x'
i64 = 9007199254740993
i64 = 9007199254740993.0
i64 < 9007199254740993.5
i64 = f64
f64 = 9007199254740993
f64 < CAST('NaN' AS DOUBLE)
f64 = -0.0
f64 * 0 = 0
dec = 2.5e0
-dec > 2
CAST(day AS STRING) = '2024-01-31'
i32::bigint = 7
CAST(i32 AS DECIMAL(10,2)) = 7
bin = X'61'
bin IN (X'61', X'00')
'a' < text
NOT (i32 = 7 AND NOT flag)
NOT (i32 = 7 OR text IS NULL)
text IN ('a', 'it''s')
NOT i32 BETWEEN NULL AND 0
(((i32 = 7)))
f32 > i16
CAST(f32 AS DOUBLE) > i32
f32 = CAST('NaN' AS DOUBLE)
f32 <> 1.5
f64 <> CAST('NaN' AS DOUBLE)
NOT f64 <= 2.5
f64 IS DISTINCT FROM CAST('NaN' AS DOUBLE)
f64 NOT IN (0, 2.5)
f64 = f32
CAST(dec AS DECIMAL(10)) = 3
CAST(dec AS DECIMAL(10, 0)) < dec
CAST(dec AS DECIMAL(10, 1)) = 1.3
CAST(i32 AS DECIMAL(12, 2)) = 7.00
CAST(i64 AS DOUBLE) = 9007199254740992
CAST(i8 AS STRING) LIKE '1%'
lower(UPPER) = 'de'
upper = 'DE'
`UPPER` = 'DE'
UPPER ILIKE 'd_'
`a space` = 1
`A SPACE` = 1
`dot.ted` = 'x'
`dou"ble` = 'x'
größe = 5
`größe` = 5
`select` = 1
s.x IS NULL
s.X = 5
`s`.`x` = 5
s.`y.z` = 'DE'
s.Deep.in = '2024-01-31'
s.deep.`in` = '2024-01-31'
s.deep IS NULL
tags IS NULL
tags IS NOT NULL
m IS NULL
bin <> X''
bin = X'fffe'
bin BETWEEN X'00' AND X'61'
p_int = 10
p_int IS NULL
p_int + 1 = 11
p_int IN (10, NULL)
p_text = 'it''s/b=%25'
p_text LIKE '%!%25' ESCAPE '!'
p_text IS NOT DISTINCT FROM NULL
p_day = '1969-12-31'
p_day >= DATE '1970-01-01'
year(p_day) = 2024
p_day + INTERVAL 1 DAY = '2024-03-01'
p_day = day
p_day < ts
p_int = i32 OR p_day = day
huge = -9223372036854775808
huge = 9223372036854775807
huge = 9223372036854775807.0
i8 > -128.5
i16 = i8
i64 > i32 AND i64 < huge
wide > 1234567890123456789012345678.4
day = '0001-01-01'
day BETWEEN '1969-12-31' AND '2024-01-31'
day IN (DATE '2024-02-29', NULL)
ts = '1582-10-04 01:00:00'
ts = '2024-03-10 02:30:00.000001'
ts = '2024-03-10T02:30:00.000001Z'
ntz BETWEEN DATE '2024-01-31' AND TIMESTAMP '2024-01-31 05:00:00'
date(ntz) = '2024-01-31'
ntz + INTERVAL 1 MONTH > '2024-02-29 04:00:00'
flag IS NULL OR flag
flag = FALSE AND i32 = 7
NOT (flag OR i32 = 7)
flag IS NOT DISTINCT FROM NULL
(i32 = 7 OR NULL) AND flag
coalesce(flag, TRUE)
coalesce(i32, i16, 5) = 7
coalesce(text, UPPER, 'x') = 'DE'
coalesce(day, p_day) > '2000-01-01'
length(text) > 2 AND text < 'b'
text > ''
text LIKE '%!%' ESCAPE '!'
text LIKE 'a_b'
text LIKE 'a!_b' ESCAPE '!'
text = 'DE' /* comment 'it */ AND i32 = 2
text = 'DE' -- AND i32 = 100
Text Like 'D%'
text = UPPER
text <> UPPER
text = 'it''s' OR text = 'say "x"'
id < 9 AND i32 * 2 = 14
i16 % 4 = -1
dec * 2 = 5
f64 - f64 = 0
10 > i16
i32 = 1 OR i32 = 2 OR i32 = 7 AND flag
(i32 = 1 OR i32 = 2) AND NOT flag
i32 = (7)
i32 = 700e-2
i32 BETWEEN 0.5 AND 7.5
now() > ts
current_date() >= day
text = 'a--b'
NULL
TRUE
1 = 1
i32 NOT IN (1, NULL)
p_int <> 10
huge > 9223372036854775807
"""
# DuckDB refuses these, or fails on a row.
ONLY_FILTERS = r"""
f32 = float('0.1')
f32 = 1.5F
!flag
startswith(text, 'a')
length(bin) = 1
to_date(ts) = day
ts + INTERVAL -1 DAY < '2024-01-31'
ts + INTERVAL 1 DAY 2 HOURS > ts
date_sub(day, 7) > day
add_months(day, 1) > day
ntz = TIMESTAMP_NTZ '2024-01-31 05:00:00'
nvl(i32, 0) = 0
isnull(i32)
i32 <=> 1
dec * dec > 2
wide > 0.00000000001
i32 = 7L
text = r'a\b'
text = "a"
f64 = 2.5 AND int(f64) = 2
dec < 100 AND int(dec) = 2
text = '2024-01-31' AND timestamp(text) = ts
dot.ted = 'x'
s.y.z = 'DE'
text = "it's"
i16 - 1 < i8
"""
ONLY_SQL = r"""
CAST(0.1 AS FLOAT) = f32
f32 NOT IN (CAST('-inf' AS FLOAT), 16777217)
i32 = CAST(16777216 AS FLOAT)
f32 / f32 = 1
f32 % f32 = 0
i32 / i16 < 0.3
i32 = 1 IS NULL
i32 BETWEEN 1 AND 5 = TRUE
i32 IN (1, 7) IS TRUE
flag <> TRUE IS NULL
text LIKE '%%%' ESCAPE '%'
text LIKE '!a' ESCAPE '!'
text ILIKE '%X%%' ESCAPE 'X'
text ~ 'a'
text SIMILAR TO 'a'
contains(text, 'a')
ts = ntz
ts < ntz
day + INTERVAL 5 HOUR = ntz
ts - ts = INTERVAL 0 DAY
day > '2024-01-01 00:00:00'
day = '2024-01-31 05:00:00'
ts = TIMESTAMP '2024-01-31 05:00:00.0000001'
ts >= '2024-01-31 05:00:00.0000009'
ts = TIMESTAMP '2024-01-31 06:00:00 Europe/Berlin'
ts = TIMESTAMPTZ '2024-01-31 07:00:00+02:00'
ts = CAST('2024-01-31 07:00:00+02:00' AS TIMESTAMP)
ntz = '2024-01-31 07:00:00+02:00'
ntz = TIMESTAMP '2024-01-31 05:00:00Z'
1
'true'
flag = 'true'
flag = 1
i32 = TRUE
i32 = '7'
"s"."x" = 5
s['x'] = 5
(s).x = 5
"back`tick" = 'x'
f64 >= 'NaN'
f64 IN (0, 'NaN')
wide + 1 > 0
wide * 2 > 0
i32 IN ('1', '7')
i32 IN ()
i32 IN (SELECT 1)
(i32, i64) IN ((1,2))
i32 // 2 = 3
i32 & 1 = 1
i32 | 1 = 1
i32 ^ 2 = 49
~i32 = -8
text || 'x' = 'ax'
abs(i32) = 7
round(f64) = 3
TRY_CAST(text AS INT) = 12
CAST(1.5 AS DECIMAL) = 1.5
CAST(1.5 AS INT) = i32
CAST(TRUE AS INT) = i32
CAST(X'61' AS STRING) = text
CAST('a' AS BINARY) = bin
bin = '\x61'
bin = 'a'
CASE WHEN flag THEN TRUE ELSE FALSE END
if(flag, TRUE, FALSE)
i32 = 1_0
text COLLATE NOCASE = 'A'
text = 'a\nb'
text = 'a\\b'
text = 'a\b'
text LIKE '100\%'
text LIKE '%\%'
text LIKE '%\\%'
text = E'a\\b'
text = N'a'
text = $$a$$
text GLOB 'a*'
i32=7AND flag
f32 = 0.1
f32 IN (0.1, 2)
f32 = 16777217
f32 > i32
f32 = dec
f32 + 1 > 2
coalesce(f32, 0) = 0
CAST(dec AS BIGINT) > 2
dec::int = 2
CAST(dec AS DECIMAL) = 3
text = '2024-01-31' AND CAST(text AS TIMESTAMP) = ts
"UPPER" = 'DE'
"a space" = 1
"dot.ted" = 'x'
"dou""ble" = 'x'
"select" = 1
s."y.z" = 'DE'
s.deep."in" IS NOT NULL
tags[0] = 'a'
m['a'] = 1
huge + 1 > 0
(i32 = 7 AND NULL) IS NULL
i16 / 0 > 1
-i16 > 0
i16 * 1000000 > 0
dec / 2 = 1.25
dec % 2 = 0.5
"""
NOWHERE = r"""
flag = flag = flag
flag = i32 > 1
i32 > = 1
text = 'it' 's'
date(text) = day
ts + INTERVAL '1-2' YEAR TO MONTH > ts
text = 7
text = i32
text = day
text = DATE '2024-01-31'
text < DATE '2024-01-31'
s = 5
i8 + i8 > 100
i16 * i16 > 0
i32 = ANY(1,2)
i32 DIV 2 = 3
i32 << 1 = 14
CAST(text AS INT) = 12
i32 = :x
i32 = 0x7
i32 = --7
i32 = 1 AND
i32 = 7 XOR flag
CAST(f64 AS INT) = 2
text <> 'x' AND CAST(text AS INT) = 12
tags = 'a'
bin = X'6'
day = '31.01.2024'
day = 20240131
i16 % 0 = 1
"""


def lines(text: str) -> list[str]:
    return text.strip("\n").split("\n")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paths]:
    with opened(tmp_path_factory.mktemp("dialect")) as found:
        yield found


def test_condition_selects_the_same_rows_on_every_path(paths: Paths) -> None:
    texts = lines(SAME)
    expected = {text: paths.oracle(text) for text in texts}
    by_sql = paths.by_queries(texts)
    for number, text in enumerate(texts):
        assert isinstance(expected[text], frozenset), (text, expected[text])
        found = {name: path(text) for name, path in paths.filters.items()} | by_sql[text]
        assert found == dict.fromkeys(found, expected[text]), text
        if number % 8 == 0:
            assert paths.explain(text)["files"] or not expected[text], text
    sizes = [len(ids) for ids in expected.values()]
    assert sum(0 < size < len(ROWS) for size in sizes) > 150


def test_filter_that_sql_refuses_means_one_thing(paths: Paths) -> None:
    for text in lines(ONLY_FILTERS):
        first, *others = [path(text) for path in paths.filters.values()]
        assert isinstance(first, frozenset), (text, first)
        assert others == [first] * len(others), text
        assert isinstance(paths.oracle(text), str), text
        assert all(isinstance(path(text), str) for path in paths.queries.values()), text
        _check_explain(paths, text)


def test_filter_refuses_what_means_more_in_sql(paths: Paths) -> None:
    by_sql = paths.by_queries(lines(ONLY_SQL))
    for text, found in by_sql.items():
        expected = paths.oracle(text)
        assert isinstance(expected, frozenset), (text, expected)
        assert found == dict.fromkeys(paths.queries, expected), text
        refusals = [path(text) for path in paths.filters.values()]
        assert all(isinstance(refusal, str) for refusal in refusals), (text, refusals)


def test_text_is_refused_on_every_path(paths: Paths) -> None:
    for text in lines(NOWHERE):
        found = {"plain": paths.oracle(text)} | {name: path(text) for name, path in paths.all.items()}
        assert all(isinstance(refusal, str) for refusal in found.values()), (text, found)
        _check_explain(paths, text)


def _check_explain(paths: Paths, text: str) -> None:
    """Explain refuses what DuckDB refuses before it reads a row."""
    try:
        paths.plain.execute(f"EXPLAIN SELECT id FROM plain WHERE {text}\n")
    except duckdb.Error:
        with pytest.raises(ds.DeltaSharingError):
            paths.explain(text)


@pytest.mark.parametrize("text", ["upper(text) = 'STRASSE'", "text ILIKE '%İ%'", "lower(text) = 'ας'"])
def test_only_the_case_of_a_few_characters_differs(paths: Paths, text: str) -> None:
    by_filter, by_sql = (path(text) for path in (paths.filters["filter"], paths.queries["sql"]))
    assert isinstance(by_filter, frozenset)
    assert isinstance(by_sql, frozenset)
    assert by_filter != by_sql
    assert "only difference" in (ROOT / "docs" / "filters.md").read_text(encoding="utf-8")
