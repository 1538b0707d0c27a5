"""The recipes in docs/recipes.md run with the packages that they name and with the sample tables: bash
scripts/engines."""

from __future__ import annotations

import functools
import importlib
import json
import operator
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds

# scripts/engines runs each test in an environment in which its package is installed.
MUST_RUN = bool(os.environ.get("RECIPES_MUST_RUN"))
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "recipes.md"


def package(name: str) -> Any:
    if MUST_RUN:
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"bash scripts/engines runs this with {name}")


def recipe(title: str, kind: str = "py") -> str:
    """Return the code block of a kind that has a title: its first line, or a heading or text before it."""
    blocks: list[str] = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text().split(title, 1)[1], re.DOTALL)
    return blocks[0]


def code(title: str) -> str:
    [block] = [
        block for block in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if block.startswith(f"# {title}")
    ]
    return str(block)


def run(title: str, **names: Any) -> dict[str, Any]:
    exec(compile(code(title), PAGE.name, "exec"), names)
    return names


def test_every_recipe_is_run() -> None:
    blocks = re.findall(r"```(\w+)\n(?:# (\w+))?", PAGE.read_text())
    tested = {match[1] for name in globals() if (match := re.fullmatch("test_(.*)_recipe", name))}
    assert {title.lower() for kind, title in blocks if kind == "py"} == tested
    # The other blocks are dbt's profile and model and Kedro's catalog.
    assert sorted(kind for kind, _ in blocks if kind != "py") == ["sql", "yaml", "yaml"]


