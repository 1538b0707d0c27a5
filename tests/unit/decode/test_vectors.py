"""Downloads of deletion vectors: their ranges, order and errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.decode import vectors as vectors_read
from delta_sharing_client.decode.vectors import Vectors
from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file
from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.plan.tasks import DeletionVectorRef, FileTask

MiB = 1 << 20
URL = "https://h/dv.bin"
BLOB, (DESCRIPTOR,) = encode_file([DeletionVector.from_positions([1, 5])], "placeholder")


def ref(offset: int = 1, size: int = 100, *, url: str = URL, kind: str = "p") -> DeletionVectorRef:
    return DeletionVectorRef(DeletionVectorDescriptor(kind, url, size, 2, offset), key="k")


def task(without: DeletionVectorRef | None = None, only: DeletionVectorRef | None = None) -> FileTask:
    return FileTask(key="f", url="https://h/f", file_id="id-f", renew_at=77, without=without, only=only)


class Storage:
    """A replacement for remote files, which all have the bytes ``content``; ``requests`` records the reads."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.requests: list[tuple[dict[str, Any], ByteRange]] = []
        self.report = ScanReport()

    def open(self, reader: Any, **arguments: Any) -> Any:
        storage = self

        class File:
            async def read(self, span: ByteRange) -> pa.Buffer:
                storage.requests.append((arguments, span))
                return pa.py_buffer(storage.content[span.start : span.stop])

        return File()


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Storage:
    replacement = Storage(BLOB)
    monkeypatch.setattr(vectors_read, "RemoteFile", replacement.open)
    return replacement


def get(vectors: Vectors, vector: DeletionVectorRef, number: int = 0) -> list[int]:
    return asyncio.run(vectors.get(vector, task(vector), number)).positions().tolist()


STORED = ref(DESCRIPTOR.offset or 0, DESCRIPTOR.size_in_bytes)


def test_vector_is_fetched_with_the_options_of_its_file(storage: Storage) -> None:
    assert get(Vectors("t", storage), STORED, 7) == [1, 5]  # type: ignore[arg-type]
    [(arguments, span)] = storage.requests
    assert arguments == {
        "key": "k", "url": URL, "size": -1, "file_id": "id-f", "renew_at": 77, "order": (7,),
    }  # fmt: skip
    assert span == ByteRange(STORED.descriptor.offset or 0, len(BLOB))
    assert storage.report.seconds.keys() == {"fetch"}


@pytest.mark.parametrize("offset", [None, 0])
def test_a_vector_without_offset_is_fetched_from_byte_0(storage: Storage, offset: int | None) -> None:
    storage.content = BLOB[1:]
    vector = DeletionVectorRef(DeletionVectorDescriptor("p", URL, DESCRIPTOR.size_in_bytes, 2, offset), key="k")
    vectors = Vectors("t", storage)  # type: ignore[arg-type]
    vectors.note(task(vector))
    assert get(vectors, vector) == [1, 5]
    assert [span for _, span in storage.requests] == [ByteRange(0, len(BLOB) - 1)]


def spans(*places: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the ranges downloaded for vectors at these offsets; the lengths include size and checksum."""
    vectors = Vectors("t", None)  # type: ignore[arg-type]
    for start, length in places:
        vectors.note(task(ref(start, length - 8)))
    span = vectors._span(URL, ByteRange(places[0][0], places[0][0] + places[0][1]))
    assert span.range.start == places[0][0]
    downloads = vectors._spans[URL]
    assert sum(download.users for download in downloads) == len(places)
    assert vectors._noted == {}
    return [tuple(download.range) for download in downloads]


@pytest.mark.parametrize(("gap", "count"), [(0, 1), (65 * 1024, 1), (4 * MiB, 1), (4 * MiB + 1, 2)])
def test_vectors_with_a_small_gap_take_one_request(gap: int, count: int) -> None:
    assert len(spans((1, 100), (101 + gap, 50))) == count


@pytest.mark.parametrize(("size", "count"), [(100, 2), (200 * MiB, 2)])
def test_sum_of_the_gaps_between_vectors_is_limited(size: int, count: int) -> None:
    gap = 3 * MiB
    assert len(spans((1, size), (1 + size + gap, size), (1 + 2 * (size + gap), size))) == count


def test_both_vectors_of_a_task_are_fetched_together() -> None:
    vectors = Vectors("t", None)  # type: ignore[arg-type]
    vectors.note(task(ref(1, 92), ref(501, 92)))
    vectors.note(task(None, ref(301, 92)))
    assert vectors._span(URL, ByteRange(301, 401)).range == ByteRange(1, 601)


def test_question_mark_in_a_store_is_part_of_the_name() -> None:
    vectors = Vectors("t", None)  # type: ignore[arg-type]
    for address in ("s3://b/t/a?1.bin", "s3://b/t/a?2.bin"):
        vectors.note(task(ref(url=address)))
    assert list(vectors._noted) == ["s3://b/t/a?1.bin", "s3://b/t/a?2.bin"]


@pytest.mark.parametrize(
    ("start", "length", "is_inside"),
    [(101, 100, True), (120, 50, True), (100, 50, False), (100, 200, False), (151, 51, False), (201, 50, False)],
)
def test_vector_in_a_started_download_is_not_added_again(start: int, length: int, is_inside: bool) -> None:
    vectors = Vectors("t", None)  # type: ignore[arg-type]
    vectors.note(task(ref(101, 92)))
    span = vectors._span(URL, ByteRange(101, 201))
    vectors.note(task(ref(start, length - 8)))
    assert span.users == 1 + is_inside
    assert vectors._noted == ({} if is_inside else {URL: [ByteRange(start, start + length)]})


def test_invalid_vector_position_is_an_error_when_noted() -> None:
    with pytest.raises(DataError) as caught:
        Vectors("t", None).note(task(ref(-5)))  # type: ignore[arg-type]
    assert (caught.value.table, caught.value.file_id) == ("t", "id-f")
