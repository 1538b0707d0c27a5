"""Listings: pages until the end, markers of directories, and listings that are wrong or never end."""

from __future__ import annotations

import asyncio
import gc
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.errors import DataError, TransportError
from delta_sharing_client.fetch.listing import list_pages
from delta_sharing_client.fetch.place import Page, Refused, StoredFile
from delta_sharing_client.fetch.source import Fetcher
from delta_sharing_client.http.retry import Tries
from delta_sharing_client.options import ReadOptions
from tests.effort import examples
from tests.places import Scripted, pages
from tests.quota import meets, met


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failed(tries: Tries, failure: Any) -> None:
        tries._wait(failure)

    monkeypatch.setattr(Tries, "failed_async", failed)


def page(*names: str, folders: tuple[str, ...] = (), markers: tuple[str, ...] = (), mark: str | None = None) -> Page:
    """Return a page of files; names that begin with ``0:`` are empty files."""
    files = [StoredFile(name.removeprefix("0:"), 0 if name.startswith("0:") else 1) for name in names]
    return Page(files, list(folders), frozenset(markers), mark)


def listed(*answers: Any, folder: str = "", recursive: bool = True, **how: Any) -> list[str]:
    found = pages(Scripted([*answers], **how), folder, recursive=recursive)
    return [name for one in found for name in [*(file.path for file in one.files), *(f"{f}/" for f in one.folders)]]


def test_listing_that_makes_no_progress_is_an_error() -> None:
    for answers, words in (
        ([page("a", mark="1"), page("b", mark="1")], "it repeats a page"),
        ([page("b", mark="1"), page("a", mark="2")], "'a' comes after 'b'"),
        ([page("a", "b", mark="1"), page("b", "c", mark="2")], "'b' comes after 'b'"),
        ([page(mark=str(number)) for number in range(1002)], "1000 pages in a row are empty"),
    ):
        with pytest.raises(TransportError, match=f"listing of volume a.b.c makes no progress: {words}"):
            listed(*answers)
    # Pages that have entries which do not count are no sign of an endless listing.
    filled = [page(mark=str(number))._replace(others=1) for number in range(1500)]
    marked = [page(mark=f"m{number}", markers=(f"m{number}",)) for number in range(1500)]
    assert listed(*filled, *marked, page("z")) == ["z"]
    # A store without an order may list names in any.
    assert listed(page("b", mark="1"), page("a"), lists_in_order=False) == ["b", "a"]


def test_hierarchical_order_is_accepted() -> None:
    assert listed(page("a/x", mark="1"), page("a-b/y")) == ["a/x", "a-b/y"]
    assert listed(page("a-b", folders=("a",), mark="1"), page("a.c"), recursive=False) == ["a-b", "a/", "a.c"]


def test_names_outside_of_the_folder_are_refused() -> None:
    for wrong in (page("b/x"), page("ab"), page(folders=("b",))):
        with pytest.raises(DataError, match=r"not in volume a\.b\.c"):
            listed(wrong, folder="a")


def test_page_is_requested_again_and_refusals_are_raised() -> None:
    place = Scripted([503, page("a", mark="1"), 500, page("b")])
    assert [file.path for one in pages(place) for file in one.files] == ["a", "b"]
    assert [asked[1] for asked in place.asked] == [None, None, "1", "1"]
    for status in (403, 404, 400):
        with pytest.raises(Refused):
            pages(Scripted([status]))
    with pytest.raises(TransportError, match=r"files of volume a.b.c cannot be listed.*503.*Tried 3 times"):
        pages(Scripted([503] * 3))
    ended = Scripted([page("a", mark="1")], options=ReadOptions(total_timeout=0.001, max_attempts=1))
    with pytest.raises((TransportError, IndexError)):
        pages(ended)


def test_next_page_is_requested_while_one_is_used() -> None:
    place = Scripted([page("a", mark="1"), page("b")])

    async def first() -> int:
        generator = list_pages(Fetcher(place), subject="volume a.b.c")
        await anext(generator)
        await asyncio.sleep(0.01)
        count = len(place.asked)
        await generator.aclose()
        return count

    assert asyncio.run(first()) == 2


def test_error_of_an_unused_page_is_not_reported() -> None:
    reported: list[object] = []

    async def first() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        generator = list_pages(Fetcher(Scripted([page("a", mark="1"), 403])), subject="volume a.b.c")
        await anext(generator)
        await asyncio.sleep(0.01)
        await generator.aclose()
        del generator
        gc.collect()

    asyncio.run(first())
    assert reported == []


def test_markers_of_directories_are_not_files() -> None:
    # An empty 'a' beside 'a/b' is a directory, wherever the page ends.
    for cut in range(1, 5):
        names = ["0:a", "a-c", "a/b", "0:e"]
        answers = [page(*names[:cut], mark="1"), page(*names[cut:])] if cut < 4 else [page(*names)]
        assert sorted(listed(*answers)) == ["a-c", "a/b", "e"]
    assert listed(page("0:a", mark="1"), page("0:b", mark="2"), page("c")) == ["a", "b", "c"]
    assert listed(page("0:a", folders=("a",)), recursive=False) == ["a/"]
    assert listed(page("0:a", mark="1"), page(folders=("a",)), recursive=False) == ["a/"]
    assert listed(page("0:a", markers=("a", "b")), recursive=False) == ["a/", "b/"]
    # The folder itself is not in its own listing.
    assert listed(page("a/x", markers=("a",)), folder="a", recursive=False) == ["a/x"]
    # A filled 'a' is a file.
    assert listed(page("a", "a/b")) == ["a", "a/b"]


NAMES = ["a", "a-", "a-/b", "a/a", "a/a/b", "a/b", "a0", "b", "b/a", "b/a/b", "ba", "ba-b", "ba/b", "0a", "0a/a"]


@meets(marker=20, split=20, file=20)
@settings(max_examples=examples(300), deadline=None)
@given(st.sets(st.sampled_from(NAMES), max_size=12), st.lists(st.integers(1, 4), min_size=1))
def test_pages_do_not_change_what_is_listed(keys: set[str], sizes: list[int]) -> None:
    """The same files are listed whatever the pages are; keys that end with 'a' are empty."""
    ordered = sorted(keys)
    empty = {key for key in ordered if key.endswith("a")}
    expected = [key for key in ordered if key not in empty or not any(one.startswith(f"{key}/") for one in ordered)]
    chunks, rest, number = [], [f"0:{key}" if key in empty else key for key in ordered], itertools.cycle(sizes)
    while rest:
        count = next(number)
        chunks.append(rest[:count])
        rest = rest[count:]
    answers = [page(*chunk, mark=str(at)) for at, chunk in enumerate(chunks)]
    if len(expected) < len(ordered):
        met("marker")
    if len(chunks) > 1:
        met("split")
    if set(expected) & empty:
        met("file")
    found = listed(*answers, page())
    assert sorted(found) == expected
