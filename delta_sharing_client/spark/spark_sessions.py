"""The two kinds of Spark sessions: classic ones have a JVM of this process, Spark Connect ones a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def context_of(session: SparkSession) -> Any:
    """Return the ``SparkContext`` of a classic session, ``None`` for one of Spark Connect."""
    return getattr(session, "_sc", None)
