"""The Spark programs of the page's query box return the rows of DuckDB, translated or not."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client.browse.code import query_programs
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES

pytestmark = pytest.mark.spark

ORDERS, READINGS = "demo.shop.orders", "demo.weather.readings"
ZONE = "spark.sql.session.timeZone"
# What is written in DuckDB's SQL only, or has other rules in Spark: the order of nulls, division, the rows of FROM.
TRANSLATED = (
    f"SELECT * FROM {ORDERS} WHERE amount > 100 AND country = 'DE' ORDER BY order_id LIMIT 5;",
    f"FROM {ORDERS} SELECT country, count(*) AS n GROUP BY ALL ORDER BY country",
    f"SELECT country, round(sum(amount), 2) AS total FROM {ORDERS} GROUP BY country ORDER BY country DESC",
    f"SELECT order_id / 2 AS half, order_id // 2 AS whole, order_id % 2 AS rest FROM {ORDERS} ORDER BY 1 LIMIT 9",
    f"SELECT o.country, p.n FROM {ORDERS} o JOIN (SELECT country, count(*) AS n FROM {ORDERS} GROUP BY 1) p "
    "USING (country) ORDER BY o.order_id LIMIT 7",
    f"WITH days AS (SELECT station, day, avg(celsius) AS mean FROM {READINGS} GROUP BY ALL) "
    "SELECT station, count(*) AS n, min(day) AS since FROM days GROUP BY station ORDER BY station",
    f"SELECT * EXCLUDE (amount, ordered_at) FROM {ORDERS} ORDER BY order_id LIMIT 3",
    f'SELECT upper(country) AS "the country", country IS NULL AS no FROM {ORDERS} ORDER BY order_id LIMIT 30',
    f"SELECT order_id, rank() OVER (PARTITION BY country ORDER BY order_id) AS n FROM {ORDERS} ORDER BY 1 LIMIT 9",
    f"SELECT order_id, ordered_at FROM {ORDERS} WHERE ordered_at >= '2026-01-02' ORDER BY 2, 1 LIMIT 4",
    f"SELECT CASE WHEN country IN ('DE', 'FR') THEN 'EU' ELSE 'other' END AS area, max(amount) AS most FROM {ORDERS} "
    "GROUP BY 1 ORDER BY 1",
)
RUN_BY_DUCKDB = (
    f"SELECT CAST(amount AS INTEGER) AS rounded FROM {ORDERS} ORDER BY order_id LIMIT 20",
    f"SELECT order_id FROM {ORDERS} QUALIFY row_number() OVER (PARTITION BY country ORDER BY order_id) = 1 ORDER BY 1",
)


@pytest.fixture
def in_utc(spark: Any) -> Iterator[None]:
    before = spark.conf.get(ZONE)
    yield
    spark.conf.set(ZONE, before)


def plain(rows: Any) -> list[tuple[object, ...]]:
    return [
        tuple(
            value.astimezone(datetime.timezone.utc) if isinstance(value, datetime.datetime) else value for value in row
        )
        for row in rows
    ]


@pytest.mark.skipif(not HAS_DATA_SOURCES, reason="PySpark 3.5 has no catalogs of shared tables")
@pytest.mark.usefixtures("in_utc")
def test_program_returns_the_rows_of_duckdb(
    spark: Any, serve_demo: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = str(serve_demo.profile_path)
    for query in (*TRANSLATED, *RUN_BY_DUCKDB):
        program = query_programs(profile, query)["Spark"]
        assert ("spark.sql(" in program) == (query in TRANSLATED), query
        # The session of all tests has another catalog with this name.
        names: dict[str, Any] = {}
        exec(program.replace('name="shared"', 'name="queried"').replace("shared.demo", "queried.demo"), names)
        relation = ds.sql(query, profile)
        assert names["frame"].columns == relation.columns
        assert plain(names["frame"].collect()) == plain(relation.fetchall()), query
    assert "order_id" in capsys.readouterr().out
