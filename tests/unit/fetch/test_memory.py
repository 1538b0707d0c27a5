"""Download buffers: memory comes back when the last reference is gone, and never before."""

from __future__ import annotations

import gc
import threading

import pyarrow as pa

from delta_sharing_client.fetch.memory import Buffers

MB = 1024 * 1024


def test_memory_is_used_again_once_nothing_refers_to_it() -> None:
    buffers = Buffers(16 * MB)
    first = buffers.take(MB)
    address = first.address

    del first
    again = buffers.take(MB - 1000)

    assert again.address == address
    assert again.size == MB - 1000
    assert buffers.idle() == 0


def test_slices_and_views_keep_the_memory() -> None:
    buffers = Buffers(16 * MB)
    whole = buffers.take(MB)
    memoryview(whole).cast("B")[:4] = b"abcd"
    slice_ = whole.slice(0, 4)
    view = memoryview(whole)[2:4]
    array = pa.Array.from_buffers(pa.uint8(), 4, [None, slice_])

    del whole, slice_
    others = [buffers.take(MB) for _ in range(4)]
    for other in others:
        memoryview(other).cast("B")[:4] = b"zzzz"

    assert array.to_pylist() == [*b"abcd"]
    del array
    assert buffers.idle() == 0
    assert bytes(view) == b"cd"
    del view
    assert buffers.idle() == MB


def test_memory_that_does_not_fit_is_not_used() -> None:
    buffers = Buffers(64 * MB)
    addresses = set()
    for size in (4 * MB, MB):
        taken = buffers.take(size)
        addresses.add(taken.address)
        del taken

    larger = buffers.take(5 * MB)

    assert larger.address not in addresses
    assert larger.size == 5 * MB
    assert buffers.idle() == 5 * MB


def test_idle_memory_is_dropped_where_there_would_be_too_much() -> None:
    buffers = Buffers(8 * MB)
    taken = [buffers.take(size * MB) for size in (1, 2, 3)]
    taken.clear()
    assert buffers.idle() == 6 * MB

    held = buffers.take(5 * MB)

    assert buffers.idle() == 3 * MB
    more = buffers.take(6 * MB)
    assert buffers.idle() == 0
    assert held.size + more.size == 11 * MB


def test_buffers_outlive_the_place_they_came_from() -> None:
    buffers = Buffers(8 * MB)
    kept = buffers.take(MB)
    memoryview(kept).cast("B")[-1:] = b"x"

    del buffers
    gc.collect()

    assert kept.slice(MB - 1).to_pybytes() == b"x"


def test_threads_never_share_memory() -> None:
    buffers = Buffers(16 * MB)
    wrong: list[int] = []

    def work(mark: int) -> None:
        for _ in range(200):
            taken = buffers.take(100_000)
            view = memoryview(taken).cast("B")
            view[:] = bytes([mark]) * 100_000
            if bytes(view) != bytes([mark]) * 100_000:
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert buffers.idle() <= 16 * MB
