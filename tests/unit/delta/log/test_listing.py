from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.log.listing import (
    LastCheckpointWarning,
    LocalDirectory,
    LogListing,
    canonical_json,
    hinted_checkpoint,
    json_checksum,
)

# The test vector of the protocol, "JSON checksum".
SAMPLE = (
    '{"k0":"\'v 0\'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ["v3", [1, 2], '
    '{"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}'
)
CANONICAL = (
    '"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,'
    '"k1"+"k3"+2+"k4"="v4","k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6","k1"+"k3"+2+"k5"+2="v7"'
)


def test_the_protocol_s_own_example_has_the_stated_form_and_checksum() -> None:
    assert canonical_json(SAMPLE) == CANONICAL
    assert json_checksum(SAMPLE) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"a": 10, "b": {"y": null, "x": "https://delta.io"} }',
            '"a"=10,"b"+"x"="https%3A%2F%2Fdelta.io","b"+"y"=null',
        ),
        ('{"a":[null, "hi ho", 2.71]}', '"a"+0=null,"a"+1="hi%20ho","a"+2=2.71'),
        ('{"a":1.50,"b":1E3,"c":true}', '"a"=1.50,"b"=1E3,"c"=true'),
        ('{"é":"-._~"}', '"%C3%A9"="-._~"'),
        ('{"b":{"checksum":1},"checksum":2}', '"b"+"checksum"=1'),
        ("{}", ""),
    ],
)
def test_each_rule_of_the_canonical_form(text: str, expected: str) -> None:
    assert canonical_json(text) == expected


@given(st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=4), st.none())))
def test_the_checksum_does_not_depend_on_order_or_spacing(document: dict[str, object]) -> None:
    backwards = dict(reversed(document.items()))
    assert json_checksum(json.dumps(document)) == json_checksum(json.dumps(backwards, indent=2))


def _listing(tmp_path: Path, text: str | None, *names: str) -> LogListing:
    (tmp_path / f"{0:020}.json").touch()
    for name in names:
        (tmp_path / name).write_text("{}", "utf-8")
    if text is not None:
        (tmp_path / "_last_checkpoint").write_text(text, encoding="utf-8")
    return LogListing.read(LocalDirectory(tmp_path), "t")


CLASSIC = f"{3:020}.checkpoint.parquet"
PARTS = [f"{3:020}.checkpoint.{i:010}.{2:010}.parquet" for i in (1, 2)]
V2 = f"{3:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"


@pytest.mark.parametrize(
    ("hint", "chosen"),
    [
        ({"version": 3, "size": 1}, CLASSIC),
        ({"version": 3, "size": 1, "parts": 2}, PARTS[0]),
        ({"version": 3, "size": 1, "v2Checkpoint": {"path": V2}}, V2),
    ],
)
def test_a_good_hint_chooses_among_checkpoints_of_one_version(
    tmp_path: Path, hint: dict[str, object], chosen: str
) -> None:
    text = json.dumps({**hint, "checksum": json_checksum(json.dumps(hint))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hinted_checkpoint(_listing(tmp_path, text, CLASSIC, *PARTS, V2))
        assert found is not None
        assert found.name == chosen


def test_no_hint_is_no_reason_for_a_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hinted_checkpoint(_listing(tmp_path, None, CLASSIC)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version":3,"size":1,"checksum":"00000000000000000000000000000000"}',
        '{"version":3,"size":1,"checksum":5}',
        '{"version":4,"size":1}',
        '{"version":3,"size":1,"parts":3}',
        '{"version":3,"version":3}',
        '{"version":-1}',
        '{"version":"3"}',
        '{"version":3.0}',
        '{"version":1e400}',
        '{"size":1}',
        '{"a":' * 100_000 + "1" + "}" * 100_000,
    ],
)
def test_a_damaged_or_stale_hint_is_ignored_with_a_warning(tmp_path: Path, text: str) -> None:
    with pytest.warns(LastCheckpointWarning, match="_last_checkpoint of table t is ignored"):
        assert hinted_checkpoint(_listing(tmp_path, text, CLASSIC)) is None
