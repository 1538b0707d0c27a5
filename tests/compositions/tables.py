"""The tables of the compositions, a Delta and an Iceberg table, with their rows in every version."""

from __future__ import annotations

import datetime
import json
import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.compositions.conditions import DAY, MOMENT, UTC
from tests.iceberg.hand_made import HandMade
from tests.regressions.hand_made import COMMIT_GAP_MS, FIRST_COMMIT_MS, HandMadeTable
from tests.versions import parquet_settings

Rows = list[dict[str, Any]]

SCHEMA = pa.schema([
    ("id", pa.int64()),
    ("n", pa.int32()),
    ("x", pa.float64()),
    ("t", pa.string()),
    ("name", pa.string()),
    ("d", pa.date32()),
    ("ts", pa.timestamp("us", "UTC")),
    ("dec", pa.decimal128(9, 2)),
    ("flag", pa.bool_()),
    ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ("l", pa.list_(pa.field("element", pa.int32()))),
    ("p", pa.string()),
])  # fmt: skip
_KINDS = {
    "id": "long", "n": "int", "x": "double", "t": "string", "name": "string", "d": "date", "ts": "timestamptz",
    "dec": "decimal(9, 2)", "flag": "boolean", "p": "string",
}  # fmt: skip
# Small pages and row groups, with everything by which parts of a file are skipped.
_PARQUET = parquet_settings(
    row_group_size=24, data_page_size=1, write_batch_size=6, write_page_index=True, write_page_checksum=True
)
# In larger row groups, reading some columns first can pay off, and pages can be cut.
_LARGE = {**_PARQUET, "row_group_size": 64}
_PLAIN = {"row_group_size": 1000, "use_dictionary": ["t"], "compression": "zstd"}


@dataclass(frozen=True)
class Model:
    """A table and its rows: ``snapshots`` by version, and the rows of its feed (``None`` if it has none)."""

    name: str
    snapshots: Mapping[int, Rows]
    lineage: tuple[str, str]
    feed: Rows | None = None
    values: Mapping[str, list[Any]] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        return SCHEMA.names


