"""Reads whole objects and listings of a place for callers on threads; the event loop sends the requests."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from delta_sharing_client.fetch.listing import list_pages
from delta_sharing_client.fetch.place import Page, Place, Refused, Version
from delta_sharing_client.fetch.source import MOST_IN_ONE_RESPONSE, Attempt, Fetcher, RemoteFile, Stale
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.run import loop

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_AHEAD = 16


async def read_object(
    place: Place,
    address: str,
    *,
    name: str,
    refusal: Callable[[Refused], Exception],
    size: int = -1,
    wanted: ByteRange | None = None,
    version: Version | None = None,
    file_id: str | None = None,
    most: int | None = None,
    once: bool = False,
) -> memoryview:
    """Return the bytes of an object, or those of the range ``wanted``, all of one version.

    ``name`` is what errors call the object, and ``refusal`` returns the error for a response that is not data. ``size``
    is its stated size, -1 if unknown, and ``version`` the expected version. If a response has another one, the bytes
    are read again, of any version of this size, and a third time in one response, unless they are a range of a large
    object. Raises ``DataError`` if the object has more than ``most`` bytes, does not have the stated size or was
    replaced during each attempt, and ``TransportError`` if it does not arrive within the limits. With ``once`` there is
    one attempt, which raises ``Stale``.
    """
    fetcher = Fetcher(place)
    last = Attempt.AGAIN if wanted is not None and size > MOST_IN_ONE_RESPONSE else Attempt.IN_ONE_RESPONSE
    attempt = Attempt.FIRST

    while True:
        file = RemoteFile(
            fetcher,
            key=address,
            url=address,
            size=size,
            file_id=file_id,
            attempt=attempt,
            version=version if attempt is Attempt.FIRST else None,
            name=name,
            refusal=refusal,
        )
        try:
            data = await file.read_all(most) if wanted is None else await file.read(wanted)
            return memoryview(data).cast("B")
        except Stale as stale:
            if once:
                raise
            if attempt is last:
                raise stale.ended() from None
        attempt = Attempt(attempt + 1)


def pages(place: Place, folder: str = "", *, recursive: bool = True, subject: str) -> Iterator[Page]:
    """List files as ``list_pages`` does; the next page is requested while the caller uses one."""
    return iterate(lambda: list_pages(Fetcher(place), folder, recursive=recursive, subject=subject))


def iterate(make: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """Iterate on this thread over the asynchronous generator that ``make`` returns, which runs on the event loop."""
    generator: AsyncGenerator[T, None] | None = None
    try:
        generator = make()
        while True:
            try:
                item = loop.call(generator.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        if generator is not None:
            # Without waiting: garbage collection may close this iterator on any thread, even on the event loop's.
            loop.in_background(generator.aclose())


class Ahead(Generic[K, T]):
    """Results of coroutines for ``keys`` that are computed on the event loop before a thread needs them.

    ``make`` returns the coroutine for a key. At most ``most`` results are computed or waiting; for one thread.
    """

    def __init__(self, make: Callable[[K], Coroutine[Any, Any, T]], most: int = _AHEAD) -> None:
        self._make = make
        self._most = most
        self._later: deque[K] = deque()
        self._begun: dict[K, Future[T]] = {}

    def expect(self, keys: Iterable[K]) -> None:
        """Announce the keys that are needed next, in their order; they replace those announced before."""
        self._later = deque(key for key in keys if key not in self._begun)
        self._advance()

    def get(self, key: K, check: Callable[[], object] = lambda: None) -> T:
        """Return the result for ``key``; ``check`` is called now and then, and may raise to end the wait."""
        future = self._begun.pop(key, None)
        if future is None:
            future = self._start(key)
        self._advance()
        try:
            while True:
                try:
                    return future.result(loop.LISTEN_SECONDS)
                except TimeoutError:
                    if future.done():
                        return future.result()
                check()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what is not needed any more."""
        self._later.clear()
        for future in self._begun.values():
            future.cancel()
        self._begun.clear()

    def _advance(self) -> None:
        while self._later and len(self._begun) < self._most:
            key = self._later.popleft()
            if key not in self._begun:
                self._begun[key] = self._start(key)

    def _start(self, key: K) -> Future[T]:
        return loop.begin(self._make(key))
