"""Downloads into local files: what is written when, and how the errors of the disk are told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from delta_sharing_client.errors import TransportError
from delta_sharing_client.fetch import file_target
from delta_sharing_client.fetch.file_target import Workshop, download
from delta_sharing_client.fetch.place import Bytes, Checksum
from delta_sharing_client.http.retry import Transient
from delta_sharing_client.parquet.byte_ranges import ByteRange, split
from tests.time_limits import HANGS
from tests.unit.fetch.test_transfers import DATA, SIZE, Sent, Store, made


class Target:
    """A file in memory that arrives in two parts; ``fails`` is the number of the write that finds the disk full."""

    def __init__(self, fails: int = 0) -> None:
        self.content = bytearray(SIZE)
        self.fails, self.writes = fails, 0
        self.is_finished = False

    def missing(self, size: int) -> Sequence[ByteRange]:
        return split(ByteRange(0, size), size // 2)

    def write(self, at: int, pieces: Sequence[Bytes], *, is_hashed: bool) -> None:
        self.writes += 1
        if self.writes == self.fails:
            raise OSError(28, "No space left on device")
        for piece in pieces:
            self.content[at : at + len(piece)] = piece
            at += len(piece)

    def finish(self, checksum: Checksum | None) -> bool:
        self.is_finished = True
        return True


def downloaded(store: Store, target: Target) -> None:
    def run(call: Callable[[], Any]) -> Any:
        return asyncio.get_running_loop().run_in_executor(None, call)

    async def begun() -> None:
        await asyncio.wait_for(download(made(store), target, Workshop(run)), HANGS)

    asyncio.run(begun())


@pytest.fixture(autouse=True)
def pieces_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_target, "_PIECES_BYTES", 14)


def parts() -> list[Sent]:
    return [Sent(0, 50), Sent(50)]


def test_parts_are_written_while_they_arrive() -> None:
    target = Target()
    downloaded(Store(parts()), target)
    assert (bytes(target.content), target.is_finished) == (DATA, True)
    assert target.writes >= 2


@pytest.mark.parametrize("number", [1, 2])
def test_full_disk_is_no_failure_of_the_network(number: int) -> None:
    target, store = Target(fails=number), Store(parts())
    with pytest.raises(OSError, match="No space left"):
        downloaded(store, target)
    assert not target.is_finished
    assert len(store.requests) <= 2


def test_bytes_before_a_failure_are_written() -> None:
    target = Target()
    broken = Transient(TransportError("broken"))
    store = Store([Sent(0, 50), Sent(50, broken=True, data=DATA[50:60]), broken, broken, broken])
    with pytest.raises(TransportError, match="broken"):
        downloaded(store, target)
    assert (bytes(target.content[:60]), bytes(target.content[60:])) == (DATA[:60], bytes(40))


def test_write_that_runs_ends_before_the_download() -> None:
    """Nothing may be written after the error, because the file may be removed then."""
    may_end, has_ended = threading.Event(), threading.Event()

    class Slow(Target):
        def write(self, at: int, pieces: Sequence[Bytes], *, is_hashed: bool) -> None:
            may_end.wait(HANGS)
            super().write(at, pieces, is_hashed=is_hashed)
            has_ended.set()

    class Refusing(Sent):
        async def read(self) -> bytes:
            if self.data and len(self.data) < SIZE // 2 - 20:
                asyncio.get_running_loop().call_later(0.05, may_end.set)
                raise ValueError("stop")
            return await super().read()

    with pytest.raises(ValueError, match="stop"):
        downloaded(Store([Refusing(0, 50), Refusing(50)]), Slow())
    assert has_ended.is_set()
