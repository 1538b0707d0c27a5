"""One commit of a log, and the files that hold its row-level changes (Delta log protocol, "Add CDC File")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from delta_sharing_client.delta.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
    Transaction,
)

_MERGE_ROW_METRICS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True)
class Commit:
    """The actions of one version; ``timestamp_ms`` is its time in milliseconds since the epoch, if known."""

    version: int
    timestamp_ms: int | None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    cdcs: tuple[AddCdcFile, ...] = ()
    transactions: tuple[Transaction, ...] = ()
    domain_metadata: tuple[DomainMetadata, ...] = ()
    commit_info: CommitInfo | None = None

    @classmethod
    def from_actions(cls, version: int, timestamp_ms: int | None, actions: Iterable[Action]) -> Commit:
        """Sort the actions of one commit by kind, keeping their order; the last protocol and metadata count."""
        kinds: dict[type, list[Action]] = {}
        for action in actions:
            kinds.setdefault(type(action), []).append(action)
        return cls(
            version=version,
            timestamp_ms=timestamp_ms,
            protocol=_last(kinds.get(Protocol)),  # type: ignore[arg-type]
            metadata=_last(kinds.get(Metadata)),  # type: ignore[arg-type]
            adds=tuple(kinds.get(AddFile, ())),  # type: ignore[arg-type]
            removes=tuple(kinds.get(RemoveFile, ())),  # type: ignore[arg-type]
            cdcs=tuple(kinds.get(AddCdcFile, ())),  # type: ignore[arg-type]
            transactions=tuple(kinds.get(Transaction, ())),  # type: ignore[arg-type]
            domain_metadata=tuple(kinds.get(DomainMetadata, ())),  # type: ignore[arg-type]
            commit_info=_last(kinds.get(CommitInfo)),  # type: ignore[arg-type]
        )


def change_actions(commit: Commit) -> list[FileAction]:
    """Return the files that hold the changes of ``commit``, in log order.

    Change files alone if there are any; otherwise added and removed files that change data. A MERGE that says of
    itself that it changed no row gives none: it only rewrote files.
    """
    if commit.cdcs:
        return list(commit.cdcs)
    if _is_merge_without_effect(commit.commit_info):
        return []
    changes: list[FileAction] = [add for add in commit.adds if add.data_change]
    changes.extend(remove for remove in commit.removes if remove.data_change)
    return changes


def _is_merge_without_effect(info: CommitInfo | None) -> bool:
    if info is None or info.operation != "MERGE" or info.operation_metrics is None:
        return False
    return all(str(info.operation_metrics.get(name)) == "0" for name in _MERGE_ROW_METRICS)


def _last(actions: list[Action] | None) -> Action | None:
    return actions[-1] if actions else None
