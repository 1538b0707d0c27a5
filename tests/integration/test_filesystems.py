"""Volumes as fsspec file systems: fsspec's own tests of reading, and URLs that pandas and others open."""

from __future__ import annotations

import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pandas as pd
import pytest
from fsspec.implementations.local import LocalFileSystem, make_path_posix
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests
from fsspec.tests.abstract.common import GLOB_EDGE_CASES_TESTS

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.sharing_filesystem import SharingFileSystem
from tests.effort import sample


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("volume")


@pytest.fixture(scope="module")
def server(root: pathlib.Path) -> Iterator[Any]:
    with mock_server.running(volumes={"s.d.docs": f"file://{root}"}) as running:
        yield running


@pytest.fixture(params=["volume", "profile"])
def mounted(request: pytest.FixtureRequest, server: Any) -> tuple[Any, str]:
    """A file system, and the path of the volume's root in it."""
    if request.param == "volume":
        return ds.SharingClient(server.profile).volume("s.d.docs").filesystem(), ""
    return SharingFileSystem(profile=server.profile), "s.d.docs/"


class VolumeFixtures(AbstractFixtures):  # type: ignore[misc]
    """fsspec's scenarios, which are written into the volume's directory, because a volume is read-only."""

    @pytest.fixture
    def fs(self, mounted: tuple[Any, str]) -> Any:
        return mounted[0]

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *parts: "/".join(part for part in parts if part)

    @pytest.fixture
    def fs_path(self, mounted: tuple[Any, str]) -> str:
        return mounted[1].rstrip("/")

    @pytest.fixture
    def written(self, root: pathlib.Path, mounted: tuple[Any, str]) -> Iterator[Callable[[str], str]]:
        """Map the path of what a scenario wrote to the same path in the file system."""
        local = LocalFileSystem(auto_mkdir=True)

        def path(result: str) -> str:
            return mounted[1] + make_path_posix(result).removeprefix(f"{make_path_posix(str(root))}/")

        yield path
        for entry in local.ls(str(root), detail=False):
            local.rm(entry, recursive=True)

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, root: pathlib.Path, written: Callable[[str], str]) -> str:
        return written(self._bulk_operations_scenario_0(LocalFileSystem(auto_mkdir=True), _join, str(root)))

    @pytest.fixture
    def fs_glob_edge_cases_files(self, root: pathlib.Path, written: Callable[[str], str]) -> str:
        return written(self._glob_edge_cases_files(LocalFileSystem(auto_mkdir=True), _join, str(root)))

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, root: pathlib.Path, written: Callable[[str], str]) -> str:
        local = LocalFileSystem(auto_mkdir=True)
        return written(self._dir_and_file_with_same_name_prefix(local, _join, str(root)))

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, root: pathlib.Path, written: Callable[[str], str]) -> str:
        return written(self._10_files_with_hashed_names(LocalFileSystem(auto_mkdir=True), _join, str(root)))


def _join(*parts: str) -> str:
    return "/".join(parts)


class TestGet(VolumeFixtures, AbstractGetTests):  # type: ignore[misc]
    """fsspec's tests of ``get``, which list, expand patterns and read."""

    @pytest.mark.parametrize(GLOB_EDGE_CASES_TESTS["argnames"], sample(GLOB_EDGE_CASES_TESTS["argvalues"], 3))
    def test_get_glob_edge_cases(  # type: ignore[no-untyped-def]
        self,
        path,
        recursive,
        maxdepth,
        expected,
        fs,
        fs_join,
        fs_glob_edge_cases_files,
        local_fs,
        local_join,
        local_target,
    ) -> None:
        super().test_get_glob_edge_cases(
            path,
            recursive,
            maxdepth,
            expected,
            fs,
            fs_join,
            fs_glob_edge_cases_files,
            local_fs,
            local_join,
            local_target,
        )

    def test_get_directory_recursive(
        self, fs: Any, root: pathlib.Path, written: Callable[[str], str], tmp_path: pathlib.Path
    ) -> None:
        # fsspec's own test writes into the file system.
        source = root / "in" / "src"
        source.mkdir(parents=True)
        (source / "file").touch()
        for target, expected in ((tmp_path / "new", "file"), (tmp_path / "new", "src/file")):
            fs.get(written(str(source)), str(target), recursive=True)
            assert (target / expected).is_file()


def files(root: pathlib.Path) -> None:
    (root / "data" / "deep").mkdir(parents=True, exist_ok=True)
    (root / "data" / "a.csv").write_text("x,y\n1,2\n3,4\n")
    (root / "data" / "deep" / "b.csv").write_text("x,y\n5,6\n")
    (root / "empty").mkdir(exist_ok=True)


