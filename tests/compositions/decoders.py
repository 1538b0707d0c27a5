"""Settings with which small files are read by every decoder and shortcut, and the numbers of their uses."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delta_sharing_client.decode import file, layout, row_groups
from delta_sharing_client.decode.decoder import Selection
from delta_sharing_client.decode.equality import DeletedValues
from delta_sharing_client.decode.layout import Layout
from delta_sharing_client.outputs import dataset
from delta_sharing_client.outputs import polars as polars_frames
from delta_sharing_client.plan import packed
from delta_sharing_client.protocol import windows
from delta_sharing_client.shortcuts import SHORTCUTS
from delta_sharing_client.spark import datasource
from tests.unit.decode.eager import make_eager, make_gentle

Uses = Counter[str]


@contextlib.contextmanager
def applied(settings: tuple[str, ...]) -> Iterator[None]:
    """Apply the settings of a case: how a file is cut into requests, and the shortcuts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in settings:
            _SETTINGS[name](patch)
        yield


def _one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Give every row group or file to a different partition, and pack the tasks of a plan."""
    patch.setattr(datasource, "LEAST_PARTITION", 1)
    patch.setattr(packed, "MANY_FILES", 2)


_SETTINGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "eager": make_eager,
    "late": lambda patch: make_eager(patch, is_late=True),
    "gentle": make_gentle,
    "dictionaries": lambda patch: patch.setattr(layout, "_LEAST_DICTIONARY_ROWS", 1),
    "windows": lambda patch: patch.setattr(windows, "FEW", 4),
    "no streaming": lambda patch: patch.setattr(SHORTCUTS, "streamed_listing", False),
    "one by one": _one_by_one,
}


@contextlib.contextmanager
def counted() -> Iterator[Uses]:
    """Count the uses of each decoder and shortcut during the block."""
    uses: Uses = Counter()

    def spy(patch: pytest.MonkeyPatch, owner: Any, name: str, use: str, is_use: Callable[[Any], object]) -> None:
        real = getattr(owner, name)

        def spied(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            uses[use] += bool(is_use(result))
            return result

        patch.setattr(owner, name, spied)

    with pytest.MonkeyPatch.context() as patch:
        for module in (polars_frames, dataset):
            spy(patch, module, "with_pushed", "pushed", lambda read: read.request.pushed_filter is not None)
        spy(patch, file, "read_whole", "whole_file", lambda _: True)
        spy(patch, file, "read_row_groups", "row_groups", lambda _: True)
        spy(patch, file, "constant_batches", "constant", lambda _: True)
        spy(patch, row_groups, "with_pages", "page_index", lambda found: found[1].pages)
        spy(patch, row_groups, "narrow", "late_columns", lambda _: True)
        spy(patch, row_groups, "cut", "cut_group", lambda _: True)
        spy(patch, row_groups, "rebuild", "stub_pages", lambda found: found[1])
        spy(patch, Layout, "dictionaries", "dictionaries", lambda found: found)
        spy(patch, Selection, "mask", "vectors", lambda found: found is not None)
        spy(patch, DeletedValues, "kept", "equality", lambda _: True)
        spy(patch, windows, "feed_windows", "windows", lambda found: found is not None)
        spy(patch, datasource, "plan_packed", "packed", lambda _: True)
        yield uses
