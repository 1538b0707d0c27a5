"""``load_model`` downloads a version, and lets MLflow load it. tools/peers/test_mlflow.py uses MLflow itself."""

from __future__ import annotations

import gc
import pathlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client import testing


class Model:
    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)
        self.flavors = (self.path / "MLmodel").read_text()
        if "damaged" in self.flavors:
            raise ValueError("a reason of MLflow")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[ds.SharingClient]:
    pyfunc = types.ModuleType("mlflow.pyfunc")
    pyfunc.load_model = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", types.ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", pyfunc)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    versions: Any = {1: {"MLmodel": b"flavors"}, 2: {"weights": b"x"}, 3: {"MLmodel": b"damaged"}}
    with testing.running(models={"s.d.m": versions}) as server, ds.SharingClient(server.profile) as client_:
        # The server has directories of its own.
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        yield client_


def test_temporary_files_live_as_long_as_the_model(client: ds.SharingClient, tmp_path: pathlib.Path) -> None:
    model = client.model("s.d.m").version(1).load_model(trusted=True)
    assert (model.flavors, model.path.parent) == ("flavors", tmp_path / "temporary")
    assert model.path.is_dir()
    del model
    gc.collect()
    assert [*(tmp_path / "temporary").iterdir()] == []


@pytest.mark.parametrize("form", [str, pathlib.Path])
def test_files_in_a_directory_are_kept(
    client: ds.SharingClient, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, form: Any
) -> None:
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    model = client.model("s.d.m").version(1).load_model(form("~/here"), trusted=True)
    assert model.path == tmp_path / "here"
    del model
    gc.collect()
    assert (tmp_path / "here" / "MLmodel").is_file()


@pytest.mark.parametrize(
    ("version", "trusted", "error", "message"),
    [
        (1, False, ds.UsageError, "runs code of its provider"),
        (1, "yes", ds.UsageError, "pass trusted=True"),
        (2, True, ds.UsageError, "to have a file 'MLmodel'"),
        (3, True, ValueError, "a reason of MLflow"),
    ],
)
def test_models_that_are_not_loaded(
    client: ds.SharingClient, tmp_path: pathlib.Path, version: int, trusted: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        client.model("s.d.m").version(version).load_model(trusted=trusted)
    assert [*(tmp_path / "temporary").iterdir()] == []


def test_missing_mlflow_is_named(client: ds.SharingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", None)
    with pytest.raises(ds.UsageError, match=r"needs the package 'mlflow'.*pip install mlflow"):
        client.model("s.d.m").version(1).load_model(trusted=True)
