"""Sample tables with a history, for ``--demo``. They are written at every start, always with the same content.

``demo.shop.orders`` has a typical history: created, a column renamed, rows inserted, deleted and updated with deletion
vectors, files compacted. ``demo.shop.products`` and ``demo.weather.readings`` are plain tables that the parquet
response format can represent; the former can also be read in its directory, and the latter has a change data feed.
``demo.lake.refunds`` is an Iceberg table.
"""

from __future__ import annotations

import dataclasses
import datetime
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.delta.actions import Action, AddFile, DomainMetadata, Protocol

from . import catalog, demo_assets
from .catalog import Catalog, TableEntry
from .iceberg_writer import LAST_UPDATED, ROW_ID, IcebergWriter
from .table_writer import TableWriter, metadata, remove

SHARE = "demo"
_DAY_ONE = datetime.datetime(2026, 1, 5, 8, tzinfo=datetime.timezone.utc)
_COUNTRIES = ("DE", "FR", "US", None)
_ROW_ID = "_row-id-col-2f9b"
_ROW_VERSION = "_row-commit-version-col-77c1"


def build(root: Path) -> Catalog:
    """Write the sample tables, and the assets of ``demo_assets``, below ``root`` and return their catalog."""
    tables = {
        ("shop", "orders"): _orders,
        ("shop", "products"): _products,
        ("weather", "readings"): _readings,
        ("lake", "refunds"): _refunds,
    }
    for (schema, table), write in tables.items():
        write(root / schema / table)
    entries = [
        _readable_in_place(catalog.entry(SHARE, schema, table, root / schema / table), table == "products")
        for schema, table in tables
    ]
    return catalog.build(entries, assets=demo_assets.build(root, SHARE))


def _readable_in_place(entry: TableEntry, is_readable: bool) -> TableEntry:
    """Return the entry with directory access, and an auxiliary location without files, if ``is_readable``."""
    if not is_readable:
        return entry
    storage = entry.location.as_uri()
    return dataclasses.replace(entry, storage=storage, auxiliary=(f"{storage}-more",))


def _day(number: int) -> datetime.datetime:
    return _DAY_ONE + datetime.timedelta(days=number)


# --- demo.shop.orders -----------------------------------------------------------------------------------------------


def _orders(root: Path) -> None:
    _OrdersTable(root).write()


