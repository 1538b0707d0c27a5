"""Optional dependencies."""

from __future__ import annotations

import pytest

from delta_sharing_client import optional
from delta_sharing_client.errors import UsageError


def test_a_missing_module_is_named_with_the_line_that_installs_it() -> None:
    with pytest.raises(UsageError, match=r"pip install 'delta-sharing-client\[polars\]'"):
        optional.load("a_module_that_nobody_has", "polars")


def test_an_error_inside_a_present_module_is_not_hidden(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_with_a_gap.py").write_text("import another_module_that_nobody_has\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="another_module"):
        optional.load("module_with_a_gap", "polars")