@pytest.fixture
def orders(serve_demo: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> ds.SharedTable:
    """The table that the recipes read; its profile is in the working directory."""
    (tmp_path / "demo.share").write_text(json.dumps(serve_demo.profile))
    monkeypatch.chdir(tmp_path)
    return ds.SharingClient("demo.share").table("demo.shop.orders")


def test_streamlit_recipe(orders: ds.SharedTable, serve_demo: Any) -> None:
    testing = package("streamlit.testing.v1")

    app = testing.AppTest.from_string(code("Streamlit"), default_timeout=60).run()
    expected = {}
    for country in ("DE", "FR", "DE"):
        app.selectbox[0].select(country)
        serve_demo.reset_stats()
        app.run()
        assert not app.exception
        expected[country] = orders.scan(["order_id"], ds.col("country") == country).count()
        assert len(app.dataframe[0].value) == expected[country] > 0
    assert expected["DE"] != expected["FR"]
    serve_demo.reset_stats()
    app.run()  # the same read by another client
    assert not serve_demo.stats()["bytes"].get("data")


def test_gradio_recipe(orders: ds.SharedTable, serve_demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    package("gradio")
    from gradio_client import Client

    page = run("Gradio")["page"]
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True)
    try:
        client = Client(url, verbose=False)
        expected = orders.scan(["order_id", "amount"], "country = 'FR' AND amount >= 500").to_arrow().to_pylist()
        results = [client.predict("FR", 500, api_name="/orders") for _ in range(2)]
        assert results[0] == results[1]
        assert sorted(row[0] for row in results[0]["data"]) == sorted(row["order_id"] for row in expected)
        serve_demo.reset_stats()
        client.predict("FR", 500, api_name="/orders")
        assert not serve_demo.stats()["bytes"].get("data")
    finally:
        page.close()


def test_fastapi_recipe(orders: ds.SharedTable) -> None:
    package("fastapi")
    from fastapi.testclient import TestClient

    with TestClient(run("FastAPI")["app"]) as client:
        response = client.get("/orders", params={"country": "DE"})
    assert response.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert pa.ipc.open_stream(response.content).read_all() == orders.scan(filter="country = 'DE'").to_arrow()


def test_dbt_recipe(orders: ds.SharedTable, tmp_path: pathlib.Path) -> None:
    package("dbt.adapters.duckdb")
    import duckdb

    (tmp_path / "sharing.py").write_text(code("dbt"))
    (tmp_path / "profiles.yml").write_text(recipe("# dbt", "yaml"))
    (tmp_path / "dbt_project.yml").write_text("name: shop\nprofile: shop\nversion: '1.0'\nmodel-paths: [models]\n")
    (tmp_path / "models").mkdir()
    for name in ("by_country", "again"):  # dbt runs two models at a time
        (tmp_path / "models" / f"{name}.sql").write_text(recipe("# dbt", "sql"))
    command = [sys.executable, "-m", "dbt.cli.main", "run", "--threads", "2", "--profiles-dir", "."]
    environment = {**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = orders.to_arrow().group_by("country").aggregate([("amount", "sum")]).to_pylist()
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        for name in ("by_country", "again"):
            returned = dict(connection.execute(f"SELECT country, amount FROM {name}").fetchall())
            assert returned == pytest.approx({row["country"]: row["amount_sum"] for row in rows})


_RUN_DAG = """
import runpy
run = runpy.run_path("dags/shop.py")["pipeline"].test()
assert run.state == "success", run.state
"""


def test_airflow_recipe(orders: ds.SharedTable, serve_demo: Any, tmp_path: pathlib.Path) -> None:
    package("airflow")
    folder = tmp_path / "dags"
    folder.mkdir()
    (folder / "shop.py").write_text(code("Airflow"))
    result = serve_demo.profile
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_DEMO": json.dumps(
            {"conn_type": "generic", "host": result["endpoint"], "password": result["bearerToken"]}
        ),
    }
    for command in ([sys.executable, "-m", "airflow", "db", "migrate"], [sys.executable, "-c", _RUN_DAG]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        assert result["bearerToken"] not in output
    assert pq.read_table("orders.parquet").equals(orders.scan(filter="country = 'DE'").to_arrow())


def test_dagster_recipe(orders: ds.SharedTable) -> None:
    dagster = package("dagster")

    made = run("Dagster", __name__="shop")
    resources = {"share": made["Share"](profile="demo.share")}
    result = dagster.materialize([made["orders"]], resources=resources)
    assert result.success
    rows = pq.read_table("orders.parquet")
    assert rows.equals(orders.scan(filter="country = 'DE'").to_arrow())
    [event] = result.asset_materializations_for_node("orders")
    assert event.metadata["rows"].value == rows.num_rows
    assert event.metadata["version"].value == orders.version()


def test_kedro_recipe(orders: ds.SharedTable, serve_demo: Any, tmp_path: pathlib.Path) -> None:
    package("kedro")
    import yaml
    from kedro.io import DataCatalog
    from kedro.pipeline import node, pipeline
    from kedro.runner import SequentialRunner

    made = run("Kedro", __name__="my_project.datasets")
    config = yaml.safe_load(recipe("# Kedro", "yaml"))
    config["orders"]["type"] = made["SharedTableDataset"]
    catalog = DataCatalog.from_config(config, {"demo_share": serve_demo.profile})
    assert serve_demo.profile["bearerToken"] not in repr(catalog["orders"])
    result = SequentialRunner().run(pipeline([node(len, "orders", "count")]), catalog)["count"]
    count = result.load() if hasattr(result, "load") else result
    assert count == orders.scan(filter="country = 'DE'").count()


def test_pytorch_recipe(orders: ds.SharedTable, tmp_path: pathlib.Path) -> None:
    package("torch")
    scan = orders.scan(["order_id", "amount"], version=orders.version())
    (tmp_path / "training.py").write_text(
        "def rows(scan):\n"
        + "".join(f"    {line}\n" if line.startswith("loader") else "" for line in code("PyTorch").splitlines())
        + "    return loader\n\n\n"
        + "\n".join(line for line in code("PyTorch").splitlines() if not line.startswith("loader"))
    )
    sys.path.insert(0, str(tmp_path))  # the worker processes import it as well
    try:
        import training  # type: ignore[import-not-found]

        loader = training.rows(scan)
        for _ in range(2):  # two epochs
            results = [{name: values.tolist() for name, values in batch.items()} for batch in loader]
            ids = sorted(functools.reduce(operator.iadd, (batch["order_id"] for batch in results), []))
            assert ids == sorted(scan.to_arrow()["order_id"].to_pylist())
    finally:
        sys.path.remove(str(tmp_path))
