"""``spark-submit`` jobs that get the package as a zip in ``--py-files`` or as a source path, and the profile from the
environment.

One job tests all of this, because a JVM takes longer to start than most tests run.
"""

from __future__ import annotations

import os
import pathlib
import py_compile
import subprocess
import sys
import textwrap
import venv
import zipfile
from collections.abc import Iterator
from py_compile import PycInvalidationMode
from typing import Any

import pyspark
import pytest

import mock_server
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES
from tests.effort import sample
from tests.spark.conftest import SETTINGS
from tests.spark.streams import ID, changed_table
from tests.tables import TableWriter, rows_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not HAS_DATA_SOURCES, reason="PySpark 3.5 has no Python data sources"),
]
ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = ("delta_sharing_client", "pyspark_delta_sharing", "pyspark_delta_sharing_alias")
JOB = """
    import importlib.metadata, sys
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.getOrCreate()
    import delta_sharing_client as ds
    try:
        importlib.metadata.version("delta-sharing-client")
        print("metadata yes")
    except importlib.metadata.PackageNotFoundError:
        print("metadata no")
    print("from", ds.__file__)
    frame = ds.load_as_spark(sys.argv[1]).where("id > 1")
    print("pushed", "PushedFilters" in frame._jdf.queryExecution().toString())
    print("loaded", [row.id for row in frame.collect()])
    print("format", spark.read.format("deltaSharing").load(sys.argv[1]).count())
    one = spark.sparkContext.parallelize([0], 1)
    print("executor", one.map(lambda _: __import__("delta_sharing_client").__file__).first())
    print("named", spark.read.format("deltaSharing").load("share.schema.t").count())
    from delta_sharing_client.spark.datasource import DeltaSharingSource
    class Registered(DeltaSharingSource):
        name = classmethod(lambda _: "registered")  # PySpark 4.0 takes no name twice
    spark.dataSource.register(Registered)
    print("registered", spark.read.format("registered").load("share.schema.t").count())
    spark.stop()
"""


@pytest.fixture
def bare_python(tmp_path: pathlib.Path) -> str:
    """An interpreter that has all dependencies of the package, but neither the package nor its metadata."""
    venv.create(tmp_path / "bare", symlinks=True)
    (there,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    for path in sys.path:
        if path.endswith("-packages"):
            for entry in pathlib.Path(path).iterdir():
                is_own = entry.name.lower().replace("-", "_").lstrip("_").startswith((*OWN, "editable"))
                if not is_own and not (there / entry.name).exists():
                    (there / entry.name).symlink_to(entry)
    return str(tmp_path / "bare" / "bin" / "python")


@pytest.fixture
def other_profile(tmp_path: pathlib.Path) -> Iterator[str]:
    """The profile of a server whose table has five rows."""
    TableWriter(tmp_path / "other", ID).insert(rows_of(range(5)))
    with mock_server.running(tables={"share.schema.t": tmp_path / "other"}) as server:
        yield str(server.profile_path)


@pytest.mark.parametrize("is_zip", sample([True, False], 2))
def test_spark_submit_job_runs_with_a_zip_or_a_source_path(
    bare_python: str, lake: Any, other_profile: str, tmp_path: pathlib.Path, is_zip: bool
) -> None:
    """A data source found by PySpark sees the environment in which Spark was started; a registered one sees
    ``spark.executorEnv``."""
    changed_table(lake.root / "t")
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    settings["spark.executorEnv.DELTA_SHARING_PROFILE"] = other_profile
    command = [f"{pathlib.Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local[1]"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    place = tmp_path / "package.zip" if is_zip else ROOT
    # Spark looks for data sources in a worker of the driver, which does not have the files of --py-files.
    environment |= {"PYTHONPATH": str(place), "PYSPARK_PYTHON": bare_python, "PYSPARK_DRIVER_PYTHON": bare_python}
    environment["DELTA_SHARING_PROFILE"] = lake.url("t").split("#")[0]
    if is_zip:
        with zipfile.ZipFile(place, "w") as package:
            for file in (file for own in OWN for file in (ROOT / own).rglob("*") if file.suffix in (".py", ".java")):
                package.write(file, file.relative_to(ROOT))
                if file.suffix == ".py":  # a dozen processes import from the zip, and each would compile its modules
                    compiled = py_compile.compile(
                        str(file), str(tmp_path / "compiled"), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
                    )
                    package.write(compiled, file.relative_to(ROOT).with_suffix(".pyc"))
        command += ["--py-files", str(place)]
    command += [str(tmp_path / "job.py"), lake.url("t")]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = dict(line.split(" ", 1) for line in run.stdout.splitlines() if " " in line)
    assert lines.get("loaded") == "[30]", run.stderr[-3000:]
    assert lines["metadata"] == "no"
    assert lines["format"] == "2"
    for line in ("from", "executor"):
        assert ("package.zip/" if is_zip else f"{ROOT}/delta_sharing_client/") in lines[line]
    assert lines["pushed"] == "True"
    assert lines["named"] == "2"
    assert lines["registered"] == "5"