class _OrdersTable:
    """Writes the orders table version by version; rows keep their ids (row tracking)."""

    _COLUMNS = ("order_id", "customer", "country", "ordered_at", "amount", "status")
    _PROPERTIES = {  # noqa: RUF012
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "6",
        "delta.enableChangeDataFeed": "true",
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": _ROW_ID,
        "delta.rowTracking.materializedRowCommitVersionColumnName": _ROW_VERSION,
    }
    _PROTOCOL = Protocol(
        3,
        7,
        ["columnMapping", "deletionVectors"],
        ["changeDataFeed", "columnMapping", "deletionVectors", "domainMetadata", "rowTracking"],
    )

    def __init__(self, root: Path) -> None:
        self._physical = {name: f"col-{index}" for index, name in enumerate(self._COLUMNS, start=1)}
        self._writer = TableWriter(root, physical_names=self._physical, seed=1)
        self._random = random.Random(7)
        self._live: dict[str, list[tuple[AddFile, pa.Table]]] = {str(country): [] for country in _COUNTRIES}
        self._deleted: dict[str, set[int]] = {}  # positions of deleted rows, by the path of their file
        self._next_order = 1
        self._next_row_id = 0

    def write(self) -> None:
        """Write all versions."""
        self._commit([self._PROTOCOL, self._table("total"), *self._insert(2000, 0)], "CREATE TABLE AS SELECT", 0)
        self._commit([self._table("amount")], "RENAME COLUMN", 1)
        self._commit(self._insert(600, 2), "WRITE", 2)
        self._commit(self._delete_cancelled(3), "DELETE", 3)
        self._commit(self._correct_amounts("DE", 4), "UPDATE", 4)
        self._commit(self._compact("FR", 5), "OPTIMIZE", 5)
        self._commit(self._insert(400, 6), "WRITE", 6)

    def _commit(self, actions: Sequence[Action], operation: str, day: int) -> None:
        mark = f'{{"rowIdHighWaterMark":{self._next_row_id - 1}}}'
        self._writer.commit([*actions, DomainMetadata("delta.rowTracking", mark)], operation, _day(day))

    def _table(self, amount: str) -> Action:
        names = [amount if name == "amount" else name for name in self._COLUMNS]
        types = ("long", "string", "string", "timestamp", "double", "string")
        return metadata(
            list(zip(names, types, strict=True)),
            table_id="0a6f3a1e-6a53-4c5e-9d0f-6d9f2f6f5f01",
            name="orders",
            description="Orders of a small shop: inserted, corrected, cancelled and compacted",
            partition=["country"],
            configuration=self._PROPERTIES,
            physical_names={name: self._physical["amount" if name == amount else name] for name in names},
            time=_day(0),
        )

    def _insert(self, count: int, day: int) -> list[Action]:
        rows: dict[str, list[dict[str, Any]]] = {country: [] for country in self._live}
        for _ in range(count):
            rows[str(self._random.choices(_COUNTRIES, (5, 3, 3, 1))[0])].append(self._order(day))
        return [self._add(country, pa.Table.from_pylist(items, _ORDER_ROWS), day) for country, items in rows.items()]

    def _order(self, day: int) -> dict[str, Any]:
        number, self._next_order = self._next_order, self._next_order + 1
        seconds = self._random.randrange(86_400)
        return {
            "order_id": number,
            "customer": f"customer {self._random.randrange(300):03}",
            "ordered_at": _day(day) - datetime.timedelta(seconds=seconds, microseconds=number % 1000),
            "amount": None if number % 97 == 0 else round(self._random.lognormvariate(4, 0.8), 2),
            "status": self._random.choices(("paid", "open", "cancelled"), (8, 2, 1))[0],
        }

    def _add(self, country: str, rows: pa.Table, day: int, *, data_change: bool = True) -> AddFile:
        value = None if country == "None" else country
        add = self._writer.add(
            rows,
            {"country": value},
            time=_day(day),
            data_change=data_change,
            base_row_id=self._next_row_id,
            default_row_commit_version=self._writer.version + 1,
        )
        self._next_row_id += rows.num_rows
        self._live[country].append((add, rows))
        return add

    def _delete_cancelled(self, day: int) -> list[Action]:
        return self._mark_deleted(lambda rows: pc.equal(rows["status"], "cancelled"), list(self._live), day)

    def _mark_deleted(self, condition: Callable[[pa.Table], Any], countries: Sequence[str], day: int) -> list[Action]:
        """Delete rows with deletion vectors; a file's new vector includes its earlier one."""
        deleted: list[tuple[AddFile, list[int]]] = []
        for country in countries:
            for add, rows in self._live[country]:
                gone = self._deleted_mask(add, rows)
                hit = pc.and_not(pc.fill_null(condition(rows), False), gone)
                if pc.any(hit).as_py():
                    deleted.append((add, pc.indices_nonzero(pc.or_(hit, gone)).to_pylist()))
        actions = self._writer.delete(deleted, _day(day))
        marked = {action.path: action for action in actions if isinstance(action, AddFile)}
        for country in countries:
            self._live[country] = [(marked.get(add.path, add), rows) for add, rows in self._live[country]]
        self._deleted.update((add.path, set(positions)) for add, positions in deleted)
        return actions

    def _deleted_mask(self, add: AddFile, rows: pa.Table) -> pa.Array:
        gone = self._deleted.get(add.path, set())
        return pa.array([position in gone for position in range(rows.num_rows)], pa.bool_())

    def _correct_amounts(self, country: str, day: int) -> list[Action]:
        """Double the large amounts of a country: delete the old rows, add a file with the new ones, and write both as
        change data."""

        def large(rows: pa.Table) -> Any:
            return pc.and_(pc.greater(rows["amount"], 150), pc.not_equal(rows["status"], "cancelled"))

        before = pa.concat_tables(
            self._with_lineage(add, rows).filter(
                pc.and_not(pc.fill_null(large(rows), False), self._deleted_mask(add, rows))
            )
            for add, rows in self._live[country]
        )
        actions = self._mark_deleted(large, [country], day)
        amounts = pc.multiply(before["amount"], 2.0)
        after = before.set_column(before.schema.get_field_index("amount"), "amount", amounts)
        # The update is the last change of these rows, so they have the commit version of their file.
        stored = after.set_column(
            after.schema.get_field_index(_ROW_VERSION), _ROW_VERSION, pa.nulls(after.num_rows, pa.int64())
        )
        added = self._add(country, stored, day)
        plain = before.select(_ORDER_ROWS.names), after.select(_ORDER_ROWS.names)
        changes = pa.concat_tables(
            rows.append_column("_change_type", pa.array([kind] * rows.num_rows))
            for rows, kind in zip(plain, ("update_preimage", "update_postimage"), strict=True)
        )
        return [*actions, added, self._writer.change_file(changes, {"country": country})]

    def _compact(self, country: str, day: int) -> list[Action]:
        """Compact the files of a country into one file without deleted rows. No data changes, and rows keep their
        ids."""
        files, self._live[country] = self._live[country], []
        kept = [self._with_lineage(add, rows).filter(pc.invert(self._deleted_mask(add, rows))) for add, rows in files]
        removed = [remove(add, _day(day), data_change=False) for add, _ in files]
        return [*removed, self._add(country, pa.concat_tables(kept), day, data_change=False)]

    def _with_lineage(self, add: AddFile, rows: pa.Table) -> pa.Table:
        """Return rows with materialized ids and commit versions, which rows must have when they are copied to a new
        file."""
        assert add.base_row_id is not None
        ids = pa.array(range(add.base_row_id, add.base_row_id + rows.num_rows), pa.int64())
        versions = pa.array([add.default_row_commit_version] * rows.num_rows, pa.int64())
        for name, values in ((_ROW_ID, ids), (_ROW_VERSION, versions)):
            if name in rows.column_names:
                values = pc.coalesce(rows[name], values)
                rows = rows.set_column(rows.schema.get_field_index(name), name, values)
            else:
                rows = rows.append_column(name, values)
        return rows