def test_both_file_systems_describe_files_alike(mounted: tuple[Any, str], root: pathlib.Path) -> None:
    files(root)
    fs, at = mounted
    assert fs.ls(f"{at}data", detail=False) == [f"{at}data/deep", f"{at}data/a.csv"]
    assert fs.find(f"{at}data") == [f"{at}data/a.csv", f"{at}data/deep/b.csv"]
    assert fs.find(f"{at}data", withdirs=True) == [f"{at}data/a.csv", f"{at}data/deep", f"{at}data/deep/b.csv"]
    assert fs.find(f"{at}data", maxdepth=1) == fs.find(f"{at}data/a.csv") == [f"{at}data/a.csv"]
    assert (fs.find(f"{at}none"), fs.ls(f"{at}data/a.csv", detail=False)) == ([], [f"{at}data/a.csv"])
    assert fs.glob(f"{at}data/**/*.csv") == [f"{at}data/a.csv", f"{at}data/deep/b.csv"]
    assert [(one[len(at) :], sorted(folders), sorted(names)) for one, folders, names in fs.walk(f"{at}data")] == [
        ("data", ["deep"], ["a.csv"]),
        ("data/deep", [], ["b.csv"]),
    ]
    assert (fs.isdir(f"{at}empty"), fs.ls(f"{at}empty"), fs.exists(f"{at}empty")) == (True, [], True)
    assert (fs.isfile(f"{at}data/a.csv"), fs.size(f"{at}data/a.csv")) == (True, 12)
    assert fs.read_block(f"{at}data/a.csv", 4, 4) == b"1,2\n"
    assert fs.cat_file(f"{at}data/a.csv", 4, -4) == b"1,2\n"
    assert (fs.cat_file(f"{at}data/a.csv", -2), fs.cat_file(f"{at}data/a.csv", 5, 5)) == (b"4\n", b"")
    assert fs.cat([f"{at}data/a.csv", f"{at}data/deep/b.csv"])[f"{at}data/deep/b.csv"] == b"x,y\n5,6\n"
    assert fs.head(f"{at}data/a.csv", 3) == b"x,y"
    assert fs.modified(f"{at}data/a.csv").year >= 2026
    assert not fs.exists(f"{at}none")
    with pytest.raises(FileNotFoundError):
        fs.info(f"{at}data/none")
    for write in (
        lambda: fs.rm(f"{at}data/a.csv"),
        lambda: fs.open(f"{at}new", "wb"),
        lambda: fs.mkdir(f"{at}new"),
        lambda: fs.makedirs(f"{at}new", exist_ok=True),
        lambda: fs.pipe_file(f"{at}new", b"1"),
        lambda: fs.touch(f"{at}new"),
        lambda: fs.mv(f"{at}data/a.csv", f"{at}new"),
        lambda: fs.put("here", "there"),
    ):
        with pytest.raises(OSError, match="read-only"):
            write()
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat_file(f"{at}data/a.csv", 0, 3) == b"x,y"


def test_errors_name_the_whole_path_and_what_is_there(mounted: tuple[Any, str], root: pathlib.Path) -> None:
    files(root)
    fs, at = mounted
    for read in (fs.open, fs.cat_file, fs.cat):
        with pytest.raises(IsADirectoryError) as directory:
            read(f"{at}data")
        assert directory.value.filename == f"{at}data"
        with pytest.raises(FileNotFoundError, match="There is no file or directory 'data/none' in volume") as missing:
            read(f"{at}data/none")
        assert missing.value.filename == f"{at}data/none"


@pytest.mark.parametrize("path", ["s.d.dogs", "s.d.dogs/data/a.csv", "s.d", "x/a.csv"])
def test_missing_volumes_are_paths_that_do_not_exist(server: Any, root: pathlib.Path, path: str) -> None:
    files(root)
    fs = SharingFileSystem(profile=server.profile)
    assert (fs.exists(path), fs.isdir(path), fs.isfile(path)) == (False, False, False)
    advice = "Did you mean 's.d.docs'" if "dogs" in path else "Expected a volume as share.schema.volume"
    for read in (fs.info, fs.ls, fs.find):
        with pytest.raises(FileNotFoundError, match=advice):
            read(path)


def test_errors_other_than_absence_are_no_absence(server: Any) -> None:
    fs = SharingFileSystem(profile={**server.profile, "bearerToken": "wrong"})
    with pytest.raises(ds.AuthError):
        fs.exists("s.d.docs/data")


def test_unknown_storage_options_are_refused() -> None:
    with pytest.raises(ds.UsageError, match="Unknown storage option 'profil': expected 'profile'"):
        fsspec.filesystem("delta-sharing", profil="my.share")
    fsspec.filesystem("delta-sharing", profile="my.share", skip_instance_cache=True, use_listings_cache=False)


def test_urls_are_opened_with_a_profile(server: Any, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(root)
    fsspec.register_implementation("delta-sharing", SharingFileSystem, clobber=True)
    url = "delta-sharing://s.d.docs/data/a.csv"
    assert pd.read_csv(url, storage_options={"profile": server.profile}).values.tolist() == [[1, 2], [3, 4]]
    path = root.parent / "my.share"
    path.write_text(server.profile if isinstance(server.profile, str) else __import__("json").dumps(server.profile))
    monkeypatch.setenv("DELTA_SHARING_PROFILE", str(path))
    assert len(pd.read_csv(url)) == 2
    fs, inner = fsspec.url_to_fs("delta-sharing://")
    assert (inner, fs.ls("", detail=False)) == ("", ["s.d.docs"])
    with pytest.raises(FileNotFoundError):
        fsspec.open("delta-sharing://s.d.docs/none").open()


def test_protocol_is_registered_by_the_installation() -> None:
    code = "import fsspec; print(fsspec.get_filesystem_class('delta-sharing').__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "SharingFileSystem"
