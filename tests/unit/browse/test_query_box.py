"""The query box says what a query downloads, shows its first rows, writes all of them, and ends at once."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import io
import json
import pathlib
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from delta_sharing_client import testing
from delta_sharing_client.browse import downloads, query_box
from delta_sharing_client.browse.asked import Asked
from delta_sharing_client.browse.session import Session
from delta_sharing_client.cli import main
from delta_sharing_client.errors import OutOfMemoryError, UsageError
from delta_sharing_client.limited_reads import ENDING
from delta_sharing_client.run import loop
from tests.time_limits import HANGS, SOON, Stopwatch
from tests.unit.storages import wait_for

ROWS = pa.table(
    {
        "a": list(range(5000)),
        "b": [f"{number % 7}" for number in range(5000)],
        "c": [hashlib.sha256(b"%d" % number).hexdigest() + "x" for number in range(5000)],
    }
)
ENDLESS = "SELECT count(*) FROM range(1000000000000) LEFT JOIN s.d.other ON a = range"
OTHER = pa.table({"a": [1, 2, None], "price": [Decimal("1.50"), Decimal("2.25"), None]})
WIDE = pa.table({f"c{number}": [number] for number in range(210)})


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with testing.running({"s.d.t": ROWS, "s.d.other": OTHER, "s.d.wide": WIDE}) as running:
        yield running


@pytest.fixture(scope="module")
def session(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    session_ = Session(server.profile, tmp_path_factory.mktemp("run"))
    yield session_
    session_.close()


def planned(session: Session, sql: str) -> Any:
    return query_box.planned(session, Asked({"sql": sql}))


def rows(session: Session, sql: str, **more: Any) -> Any:
    return query_box.rows(session, Asked({"sql": sql, **more}))


# --- the plan ---


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT * FROM s.d.t", {"s.d.t": 1}),
        ("SELECT a FROM s.d.t WHERE a < 10", {"s.d.t": 1}),
        ("SELECT t.b, other.price FROM s.d.t JOIN s.d.other USING (a)", {"s.d.t": 1, "s.d.other": 1}),
        ("SELECT * FROM s.d.t WHERE a IN (SELECT a FROM s.d.other WHERE false)", {"s.d.t": 0, "s.d.other": 0}),
        ("SELECT * FROM s.d.t WHERE a IN (SELECT a FROM s.d.other WHERE price > 9)", {"s.d.t": 1, "s.d.other": 1}),
        ("SELECT count(*) FROM s.d.t x JOIN s.d.t y ON x.a = y.a + 1", {"s.d.t": 2}),
        ("WITH few AS (FROM s.d.t LIMIT 3) SELECT sum(a) FROM few", {"s.d.t": 1}),
        ("SELECT b FROM s.d.t UNION ALL SELECT price::text FROM s.d.other", {"s.d.t": 1, "s.d.other": 1}),
        ("DESCRIBE s.d.t", {"s.d.t": 0}),
        ("SHOW TABLES", {}),
        ("SELECT 1", {}),
    ],
)
def test_query_downloads_at_most_what_its_plan_says(session: Session, sql: str, read: dict[str, int]) -> None:
    plan = planned(session, sql)
    assert {one["name"]: one["files"] for one in plan["tables"]} == read
    assert plan["bytes"] == sum(one["bytes"] for one in plan["tables"])
    assert plan["files"] == sum(read.values())
    assert bool(plan["plan"]) == bool(plan["files"])
    assert plan["asks"] is False
    assert rows(session, sql)["read"] <= plan["bytes"]


def test_plan_reads_no_rows_and_knows_the_columns(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, part = planned(session, "SELECT * FROM s.d.t"), planned(session, "SELECT a FROM s.d.t")
    assert 0 < part["bytes"] < whole["bytes"] <= 1_000_000
    # A plan that read rows would fail on them.
    assert planned(session, "SELECT CAST(c AS INTEGER) FROM s.d.t")["bytes"] > 0
    with pytest.raises(UsageError, match="Could not convert string"):
        rows(session, "SELECT CAST(c AS INTEGER) FROM s.d.t")
    monkeypatch.setattr(query_box, "ASKED_FROM", part["bytes"])
    assert planned(session, "SELECT a FROM s.d.t")["asks"] is False
    assert planned(session, "SELECT * FROM s.d.t")["asks"] is True


def test_run_beyond_the_agreed_bytes_is_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = planned(session, "SELECT * FROM s.d.t")["bytes"]
    monkeypatch.setattr(query_box, "ASKED_FROM", 10)
    assert len(rows(session, "SELECT * FROM s.d.t", agreed=needed)["rows"]) == 1000
    for agreed in (None, 0, needed - 1):
        with pytest.raises(UsageError, match=r"Reading 's\.d\.t' needs about .* at most .* Its plan did not foresee"):
            rows(session, "SELECT * FROM s.d.t", agreed=agreed)
    repeated = """
        WITH RECURSIVE steps(n) AS (
            SELECT 1 UNION ALL SELECT n + 1 FROM steps JOIN s.d.t ON a = n WHERE c <> '' AND n < 9
        )
        SELECT max(n) FROM steps
    """
    assert rows(session, repeated, agreed=10 * needed)["rows"] == [["9"]]
    with pytest.raises(UsageError, match="reads it repeatedly"):
        rows(session, repeated, agreed=planned(session, repeated)["bytes"])


# --- the rows ---


def test_rows_are_those_of_the_query(session: Session) -> None:
    found = rows(session, "SELECT b, sum(a)::BIGINT AS total FROM s.d.t GROUP BY b ORDER BY b")
    values = ROWS.to_pydict()
    expected = [
        [b, str(sum(a for a, other in zip(values["a"], values["b"], strict=True) if other == b))] for b in "0123456"
    ]
    assert found["rows"] == expected
    assert found["columns"] == [
        {"name": "b", "type": "string", "isNumber": False},
        {"name": "total", "type": "long", "isNumber": True},
    ]
    assert (found["isMore"], found["columnsInAll"], found["cut"]) == (False, 2, 0)


@pytest.mark.parametrize(
    ("sql", "shown", "columns", "is_more"),
    [
        ("FROM s.d.t", 1000, 3, True),
        ("FROM s.d.t LIMIT 1000", 1000, 3, False),
        ("FROM s.d.wide, range(300)", 250, 211, True),
        ("FROM s.d.t LIMIT 0", 0, 3, False),
    ],
)
def test_shown_rows_and_columns_are_limited(
    session: Session, sql: str, shown: int, columns: int, is_more: bool
) -> None:
    found = rows(session, sql)
    assert (len(found["rows"]), found["columnsInAll"], found["isMore"]) == (shown, columns, is_more)
    assert len(found["columns"]) == min(columns, 200)


def test_names_may_repeat_and_types_may_be_duckdbs(session: Session) -> None:
    found = rows(
        session,
        "SELECT 1 AS a, 2 AS a, 12345678901234567890123456789012345678::HUGEINT, INTERVAL 3 DAY, 'v'::ENUM ('u', 'v'), "
        "uuid() IS NULL, DATE '2026-01-31', NULL, union_value(k := 1), TIME '10:00'",
    )
    first = found["rows"][0]
    assert first[:3] == ["1", "2", "12345678901234567890123456789012345678"]
    assert "3" in first[3]
    assert first[4:8] == ["v", "false", "2026-01-31", None]
    assert [one["name"] for one in found["columns"][:2]] == ["a", "a"]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("", "There is no query yet"),
        (" \n", "There is no query yet"),
        ("SELEC 1", "must be one query"),
        ("SELECT 1; SELECT 2", "must be one query"),
        ("SELECT nope FROM s.d.t", '"nope" not found'),
        ("SELECT * FROM t", "needs its full name"),
        ("SELECT * FROM s.d.tt", r"'s\.d\.t'"),
        ("SELECT * FROM read_csv('/etc/passwd')", "DuckDB cannot run"),
        ("SELECT * FROM 'https://example.invalid/x.parquet'", "DuckDB cannot run"),
        ("SELECT getenv('HOME')", "DuckDB cannot run"),
        ("SET memory_limit = '10GB'", "must be one query"),
        ("COPY (SELECT 1) TO '/tmp/x'", "must be one query"),
        ("ATTACH '/tmp/x' AS x", "must be one query"),
    ],
)
def test_wrong_or_harmful_sql_is_refused(session: Session, sql: str, reason: str) -> None:
    for call in (planned, rows):
        with pytest.raises(UsageError, match=reason):
            call(session, sql)


def test_error_after_the_first_rows_is_no_bug_of_ours(session: Session) -> None:
    with pytest.raises(UsageError, match="Could not convert string 'x'"):
        rows(session, "SELECT CAST(CASE WHEN a > 4500 THEN 'x' ELSE '1' END AS INTEGER) FROM s.d.t ORDER BY a DESC")
    with pytest.raises(OutOfMemoryError, match=r"DuckDB has too little memory.*Use fewer rows"):
        rows(session, "SELECT list(range) FROM range(1000000000)")


# --- the end ---


def test_stop_ends_a_query_at_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for call in (query_box.planned, query_box.rows):
        cancels: list[Callable[[], None]] = []
        monkeypatch.setattr(query_box, "on_cancellation", cancels.append)
        errors: list[BaseException] = []

        def run(call: Any = call, errors: list[BaseException] = errors) -> None:
            try:
                call(session, Asked({"sql": ENDLESS}))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while not cancels:
            time.sleep(0.01)
        watch = Stopwatch()
        cancels[0]()
        thread.join(HANGS)
        assert not thread.is_alive()
        assert watch.within(SOON)
        assert "INTERRUPT" in str(errors[0]) or "closed" in str(errors[0])
    assert ENDING.get(None) is None


# --- downloads ---


def finished(session: Session, sql: str, file_format: str, **more: Any) -> tuple[Any, pathlib.Path | None]:
    told: Any = query_box.begin(session, Asked({"sql": sql, "format": file_format, **more}))
    watch = Stopwatch()
    while told["state"] == "running":
        assert watch.seconds < HANGS
        time.sleep(0.01)
        told = downloads.progress(session, Asked({"id": told["id"]}))
    file = session.ready_file(told["file"]) if told["file"] else None
    return told, file.path if file else None


READERS: dict[str, Callable[[pathlib.Path], list[dict[str, Any]]]] = {
    "csv": lambda path: pa_csv.read_csv(path).to_pylist(),
    "parquet": lambda path: pq.read_table(path).to_pylist(),
    "arrow": lambda path: pa.ipc.open_file(path).read_all().to_pylist(),
    "xlsx": lambda path: [
        dict(zip(("b", "day", "n"), row, strict=True))
        for row in list(openpyxl.load_workbook(io.BytesIO(path.read_bytes())).active.values)[1:]  # type: ignore[union-attr]
    ],
}


@pytest.mark.parametrize("file_format", READERS)
def test_download_has_all_rows(session: Session, file_format: str) -> None:
    sql = "SELECT 'v' || b AS b, DATE '2026-01-01' + a::INTEGER AS day, a AS n FROM s.d.t WHERE a < 3000 ORDER BY a"
    told, path = finished(session, sql, file_format)
    assert (told["state"], told["error"], told["name"], told["rows"]) == ("ready", "", f"query.{file_format}", 3000)
    assert path is not None
    day = datetime.date(2026, 1, 1)
    found = [
        {**row, "day": row["day"].date() if isinstance(row["day"], datetime.datetime) else row["day"]}
        for row in READERS[file_format](path)
    ]
    assert found == [{"b": f"v{a % 7}", "day": day + datetime.timedelta(days=a), "n": a} for a in range(3000)]


@pytest.mark.parametrize("file_format", READERS)
def test_download_of_types_that_delta_lacks(session: Session, file_format: str) -> None:
    sql = """SELECT 'u'::ENUM ('u', 'v') AS b, INTERVAL 3 DAY AS i, {'a': 1} AS s, MAP {'k': 2} AS m, [1, 2] AS l,
        NULL AS n, uuid() AS u, 12::HUGEINT AS h, '101'::BIT::TEXT AS bits, TIME '10:00' AS t, 7::UTINYINT AS small"""
    told, path = finished(session, sql, file_format)
    if file_format == "parquet":
        assert "Parquet has no type for one of the columns" in told["error"]
        told, path = finished(session, sql.replace("INTERVAL 3 DAY", "(INTERVAL 3 DAY)::TEXT"), file_format)
    assert (told["state"], told["error"]) == ("ready", "")
    assert path is not None
    assert path.stat().st_size > 50


def test_download_that_fails_or_needs_too_much_leaves_no_file(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, path = finished(session, "SELECT CAST(c AS INTEGER) FROM s.d.t", "csv")
    assert (told["state"], path) == ("failed", None)
    assert "Could not convert string" in told["error"]
    monkeypatch.setattr(query_box, "ASKED_FROM", 10)
    told, path = finished(session, "FROM s.d.t", "csv", agreed=20)
    assert (told["state"], path) == ("failed", None)
    assert "Reading 's.d.t' needs about" in told["error"]
    told, path = finished(session, "FROM s.d.t", "csv", agreed=10**18)
    assert "but the disk for temporary files has" in told["error"]
    wait_for(lambda: not asyncio.all_tasks(loop.current().loop))
    with pytest.raises(UsageError, match="Expected one of the formats"):
        finished(session, "FROM s.d.t", "exe")
    with pytest.raises(UsageError, match="There is no query yet"):
        finished(session, "", "csv")


def test_cancelled_download_ends_its_query(session: Session) -> None:
    told: Any = query_box.begin(session, Asked({"sql": ENDLESS, "format": "csv"}))
    download = session.downloads[told["id"]]
    downloads.cancel(session, Asked({"id": told["id"]}))
    watch = Stopwatch()
    while download.state == "running":
        assert watch.seconds < HANGS
        time.sleep(0.01)
    assert (download.state, download.file) == ("ended", None)


# --- code ---


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT b, count(*) AS n FROM s.d.t GROUP BY b ORDER BY b;",
        'SELECT \'a\\b\' || \'"""\' || "a" AS x\nFROM s.d.other ORDER BY 1',
        "-- it's\nSELECT '🦆é' AS duck",
    ],
)
def test_programs_return_the_rows_of_the_query(
    server: Any, session: Session, sql: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTA_SHARING_PROFILE", json.dumps(server.profile))
    (tmp_path / "mine.share").write_text(json.dumps(server.profile))
    expected = rows(session, sql)["rows"]
    for profile in ("mine.share", None):
        monkeypatch.setattr(session, "profile", profile)
        found: Any = query_box.code(session, Asked({"sql": sql}))
        programs = {one["name"]: one["text"] for one in found["programs"]}
        assert list(programs) == ["pandas", "Polars", "DuckDB", "Spark", "Command line"]
        names: dict[str, Any] = {}
        exec(programs["pandas"], names)
        pandas = names["frame"].astype(object).where(names["frame"].notna(), None).values.tolist()
        exec(programs["Polars"], names)
        exec(programs["DuckDB"], names)
        assert main(shlex.split(programs["Command line"])[1:]) == 0
        of_file = [list(row.values()) for row in pq.read_table("rows.parquet").to_pylist()]
        for values in (pandas, names["frame"].rows(), names["relation"].fetchall(), of_file):
            assert [[None if one is None else str(one) for one in row] for row in values] == expected
        compile(programs["Spark"], "spark", "exec")
