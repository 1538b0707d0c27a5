"""The state of one run of the page: its client, its plans, its files and its downloads."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa

from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import UsageError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.tasks import ScanPlan
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.profile import ProfileSource
from delta_sharing_client.redact import safe_url, scrub
from delta_sharing_client.search import Described

ASKED_FROM = 10_000_000
"""The page asks the user before it downloads more bytes than this."""
# Nobody waits minutes for a page. Downloads have the usual limits of reads.
QUICK = ReadOptions(progress=False, read_timeout=30.0, max_attempts=4, max_retry_seconds=20.0)
PATIENT = ReadOptions(progress=False)
_MOST_FILES, _MOST_PLANS = 20, 8
PDF = "application/pdf"
_KEPT_SECONDS = 60.0
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class ReadyFile:
    """A file that the browser may download: its path, its name in the browser, and its media type."""

    path: Path
    name: str
    media_type: str = "application/octet-stream"

    @property
    def is_shown(self) -> bool:
        """Whether the page shows it."""
        return self.media_type.startswith("image/") or self.media_type == PDF


@dataclasses.dataclass(frozen=True)
class PlannedRows:
    """Rows that the page may show: those of ``plan`` from the row ``first`` on or, with ``order`` (the index of a
    column, and whether its greatest value comes first), from the row ``first`` of this order on. ``kind`` is the type
    of the column whose values are described."""

    plan: ScanPlan
    first: int = 0
    order: tuple[int, bool] | None = None
    kind: pa.DataType | None = None


class Session:
    """The state of one run. Thread-safe.

    ``folder`` is a directory of this run, which the caller creates and removes. ``described`` has the descriptions of
    tables that a search has found since the page was loaded. Raises ``ProfileError`` if the profile
    cannot be used.
    """

    def __init__(self, profile: ProfileSource, folder: Path) -> None:
        self.profile = profile
        self.folder = folder
        self.client = SharingClient(profile, options=QUICK)
        self.patient = SharingClient(self.client._rest.profile, options=PATIENT)
        self.downloads: dict[str, Any] = {}
        self.described: dict[AssetName, Described] = {}
        self._plans: dict[str, PlannedRows] = {}
        self._files: dict[str, ReadyFile] = {}
        self._remembered: dict[Hashable, tuple[float, object]] = {}
        self._lock = threading.Lock()

    @property
    def profile_text(self) -> str:
        """The profile's path or URL as the user gave it, for code to copy; "" if the environment names it. Never its
        content."""
        profile = self.profile
        if profile is None:
            return ""
        text = str(profile) if isinstance(profile, (str, Path)) else ""
        if not text or "{" in text or "\n" in text:
            return "profile.share"
        return safe_url(text) if "://" in text else text

    def masked(self, text: str) -> str:
        """Return ``text`` without the credentials that are sent to the server."""
        return scrub(text, self.client._rest.secrets())

    def remembered(self, key: Hashable, request: Callable[[], T]) -> T:
        """Return the result of ``request``, or that of the same ``key`` in the last minute."""
        now = time.monotonic()
        with self._lock:
            self._remembered = {one: kept for one, kept in self._remembered.items() if now - kept[0] < _KEPT_SECONDS}
            kept = self._remembered.get(key)
        if kept is None:
            kept = now, request()
            with self._lock:
                self._remembered[key] = kept
        return cast(T, kept[1])

    # === Plans ===

    def keep_plan(self, plan: PlannedRows) -> str:
        """Keep a plan while the page shows its cost, and return a name for it. If there are many, the oldest plans are
        dropped."""
        name = secrets.token_urlsafe()
        with self._lock:
            self._plans[name] = plan
            for old in list(self._plans)[:-_MOST_PLANS]:
                del self._plans[old]
        return name

    def plan(self, name: str) -> PlannedRows:
        """Return the plan with this name. Raises ``UsageError`` if it was dropped."""
        with self._lock:
            plan = self._plans.get(name)
        if plan is None:
            raise UsageError("This preview was planned too long ago. Show the rows again.")
        return plan

    # === Files ===

    def new_path(self) -> Path:
        """Return the path for a new file of this run."""
        return self.folder / secrets.token_hex()

    def offer(self, file: ReadyFile) -> str:
        """Let the browser download ``file``, and return its secret name. If the page shows many, the oldest are
        removed."""
        name = secrets.token_urlsafe()
        with self._lock:
            self._files[name] = file
            old = [key for key, one in self._files.items() if one.is_shown][:-_MOST_FILES]
        for key in old:
            self.withdraw(key)
        return name

    def ready_file(self, name: str) -> ReadyFile | None:
        """Return the file with the secret ``name``, if there is one."""
        with self._lock:
            return self._files.get(name)

    def withdraw(self, name: str) -> None:
        """Remove a file, if it exists."""
        with self._lock:
            file = self._files.pop(name, None)
        if file is not None:
            with contextlib.suppress(OSError):
                file.path.unlink()

    def check_room(self, size: int) -> None:
        """Raise ``UsageError`` if the disk has no room for ``size`` bytes."""
        free = shutil.disk_usage(self.folder).free
        if size > free:
            raise UsageError(
                f"The download needs {size / 1e6:,.0f} MB, but the disk for temporary files has {free / 1e6:,.0f} MB "
                "left. Free disk space, choose fewer columns or rows, or use the command line."
            )

    def close(self) -> None:
        """End all downloads."""
        for download in list(self.downloads.values()):
            download.end()
        self.client.close()
        self.patient.close()
