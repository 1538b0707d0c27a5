"""The types that ``test_types`` reads, with values of each, among them its smallest and its largest."""

from __future__ import annotations

import dataclasses
import datetime
import math
import struct
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa

from tests.int96 import RAW, write_int96

UTC = datetime.timezone.utc
BIG = 9007199254740993  # the smallest integer that float64 cannot represent
DIGITS = Decimal("12345678901234567890.123456789012345678")

DATES = [datetime.date(1, 1, 1), datetime.date(1582, 10, 4), datetime.date(1582, 10, 15), datetime.date(1899, 12, 31)]
DATES += [datetime.date(1970, 1, 1), datetime.date(2262, 4, 12), datetime.date(9999, 12, 31)]
CLOCKS = [datetime.datetime(d.year, d.month, d.day, 23, 59, 59, 999999) for d in DATES] + [datetime.datetime(1, 1, 1)]
INSTANTS = [clock.replace(tzinfo=UTC) for clock in CLOCKS]
NANOS = (-(2**63) + 1, -1, 0, 1_234_567_891_234_567_891, 2**63 - 1)
# Characters of several Unicode planes, both sides of the surrogates, line separators that JSON strings may contain, and
# NUL.
TEXTS = ["", "a\x00b", "ß", "\u2028\u0085", "\ud7ff\ue000\uffff", "😀", "\U0002a6d6", "\U000e0001", "\U0010ffff"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A type: its row in ``docs/types.md``, its name in a schemaString, its values, and its partition values in the
    log.

    ``stored`` is its type in Parquet files if it differs from the Arrow type.
    """

    row: str
    delta: str
    arrow: pa.DataType
    values: tuple[Any, ...]
    partitions: dict[str, Any] = dataclasses.field(default_factory=dict)
    stored: pa.DataType | None = None
    features: tuple[str, ...] = ()
    write: dict[str, Any] = dataclasses.field(default_factory=dict)


KINDS = {
    "boolean": Kind(
        row="boolean",
        delta="boolean",
        arrow=pa.bool_(),
        values=(True, False),
        partitions={"true": True, "false": False},
    ),
    "byte": Kind(row="byte", delta="byte", arrow=pa.int8(), values=(-128, 127), partitions={"-128": -128}),
    "short": Kind(row="short", delta="short", arrow=pa.int16(), values=(-32768, 32767), partitions={"7": 7}),
    "integer": Kind(
        row="integer", delta="integer", arrow=pa.int32(), values=(-(2**31), 2**31 - 1), partitions={"-1": -1}
    ),
    "long": Kind(
        row="long",
        delta="long",
        arrow=pa.int64(),
        values=(-(2**63), BIG, 2**63 - 1),
        partitions={str(BIG): BIG, str(-(2**63)): -(2**63)},
    ),
    "float": Kind(
        row="float",
        delta="float",
        arrow=pa.float32(),
        values=(0.5, -0.0, math.inf, -math.inf, math.nan),
        partitions={"1.5": 1.5, "NaN": math.nan, "-Infinity": -math.inf, "-0.0": -0.0},
    ),
    "double": Kind(
        row="double",
        delta="double",
        arrow=pa.float64(),
        values=(0.1, -0.0, 5e-324, math.inf, -math.inf, math.nan),
        partitions={"0.1": 0.1, "NaN": math.nan, "Infinity": math.inf, "-0.0": -0.0, "1.0E10": 1e10},
    ),
    "decimal": Kind(
        row="decimal(p, s)",
        delta="decimal(38,18)",
        arrow=pa.decimal128(38, 18),
        values=(DIGITS, -DIGITS, Decimal("1E-18"), Decimal(0)),
        partitions={str(DIGITS): DIGITS, "-1.5": Decimal("-1.5")},
    ),
    "string": Kind(
        row="string, char(n), varchar(n)",
        delta="string",
        arrow=pa.string(),
        values=tuple(TEXTS),
        partitions={text: text for text in [*TEXTS[1:], "a/b=c%20d", "__HIVE_DEFAULT_PARTITION__x"]},
    ),
    "char": Kind(
        row="string, char(n), varchar(n)",
        delta="char(4)",
        arrow=pa.string(),
        values=("ab  ",),
        partitions={"p   ": "p   "},
    ),
    "varchar": Kind(
        row="string, char(n), varchar(n)",
        delta="varchar(9)",
        arrow=pa.string(),
        values=("ab", ""),
        partitions={"p": "p"},
    ),
    "binary": Kind(
        row="binary",
        delta="binary",
        arrow=pa.binary(),
        values=(b"", b"\x00\xff\\u0001"),
        partitions={"\\u0001\\u00fF\\u0000": b"\x01\xff\x00", "hello": b"hello"},
    ),
    "date": Kind(
        row="date",
        delta="date",
        arrow=pa.date32(),
        values=tuple(DATES),
        partitions={date.isoformat(): date for date in DATES},
    ),
    "timestamp": Kind(
        row="timestamp",
        delta="timestamp",
        arrow=pa.timestamp("us", tz="UTC"),
        values=tuple(INSTANTS),
        partitions={
            "0001-01-01 00:00:00": INSTANTS[-1],
            "1899-12-31 23:59:59.999999": INSTANTS[3],
            "9999-12-31T23:59:59.999999Z": INSTANTS[6],
        },
    ),
    "timestamp in INT96": Kind(
        row="timestamp",
        delta="timestamp",
        arrow=pa.timestamp("us", tz="UTC"),
        values=tuple(INSTANTS),
        stored=RAW,
        write={"write": write_int96},
    ),
    "timestamp_ntz": Kind(
        row="timestamp_ntz",
        delta="timestamp_ntz",
        arrow=pa.timestamp("us"),
        values=tuple(CLOCKS),
        partitions={"0001-01-01 00:00:00": CLOCKS[-1], "9999-12-31 23:59:59.999999": CLOCKS[6]},
        features=("timestampNtz",),
    ),
    "time": Kind(
        row="time",
        delta="time",
        arrow=pa.time64("us"),
        values=(datetime.time(0), datetime.time(23, 59, 59, 999999)),
        partitions={"23:59:59.999999": datetime.time(23, 59, 59, 999999), "08:00": datetime.time(8)},
    ),
    "uuid": Kind(
        row="uuid",
        delta="uuid",
        arrow=pa.string(),
        values=("00000000-0000-0000-0000-000000000000", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        partitions={"F79C3E09-677C-4BBD-A479-3F349CB785E7": "f79c3e09-677c-4bbd-a479-3f349cb785e7"},
        stored=pa.binary(16),
    ),
    "timestamp_nanos": Kind(
        row="timestamp_nanos",
        delta="timestamp_nanos",
        arrow=pa.timestamp("ns", tz="UTC"),
        values=tuple(pd.Timestamp(nanos, tz="UTC") for nanos in NANOS),
        partitions={
            "1970-01-01T00:00:00.000000001Z": pd.Timestamp(1, tz="UTC"),
            "2262-04-11 23:47:16.854775807": pd.Timestamp(NANOS[-1], tz="UTC"),
        },
        features=("timestampNanos", "timestampNtz"),
    ),
    "timestamp_nanos_ntz": Kind(
        row="timestamp_nanos_ntz",
        delta="timestamp_nanos_ntz",
        arrow=pa.timestamp("ns"),
        values=tuple(pd.Timestamp(nanos) for nanos in NANOS),
        partitions={"1969-12-31 23:59:59.999999999": pd.Timestamp(-1), "1970-01-01 00:00:00": pd.Timestamp(0)},
        features=("timestampNanos", "timestampNtz"),
    ),
    "geometry": Kind(
        row="geometry",
        delta="geometry(EPSG:3857)",
        arrow=pa.binary(),
        values=tuple(struct.pack("<BIdd", 1, 1, x, -x) for x in (0.0, 1.5, math.pi)),
        features=("geospatial",),
    ),
    "geography": Kind(
        row="geography",
        delta="geography(OGC:CRS84, spherical)",
        arrow=pa.binary(),
        values=tuple(struct.pack("<BIdd", 1, 1, x, -x) for x in (0.0, 1.5, math.pi)),
        features=("geospatial",),
    ),
    "day-time interval": Kind(
        row="interval day to second",
        delta="interval day to second",
        arrow=pa.duration("us"),
        values=(
            datetime.timedelta(days=-106_751_991, microseconds=1),
            datetime.timedelta(0),
            datetime.timedelta(hours=5),
        ),
        stored=pa.int64(),
        partitions={"INTERVAL '-1 02:03:04.000005' DAY TO SECOND": -datetime.timedelta(1, 7384, 5)},
    ),
    "year-month interval": Kind(
        row="interval year to month",
        delta="interval year to month",
        arrow=pa.int32(),
        values=(-14, 0, 2**31 - 1),
        partitions={"INTERVAL '-1-2' YEAR TO MONTH": -14},
    ),
    "void": Kind(row="void", delta="void", arrow=pa.null(), values=(None,)),
}
