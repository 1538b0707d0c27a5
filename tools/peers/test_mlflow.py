"""MLflow loads a downloaded model version: ``bash scripts/mlflow``."""

from __future__ import annotations

import pathlib

import pandas as pd
import pytest

import delta_sharing_client as ds
from delta_sharing_client import testing

pyfunc = pytest.importorskip("mlflow.pyfunc", reason="MLflow has its own environment; see scripts/mlflow")


def test_mlflow_loads_a_downloaded_model_version(tmp_path: pathlib.Path) -> None:
    class Doubling(pyfunc.PythonModel):
        def predict(self, context: object, model_input: pd.DataFrame, params: object = None) -> pd.Series:
            return model_input["x"] * 2

    pyfunc.save_model(str(tmp_path / "saved"), python_model=Doubling(), pip_requirements=[])
    models, aliases = {"s.d.churn": {3: tmp_path / "saved"}}, {"s.d.churn": {"champion": 3}}
    with testing.running(models=models, aliases=aliases) as server, ds.SharingClient(server.profile) as client:
        version = client.model("s.d.churn").alias("champion")
        version.download(tmp_path / "here")
        for model in (pyfunc.load_model(str(tmp_path / "here")), version.load_model(trusted=True)):
            assert list(model.predict(pd.DataFrame({"x": [1, 2]}))) == [2, 4]