_ORDER_ROWS = pa.schema(
    {
        "order_id": pa.int64(),
        "customer": pa.string(),
        "ordered_at": pa.timestamp("us", "UTC"),
        "amount": pa.float64(),
        "status": pa.string(),
    }
)


# --- demo.shop.products ---------------------------------------------------------------------------------------------


def _products(root: Path) -> None:
    numbers = random.Random(11)
    kinds = ("lamp", "chair", "table", "shelf", "rug")
    items = [
        {
            "product_id": number,
            "name": f"{numbers.choice(kinds)} no. {number}",
            "price": Decimal(numbers.randrange(500, 90_000)).scaleb(-2),
            "tags": numbers.sample(["new", "sale", "wood", "steel", "handmade"], numbers.randrange(4)),
            "sizes": {"width": numbers.randrange(20, 200), "height": numbers.randrange(20, 200)},
            "texts": [("en", f"product {number}"), ("de", f"Produkt {number}")],
            "since": datetime.date(2020, 1, 1) + datetime.timedelta(days=number * 7 % 2000),
        }
        for number in range(1, 201)
    ]
    sizes = pa.struct({"width": pa.int32(), "height": pa.int32()})
    schema = pa.schema(
        {
            "product_id": pa.int64(),
            "name": pa.string(),
            "price": pa.decimal128(8, 2),
            "tags": pa.list_(pa.string()),
            "sizes": sizes,
            "texts": pa.map_(pa.string(), pa.string()),
            "since": pa.date32(),
        }
    )
    side: list[dict[str, object]] = [
        {"name": name, "type": "integer", "nullable": True, "metadata": {}} for name in ("width", "height")
    ]
    fields: list[tuple[str, object]] = [
        ("product_id", "long"),
        ("name", "string"),
        ("price", "decimal(8,2)"),
        ("tags", {"type": "array", "elementType": "string", "containsNull": True}),
        ("sizes", {"type": "struct", "fields": side}),
        ("texts", {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}),
        ("since", "date"),
    ]
    writer = TableWriter(root, seed=2)
    described = metadata(
        fields,
        table_id="0a6f3a1e-6a53-4c5e-9d0f-6d9f2f6f5f02",
        name="products",
        description="What the shop sells, with nested columns",
        time=_day(0),
    )
    add = writer.add(pa.Table.from_pylist(items, schema), time=_day(0))
    writer.commit([Protocol(1, 2), described, add], "WRITE", _day(0))


# --- demo.lake.refunds ----------------------------------------------------------------------------------------------


