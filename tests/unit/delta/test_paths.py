from __future__ import annotations

from pathlib import Path, PureWindowsPath
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta import paths
from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    DeletionVectorDescriptor,
    RemoveFile,
    SharedFile,
)
from delta_sharing_client.delta.paths import (
    canonical_path,
    is_absolute,
    is_url,
    resolve,
    shared_file_key,
    unversioned,
    url_key,
)
from delta_sharing_client.errors import DataError
from tests.quota import meets, met

segments = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=10).filter(
    lambda text: text not in (".", "..")
)


@meets(quoted=24)
@given(st.lists(segments, min_size=1, max_size=4))
def test_relative_file_name_round_trips(parts: list[str]) -> None:
    name = "/".join(parts)
    encoded = quote(name)
    met("quoted", encoded != name)
    assert not is_absolute(encoded)
    assert canonical_path(encoded) == name
    assert resolve("/table", encoded) == Path("/table") / name


@meets(quoted=24)
@given(st.lists(segments, min_size=1, max_size=4))
def test_absolute_file_name_round_trips(parts: list[str]) -> None:
    met("quoted", quote("".join(parts)) != "".join(parts))
    name = "/" + "/".join(parts)
    encoded = "file://" + quote(name)
    for path in (encoded, quote(name)):
        assert is_absolute(path)
        assert resolve("/table", path) == Path(name)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a%2520b", "a%20b"),
        ("p=%2B%21/x", "p=+!/x"),
        ("a+b", "a+b"),
        ("file:/x/y", "/x/y"),
        ("file:///x/y%20z", "/x/y z"),
        ("FILE:///x", "/x"),
        ("/x/y", "/x/y"),
        ("s3://bucket/a%20b", "s3://bucket/a b"),
        ("https://h/p?sig=secret", "https://h/p"),
        ("http://h/a%20b?sig=secret", "http://h/a%20b"),
        ("HTTPS://h/p?sig=secret", "HTTPS://h/p"),
        ("s3://bucket/a?b", "s3://bucket/a?b"),
        ("a/./b", "a/b"),
        ("./a", "a"),
        ("a//b", "a/b"),
        ("a/../b", "b"),
        ("a/%2E%2E/b", "b"),
        ("/a/./b", "/a/b"),
        ("//a/b", "/a/b"),
        ("///a//b", "/a/b"),
        ("file:///x//y", "/x/y"),
        ("s3://bucket/a//b/./c", "s3://bucket/a//b/./c"),
        ("https://h/a//b/../c?sig=secret", "https://h/a//b/../c"),
        ("date=2024-01-01 10:00:00/x", "date=2024-01-01 10:00:00/x"),
    ],
)
def test_one_file_has_one_canonical_path(path: str, expected: str) -> None:
    assert canonical_path(path) == expected


@pytest.mark.parametrize("path", ["file:/x", "FILE:///x", "File:/x"])
def test_file_scheme_is_case_insensitive(path: str) -> None:
    assert resolve("/table", path) == Path("/x")


@pytest.mark.parametrize("path", ["s3://b/x", "https://host/file?sig=secret", "../up", "a/%2E%2E/b", "", "a%00b"])
def test_error_of_a_path_outside_the_table_has_no_signature(path: str) -> None:
    with pytest.raises(DataError) as caught:
        resolve("/table", path)
    assert "secret" not in str(caught.value)


SIGNED = "https://h/p?sig=secret"


@pytest.mark.parametrize(
    ("file", "key"),
    [
        (SharedFile(AddFile(SIGNED), "a"), "a"),
        (SharedFile(AddFile(SIGNED), "a:b"), "add::a:b"),
        (SharedFile(AddFile(SIGNED), "a", version=0), "add:0:a"),
        (SharedFile(AddFile(SIGNED), None), "add::https://h/p"),
        (SharedFile(AddFile(SIGNED), "", version=3), "add:3:https://h/p"),
        (SharedFile(AddFile("a?b"), None), "add::a?b"),
        (SharedFile(RemoveFile(SIGNED), "a"), "remove::a"),
        (SharedFile(RemoveFile(SIGNED), "a", version=4), "remove:4:a"),
        (SharedFile(AddCdcFile(SIGNED), "a"), "cdc::a"),
        (SharedFile(AddCdcFile(SIGNED), None, version=4), "cdc:4:https://h/p"),
    ],
)
def test_url_key_has_kind_version_and_id_or_path(file: SharedFile, key: str) -> None:
    assert url_key(file) == key


def vector(kind: str, path: str, offset: int | None = 1) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(kind, path, 4, 1, offset)


@pytest.mark.parametrize(
    ("descriptor", "vector_id", "key"),
    [
        (None, None, "a"),
        (vector("i", "x", None), None, ("a", "ix")),
        (vector("u", "x"), "v", ("a", "ux@1")),
        (vector("p", "/d"), None, ("a", "p/d@1")),
        (vector("p", "/d"), "v", ("a", "pv@1")),
        (vector("p", "https://h/d?sig=secret"), None, ("a", "phttps://h/d@1")),
        (vector("p", "https://h/d?sig=secret", 7), "v", ("a", "pv@7")),
    ],
)
def test_shared_file_key_includes_its_deletion_vector(
    descriptor: DeletionVectorDescriptor | None, vector_id: str | None, key: object
) -> None:
    file = SharedFile(AddFile(SIGNED, deletion_vector=descriptor), "a", vector_id)
    assert shared_file_key(file) == key


def test_only_http_urls_with_a_host_are_urls() -> None:
    assert is_url("https://h/p")
    assert is_url("HTTP://h/p")
    assert not is_url("file:///p")
    assert not is_url("p=http://x")
    assert is_url("https://h")
    assert is_url("hTTpS://h?x")
    assert not is_url("http:///p")
    assert not is_url("https://?p")
    assert not is_url("https://#p")
    assert not is_url("http://")
    assert not is_url("http:/h/p")


@pytest.mark.parametrize(
    ("key", "same"),
    [
        ("a", "add::a"),
        ("add:7:a", "add::a"),
        ("remove:7:b:c", "remove::b:c"),
        ("cdc::a", "cdc::a"),
        ("add:7:", "add::"),
    ],
)
def test_version_is_removed_from_a_key(key: str, same: str) -> None:
    assert unversioned(key) == same


# === Windows ===

WINDOWS_FILES = [
    r"C:\data\part-0.parquet",
    r"c:\data\a b\größe #1 %41.parquet",
    "D:\\",
    r"\\server\share\folder\x.parquet",
]


@pytest.mark.parametrize("file", WINDOWS_FILES)
def test_url_of_a_windows_file_names_that_file(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """pathlib, which writes the URLs, is the oracle."""
    monkeypatch.setattr(paths, "Path", PureWindowsPath)
    url = PureWindowsPath(file).as_uri()
    for each in (url, url.replace("file:///", "FILE:/"), url.replace("file:///", "file://localhost/")):
        assert paths.resolve(r"E:\table", each) == PureWindowsPath(file)
    assert paths.resolve(r"E:\table", "a/b%20c") == PureWindowsPath(r"E:\table\a\b c")
    with pytest.raises(DataError, match="inside the table"):
        paths.resolve(r"E:\table", "..%5Cx")


def test_local_host_of_a_file_url_is_no_directory(tmp_path: Path) -> None:
    assert paths.resolve(tmp_path, "file://localhost/data/x") == Path("/data/x")
    assert paths.resolve(tmp_path, "file:///C:/x") == Path("/C:/x")
    assert paths.canonical_path("file://localhost/data/x") == paths.canonical_path("file:///data/x")
