"""Files with any name are read and written at the given paths."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
from delta_sharing_client.cli import main

WINDOWS = sys.platform == "win32"


def test_profile_is_found_at_a_native_path(profile: Path) -> None:
    # On Windows the path has a drive and backslashes. The last # separates it from the table's name.
    assert len(ds.load_as_pandas(f"{profile}#s.d.t")) == 1000
    assert len(ds.SharingClient(profile).table("s.d.t").scan(limit=3).to_pandas()) == 3


def test_profile_is_found_in_the_home_directory(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(profile.parent))

    assert len(ds.load_as_pandas(f"~/{profile.name}#s.d.t", limit=1)) == 1


def test_profile_with_crlf_and_byte_order_mark_is_read(profile: Path) -> None:
    text = profile.read_text(encoding="utf-8").replace("{", "{\r\n").replace("}", "\r\n}\r\n")
    profile.write_bytes(b"\xef\xbb\xbf" + text.encode())

    assert len(ds.load_as_pandas(f"{profile}#s.d.t", limit=1)) == 1


def test_file_is_written_replaced_and_has_default_permissions(profile: Path) -> None:
    target = profile.parent / "größe.parquet"
    (profile.parent / "plain").touch()
    for limit in (10, 20):
        assert main(["-p", str(profile), "read", "s.d.t", "--limit", str(limit), "--to", str(target)]) == 0
        assert pq.read_table(target).num_rows == limit

    assert sorted(path.name for path in profile.parent.iterdir()) == ["größe.parquet", "my share.share", "plain"]
    if not WINDOWS:
        assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE((profile.parent / "plain").stat().st_mode)


def test_text_files_are_utf_8_with_lf_on_every_system(profile: Path) -> None:
    for name in ("rows.csv", "rows.jsonl"):
        assert main(["-p", str(profile), "read", "s.d.t", "--limit", "2", "--to", str(profile.parent / name)]) == 0

    assert (profile.parent / "rows.csv").read_bytes().count(b"\r") == 0
    assert "größe 1" in (profile.parent / "rows.jsonl").read_bytes().decode()


def test_local_copy_can_be_read_updated_and_moved(profile: Path) -> None:
    folder = profile.parent / "a copy #2 %41"
    table = ds.SharingClient(profile).table("s.d.t")
    table.replicate(folder)
    table.replicate(folder)
    moved = folder.rename(profile.parent / "moved")

    rows = sum(pq.read_table(path).num_rows for path in moved.rglob("*.parquet") if "_delta_log" not in path.parts)
    assert rows == 1000
    table.replicate(moved)


def test_unwritable_file_is_reported_without_a_traceback(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = profile.parent / "no" / "such" / "folder" / "x.parquet"
    assert main(["-p", str(profile), "read", "s.d.t", "--to", str(target)]) == 2

    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    assert "annot write" in errors


def test_file_urls_are_resolved_to_local_paths(tmp_path: Path) -> None:
    from delta_sharing_client.delta.paths import resolve

    file = tmp_path / "a b" / "part-0.parquet"

    assert resolve(tmp_path, file.as_uri()) == file
    assert resolve(tmp_path, "a%20b/part-0.parquet") == file
    assert os.path.isabs(resolve(tmp_path, file.as_uri()))