def _refunds(root: Path) -> None:
    """Write an Iceberg table partitioned by month: two appends, with a column renamed in between, a delete and an
    update."""
    fields = [
        {"id": 1, "name": "refund_id", "required": True, "type": "long"},
        {"id": 2, "name": "order_id", "required": False, "type": "long"},
        {"id": 3, "name": "refunded_on", "required": False, "type": "date"},
        {"id": 4, "name": "why", "required": False, "type": "string"},
        {"id": 5, "name": "amount", "required": False, "type": "decimal(9, 2)"},
    ]
    months = {"name": "refunded_on_month", "field-id": 1000, "source-id": 3, "transform": "month"}
    writer = IcebergWriter(root, fields, months, "int", seed=4)
    writer.comment("What customers got back, and why")
    numbers = random.Random(17)
    for rows in _by_month(_some_refunds(numbers, 240, 1, 0, "why")):
        writer.add(rows, _month_of(rows))
    writer.commit("append", _day(30), tag="january")
    writer.rename("why", "reason")
    for rows in _by_month(_some_refunds(numbers, 60, 241, 30, "reason")):
        writer.add(rows, _month_of(rows))
    writer.commit("append", _day(60))
    withdrawn = {file: _places(file.rows, lambda number: number % 20 == 7) for file in writer.files}
    writer.delete({file: places for file, places in withdrawn.items() if places})
    writer.commit("delete", _day(61))
    file = writer.files[0]
    rows = file.live_rows()
    # An update writes the row again: it keeps its id, and gets the sequence number of the new file's commit.
    is_late = pc.less_equal(rows["refund_id"], 40)
    amounts = pc.if_else(is_late, pa.scalar(Decimal(0), rows.schema.field("amount").type), rows["amount"])
    updated = pc.if_else(is_late, pa.scalar(None, pa.int64()), rows[LAST_UPDATED])
    rows = rows.drop_columns(["amount", ROW_ID, LAST_UPDATED]).append_column("amount", amounts)
    rows = rows.append_column(ROW_ID, file.live_rows()[ROW_ID]).append_column(LAST_UPDATED, updated)
    rows = rows.rename_columns(["reason" if name == "why" else name for name in rows.column_names])
    writer.remove(file)
    writer.add(rows, _month_of(rows))
    writer.commit("overwrite", _day(62))


def _some_refunds(numbers: random.Random, count: int, first: int, day: int, reason: str) -> pa.Table:
    schema = pa.schema(
        [
            pa.field("refund_id", pa.int64(), nullable=False),
            ("order_id", pa.int64()),
            ("refunded_on", pa.date32()),
            (reason, pa.string()),
            ("amount", pa.decimal128(9, 2)),
        ]
    )
    items = [
        {
            "refund_id": number,
            "order_id": numbers.randrange(1, 3001),
            "refunded_on": (_day(day) + datetime.timedelta(days=numbers.randrange(30))).date(),
            reason: numbers.choice(("broken", "too small", "too large", "late", None)),
            "amount": Decimal(numbers.randrange(500, 30_000)).scaleb(-2),
        }
        for number in range(first, first + count)
    ]
    return pa.Table.from_pylist(items, schema)


def _by_month(rows: pa.Table) -> list[pa.Table]:
    months = pc.month(rows["refunded_on"])
    return [rows.filter(pc.equal(months, month)) for month in sorted(pc.unique(months).to_pylist())]


def _month_of(rows: pa.Table) -> int:
    """Return the number of the month, counted from 1970, of rows that all lie in one month."""
    day = rows["refunded_on"][0].as_py()
    return (day.year - 1970) * 12 + day.month - 1


def _places(rows: pa.Table, is_gone: Callable[[int], bool]) -> list[int]:
    return [place for place, number in enumerate(rows["refund_id"].to_pylist()) if is_gone(number)]


# --- demo.weather.readings ------------------------------------------------------------------------------------------


def _readings(root: Path) -> None:
    numbers = random.Random(13)
    schema = pa.schema({"taken_at": pa.timestamp("us", "UTC"), "celsius": pa.float64(), "rain": pa.int32()})
    writer = TableWriter(root, seed=3)
    described = metadata(
        [("station", "string"), ("day", "date"), ("taken_at", "timestamp"), ("celsius", "double"), ("rain", "integer")],
        table_id="0a6f3a1e-6a53-4c5e-9d0f-6d9f2f6f5f03",
        name="readings",
        description="A reading every half hour, by station and day",
        partition=["station", "day"],
        configuration={"delta.enableChangeDataFeed": "true"},
        time=_day(0),
    )
    for day in range(7):
        adds = []
        for station, mean in (("Bergen", 3.0), ("Ouagadougou", 27.0)):
            readings = [
                {
                    "taken_at": _day(day) + datetime.timedelta(minutes=30 * half_hour),
                    "celsius": round(numbers.gauss(mean, 2.0), 1),
                    "rain": None if numbers.random() < 0.05 else max(0, int(numbers.gauss(1, 3))),
                }
                for half_hour in range(32)
            ]
            partition = {"station": station, "day": _day(day).date().isoformat()}
            adds.append(writer.add(pa.Table.from_pylist(readings, schema), partition, time=_day(day + 1)))
        head: list[Action] = [Protocol(1, 4), described] if day == 0 else []
        writer.commit([*head, *adds], "WRITE", _day(day + 1))
