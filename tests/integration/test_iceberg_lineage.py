"""Row lineage of Iceberg tables has the values that Spark reads, and the values that the specification assigns."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.errors import UnsupportedFeatureError, UsageError
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.predicates.parse import parse_filter
from tests.iceberg import lake
from tests.iceberg.hand_made import HandMade
from tests.iceberg.server import IcebergServer, iceberg_server
from tests.iceberg.warehouse import rows_of

COLUMNS = [
    {"id": 1, "name": "a", "required": False, "type": "long"},
    {"id": 2, "name": "b", "required": False, "type": "string"},
]
ROW_ID, UPDATED = LINEAGE = ["_row_id", "_last_updated_sequence_number"]
IDS = {"a": 1, "b": 2, ROW_ID: 2147483540, UPDATED: 2147483539}
SNAPSHOTS = [(name, number, one["id"]) for name in lake.NAMES for number, one in lake.snapshots(name) if one["lineage"]]
OLDER = [("lineage-upgraded", 0), ("lineage-upgraded", 1), ("upgraded-deletes", 0)]


@pytest.fixture
def server() -> Iterator[IcebergServer]:
    with iceberg_server() as server:
        yield server


@pytest.fixture
def made(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "t", COLUMNS, version=3)


# --- rows read by Spark ---


@pytest.mark.parametrize(("name", "number", "snapshot"), SNAPSHOTS)
def test_every_row_has_the_lineage_that_spark_reads(name: str, number: int, snapshot: int) -> None:
    rows = lake.read(name, ScanRequest(version=snapshot, row_lineage=True))
    expected = lake.rows(name, str(number))

    assert rows.column_names == expected.column_names
    assert rows.schema.field(ROW_ID) == pa.field(ROW_ID, pa.int64())
    assert rows.schema.field(UPDATED) == pa.field(UPDATED, pa.int64())
    assert rows_of(rows) == rows_of(expected)


@pytest.mark.parametrize(("name", "number", "snapshot"), SNAPSHOTS)
def test_lineage_filters_select_the_rows_that_spark_reads(name: str, number: int, snapshot: int) -> None:
    expected = lake.rows(name, str(number)).select(LINEAGE)
    ids = sorted(expected[ROW_ID].to_pylist())
    last = pc.max(expected[UPDATED]).as_py()

    for text, kept in (
        (f"{ROW_ID} = {ids[len(ids) // 2]}", pc.field(ROW_ID) == ids[len(ids) // 2]),
        (f"{ROW_ID} < {ids[-1]}", pc.field(ROW_ID) < ids[-1]),
        (f"{UPDATED} = {last}", pc.field(UPDATED) == last),
        (f"{ROW_ID} IS NULL OR {UPDATED} < {last}", pc.field(UPDATED) < last),
    ):
        request = ScanRequest(columns=LINEAGE, filter=parse_filter(text), version=snapshot, row_lineage=True)
        rows = lake.read(name, request)
        assert rows_of(rows) == rows_of(expected.filter(kept)), text


@pytest.mark.parametrize(("name", "number"), OLDER)
def test_snapshots_before_version_3_have_null_lineage(name: str, number: int) -> None:
    snapshot = lake.expected(name)["snapshots"][number]["id"]
    rows = lake.read(name, ScanRequest(version=snapshot, row_lineage=True))

    assert rows.num_rows == lake.rows(name, str(number)).num_rows > 0
    assert [rows[column].null_count for column in LINEAGE] == [rows.num_rows] * 2
    request = ScanRequest(version=snapshot, filter=parse_filter(f"{ROW_ID} IS NULL"), row_lineage=True)
    assert lake.read(name, request).num_rows == rows.num_rows
    assert lake.read(name, dataclasses.replace(request, filter=parse_filter(f"{ROW_ID} >= 0"))).num_rows == 0


@pytest.mark.parametrize("name", ["plain", "version-1"])
def test_tables_without_row_lineage_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"row lineage needs version 3\. Leave") as caught:
        lake.read(name, ScanRequest(row_lineage=True))
    assert "SET TBLPROPERTIES ('format-version' = '3')" in str(caught.value)
    assert (caught.value.feature, caught.value.table) == ("row lineage", name)


# --- lineage assigned by the specification ---


class Writer:
    """Commits random changes to a table and keeps the expected lineage of each row."""

    def __init__(self, made: HandMade, chance: random.Random) -> None:
        self.made, self.chance = made, chance
        self.files: list[dict[str, Any]] = []
        self.manifests: list[dict[str, Any]] = []
        self.deletes: list[dict[str, Any]] = []
        self.next_row_id = 0
        self.next_value = 0
        self.met: Counter[str] = Counter()

    @property
    def sequence_number(self) -> int:
        """The sequence number of the next commit."""
        return int(self.made.metadata["last-sequence-number"]) + 1

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for file in self.files for row in file["rows"] if row is not None]

    def commit(self) -> None:
        """Commit a manifest of the files that are in no manifest yet; in format version 3, files without a first row id
        get one."""
        new = [file for file in self.files if file["manifest"] is None]
        if new:
            # Files from other manifests have the status EXISTING, and a first row id unless they are older than version
            # 3.
            manifest = self.made.manifest([self._entry(file) for file in new])
            self.manifests.append(manifest)
            for file in new:
                file["manifest"] = manifest
        for manifest in self.manifests if self.made.metadata["format-version"] == 3 else ():
            if manifest.get("first_row_id") is None:
                manifest["first_row_id"] = self.next_row_id
                self.met["assigned after an upgrade"] += manifest.get("sequence_number") is not None
            for file in self.files:
                if file["manifest"] is manifest and file["first_row_id"] is None:
                    file["first_row_id"] = self.next_row_id
                    self.next_row_id += len(file["rows"])
            # A writer may skip ids.
            self.next_row_id += self.chance.choice([0, 0, 5])
        self.made.commit([*self.manifests, *self.deletes])
        for file in self.files:
            self._assign(file)

    def _entry(self, file: dict[str, Any]) -> dict[str, Any]:
        if file["sequence_number"] == self.sequence_number:
            return dict(file["struct"])
        stated = {} if file["first_row_id"] is None else {"first_row_id": file["first_row_id"]}
        return {**file["struct"], "status": 0, "sequence_number": file["sequence_number"], **stated}

    def _assign(self, file: dict[str, Any]) -> None:
        if file["first_row_id"] is None:
            return
        for position, row in enumerate(file["rows"]):
            if row is not None and row[ROW_ID] is None:
                row[ROW_ID] = file["first_row_id"] + position
            if row is not None and row[UPDATED] is None:
                row[UPDATED] = file["sequence_number"]

    def add(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
        """Write a data file with the given columns of ``rows``."""
        schema = pa.schema([(name, pa.string() if name == "b" else pa.int64()) for name in columns])
        size = self.chance.choice([2, 3, 100])
        struct = self.made.data_file(pa.Table.from_pylist(rows, schema), ids=IDS, row_group_size=size)
        # A deleted row is None.
        file = {"struct": struct, "rows": rows, "sequence_number": self.sequence_number}
        self.files.append({**file, "first_row_id": None, "manifest": None})

    def append(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            rows = [self._new(self.chance.choice([None, "x", "y"])) for _ in range(self.chance.randint(1, 8))]
            self.add(rows, ["a", "b"])

    def _new(self, text: str | None) -> dict[str, Any]:
        self.next_value += 1
        return {"a": self.next_value, "b": text, ROW_ID: None, UPDATED: None}

    def rewrite(self) -> None:
        """Copy the rows of some files to a new file and update some of them."""
        older = [file for file in self.files if file["sequence_number"] < self.sequence_number]
        old = [file for file in older if self.chance.random() < 0.5]
        rows = [dict(row) for file in old for row in file["rows"] if row is not None]
        if not rows:
            return
        for row in rows:
            if self.chance.random() < 0.3:
                row.update({"b": "updated", UPDATED: None})
                self.met["updated"] += 1
        # A new row among the copied rows.
        rows.insert(self.chance.randint(0, len(rows)), self._new("new"))
        self.chance.shuffle(rows)
        self.met["rewritten"] += len(rows)
        self._drop(old)
        self.add(rows, ["a", "b", *LINEAGE])

    def _drop(self, old: list[dict[str, Any]]) -> None:
        """Remove files from the table; the other files of their manifests are written to a new manifest."""
        gone = [file["manifest"] for file in old]
        self.files = [file for file in self.files if not any(file is one for one in old)]
        self.manifests = [one for one in self.manifests if not any(one is manifest for manifest in gone)]
        for file in self.files:
            if any(file["manifest"] is manifest for manifest in gone):
                file["manifest"] = None
                self.met["existing"] += 1

    def delete_positions(self) -> None:
        """Delete rows of one file: by a deletion vector in format version 3, otherwise by a position delete file."""
        files = [file for file in self.files if any(file["rows"]) and not file.get("has_deletes")]
        if not files:
            return
        file = self.chance.choice(files)
        gone = [at for at, row in enumerate(file["rows"]) if row is not None and self.chance.random() < 0.4]
        if not gone:
            return
        path = file["struct"]["file_path"]
        if self.made.metadata["format-version"] == 3:
            [entry] = self.made.puffin({path: gone})
        else:
            entry = self.made.position_deletes([(path, at) for at in gone])
        file["has_deletes"] = True
        for at in gone:
            file["rows"][at] = None
        self.deletes.append(self.made.manifest([entry], content=1))
        self.met["deleted by position"] += len(gone)

    def delete_values(self) -> None:
        """Delete rows of all existing files by equality deletes."""
        values = {row["a"] for row in self.rows if self.chance.random() < 0.2}
        if not values:
            return
        rows = pa.table({"a": pa.array(sorted(values), pa.int64())})
        self.deletes.append(self.made.manifest([self.made.equality_deletes(rows, ["a"])], content=1))
        for file in self.files:
            if file["sequence_number"] < self.sequence_number:
                file["rows"] = [None if row is not None and row["a"] in values else row for row in file["rows"]]
        self.met["deleted by value"] += len(values)

    def upgrade(self) -> None:
        self.made.metadata["format-version"] = 3


def _without_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr([row["a"], row["b"], row[ROW_ID], row[UPDATED]]) for row in rows)


def _some_filter(chance: random.Random, rows: list[dict[str, Any]]) -> tuple[str, Callable[[dict[str, Any]], bool]]:
    one = chance.choice([row[ROW_ID] for row in rows if row[ROW_ID] is not None] or [0])
    two = chance.choice([row["a"] for row in rows] or [0])
    results: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
        (f"_row_id <= {one}", lambda row: row[ROW_ID] is not None and row[ROW_ID] <= one),
        (f"a > {two}", lambda row: row["a"] > two),
        (f"a <> {two} AND _row_id > {one}", lambda row: row["a"] != two and (row[ROW_ID] or -1) > one),
        ("_last_updated_sequence_number = 3", lambda row: row[UPDATED] == 3),
        ("_last_updated_sequence_number IS NULL", lambda row: row[UPDATED] is None),
    ]
    return chance.choice(results)


def test_random_commits_have_the_expected_lineage(server: IcebergServer, tmp_path: Path) -> None:
    met: Counter[str] = Counter()
    for seed in range(25):
        chance = random.Random(seed)
        made = HandMade(tmp_path / str(seed), COLUMNS, version=chance.choice([2, 3]))
        writer = Writer(made, chance)
        for step in range(chance.randint(3, 7)):
            choices = [writer.append, writer.delete_positions, writer.delete_values]
            if made.metadata["format-version"] == 3:
                choices += [writer.rewrite, writer.rewrite]
            if step in (0, 1):
                writer.append()
            elif made.metadata["format-version"] == 2 and chance.random() < 0.5:
                writer.upgrade()
            chance.choice(choices)()
            writer.commit()
        if made.metadata["format-version"] == 2:
            writer.upgrade()
            met["not committed after an upgrade"] += 1
        met += writer.met
        server.share("t", made.metadata)
        table, rows = server.table(batch_rows=chance.choice([2, 5, 1000])), writer.rows

        assert _without_order(table.scan(row_lineage=True).to_arrow().to_pylist()) == _without_order(rows), seed
        for _ in range(3):
            text, kept = _some_filter(chance, rows)
            expected = [row for row in rows if kept(row)]
            met["filtered"] += 0 < len(expected) < len(rows)
            returned = table.scan(filter=text, row_lineage=True).to_arrow().to_pylist()
            assert _without_order(returned) == _without_order(expected), (seed, text)
            limited = table.scan(filter=text, row_lineage=True, limit=2).to_arrow().to_pylist()
            assert len(limited) == min(2, len(expected))
            assert set(_without_order(limited)) <= set(_without_order(expected)), (seed, text)

    least = {
        "rewritten": 100, "updated": 20, "existing": 3, "deleted by position": 20, "deleted by value": 20,
        "assigned after an upgrade": 3, "not committed after an upgrade": 2, "filtered": 20,
    }  # fmt: skip
    assert {what: met[what] for what in least if met[what] < least[what]} == {}


def test_stored_row_ids_are_ignored_without_a_first_row_id(made: HandMade, server: IcebergServer) -> None:
    rows = pa.table({"a": pa.array([1, 2], pa.int64()), "b": ["x", "y"], ROW_ID: [7, 8], UPDATED: [1, 1]})
    with_id, without = made.data_file(rows, ids=IDS), made.data_file(rows, ids=IDS)
    made.commit([made.manifest([with_id], first_row_id=100), made.manifest([without])])
    server.share("t", made.metadata)

    returned = server.table().scan(columns=["a"], row_lineage=True).to_arrow()

    assert returned.to_pylist() == [
        {"a": 1, ROW_ID: 7, UPDATED: 1},
        {"a": 2, ROW_ID: 8, UPDATED: 1},
        {"a": 1, ROW_ID: None, UPDATED: None},
        {"a": 2, ROW_ID: None, UPDATED: None},
    ]


def test_columns_with_the_ids_of_a_draft_are_not_lineage(made: HandMade, server: IcebergServer) -> None:
    # A draft of the specification used field ids that now belong to the columns of change logs.
    rows = pa.table({"a": pa.array([1, 2], pa.int64()), ROW_ID: [7, 8], UPDATED: [9, 9]})
    draft = {"a": 1, ROW_ID: 2147483543, UPDATED: 2147483542}
    made.commit([made.manifest([made.data_file(rows, ids=draft)], first_row_id=100)])
    server.share("t", made.metadata)

    assert server.table().scan(columns=LINEAGE, row_lineage=True).to_arrow().to_pydict() == {
        ROW_ID: [100, 101],
        UPDATED: [1, 1],
    }


def test_delta_lineage_columns_are_refused_for_iceberg(made: HandMade, server: IcebergServer) -> None:
    made.commit([made.manifest([made.data_file(pa.table({"a": pa.array([1], pa.int64())}))], first_row_id=0)])
    server.share("t", made.metadata)

    with pytest.raises(UsageError, match="_row_commit_version"):
        server.table().scan(columns=["_row_commit_version"], row_lineage=True).to_arrow()


def test_every_output_has_lineage(made: HandMade, server: IcebergServer, tmp_path: Path) -> None:
    file = made.data_file(pa.table({"a": pa.array([1, 2, 3], pa.int64()), "b": ["x", "y", "z"]}))
    [vector] = made.puffin({file["file_path"]: [1]})
    made.commit([made.manifest([file], first_row_id=40), made.manifest([vector], content=1)])
    server.share("t", made.metadata)
    scan = server.table().scan(columns=["a"], row_lineage=True)
    names, expected = ["a", *LINEAGE], [(1, 40, 1), (3, 42, 1)]

    assert scan.schema.names == names
    assert [tuple(row.values()) for row in scan.to_arrow().to_pylist()] == expected
    frame = scan.to_pandas()
    assert (list(frame), list(frame.itertuples(index=False, name=None))) == (names, expected)
    assert (scan.to_polars().columns, scan.to_polars().rows()) == (names, expected)
    assert scan.to_duckdb().fetchall() == expected
    scan.to_parquet(tmp_path / "rows.parquet")
    assert [tuple(row.values()) for row in pq.read_table(tmp_path / "rows.parquet").to_pylist()] == expected
    parts = [batch for part in scan.partitions(2) for batch in part.read()]
    assert [tuple(row.values()) for row in pa.Table.from_batches(parts).to_pylist()] == expected
