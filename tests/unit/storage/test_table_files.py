"""The files of a table whose locations are in several places: which place is asked for which path."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any, cast

import pytest

from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.fetch.place import DataRequest, Place, Refused
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.storage.table_files import TableFiles, address_of

LOCATIONS = ("s3://b/t", "s3://b/t/inner", "gs", "file:///x")


class Recorder:
    """Records the paths that are asked for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[str] = []

    async def get(self, request: DataRequest, take: object) -> None:
        self.asked.append(request.address)


def opened(location: str) -> tuple[str, Place]:
    """Open the bucket of a location, or a local directory."""
    root = location if location.startswith("file:") else "/".join(location.split("/", 3)[:3])
    return root, cast("Place", Recorder(location))


def files(*locations: str, **how: Any) -> TableFiles:
    return TableFiles("s.d.t", ReadOptions(), locations or LOCATIONS, opened, **how)


def asked(table: TableFiles, address: str) -> tuple[str, str]:
    """Return the location and the path that are asked for an address."""
    asyncio.run(table.get(DataRequest(address, None, Deadline(None)), cast("Any", None)))
    (recorder,) = (one for _, one in cast("Any", table._places.values()) if one.asked)
    return recorder.name, recorder.asked.pop()


@pytest.mark.parametrize(
    ("path", "location", "key"),
    [
        ("s3a://b/t/a%20b?c", "s3://b/t", "t/a%20b?c"),
        ("s3://b/t//a", "s3://b/t", "t//a"),
        ("s3://b/t/inner/a", "s3://b/t/inner", "t/inner/a"),
        ("s3://b/t/inner2", "s3://b/t", "t/inner2"),
        ("gs://any/a/b", "gs://any", "a/b"),
        ("GS://other/a", "gs://other", "a"),
        ("file:/x/a", "file:///x", "a"),
        ("/x//a//b/", "file:///x", "a/b"),
    ],
)
def test_file_is_read_from_its_longest_location(path: str, location: str, key: str) -> None:
    table = files()
    for _ in range(2):
        assert asked(table, table.checked(path)) == (location, key)
    assert list(table._places) == [location]
    # The place was not opened before the first request.
    assert asked(files(), address_of(path)) == (location, key)
    assert asked(pickle.loads(pickle.dumps(files())), address_of(path)) == (location, key)


@pytest.mark.parametrize("path", ["s3://b/t", "s3://b/tt/a", "s3://b/t/../u", "s3://c/t/a", "a/b", "/y/a", "gsx://b/a"])
def test_file_outside_the_locations_is_not_read(path: str) -> None:
    table = files(advice="Ask.")
    for ask in (table.checked, lambda path: asked(table, address_of(path))):
        with pytest.raises(UnsupportedFeatureError, match=r"outside of the locations .* Ask") as caught:
            ask(path)
        assert (caught.value.table, caught.value.file_id) == ("s.d.t", address_of(path))


def test_further_locations_are_requested_if_needed() -> None:
    requests: list[int] = []

    def more() -> list[str]:
        requests.append(1)
        return ["s3://c/t"]

    table = files("s3://b/t", more=more)
    table.checked("s3://b/t/a")
    assert not requests
    for _ in range(2):
        assert asked(table, table.checked("s3://c/t/a")) == ("s3://c/t", "t/a")
    assert len(requests) == 1


def test_place_of_another_location_is_not_asked() -> None:
    table = TableFiles("s.d.t", ReadOptions(), ["s3://b/t"], lambda _: ("s3://c", cast("Place", Recorder("c"))))
    with pytest.raises(UnsupportedFeatureError):
        table.checked("s3://b/t/a")


def test_path_below_a_location_can_be_decoded() -> None:
    table = TableFiles("s.d.t", ReadOptions(), ["s3://b/a%20b"], lambda here: (here, cast("Place", Recorder(here))))
    assert table.checked("s3://b/a%20b/c%20d", lambda path: path.replace("%20", " ")) == "s3://b/a%20b/c d"


def test_files_of_a_table_are_not_listed() -> None:
    with pytest.raises(Refused) as caught:
        asyncio.run(files().page("", None, Deadline(None), recursive=True))
    assert caught.value.status == 405
