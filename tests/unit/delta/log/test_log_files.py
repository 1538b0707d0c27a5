from __future__ import annotations

import dataclasses
import json
import os
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.log.log_files import (
    LastCheckpointWarning,
    LocalDirectory,
    LogEntry,
    LogListing,
    canonical_json,
    hinted_checkpoint,
    json_checksum,
)
from tests.quota import meets, met

# The example in the section "JSON checksum" of the protocol.
SAMPLE = (
    '{"k0":"\'v 0\'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ["v3", [1, 2], '
    '{"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}'
)
CANONICAL = (
    '"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,'
    '"k1"+"k3"+2+"k4"="v4","k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6","k1"+"k3"+2+"k5"+2="v7"'
)


def test_json_checksum_matches_the_example_of_the_protocol() -> None:
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
def test_canonical_json_follows_each_rule_of_the_protocol(text: str, expected: str) -> None:
    assert canonical_json(text) == expected


@meets(several=19, wide=22)
@given(st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=4), st.none())))
def test_the_checksum_does_not_depend_on_order_or_spacing(document: dict[str, object]) -> None:
    met("several", len(document) > 1)
    met("wide", not json.dumps(document, ensure_ascii=False).isascii())
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
def test_valid_hint_selects_one_of_several_checkpoints(tmp_path: Path, hint: dict[str, object], chosen: str) -> None:
    text = json.dumps({**hint, "checksum": json_checksum(json.dumps(hint))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint = hinted_checkpoint(_listing(tmp_path, text, CLASSIC, *PARTS, V2))
        assert checkpoint is not None
        assert checkpoint.files[0] == chosen


def test_every_kind_of_log_file_counts_for_available_versions(tmp_path: Path) -> None:
    compacted = [
        f"{1:020}.{2:020}.compacted.json",
        f"{4:020}.{6:020}.compacted.json",
        f"{9:020}.{8:020}.compacted.json",
    ]
    listing = _listing(tmp_path, None, *compacted, CLASSIC)

    # There are a commit of 0, compacted files of 1 to 2 and 4 to 6, and a checkpoint of 3. 9 to 8 is not a range.
    assert listing.latest == 6
    assert listing.rebuildable == (0, 2, 3, 6)
    assert _listing(tmp_path, None, f"{7:020}.checkpoint.parquet").latest == 7
    assert _listing(tmp_path, None, f"{8:020}.json").latest == 8
    # Versions after a gap cannot be rebuilt.
    assert _listing(tmp_path, None, f"{10:020}.json").rebuildable == (0, 2, 3, 6, 7, 8)


def test_rebuildable_versions_start_at_a_checkpoint(tmp_path: Path) -> None:
    later = [f"{version:020}.json" for version in (7, 8, 9)]
    assert _listing(tmp_path, None, f"{6:020}.checkpoint.parquet", *later).rebuildable == (0, 6, 7, 8, 9)
    # A version needs only one complete chain of files.
    assert _listing(tmp_path, None, f"{4:020}.{8:020}.compacted.json").rebuildable == (0, 6, 7, 8, 9)


@pytest.mark.parametrize(
    ("numbers", "of", "complete"),
    [
        ((1, 2), 2, True),
        ((1,), 1, True),
        ((2,), 1, False),
        ((0, 2), 2, False),
        ((2, 3), 2, False),
        ((1, 3), 3, False),
        ((0,), 0, False),
        ((1,), 0, False),
        ((1,), 9_999_999_999, False),
    ],
)
def test_multi_part_checkpoint_needs_each_part(
    tmp_path: Path, numbers: tuple[int, ...], of: int, complete: bool
) -> None:
    names = [f"{3:020}.checkpoint.{number:010}.{of:010}.parquet" for number in numbers]
    checkpoints = _listing(tmp_path, None, *names).checkpoints
    assert checkpoints.keys() == ({3} if complete else set())
    if complete:
        assert checkpoints[3][0].files == tuple(names)


def test_compacted_range_may_have_one_commit(tmp_path: Path) -> None:
    assert _listing(tmp_path, None, f"{1:020}.{1:020}.compacted.json").latest == 1


def test_multi_part_checkpoint_has_the_time_of_its_newest_part(tmp_path: Path) -> None:
    _listing(tmp_path, None, *PARTS)
    os.utime(tmp_path / PARTS[0], (5, 5))
    os.utime(tmp_path / PARTS[1], (1, 1))
    (checkpoint,) = LogListing.read(LocalDirectory(tmp_path), "t").checkpoints[3]
    assert checkpoint.modified_ms == 5000


def test_classic_checkpoint_is_preferred_to_multi_part_and_v2(tmp_path: Path) -> None:
    names = [checkpoint.files[0] for checkpoint in _listing(tmp_path, None, V2, *PARTS, CLASSIC).checkpoints[3]]

    assert names == [CLASSIC, PARTS[0], V2]


def test_missing_hint_gives_no_warning(tmp_path: Path) -> None:
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
def test_damaged_or_stale_hint_is_ignored_with_a_warning(tmp_path: Path, text: str) -> None:
    with pytest.warns(LastCheckpointWarning, match="of the table 't' is ignored"):
        assert hinted_checkpoint(_listing(tmp_path, text, CLASSIC)) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"version":3,"version":3}', "it has a duplicate key"),
        ("[]", "it must be a JSON object"),
        ('{"version":"3"}', "version must be a whole number, found '3'"),
        ('{"version":3,"parts":-1}', "parts must be a whole number, found '-1'"),
        ('{"version":3,"parts":""}', "parts must be a whole number, found ''"),
        ('{"version":%s}' % ("9" * 21), f"version must be a whole number, found '{'9' * 21}'"),
        ('{"version":%s}' % ("9" * 20), r"checkpoint of version 9{20} in 1 part\(s\), which is not in the log"),
        ('{"version":3,"checksum":"0"}', "its checksum does not match its content"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "the JSON nests too deep"),
    ],
)
def test_warning_describes_the_error_in_the_hint(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.warns(LastCheckpointWarning, match=f"directory is used: .*{reason}"):
        assert hinted_checkpoint(_listing(tmp_path, text, CLASSIC)) is None


@pytest.mark.parametrize("backwards", [False, True])
def test_order_of_a_listing_does_not_matter(tmp_path: Path, backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    other = V2.replace("80a083e8", "90a083e8")
    compacted = [f"{0:020}.{last:020}.compacted.json" for last in (1, 2, 3)]
    names = [CLASSIC, *PARTS, V2, other, *compacted, *(f"{version:020}.json" for version in range(5))]
    entries = LocalDirectory.entries

    def ordered(self: LocalDirectory) -> list[LogEntry]:
        return sorted(entries(self), reverse=backwards)

    monkeypatch.setattr(LocalDirectory, "entries", ordered)
    listing = _listing(tmp_path, None, *names)
    assert [file.name for file in listing.compacted[0]] == compacted
    assert [checkpoint.files for checkpoint in listing.checkpoints[3]] == [(CLASSIC,), tuple(PARTS), (V2,), (other,)]
    assert list(listing.commits) == list(range(5))


def test_file_deleted_during_the_listing_has_an_unknown_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        name = CLASSIC

        def stat(self) -> None:
            raise FileNotFoundError

    monkeypatch.setattr(os, "scandir", lambda path: [Gone()])
    assert LocalDirectory(tmp_path).entries() == [LogEntry(CLASSIC, -1, 0)]


def test_empty_compaction_and_checkpoint_are_ignored(tmp_path: Path) -> None:
    name = f"{0:020}.{1:020}.compacted.json"
    listing = _listing(tmp_path, None, name, f"{1:020}.json", CLASSIC)
    assert [file.name for file in listing.compacted[0]] == [name]
    assert listing.checkpoints.keys() == {3}
    (tmp_path / name).write_text("")
    (tmp_path / CLASSIC).write_text("")
    listing = LogListing.read(LocalDirectory(tmp_path), "t")
    assert (listing.compacted, listing.checkpoints) == ({}, {})


def test_version_is_built_from_the_longest_compactions(tmp_path: Path) -> None:
    compacted = [f"{first:020}.{last:020}.compacted.json" for first, last in ((0, 1), (0, 2), (0, 4), (3, 3))]
    listing = _listing(tmp_path, None, *compacted, *(f"{version:020}.json" for version in range(1, 5)))
    for version, ranges in ((1, [0]), (2, [1]), (3, [1, 3]), (4, [2])):
        assert [file.name for file in listing.segment(version).deltas] == [compacted[index] for index in ranges]


def test_version_is_built_from_the_preferred_checkpoint(tmp_path: Path) -> None:
    listing = _listing(tmp_path, None, CLASSIC, V2, f"{3:020}.json", f"{4:020}.json")
    first, other = listing.checkpoints[3]
    for preferred, expected in ((None, first), (first, first), (other, other)):
        assert listing.segment(4, preferred).checkpoint is expected
    of_another_version = dataclasses.replace(other, version=2)
    assert listing.segment(4, of_another_version).checkpoint is first
