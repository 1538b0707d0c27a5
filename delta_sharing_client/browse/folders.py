"""Requests about files of volumes, skills and model versions: folders, and previews of text, rows, pictures and PDF."""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import islice

import pyarrow as pa

from delta_sharing_client.assets.directory import Directory, checked_path, refusal
from delta_sharing_client.assets.files import FileAsset
from delta_sharing_client.assets.skill_file import SKILL_FILE, compare, split
from delta_sharing_client.browse.asked import Asked
from delta_sharing_client.browse.cells import MOST_COLUMNS, MOST_ROWS, cells_of
from delta_sharing_client.browse.markdown import tree_of
from delta_sharing_client.browse.session import ASKED_FROM, PDF, ReadyFile, Session
from delta_sharing_client.errors import UsageError, check_memory
from delta_sharing_client.fetch.place import Refused
from delta_sharing_client.instants import instant_text
from delta_sharing_client.int96 import Int96File
from delta_sharing_client.parquet.reader import ARROW_ERRORS

_MOST_ENTRIES = 10_000
_MOST_TEXT = 256 * 1024
_MOST_PICTURE = 20_000_000
# The maximum size in bytes of the first rows of a Parquet file, unpacked.
_MOST_UNPACKED = 64_000_000
# Pictures and PDF are recognized by their first bytes, because a store's names and media types may be wrong. SVG can
# contain programs, so it is shown as text.
_PICTURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    # Browsers show it in a viewer of their own.
    (re.compile(rb"%PDF-[12]\.\d"), PDF),
)
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def file_asset(session: Session, asked: Asked, *, patient: bool = False) -> FileAsset:
    """Return the volume, skill or model version that the request names."""
    client = session.patient if patient else session.client
    kind, name = asked.text("kind"), asked.full_name
    if kind == "volume":
        return client.volume(name)
    if kind == "skill":
        return client.skill(name)
    if kind == "model":
        return client.model(name).version(asked.number("modelVersion") or 0)
    raise UsageError(f"Expected a volume, model or skill, found {kind!r}.")


def folder(session: Session, asked: Asked) -> dict[str, object]:
    """Return the folders and files directly in the folder ``path``."""
    asset = file_asset(session, asked)
    path = checked_path(asked.text("path"), asset._ref)
    directory = Directory(asset)

    folders: list[str] = []
    files: list[dict[str, object]] = []
    is_there = not path
    for page in directory.pages(path, recursive=False):
        is_there = is_there or path in page.markers
        folders += page.folders
        files += [
            {
                "path": one.path,
                "size": one.size,
                "modified": None if one.modified is None else instant_text(one.modified),
            }
            for one in page.files
        ]
        if len(folders) + len(files) > _MOST_ENTRIES:
            break
    if not (is_there or folders or files):
        raise refusal(asset._ref, path, Refused(404, None))
    is_cut = len(folders) + len(files) > _MOST_ENTRIES
    return {"folders": folders[:_MOST_ENTRIES], "files": files[:_MOST_ENTRIES], "isCut": is_cut}


def look(session: Session, asked: Asked) -> dict[str, object]:
    """Return a preview of a file: its form ``as`` (text, json, markdown, rows, picture, pdf or nothing), and the values
    for this form.

    A large picture or PDF is shown only if the request has ``agreed``.
    """
    asset, path = file_asset(session, asked), asked.text("path")
    size = asset.stat(path).size
    with asset.open(path) as stream:
        start = stream.read(16)
        for pattern, media_type in _PICTURES:
            if pattern.match(start):
                return _picture(session, asked, stream, start, (size, media_type))
        if start[:4] == b"PAR1":
            return {"size": size, **_parquet(stream)}
        data = start + stream.read(_MOST_TEXT + 1 - len(start))
    is_cut = len(data) > _MOST_TEXT
    text = _decoded(data[:_MOST_TEXT], is_cut=is_cut)
    if text is None:
        return {"size": size, "as": "nothing"}
    shown = (
        _rows(text, path, is_cut=is_cut)
        or _indented(text, path, is_cut=is_cut)
        or _markdown(text, path)
        or {"as": "text", "text": text}
    )
    notes = []
    if asked.text("kind") == "skill" and path == SKILL_FILE and not is_cut:
        differences = compare(text, asset._item, asset._item.storage_location)
        notes = (
            [f"The skill differs from what the server lists: {'; '.join(differences)}. Review it."]
            if differences
            else []
        )
    return {"size": size, "isCut": is_cut, "notes": notes, **shown}


