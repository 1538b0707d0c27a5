"""YAML of a provider: the text of scalars, lists and mappings, in bounded time and memory."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.provider_yaml import ProviderYamlError, parse, parse_json
from tests.quota import meets, met

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=8) | st.sampled_from(
    ["", "~", "null", "yes", "1", "0x10", "<<", "*a", "&a", "!a", "a: b", "- a", "# a", "'", '"', "2026-01-01"]
)
VALUES = st.recursive(
    TEXT | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@meets(nested=5, like_other_values=5)
@given(VALUES)
def test_quoted_text_lists_and_mappings_are_read_as_written(value: Any) -> None:
    met("nested", any(isinstance(item, (list, dict)) for item in value) if isinstance(value, list) else False)
    met("like_other_values", any(f'"{text}"' in json.dumps(value) for text in ("", "~", "null", "yes", "1", "0x10")))
    # JSON without escapes is YAML, and PyYAML's own dump quotes whatever its full loader would not read as text.
    assert parse(json.dumps(value, ensure_ascii=False, indent=1)) == value
    assert parse(yaml.safe_dump(value, allow_unicode=True, sort_keys=False)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": "1"}),
        ("a: yes\nb: 1.0\nc: 0o7", {"a": "yes", "b": "1.0", "c": "0o7"}),
        ("a:\nb: ~\nc: null\nd: ''\ne: 'null'", {"a": None, "b": None, "c": None, "d": "", "e": "null"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("a: >\n  x\n  y\n", {"a": "x y\n"}),
        ("- a\n- [b, {c: d}]", ["a", ["b", {"c": "d"}]]),
        ("a: !!str 1", {"a": "1"}),
        ("a: &unused x", {"a": "x"}),
        ("'<<': x", {"<<": "x"}),
        ("a: <<", {"a": "<<"}),
        ("", None),
        ("# nothing", None),
    ],
)
def test_scalars_are_their_text(text: str, value: Any) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &a x\nb: *a", r"the alias '\*a'"),
        ("a: &a {b: c}\nd:\n  <<: *a", r"the alias '\*a'"),
        ("a: &a [*a]", r"the alias '\*a'"),
        ("<<: {a: b}", "a merge key"),
        ("a: {<<: [{b: c}, {d: e}]}", "a merge key"),
        ("a: !!python/object/apply:os.system [echo]", "the tag 'tag:yaml.org,2002:python/object/apply:os.system'"),
        ("a: !secret x", "the tag '!secret'"),
        ("a: !!binary aGk=", "the tag"),
        ("a: !!set {b}", "the tag"),
        ("a: 1\na: 2", "the same key twice"),
        ("a: {b: 1, 'b': 2}", "the same key twice"),
        ("? [a]\n: b", "unhashable key"),
        ("a: b: c", "mapping values are not allowed"),
        ("a\n---\nb", "expected a single document"),
        ("a: \x00", "special characters"),
        ("- " * 51, "nested deeper than 50"),
        ("[" * 51, "nested deeper than 50"),
        ("".join(" " * n + "a:\n" for n in range(60)), "nested deeper than 50"),
        ("[" * 1001, "more than 1,000 opening brackets"),
        ("a" * (64 * 1024 + 1), "65,537 characters"),
    ],
)
def test_other_yaml_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ProviderYamlError, match=reason) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300


def test_limits_themselves_are_allowed() -> None:
    assert parse("a" * 64 * 1024) == "a" * 64 * 1024
    assert str(parse("- " * 49 + "a")).count("[") == 49
    assert len(parse(f"[{'[],' * 999}]")) == 999


@meets(nested=5, numbers=10)
@given(
    st.recursive(
        TEXT | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=8,
    )
)
def test_json_is_read_as_json(value: Any) -> None:
    met("nested", any(isinstance(item, (list, dict)) for item in value) if isinstance(value, list) else False)
    met("numbers", bool(re.search(r"\d", json.dumps(value))))
    # JSON is YAML of the core schema, except for two characters.
    text = json.dumps(value, ensure_ascii=False, indent=1).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    assert json.dumps(parse_json(text), sort_keys=True) == json.dumps(json.loads(text), sort_keys=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: 1.0\nc: 0o17\nd: 0x1F\ne: 010\nf: +5", {"a": 1, "b": 1.0, "c": 15, "d": 31, "e": 10, "f": 5}),
        ("a: .5\nb: 1.\nc: 1e3\nd: -1.5E-2", {"a": 0.5, "b": 1.0, "c": 1000.0, "d": -0.015}),
        ("a: true\nb: False\nc: TRUE\nd: tRUE", {"a": True, "b": False, "c": True, "d": "tRUE"}),
        # Values of YAML 1.1 that are text in YAML 1.2.
        (
            "a: yes\nb: on\nc: 1_000\nd: 12:30\ne: 2026-01-02",
            {"a": "yes", "b": "on", "c": "1_000", "d": "12:30", "e": "2026-01-02"},
        ),
        ("a: '1'\nb: \"true\"\nc: |\n  1\n", {"a": "1", "b": "true", "c": "1\n"}),
        ("a:\nb: ~\nc: null\nd: 'null'", {"a": None, "b": None, "c": None, "d": "null"}),
        ("1: a\nTrue: b\n0x10: c\n'1.0': d", {"1": "a", "true": "b", "16": "c", "1.0": "d"}),
        ("- [1, {a: [2]}]", [[1, {"a": [2]}]]),
        ('"\\ud83d\\ude00": "\\ud83d\\ude00"', {"\U0001f600": "\U0001f600"}),
    ],
)
def test_scalars_are_values_of_json(text: str, value: Any) -> None:
    found = parse_json(text)
    assert found == value
    assert json.dumps(found) == json.dumps(value)


@pytest.mark.parametrize(
    "text",
    [
        "a: .inf",
        "a: -.Inf",
        "a: .NaN",
        "a: 1e999",
        "a: !!str 1",
        "a: !x y",
        "<<: {a: 1}",
        "a: &a 1\nb: *a",
        "a: 1\na: 2",
        "a: " + "9" * 5000,
        "? {a: b}\n: c",
        "1.0: a",
        "a: 'b\u2028c'",
        "a: 'b\x85c'",
        "~: a",
        "12345678901234567890: a",
        "1: a\n'1': b",
        # Text that no JSON in UTF-8 can have.
        'a: "\\ud800"',
        'a: ["x\\udc00y"]',
        '"\\udfff": a',
    ],
)
def test_what_json_lacks_is_refused(text: str) -> None:
    with pytest.raises(ProviderYamlError):
        parse_json(text)
