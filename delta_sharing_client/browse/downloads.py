"""Downloads for the browser: writes files into the folder of a run, reports the progress, and stops when the user
cancels."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from delta_sharing_client.browse.asked import Asked
from delta_sharing_client.browse.folders import file_asset
from delta_sharing_client.browse.session import ReadyFile, Session
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.fetch.report import Progress, ScanReport
from delta_sharing_client.outputs.excel import check_fits
from delta_sharing_client.outputs.file_formats import FileFormat
from delta_sharing_client.outputs.file_writers import write_file
from delta_sharing_client.plan.costs import expected_bytes
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.run.loop import in_thread
from delta_sharing_client.scans import ReadOutputs

_FORMATS = {form.value: form for form in (FileFormat.CSV, FileFormat.PARQUET, FileFormat.ARROW, FileFormat.XLSX)}
# A download checks whether it was cancelled after this many cells, because Python writes text formats slowly.
_CELLS_AT_ONCE = 50_000
_BLOCK = 1024 * 1024
_MOST_AT_ONCE = 8


class Ended(Exception):
    """The user cancelled the download."""


class Reading(Protocol):
    """What a download waits for: the rows so far, and the progress in bytes, ``None`` before it starts."""

    @property
    def rows(self) -> int: ...

    @property
    def progress(self) -> Progress | None: ...


class Download:
    """One download. ``state`` is ``running``, ``ready``, ``failed`` or ``ended``.

    ``write`` writes the file to a path. It often calls ``check``, and updates the numbers that ``told`` returns.
    """

    def __init__(self, session: Session, name: str) -> None:
        self.id = secrets.token_urlsafe()
        self.name = name
        self.state = "running"
        self.error = ""
        self.rows: int | None = None
        self.rows_in_all: int | None = None
        self.done = 0
        self.total: int | None = None
        self.file: str | None = None
        self.report: Reading | None = None
        self._session = session
        self._is_ended = threading.Event()
        self._cancel: Callable[[], object] | None = None

    def start(self, write: Callable[[Path], None]) -> None:
        """Write the file on another thread."""
        in_thread(lambda: self._run(write))

    def _run(self, write: Callable[[Path], None]) -> None:
        path = self._session.new_path()
        try:
            write(path)
            self.file = self._session.offer(ReadyFile(path, self.name))
            # A download that was cancelled offers nothing.
            self.check()
            self.state = "ready"
        except BaseException as error:
            if self.file is not None:
                self._session.withdraw(self.file)
            with contextlib.suppress(OSError):
                path.unlink()
            if self._is_ended.is_set():
                self.state = "ended"
                return
            if isinstance(error, DeltaSharingError):
                self.error = self._session.masked(str(error))
            elif isinstance(error, OSError):
                self.error = f"The file cannot be written: {error.strerror or 'the system refused it'}."
            else:
                self.error = f"An unexpected {type(error).__name__} occurred. This is a bug in delta_sharing_client."
            self.state = "failed"

    def check(self) -> None:
        """Raise ``Ended`` if the download was cancelled."""
        if self._is_ended.is_set():
            raise Ended

    def end(self) -> None:
        """Cancel the download from any thread. It ends shortly afterwards, and its file is removed."""
        self._is_ended.set()
        cancel = self._cancel
        if cancel is not None:
            cancel()
        if self.file is not None:
            self._session.withdraw(self.file)
            self.state = "ended"

    def watch(self, cancel: Callable[[], object], report: Reading) -> None:
        """Call ``cancel`` when this download is cancelled, and take the progress from ``report``."""
        self._cancel, self.report = cancel, report
        self.check()

    def told(self) -> dict[str, object]:
        """Return the state and the progress as JSON values."""
        progress = None if self.report is None else self.report.progress
        rows = self.rows if self.report is None else self.report.rows
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "error": self.error,
            "rows": rows,
            "rowsInAll": self.rows_in_all,
            "bytes": self.done if progress is None else progress.bytes_fetched,
            "bytesInAll": self.total if progress is None else progress.bytes_expected,
            "file": self.file,
        }


def format_of(asked: Asked) -> FileFormat:
    """Return the requested format of a file of rows."""
    file_format = _FORMATS.get(asked.text("format"))
    if file_format is None:
        raise UsageError(f"Expected one of the formats {', '.join(_FORMATS)}, found {asked.text('format')!r}.")
    return file_format


def begin(session: Session, asked: Asked) -> dict[str, object]:
    """Start a download of rows as a file; ``format`` is csv, parquet, arrow or xlsx."""
    file_format = format_of(asked)
    read, changes = asked.read(session.patient), asked.number("changes")
    suffix = "" if changes is None else f"-changes-{changes}"
    download = new_download(session, f"{asked.full_name.name}{suffix}.{file_format.value}")
    download.start(lambda path: _write_rows(session, download, read, path, file_format))
    return download.told()


def _write_rows(session: Session, download: Download, read: ReadOutputs, path: Path, file_format: FileFormat) -> None:
    # The read is planned on this thread, because a long listing must not delay the page.
    if file_format is FileFormat.XLSX:
        check_fits(read)
    plan = read.plan()
    download.check()
    session.check_room(expected_bytes(plan))
    download.rows_in_all = plan.known_rows
    report = ScanReport()
    with Batches(plan, report) as batches:
        download.watch(batches.cancel, report)
        write_file(parts(download, batches, file_format), plan.output_schema, path, file_format)


def parts(download: Download, batches: Iterable[pa.RecordBatch], file_format: FileFormat) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts that are written quickly, so that a cancelled download ends soon."""
    is_slow = file_format in (FileFormat.CSV, FileFormat.XLSX)
    for batch in batches:
        # Batches for Parquet are not split, because each becomes a row group.
        size = max(1, _CELLS_AT_ONCE // max(1, batch.num_columns)) if is_slow else max(1, batch.num_rows)
        for start in range(0, max(1, batch.num_rows), size):
            download.check()
            yield batch.slice(start, size)


def begin_file(session: Session, asked: Asked) -> dict[str, object]:
    """Start a download of a file of a volume, a skill or a version of a model."""
    asset, path = file_asset(session, asked, patient=True), asked.text("path")
    download = new_download(session, path.rpartition("/")[2])

    def write(target: Path) -> None:
        size = download.total = asset.stat(path).size
        session.check_room(size)
        with asset.open(path) as source, target.open("xb") as sink:
            while data := source.read(_BLOCK):
                download.check()
                sink.write(data)
                download.done += len(data)

    download.start(write)
    return download.told()


def progress(session: Session, asked: Asked) -> dict[str, object]:
    """Return the state of a download, with the name of its ``file`` when it is ready."""
    return _known(session, asked).told()


def cancel(session: Session, asked: Asked) -> dict[str, object]:
    """Cancel a download and remove its file."""
    download = _known(session, asked)
    download.end()
    session.downloads.pop(download.id, None)
    return {"id": download.id}


def new_download(session: Session, name: str) -> Download:
    """Return a download for a file with this name, which ``cancel`` finds."""
    running = [one for one in list(session.downloads.values()) if one.state == "running"]
    if len(running) >= _MOST_AT_ONCE:
        raise UsageError(f"At most {_MOST_AT_ONCE} downloads can run at once. Wait until one has ended, or cancel one.")
    download = Download(session, name)
    session.downloads[download.id] = download
    return download


def _known(session: Session, asked: Asked) -> Download:
    download = session.downloads.get(asked.text("id"))
    if not isinstance(download, Download):
        raise UsageError("This download was cancelled. Start it again.")
    return download
