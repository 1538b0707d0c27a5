"""The server of ``delta-sharing browse``: responses to requests of its page, and refused requests."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import openpyxl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
from delta_sharing_client.browse import page as page_module
from delta_sharing_client.browse.code import programs
from delta_sharing_client.browse.page import Running, running
from delta_sharing_client.browse.routes import _STATIC, QUESTIONS
from delta_sharing_client.cli import main
from delta_sharing_client.protocol.names import AssetName
from tests.effort import sample
from tests.hostile import HOSTILE, SKILL, TABLES, VOLUME, file_name, hostile_share
from tests.time_limits import HANGS, SOON, Stopwatch
from tests.visitor import Visitor

ORDERS = ["demo", "shop", "orders"]
DOCUMENTS = {"kind": "volume", "name": ["demo", "shop", "documents"]}
SLOW = ["s", "d", "slow"]


@pytest.fixture(scope="module")
def page(serve_demo: Any) -> Iterator[Running]:
    with running(str(serve_demo.profile_path)) as page_server:
        yield page_server


@pytest.fixture(scope="module")
def visitor(page: Running) -> Visitor:
    return Visitor(page.address)


# --- shares ---


def test_tree_has_shares_schemas_and_all_kinds_of_assets(visitor: Visitor, serve_demo: Any) -> None:
    start = visitor.ask("start")
    assert start == {
        "profile": str(serve_demo.profile_path),
        "expires": None,
        "shares": [{"name": "demo", "comment": None}],
    }
    assert visitor.ask("schemas", share="demo") == {"schemas": ["shop", "weather", "lake"]}
    assets = visitor.ask("assets", share="demo", schema="shop")["assets"]
    kinds = {"table": 2, "volume": 1, "model": 1, "skill": 1}
    assert {kind: sum(one[0] == kind for one in assets) for kind in kinds} == kinds
    assert ["table", "lake", "refunds"] in visitor.ask("assets", share="demo")["assets"]
    assert "nothing" in visitor.refusal("assets", share="demo", schema="nothing")["error"]


def test_preview_returns_byte_counts_and_the_rows_of_a_scan(visitor: Visitor, serve_demo: Any) -> None:
    columns = ["amount", "country"]
    preview = visitor.preview(name=ORDERS, columns=columns, filter=" country = 'DE' ", version="2")
    expected = (
        ds.SharingClient(serve_demo.profile_path)
        .table("demo.shop.orders")
        .scan(columns, "country = 'DE'", 100, version=2)
        .to_arrow()
    )
    assert [one["name"] for one in preview["columns"]] == columns
    rows = [list(row.values()) for row in expected.to_pylist()]
    assert preview["rows"] == [[None if value is None else str(value) for value in row] for row in rows]
    assert (len(preview["rows"]), preview["version"], preview["asks"]) == (100, "2", False)
    assert 0 < preview["bytes"] < 100_000
    assert preview["read"] > 0
    assert "planned too long ago" in visitor.refusal("preview", plan="other")["error"]


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("amout > 3 AND country = 'amout'", "amout"),
        ("country = 'amout' AND amout > 3", "amout"),
        ("country = 'DE' && amount > 3", "&&"),
        ("country = 'DE' AND foo(amount) = 3", "foo"),
        ("country = 'it''s' and amount = ) 3", ")"),
        ("country = 'DE", "'DE"),
        ("country = DE", "DE"),
        ("`amount` > `no such`", "`no such`"),
        ("amount > 'x'", "amount"),
        ("amount > 3 AND \"country\" = 'country'", '"country"'),
        ("country = 'status' OR country = \"Status\"", '"Status"'),
        ("\n amount BETWEEN 3", "BETWEEN"),
    ],
)
def test_filter_error_has_the_position_of_the_mistake(visitor: Visitor, text: str, marked: str) -> None:
    for question in ("plan", "cost"):
        error = visitor.refusal(question, name=ORDERS, filter=text)
        assert error["field"] == "filter"
        start, stop = error["span"]
        assert text[start:stop] == marked


def test_errors_name_the_wrong_input(visitor: Visitor) -> None:
    assert visitor.refusal("plan", name=ORDERS, timestamp="soon")["field"] == "timestamp"
    assert "latest version is 6" in visitor.refusal("plan", name=ORDERS, version="99")["error"]
    for values in ({"name": "x"}, {"name": ["a", "b"]}, {"name": ORDERS, "columns": "amount"}, {"name": [1, 2, 3]}):
        assert "Expected" in visitor.refusal("plan", **values)["error"]
    for question in QUESTIONS:
        assert visitor.answer(question, {"name": ORDERS, "format": "exe"}).status_code in (200, 400)
    assert visitor.answer("nothing", {}).status_code == 404


def test_history_has_counts_and_the_changes_of_a_version(visitor: Visitor) -> None:
    details = visitor.ask("history", name=ORDERS)
    assert [one["version"] for one in details["versions"]] == ["0", "2", "3", "4", "6"]
    assert details["versions"][2]["deletes"] == 245
    changes = visitor.preview(name=ORDERS, changes=3)
    assert {row[-3] for row in changes["rows"]} == {"delete"}
    details = visitor.ask("history", name=["demo", "lake", "refunds"])
    snapshots = details["versions"]
    assert details["from"] is None
    assert all(one["version"].isdecimal() and one["operation"] for one in snapshots)


# --- downloads ---


def test_download_has_the_rows_in_every_format(visitor: Visitor, page: Running, serve_demo: Any) -> None:
    what = {"name": ORDERS, "columns": ["order_id", "amount"], "filter": "country = 'DE'"}
    expected = (
        ds.SharingClient(serve_demo.profile_path)
        .table("demo.shop.orders")
        .scan(["order_id", "amount"], "country = 'DE'")
        .to_arrow()
    )
    readers: dict[str, Callable[[bytes], pa.Table]] = {
        "csv": lambda data: pa_csv.read_csv(io.BytesIO(data)),
        "parquet": lambda data: pq.read_table(io.BytesIO(data)),
        "arrow": lambda data: pa.ipc.open_file(data).read_all(),
    }
    for name, read in readers.items():
        taken = visitor.downloaded(**what, format=name)
        assert read(taken.content).equals(expected)
        assert taken.headers["content-disposition"] == f'attachment; filename="orders.{name}"'
        assert taken.status_code == 200
        assert taken.headers["content-type"] == "application/octet-stream"
    sheet = openpyxl.load_workbook(io.BytesIO(visitor.downloaded(**what, format="xlsx").content)).active
    assert sheet is not None
    assert list(sheet.values)[1:] == list(zip(*expected.to_pydict().values(), strict=True))
    # A finished download can be fetched once and is then deleted.
    left = [path for path in page.session.folder.iterdir() if path.name != "open.html"]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in left)
    failed = visitor.ask("download", **{**what, "filter": "amout > 1"}, format="csv")
    failed = visitor.until(failed, lambda one: one["state"] != "running")
    assert (failed["state"], failed["file"]) == ("failed", None)
    assert "amout" in failed["error"]
    assert "Expected one of the formats" in visitor.refusal("download", **what, format="exe")["error"]


@pytest.fixture(scope="module")
def slow(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server whose table would take minutes to read."""
    root = tmp_path_factory.mktemp("slow")
    for start in range(4):
        numbers = pa.array(range(start * 100_000, (start + 1) * 100_000), pa.int64())
        noise = [zlib.crc32(str(number.as_py()).encode()).to_bytes(4, "big") * 4 for number in numbers]
        deltalake.write_deltalake(root / "t", pa.table({"n": numbers, "b": pa.array(noise)}), mode="append")
    (root / "v").mkdir()
    (root / "v" / "large.bin").write_bytes(os.urandom(1 << 16) * 64)
    return serve(tables={".".join(SLOW): root / "t"}, volumes={"s.d.v": root / "v"}, bandwidth=50_000)


