"""Hostile strings in a share (names, comments, values, files) that a page must not interpret as HTML, scripts or
terminal codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mock_server import catalog

_PROGRAMS = ("alert(1)", "fetch('//x.invalid')", "document.title='hit'", "top.location='//x.invalid'")
_FORMS = (
    "<script>{}<\\script>",
    "<img src=x onerror={}>",
    "<svg onload={}>",
    "<body onload={}>",
    "<iframe srcdoc='<script>{}<\\script>'>",
    "<a href=javascript:{}>x<a>",
    "<details open ontoggle={}>",
    "<input autofocus onfocus={}>",
    "<math><mi xlink:href=javascript:{}>",
    "<style onload={}>",
    '"><script>{}<script>',
    "'><img src=x onerror={}>",
    "`><svg onload={}>",
    "--><script>{}<script>",
    "]]><script>{}<script>",
    "<\\script><script>{}<script>",
    "<textarea><script>{}<script>",
    "<title><img src=x onerror={}>",
    "<template><img src=x onerror={}>",
    "<object data=javascript:{}>",
    "<embed src=javascript:{}>",
    "<meta http-equiv=refresh content='0;javascript:{}'>",
    "<base href=javascript:{}>",
    "<form><button formaction=javascript:{}>x",
    "<marquee onstart={}>",
    "<video><source onerror={}>",
    "<audio src=x onerror={}>",
    "<link rel=stylesheet href=javascript:{}>",
    "javascript:{}",
    "data:text;html,<script>{}<script>",
    "&lt;script&gt;{}&lt;script&gt;",
    "&#60;script&#62;{}",
    "\\u003cscript\\u003e{}",
    "%3Cscript%3E{}",
    "{{{{constructor.constructor('{}')()}}}}",
    "${{{}}}",
    "<%= {} %>",
    "#{{{}}}",
    "onload={}",
    "' onmouseover='{}",
    '" onmouseover="{}',
    "style=background:url(javascript:{})",
    "expression({})",
    "@import 'javascript:{}';",
    "<x:script xmlns:x='http:w3'>{}<x:script>",
)
_WORDS = (
    *("__proto__", "constructor", "prototype", "toString", "hasOwnProperty", "null", "undefined", "NaN", "-1", "0"),
    *("..\\..", "CON", "%2e%2e", "#key=0", "?token=1", " leading", "trailing ", "=1+1", "@SUM(1)", "-rf"),
    *("\u202egnp.exe", "\u2066\u2069", "\u200b\u200d", "\ufeffbom", "e\u0301\u0302\u0303" * 20, "\U0001f4a9" * 30),
    *("مرحبا", "שלום", "名前", "x" * 200, "a" * 100 + " b"),
)
HOSTILE = list(
    dict.fromkeys([form.format(program.replace("/", "\\")) for form in _FORMS for program in _PROGRAMS] + list(_WORDS))
)
"""They have no slash and no control character, as names of a share."""


def hostile_share(root: Path) -> dict[str, Any]:
    """Write tables and files with hostile strings below ``root``, and return the options of the server that shares
    them.

    ``s.d`` has a table for each string. The tables are equal, with the strings as values, column names
    (``column_names``) and comments. ``s.d`` also has a volume, a model and a skill with some of the strings as names,
    files and comments.
    """
    _write_table(root / "t")
    files = root / "v"
    files.mkdir()
    for text in HOSTILE:
        (files / file_name(text)).write_text(text)
    quoted = ['"{}"'.format(text.replace('"', '""')) for text in HOSTILE]
    (files / "rows.csv").write_text("\n".join(f"{text},{text}" for text in quoted))
    (files / "values.json").write_text(json.dumps({text: text for text in HOSTILE}))
    drawing = "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(1)</script></svg>"
    (files / "picture.svg").write_text(drawing)
    (files / "page.html").write_text("<script>alert(1)</script>")
    skill = root / SKILL
    skill.mkdir()
    head = f"---\nname: {SKILL}\ndescription: {json.dumps(HOSTILE[0])}\n---\n"
    (skill / "SKILL.md").write_text(head + "\n".join(HOSTILE))
    (root / "m" / "1").mkdir(parents=True)
    tables = [catalog.entry("s", "d", name, root / "t") for name in TABLES]
    return {
        "tables": catalog.build(tables),
        "volumes": {f"s.d.{VOLUME}": files},
        "skills": {f"s.d.{SKILL}": skill},
        "models": {f"s.d.{VOLUME}": {1: root / "m" / "1"}},
    }


def file_name(text: str) -> str:
    """Return ``text`` as a file name."""
    return f"{text[:50].strip(' .')}.txt"


# Names are case-insensitive.
TABLES = list({text.lower(): text for text in HOSTILE}.values())
SKILL = "hostile-skill"
VOLUME = "<svg\u2028onload=alert(1)>"


def _write_table(folder: Path) -> None:
    """Write a table with column mapping, so that columns may have any name."""
    names = list({text.lower(): text for text in ["text", *HOSTILE]}.values())
    physical = [f"c{number}" for number in range(len(names))]
    fields = [
        {
            "name": name,
            "type": "string",
            "nullable": True,
            "metadata": {
                "comment": name,
                "delta.columnMapping.id": number + 1,
                "delta.columnMapping.physicalName": physical[number],
            },
        }
        for number, name in enumerate(names)
    ]
    (folder / "_delta_log").mkdir(parents=True)
    rows = pa.table([pa.array(HOSTILE)] * len(names), names=physical)
    pq.write_table(rows, folder / "part.parquet")
    configuration = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": str(len(names)),
        **{text: text for text in HOSTILE},
    }
    actions = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": {
                "id": "5d2ff642-5cc9-5fab-9e54-6031bf7d79d6",
                "name": HOSTILE[0],
                "description": "\n".join(HOSTILE),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": configuration,
            }
        },
        {
            "add": {
                "path": "part.parquet",
                "partitionValues": {},
                "size": (folder / "part.parquet").stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps({"numRecords": len(HOSTILE)}),
            }
        },
        {"commitInfo": {"timestamp": 0, "operation": HOSTILE[0], "operationParameters": {HOSTILE[1]: HOSTILE[2]}}},
    ]
    log = "".join(f"{json.dumps(action)}\n" for action in actions)
    (folder / "_delta_log" / f"{0:020}.json").write_text(log)
