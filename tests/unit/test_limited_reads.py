"""An allowance grants bytes until it is used up, and the end of a call stops what the call has started."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.limited_reads import ENDING, Allowance, Ending, stopped_by_end
from tests.time_limits import HANGS


def test_allowance_counts_only_what_is_granted() -> None:
    allowance = Allowance(1_000_000)
    allowance.take(400_000, "t")
    with pytest.raises(UsageError, match=r"'big' needs about 0\.7 MB more, but .* at most 1 MB"):
        allowance.take(700_000, "big")
    allowance.take(600_000, "t")
    with pytest.raises(UsageError):
        allowance.take(1, "t")
    allowance.take(0, "t")


@pytest.fixture(autouse=True)
def own_end() -> Iterator[None]:
    """Keep the end of a test's call from later tests of this thread."""
    token = ENDING.set(Ending())
    yield
    ENDING.reset(token)


def test_end_of_a_call_stops_what_it_started() -> None:
    ending = Ending()
    stopped: list[str] = []
    forget = ending.add(lambda: stopped.append("forgotten"))
    forget()

    def stop_twice() -> None:
        stopped.append("again")
        if len(stopped) == 2:
            ending.finish()

    ENDING.set(ending)
    assert Allowance(1_000_000).ending is ending
    with stopped_by_end(stop_twice):
        ending.end()
    # The end of the call stops what is left, once more.
    assert stopped == ["again"] * 3
    with stopped_by_end(lambda: stopped.append("late")):
        pass
    # A call that has returned is not stopped.
    ending.end()
    assert stopped == ["again"] * 3


def test_block_that_has_ended_is_not_stopped() -> None:
    ending = Ending()
    ENDING.set(ending)
    stopped: list[str] = []
    with stopped_by_end(lambda: stopped.append("over")):
        pass
    with pytest.raises(ValueError, match="in the block"), stopped_by_end(lambda: stopped.append("failed")):
        raise ValueError("in the block")
    ending.add(ending.finish)
    ending.end()
    assert stopped == []


def test_nothing_stops_a_block_outside_of_a_call() -> None:
    done = threading.Event()

    def run() -> None:
        with stopped_by_end(lambda: None):
            assert Allowance(1_000_000).ending is None
            done.set()

    threading.Thread(target=run).start()
    assert done.wait(HANGS)
