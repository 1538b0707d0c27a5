"""Read shared tables with the PyPI package ``delta-sharing`` or with ours, and write the rows in a common format.

Run it with the Python interpreter of the environment that has the package:
``read_frames.py PACKAGE PROFILE < requests > results``.
Requests and results are JSON lines: ``{"table": ..., "delta": true, "changes": null or a version}`` gives
``{"columns": [...], "rows": [...]}`` with the rows sorted, or ``{"error": ...}``. Values that one package cannot
distinguish count as equal: null and NaN, ``1`` and ``1.0``, a timestamp without a zone and the same one in UTC.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import importlib
import json
import math
import os
import sys


def main() -> None:
    package, profile = importlib.import_module(sys.argv[1]), sys.argv[2]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    for line in sys.stdin:
        # The package ``delta-sharing`` prints text during reads.
        with contextlib.redirect_stdout(sys.stderr):
            answer = run(package, profile, json.loads(line))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def run(package, profile, request):
    try:
        if request["table"] is None:
            return {"tables": sorted(f"{t.share}.{t.schema}.{t.name}" for t in listed(package, profile))}
        url = f"{profile}#{request['table']}"
        if request["changes"] is None:
            frame = package.load_as_pandas(url, use_delta_format=request["delta"])
        else:
            frame = package.load_table_changes_as_pandas(
                url, starting_version=request["changes"], use_delta_format=request["delta"]
            )
        names = sorted(frame.columns)
        columns = [[canonical(value) for value in frame[name].tolist()] for name in names]
        return {"columns": names, "rows": sorted(map(list, zip(*columns, strict=True)), key=json.dumps)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def listed(package, profile):
    client = package.SharingClient(profile)
    schemas = [schema for share in client.list_shares() for schema in client.list_schemas(share)]
    tables = [table for schema in schemas for table in client.list_tables(schema)]
    assert {str(table) for table in tables} == {str(table) for table in client.list_all_tables()}
    return tables


def canonical(value):
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, dict):
        return {name: canonical(item) for name, item in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if type(value).__module__ == "numpy":
        return canonical(value.tolist())
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float, decimal.Decimal)):
        return number(value)
    if isinstance(value, datetime.datetime):
        return instant(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return f"{value // datetime.timedelta(microseconds=1)} us"
    if isinstance(value, bytes):
        return value.hex()
    return value


def number(value):
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    exact = decimal.Decimal(value)
    return f"{exact.normalize():f}" if exact else "0"


def instant(value):
    if value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return value.isoformat(timespec="microseconds")


if __name__ == "__main__":
    main()
