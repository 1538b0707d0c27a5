"""The rows of one file on their way to the consumer, who takes the rows of the files in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from delta_sharing_client.decode.pace import Pace
from delta_sharing_client.fetch.waiting import until
from delta_sharing_client.plan.tasks import FileTask


class Item(NamedTuple):
    """Rows of one or more files on their way to the consumer.

    ``begins`` and ``ends`` say whether the files' first and last rows are among them. ``release`` frees the rows'
    memory; it must be called on the event loop.
    """

    batches: list[pa.RecordBatch]
    tasks: Sequence[FileTask]
    begins: bool
    ends: bool
    release: Callable[[], None]


class FileRows:
    """The rows of ``tasks``, in order: of one file, or of several files with constant rows.

    They wait here until all earlier files are finished, and are then passed to ``forward``. ``on_taken`` is called on
    the event loop each time the consumer has taken an item.
    """

    def __init__(
        self,
        tasks: Sequence[FileTask],
        pace: Pace,
        forward: Callable[[Item], None],
        on_taken: Callable[[], None],
    ) -> None:
        self.tasks = tasks
        self.is_over = False
        self.failure: BaseException | None = None
        self.news = asyncio.Event()
        self._pace = pace
        self._forward_item = forward
        self._on_taken = on_taken
        self._waiting: list[tuple[list[pa.RecordBatch], Callable[[], None]]] = []
        self._untaken = 0
        self._is_forwarded = False
        self._is_head = False

    def send(self, batches: list[pa.RecordBatch], release: Callable[[], None]) -> None:
        """Send ``batches``; ``release`` is called on the event loop once the consumer has taken them."""
        self._untaken += 1
        if self._is_head:
            self._forward(batches, release, ends=False)
        else:
            self._waiting.append((batches, release))

    async def turn(self) -> None:
        """Wait until all earlier files are finished."""
        await until(self.news, lambda: self._is_head)

    async def taken(self, most: int) -> None:
        """Wait until the consumer has taken all but ``most`` of the sent items."""
        await until(self.news, lambda: self._untaken <= most)

    async def wanted(self) -> None:
        """Wait until the consumer has taken all sent items, or ``Pace`` no longer limits the read."""
        await until(self.news, lambda: not self._untaken or self._pace.is_full)

    def drop(self) -> bool:
        """Drop the rows that were not forwarded; return whether none was forwarded."""
        self._untaken -= len(self._waiting)
        for _, release in self._waiting:
            release()
        self._waiting.clear()
        return not self._is_forwarded

    def advance(self) -> bool:
        """Forward the available rows; called once all earlier files are finished. Return whether this file is finished.

        Raises ``failure`` if the file failed.
        """
        if not self._is_head:
            self._is_head = True
            self.news.set()
        last = self._waiting.pop() if self.is_over and self._waiting else None
        for batches, release in self._waiting:
            self._forward(batches, release, ends=False)
        self._waiting.clear()
        if not self.is_over:
            return False
        if self.failure is not None:
            raise self.failure
        self._forward(*(last or ([], nothing)), ends=True)
        return True

    def _forward(self, batches: list[pa.RecordBatch], release: Callable[[], None], *, ends: bool) -> None:
        begins, self._is_forwarded = not self._is_forwarded, True

        def taken() -> None:
            self._untaken -= 1
            self.news.set()
            self._on_taken()
            release()

        self._forward_item(Item(batches, self.tasks, begins, ends, taken))


def nothing(*_: object) -> None:
    """Do nothing: the ``release`` of rows that hold no memory of a budget."""
