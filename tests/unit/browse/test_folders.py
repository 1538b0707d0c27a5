"""The page shows folders and files by their content, within limits."""

from __future__ import annotations

import io
import json
import pathlib
import types
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
from delta_sharing_client import testing
from delta_sharing_client.browse import folders
from delta_sharing_client.browse.asked import Asked
from delta_sharing_client.browse.session import Session

PARAGRAPH = [["p", None, "Text"]]
SKILL = "---\nname: {}\ndescription: d\n---\nText\n"


def parquet(rows: pa.Table, **settings: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(rows, out, **settings)
    return out.getvalue()


def text(shown: str, **more: Any) -> dict[str, Any]:
    return {"as": "text", "text": shown, "isCut": False, "notes": [], **more}


def rows(names: list[str], values: list[list[str | None]], **more: Any) -> dict[str, Any]:
    columns = [{"name": name, "type": "text", "isNumber": False} for name in names]
    facts = {"isMore": False, "columnsInAll": len(names), "cut": 0, "isCut": False, "notes": []}
    return {"as": "rows", "columns": columns, "rows": values, **facts, **more}


NUMBERS = [{"name": "n", "type": "long", "isNumber": True}, {"name": "t", "type": "string", "isNumber": False}]
TABLE = pa.table({"n": range(150), "t": ["x"] * 150})
LOOKS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "a.txt": (b"a\xc3\xa9", text("a\u00e9")),
    "b.txt": ("zwei\r\n".encode("utf-16"), text("zwei\r\n")),
    "c.txt": (b"\xef\xbb\xbfmarked", text("marked")),
    "empty": (b"", text("")),
    "latin.txt": (b"caf\xe9", {"as": "nothing"}),
    "zero.txt": (b"a\0b", {"as": "nothing"}),
    "incomplete.txt": (b"a\xc3", {"as": "nothing"}),
    # Longer than what is shown by one byte; the last character shown would be incomplete.
    "long.txt": (b"a" + b"\xc3\xa9" * 131_072, text("a" + "\u00e9" * 131_071, isCut=True)),
    "exact.txt": (b"b" * 262_144, text("b" * 262_144)),
    "comma.csv": (b'n,t\n1,"a,b"\n2\n', rows(["n", "t"], [["1", "a,b"], ["2", None]])),
    "semicolon.csv": (b"n;m;t,u\n1;2;3;4\n", rows(["n", "m", "t,u"], [["1", "2", "3"]], columnsInAll=4)),
    "tab.CSV": (b"n\tt\n1\t2\n", rows(["n", "t"], [["1", "2"]])),
    "bar.csv": (b"n|t\n1|2\n", rows(["n", "t"], [["1", "2"]])),
    "tab.tsv": (b"n,m,o\tt\n1\t2\n", rows(["n,m,o", "t"], [["1", "2"]])),
    "TAB.TSV": (b"n,m,o\tt\n1\t2\n", rows(["n,m,o", "t"], [["1", "2"]])),
    "empty.csv": (b"", text("")),
    "hundred.csv": (b"n\n" + b"1\n" * 100, rows(["n"], [["1"]] * 100)),
    "more.csv": (b"n\n" + b"1\n" * 101, rows(["n"], [["1"]] * 100, isMore=True)),
    "wide.csv": (
        ",".join(["c"] * 201).encode() + b"\n1\n",
        rows(["c"] * 200, [["1", *[None] * 199]], columnsInAll=201),
    ),
    "cut.csv": (
        b"n\n" + b"1\n" * 20 + b"2" * 262_144,
        rows(["n"], [["1"]] * 20, isMore=True, isCut=True),
    ),
    "j.json": (
        b'{"big":12345678901234567890.10,"list":[1,{}],"t":"<\\u0041, [x]>"}',
        text(
            '{\n  "big": 12345678901234567890.10,\n  "list": [\n    1,\n    {}\n  ],\n  "t": "<\\u0041, [x]>"\n}',
            **{"as": "json"},
        ),
    ),
    "n.ipynb": (b"[]", text("[]", **{"as": "json"})),
    "g.geojson": (b"[1,2]", text("[\n  1,\n  2\n]", **{"as": "json"})),
    "broken.json": (b"{", text("{")),
    "json.txt": (b"[1,2]", text("[1,2]")),
    "SKILL.md": (
        SKILL.format("v").encode(),
        text(SKILL.format("v"), **{"as": "markdown"}, fields={"name": "v", "description": "d"}, tree=PARAGRAPH),
    ),
    "plain.MD": (b"Text", text("Text", **{"as": "markdown"}, fields={}, tree=PARAGRAPH)),
    "wrong.markdown": (
        b"---\na: *b\n---\n",
        text("---\na: *b\n---\n", **{"as": "markdown"}, fields={}, tree=[["hr", None], ["h2", None, "a: *b"]]),
    ),
    "many.md": (b"*a* " * 20_000, text("*a* " * 20_000)),
    "p.parquet": (
        parquet(TABLE),
        {"as": "rows", "rowsInAll": 150, "columnsInAll": 2, "columns": NUMBERS, "cut": 0, "isMore": True}
        | {"rows": [[str(at), "x"] for at in range(100)]},
    ),
    "few.parquet": (
        parquet(TABLE.slice(0, 2), row_group_size=1),
        {"as": "rows", "rowsInAll": 2, "columnsInAll": 2, "columns": NUMBERS, "cut": 0, "isMore": False}
        | {"rows": [["0", "x"]]},
    ),
    "none.parquet": (
        parquet(TABLE.slice(0, 0)),
        {"as": "rows", "rowsInAll": 0, "columnsInAll": 2, "columns": NUMBERS, "cut": 0, "isMore": False, "rows": []},
    ),
}
PICTURES = {
    "a.bin": (b"\x89PNG\r\n\x1a\n and more than sixteen bytes", "image/png"),
    "b.bin": (b"\xff\xd8\xff", "image/jpeg"),
    "c.bin": (b"GIF89a", "image/gif"),
    "d.bin": (b"RIFF\n\n\n\nWEBP", "image/webp"),
    "e.bin": (b"%PDF-1.7\n", "application/pdf"),
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    files = {name: data for name, (data, _) in (*LOOKS.items(), *PICTURES.items())}
    volumes = {"s.d.empty": {}, "s.d.v": {**files, "deep/x": b"1", "deep/er/y": b"22"}}
    skills = {f"s.d.{name}": {"SKILL.md": SKILL.format("same").encode(), "other/SKILL.md": b"x"} for name in ("same",)}
    models = {"s.d.m": {1: {"a": b"one"}, 2: {"a": b"two"}}}
    with testing.running(volumes=volumes, skills=skills, models=models) as server:
        session_ = Session(server.profile, tmp_path_factory.mktemp("run"))
        yield session_
        session_.close()


def asked(path: str, kind: str = "volume", name: str = "v", **more: Any) -> Asked:
    return Asked({"kind": kind, "name": ["s", "d", name], "path": path, **more})


@pytest.mark.parametrize("name", LOOKS)
def test_preview_of_a_file(session: Session, name: str) -> None:
    data, expected = LOOKS[name]
    assert folders.look(session, asked(name)) == {"size": len(data), **expected}


@pytest.mark.parametrize("name", PICTURES)
def test_preview_of_a_picture(session: Session, name: str) -> None:
    data, media_type = PICTURES[name]
    shown = folders.look(session, asked(name))
    file = session.ready_file(str(shown.pop("file")))
    form = "pdf" if media_type == "application/pdf" else "picture"
    assert shown == {"size": len(data), "as": form}
    assert file is not None
    assert (file.path.read_bytes(), file.media_type) == (data, media_type)
    name = "document" if form == "pdf" else form
    assert file.name == f"{name}.{media_type.partition('/')[2]}"


def test_large_pictures_are_asked_for_or_not_shown(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(PICTURES["a.bin"][0])
    asks = {"size": size, "as": "picture", "bytes": size, "asks": True}
    for limit, agreed, expected in ((size, False, None), (size - 1, False, asks), (size - 1, True, None)):
        monkeypatch.setattr(folders, "ASKED_FROM", limit)
        shown = folders.look(session, asked("a.bin", agreed=agreed))
        assert (shown if expected else set(shown)) == (expected or {"size", "as", "file"})
    for limit, form in ((size, "picture"), (size - 1, "nothing")):
        monkeypatch.setattr(folders, "_MOST_PICTURE", limit)
        assert folders.look(session, asked("a.bin", agreed=True))["as"] == form


def test_rows_that_unpack_to_much_memory_are_not_shown(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    size = pq.read_metadata(io.BytesIO(LOOKS["p.parquet"][0])).row_group(0).total_byte_size
    monkeypatch.setattr(folders, "_MOST_UNPACKED", size)
    assert len(folders.look(session, asked("p.parquet"))["rows"]) == 100  # type: ignore[arg-type]
    monkeypatch.setattr(folders, "_MOST_UNPACKED", size - 1)
    shown = folders.look(session, asked("p.parquet"))
    assert (shown["rows"], shown["columns"], shown["rowsInAll"]) == ([], NUMBERS, 150)
    assert shown["notes"] == ["Its first rows unpack to 0 MB, too much for a preview. Download the file."]


def test_damaged_parquet_file_is_an_error(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_PICTURES", ())
    with testing.running(volumes={"s.d.v": {"x": b"PAR1 not really"}}) as server:
        other = Session(server.profile, pathlib.Path())
        with pytest.raises(ds.UsageError, match="begins like a Parquet file, but cannot be read"):
            folders.look(other, asked("x"))
        other.close()


def test_skill_that_differs_from_its_listing_has_a_note(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folders.look(session, asked("SKILL.md", "skill", "same"))["notes"] == []
    found: list[str] = []
    monkeypatch.setattr(folders, "compare", lambda *_: found)
    found += ["its name is 'a'", "it has no description"]
    listed = "The skill differs from what the server lists: its name is 'a'; it has no description. Review it."
    assert folders.look(session, asked("SKILL.md", "skill", "same"))["notes"] == [listed]
    assert folders.look(session, asked("other/SKILL.md", "skill", "same"))["notes"] == []
    assert folders.look(session, asked("SKILL.md"))["notes"] == []


def test_folder_has_its_folders_and_files(session: Session) -> None:
    shown = folders.folder(session, asked("deep"))
    (file,) = shown.pop("files")  # type: ignore[misc]
    assert shown == {"folders": ["deep/er"], "isCut": False}
    assert (file["path"], file["size"], file["modified"][:2]) == ("deep/x", 1, "20")
    top = json.loads(json.dumps(folders.folder(session, asked(""))))
    assert top["folders"] == ["deep"]
    assert {one["path"] for one in top["files"]} == {*LOOKS, *PICTURES}
    with pytest.raises(ds.NotFoundError, match="'deep/none'"):
        folders.folder(session, asked("deep/none"))


def test_volume_without_files_is_an_empty_folder(session: Session) -> None:
    nothing = {"folders": [], "files": [], "isCut": False}
    assert folders.folder(session, asked("", name="empty")) == nothing
    with pytest.raises(ds.NotFoundError):
        folders.folder(session, asked("x", name="empty"))


def test_no_more_pages_are_listed_than_are_shown(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def pages(*_: object, **__: object) -> Iterator[Any]:
        file = types.SimpleNamespace(path="a", size=1, modified=None)
        yield types.SimpleNamespace(folders=["x"], files=[file], markers=())
        yield types.SimpleNamespace(folders=[], files=[file], markers=())
        pytest.fail("A third page was listed.")

    monkeypatch.setattr(folders, "_MOST_ENTRIES", 2)
    monkeypatch.setattr(folders.Directory, "pages", pages)
    shown = folders.folder(session, asked(""))
    assert shown == {"folders": ["x"], "files": [{"path": "a", "size": 1, "modified": None}] * 2, "isCut": True}


@pytest.mark.parametrize(("most", "folders_", "files", "is_cut"), [(2, 1, 1, False), (1, 1, 1, True), (0, 0, 0, True)])
def test_folder_with_many_files_is_cut(
    session: Session, monkeypatch: pytest.MonkeyPatch, most: int, folders_: int, files: int, is_cut: bool
) -> None:
    monkeypatch.setattr(folders, "_MOST_ENTRIES", most)
    shown: Any = folders.folder(session, asked("deep"))
    assert (len(shown["folders"]), len(shown["files"]), shown["isCut"]) == (folders_, files, is_cut)


def test_request_names_one_asset(session: Session) -> None:
    for version, content in ((1, "one"), (2, "two")):
        assert folders.look(session, asked("a", "model", "m", modelVersion=version))["text"] == content
    with pytest.raises(ds.NotFoundError):
        folders.look(session, asked("a", "model", "m"))
    with pytest.raises(ds.UsageError, match="Expected a volume, model or skill, found 'table'"):
        folders.look(session, asked("a", "table", "m"))
    assert folders.file_asset(session, asked("", "volume"), patient=True).options.max_attempts != (
        folders.file_asset(session, asked("", "volume")).options.max_attempts
    )
