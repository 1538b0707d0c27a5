"""The signatures of loader functions show every keyword, and the functions refuse unknown keywords before any
request."""

from __future__ import annotations

import inspect
import pydoc

import pytest

import delta_sharing_client as ds
from delta_sharing_client.table import SharedTable

LOADERS = [name for name in ds.__all__ if name.startswith(("load_", "scan_"))]


@pytest.mark.parametrize("name", LOADERS)
def test_help_shows_every_keyword_with_its_default(name: str) -> None:
    loader = getattr(ds, name)
    read = inspect.signature(SharedTable.changes if "changes" in name else SharedTable.scan).parameters
    own = inspect.signature(loader).parameters

    assert {"columns", "filter", "options"} <= set(own)
    assert all(own[key].default == read[key].default for key in own.keys() & read.keys())
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in own.values())
    text = pydoc.plain(pydoc.render_doc(loader))
    assert [key for key in own if f"{key}: " not in text] == []


@pytest.mark.parametrize("name", LOADERS)
def test_invalid_keyword_error_names_the_loader(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'colums'$"):
        getattr(ds, name)("no.share#a.b.c", colums=["a"])
