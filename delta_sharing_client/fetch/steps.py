"""Work written as one function with pauses: a generator that yields futures and goes on when they are done.

It keeps no thread waiting; whichever thread completes a future carries the work on to the next pause.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from delta_sharing_client.fetch.queue import forget_frames

T = TypeVar("T")
Steps = Generator["Future[Any]", Any, T]


def start(steps: Steps[T], done: Future[T] | None = None) -> Future[T]:
    """Run ``steps`` up to its first unfinished future, later on, and return the future of its result, ``done`` or new.

    An error of a yielded future is raised inside the generator, at its ``yield``.
    """
    done = Future() if done is None else done
    done.set_running_or_notify_cancel()
    _advance(steps, done, None)
    return done


def done(value: T) -> Future[T]:
    """Return a future that is done already."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


def _advance(steps: Steps[T], done: Future[T], finished: Future[Any] | None) -> None:
    waiting: Future[Any] | None
    while True:
        try:
            if finished is None:
                waiting = next(steps)
            elif finished.cancelled():
                waiting = steps.throw(CancelledError())
            elif (error := finished.exception()) is not None:
                waiting = steps.throw(error)
            else:
                waiting = steps.send(finished.result())
        except StopIteration as stop:
            done.set_result(stop.value)
            return
        except BaseException as error:
            waiting = finished = None
            forget_frames(error)
            done.set_exception(error)
            del done
            if isinstance(error, Exception):
                return
            raise  # Ctrl-C: whoever started or released something here must hear it now
        if not waiting.done():
            # A future that completes in between calls back at once, on this thread: the same as the loop, one deeper.
            waiting.add_done_callback(lambda future: _advance(steps, done, future))
            return
        finished = waiting


def gather(futures: list[Future[Any]]) -> Steps[list[Any]]:
    """Steps that wait for all ``futures`` and return their results; the first error in list order is raised."""
    results = []
    for future in futures:
        results.append((yield future))
    return results
