"""The query box: what a query over shared tables costs, its first rows, and all of its rows as a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from delta_sharing_client import optional, queries
from delta_sharing_client.browse import downloads
from delta_sharing_client.browse.asked import Asked
from delta_sharing_client.browse.cells import MOST_COLUMNS, cells_of
from delta_sharing_client.browse.code import query_programs
from delta_sharing_client.browse.completion import quoted
from delta_sharing_client.browse.session import ASKED_FROM, Session
from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.report import Progress
from delta_sharing_client.limited_reads import ENDING, Allowance, Ending, LimitedScan, PlannedScan
from delta_sharing_client.outputs.file_writers import write_file
from delta_sharing_client.plan.costs import expected_bytes
from delta_sharing_client.plan.explain import explain
from delta_sharing_client.read_base import Read
from delta_sharing_client.run.loop import on_cancellation
from delta_sharing_client.table import SharedTable
from delta_sharing_client.threads import start

MOST_ROWS = 1_000
_LEAST_ROWS = 100
# With more columns than this allows, fewer rows are shown.
_MOST_CELLS = 50_000
_UNFORESEEN = (
    "Its plan did not foresee this, because the table changed or the query reads it repeatedly; run it with "
    "'delta-sharing sql'."
)


class _Query:
    """One run of a query, with the rows and the progress of a download."""

    def __init__(self, client: SharingClient, sql: str, most: int = 0) -> None:
        self.rows = 0
        self._client, self._sql, self._most = client, sql, most
        self._ending = Ending()
        self._allowance: Allowance | None = None

    def cancel(self) -> None:
        """End the query, from any thread, without waiting for its end."""
        start(self._ending.end, "end")

    @contextlib.contextmanager
    def reader(self, scan_of: Callable[[SharedTable], Read] | None = None) -> Iterator[pa.RecordBatchReader]:
        """Yield the rows of the query over ``scan_of`` of its tables; by default, reads of at most ``most`` bytes."""
        token = ENDING.set(self._ending)
        allowance = self._allowance = Allowance(self._most, _UNFORESEEN)
        try:
            with queries.confined(self._client) as connection:
                scan_of = scan_of or (lambda table: LimitedScan.of(table.scan(), allowance))
                relation = queries.relation(self._client, self._sql, connection, scan_of=scan_of)
                with queries.rows_of(self._client, relation) as reader:
                    yield reader
        finally:
            ENDING.reset(token)
            self._ending.finish()

    @property
    def read(self) -> int:
        """The downloaded bytes."""
        return 0 if self._allowance is None else sum(report.bytes for report in list(self._allowance.reports))

    @property
    def progress(self) -> Progress:
        """The downloaded bytes, of those that were agreed to."""
        return Progress(0, 0, 0, 0, self.rows, self.read, max(self.read, self._most))


def first(session: Session, asked: Asked) -> dict[str, object]:
    """Return a first query: some rows of the table ``name``, if there is one. Raises ``UsageError`` if DuckDB is not
    installed."""
    optional.load("duckdb", "duckdb")
    name = ".".join(map(quoted, asked.texts("name")))
    return {"sql": f"SELECT * FROM {name} LIMIT 100" if name else ""}


def planned(session: Session, asked: Asked) -> dict[str, object]:
    """Return what the query ``sql`` downloads at most: bytes and files, in total and for each table it names.

    DuckDB runs the query over tables without rows, so the plans have the columns and conditions that it pushes down.
    """
    scans: list[PlannedScan] = []

    def scan_of(table: SharedTable) -> Read:
        scans.append(PlannedScan.of(table.scan()))
        return scans[-1]

    query = _Query(session.client, _sql(asked))
    on_cancellation(query.cancel)
    with query.reader(scan_of) as reader:
        # A query without tables downloads nothing, but may compute for long.
        for _ in reader if scans else ():
            pass
    plans = [plan for scan in scans for plan in scan.plans]
    needed = sum(map(expected_bytes, plans))
    return {
        "bytes": needed,
        "asks": needed > ASKED_FROM,
        "files": sum(len(plan.tasks) for plan in plans),
        "tables": [
            {
                "name": str(scan.table),
                "bytes": sum(map(expected_bytes, scan.plans)),
                "files": sum(len(plan.tasks) for plan in scan.plans),
            }
            for scan in scans
        ],
        "notes": sorted({note for plan in plans for note in plan.notes}),
        "plan": [line for plan in plans for line in explain(plan).splitlines()],
    }


def rows(session: Session, asked: Asked) -> dict[str, object]:
    """Return the first rows of the query ``sql``, as strings, and the downloaded bytes.

    It downloads at most ``agreed`` bytes, the total of its plan, or what the page downloads without asking.
    """
    query = _Query(session.client, _sql(asked), _most(asked))
    on_cancellation(query.cancel)
    with query.reader() as reader:
        names = reader.schema.names
        kept = list(range(min(len(names), MOST_COLUMNS)))
        schema = pa.schema([reader.schema.field(at) for at in kept])
        most = max(_LEAST_ROWS, min(MOST_ROWS, _MOST_CELLS // max(1, len(kept))))
        cells = cells_of((batch.select(kept) for batch in reader), schema, most=most)
    return {**cells, "columnsInAll": len(names), "read": query.read}


def begin(session: Session, asked: Asked) -> dict[str, object]:
    """Start a download of all rows of the query ``sql`` as a file, with the limit of ``rows``; ``format`` is csv,
    parquet, arrow or xlsx."""
    file_format = downloads.format_of(asked)
    query = _Query(session.patient, _sql(asked), _most(asked))
    download = downloads.new_download(session, f"query.{file_format.value}")

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            query.rows += batch.num_rows
            yield batch

    def write(path: Path) -> None:
        session.check_room(asked.number("agreed") or 0)
        download.watch(query.cancel, query)
        with query.reader() as reader:
            write_file(downloads.parts(download, counted(reader), file_format), reader.schema, path, file_format)

    download.start(write)
    return download.told()


def code(session: Session, asked: Asked) -> dict[str, object]:
    """Return the programs that run the query ``sql``."""
    programs = query_programs(session.profile_text, _sql(asked))
    return {"programs": [{"name": name, "text": text} for name, text in programs.items()]}


def _sql(asked: Asked) -> str:
    sql = asked.text("sql")
    if not sql.strip():
        raise UsageError("There is no query yet: type one, such as SELECT * FROM share.schema.table LIMIT 100.")
    return sql


def _most(asked: Asked) -> int:
    return max(ASKED_FROM, asked.number("agreed") or 0)
