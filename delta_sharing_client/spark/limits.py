"""PySpark's admission control classes, which exist from 4.2 on; before, streams know no limits from the engine."""

from __future__ import annotations

from typing import Any

from delta_sharing_client.spark.admission import Budget

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.0 and 4.1

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for PySpark's class of this name."""

    HAS_LIMITS = False
else:
    HAS_LIMITS = True

Limit = Any
"""A ``ReadLimit`` of PySpark, or ``None`` where it has none."""

ALL: Budget | None = None


def default_limit(budget: Budget) -> Limit:
    """Return the limit that Spark hands back with each request: Spark carries one only, so it stands for all."""
    if not HAS_LIMITS:
        return None
    return ReadMaxBytes(budget.bytes) if budget.files is None and budget.bytes else ReadMaxFiles(budget.files or 1)


def is_unlimited(limit: Limit) -> bool:
    """Whether the trigger wants all that there is."""
    return HAS_LIMITS and isinstance(limit, ReadAllAvailable)


__all__ = ["ALL", "HAS_LIMITS", "Limit", "ReadLimit", "SupportsTriggerAvailableNow", "default_limit", "is_unlimited"]
