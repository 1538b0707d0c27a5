"""The data source of ``pyspark_delta_sharing`` under the name ``delta_sharing``.

Where the JVM connector's jar is on the class path, the name ``deltaSharing`` is its own.
"""

from __future__ import annotations

from pyspark_delta_sharing import DefaultSource as _DeltaSharing

__all__ = ["DefaultSource"]


class DefaultSource(_DeltaSharing):
    """The data source ``delta_sharing``."""

    @classmethod
    def name(cls) -> str:
        return "delta_sharing"
