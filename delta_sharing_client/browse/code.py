"""Writes programs, ready to copy, for the read that was chosen on the page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from delta_sharing_client import queries
from delta_sharing_client.columns import quote_name
from delta_sharing_client.protocol.names import AssetName


def programs(
    profile: str,
    table: AssetName,
    *,
    columns: Sequence[Sequence[str]] = (),
    condition: str = "",
    version: int | str | None = None,
    timestamp: str | None = None,
) -> dict[str, str]:
    """Return a program for each library or tool, under its name.

    ``profile`` is the profile's path as the user gave it; "" if the environment variable names the profile.
    """
    url = repr(f"{profile}#{table}")
    names = [".".join(map(quote_name, path)) for path in columns]
    choices = {"columns": names, "filter": condition, "version": version, "timestamp": timestamp}
    arguments = "".join(f", {name}={value!r}" for name, value in choices.items() if value not in ([], "", None))
    return {
        "pandas": f"import delta_sharing_client as ds\n\nframe = ds.load_as_pandas({url}{arguments})\n",
        "Polars": (
            "import delta_sharing_client as ds\n\n"
            f"frame = ds.scan_polars({url}{arguments})\n"
            "print(frame.limit(10).collect())\n"
        ),
        "DuckDB": (
            "import duckdb\nimport delta_sharing_client as ds\n\nconnection = duckdb.connect()\n"
            f"shared = ds.load_as_duckdb({url}, connection{arguments})\n"
            "print(shared.limit(10))\n"
        ),
        "Spark": (
            "from pyspark.sql import SparkSession\nimport delta_sharing_client as ds\n\n"
            "spark = SparkSession.builder.getOrCreate()\n"
            f"frame = ds.load_as_spark({url}{arguments})\n"
            "frame.show(10)\n"
        ),
        "Command line": _command(profile, table, names, condition, version, timestamp),
    }


def query_programs(profile: str, query: str) -> dict[str, str]:
    """Return a program for each library or tool that runs the SQL ``query``, under its name; ``profile`` as for
    ``programs``. Raises ``UsageError`` if it is not one query."""
    query = query.strip().rstrip("; \n\t")
    in_spark = queries.in_spark(query, "shared")
    arguments = f"query{f', {profile!r}' if profile else ''}"
    start = f"import delta_sharing_client as ds\n\nquery = {_literal(query)}\n"
    spark = "from pyspark.sql import SparkSession\nimport delta_sharing_client as ds\n\n" + (
        'spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()\n'
    )
    if in_spark is None:
        # DuckDB runs what may mean something else in Spark.
        spark += (
            f"query = {_literal(query)}\n"
            "# DuckDB runs the query, because it may mean something else in Spark's SQL.\n"
            f"frame = spark.createDataFrame(ds.sql({arguments}).df())\n"
        )
    else:
        profile_argument = f", {profile!r}" if profile else ""
        spark += (
            f'ds.attach(spark{profile_argument}, name="shared")\n'
            f"# Translated to Spark's SQL: compare a result before you rely on it.\n"
            f"frame = spark.sql({_literal(in_spark)})\n"
        )
    words = ["delta-sharing", *(["-p", profile] if profile else []), "sql", "--to", "rows.parquet", "--", query]
    return {
        "pandas": f"{start}frame = ds.sql({arguments}).df()\n",
        "Polars": f"{start}frame = ds.sql({arguments}).pl()\n",
        "DuckDB": f"{start}relation = ds.sql({arguments})\nprint(relation.limit(10))\n",
        "Spark": f"{spark}frame.show(10)\n",
        "Command line": f"{shlex.join(words)}\n",
    }


def _literal(text: str) -> str:
    """Return a string in Python's syntax, over several lines if it is easy to read then."""
    is_plain = "\\" not in text and '"""' not in text and all(one.isprintable() or one == "\n" for one in text)
    return f'"""\n{text}\n"""' if is_plain else repr(text)


def _command(
    profile: str,
    table: AssetName,
    names: Sequence[str],
    condition: str,
    version: int | str | None,
    timestamp: str | None,
) -> str:
    words = ["delta-sharing", *(["-p", profile] if profile else []), "read"]
    for option, value in (
        ("--columns", ",".join(names)),
        ("--filter", condition),
        ("--version", "" if version is None else str(version)),
        ("--timestamp", timestamp or ""),
    ):
        if value:
            words += [option, value]
    # "--" is added, because a name may begin with a hyphen, as an option does.
    return (
        shlex.join([*words, "--to", "rows.parquet", *(["--"] if str(table).startswith("-") else []), str(table)]) + "\n"
    )
