"""The two kinds of Spark sessions: a classic session uses a JVM of this process, a Spark Connect session uses a
server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def context_of(session: SparkSession) -> Any:
    """Return the ``SparkContext`` of a classic session; ``None`` for a session of Spark Connect."""
    return getattr(session, "_sc", None)