def _rows(first: int, count: int, partition: str | None) -> Rows:
    """Return rows with all kinds of values; the values depend only on ``first``."""
    chance = random.Random(first)

    def some(value: Any, share: float = 0.15) -> Any:
        return None if chance.random() < share else value

    return [
        {
            "id": number,
            "n": some(number % 17),
            "x": some(chance.choice([number / 4, -0.0, 0.5, float("nan"), -1.5])),
            "t": some(chance.choice(["", "a", "ab", "Ab", "é"])),
            "name": some(f"Name {number:04}"),
            "d": some(DAY + datetime.timedelta(days=number // 10)),
            "ts": some(MOMENT + datetime.timedelta(seconds=number, microseconds=number % 3)),
            "dec": some(Decimal(number % 40).scaleb(-1).quantize(Decimal("0.01"))),
            "flag": some(number % 3 == 0),
            "s": some({"a": some(number % 5), "b": some(f"b{number % 3}")}),
            "l": some([None if item % 5 == 4 else item for item in range(number % 4)]),
            "p": partition,
        }
        for number in range(first, first + count)
    ]


def _values(rows: Rows) -> dict[str, list[Any]]:
    """Return the constants for conditions by column: values of the table, and others around them."""
    found: dict[str, list[Any]] = {"s.a": [0, 2, 4, 9]}
    for name in _KINDS:
        present = [row[name] for row in rows if row[name] is not None and row[name] == row[name]]
        found[name] = sorted({repr(value): value for value in present}.values(), key=repr)
    found["id"] += [-1, 1000]
    found["name"].append("Name")
    found["p"].append("three")
    return found


# === Delta ===


def write_delta(root: Path) -> Model:
    """Write a table with deletion vectors, row tracking, a partition column, change files, and files without some
    columns or statistics."""
    made = HandMadeTable(root).create(
        SCHEMA,
        partition_by=["p"],
        properties={"delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"},
        features=["deletionVectors"],
    )
    table = _DeltaTable(made)
    first, second = table.add(_rows(0, 40, "one"), _LARGE), table.add(_rows(40, 20, "é %"), _PLAIN)
    table.commit([first, second])
    third = table.add(_rows(60, 45, None), _PARQUET, without=["flag"], removed=range(0, 45, 4), has_statistics=False)
    table.commit([third])
    table.delete(first, [0, 1, 2, 7, 15, 16, 17, 18, 39])
    table.update(second, {3: {"n": 99}, 4: {"t": "new"}, 19: {"name": None}})
    last = table.snapshots[max(table.snapshots)]
    return Model(
        "s.s.delta", table.snapshots, ("_row_id", "_row_commit_version"), table.feed, _values([*last, *table.feed])
    )


@dataclass
class _DeltaFile:
    action: dict[str, Any]
    rows: Rows
    gone: set[int]
    base: int
    version: int = -1

    @property
    def visible(self) -> Rows:
        return [
            {**row, "_row_id": self.base + at, "_row_commit_version": self.version}
            for at, row in enumerate(self.rows)
            if at not in self.gone
        ]


class _DeltaTable:
    """Commits files, and keeps the rows of each version and the changes that each version makes."""

    def __init__(self, made: HandMadeTable) -> None:
        self._made = made
        self._files: list[_DeltaFile] = []
        self._next_id = 0
        self.snapshots: dict[int, Rows] = {0: []}
        self.feed: Rows = []

    def add(
        self,
        rows: Rows,
        parquet: Mapping[str, Any],
        *,
        without: Sequence[str] = (),
        removed: Sequence[int] = (),
        has_statistics: bool = True,
    ) -> _DeltaFile:
        rows = [{**row, **dict.fromkeys(without)} for row in rows]
        content = pa.Table.from_pylist(rows, SCHEMA).drop_columns(["p", *without])
        action = self._made.file(content, {"p": rows[0]["p"]}, list(removed), **parquet)
        base, self._next_id = self._next_id, self._next_id + len(rows) + 3  # a writer may skip ids
        action["add"] |= {"baseRowId": base, "defaultRowCommitVersion": self._made.version + 1}
        if has_statistics:
            action["add"]["stats"] = json.dumps({"numRecords": len(rows), **_statistics(rows, ("id", "n", "name"))})
        return _DeltaFile(action, rows, set(removed), base, self._made.version + 1)

    def commit(self, files: Sequence[_DeltaFile]) -> None:
        self._files += files
        self._changed("insert", [row for file in files for row in file.visible])
        self._committed(*(file.action for file in files))

    def delete(self, file: _DeltaFile, positions: Sequence[int]) -> None:
        """Delete rows by a deletion vector, which keeps the file's row ids."""
        self._changed("delete", [file.rows[at] for at in positions])
        removal = self._made.removal(file.action)
        file.action = self._made.without(file.action, positions)
        file.gone |= set(positions)
        self._committed(removal, file.action)

    def update(self, file: _DeltaFile, changes: Mapping[int, Mapping[str, Any]]) -> None:
        """Rewrite a file, with a change file for the updated rows."""
        before, after = [file.rows[at] for at in changes], [{**file.rows[at], **new} for at, new in changes.items()]
        self._changed("update_preimage", before)
        self._changed("update_postimage", after)
        rows = [{**row, **changes.get(at, {})} for at, row in enumerate(file.rows)]
        rewritten = self.add(rows, _PARQUET)
        self._files = [rewritten if one is file else one for one in self._files]
        changed = [{**row, "_change_type": kind} for kind, some in (("update_preimage", before),
                   ("update_postimage", after)) for row in some]  # fmt: skip
        schema = SCHEMA.append(pa.field("_change_type", pa.string()))
        path = self._made.root / "cdc-1.parquet"
        pq.write_table(pa.Table.from_pylist(changed, schema).drop_columns(["p"]), path)
        cdc = {"path": path.name, "partitionValues": {"p": rows[0]["p"]}, "size": path.stat().st_size}
        self._committed(self._made.removal(file.action), rewritten.action, {"cdc": cdc | {"dataChange": False}})

    def _changed(self, kind: str, rows: Rows) -> None:
        version = self._made.version + 1
        moment = datetime.datetime.fromtimestamp((FIRST_COMMIT_MS + version * COMMIT_GAP_MS) / 1000, UTC)
        feed = {"_change_type": kind, "_commit_version": version, "_commit_timestamp": moment}
        self.feed += [{name: row[name] for name in SCHEMA.names} | feed for row in rows]

    def _committed(self, *actions: dict[str, Any]) -> None:
        version = self._made.commit(*actions)
        self.snapshots[version] = [row for file in self._files for row in file.visible]


def _statistics(rows: Rows, names: Sequence[str]) -> dict[str, Any]:
    present = {name: [row[name] for row in rows if row[name] is not None] for name in names}
    return {
        "minValues": {name: min(values) for name, values in present.items() if values},
        "maxValues": {name: max(values) for name, values in present.items() if values},
        "nullCount": {name: len(rows) - len(values) for name, values in present.items()},
    }


# === Iceberg ===


def write_iceberg(root: Path) -> Model:
    """Write a table of format version 3 with equality deletes, deletion vectors, row lineage and a partition column."""
    columns: list[dict[str, Any]] = [
        {"id": number, "name": name, "required": False, "type": _KINDS[name]}
        for number, name in enumerate(SCHEMA.names, 1)
        if name in _KINDS
    ]
    inner = [{"id": 21, "name": "a", "required": False, "type": "long"}]
    inner.append({"id": 22, "name": "b", "required": False, "type": "string"})
    of_list = {"type": "list", "element-id": 23, "element": "int", "element-required": False}
    for name, kind in (("s", {"type": "struct", "fields": inner}), ("l", of_list)):
        columns.insert(SCHEMA.names.index(name), {"id": 30 + len(name + kind["type"]), "name": name, "required": False,
                                                  "type": kind})  # fmt: skip
    source = next(column["id"] for column in columns if column["name"] == "p")
    by_p = {"spec-id": 0, "fields": [{"source-id": source, "field-id": 1000, "name": "p", "transform": "identity"}]}
    made = HandMade(root, columns, version=3, **{"partition-specs": [by_p], "last-partition-id": 1000})
    table = _IcebergTable(made)
    table.append(_rows(0, 40, "one"), _LARGE)
    table.append(_rows(40, 20, "é %"), _PLAIN)
    table.commit()
    table.append(_rows(60, 45, None), _PARQUET)
    table.delete_equal("id", [3, 4, 41, 57, 70], "one", "é %", None)
    table.commit()
    table.append(_rows(105, 3, "two"), _PARQUET)
    table.delete_positions(2, range(0, 45, 4))
    table.commit()
    last = table.snapshots[max(table.snapshots)]
    lineage = ("_row_id", "_last_updated_sequence_number")
    return Model("s.s.iceberg", table.snapshots, lineage, values=_values(last))


class _IcebergTable:
    """Writes files and deletes, and keeps the rows of each snapshot."""

    def __init__(self, made: HandMade) -> None:
        self._made = made
        self._files: list[dict[str, Any]] = []
        self._manifests: list[dict[str, Any]] = []
        self._new: list[dict[str, Any]] = []
        self._deletes: list[dict[str, Any]] = []
        self._next_id = 0
        self.snapshots: dict[int, Rows] = {}

    @property
    def _sequence_number(self) -> int:
        return int(self._made.metadata["last-sequence-number"]) + 1

    def append(self, rows: Rows, parquet: Mapping[str, Any]) -> None:
        content = pa.Table.from_pylist(rows, SCHEMA)

        def write(data: pa.Table, path: Path, **_: object) -> None:
            pq.write_table(data, path, **parquet)

        struct_ = self._made.data_file(content, write=write, partition={"p": rows[0]["p"]}, **self._bounds(rows, "id"))
        number = self._sequence_number
        file = {"struct": struct_, "rows": rows, "gone": set(), "base": self._next_id, "number": number}
        self._next_id += len(rows)
        self._files.append(file)
        self._new.append(file)

    def _bounds(self, rows: Rows, name: str) -> dict[str, Any]:
        ids = [row[name] for row in rows]
        place = self._made.ids[name]
        return {
            "lower_bounds": {place: struct.pack("<q", min(ids))},
            "upper_bounds": {place: struct.pack("<q", max(ids))},
            "null_value_counts": {place: 0},
        }

    def delete_equal(self, name: str, values: Sequence[Any], *partitions: str | None) -> None:
        """Delete rows of the older files of ``partitions`` by their values in a column."""
        for partition in partitions:
            keys = pa.table({name: pa.array(values, SCHEMA.field(name).type)})
            self._deletes.append(self._made.equality_deletes(keys, [name], partition={"p": partition}))
        for file in self._files:
            if file["number"] < self._sequence_number and file["rows"][0]["p"] in partitions:
                file["gone"] |= {at for at, row in enumerate(file["rows"]) if row[name] in values}

    def delete_positions(self, which: int, positions: Sequence[int]) -> None:
        """Delete rows of the file number ``which`` by a deletion vector."""
        file = self._files[which]
        path = file["struct"]["file_path"]
        self._deletes += self._made.puffin({path: list(positions)}, partition=file["struct"]["partition"])
        file["gone"] |= set(positions)

    def commit(self) -> None:
        partition = [("p", 1000, "string")]
        data = self._made.manifest([file["struct"] for file in self._new], partition=partition)
        data["first_row_id"] = self._new[0]["base"]
        self._manifests.append(data)
        if self._deletes:
            self._manifests.append(self._made.manifest(self._deletes, content=1, partition=partition))
        rows = sum(len(file["rows"]) for file in self._new)
        snapshot = self._made.commit(self._manifests, first_row_id=self._new[0]["base"], added_rows=rows)
        self._made.metadata["next-row-id"] = self._next_id
        path = self._made.root / "metadata" / f"v{len(self.snapshots) + 1}.metadata.json"
        path.write_text(json.dumps(self._made.metadata), "utf-8")
        self._new, self._deletes = [], []
        self.snapshots[snapshot] = [
            {**row, "_row_id": file["base"] + at, "_last_updated_sequence_number": file["number"]}
            for file in self._files
            for at, row in enumerate(file["rows"])
            if at not in file["gone"]
        ]
