"""Names and constants of predicates as SQL text, and column names back to paths."""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Iterable

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.values import Day, Moment, Value

ColumnPath = tuple[str, ...]


def quote_name(name: str) -> str:
    """Return ``name`` as a SQL identifier, in backticks unless it is plain."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def format_value(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            if not math.isfinite(value):
                name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
                return f"CAST('{name}' AS DOUBLE)"
            text = repr(value)
            return text if "e" in text else text + "E0"
        case decimal.Decimal():
            text = f"{value:f}"
            return text if "." in text else text + "."
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bytes():
            return f"X'{value.hex().upper()}'"
        case Day():
            return f"DATE '{value}'"
        case Moment():
            return f"TIMESTAMP '{value}'"
    raise TypeError(f"not a value: {type(value).__name__}")


def parse_path(name: str | Iterable[str]) -> ColumnPath:
    """Return the path that ``name`` means: ``"a.b"`` is field ``b`` of ``a``, backticks keep a dot; a tuple is a path.

    Raises
    ------
    UsageError
        The name is empty or its backticks do not match.
    """
    if isinstance(name, str):
        if not _PATH.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a column name; write a.b for a nested field, and backticks around a name with dots."
            )
        return tuple(
            quoted[1:-1].replace("``", "`") if quoted else plain.strip() for quoted, plain in _PART.findall(name)
        )
    path = tuple(name)
    if not path or not all(isinstance(part, str) and part for part in path):
        raise UsageError(f"A column path is a non-empty tuple of names; found {path!r}.")
    return path


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PART = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([^.`]*[^.`\s]))\s*(?:\.|$)")
_PATH = re.compile(r"\s*(?:`(?:[^`]|``)+`|[^.`]*[^.`\s])\s*(?:\.\s*(?:`(?:[^`]|``)+`|[^.`]*[^.`\s])\s*)*")

# Words that SQL readers may not take for a column name when they stand alone.
_RESERVED = frozenset(  # sorted, as one text: it is read, not edited
    """
    ALL ALTER ANALYZE AND ANTI ANY ARRAY AS ASC BEGIN BETWEEN BINARY BY CACHE CALL CASE CAST CHECK COLUMN COMMENT COMMIT
    CONNECT_BY_ROOT CONVERT COPY CREATE CROSS CURDATE CURRENT_CATALOG CURRENT_DATE CURRENT_SCHEMA CURRENT_TIME
    CURRENT_TIMESTAMP CURRENT_USER DATE DECLARE DELETE DESC DESCRIBE DISTINCT DIV DROP ELSE END ESCAPE EXCEPT EXECUTE
    EXISTS EXPLAIN EXTRACT FALSE FETCH FOR FROM FULL FUNCTION GLOB GRANT GROUP GROUPING HAVING IF ILIKE IN INNER INSERT
    INTERSECT INTERVAL INTO IS ISNULL JOIN KILL LATERAL LEFT LIKE LIMIT LOAD LOCALTIME LOCALTIMESTAMP MAP
    MATCH_RECOGNIZE MERGE MINUS NATURAL NOT NOTNULL NULL OFFSET ON OPTIMIZE OR ORDER OUTER OVER OVERLAPS PARTITIONED_BY
    PIVOT POSITION PRAGMA PREPARE PRIOR QUALIFY REFRESH REGEXP RENAME RETURNING REVOKE RIGHT RLIKE ROLLBACK ROW ROWS
    SELECT SEMI SERDEPROPERTIES SESSION_USER SET SETTINGS SHOW SOME STRUCT SUBSTRING TABLE TABLESAMPLE THEN TIME
    TIMESTAMP TO TRIM TRUE TRUNCATE TRY_CAST UNCACHE UNION UNIQUE UNKNOWN UNPIVOT UPDATE USE USER USING VACUUM VALUES
    WHEN WHERE WINDOW WITH XOR
    """.split()  # noqa: SIM905
)
