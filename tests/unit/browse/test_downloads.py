"""A download of the page tells its state, and whenever it does not end well, its file is removed."""

from __future__ import annotations

import pathlib
import types
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.browse import downloads
from delta_sharing_client.browse.asked import Asked
from delta_sharing_client.browse.downloads import Download
from delta_sharing_client.browse.session import ReadyFile
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.outputs.file_formats import FileFormat


class Run:
    """The parts of a session that downloads use."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path, self.downloads = folder / "file", dict[str, Any]()
        self.offered: dict[str, ReadyFile] = {}
        self.after_offer: Callable[[], object] = lambda: None

    def new_path(self) -> pathlib.Path:
        return self.path

    def offer(self, file: ReadyFile) -> str:
        self.offered["name"] = file
        self.after_offer()
        return "name"

    def withdraw(self, name: str) -> None:
        self.offered.pop(name).path.unlink(missing_ok=True)

    def masked(self, text: str) -> str:
        return text.replace("secret", "***")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "in_thread", lambda call: call())


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    return Run(tmp_path)


def started(run: Any, write: Callable[[pathlib.Path], object]) -> tuple[str, str]:
    download = Download(run, "a.csv")
    download.start(write)  # type: ignore[arg-type]
    told = download.told()
    assert (told["id"], told["name"]) == (download.id, "a.csv")
    assert (told["file"] in run.offered) == (download.state == "ready") == run.path.exists()
    return str(told["state"]), str(told["error"])


def test_written_file_is_offered(run: Run) -> None:
    assert started(run, lambda path: path.write_bytes(b"rows")) == ("ready", "")
    assert run.offered["name"] == ReadyFile(run.path, "a.csv")


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DataError("A secret is damaged."), "A *** is damaged."),
        (OSError(28, "No space left on device"), "The file cannot be written: No space left on device."),
        (OSError("odd"), "The file cannot be written: the system refused it."),
        (KeyError("secret"), "An unexpected KeyError occurred. This is a bug in delta_sharing_client."),
    ],
)
def test_failed_download_says_why(run: Run, error: Exception, told: str, is_begun: bool) -> None:
    def write(path: pathlib.Path) -> None:
        if is_begun:
            path.write_bytes(b"some rows")
        raise error

    assert started(run, write) == ("failed", told)


@pytest.mark.parametrize("moment", ["before", "while writing", "after writing", "when offered"])
def test_cancelled_download_leaves_no_file(run: Run, moment: str) -> None:
    download = Download(run, "a.csv")  # type: ignore[arg-type]

    def write(path: pathlib.Path) -> None:
        path.write_bytes(b"some rows")
        if moment == "while writing":
            download.end()
            download.check()
        if moment == "after writing":
            download.end()

    if moment == "when offered":
        run.after_offer = download.end
    if moment == "before":
        download.end()
    download.start(write)
    assert (download.told()["state"], download.told()["error"]) == ("ended", "")
    assert not run.path.exists()
    assert run.offered == {}


def test_ready_download_is_removed_when_it_is_cancelled(run: Run) -> None:
    download = Download(run, "a.csv")  # type: ignore[arg-type]
    download.start(lambda path: path.write_bytes(b"rows") and None)
    run.downloads[download.id] = download
    assert downloads.cancel(run, Asked({"id": download.id})) == {"id": download.id}  # type: ignore[arg-type]
    assert (download.state, run.offered, run.path.exists(), run.downloads) == ("ended", {}, False, {})
    with pytest.raises(UsageError, match="was cancelled"):
        downloads.progress(run, Asked({"id": download.id}))  # type: ignore[arg-type]


def test_cancelling_ends_the_batches(run: Run) -> None:
    ended = []
    batches: Any = types.SimpleNamespace(cancel=lambda: ended.append(True))
    download = Download(run, "a.csv")  # type: ignore[arg-type]
    download.watch(batches.cancel, types.SimpleNamespace(progress=None, rows=5))  # type: ignore[arg-type]
    assert (download.told()["rows"], download.told()["bytes"], download.told()["bytesInAll"]) == (5, 0, None)
    download.end()
    assert ended == [True]
    with pytest.raises(downloads.Ended):
        download.watch(batches.cancel, types.SimpleNamespace(progress=None, rows=5))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "rows", "file_format", "sizes"),
    [
        (1, 120_000, FileFormat.CSV, [50_000, 50_000, 20_000]),
        (100, 1_200, FileFormat.CSV, [500, 500, 200]),
        (100, 1_200, FileFormat.PARQUET, [1_200]),
        (60_000, 2, FileFormat.XLSX, [1, 1]),
        (1, 0, FileFormat.CSV, [0]),
        (0, 3, FileFormat.CSV, [3]),
    ],
)
def test_slow_formats_are_written_in_small_parts(
    run: Run, columns: int, rows: int, file_format: FileFormat, sizes: list[int]
) -> None:
    nulls = pa.nulls(rows)
    batch = pa.RecordBatch.from_arrays([nulls] * columns, names=[str(at) for at in range(columns)])
    if not columns:
        batch = pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    download = Download(run, "a.csv")  # type: ignore[arg-type]
    parts = downloads.parts(download, [batch], file_format)
    assert [part.num_rows for part in parts] == sizes


def test_no_more_than_eight_downloads_run_at_once(run: Run) -> None:
    for _ in range(8):
        downloads.new_download(run, "a")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="At most 8 downloads"):
        downloads.new_download(run, "a")  # type: ignore[arg-type]
    next(iter(run.downloads.values())).state = "failed"
    assert downloads.new_download(run, "b").name == "b"  # type: ignore[arg-type]
    assert len(run.downloads) == 9
