"""Names that a system would not store as they are."""

from __future__ import annotations

from pathlib import Path, PureWindowsPath

import pytest

from delta_sharing_client import local_paths
from delta_sharing_client.errors import UsageError
from delta_sharing_client.local_paths import check_target


class Windows:
    name = "nt"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("a:b.csv", "'a:' is followed by"),
        (r"C:folder\x.csv", "'C:' is followed by"),
        ("ab:c.csv", "does not allow ':'"),
        (r"C:\data\x.csv:y", "does not allow ':'"),
        ("aux.csv", "reserved for a device"),
        (r"C:\data\CON", "reserved for a device"),
        ("lpt1.tar.gz", "reserved for a device"),
        ("what?.csv", r"does not allow '\?'"),
        ("rows.csv.", "at the end of the name"),
        ("rows.csv ", "at the end of the name"),
    ],
)
def test_target_that_windows_would_write_elsewhere_is_refused(
    target: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_paths, "os", Windows)
    with pytest.raises(UsageError, match=f"Cannot write .*{reason}.* Choose another name"):
        check_target(PureWindowsPath(target))  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [r"C:\data\rows.csv", "rows.csv", r"..\auxiliary.csv", r"\\server\share\con1.csv"])
def test_other_targets_are_written_on_windows(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_paths, "os", Windows)
    check_target(PureWindowsPath(target))  # type: ignore[arg-type]


def test_other_systems_allow_each_name() -> None:
    check_target(Path("aux.csv"))
    check_target(Path("a:b.csv"))
