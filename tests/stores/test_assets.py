"""A volume's files in the stores that `scripts/stores` and `scripts/s3` start are listed, read and downloaded, with
special names, several pages, and credentials that expire between two files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd
import pytest

import delta_sharing_client as ds
import mock_server
from mock_server import asset_files, catalog
from tests.stores.conftest import Store, Vendor

pytestmark = pytest.mark.stores

OPTIONS = ds.ReadOptions(max_attempts=2)
ODD = ["a b/c d.txt", "umlaut/Größe 100%.csv", "x=1/y=2/z+.txt", "deep/er/and/deeper/still.txt", 'quote\'d "name".txt']
# More files than fit a page of a listing, which has 1,000 names (5,000 in Azure).
MANY = 1100
Open = Callable[..., contextlib.AbstractContextManager[ds.Volume]]


@pytest.fixture
def opened(store: Store) -> Open:
    """Return a function that shares a directory of the store as a volume and opens the volume."""

    @contextlib.contextmanager
    def open_volume(directory: str, vendors: Mapping[str, Vendor] | None = None, **options: Any) -> Iterator[ds.Volume]:
        asset = asset_files.volume(("s", "d", "files"), f"{store.root}/{directory}")
        settings = dataclasses.replace(OPTIONS, storage_options=store.storage_options)
        with (
            mock_server.running(
                catalog.build((), assets=[asset]), vendors=vendors or store.vendors, s3=store.s3, **options
            ) as server,
            ds.SharingClient(server.profile, options=settings) as client,
        ):
            yield client.volume("s.d.files")

    return open_volume


@pytest.fixture
def directory(store: Store) -> str:
    """A directory name that no other test uses."""
    return f"assets/{time.time_ns()}"


def content(path: str) -> bytes:
    return (path * 50).encode()


def test_special_names_are_listed_read_and_downloaded(
    store: Store, opened: Open, directory: str, tmp_path: pathlib.Path
) -> None:
    for path in ODD:
        store.put(f"{directory}/{path}", content(path))
    # A sibling of the directory, whose name begins with the directory's name.
    store.put(f"{directory}-not/other.txt", b"other")
    with opened(directory) as volume:
        assert sorted(file.path for file in volume.files()) == sorted(ODD)
        assert {file.path: file.size for file in volume.files()} == {path: len(content(path)) for path in ODD}
        assert [file.path for file in volume.files("x=1")] == ["x=1/y=2/z+.txt"]
        assert [volume.read_bytes(path) for path in ODD] == [content(path) for path in ODD]
        done = volume.download(tmp_path / "here")
        assert sorted(done.downloaded) == sorted(ODD)
        assert [(tmp_path / "here" / path).read_bytes() for path in ODD] == [content(path) for path in ODD]
        assert volume.download(tmp_path / "here").unchanged == len(ODD)
        with pytest.raises(ds.NotFoundError, match=r"missing\.txt"):
            volume.read_bytes("missing.txt")


def test_large_file_is_read_from_any_position(
    store: Store, opened: Open, directory: str, tmp_path: pathlib.Path
) -> None:
    large = os.urandom(20 * 1024 * 1024)
    store.put(f"{directory}/large.bin", large)
    with opened(directory) as volume:
        with volume.open("large.bin") as stream:
            for start in (0, 7_000_000, 3, len(large) - 5):
                stream.seek(start)
                assert stream.read(100) == large[start : start + 100]
        volume.download(tmp_path)
    digests = [hashlib.sha256(data).hexdigest() for data in (large, (tmp_path / "large.bin").read_bytes())]
    assert digests[0] == digests[1]


def test_long_listing_has_every_file(store: Store, opened: Open, directory: str) -> None:
    names = [f"{number % 7}/{number:05}.txt" for number in range(MANY)]
    for name in names:
        store.put(f"{directory}/{name}", b"x")
    with opened(directory) as volume:
        assert sorted(file.path for file in volume.files()) == sorted(names)
        assert sorted(file.path for file in volume.files("3", pattern="*1.txt")) == sorted(
            name for name in names if name.startswith("3/") and name.endswith("1.txt")
        )


def test_pandas_reads_a_file_through_the_file_system(store: Store, opened: Open, directory: str) -> None:
    store.put(f"{directory}/prices/a.csv", b"name,price\nlamp,24.5\n")
    store.put(f"{directory}/prices/b.csv", b"name,price\nchair,89\n")
    with opened(directory) as volume:
        files = volume.filesystem()
        frames = [pd.read_csv(files.open(path)) for path in sorted(files.glob("prices/*.csv"))]
        assert pd.concat(frames)["price"].tolist() == [24.5, 89.0]
        assert files.isdir("prices")
        assert not files.exists("prices/c.csv")


def test_credentials_that_expire_between_files_are_renewed(store: Store, opened: Open, directory: str) -> None:
    paths = [f"{number}.txt" for number in range(6)]
    for path in paths:
        store.put(f"{directory}/{path}", content(path))
    given: list[str] = []

    def counted(scheme: str) -> Vendor:
        def vend(location: str, seconds: float) -> Mapping[str, object]:
            given.append(location)
            return store.vendors[scheme](location, seconds)

        return vend

    with opened(directory, {scheme: counted(scheme) for scheme in store.vendors}, credentials_ttl=2.0) as volume:
        for path in paths:
            assert volume.read_bytes(path) == content(path)
            time.sleep(0.7)

    assert 2 < len(given) <= len(paths)
    assert set(given) == {f"{store.root}/{directory}"}


def test_expired_credentials_are_refused_without_being_shown(store: Store, opened: Open, directory: str) -> None:
    if store.ended is None:
        pytest.skip("This store takes every token.")
    store.put(f"{directory}/a.txt", b"a")
    with opened(directory, store.ended) as volume:
        for use in (lambda: list(volume.files()), lambda: volume.read_bytes("a.txt")):
            with pytest.raises(ds.DeltaSharingError, match="refused") as caught:
                use()
            assert not any(secret in str(caught.value) for secret in ("sig=", "planted"))


def test_volume_is_read_in_another_process(store: Store, opened: Open, directory: str, tmp_path: pathlib.Path) -> None:
    store.put(f"{directory}/a.txt", content("a.txt"))
    with opened(directory) as volume:
        (tmp_path / "volume").write_bytes(pickle.dumps(volume))
        program = "import pickle, sys; print(len(pickle.load(open(sys.argv[1], 'rb')).read_bytes('a.txt')))"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "volume")],
            capture_output=True, text=True, timeout=120, check=True, env=environment,
        )  # fmt: skip
    assert int(run.stdout) == len(content("a.txt"))