def _picture(
    session: Session, asked: Asked, stream: io.BufferedReader, start: bytes, facts: tuple[int, str]
) -> dict[str, object]:
    size, media_type = facts
    if size > _MOST_PICTURE:
        return {"size": size, "as": "nothing"}
    form, name = ("pdf", "document") if media_type == PDF else ("picture", "picture")
    if size > ASKED_FROM and not asked.flag("agreed"):
        return {"size": size, "as": form, "bytes": size, "asks": True}
    path = session.new_path()
    path.write_bytes(start + stream.read())
    ending = media_type.partition("/")[2]
    return {"size": size, "as": form, "file": session.offer(ReadyFile(path, f"{name}.{ending}", media_type))}


def _decoded(data: bytes, *, is_cut: bool) -> str | None:
    """Return the text if the bytes are UTF-8 or UTF-16, otherwise ``None``. If it is cut, its last character may be
    incomplete."""
    encodings = ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig",)
    for encoding in encodings:
        for end in range(len(data), len(data) - 4, -1):
            try:
                text = data[:end].decode(encoding)
            except UnicodeDecodeError:
                if not is_cut:
                    break
                continue
            # Text contains no zero characters; other files often contain some.
            return None if "\0" in text else text
    return None


def _rows(text: str, path: str, *, is_cut: bool) -> dict[str, object] | None:
    if not path.lower().endswith((".csv", ".tsv")):
        return None
    if is_cut:
        text = text[: text.rfind("\n") + 1] or text
    separators = "\t" if path.lower().endswith(".tsv") else ",;\t|"
    first_line = text.partition("\n")[0]
    separator = max(separators, key=first_line.count)
    try:
        lines = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), MOST_ROWS + 2))
    except csv.Error:
        return None
    if not lines:
        return None
    names, rows = lines[0][:MOST_COLUMNS], lines[1 : MOST_ROWS + 1]
    return {
        "as": "rows",
        "columns": [{"name": name, "type": "text", "isNumber": False} for name in names],
        "rows": [[*row, *[None] * (len(names) - len(row))][: len(names)] for row in rows],
        "isMore": len(lines) > MOST_ROWS + 1 or is_cut,
        "columnsInAll": max(map(len, lines)),
        "cut": 0,
    }


def _indented(text: str, path: str, *, is_cut: bool) -> dict[str, object] | None:
    """Return JSON with a line for each value; the values are unchanged."""
    if is_cut or not path.lower().endswith((".json", ".geojson", ".ipynb")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    depth = 0
    before = ""
    for token in _JSON_TOKEN.findall(text):
        if token in "}]":
            depth -= 1
            parts.append("" if before and before in "{[" else "\n" + "  " * depth)
        elif before and before in "{[,":
            parts.append("\n" + "  " * depth)
        parts.append(f"{token} " if token == ":" else token)
        depth += token in "{["
        before = token
    return {"as": "json", "text": "".join(parts)[: 4 * _MOST_TEXT]}


def _markdown(text: str, path: str) -> dict[str, object] | None:
    if not path.lower().endswith((".md", ".markdown")):
        return None
    fields, content = split(text)
    tree = tree_of(content, path)
    return None if tree is None else {"as": "markdown", "text": text, "fields": fields or {}, "tree": tree}


def _parquet(stream: io.BufferedReader) -> dict[str, object]:
    try:
        file = Int96File(stream)
        metadata = file.metadata
        schema = file.schema_arrow
        facts: dict[str, object] = {"as": "rows", "rowsInAll": metadata.num_rows, "columnsInAll": len(schema)}
        unpacked = metadata.row_group(0).total_byte_size if metadata.num_row_groups else 0
        if unpacked > _MOST_UNPACKED:
            empty = pa.RecordBatch.from_pylist([], schema)
            note = f"Its first rows unpack to {unpacked / 1e6:,.0f} MB, too much for a preview. Download the file."
            return {**facts, **cells_of([empty], schema), "notes": [note]}
        names = schema.names[:MOST_COLUMNS]
        groups = [0] if metadata.num_row_groups else []
        batches = file.iter_batches(MOST_ROWS + 1, row_groups=groups, columns=names, use_threads=False)
        batch = next(batches, None)
        shown_schema = pa.schema([schema.field(name) for name in names]) if batch is None else batch.schema
        return {**facts, **cells_of([] if batch is None else [batch], shown_schema)}
    except ARROW_ERRORS as error:
        check_memory(error)
        raise UsageError(
            "The file begins like a Parquet file, but cannot be read as one: it is damaged or encrypted. Ask the "
            "provider."
        ) from None
