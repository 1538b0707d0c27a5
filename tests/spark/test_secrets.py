"""The output of Spark about reads: its event log, all pages of its UI, plans, errors, progress, checkpoints, logs and
temporary files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import planted
from tests.spark.conftest import forked_workers, make_spark_home

# In one pytest worker, because the reads take two minutes.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.xdist_group("secrets")]

SIGNATURE = re.compile(r"X-Amz-Signature=(?!\*)[^\s&\"'*\\]+")
SINKS = {
    "events": "SparkListenerSQLExecutionStart",
    "ui": "PushedFilters",
    "texts": "PushedFilters",
    "checkpoints": '"tableId"',
    "driver.log": "INFO TaskSetManager",
    "home/work": "INFO Executor",
    "disk": planted.IN_FUNCTIONS,
}
"""Where Spark shows something, and a text that is there if it does."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("planted")
    home = make_spark_home(folder / "home")
    with open(folder / "driver.log", "w") as log, forked_workers(tmp_path_factory.mktemp("forked")):
        # A separate process, which other tests' settings do not affect.
        own = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_GATEWAY"))}
        run = subprocess.run(
            [sys.executable, "-m", "tests.spark.planted", str(folder)],
            env={**own, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=500,
            check=False,
        )
    texts = {}
    for name in (*SINKS, "response.txt"):
        paths = [path for path in sorted([folder / name, *(folder / name).rglob("*")]) if path.is_file()]
        texts[name] = "\n".join(path.read_text(errors="replace") for path in paths if path.suffix != ".jar")
    assert run.returncode == 0, texts["driver.log"][-3000:]
    return texts


@pytest.mark.parametrize("sink", SINKS)
def test_spark_output_contains_no_secret(shown: dict[str, str], sink: str) -> None:
    text = shown[sink]

    assert SINKS[sink] in text
    secrets = (planted.TOKEN, planted.CLIENT_SECRET, planted.HEADER, "signed URL")
    assert [line for line in text.splitlines() if any(secret in line for secret in secrets)] == []
    assert SIGNATURE.findall(text) == []


def test_documentation_names_the_redaction_setting() -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()

    assert f'r"""{planted.REDACTING}"""' in text


def test_signed_urls_are_recognized(shown: dict[str, str]) -> None:
    assert len(SIGNATURE.findall(shown["response.txt"])) == 2


def test_spark_connect_shows_credentials_given_as_options(shown: dict[str, str]) -> None:
    """The documentation says so. This also shows that the other tests would detect a secret."""
    events = map(json.loads, filter(None, shown["events"].splitlines()))
    started = [event["statementText"] for event in events if "ConnectOperationStarted" in event["Event"]]

    assert any(planted.BY_HAND in text for text in started)
    assert any("redacted" in text for text in started)
    assert any('key: "credentials"' in text for text in started)
    assert planted.BY_HAND in shown["ui"]
    assert planted.REDACTED not in "".join(shown.values())
