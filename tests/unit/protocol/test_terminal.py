"""Names, columns and messages from a server are shown without terminal control characters."""

from __future__ import annotations

import json
import logging

import pytest

import delta_sharing_client as ds
from tests.unit.protocol import wire

REVERSED = "a\N{RIGHT-TO-LEFT OVERRIDE}b"


def test_server_text_is_shown_without_control_characters(server, profile, caplog):
    caplog.set_level(logging.DEBUG, "delta_sharing_client")
    field = {"name": f"c\x1b[2J{REVERSED}", "type": "long", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    path = "/shares/s/schemas/d/tables/a%E2%80%AEb/query"
    server.on("POST", path, wire.ndjson(*wire.delta_head(schemaString=schema), {"endStreamAction": {}}))
    table = ds.SharingClient(profile).table(f"s.d.{REVERSED}")
    scan = table.scan()

    texts = [repr(table), repr(scan), scan.explain(), caplog.text]
    server.on("POST", path, wire.error(400, "\x1b[31m", f"\x1b]0;x\x07{REVERSED}"))
    with pytest.raises(ds.RequestError) as caught:
        scan.plan()

    for text in [*texts, str(caught.value)]:
        assert "\\u202e" in text
        assert not {"\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"} & set(text)
