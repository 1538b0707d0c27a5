"""The request of a follower: the table, the start, the limits, and the words of its messages."""

from __future__ import annotations

import dataclasses
import enum
from typing import Literal, Union

from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.protocol.names import AssetName

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
    """The words in messages that differ between a checkpoint and a cursor.

    ``place`` names the store of the position, ``anew`` is the advice to start from the beginning, ``again`` the advice
    to continue, and ``batch`` names the unit of reading. ``starting_version`` names the option for the start, and
    ``max_outage`` is a sentence about the option for outages.
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
    """The table to follow, and how to follow it.

    ``columns``, ``filter`` and ``response_format`` of ``read`` apply to all rows. ``max_files`` and ``max_bytes`` limit
    one batch; ``None`` means no limit. ``version_interval`` is the time between requests for the latest version, and
    ``max_outage`` is how long the server may not respond, both in seconds. With ``whole_versions``, a batch after the
    snapshot contains whole versions.
    """

    table: AssetName
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
        """Return ``options`` that retry for ``max_outage``, for requests that a batch depends on."""
        if not self.max_outage:
            return options
        seconds = max(options.max_retry_seconds, self.max_outage)
        return dataclasses.replace(options, max_attempts=_ENDLESS, max_retry_seconds=seconds)

    def polling(self, options: ReadOptions) -> ReadOptions:
        """Return ``options`` that retry less if ``max_outage`` is set, for a request that is repeated anyway."""
        return dataclasses.replace(options, max_attempts=3, max_retry_seconds=10.0) if self.max_outage else options
