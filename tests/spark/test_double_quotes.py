"""Spark's option ``filter`` refuses the name of a column in double quotes."""

from __future__ import annotations

from typing import Any

import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.spark.datasource import DeltaSharingSource


@pytest.mark.parametrize("text", ["\"country\" = 'DE'", 'country = "COUNTRY"', "country IN ('DE', \"status\")"])
@pytest.mark.parametrize("kind", [{}, {"readChangeFeed": "true", "startingVersion": "1"}])
def test_option_filter_refuses_a_name_in_double_quotes(serve_demo: Any, kind: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match="in backticks"):
        DeltaSharingSource({"path": f"{serve_demo.profile_path}#demo.shop.orders", "filter": text, **kind}).schema()


@pytest.mark.spark
def test_spark_reads_double_quotes_of_a_condition_as_a_string(spark: Any, serve_demo: Any) -> None:
    frame = spark.read.format("deltaSharing").load(f"{serve_demo.profile_path}#demo.shop.orders")
    assert frame.where('country = "DE"').count() == frame.where("country = 'DE'").count() > 0
