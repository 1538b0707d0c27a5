"""The cursor file: how far one reader of one table has read. It survives crashes.

The end of a step is saved before its rows are returned, and the step is saved as committed after they are stored. A
reader that crashes in between gets the same step again, even if the table has changed::

    {"cursor": 1, "id": "5f3a...", "endpoint": "https://...", "table": "share.schema.table",
     "number": 4, "committed": {offset}, "begun": {offset} or null, "files": 2}
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delta_sharing_client import durable
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.file_lock import FileLock
from delta_sharing_client.follow.offsets import BEGINNING, AnyOffset, Beginning, Offset, parse_offset
from delta_sharing_client.follow.request import Words
from delta_sharing_client.protocol.names import TableName

_FORM = 1


def words_of(path: Path) -> Words:
    """Return the words of messages about the cursor at ``path``."""
    return Words(
        place=f"cursor '{path}'",
        anew=f"delete '{path}' or choose another cursor, and follow the table again",
        again="follow the table again",
        batch="step",
        starting_version="'starting_version'",
        max_outage="With 'max_outage', in seconds, a longer outage is waited for.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """The content of a cursor: ``number`` steps are committed, up to ``committed``; the next one ends at ``begun``.

    ``begun`` is ``None`` until the next step, with ``files`` files, is returned. ``id`` identifies the cursor.
    """

    id: str
    number: int
    committed: AnyOffset
    begun: Offset | None
    files: int = 0


class CursorFile:
    """The cursor of a reader of ``table`` of the server at ``endpoint``, in the file ``path``."""

    def __init__(self, path: Path, table: TableName, endpoint: str) -> None:
        self.path = path
        self.words = words_of(path)
        self._table = str(table)
        self._endpoint = endpoint

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the cursor for this process.

        Raises
        ------
        UsageError
            Another program uses it, or the file cannot be written.
        """
        taken = (
            f"The cursor '{self.path}' is in use: another program follows the table with it. End that one, or choose "
            "another cursor."
        )
        with contextlib.ExitStack() as stack:
            with self._writing():
                stack.enter_context(FileLock(self._beside("lock"), taken))
            yield

    def read(self) -> State:
        """Return the state of the cursor, or a new one if there is no file.

        Raises
        ------
        UsageError
            The file is not a cursor, or belongs to another table or server.
        """
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return State(uuid.uuid4().hex, 0, BEGINNING, None)
        except OSError as error:
            raise UsageError(f"Cannot read the cursor '{self.path}': {error.strerror}. Choose another one.") from None
        found = self._parsed(text)
        theirs, ours = (str(found.get("endpoint")), str(found.get("table"))), (self._endpoint, self._table)
        if theirs[0].rstrip("/") != ours[0].rstrip("/") or theirs[1].lower() != ours[1].lower():
            raise UsageError(
                f"The cursor '{self.path}' belongs to the table '{theirs[1]}' of '{theirs[0]}', not to '{ours[1]}' of "
                f"'{ours[0]}'. Choose another cursor."
            )
        begun = None if found["begun"] is None else parse_offset(found["begun"], self.words)
        if isinstance(begun, Beginning):
            raise self._broken("its step ends where a table begins")
        return State(found["id"], found["number"], parse_offset(found["committed"], self.words), begun, found["files"])

    def write(self, state: State) -> None:
        """Replace the file atomically and durably. The caller must hold the cursor.

        Raises
        ------
        UsageError
            The file cannot be written; the old one remains.
        """
        content = {
            "cursor": _FORM,
            "id": state.id,
            "endpoint": self._endpoint,
            "table": self._table,
            "number": state.number,
            "committed": state.committed.to_json(),
            "begun": None if state.begun is None else state.begun.to_json(),
            "files": state.files,
        }
        with self._writing():
            temporary = self._beside("part")
            temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
            durable.replace(temporary, self.path)

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except ValueError:
            raise self._broken("it is empty" if not text.strip() else "it is not JSON") from None
        if not isinstance(found, dict) or "cursor" not in found:
            raise self._broken("it has no field 'cursor'")
        if found["cursor"] != _FORM:
            raise self._broken(f"its field 'cursor' is {found['cursor']!r}, not {_FORM}: upgrade this package")
        kinds = (("id", str), ("number", int), ("files", int), ("committed", dict), ("begun", (dict, type(None))))
        for name, kind in kinds:
            if not isinstance(found.get(name), kind) or (name == "begun" and name not in found):
                raise self._broken(f"its field '{name}' is missing or of another type")
        return found

    def _broken(self, reason: str) -> DeltaSharingError:
        return UsageError(
            f"The file '{self.path}' is no cursor of this package: {reason}. If it was one, {self.words.anew}; the "
            "table is then read from its snapshot, or from 'starting_version'."
        )

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{ending}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"Cannot write the cursor '{self.path}': {error.strerror}. Make room or give permission, or choose "
                "another place."
            ) from None
