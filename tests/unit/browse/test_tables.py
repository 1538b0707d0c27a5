"""Each request of the page about shares, assets and tables has its whole response."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client import testing
from delta_sharing_client.browse import assets, downloads, previews, tables
from delta_sharing_client.browse.asked import Asked, Mistake
from delta_sharing_client.browse.session import Session

ROWS = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
SHARED = {"schema": "d", "share": "s"}
VERSIONS = 22
SINCE: dict[str, Any] = {"from": 20}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = tmp_path_factory.mktemp("tables")
    feed = {"delta.enableChangeDataFeed": "true"}
    for number in range(VERSIONS):
        deltalake.write_deltalake(root / "long", pa.table({"n": [number]}), mode="append", configuration=feed)
    deltalake.write_deltalake(root / "quiet", ROWS)
    for name in ("old", "new"):
        rows = pa.table({name: [1], "other": [2]})
        deltalake.write_deltalake(root / "renamed", rows, mode="overwrite", schema_mode="overwrite")
    wide = pa.table({f"c{number}": [number] for number in range(210)})
    with testing.running(
        {"s.d.t": ROWS, "s.e.wide": wide, **{f"s.d.{name}": root / name for name in ("long", "quiet", "renamed")}},
        volumes={"s.d.v": {"x/y.bin": b"123"}},
        skills={"s.d.k": {"SKILL.md": b"---\nname: k\ndescription: d\nmetadata:\n  a: b\n---\nText"}},
        models={"s.d.m": {1: {"a": b"one"}, 2: {"a": b"two"}}},
        aliases={"s.d.m": {"champion": 2}},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def session(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    session_ = Session(server.profile, tmp_path_factory.mktemp("run"))
    yield session_
    session_.close()


def asked(name: str = "t", schema: str = "d", **values: Any) -> Asked:
    return Asked({"name": ["s", schema, name], **values})


# --- shares and assets ---


def test_shares_schemas_and_assets(session: Session, server: Any, tmp_path: pathlib.Path) -> None:
    shares = [{"name": "s", "comment": None}]
    assert assets.start(session, Asked({})) == {"profile": "profile.share", "expires": None, "shares": shares}
    later = Session({**server.profile, "expirationTime": "2999-01-02T03:04:05Z"}, tmp_path)
    assert str(assets.start(later, Asked({}))["expires"])[:19] == "2999-01-02T03:04:05"
    later.close()
    assert assets.schemas(session, Asked({"share": "s"})) == {"schemas": ["d", "e"]}
    of_d = [["table", "d", "t"], ["table", "d", "long"], ["table", "d", "quiet"], ["table", "d", "renamed"]]
    of_d += [["volume", "d", "v"], ["model", "d", "m"], ["skill", "d", "k"]]
    found: Any = assets.listed(session, Asked({"share": "s"}))
    assert sorted(found.pop("assets")) == sorted([*of_d, ["table", "e", "wide"]])
    assert found == {"schemas": ["d", "e"], "inAll": 8}
    found = assets.listed(session, Asked({"share": "s", "schema": "e"}))
    assert found == {"schemas": ["e"], "assets": [["table", "e", "wide"]], "inAll": 1}


def test_long_listing_of_assets_is_cut(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "_MOST_ASSETS", 2)
    found: Any = assets.listed(session, Asked({"share": "s"}))
    assert (len(found["assets"]), found["inAll"]) == (2, 8)


@pytest.mark.parametrize(
    ("kind", "name", "facts"),
    [
        ("volume", "v", {}),
        ("model", "m", {"comment": None}),
        (
            "skill",
            "k",
            {
                "description": "d",
                "metadata": {"a": "b"},
                **dict.fromkeys(("license", "compatibility", "allowed_tools")),
            },
        ),
    ],
)
def test_asset_is_described_without_its_location(session: Session, kind: str, name: str, facts: Any) -> None:
    found: Any = assets.described(session, asked(name, kind=kind))
    versions = [
        {"version": number, "status": "READY", "comment": None, "source": None, "run_id": None} for number in (1, 2)
    ]
    listed = found.pop("versions", None)
    assert listed is None or all(one.pop("id") for one in listed)
    assert listed == (versions if kind == "model" else None)
    assert {found["facts"].pop("id"), found["facts"].pop("share_id")} != {None}
    assert found == {"facts": {"name": name, **SHARED, **facts}}
    for wrong in ("table", "rest", ""):
        with pytest.raises(ds.UsageError, match=f"Expected a volume, model or skill, found '{wrong}'"):
            assets.described(session, asked(name, kind=wrong))


def test_alias_of_a_model_is_a_version(session: Session) -> None:
    for alias, version in (("champion", 2), ("Champion", 2), ("other", None)):
        assert assets.alias(session, asked("m", alias=alias)) == {"version": version}


def test_search_finds_names_and_columns(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    assets.start(session, Asked({}))
    nothing = {"left": 0, "failed": 0, "reason": None}
    found = assets.searched(session, Asked({"text": "C20 wide"}))
    columns = [name for name in (f"c{number}" for number in range(210)) if "c20" in name]
    assert found == {"found": [["table", ["s", "e", "wide"], columns]], **nothing}
    # The tables are described once for a page.
    monkeypatch.setattr("delta_sharing_client.search.describe_table", lambda table: pytest.fail("described again"))
    assert assets.searched(session, Asked({"text": "s.d.k"})) == {"found": [["skill", ["s", "d", "k"], []]], **nothing}
    monkeypatch.setattr(assets, "_MOST_ASSETS", 1)
    assert len(assets.searched(session, Asked({"text": "d"}))["found"]) == 1  # type: ignore[arg-type]
    assets.start(session, Asked({}))
    assert session.described == {}
    monkeypatch.setattr("delta_sharing_client.search.MOST_TABLES", 2)

    def refuse(table: Any) -> Any:
        raise ds.DataError("It cannot be read.")

    monkeypatch.setattr("delta_sharing_client.search.describe_table", refuse)
    nothing = {"found": [], "left": 3, "failed": 2, "reason": "It cannot be read."}
    assert assets.searched(session, Asked({"text": "nowhere"})) == nothing
    with pytest.raises(ds.UsageError, match="must have a word"):
        assets.searched(session, Asked({"text": " "}))


# --- one table ---


def test_table_is_described(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = tables.described(session, asked())
    assert (found["facts"]["table"], found["facts"]["version"], found["facts"]["numFiles"]) == ("s.d.t", "0", 1)
    columns = [("a", "long"), ("b", "string")]
    shown = [{"column": name, "type": kind, "nullable": True, "comment": None} for name, kind in columns]
    assert (found["columns"], found["columnsInAll"], found["countsRows"]) == (shown, 2, True)
    assert set(found) == {"facts", "columns", "columnsInAll", "fields", "countsRows"}
    for most, counts in ((22, True), (21, False)):
        monkeypatch.setattr(tables, "_MOST_FILES", most)
        assert tables.described(session, asked("long"))["countsRows"] is counts
    monkeypatch.setattr(tables, "_MOST_COLUMNS", 1)
    found = tables.described(session, asked())
    assert (found["columns"], found["columnsInAll"]) == (shown[:1], 2)


def test_version_and_time_are_those_that_were_asked_for(session: Session) -> None:
    assert tables.rows(session, asked("long")) == {"rows": VERSIONS}
    assert tables.rows(session, asked("long", version="3")) == {"rows": 4}
    found: Any = tables.described(session, asked("long", version="3"))
    assert (found["facts"]["version"], found["facts"]["numFiles"]) == ("3", 4)
    for field, values in (("timestamp", {"timestamp": "soon"}), ("version", {"version": "branch"})):
        with pytest.raises(Mistake) as mistake:
            tables.described(session, asked("long", **values))
        assert mistake.value.field == field


def test_history_has_the_last_versions(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers(**values: Any) -> list[int]:
        found: Any = tables.history(session, asked("long", **values))
        assert (found["last"], set(found)) == (VERSIONS - 1, {"versions", "from", "last"})
        assert {(one["inserts"], one["deletes"]) for one in found["versions"]} == {(1, 0)}
        versions = [int(one["version"]) for one in found["versions"]]
        assert versions[0] == found["from"]
        return versions

    assert numbers() == [*range(2, 22)]
    assert numbers(**{"from": 0}) == [*range(22)]
    assert numbers(**SINCE) == [20, 21]
    assert numbers(**{"from": 99}) == [21]
    monkeypatch.setattr(tables, "_MOST_VERSIONS", 5)
    assert numbers(**{"from": 0}) == numbers() == [*range(17, 22)]


def test_history_that_takes_much_to_count_is_asked_for(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ASKED_FROM", 0)
    found: Any = tables.history(session, asked("long", **SINCE))
    needed = found.pop("bytes")
    assert found == {"asks": True, "from": 20}
    monkeypatch.setattr(tables, "ASKED_FROM", needed)
    assert len(tables.history(session, asked("long", **SINCE))["versions"]) == 2  # type: ignore[arg-type]
    monkeypatch.setattr(tables, "ASKED_FROM", needed - 1)
    assert tables.history(session, asked("long", **SINCE))["asks"]
    assert len(tables.history(session, asked("long", agreed=True, **SINCE))["versions"]) == 2  # type: ignore[arg-type]


def test_history_that_is_not_shared_has_a_note(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = tables.history(session, asked("quiet"))
    (note,) = found.pop("notes")
    assert found == {"versions": [], "from": 0, "last": 0}
    assert note.startswith("The provider does not share this table's history, or not from version 0 on. ")

    def fail(error: Exception) -> Any:
        def history(*_: object) -> None:
            raise error

        monkeypatch.setattr(ds.SharedTable, "history", history)
        return tables.history(session, asked("quiet"))

    for status in (None, 400, 499):
        assert fail(ds.RequestError("No.", status=status))["versions"] == []
    for error in (ds.RequestError("No.", status=500), ds.NotFoundError("No.", status=404), ds.DataError("No.")):
        with pytest.raises(type(error)):
            fail(error)


def test_programs_have_every_choice(session: Session) -> None:
    names = ["pandas", "Polars", "DuckDB", "Spark", "Command line"]
    for values, python, words in (
        ({}, "", ""),
        ({"columns": ["a"]}, ", columns=['a']", "--columns a "),
        ({"filter": " a > 1 "}, ", filter='a > 1'", "--filter 'a > 1' "),
        ({"version": "0"}, ", version=0", "--version 0 "),
        ({"timestamp": "2999-01-01"}, ", timestamp='2999-01-01'", "--timestamp 2999-01-01 "),
    ):
        found: Any = tables.code(session, asked(**values))
        assert [one["name"] for one in found["programs"]] == names
        texts = [one["text"] for one in found["programs"]]
        connection = ["", "", ", connection", ""]
        assert all(
            f"'profile.share#s.d.t'{more}{python})" in text for text, more in zip(texts, connection, strict=False)
        )
        assert texts[-1] == f"delta-sharing -p profile.share read {words}--to rows.parquet s.d.t\n"
    with pytest.raises(Mistake):
        tables.code(session, asked(filter="a >"))
    session_profile, session.profile = session.profile, None
    try:
        assert tables.code(session, asked())["programs"][-1]["text"].startswith("delta-sharing read ")  # type: ignore[index]
    finally:
        session.profile = session_profile


# --- reads ---


def test_cost_of_a_read(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = previews.cost(session, asked("long", version="3"))
    plan, needed = found.pop("plan"), found.pop("bytes")
    facts = {"asks": False, "files": 4, "rowsInAll": 4, "version": "3", "notes": []}
    assert found == {**facts, "mostInExcel": 1_048_575}
    assert plan[0] == "Scan of s.d.long, version 3"
    for limit, asks in ((needed, False), (needed - 1, True)):
        monkeypatch.setattr(previews, "ASKED_FROM", limit)
        assert previews.cost(session, asked("long", version="3"))["asks"] is asks
    with pytest.raises(Mistake) as mistake:
        previews.cost(session, asked(filter="zz > 1"))
    assert (mistake.value.field, mistake.value.span) == ("filter", (0, 2))


def test_preview_has_the_rows_of_its_plan(session: Session) -> None:
    planned: Any = previews.plan_preview(session, asked(filter="a > 1"))
    assert (planned["bytes"] > 0, planned["version"], planned["files"]) == (True, "0", 1)
    shown: Any = previews.preview(session, Asked({"plan": planned["plan"]}))
    assert (shown["rows"], shown["isMore"], shown["cut"]) == ([["2", "y"], ["3", "z"]], False, 0)
    assert shown["read"] > 0
    with pytest.raises(Mistake):
        previews.plan_preview(session, asked(filter="zz > 1"))


def test_wide_previews_have_the_first_columns(session: Session) -> None:
    def names(**values: Any) -> list[str]:
        planned = previews.plan_preview(session, asked("wide", "e", **values))
        shown: Any = previews.preview(session, Asked({"plan": planned["plan"]}))
        return [one["name"] for one in shown["columns"]]

    assert names() == [f"c{number}" for number in range(200)]
    of_changes = ["_change_type", "_commit_version", "_commit_timestamp"]
    assert sorted(names(changes=0)) == sorted([*of_changes, *(f"c{number}" for number in range(197))])
    chosen = [f"c{number}" for number in range(10, 210)]
    assert names(columns=chosen) == chosen
    with pytest.raises(ds.UsageError, match="at most 200 columns"):
        names(columns=["c0", *chosen])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"format": "csv", "changes": 3}, ("long-changes-3.csv", 1, 1)),
        ({"format": "xlsx", "filter": "n > 19"}, ("long.xlsx", 2, None)),
        ({"format": "parquet", "version": "3"}, ("long.parquet", 4, 4)),
    ],
)
def test_download_of_rows_tells_its_progress(session: Session, at_once: None, values: Any, expected: Any) -> None:
    told: Any = downloads.begin(session, asked("long", **values))
    assert (told["state"], told["error"]) == ("ready", "")
    assert (told["name"], told["rows"], told["rowsInAll"]) == expected
    assert told["bytes"] == told["bytesInAll"] > 0
    file = session.ready_file(told["file"])
    assert file is not None
    assert (file.name, file.media_type) == (told["name"], "application/octet-stream")
    assert downloads.progress(session, Asked({"id": told["id"]})) == told


def test_download_of_a_file_tells_its_progress(session: Session, at_once: None) -> None:
    for content in ({"kind": "volume", "path": "x/y.bin"}, {"kind": "volume", "path": "none"}):
        told: Any = downloads.begin_file(session, asked("v", **content))
        if content["path"] == "none":
            assert (told["state"], told["file"], "none" in told["error"]) == ("failed", None, True)
            continue
        facts = {"name": "y.bin", "state": "ready", "error": "", "rows": None, "rowsInAll": None}
        assert told == {**facts, "bytes": 3, "bytesInAll": 3, "id": told["id"], "file": told["file"]}
        file = session.ready_file(told["file"])
        assert file is not None
        assert file.path.read_bytes() == b"123"


def test_download_checks_the_room_and_the_format(
    session: Session, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(size: int) -> None:
        raise ds.UsageError(f"No room for {size}.")

    monkeypatch.setattr(session, "check_room", full)
    told: Any = downloads.begin_file(session, asked("v", kind="volume", path="x/y.bin"))
    assert (told["state"], told["error"], told["bytesInAll"]) == ("failed", "No room for 3.", 3)
    told = downloads.begin(session, asked("long", format="arrow"))
    assert told["state"] == "failed"
    assert "No room for" in told["error"]
    with pytest.raises(ds.UsageError, match=r"Expected one of the formats csv, parquet, arrow, xlsx, found 'exe'\."):
        downloads.begin(session, asked("long", format="exe"))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "in_thread", lambda call: call())


def test_cancelled_download_of_a_file_reads_no_more(
    session: Session, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "check_room", lambda size: [one.end() for one in session.downloads.values()])
    told = downloads.begin_file(session, asked("v", kind="volume", path="x/y.bin"))
    assert (told["state"], told["file"], told["bytes"], told["bytesInAll"]) == ("ended", None, 0, 3)


def test_first_columns_are_those_of_the_version(session: Session) -> None:
    for values, name in (({}, "new"), ({"version": "0"}, "old")):
        assert asked("renamed", **values).read(session.client, most=1).to_arrow().schema.names == [name]


def test_filter_that_fails_on_a_row_is_a_mistake_of_the_filter(session: Session) -> None:
    planned = previews.plan_preview(session, asked(filter="1 / (a - 1) > 0"))
    with pytest.raises(Mistake) as mistake:
        previews.preview(session, Asked({"plan": planned["plan"]}))
    assert (mistake.value.field, mistake.value.span) == ("filter", None)


def test_damaged_file_is_no_mistake_of_the_filter(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ds.DataError("The file is damaged.")

    planned = previews.plan_preview(session, asked(filter="a > 1"))
    monkeypatch.setattr(previews, "cells_of", fail)
    with pytest.raises(ds.DataError, match="is damaged"):
        previews.preview(session, Asked({"plan": planned["plan"]}))


def test_history_without_an_order_has_the_last_snapshots(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "lack", lambda *_: "an order of versions")
    monkeypatch.setattr(tables, "_MOST_VERSIONS", 5)
    found: Any = tables.history(session, asked("long"))
    assert [one["version"] for one in found.pop("versions")] == [str(number) for number in range(17, 22)]
    assert found == {"from": None}
