"""Spark's option ``filter`` refuses the name of a column in double quotes."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("text", ["\"country\" = 'DE'", 'country = "COUNTRY"', "country IN ('DE', \"status\")"])
def test_option_filter_refuses_a_name_in_double_quotes(spark: Any, serve_demo: Any, text: str) -> None:
    url = f"{serve_demo.profile_path}#demo.shop.orders"
    reader = spark.read.format("deltaSharing").option("filter", text)
    with pytest.raises(Exception, match="in backticks"):
        reader.load(url).count()
    with pytest.raises(Exception, match="in backticks"):
        reader.option("readChangeFeed", "true").option("startingVersion", "1").load(url).count()
    # Spark itself parses a condition of a query, and reads double quotes as a string.
    frame = spark.read.format("deltaSharing").load(url)
    assert frame.where('country = "DE"').count() == frame.where("country = 'DE'").count() > 0
