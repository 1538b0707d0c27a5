"""Accepted and refused values of read options."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import delta_sharing_client as ds


def test_enum_option_may_be_given_as_a_string() -> None:
    options = ds.ReadOptions(access_mode="DIR", file_id_hash="delta", variant_as="object")  # type: ignore[arg-type]
    chosen = ds.ReadOptions(
        access_mode=ds.AccessMode.DIR, file_id_hash=ds.FileIdHash.DELTA, variant_as=ds.VariantAs.OBJECT
    )
    assert options == chosen


@pytest.mark.parametrize("name", ["access_mode", "file_id_hash", "variant_as"])
def test_unknown_choice_is_refused(name: str) -> None:
    with pytest.raises(ds.UsageError, match=rf"'{name}' must be one of '.*', found 'directory'\."):
        ds.ReadOptions(**{name: "directory"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        # With this value, a read once waited for ever.
        ({"max_concurrent_requests": 0}, "'max_concurrent_requests' must be an integer of 1 or more, found 0."),
        ({"max_bytes_in_flight": 1.5}, "'max_bytes_in_flight' must be an integer of 1 or more, found 1.5."),
        ({"batch_rows": "1000"}, "'batch_rows' must be an integer of 1 or more, found '1000'."),
        ({"max_attempts": 0}, "'max_attempts' must be an integer of 1 or more, found 0."),
        ({"connect_timeout": None}, "'connect_timeout' must be a number above 0, found None."),
        ({"read_timeout": -1}, "'read_timeout' must be a number above 0, found -1."),
        ({"total_timeout": "5"}, "'total_timeout' must be a number above 0, or None, found '5'."),
        ({"max_retry_seconds": float("nan")}, "'max_retry_seconds' must be a number of 0 or more, found nan."),
        ({"min_bytes_per_second": -3}, "'min_bytes_per_second' must be a number of 0 or more, found -3."),
        ({"headers": "X-Key: secret"}, "'headers' must be a mapping of names to values, found str."),
    ],
)
def test_out_of_range_value_is_refused_when_set(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ds.UsageError) as refused:
        ds.ReadOptions(**options)

    assert str(refused.value) == message


def test_numpy_numbers_and_missing_limits_are_accepted() -> None:
    options = ds.ReadOptions(max_attempts=np.int64(3), read_timeout=np.float64(2), total_timeout=None)

    assert options.max_attempts == 3


@pytest.mark.parametrize("name", ["cache_directory", "cache_bytes"])
def test_removed_cache_is_a_warning_in_the_callers_line(name: str, tmp_path: Path) -> None:
    with pytest.warns(
        DeprecationWarning, match=rf"'{name}' has no effect: .* local copy with 'replicate\(\)'\."
    ) as caught:
        options = ds.ReadOptions(**{name: 1 if name == "cache_bytes" else tmp_path / "cache"})

    assert caught[0].filename == __file__
    assert options == dataclasses.replace(options) == pickle.loads(pickle.dumps(options)) == ds.ReadOptions()
    assert hash(options) == hash(ds.ReadOptions())
    assert not (tmp_path / "cache").exists()


def test_options_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(ds.UsageError, match=r"'options' must be a ReadOptions value, found dict\."):
        ds.SharingClient({}, options={"max_attempts": 1})  # type: ignore[arg-type]
