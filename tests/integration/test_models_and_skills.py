"""Files and downloads of model versions and agent skills."""

from __future__ import annotations

import os
import pathlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import delta_sharing_client as ds
from delta_sharing_client import testing
from delta_sharing_client.assets.skill_file import compare, front_matter
from delta_sharing_client.protocol.messages import SkillItem
from tests.integration.test_downloads import content

QUICK = ds.ReadOptions(max_attempts=2, max_retry_seconds=1, progress=False)


@pytest.fixture(scope="module")
def demo() -> Iterator[ds.SharingClient]:
    with testing.running() as server, ds.SharingClient(server.profile, options=QUICK) as client:
        yield client


# --- models ---


def test_model_version_is_downloaded_with_all_its_files(demo: ds.SharingClient, tmp_path: pathlib.Path) -> None:
    model = demo.model("demo.shop.churn")

    done = model.version(1).download(tmp_path / "churn")

    result = content(tmp_path / "churn")
    assert set(done.downloaded) == set(result) == {file.path for file in model.version(1).files()}
    assert "MLmodel" in result
    assert model.version(1).read_text("MLmodel").encode() == result["MLmodel"]


def test_download_of_a_new_version_replaces_unchanged_files(tmp_path: pathlib.Path) -> None:
    versions = {
        1: {"MLmodel": "one", "old/only.bin": "old", "same": "same", "edited": "theirs"},
        2: {"MLmodel": "two", "new.bin": "new", "same": "same"},
    }
    here = tmp_path / "model"
    with (
        testing.running(models={"s.d.m": versions}, aliases={"s.d.m": {"champion": 2}}) as server,
        ds.SharingClient(server.profile, options=QUICK) as client,
    ):
        model = client.model("s.d.m")
        model.version(1).download(here)
        (here / "edited").write_text("by the user")
        (here / "own").write_text("of the user")
        planned = model.alias("champion").download(here, dry_run=True)
        done = model.alias("champion").download(here)
        assert model.alias("champion").download(here).downloaded == ()

    assert (planned.removed, sorted(planned.downloaded)) == (done.removed, sorted(done.downloaded))
    assert done.removed == ("old/only.bin",)
    assert content(here) == {
        "MLmodel": b"two", "new.bin": b"new", "same": b"same", "edited": b"by the user", "own": b"of the user",
    }  # fmt: skip


def test_files_of_a_version_that_is_not_ready_are_refused(demo: ds.SharingClient, tmp_path: pathlib.Path) -> None:
    pending = demo.model("demo.shop.churn").version(3)
    assert pending.status == "PENDING_REGISTRATION"

    for call in (lambda: list(pending.files()), lambda: pending.download(tmp_path / "x"), lambda: pending.open("a")):
        with pytest.raises(ds.UsageError, match=r"version 3 of model .* has the status 'PENDING_REGISTRATION'"):
            call()
    assert not (tmp_path / "x").exists()
    with pytest.raises(ds.NotFoundError):
        list(demo.model("demo.shop.churn").version(9).files())


@pytest.mark.parametrize("version", [-1, True, "3", 1.0, None])
def test_version_of_a_model_is_a_whole_number(demo: ds.SharingClient, version: Any) -> None:
    with pytest.raises(ds.UsageError, match=re.escape(f"must be a whole number from 0, found {version!r}.")):
        demo.model("demo.shop.churn").version(version)


ASSETS = {
    "volumes": {"s.d.docs": {"report.txt": "report", "prices/2026.csv": "1", "both": "of the volume"}},
    "models": {
        "s.d.m": {1: {"MLmodel": "one", "both": "of the model", "old": "x"}, 2: {"MLmodel": "two"}},
        "s.d.docs": {1: {"other.bin": "x"}},
    },
}


def test_downloads_of_several_assets_share_a_directory(tmp_path: pathlib.Path) -> None:
    here = tmp_path / "data"
    with testing.running(**ASSETS) as server, ds.SharingClient(server.profile, options=QUICK) as client:
        client.volume("s.d.docs").download(here)
        assert client.model("s.d.docs").version(1).download(here).removed == ()
        assert client.model("s.d.m").version(1).download(here).removed == ()
        client.volume("s.d.docs").download(here, "both")
        # Names are not case-sensitive. The file that the volume wrote last is not the model's any longer.
        assert client.model("S.D.M").version(2).download(here).removed == ("old",)

    assert content(here) == {
        "MLmodel": b"two",
        "other.bin": b"x",
        "report.txt": b"report",
        "prices/2026.csv": b"1",
        "both": b"of the volume",
    }


