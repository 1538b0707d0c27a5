"""Runs an assistant's calls on threads, ends them when they are cancelled or take too long, and words their errors."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TypeVar

import anyio

from delta_sharing_client.errors import DeltaSharingError, NotFoundError, UsageError
from delta_sharing_client.limited_reads import ENDING, Ending
from delta_sharing_client.local_paths import expanded
from delta_sharing_client.mcp.limits import Limits
from delta_sharing_client.run import loop
from delta_sharing_client.threads import start

T = TypeVar("T")

# An address in an error may contain a signature, and shows where the provider's server is. Those of resources do not.
_ADDRESS = re.compile(r"\b(?!(?:skill|volume|model)://)[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)
# Advice in errors for programs and the command line, and the same advice for assistants.
_TOOLS = (
    (re.compile(r"Use 'list_all_\w+\(\)' or 'delta-sharing \w+' to list"), "Use the tool 'list_assets' to list"),
    (re.compile(r"see 'client\.table\(\)' or 'delta-sharing \w+'"), "use the tools 'describe', 'sample' and 'query'"),
    (re.compile(r"see 'client\.volume\(\)' or 'delta-sharing \w+'"), "use the tools 'list_files' and 'read_file'"),
    (re.compile(r"see 'client\.model\(\)' or 'delta-sharing \w+'"), "use the tool 'describe'"),
    (re.compile(r"see 'client\.skill\(\)' or 'delta-sharing \w+'"), "use the tools 'read_skill' and 'read_file'"),
    (re.compile(r"in a DuckDB query \(ds\.attach\)"), "with the tool 'query'"),
)
# Other sentences with code, which an assistant cannot run, are left out.
_SENTENCES = re.compile(r"(?<=[.!?]) (?=[A-Z'])")
_CODE = re.compile(r"\w\(\)|\b(?:ds|client|table|scan)\.\w|\bReadOptions\b|\bdelta-sharing \w|\bpip install\b")


class CallError(Exception):
    """A call that failed. The message is for the assistant; ``is_refused`` means that the same call always fails."""

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused


class Calls:
    """Runs calls within ``limits``. ``running`` has one object for each call whose thread has not ended."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.running: set[object] = set()

    async def run(self, call: Callable[[], T]) -> T:
        """Return ``call()``, run on a thread. Raises ``CallError`` if it raises an error or takes too long."""
        ending = Ending()
        is_refused = False
        try:
            with anyio.fail_after(self._limits.seconds):
                return await loop.asynchronously(lambda: self._noted(call, ending))
        except anyio.get_cancelled_exc_class():
            _end(ending)
            raise
        except TimeoutError:
            _end(ending)
            reason = f"The call took more than {self._limits.seconds} seconds and was ended. Request less data."
        except DeltaSharingError as error:
            reason = told(str(error))
            is_refused = isinstance(error, (NotFoundError, UsageError))
        except Exception as error:
            reason = (
                f"The call failed with an unexpected {type(error).__name__}. This is a bug in delta_sharing_client."
            )
        # Raised outside the handler, because the original error, as its context, could reveal secrets in its text and
        # frames.
        raise CallError(reason, is_refused=is_refused)

    def _noted(self, call: Callable[[], T], ending: Ending) -> T:
        self.running.add(ending)
        ENDING.set(ending)  # in the thread's own context
        try:
            return call()
        finally:
            self.running.remove(ending)
            ending.finish()


def _end(ending: Ending) -> None:
    # On a thread, because ending a read waits for its tasks.
    start(ending.end, "end")


def told(message: str) -> str:
    """Return the text of an error for an assistant: it names tools in place of Python code and commands, and neither
    addresses nor the user's folders."""
    for pattern, tools in _TOOLS:
        message = pattern.sub(tools, message)
    sentences = _SENTENCES.split(message)
    kept = sentences[:1] + [sentence for sentence in sentences[1:] if not _CODE.search(sentence)]
    shown = _ADDRESS.sub("<address>", " ".join(kept))
    return shown.replace(expanded("~") + os.sep, "~" + os.sep)
