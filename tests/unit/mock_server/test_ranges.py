"""The change data feed: its files and versions, and which requests are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mock_server.table_writer import TableWriter
from tests.unit.mock_server.helpers import (
    DELTA,
    Api,
    Protocol,
    at,
    error_of,
    kinds,
    rows,
    stamp,
    table,
    write_feed,
)

CHANGES = "shares/default/schemas/default/tables/{}/changes?{}"


def refusal(api: Api, name: str, query: str, capabilities: str | None = None) -> str:
    response = api.get(CHANGES.format(name, query), capabilities)
    assert error_of(response)[0] == 400
    return str(response.json()["message"])


@pytest.mark.parametrize("capabilities", [None, DELTA])
def test_change_files_replace_adds_and_removes_of_a_commit(api: Api, capabilities: str | None) -> None:
    lines = api.changes("feed", "startingVersion=1", capabilities)
    change = "cdf" if capabilities is None else "cdc"
    assert kinds(lines) == [(2, "add"), (3, change), (5, "add")]
    assert lines.version == 1
    assert lines.metadata["version"] == 5
    assert [line for line in lines.all[2:] if "metaData" in line] == []
    for line, url in zip(lines.files, lines.urls, strict=True):
        ((_, file),) = line.items()
        assert file["timestamp"] == int(at(file["version"]).timestamp() * 1000)
        assert file["size"] == len(api.fetch(url).content)


def test_feed_without_change_files_has_adds_and_removes(api: Api) -> None:
    lines = api.changes("vectors", "startingVersion=0", DELTA)
    assert kinds(lines) == [(0, "add"), (1, "add"), (1, "remove"), (2, "add"), (2, "remove")]
    removed = lines.files[-1]["file"]["deltaSingleAction"]["remove"]
    assert removed["deletionVector"]["cardinality"] == 2
    assert lines.files[-1]["file"]["deletionVectorFileId"]


@pytest.mark.parametrize(
    ("query", "versions"),
    [
        ("startingVersion=2&endingVersion=3", [2, 3]),
        ("startingVersion=4&endingVersion=99", [5]),
        ("startingVersion=4&endingVersion=4", []),
        (f"startingTimestamp={stamp(2)}&endingTimestamp={stamp(3)}", [2, 3]),
        ("startingTimestamp=2026-03-01T02:00:01Z&endingVersion=3", [3]),
        ("startingVersion=3&endingTimestamp=2999-01-01T00:00:00Z", [3, 5]),
    ],
)
def test_both_ends_of_a_range_are_inclusive(api: Api, query: str, versions: list[int]) -> None:
    assert [version for version, _ in kinds(api.changes("feed", query))] == versions


def test_historical_metadata_is_sent_first_and_after_changes(api: Api) -> None:
    for spelling in ("true", "True"):
        lines = api.changes("feed", f"startingVersion=2&includeHistoricalMetadata={spelling}")
        assert lines.metadata["version"] == 2
        assert [line["metaData"]["version"] for line in lines.all[2:] if "metaData" in line] == [4]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("startingVersion=3&endingVersion=2", "from start 3 to end 2"),
        ("startingVersion=6", "Start version cannot be greater than the latest version of the table(5)"),
        ("startingTimestamp=2999-01-01T00:00:00Z", "after the newest version"),
        ("startingVersion=2&endingTimestamp=2000-01-01T00:00:00Z", "before the earliest version"),
        ("startingVersion=-1", "greater than or equal to 0"),
        ("startingVersion=1&includeHistoricalMetadata=maybe", "true or false"),
        ("startingVersion=0", "change data was not recorded for version [0]"),
    ],
)
def test_unavailable_range_is_400_with_a_reason(api: Api, query: str, words: str) -> None:
    message = refusal(api, "feed", query)
    assert words in message
    # The client knows which table it requested, so the message does not repeat the name.
    assert "(table " not in message


def test_error_names_the_version_that_has_no_change_feed(start: Callable[..., Api], tmp_path: Path) -> None:
    on = table("t", delta_enableChangeDataFeed="true")
    writer = TableWriter(tmp_path / "t")
    writer.commit([Protocol(1, 4), on, writer.add(rows(1), time=at(0))], "WRITE", at(0))
    writer.commit([table("t")], "SET TBLPROPERTIES", at(1))
    writer.commit([on], "SET TBLPROPERTIES", at(2))
    own = start(tmp_path)
    assert "not recorded for version [1]" in refusal(own, "t", "startingVersion=0")
    assert kinds(own.changes("t", "startingVersion=2")) == []
    assert kinds(own.changes("t", "startingVersion=0&endingVersion=0")) == [(0, "add")]


def test_missing_commit_is_refused(start: Callable[..., Api], tmp_path: Path) -> None:
    write_feed(tmp_path / "t")
    (tmp_path / "t" / "_delta_log" / f"{3:020}.json").unlink()
    response = start(tmp_path).get(CHANGES.format("t", "startingVersion=2"))
    assert response.status_code == 400
    assert "3" in response.json()["message"]


def test_feed_is_split_into_pages(api: Api) -> None:
    whole = kinds(api.changes("feed", "startingVersion=1&includeHistoricalMetadata=true"))
    query, result, metadata = "startingVersion=1&includeHistoricalMetadata=true&maxFiles=1", [], 0
    page = api.changes("feed", query)
    while True:
        result += kinds(page)
        metadata += sum("metaData" in line for line in page.all[2:])
        assert len(page.files) == 1
        assert page.end is not None
        token = page.end.get("nextPageToken")
        if token is None:
            break
        page = api.changes("feed", f"{query}&pageToken={token}")
    assert result == whole
    assert metadata == 1


def test_bare_tombstone_is_completed_from_the_previous_version(start: Callable[..., Api], tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "t")
    add = writer.add(rows(1), {"p": "a"}, time=at(0))
    described = table("t", partition=("p",), delta_enableChangeDataFeed="true")
    writer.commit([Protocol(1, 4), described, add], "WRITE", at(0))
    # Old writers wrote only the path.
    log = tmp_path / "t" / "_delta_log"
    (log / f"{1:020}.json").write_text(f'{{"remove":{{"path":"{add.path}","dataChange":true}}}}\n')
    (line,) = start(tmp_path).changes("t", "startingVersion=1").files
    assert line["remove"]["partitionValues"] == {"p": "a"}
    assert line["remove"]["size"] == add.size