def test_file_renamed_in_case_survives_where_case_is_ignored(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {1: {"Weights.bin": "same", "gone": "x"}, 2: {"weights.bin": "same"}}
    here = tmp_path / "data"
    with (
        testing.running(models={"s.d.m": versions}) as server,
        ds.SharingClient(server.profile, options=QUICK) as client,
    ):
        client.model("s.d.m").version(1).download(here)
        # On such a disk, both names lead to one file.
        (here / "weights.bin").hardlink_to(here / "Weights.bin")
        done = client.model("s.d.m").version(2).download(here)

    assert done.removed == ("gone",)
    assert (here / "weights.bin").read_bytes() == b"same"


# --- skills ---


def test_skill_is_downloaded_in_the_layout_of_agents(demo: ds.SharingClient, tmp_path: pathlib.Path) -> None:
    skill = demo.skill("demo.shop.sales-report")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = skill.read()
        done = skill.download(tmp_path / "skills")

    assert text.startswith("---\nname: sales-report\n")
    assert [path.name for path in (tmp_path / "skills").iterdir()] == ["sales-report"] == [done.directory.name]
    result = content(done.directory)
    assert set(result) == {"SKILL.md", "references/layout.md", "scripts/total.py"}
    assert result["SKILL.md"].decode() == text
    for path in done.directory.rglob("*"):
        assert not path.is_symlink()
        assert path.is_dir() or not os.access(path, os.X_OK)


def test_skill_that_differs_from_its_listing_is_reported(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "tidy"
    root.mkdir()
    (root / "SKILL.md").write_text("---\nname: tidy\ndescription: Tidies.\n---\nDo it.\n")
    with (
        testing.running(skills={"s.d.tidy": str(root)}) as server,
        ds.SharingClient(server.profile, options=QUICK) as client,
    ):
        skill = client.skill("s.d.tidy")
        assert skill.description == "Tidies."
        (root / "SKILL.md").write_text("---\nname: evil\ndescription: Deletes everything.\n---\nDo it.\n")

        with pytest.warns(ds.SkillWarning, match="the name 'evil', the server has 'tidy'") as warnings_:
            skill.read()
        assert "the description 'Deletes everything.', the server has 'Tidies.'" in str(warnings_[0].message)
        with pytest.warns(ds.SkillWarning):
            skill.download(tmp_path / "skills")
        (root / "SKILL.md").unlink()
        with pytest.raises(ds.NotFoundError, match=r"'SKILL\.md' in skill s\.d\.tidy"):
            skill.download(tmp_path / "other")
        assert not (tmp_path / "other").exists()


ITEM = SkillItem("tidy", "Tidies the desk.", "s3://b/tidy/", license="MIT", allowed_tools="Read Bash")
FRONT = "name: tidy\ndescription: Tidies the desk.\nlicense: MIT\nallowed-tools: Read Bash"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"---\n{FRONT}\n---\nDo.", []),
        (f"\ufeff---\r\n{FRONT}\r\n---\r\nDo.".replace("\n", "\r\n").replace("\r\r", "\r"), []),
        ("---\nname: tidy\ndescription: >\n  Tidies\n  the desk.\nallowed-tools: [Read, Bash]\n---\n", []),
        ("---\nname: tidy\n---\n", ["SKILL.md has no description"]),
        (f"---\n{FRONT}\ncompatibility: linux\n---\n", []),
        (f"---\n{FRONT}---\n".replace("MIT", "GPL"), ["SKILL.md has no front matter that can be read"]),
        (f"---\n{FRONT}\n---\n".replace("MIT", "GPL"), ["SKILL.md has the license 'GPL', the server has 'MIT'"]),
        (
            f"---\n{FRONT}\n---\n".replace("Read Bash", "Bash"),
            ["SKILL.md has the allowed-tools 'Bash', the server has 'Read Bash'"],
        ),
        ("---\nname: {a: b}\ndescription: Tidies the desk.\n---\n", ["SKILL.md has no name"]),
        ("Do.", ["SKILL.md has no front matter that can be read"]),
        ("---\n- a\n---\n", ["SKILL.md has no front matter that can be read"]),
        ("---\nname: [\n---\n", ["SKILL.md has no front matter that can be read"]),
        ("---\nname: !!python/object/apply:os.system [echo]\n---\n", ["SKILL.md has no front matter that can be read"]),
        (f"---\n{'[' * 20_000}\n---\n", ["SKILL.md has no front matter that can be read"]),
        (f"---\n{'a' * 70_000}: 1\n---\n", ["SKILL.md has no front matter that can be read"]),
    ],
)  # fmt: skip
def test_front_matter_is_compared_with_the_listing(text: str, expected: list[str]) -> None:
    assert compare(text, ITEM, "s3://b/tidy/") == expected


def test_name_in_front_matter_must_match_the_directory() -> None:
    assert compare(f"---\n{FRONT}\n---\n", ITEM, "s3://b/tidy-2") == ["its directory is named 'tidy-2'"]


def test_yaml_aliases_do_not_exhaust_memory() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*{'a' if not n else f'b{n - 1}'}, *a]\n" for n in range(200))
    assert front_matter(f"---\n{bomb}---\n") is None


def test_skill_with_costly_front_matter_is_read_and_downloaded(tmp_path: pathlib.Path) -> None:
    """Merge keys of merge keys would take hours, and a number of 13,000 digits cannot become text."""
    merges = ["a0: &a0 {k: v}"] + [f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 10)]
    root = tmp_path / "tidy"
    root.mkdir()
    (root / "SKILL.md").write_text(f"---\n{FRONT}\n---\nDo.")
    with (
        testing.running(skills={"s.d.tidy": str(root)}) as server,
        ds.SharingClient(server.profile, options=QUICK) as client,
    ):
        skill = client.skill("s.d.tidy")
        for number, matter in enumerate(("\n".join(merges), f"x: 0x{'f' * 11_000}", f"name: 0x{'f' * 11_000}")):
            text = f"---\n{matter}\ndescription: d\n---\nDo."
            (root / "SKILL.md").write_text(text)
            with pytest.warns(ds.SkillWarning):
                assert skill.read() == text
            with pytest.warns(ds.SkillWarning):
                skill.download(tmp_path / str(number))
            assert (tmp_path / str(number) / "tidy" / "SKILL.md").read_text() == text


@pytest.mark.parametrize("name", ["yes", "007", "1.10", "2026-01-01", "1:30", "0x10", "1e3"])
def test_text_that_looks_like_a_number_is_compared_as_text(name: str) -> None:
    item = msgspec.structs.replace(ITEM, license=name)
    assert compare(f"---\n{FRONT}\n---\n".replace("MIT", name), item, "s3://b/tidy/") == []
