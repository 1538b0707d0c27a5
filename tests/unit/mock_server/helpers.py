"""A plain HTTP client for the server, and the tables that these tests write."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import requests

from delta_sharing_client.delta.actions import AddFile, Protocol
from mock_server.running import RunningServer
from mock_server.table_writer import TableWriter, metadata, remove

START = datetime.datetime(2026, 3, 1, tzinfo=datetime.timezone.utc)
DELTA = "responseformat=delta;readerfeatures=deletionvectors,columnmapping"


def at(hour: int) -> datetime.datetime:
    """Return the commit time of version ``hour``, which is the same for every table in this module."""
    return START + datetime.timedelta(hours=hour)


def stamp(hour: int) -> str:
    return at(hour).strftime("%Y-%m-%dT%H:%M:%SZ")


class Api:
    """Sends requests with the bearer token to one server."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers["Authorization"] = f"Bearer {server.profile['bearerToken']}"

    def get(self, path: str, capabilities: str | None = None, **headers: str) -> requests.Response:
        return self.session.get(self.server.endpoint + path, headers=_headers(capabilities, headers))

    def post(
        self, path: str, body: object = None, capabilities: str | None = None, **headers: str
    ) -> requests.Response:
        content = json.dumps({} if body is None else body)
        return self.session.post(self.server.endpoint + path, data=content, headers=_headers(capabilities, headers))

    def query(self, table: str, capabilities: str | None = None, **body: object) -> Lines:
        """Query a table of ``default.default`` and assert that the status is 200."""
        return Lines(self.post(f"shares/default/schemas/default/tables/{table}/query", body, capabilities))

    def changes(self, table: str, query: str, capabilities: str | None = None) -> Lines:
        return Lines(self.get(f"shares/default/schemas/default/tables/{table}/changes?{query}", capabilities))

    def fetch(self, url: str, **headers: str) -> requests.Response:
        """Get a data URL without sending the token."""
        return requests.get(url, headers={name.replace("_", "-"): value for name, value in headers.items()})


class Lines:
    """The lines of an NDJSON response, parsed and grouped by kind."""

    def __init__(self, response: requests.Response) -> None:
        assert response.status_code == 200, response.text
        self.headers = response.headers
        self.version = int(response.headers["Delta-Table-Version"])
        self.all = [json.loads(line) for line in response.content.split(b"\n")[:-1]]
        self.files = [line for line in self.all if line.keys() & {"file", "add", "remove", "cdf"}]
        self.protocol, self.metadata = self.all[0]["protocol"], self.all[1]["metaData"]
        last = self.all[-1]
        self.end: dict[str, Any] | None = last.get("endStreamAction")

    @property
    def urls(self) -> list[str]:
        return [url_of(line) for line in self.files]


def url_of(line: dict[str, Any]) -> str:
    ((_, file),) = line.items()
    if "url" in file:
        return str(file["url"])
    ((_, action),) = file["deltaSingleAction"].items()
    return str(action["path"])


def kinds(lines: Lines) -> list[tuple[int, str]]:
    """Return the version and action of every changed file."""
    results = []
    for line in lines.files:
        ((kind, file),) = line.items()
        if kind == "file":
            (kind,) = file["deltaSingleAction"]
        results.append((file["version"], kind))
    return results


def error_of(response: requests.Response) -> tuple[int, str]:
    body = response.json()
    assert body.keys() == {"errorCode", "message"}
    assert body["message"]
    return response.status_code, body["errorCode"]


def _headers(capabilities: str | None, headers: dict[str, str]) -> dict[str, str]:
    return headers if capabilities is None else {"delta-sharing-capabilities": capabilities, **headers}


def rows(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def table(name: str, *, partition: tuple[str, ...] = (), **configuration: str) -> Any:
    fields = [("id", "long"), *((column, "string") for column in partition)]
    return metadata(
        fields,
        table_id=f"{name}-id",
        name=name,
        description="",
        partition=partition,
        configuration={key.replace("_", "."): value for key, value in configuration.items()},
        time=at(0),
    )


def write_plain(root: Path) -> None:
    """v0 adds the files p=a and p=null, v1 adds p=b, v2 compacts p=a (no data change), v3 removes p=b."""
    writer = TableWriter(root, seed=1)
    first = writer.add(rows(*range(10)), {"p": "a"}, time=at(0))
    described = table("plain", partition=("p",))
    writer.commit([Protocol(1, 2), described, first, writer.add(rows(10, 11), {"p": None}, time=at(0))], "WRITE", at(0))
    second = writer.add(rows(20, 21, 22), {"p": "b"}, time=at(1))
    writer.commit([second], "WRITE", at(1))
    compacted = writer.add(rows(*range(10)), {"p": "a"}, time=at(2), data_change=False)
    writer.commit([remove(first, at(2), data_change=False), compacted], "OPTIMIZE", at(2))
    writer.commit([remove(second, at(3))], "DELETE", at(3))


def write_vectors(root: Path) -> None:
    """v0 inserts ten rows, v1 deletes two of them by a deletion vector, v2 deletes one more. The feed is enabled."""
    writer = TableWriter(root, seed=2)
    add = writer.add(rows(*range(10)), time=at(0))
    described = table("vectors", delta_enableDeletionVectors="true", delta_enableChangeDataFeed="true")
    protocol = Protocol(3, 7, ["deletionVectors"], ["changeDataFeed", "deletionVectors"])
    writer.commit([protocol, described, add], "WRITE", at(0))
    for hour, positions in ((1, [0, 9]), (2, [0, 1, 9])):
        actions = writer.delete([(add, positions)], at(hour))
        add = next(action for action in actions if isinstance(action, AddFile))
        writer.commit(actions, "DELETE", at(hour))


def write_feed(root: Path) -> None:
    """v0 has no feed, v1 enables it, v2 inserts, v3 updates with a change file, v4 changes metadata, v5 inserts."""
    writer = TableWriter(root, seed=3)
    writer.commit([Protocol(1, 4), table("feed"), writer.add(rows(1), time=at(0))], "WRITE", at(0))
    writer.commit([table("feed", delta_enableChangeDataFeed="true")], "SET TBLPROPERTIES", at(1))
    old = writer.add(rows(2), time=at(2))
    writer.commit([old], "WRITE", at(2))
    change = rows(2, 3).append_column("_change_type", pa.array(["update_preimage", "update_postimage"]))
    writer.commit([remove(old, at(3)), writer.add(rows(3), time=at(3)), writer.change_file(change)], "UPDATE", at(3))
    writer.commit([table("feed", delta_enableChangeDataFeed="true", delta_x="y")], "SET TBLPROPERTIES", at(4))
    writer.commit([writer.add(rows(5), time=at(5))], "WRITE", at(5))


def write_odd(root: Path) -> None:
    """Write partition values, and thus directory names, with all characters that could break a URL."""
    writer = TableWriter(root, seed=4)
    described = table("odd", partition=("p",))
    values = ["a b", "50%", "x&y=z", "1+1", "ü\u2028", "a/b", "#?"]
    adds = [writer.add(rows(number), {"p": value}, time=at(0)) for number, value in enumerate(values)]
    writer.commit([Protocol(1, 2), described, *adds], "WRITE", at(0))
