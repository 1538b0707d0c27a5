from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.paths import canonical_path, is_absolute, is_url, resolve, unversioned
from delta_sharing_client.errors import DataError
from tests.quota import meets, met

segments = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=10).filter(
    lambda text: text not in (".", "..")
)


@meets(quoted=24)
@given(st.lists(segments, min_size=1, max_size=4))
def test_any_relative_file_name_survives_the_log(parts: list[str]) -> None:
    name = "/".join(parts)
    encoded = quote(name)
    met("quoted", encoded != name)
    assert not is_absolute(encoded)
    assert canonical_path(encoded) == name
    assert resolve("/table", encoded) == Path("/table") / name


@meets(quoted=24)
@given(st.lists(segments, min_size=1, max_size=4))
def test_any_absolute_file_name_survives_the_log(parts: list[str]) -> None:
    met("quoted", quote("".join(parts)) != "".join(parts))
    name = "/" + "/".join(parts)
    encoded = "file://" + quote(name)
    assert is_absolute(encoded)
    assert resolve("/table", encoded) == Path(name)


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
        ("date=2024-01-01 10:00:00/x", "date=2024-01-01 10:00:00/x"),
    ],
)
def test_one_file_has_one_canonical_path(path: str, expected: str) -> None:
    assert canonical_path(path) == expected


@pytest.mark.parametrize("path", ["s3://b/x", "https://host/file?sig=secret", "../up", "a/%2E%2E/b", "", "a%00b"])
def test_a_path_that_is_no_file_of_a_local_table_is_refused_without_its_signature(path: str) -> None:
    with pytest.raises(DataError) as caught:
        resolve("/table", path)
    assert "secret" not in str(caught.value)


def test_only_http_urls_are_urls() -> None:
    assert is_url("https://h/p")
    assert is_url("HTTP://h/p")
    assert not is_url("file:///p")
    assert not is_url("p=http://x")


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
def test_a_key_without_its_version_names_a_file_of_one_snapshot(key: str, same: str) -> None:
    assert unversioned(key) == same