@pytest.mark.parametrize("name", ["csv", "parquet", "arrow", "xlsx"])
def test_cancelled_download_ends_the_read_and_leaves_no_file(slow: Any, name: str) -> None:
    with running(str(slow.profile_path)) as page:
        visitor = Visitor(page.address)
        begun = visitor.ask("download", name=SLOW, format=name)
        assert begun["state"] == "running"
        assert visitor.until(begun, lambda one: bool(one["bytesInAll"]))["rowsInAll"] == 400_000
        download = page.session.downloads[begun["id"]]
        assert visitor.ask("cancel", id=begun["id"]) == {"id": begun["id"]}
        clock = Stopwatch()
        while download.state == "running" or any(page.session.folder.iterdir()):
            assert clock.within(HANGS), list(page.session.folder.iterdir())
        assert download.state == "ended"
        assert "was cancelled" in visitor.refusal("progress", id=begun["id"])["error"]
        clock = Stopwatch()
        while not slow.app.stats.idle:
            assert clock.within(HANGS)


def test_preview_ends_when_its_page_is_closed(slow: Any) -> None:
    with running(str(slow.profile_path)) as page:
        visitor = Visitor(page.address)
        plan = visitor.ask("plan", name=SLOW)["plan"]
        body = json.dumps({"plan": plan}).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in visitor.headers.items())
        cookie = "; ".join(f"{name}={value}" for name, value in visitor.http.cookies.items())
        with socket.create_connection(("127.0.0.1", page.port)) as connection:
            connection.sendall(
                f"POST /api/preview HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n{head}Cookie: {cookie}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            clock = Stopwatch()
            while slow.app.stats.idle:
                assert clock.within(HANGS)
        clock = Stopwatch()
        while not slow.app.stats.idle:
            assert clock.within(HANGS)


def test_downloads_are_limited_by_number_and_by_disk_space(slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(str(slow.profile_path)) as page:
        visitor = Visitor(page.address)
        for _ in range(8):
            visitor.ask("download", name=SLOW, format="csv")
        assert "At most 8 downloads" in visitor.refusal("download", name=SLOW, format="csv")["error"]
    with running(str(slow.profile_path)) as page:
        visitor = Visitor(page.address)
        monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
        begun = visitor.ask("download", name=SLOW, format="csv")
        failed = visitor.until(begun, lambda one: one["state"] != "running")
        assert "Free disk space" in failed["error"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize("number", sample([signal.SIGINT, signal.SIGTERM], 2))
def test_interrupt_ends_the_server_and_leaves_no_file(slow: Any, tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "delta_sharing_client", "-p", str(slow.profile_path), "browse", "--no-open"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        visitor = Visitor(run.stdout.readline().strip())
        for name in ("csv", "xlsx"):
            visitor.until(visitor.ask("download", name=SLOW, format=name), lambda one: bool(one["bytesInAll"]))
        visitor.until(
            visitor.ask("download-file", kind="volume", name=["s", "d", "v"], path="large.bin"), lambda one: True
        )
        assert list(tmp_path.iterdir())
        clock = Stopwatch()
        run.send_signal(number)
        assert run.wait(HANGS) == 0
        assert clock.within(SOON)
        errors = run.stderr.read()
        assert "Ctrl-C ends the page" in errors
        assert len(errors.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


# --- files ---


def test_view_of_a_file_depends_on_its_content(serve: Any, tmp_path: Path) -> None:
    volume = tmp_path / "v"
    (volume / "inner").mkdir(parents=True)
    picture = (Path(__file__).parents[2] / "docs" / "overview.svg").read_bytes()
    files = {
        "a.csv": b'\xef\xbb\xbfid;text\n1;"a;b"\n2\n',
        "b.json": b'{"big":12345678901234567890123.10,"list":[1,{}],"t":"<\\u0041, [x]>"}',
        "c.svg": picture,
        "d.txt": "é".encode() * 200_000,
        "e.bin": b"\0\1\2" * 100,
        "f.png": b"\xff\xd8\xff not really",
        "g.html": b"<script>alert(1)</script>",
        "h.parquet": b"PAR1 not really",
        "i.txt": "zwei\r\n".encode("utf-16"),
        "j.txt": b"",
        "k.csv": b"",
        "inner/x.webp": b"RIFF\0\0\0\0WEBP",
    }
    for name, data in files.items():
        (volume / name).write_bytes(data)
    rows = pa.table({"n": range(1000), "list": [[1, 2]] * 1000})
    pq.write_table(rows, volume / "l.parquet", row_group_size=300)
    served = serve(tables={}, volumes={"s.d.v": volume})
    base = {"kind": "volume", "name": ["s", "d", "v"]}
    with running(str(served.profile_path)) as page:
        visitor = Visitor(page.address)
        folder = visitor.ask("folder", **base)
        assert folder["folders"] == ["inner"]
        assert {one["path"] for one in folder["files"]} == {*files, "l.parquet"} - {"inner/x.webp"}
        looks = {name: visitor.answer("look", {**base, "path": name}) for name in (*files, "l.parquet")}
        previews = {name: response.json() for name, response in looks.items()}
        assert (previews["a.csv"]["as"], previews["a.csv"]["rows"]) == ("rows", [["1", "a;b"], ["2", None]])
        assert "12345678901234567890123.10,\n" in previews["b.json"]["text"]
        assert json.loads(previews["b.json"]["text"]) == json.loads(files["b.json"])
        assert previews["c.svg"]["as"] == previews["g.html"]["as"] == "text"
        assert (previews["d.txt"]["isCut"], set(previews["d.txt"]["text"])) == (True, {"é"})
        assert previews["e.bin"]["as"] == "nothing"
        assert previews["i.txt"]["text"] == "zwei\r\n"
        assert previews["j.txt"]["text"] == ""
        assert looks["h.parquet"].status_code == 400
        assert previews["l.parquet"]["rowsInAll"] == 1000
        assert previews["l.parquet"]["rows"] == [[str(n), "[1,2]"] for n in range(100)]
        for name, media_type in (("f.png", "image/jpeg"), ("inner/x.webp", "image/webp")):
            shown = visitor.http.get(f"{visitor.base}/files/{previews[name]['file']}", timeout=HANGS)
            assert (shown.headers["content-type"], shown.content) == (media_type, files[name])
            assert "sandbox" in shown.headers["content-security-policy"]
            assert shown.headers["content-disposition"].startswith("attachment")
        for name in ("g.html", "d.txt", "inner/x.webp"):
            taken = visitor.downloaded("download-file", **base, path=name)
            assert taken.content == files[name]
            assert taken.headers["content-type"] == "application/octet-stream"
            assert taken.headers["x-content-type-options"] == "nosniff"
        assert "no file or directory" in visitor.refusal("look", **base, path="none")["error"]
        assert "Expected a path" in visitor.refusal("look", **base, path="../p.share")["error"]
        assert "Expected a path" in visitor.refusal("folder", **base, path="a/../../b")["error"]


def test_long_content_is_truncated_with_a_note(
    visitor: Visitor, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delta_sharing_client.browse.folders._MOST_ENTRIES", 3)
    folder = visitor.ask("folder", **DOCUMENTS)
    assert folder["isCut"]
    monkeypatch.setattr("delta_sharing_client.browse.folders._MOST_UNPACKED", 10)
    pq.write_table(pa.table({"n": range(1000)}), tmp_path / "l.parquet")
    served = serve(tables={}, volumes={"s.d.v": tmp_path})
    with running(str(served.profile_path)) as page:
        details = Visitor(page.address).ask("look", kind="volume", name=["s", "d", "v"], path="l.parquet")
    assert (details["rows"], details["rowsInAll"]) == ([], 1000)
    assert "too much for a preview" in details["notes"][0]
    assert [one["name"] for one in details["columns"]] == ["n"]
    monkeypatch.setattr("delta_sharing_client.browse.tables._MOST_COLUMNS", 2)
    table = visitor.ask("table", name=ORDERS)
    assert (len(table["columns"]), table["columnsInAll"]) == (2, 6)
    many = [f"c{number}" for number in range(201)]
    assert "at most 200 columns" in visitor.refusal("plan", name=ORDERS, columns=many)["error"]


def test_models_and_skills_are_described(visitor: Visitor) -> None:
    model = {"kind": "model", "name": ["demo", "shop", "churn"]}
    details = visitor.ask("asset", **model)
    assert [one["version"] for one in details["versions"]] == [1, 2]
    assert visitor.ask("folder", **model, modelVersion=2)["files"]
    skill = {"kind": "skill", "name": ["demo", "shop", "sales-report"]}
    about = visitor.ask("asset", **skill)["facts"]
    assert "monthly report" in about["description"]
    assert not any("location" in name for name in about)
    assert "# Sales report" in visitor.ask("look", **skill, path="SKILL.md")["text"]
    assert visitor.ask("asset", **DOCUMENTS)["facts"]["name"] == "documents"
    assert "Expected a volume" in visitor.refusal("asset", kind="rest", name=ORDERS)["error"]


# --- programs ---


def test_generated_programs_read_the_selected_rows(
    visitor: Visitor, serve_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = {"name": ORDERS, "columns": ["order_id", "status"], "filter": "country = 'DE'", "version": "2"}
    programs_ = {one["name"]: one["text"] for one in visitor.ask("code", **what)["programs"]}
    assert list(programs_) == ["pandas", "Polars", "DuckDB", "Spark", "Command line"]
    client = ds.SharingClient(serve_demo.profile_path)
    rows = client.table("demo.shop.orders").scan(["order_id"], "country = 'DE'", version=2).count()
    names: dict[str, Any] = {}
    exec(programs_["pandas"], names)
    assert (list(names["frame"]), len(names["frame"])) == (["order_id", "status"], rows)
    exec(programs_["Polars"], names)
    assert names["frame"].collect().height == rows
    exec(programs_["DuckDB"], names)
    assert names["shared"].count("*").fetchall() == [(rows,)]
    compile(programs_["Spark"], "spark", "exec")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(programs_["Command line"])[1:]) == 0
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == rows


@pytest.mark.parametrize("text", [*HOSTILE[::20], "a\nb", "`", "'", '"', "\\", "$(reboot)"])
def test_generated_programs_quote_special_names_and_filters(text: str) -> None:
    table = AssetName("-s", "d", text.replace("\n", " "))
    result = programs("p q.share", table, columns=[text], condition=text, timestamp=text)
    words = shlex.split(result["Command line"])
    assert words[:3] == ["delta-sharing", "-p", "p q.share"]
    assert words[-1] == str(table)
    assert words[words.index("--filter") + 1] == text
    calls: list[Any] = []
    for name in ("pandas", "Polars", "DuckDB", "Spark"):
        source = re.search(r"ds\.\w+(\(.*\))", result[name])
        assert source is not None
        eval(f"take{source[1]}", {"take": lambda *given, **named: calls.append((given, named)), "connection": None})
    assert {given[0] for given, _ in calls} == {f"p q.share#{table}"}
    assert all(named["filter"] == text and named["timestamp"] == text for _, named in calls)


def test_generated_programs_do_not_contain_the_token(serve_demo: Any) -> None:
    content = json.dumps(serve_demo.profile)
    for given in (content, serve_demo.profile):
        with running(given) as page:
            details = Visitor(page.address).ask("code", name=ORDERS)
            assert serve_demo.profile["bearerToken"] not in json.dumps(details)
            assert "'profile.share#demo.shop.orders'" in details["programs"][0]["text"]


# --- security ---


def test_token_is_moved_from_the_url_to_a_cookie(page: Running, visitor: Visitor) -> None:
    opened = visitor.opened
    assert opened.status_code == 303
    cookie = opened.headers["set-cookie"]
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert re.fullmatch(r"/#key=[0-9a-f]{64}", opened.headers["location"])
    token = page.address.partition("token=")[2]
    # Browsers send the cookie to every port of this machine, so it must not contain the secrets.
    assert token not in cookie
    assert visitor.key not in cookie
    assert len(token) >= 43
    wrong = visitor.http.get(f"{visitor.base}/?token={token[:-1]}x", timeout=HANGS)
    assert (wrong.status_code, "is wrong" in wrong.text) == (403, True)
    for query in ("token=", f"token={token}&token={token}", f"token={token}%00", "token=%ff"):
        assert visitor.http.get(f"{visitor.base}/?{query}", timeout=HANGS).status_code == 403
    with running(page.session.profile) as other:
        assert other.address.partition("token=")[2] != token
        assert Visitor(other.address).http.cookies.keys() != visitor.http.cookies.keys()


def raw(page: Running, request: str) -> tuple[int, str]:
    """Send the text of a request as it is."""
    with socket.create_connection(("127.0.0.1", page.port), timeout=HANGS) as connection:
        connection.sendall(request.replace("\n", "\r\n").encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return int(answer.split(" ")[1]), answer


def test_requests_of_other_sites_are_refused(page: Running, visitor: Visitor) -> None:
    host = f"127.0.0.1:{page.port}"
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.http.cookies.items())
    good = {
        "Host": host,
        "Origin": f"http://{host}",
        "Content-Type": "application/json",
        "Cookie": cookie,
        "X-Delta-Sharing-Key": visitor.key,
        "Content-Length": "2",
        "Connection": "close",
    }

    def sent(changes: dict[str, str | None], line: str = "POST /api/start HTTP/1.1") -> tuple[int, str]:
        headers = {name: value for name, value in {**good, **changes}.items() if value is not None}
        return raw(page, "\n".join([line, *(f"{name}: {value}" for name, value in headers.items()), "", "{}"]))

    assert sent({})[0] == 200
    local = f"localhost:{page.port}"
    assert sent({"Host": local, "Origin": f"http://{local}"})[0] == 200
    attacks: list[dict[str, str | None]] = [
        *({"Host": name} for name in ("evil.invalid", f"evil.invalid:{page.port}", "127.0.0.1", "localhost:1", "")),
        *({"Host": f"{name}:{page.port}"} for name in ("127.0.0.2", "[::1]", "127.0.0.1.evil.invalid", "0.0.0.0")),
        *({"Origin": name} for name in ("http://evil.invalid", "null", f"https://{host}", f"http://{local}", None)),
        *({"Origin": name} for name in ("http://127.0.0.1:1", f"http://{host}/", "http://127.0.0.1")),
        *({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "none, cross-site")),
        *({"Content-Type": kind} for kind in ("text/plain", "application/x-www-form-urlencoded", None)),
        *({"Cookie": value} for value in (None, "", "delta-sharing=1", f"delta-sharing-{page.port}=", "a=b")),
        *({"X-Delta-Sharing-Key": value} for value in (None, "", "0" * 64, visitor.key.upper())),
        {"Host": f"{host}\nHost: evil.invalid"},
        {"X-Delta-Sharing-Key": f"{visitor.key}\nX-Delta-Sharing-Key: {visitor.key}"},
    ]
    for attack in attacks:
        status, answer = sent(attack)
        assert status in (400, 401, 403), (attack, answer)
        assert "shares" not in answer
    for line in ("GET /api/start HTTP/1.1", "PUT /api/start HTTP/1.1", "OPTIONS /api/start HTTP/1.1"):
        status, answer = sent({"Origin": None} if line.startswith("GET") else {}, line)
        assert (status, "access-control" in answer.lower()) == (403, False)
    # Requests after DNS rebinding, and requests of other sites, are refused even for public resources.
    for path in ("/", "/page.js", "/files/x", "/?token=x"):
        for headers in (f"Host: evil.invalid:{page.port}", f"Host: {host}\nOrigin: http://evil.invalid"):
            assert raw(page, f"GET {path} HTTP/1.1\n{headers}\nConnection: close\n\n")[0] == 403
    script = f"GET /page.js HTTP/1.1\nHost: {host}\nSec-Fetch-Site: cross-site\nSec-Fetch-Dest: script\n"
    assert raw(page, f"{script}Connection: close\n\n")[0] == 403
    frame = f"GET / HTTP/1.1\nHost: {host}\nSec-Fetch-Site: cross-site\nSec-Fetch-Dest: iframe\n"
    assert raw(page, f"{frame}Connection: close\n\n")[0] == 403
    visit = f"GET / HTTP/1.1\nHost: {host}\nSec-Fetch-Site: cross-site\nSec-Fetch-Dest: document\n"
    assert raw(page, f"{visit}Connection: close\n\n")[0] == 200


def test_file_needs_the_cookie_and_its_secret_name(page: Running, visitor: Visitor) -> None:
    file = visitor.ask("look", **DOCUMENTS, path="pictures/sign.png")["file"]
    for _ in range(2):
        # A picture may be shown again.
        assert visitor.http.get(f"{visitor.base}/files/{file}", timeout=HANGS).status_code == 200
    host = f"Host: 127.0.0.1:{page.port}\nConnection: close\n\n"
    assert raw(page, f"GET /files/{file} HTTP/1.1\n{host}")[0] == 401
    for name in ("x", "..%2fopen.html", "%2e%2e/open.html", f"{file}/"):
        assert visitor.http.get(f"{visitor.base}/files/{name}", timeout=HANGS).status_code == 404
    for name in ("../server.py", "page.py", "%2e%2e%2fserver.py", "favicon.ico"):
        assert visitor.http.get(f"{visitor.base}/{name}", timeout=HANGS).status_code == 404


def test_every_response_has_restrictive_headers(page: Running, visitor: Visitor) -> None:
    answers = [
        visitor.http.get(f"{visitor.base}/{path}", timeout=HANGS) for path in ("", "page.js", "none", "?token=x")
    ]
    answers += [visitor.answer("start", {}), visitor.answer("table", {"name": ["a", "b", "c"]}), visitor.opened]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
    with (
        contextlib.suppress(OSError),
        socket.create_connection((socket.gethostbyname(socket.gethostname()), page.port)),
    ):
        # The server may only be reached if the host name of this machine has a loopback address.
        assert socket.gethostbyname(socket.gethostname()).startswith("127.")


def test_scripts_of_the_page_never_insert_html_or_run_text() -> None:
    vendored = (_STATIC / "chart.umd.js").read_text()
    assert not re.search(
        r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|DOMParser)\b|\b(?:eval|Function|import)\(", vendored
    )
    scripts = "".join(path.read_text() for path in _STATIC.glob("*.js") if path.name != "chart.umd.js")
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser"):
        assert sink not in scripts
    assert not re.search(r"https?://|import\((?!\"/chart\.umd\.js\")|srcdoc|setTimeout\([\"'`]", scripts)
    markup = (_STATIC / "page.html").read_text()
    assert not re.search(r"<script(?! type=\"module\" src=)|\son\w+=|\sstyle=|https?://", markup)
    assert "http" not in (_STATIC / "page.css").read_text()


def test_hostile_names_and_values_are_sent_unchanged(serve: Any, tmp_path: Path) -> None:
    assert len(HOSTILE) >= 200
    served = serve(**hostile_share(tmp_path))
    with running(str(served.profile_path)) as page:
        visitor = Visitor(page.address)
        assets = visitor.ask("assets", share="s")["assets"]
        assert {(kind, name) for kind, _, name in assets} == {
            *(("table", name) for name in TABLES),
            *(("volume", VOLUME), ("model", VOLUME), ("skill", SKILL)),
        }
        for name in TABLES[::25]:
            details = visitor.ask("table", name=["s", "d", name])
            assert details["facts"]["description"].splitlines()[0] == HOSTILE[0]
            assert all(one["column"] == one["comment"] for one in details["columns"])
        what = {"name": ["s", "d", TABLES[0]]}
        names = [one["column"] for one in details["columns"]]
        for start in range(0, len(names), 150):
            chosen = names[start : start + 150]
            preview = visitor.preview(**what, columns=chosen)
            assert [one["name"] for one in preview["columns"]] == chosen
            assert [row[0] for row in preview["rows"]] == HOSTILE[:100]
        base = {"kind": "volume", "name": ["s", "d", VOLUME]}
        files = {one["path"] for one in visitor.ask("folder", **base)["files"]}
        assert files >= set(map(file_name, HOSTILE))
        for text in HOSTILE[::25]:
            taken = visitor.downloaded("download-file", **base, path=file_name(text))
            assert taken.content.decode() in HOSTILE
            assert taken.headers["content-disposition"].startswith("attachment")
        for path in ("picture.svg", "page.html"):
            assert visitor.ask("look", **base, path=path)["as"] == "text"


def test_no_response_has_a_credential_or_a_signed_url(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in ("QUICK", "PATIENT"):
        impatient = ds.ReadOptions(max_attempts=2, max_retry_seconds=0.5, progress=False)
        monkeypatch.setattr(f"delta_sharing_client.browse.session.{options}", impatient)
    token, storage = "planted-bearer-token-77", "planted-storage-token-78"
    deltalake.write_deltalake(tmp_path / "t", pa.table({"id": range(10)}))
    served = serve(
        tables={"s.d.t": tmp_path / "t"},
        token=token,
        volumes={"s.d.v": "gs://bucket/v"},
        vendors={"gs": lambda *_: {"gcpOauthToken": {"oauthToken": storage}}},
    )
    name = ["s", "d", "t"]
    asked: dict[str, dict[str, Any]] = {
        **{question: {"name": name, "format": "csv", "kind": "volume"} for question in QUESTIONS},
        "asset": {"kind": "volume", "name": ["s", "d", "v"]},
    }
    with running(str(served.profile_path)) as page:
        visitor = Visitor(page.address)
        texts = []
        for fault in (None, "503-first=99@data", "truncate-body@data", "expire-urls-now", "error-in-stream"):
            served.clear_faults()
            if fault is not None:
                served.set_fault(fault)
            texts += [
                visitor.answer(question, values).text for question, values in asked.items() if question != "folder"
            ]
            plan = visitor.answer("plan", {"name": name}).json().get("plan", "")
            read = visitor.answer("preview", {"plan": plan})
            assert (read.status_code == 200) is (fault is None)
            details = visitor.until(
                visitor.ask("download", name=name, format="csv"), lambda one: one["state"] != "running"
            )
            texts += [read.text, json.dumps(details)]
        served.clear_faults()
    shown = "\n".join(texts)
    assert "X-Amz-Signature=" not in shown.replace("X-Amz-Signature=***", "")
    assert token not in shown
    assert storage not in shown
    assert page.address.partition("token=")[2] not in shown


# --- the command ---


def test_command_prints_the_url_and_opens_it(
    serve_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    contents: list[str] = []

    def open_it(address: str) -> bool:
        opened.append(address)
        path = Path(address.removeprefix("file://"))
        contents.append(path.read_text())
        assert path.stat().st_mode & 0o077 == 0
        return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", open_it)
    monkeypatch.setattr(page_module.loopback, "wait", lambda ended: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    arguments = ["-p", str(serve_demo.profile_path), "browse"]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    address = printed.out.strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", address)
    # The process list shows the arguments of a browser, so the token is not one of them.
    assert "token" not in opened[0]
    assert address in contents[0]
    assert "opens in your browser" in printed.err
    assert main([*arguments, "--no-open", "--json"]) == 0
    assert len(opened) == 1
    assert "token=" in json.loads(capsys.readouterr().out)["address"]
    assert list(tmp_path.iterdir()) == []


def test_port_in_use_and_missing_profile_are_usage_errors(
    page: Running, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    profile = str(page.session.profile)
    assert main(["-p", profile, "browse", "--no-open", "--port", str(page.port)]) == 2
    assert f"cannot use port {page.port}" in capsys.readouterr().err
    assert main(["-p", str(tmp_path / "none.share"), "browse", "--no-open"]) == 2


def test_page_reports_an_empty_share_and_a_refused_token(serve: Any) -> None:
    served = serve(tables={})
    with running(str(served.profile_path)) as page:
        assert Visitor(page.address).ask("start")["shares"] == []
    wrong = {**served.profile, "bearerToken": "planted-wrong-token"}
    old = {**served.profile, "expirationTime": "2020-01-01T00:00:00Z"}
    for profile, expected in ((wrong, "401"), (old, "expired")):
        with running(profile) as page:
            answer = Visitor(page.address).refusal("start")["error"]
            assert expected in answer
            assert "planted" not in answer


def test_estimated_cost_is_close_to_the_downloaded_bytes(serve: Any, tmp_path: Path) -> None:
    """One table is so wide that it consists mostly of footers; from the other, long one, few columns are read."""
    wide = pa.table({f"c{number}": [number] for number in range(1000)})
    long = pa.table({"n": range(300_000), "text": [str(number * 7919) for number in range(300_000)]})
    for name, rows in (("wide", wide), ("long", long)):
        deltalake.write_deltalake(tmp_path / name, rows)
    served = serve(tables={f"s.d.{name}": tmp_path / name for name in ("wide", "long")})
    with running(str(served.profile_path)) as page:
        visitor = Visitor(page.address)
        for name, columns in (("wide", ["c1"]), ("wide", []), ("long", ["n"]), ("long", [])):
            served.reset_stats()
            preview = visitor.preview(name=["s", "d", name], columns=columns)
            assert preview["read"] <= 1.1 * preview["bytes"]
            assert preview["read"] == served.stats()["bytes"]["data"]
