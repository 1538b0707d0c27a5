"""Options of reads: what is taken, and what is refused."""

from __future__ import annotations

import pytest

import delta_sharing_client as ds


def test_a_choice_may_be_given_by_its_name() -> None:
    options = ds.ReadOptions(access_mode="DIR", file_id_hash="delta", variant_as="object")  # type: ignore[arg-type]
    chosen = ds.ReadOptions(
        access_mode=ds.AccessMode.DIR, file_id_hash=ds.FileIdHash.DELTA, variant_as=ds.VariantAs.OBJECT
    )
    assert options == chosen


@pytest.mark.parametrize("name", ["access_mode", "file_id_hash", "variant_as"])
def test_a_choice_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"'directory' is not a valid \w+"):
        ds.ReadOptions(**{name: "directory"})
