"""What a follower is asked for: of which table, from where, how much at a time, and the words it speaks in."""

from __future__ import annotations

import dataclasses
import enum
from typing import Literal, Union

from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.request import ScanRequest
from delta_sharing_client.protocol.names import TableName

Start = Union[int, Literal["latest"], None]
DEFAULT_MAX_FILES = 1000
_ENDLESS = 1_000_000


class OnChange(enum.Enum):
    """What an append stream does with a commit that removes files."""

    FAIL = "fail"
    IGNORE_DELETES = "ignoreDeletes"
    IGNORE_CHANGES = "ignoreChanges"
    SKIP_CHANGE_COMMITS = "skipChangeCommits"


@dataclasses.dataclass(frozen=True)
class Words:
    """How messages name what keeps a follower's place, and what its user does about it.

    ``place`` is the noun, ``anew`` the advice to begin again, ``again`` the advice to go on, ``batch`` what is read at
    a time; ``starting_version`` names an option, and ``max_outage`` is a sentence about one.
    """

    place: str
    anew: str
    again: str
    batch: str
    starting_version: str
    max_outage: str


CHECKPOINT = Words(
    place="checkpoint",
    anew="delete the checkpoint or choose a new one, and restart the query",
    again="restart the query",
    batch="batch",
    starting_version="option 'startingVersion'",
    max_outage="With the option 'maxOutage' (such as '10m') a stream waits for its server.",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FollowRequest:
    """What to follow, and how; the steps of a follower are derived from it and from what the server says.

    ``columns``, ``filter`` and ``response_format`` of ``read`` hold for all rows. ``max_files`` and ``max_bytes`` are
    the limits of one batch, ``None`` where there is none. ``version_interval`` and ``max_outage`` are in seconds: how
    often the latest version is asked for, and how long a server may be silent. With ``whole_versions`` no batch ends
    within a version after the snapshot.
    """

    table: TableName
    read: ScanRequest = dataclasses.field(default_factory=ScanRequest)
    read_change_feed: bool = False
    on_change: OnChange = OnChange.FAIL
    starting_version: Start = None
    starting_timestamp: str | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    max_versions_per_rpc: int = 100
    version_interval: float = 30
    max_outage: float = 0
    whole_versions: bool = False
    words: Words = CHECKPOINT

    def waiting(self, options: ReadOptions) -> ReadOptions:
        """Return ``options`` with which what a batch needs is tried again for ``max_outage``."""
        if not self.max_outage:
            return options
        seconds = max(options.max_retry_seconds, self.max_outage)
        return dataclasses.replace(options, max_attempts=_ENDLESS, max_retry_seconds=seconds)

    def polling(self, options: ReadOptions) -> ReadOptions:
        """Return ``options`` for a question that is asked again anyway."""
        return dataclasses.replace(options, max_attempts=3, max_retry_seconds=10.0) if self.max_outage else options
