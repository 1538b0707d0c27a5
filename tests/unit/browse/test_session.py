"""A run of the page keeps few plans and pictures, shows no credential, and ends its downloads."""

from __future__ import annotations

import pathlib
import types
from collections.abc import Iterator
from typing import Any

import pytest

from delta_sharing_client.browse.session import ReadyFile, Session
from delta_sharing_client.errors import UsageError

PROFILE = {"shareCredentialsVersion": 1, "endpoint": "https://a.invalid/x/", "bearerToken": "planted-token-5"}


@pytest.fixture
def session(tmp_path: pathlib.Path) -> Iterator[Session]:
    session_ = Session(PROFILE, tmp_path)
    yield session_
    session_.close()


@pytest.mark.parametrize(
    ("profile", "shown"),
    [
        (None, ""),
        ("a b.share", "a b.share"),
        (pathlib.PurePosixPath("a.share"), "profile.share"),
        (pathlib.Path("a.share"), "a.share"),
        ("s3://bucket/a.share?sig=planted", "s3://bucket/a.share"),
        ('{"bearerToken": "planted"}', "profile.share"),
        ("a:\n b", "profile.share"),
        (PROFILE, "profile.share"),
    ],
)
def test_profile_is_shown_without_its_content(session: Session, profile: Any, shown: str) -> None:
    session.profile = profile
    assert session.profile_text.partition("?")[0] == shown
    assert "planted" not in session.profile_text


def test_credentials_are_masked(session: Session) -> None:
    assert "planted" not in session.masked("The server refused planted-token-5.")
    assert session.masked("The server refused it.") == "The server refused it."


def test_only_the_last_plans_are_kept(session: Session) -> None:
    plans: list[Any] = [object() for _ in range(9)]
    names = [session.keep_plan(plan) for plan in plans]
    assert [session.plan(name) for name in names[1:]] == plans[1:]
    for name in (names[0], "other"):
        with pytest.raises(UsageError, match="planned too long ago"):
            session.plan(name)


def test_only_the_last_pictures_are_kept(session: Session) -> None:
    def offered(media_type: str) -> tuple[str, pathlib.Path]:
        path = session.new_path()
        path.write_bytes(b"1")
        return session.offer(ReadyFile(path, "a", media_type)), path

    others = [offered("application/octet-stream") for _ in range(3)]
    pictures = [offered("image/png") for _ in range(21)]
    assert [session.ready_file(name) is not None for name, _ in pictures] == [False] + [True] * 20
    assert [path.exists() for _, path in pictures] == [False] + [True] * 20
    assert [session.ready_file(name) for name, _ in others] == [ReadyFile(path, "a") for _, path in others]
    assert len({name for name, _ in (*others, *pictures)}) == 24

    name, path = pictures[-1]
    path.unlink()
    session.withdraw(name)
    session.withdraw(name)
    assert session.ready_file(name) is None
    session.withdraw(others[0][0])
    assert not others[0][1].exists()
    assert others[0][1].parent == session.folder


def test_download_needs_as_much_room_as_it_has_bytes(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: types.SimpleNamespace(free=2_500_000_000))
    session.check_room(2_500_000_000)
    with pytest.raises(UsageError) as refused:
        session.check_room(3_500_000_000)
    assert "needs 3,500 MB, but the disk for temporary files has 2,500 MB left" in str(refused.value)
    with pytest.raises(UsageError):
        session.check_room(2_500_000_001)


def test_closing_ends_downloads_and_both_clients(session: Session) -> None:
    ended: list[str] = []
    session.downloads = {name: types.SimpleNamespace(end=lambda name=name: ended.append(name)) for name in "ab"}
    for name in ("client", "patient"):
        setattr(session, name, types.SimpleNamespace(close=lambda name=name: ended.append(name)))
    session.close()
    assert ended == ["a", "b", "client", "patient"]
