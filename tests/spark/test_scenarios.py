"""``scenarios.md`` lists the test for each scenario; every listed test exists."""

from __future__ import annotations

import pathlib
import re

HERE = pathlib.Path(__file__).parent
ROWS = re.findall(r"^\| (.+) \| (.+) \|$", (HERE / "scenarios.md").read_text("utf-8"), re.MULTILINE)[2:]


def test_every_scenario_names_tests_that_exist() -> None:
    assert len(ROWS) > 60
    for scenario, tests in ROWS:
        names = re.findall(r"`([\w/]+\.py)::(test_\w+)`", tests)
        assert names, scenario
        for file, name in names:
            path = HERE.parents[1] / file if "/" in file else HERE / file
            assert f"def {name}(" in path.read_text("utf-8"), f"{scenario}: {file}::{name} does not exist"
