"""Properties that are computed once for each object, without a lock."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import delta_sharing_client
from delta_sharing_client.lazy import lazy

PACKAGE = Path(delta_sharing_client.__file__).parent


class Counted:
    """A class that counts how often ``value`` is computed."""

    def __init__(self) -> None:
        self.count = 0

    @lazy
    def value(self) -> int:
        """The count."""
        self.count += 1
        return self.count


def test_value_is_computed_once_for_each_object() -> None:
    one, other = Counted(), Counted()
    assert [one.value, one.value, other.value] == [1, 1, 1]
    assert one.count == 1


def test_lazy_property_of_a_class_has_its_docstring() -> None:
    result: Any = Counted.value
    assert isinstance(result, lazy)
    assert result.__doc__ == "The count."


def test_error_is_raised_each_time_and_not_cached() -> None:
    class Failing:
        tries = 0

        @lazy
        def value(self) -> int:
            self.tries += 1
            if self.tries < 3:
                raise ValueError("not yet")
            return self.tries

    failing = Failing()
    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            _ = failing.value
    assert (failing.value, failing.value, failing.tries) == (3, 3, 3)


def test_threads_do_not_wait_for_each_other() -> None:
    """Threads do not wait with one object or with two: all of them reach the barrier inside the property."""
    inside = threading.Barrier(3)

    class Slow:
        @lazy
        def value(self) -> int:
            return inside.wait(60)

    shared = Slow()
    slow = [shared, shared, Slow()]
    threads = [threading.Thread(target=lambda each=each: each.value) for each in slow]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all("value" in vars(each) for each in slow)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_child_computes_a_value_in_progress() -> None:
    program = """
import os, sys, threading
from delta_sharing_client.lazy import lazy

inside, go_on = threading.Event(), threading.Event()

class Slow:
    @lazy
    def value(self):
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go_on.wait(60)
        return 7

slow = Slow()
thread = threading.Thread(target=lambda: slow.value)
thread.start()
inside.wait(60)
child = os.fork()
if not child:
    os._exit(slow.value + Slow().value)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go_on.set()
thread.join()
sys.exit(code)
"""
    run = subprocess.run([sys.executable, "-c", program], timeout=120, check=False)
    assert run.returncode == 14


def test_package_does_not_use_cached_property() -> None:
    """Before Python 3.12 a ``cached_property`` has one lock for all objects."""
    results = [path.name for path in PACKAGE.rglob("*.py") if "cached_property" in path.read_text()]
    assert results == ["lazy.py"]
