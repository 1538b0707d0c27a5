"""The client calls that each command makes with all its options, and the keys and words of its output."""

from __future__ import annotations

import datetime
import errno
import inspect
import io
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

# Imported first during a test, it would keep the functions of ``contents`` that the test replaces.
import delta_sharing_client.client  # noqa: F401
from delta_sharing_client import durable
from delta_sharing_client.cli import asset_files, commands, main, output, program, shares
from delta_sharing_client.cli.program import ExitCode, Settings
from delta_sharing_client.descriptions import describe_table
from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.place import StoredFile
from delta_sharing_client.mcp.scope import Scope
from delta_sharing_client.options import ResponseFormat, TableFormat
from delta_sharing_client.outputs import excel
from delta_sharing_client.outputs.file_formats import FileFormat
from delta_sharing_client.protocol.messages import AwsCredentials, TemporaryCredentials
from delta_sharing_client.table import SharedTable

NS = types.SimpleNamespace
WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
PLAIN, AS_JSON = Settings(None, False, False), Settings(None, True, False)
SCHEMA = pa.schema([("a", pa.int64())])


class Recorder:
    """Records each call and returns the configured result, or itself."""

    def __init__(self, **returns: Any) -> None:
        self._returns = returns
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "_rest":
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, *arguments, named))
            result = self._returns.get(name, self)
            return result(*arguments, **named) if callable(result) else result

        return call


def reader() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, [pa.record_batch([[1, 2]], schema=SCHEMA)])


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run a command on a table or client; return what it prints on stdout and stderr."""

    def ran(words: str, table: Any, *, code: int = 0) -> tuple[str, str]:
        for module in (commands, shares, asset_files):
            for name in ("open_table", "open_client"):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, lambda *_, **__: table)
        assert main(words.split()) == code
        printed = capsys.readouterr()
        return printed.out, printed.err

    return ran


Run = Callable[..., tuple[str, str]]
POINT = "--version 3 --timestamp 2026-01-01"
AT = {"version": 3, "timestamp": "2026-01-01"}


def test_table_commands_pass_on_all_options(run: Run) -> None:
    table = Recorder(count=7, version=8)
    assert run(f"count a.b.c -f x>1 {POINT}", table)[0] == "7\n"
    assert table.calls == [("scan", {"filter": "x>1", **AT}), ("count", {})]
    assert run("--json count a.b.c", Recorder(count=7))[0] == '{"rows":7}\n'
    assert run("version a.b.c --since 2026-01-01", table)[0] == "8\n"
    assert table.calls[-1] == ("version", {"starting_timestamp": "2026-01-01"})
    assert run("--json version a.b.c", Recorder(version=8))[0] == '{"version":8}\n'
    table = Recorder(explain="one\n two")
    assert run("read a.b.c -c x,y.z -c w -n 5 --explain", table)[0] == "one\n two\n"
    lineage = {"version": None, "timestamp": None, "row_lineage": False}
    assert table.calls == [("scan", ["x", "y.z", "w"], None, 5, lineage), ("explain", {})]
    assert run("--json read a.b.c --explain", table)[0] == '{"plan":["one"," two"]}\n'
    assert table.calls[2] == ("scan", None, None, None, lineage)
    every = f"-c x -f x>1 {POINT} --row-lineage"
    asked = ("scan", ["x"], "x>1", 5, {**AT, "row_lineage": True})
    for words in (
        f"head a.b.c -n 5 {every}",
        f"read a.b.c --limit 5 {every}",
        f"read a.b.c --limit 5 --explain {every}",
    ):
        table = Recorder(to_reader=reader, explain="plan")
        out, _ = run(words, table)
        assert table.calls[0] == asked
        assert out.split() == (
            ["plan"] if "explain" in words else ["a", "1", "2"] if "head" in words else ['"a"', "1", "2"]
        )
    assert run("--json head a.b.c", Recorder(to_reader=reader))[0] == '{"a":1}\n{"a":2}\n'
    table = Recorder(to_reader=reader)
    run("head a.b.c", table)
    rows = inspect.signature(SharedTable.head).parameters["rows"].default
    assert table.calls[0] == ("scan", None, None, rows, {"version": None, "timestamp": None, "row_lineage": False})


def test_feed_command_passes_on_all_options(run: Run) -> None:
    for start, end in (("version", 1), ("timestamp", "2026-01-01")):
        table = Recorder(to_reader=reader, explain="plan")
        out, _ = run(f"changes a.b.c --starting-{start} {end} --ending-{start} {end} -c x,y -f x>1 --limit 5", table)
        other = {"version": "timestamp", "timestamp": "version"}[start]
        assert table.calls[0] == (
            "changes",
            {
                f"starting_{start}": end, f"ending_{start}": end, f"starting_{other}": None, f"ending_{other}": None,
                "columns": ["x", "y"], "filter": "x>1", "limit": 5,
            },
        )  # fmt: skip
        assert out.split() == ['"a"', "1", "2"]
        assert run(f"changes a.b.c --starting-{start} {end} --explain", table)[0] == "plan\n"


def test_verbose_option_prints_the_report_of_a_read(run: Run) -> None:
    for report, expected in (("cheap", "cheap\n"), (None, "")):
        table = Recorder(to_reader=reader)
        table.report = report  # type: ignore[attr-defined]
        for words in ("head a.b.c", "read a.b.c"):
            assert run(f"--verbose {words}", table)[1] == expected
            assert run(words, table)[1] == ""


def test_files_command_lists_sizes_rows_and_partitions(run: Run) -> None:
    field = NS(physical_name="col-1", name="day")
    tasks = [
        NS(file_id="f", size=5, live_records=2, partition_values={"col-1": "x", "p": None}),
        NS(file_id="g", size=6, live_records=None, partition_values={}),
    ]
    table = Recorder(plan=NS(context=NS(schema=NS(fields=[field])), tasks=tasks))
    assert json.loads(run(f"--json files a.b.c -f x>1 {POINT}", table)[0]) == [
        {"file": "f", "bytes": 5, "rows": 2, "partition": {"day": "x", "p": None}},
        {"file": "g", "bytes": 6, "rows": None, "partition": None},
    ]
    assert table.calls[0] == ("scan", {"filter": "x>1", **AT})
    lines = run("files a.b.c", table)[0].splitlines()
    assert [line.split() for line in lines] == [
        ["file", "bytes", "rows", "partition"],
        ["f", "5", "2", "day", "=", "x,", "p", "=", "null"],
        ["g", "6"],
    ]


def test_history_command_shows_operations_and_row_counts(run: Run) -> None:
    one = NS(
        version=1, timestamp=WHEN, operation="WRITE", operation_parameters={"m": "a"}, inserts=2, updates=3, deletes=4
    )
    other = NS(version=2, timestamp=WHEN, operation=None, operation_parameters={}, inserts=0, updates=0, deletes=0)
    table = Recorder(history=[one, other])
    first, second = json.loads(run("--json history a.b.c --starting-version 1", table)[0])
    assert first == {
        "version": 1, "timestamp": "2026-01-02T03:04:05Z", "operation": "WRITE", "operationParameters": {"m": "a"},
        "inserts": 2, "updates": 3, "deletes": 4,
    }  # fmt: skip
    assert (second["operation"], second["operationParameters"]) == (None, None)
    assert table.calls == [("history", 1, {})]
    head, *_ = run("history a.b.c", table)[0].splitlines()
    assert head.split() == ["version", "timestamp", "operation", "inserts", "updates", "deletes"]
    assert table.calls[1] == ("history", 0, {})


def test_credentials_are_masked_by_default(run: Run) -> None:
    given = TemporaryCredentials(
        location="s3://b/t",
        expiration_time=5,
        aws_temp_credentials=AwsCredentials("planted-1", "planted-2", "planted-3"),
    )
    client = Recorder()
    client.name = "the name"  # type: ignore[attr-defined]
    client._rest = Recorder(temporary_table_credentials=given)  # type: ignore[attr-defined]
    names = ("access_key_id", "secret_access_key", "session_token")
    for words, keys in (("", ["***"] * 3), ("--show-secrets", ["planted-1", "planted-2", "planted-3"])):
        output = json.loads(run(f"--json credentials a.b.c {words}", client)[0])
        assert output == {"location": "s3://b/t", "expirationTime": 5, **dict(zip(names, keys, strict=True))}
        assert client._rest.calls[-1] == ("temporary_table_credentials", "the name", {})
        assert ("planted" in run(f"credentials a.b.c {words}", client)[0]) is bool(words)


def test_rows_are_written_in_the_requested_format(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonl, csv, array = '{"a":1}\n{"a":2}\n', '"a"\n1\n2\n', '[\n{"a":1},\n{"a":2}\n]\n'
    for words, out in (
        ("", csv), ("--to -", csv), ("--format jsonl", jsonl), ("--format json", array), ("--json", jsonl),
        ("--json --format json", array), ("--json --format jsonl", jsonl),
    ):  # fmt: skip
        assert run(f"read a.b.c {words}", Recorder(to_reader=reader)) == (out, "")
    for words, text in (
        ("x.csv", csv), ("x.json", array), ("x.jsonl", jsonl), ("x.txt --format csv", csv), ("x.JSON --json", array),
        ("x.txt --json", jsonl), ("x.csv --json", jsonl),
    ):  # fmt: skip
        name = words.split()[0]
        out, errors = run(f"read a.b.c --to {tmp_path}/{words}", Recorder(to_reader=reader))
        assert (out, errors) == ("", f"2 rows written to {tmp_path}/{name}\n")
        assert (tmp_path / name).read_text() == text
    fitting: list[Any] = []
    monkeypatch.setattr(excel, "check_fits", fitting.append)
    table = Recorder(to_reader=reader)
    run(f"read a.b.c --to {tmp_path}/x.xlsx", table)
    assert fitting == [table]
    refused = run("read a.b.c --json --format csv", Recorder(to_reader=reader), code=ExitCode.USAGE)[1]
    assert "--format requests csv" in refused


def test_sql_prints_a_table_only_in_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def made(profile: str | None, query: str) -> pa.RecordBatchReader:
        asked.append((profile, query))
        return reader()

    monkeypatch.setattr(commands, "run_sql", made)
    tables: list[Any] = []
    monkeypatch.setattr(output, "print_rows", lambda names, rows: tables.append((names, rows)))
    for is_terminal in (True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda is_terminal=is_terminal: is_terminal)
        for words, out in (
            ("", "" if is_terminal else '"a"\n1\n2\n'), ("--format csv", '"a"\n1\n2\n'), ("--to -", '"a"\n1\n2\n'),
            ("--json", '{"a":1}\n{"a":2}\n'), (f"--to {tmp_path}/x.csv", ""),
        ):  # fmt: skip
            tables.clear()
            assert run(f"-p q.share sql SELECT {words}", Recorder())[0] == out
            assert tables == ([(["a"], [{"a": 1}, {"a": 2}])] if out == "" and not words else [])
            assert asked.pop() == ("q.share", "SELECT")


def test_follow_command_passes_on_all_options(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stored: list[Any] = []
    monkeypatch.setattr(output, "store_step", lambda *what: stored.append(what[:3]))
    step = Recorder()
    for words, changed, where in (
        ("", {}, (None, None)),
        ("--every 2.5 --available-now", {"every": 2.5, "trigger": "available-now"}, (None, None)),
        (
            "--starting-version 7 -c x,y -f x>1",
            {"starting_version": 7, "columns": ["x", "y"], "filter": "x>1"},
            (None, None),
        ),
        ("--starting-version latest", {"starting_version": "latest"}, (None, None)),
        (
            "--starting-timestamp 2026-01-01 --to d --format csv",
            {"starting_timestamp": "2026-01-01"},
            (Path("d"), FileFormat.CSV),
        ),
    ):
        table = Recorder(follow=[step])
        run(f"follow a.b.c --cursor {tmp_path}/c {words}", table)
        named = {
            "every": 60.0, "trigger": None, "starting_version": None, "starting_timestamp": None, "columns": None,
            "filter": None, **changed,
        }  # fmt: skip
        assert table.calls == [("follow", tmp_path / "c", named)]
        assert stored.pop() == (step, *where)
        assert step.calls.pop() == ("commit", {})


def copied(version: int) -> Any:
    return NS(
        directory=Path("d"), version=version, local_version=1, num_files=2, size=3, downloaded_files=4,
        downloaded_bytes=5, deleted_files=6,
    )  # fmt: skip


def test_copy_command_passes_on_all_options_and_watches(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Recorder(replicate=copied(9))
    out, _ = run(f"replicate a.b.c d -c x {POINT} --keep-days 1.5 --repair", table)
    assert out == "d holds version 9: 2 files, 3 bytes; downloaded 4 files, 5 bytes, deleted 6 files\n"
    asked = {"columns": ["x"], "retention": datetime.timedelta(days=1.5), "repair": True, **AT}
    assert table.calls == [("replicate", Path("d"), asked)]
    out, _ = run("--json replicate a.b.c d", table)
    assert json.loads(out) == {
        "directory": "d", "version": 9, "localVersion": 1, "numFiles": 2, "sizeInBytes": 3, "downloadedFiles": 4,
        "downloadedBytes": 5, "deletedFiles": 6,
    }  # fmt: skip
    assert table.calls[1][2] == {
        "columns": None, "version": None, "timestamp": None, "retention": datetime.timedelta(days=7), "repair": False
    }  # fmt: skip
    for words in ("--version 0", "--timestamp 2026-01-01"):
        assert "Leave out" in run(f"replicate a.b.c d --every 1 {words}", table, code=ExitCode.USAGE)[1]
    assert "found inf" in run("replicate a.b.c d --keep-days inf", table, code=ExitCode.USAGE)[1]
    slept: list[float] = []

    flushed: list[bool] = []
    monkeypatch.setattr(sys.stdout, "flush", lambda: flushed.append(True))

    def sleep(seconds: float) -> None:
        # A program that reads the output must not have to wait for the next version.
        assert len(flushed) >= len({1, 2} if len(slept) > 1 else {1})
        slept.append(seconds)
        if len(slept) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(commands, "time", NS(sleep=sleep))
    versions = iter([1, 1, 2, 2])
    out, _ = run(
        "--json replicate a.b.c d --every 2", Recorder(replicate=lambda *_, **__: copied(next(versions))), code=130
    )
    # Only new versions are reported.
    assert [json.loads(line)["version"] for line in out.splitlines()] == [1, 2]
    assert slept == [2.0] * 4


# --- files of assets ---


class Asset(Recorder):
    def __init__(self, *files: StoredFile) -> None:
        super().__init__(
            files=list(files),
            download=NS(
                directory=Path("d"), downloaded=("a", "b"), removed=("c",), unchanged=3, bytes=4, dry_run=False
            ),
            open=lambda path: io.BytesIO(b"text of " + path.encode()),
        )


def test_cat_passes_on_the_settings_of_the_store(monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    asset, opened = Asset(), []
    client = Recorder(volume=asset)
    client._rest = NS(is_shared=lambda ref: True)  # type: ignore[attr-defined]
    monkeypatch.setattr(asset_files, "open_client", lambda *what, **how: (opened.append((what, how)), client)[1])
    assert (
        main(["cat", "p.share#a.b.c/x#y/z", *["--storage-option", "region=x=y", "--storage-option", "endpoint="]]) == 0
    )
    assert opened == [(("p.share",), {"storage_options": {"region": "x=y", "endpoint": ""}})]
    assert asset.calls == [("open", "x#y/z", {})]
    assert main(["cat", "a.b.c/x", "--storage-option", "=x"]) == ExitCode.USAGE


def test_model_without_a_ready_version_has_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Recorder(model=Recorder(versions=[]))
    client._rest = NS(is_shared=lambda ref: ref.kind.noun == "model")  # type: ignore[attr-defined]
    monkeypatch.setattr(asset_files, "open_client", lambda *_, **__: client)
    with pytest.raises(UsageError, match="Its versions: none that is ready"):
        asset_files.open_files(PLAIN, "a.b.c", None, None)


def test_downloads_are_reported(run: Run) -> None:
    asset = Asset()
    client = Recorder(volume=asset)
    client._rest = NS(is_shared=lambda ref: True)  # type: ignore[attr-defined]
    out, _ = run("get a.b.c/p d --pattern *.x", client)
    assert out == "removed: c\ndownloaded 2 files, 4 bytes, into d; 3 unchanged\n"
    options = {"exclude": (), "delete": False, "force": False, "dry_run": False}
    assert asset.calls == [("download", Path("d"), "p", ["*.x"], options)]
    out, _ = run("get a.b.c d --dry-run", client)
    assert out == "a\nb\nremoved: c\nwould download 2 files, 4 bytes, into d; 3 unchanged\n"
    assert asset.calls[1] == ("download", Path("d"), "", None, {**options, "dry_run": True})
    run("get a.b.c d --pattern *.x --pattern y --exclude z --exclude q/** --delete --force", client)
    chosen = {"exclude": ["z", "q/**"], "delete": True, "force": True, "dry_run": False}
    assert asset.calls[2] == ("download", Path("d"), "", ["*.x", "y"], chosen)
    assert json.loads(run("--json get a.b.c d", client)[0]) == {
        "directory": "d", "downloaded": ["a", "b"], "removed": ["c"], "unchanged": 3, "bytes": 4, "dryRun": False
    }  # fmt: skip


# --- listings ---


# --- steps of follow ---


def step(**facts: Any) -> Any:
    results = {"number": 7, "start_version": 3, "end_version": 5, "is_snapshot": False, "is_repeat": False}
    results |= {"id": "0123456789ab", **facts}
    return NS(**results, to_reader=reader)


def test_step_is_written_to_a_file_or_as_json_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "x" / "y"
    for facts, name, description in (
        ({}, "00000007-changes-3-5-01234567", "changes of versions 3 to 5"),
        ({"end_version": 3}, "00000007-changes-3-3-01234567", "changes of version 3"),
        ({"is_snapshot": True, "end_version": 3}, "00000007-snapshot-3-3-01234567", "snapshot of version 3"),
        ({"is_repeat": True}, "00000007-changes-3-5-01234567", "changes of versions 3 to 5"),
    ):
        output.store_step(step(**facts), folder, None, PLAIN)
        printed = capsys.readouterr()
        again = " again, because they were not committed before" if facts.get("is_repeat") else ""
        assert (printed.out, printed.err) == (
            "",
            f"2 rows of the {description} written to {folder / name}.parquet{again}\n",
        )
        output.store_step(step(**facts), folder, FileFormat.CSV, AS_JSON)
        assert (folder / f"{name}.csv").read_text() == '"a"\n1\n2\n'
        assert json.loads(capsys.readouterr().out) == {
            "number": 7, "startVersion": 3, "endVersion": facts.get("end_version", 5),
            "isSnapshot": facts.get("is_snapshot", False), "isRepeat": facts.get("is_repeat", False), "rows": 2,
            "file": f"{folder / name}.csv",
        }  # fmt: skip
    written = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(cast("Any", written))))
        lasting: list[Path] = []
        replace = durable.replace
        patch.setattr(durable, "replace", lambda *names: lasting.append(names[1]) or replace(*names))
        output.store_step(step(), folder, FileFormat.CSV, AS_JSON)
        # The file must be durable before the step is committed.
        assert lasting == [folder / "00000007-changes-3-5-01234567.csv"]
        # The line is flushed, so a program that waits for a step reads it now.
        assert json.loads(written.getvalue())["rows"] == 2
        length = len(written.getvalue())
        output.store_step(step(), None, None, PLAIN)
        assert written.getvalue()[length:] == b'{"a":1}\n{"a":2}\n'
    (folder / "other.txt").write_text("")
    output.store_step(step(), folder, None, PLAIN)
    with pytest.raises(UsageError, match="already contains the changes of a different cursor"):
        output.store_step(step(id="another-one"), folder, None, PLAIN)
    with pytest.raises(UsageError, match="Cannot write into"):
        output.store_step(step(), folder / "other.txt", None, PLAIN)
    capsys.readouterr()
    for form, settings in ((None, PLAIN), (FileFormat.JSONL, AS_JSON)):
        output.store_step(step(), None, form, settings)
        printed = capsys.readouterr()
        assert printed.out == '{"a":1}\n{"a":2}\n'
        assert printed.err == "2 rows of the changes of versions 3 to 5 written to stdout\n"
    for form in (FileFormat.CSV, FileFormat.JSON, FileFormat.PARQUET):
        with pytest.raises(UsageError, match=f"for {form.value} give a directory"):
            output.store_step(step(), None, form, PLAIN)


# --- output for people ---


def shown(call: Callable[..., None], capsys: pytest.CaptureFixture[str], *what: Any) -> list[str]:
    call(*what)
    return capsys.readouterr().out.splitlines()


def test_values_are_readable_and_empty_columns_are_omitted(capsys: pytest.CaptureFixture[str]) -> None:
    items = [{"n": "x", "l": ["p", "q"], "m": {"k": 1, "s": "t"}, "e": []}, {"n": "yy", "b": True, "z": 10}]
    lines = shown(output.print_items, capsys, items, ["n", "none", "l", "m", "e", "b", "z"])
    assert lines[0].split() == ["n", "l", "m", "e", "b", "z"]
    assert lines[1].split() == ["x", "p,", "q", "k", "=", "1,", "s", "=", "t", "none"]
    assert lines[2].split() == ["yy", "true", "10"]
    # Only numbers are right-aligned.
    columns: list[list[Any]] = [[None], [], [1, None], [True], ["x"], [1.5], [1, "x"]]
    assert [output._is_number(column) for column in columns] == [False, False, True, False, False, True, False]
    assert lines[0].rstrip().endswith(" z")
    assert (len(lines[0]), lines[2][-2:]) == (len(lines[2]), "10")
    assert shown(output.print_items, capsys, [], ["n", "m"]) == ["n"]
    facts = {"a": None, "long": {"k": 1, "s": "t"}, "x": ["p"], "y": {}}
    assert shown(output.print_facts, capsys, facts) == ["long  k = 1", "      s = t", "x     p", "y     none"]
    assert shown(output.print_text, capsys, "one\n  two \x1b[2J") == ["one", "  two \\x1b[2J"]
    tree = {"s": {"d": {"tables": ["t"], "volumes": ["v"], "skills": []}, "e": {}}}
    assert [line.strip("\u2502\u251c\u2514\u2500 ") for line in shown(output.print_tree, capsys, "top", tree)] == [
        "top", "s", "d", "t", "v (volume)", "e"
    ]  # fmt: skip


def test_wide_rows_are_split_into_several_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def widths(width: int, longest: int, *columns: int) -> list[list[str]]:
        made = [(str(number), [output.cell("x" * size)]) for number, size in enumerate(columns)]
        return [[name for name, _ in block] for block in output._blocks(made, width, longest)]

    assert widths(20, 99, 5, 5, 6) == [["0", "1", "2"]]
    assert widths(20, 99, 5, 5, 7) == [["0", "1"], ["2"]]
    assert widths(20, 6, 50, 50, 50) == [["0", "1"], ["2"]]
    assert widths(20, 99, 50) == [["0"]]
    monkeypatch.setattr(output, "_PIPE_WIDTH", 20)
    rows = [{"a": "x" * 12, "b": "y" * 12, "c": 1}, {"a": None, "b": "z" * 25, "c": 2}]
    output.print_rows(["a", "b", "c"], rows)
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()] == [
        ["a"], ["x" * 12], ["null"], [], ["b"], ["y" * 12], ["z" * 19 + "\u2026"], [], ["c"], ["1"], ["2"]
    ]  # fmt: skip
    assert printed.err == "1 values are shortened; --json shows them whole.\n"


def test_table_is_described_with_all_known_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delta_sharing_client.descriptions.stated_formats", lambda rest, name: stated)
    fields = [{"name": "a", "type": "long", "nullable": False, "metadata": {"comment": "x"}}]
    fields.append({"name": "z", "type": "unheard-of", "nullable": True, "metadata": {}})
    for is_delta, stated in ((True, ("delta", "iceberg")), (False, ())):
        asked: list[Any] = []
        details = NS(
            id="i", name="n", description="d", version=3, partition_columns=("p",), size=5, num_files=6,
            table_format=TableFormat.DELTA if is_delta else TableFormat.ICEBERG, configuration={"k": "v"},
            response_format=ResponseFormat.PARQUET if is_delta else ResponseFormat.AUTO,
            protocol=NS(min_reader_version=2, reader_features=["f"]),
            schema_string=json.dumps({"type": "struct", "fields": fields}),
        )  # fmt: skip
        table = NS(
            name="a.b.c",
            rest=None,
            metadata=lambda asked=asked, details=details, **how: (asked.append(how), details)[1],
        )
        facts, columns = describe_table(cast("Any", table), 3, "t")
        assert asked == [{"version": 3, "timestamp": "t"}]
        assert facts == {
            "table": "a.b.c", "id": "i", "name": "n", "description": "d", "version": 3, "partitionColumns": ["p"],
            "tableFormat": "delta" if is_delta else "iceberg", "formats": [*stated] or ["iceberg"],
            "format": "parquet" if is_delta else None, "minReaderVersion": 2 if is_delta else None,
            "readerFeatures": ["f"] if is_delta else None, "sizeInBytes": 5, "numFiles": 6, "configuration": {"k": "v"},
        }  # fmt: skip
        left_out = {"column": "z", "type": "unheard-of (not supported, left out)", "nullable": None, "comment": None}
        assert columns == [{"column": "a", "type": "long", "nullable": False, "comment": "x"}, left_out]


# --- the program ---


def test_only_digits_are_parsed_as_a_version_number() -> None:
    for text, expected in (("7", 7), ("main", "main"), ("-1", "-1"), ("²", "²"), ("", ""), (None, None)):
        assert program.version_of_text(text) == expected


def test_profile_may_be_given_by_option_and_in_the_name() -> None:
    assert asset_files._split("p", "p#a.b.c/x") == ("p", "a.b.c", "x")
    assert asset_files._split(None, "p#q#a.b.c") == ("p#q", "a.b.c", "")
    assert asset_files._split("p", "a.b.c/x#y/z") == ("p", "a.b.c", "x#y/z")
    with pytest.raises(UsageError, match="Two profiles"):
        asset_files._split("q", "p#a.b.c")


def test_help_of_a_command_is_its_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    app = program.Program(epilog="The end.")
    app.callback()(lambda: None)

    @app.command("show")
    def _(settings: Settings) -> None:
        """Show all
        of it.

        And more.

        Example: show a
        Example: show b
        """

    @app.command("fail")
    def _(name: str) -> None:
        raise {"pipe": BrokenPipeError, "keys": KeyboardInterrupt}[name]

    # Without a command, some versions of typer print the help, and others raise an error that contains it.
    helped = ""
    try:
        app([], standalone_mode=False)
    except Exception as raised:
        helped = cast("Any", raised).format_message()
    assert "show  Show all of it." in capsys.readouterr().out + helped
    for words in (["-h"], ["show", "--help"]):
        app(words, standalone_mode=False)
    for name, code in (("pipe", ExitCode.BROKEN_PIPE), ("keys", ExitCode.INTERRUPTED)):
        with pytest.raises(program.Stopped) as stopped:
            app(["fail", name], standalone_mode=False)
        assert stopped.value.code == code
    whole, own = capsys.readouterr().out.split("Usage:")[1:]
    assert "show  Show all of it." in whole
    assert "And more" not in whole
    assert "The end." in whole
    assert [line.strip() for line in own.splitlines() if "Example" in line] == ["Example: show a", "Example: show b"]
    assert "Show all of it." in own
    assert "--json" in own
    assert "--verbose" not in own


def test_browse_command_passes_on_its_options(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, opens, port in (("browse", True, 0), ("--json browse --no-open --port 7", False, 7)):
        served: list[Any] = []

        def serve(profile: str | None, *, port: int, opens: bool, tell: Any, served: list[Any] = served) -> None:
            tell("http://h/", opens)
            served.append((profile, port, opens))

        monkeypatch.setattr("delta_sharing_client.browse.page.serve", serve)
        out, note = run(words, None)
        assert served == [(None, port, opens)]
        assert out == ("http://h/\n" if opens else '{"address":"http://h/"}\n')
        assert ("opens in your browser" in note) is opens


@pytest.mark.parametrize("is_terminal", [True, False])
def test_mcp_command_passes_on_its_limits(run: Run, is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr("delta_sharing_client.mcp.server.serve", lambda *what: served.append(what))
    monkeypatch.setattr(sys, "stdin", NS(isatty=lambda: is_terminal))
    words = "mcp --max-rows 1 --max-megabytes 2 --max-seconds 3 --share s --share t --table a.b.c"
    note = run(words, None)[1]
    ((profile, limits, scope),) = served
    assert (profile, limits.rows, limits.megabytes, limits.seconds) == (None, 1, 2, 3)
    assert scope == Scope.of(("s", "t"), ("a.b.c",))
    assert ("Waiting for an assistant" in note) is is_terminal


def test_missing_server_error_names_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        if name.endswith(".command"):
            raise ModuleNotFoundError(name="yaml")

        return NS(__name__=name)

    monkeypatch.setattr("delta_sharing_client.optional.importlib", NS(import_module=load))
    assert "[server]" in run("serve --demo", None, code=ExitCode.USAGE)[1]


def test_exceptions_become_messages_and_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dropped: list[bool] = []
    monkeypatch.setattr(program, "_drop_output", lambda: dropped.append(True))

    def ended(how: Any) -> tuple[int, str, int]:
        dropped.clear()

        def app(*, args: list[str] | None, prog_name: str, standalone_mode: bool) -> Any:
            assert (args, prog_name, standalone_mode) == (["x"], "delta-sharing", False)
            if isinstance(how, BaseException):
                raise how
            return how

        code = program.run(app, ("x",))
        return code, capsys.readouterr().err, len(dropped)

    assert ended(None) == ended(0) == (0, "", 0)
    assert ended(7) == (7, "", 0)
    assert ended(UsageError("not\nso")) == (ExitCode.USAGE, "delta-sharing: not so\n", 0)
    assert ended(program.Stopped(ExitCode.INTERRUPTED)) == (ExitCode.INTERRUPTED, "delta-sharing: interrupted\n", 0)
    assert ended(program.Stopped(ExitCode.BROKEN_PIPE)) == (ExitCode.BROKEN_PIPE, "", 1)
    assert ended(BrokenPipeError()) == (ExitCode.BROKEN_PIPE, "", 1)
    # On Windows, a write to a closed pipe is an invalid argument.
    assert ended(OSError(errno.EINVAL, "Invalid argument"))[0] is ExitCode.INTERNAL
    with monkeypatch.context() as patch:
        patch.setattr(program, "os", NS(name="nt"))
        assert ended(OSError(errno.EINVAL, "Invalid argument")) == (ExitCode.BROKEN_PIPE, "", 1)
        assert ended(OSError(errno.EINVAL, "Invalid argument", "a:b"))[0] is ExitCode.INTERNAL
    code, message, count = ended(OSError(errno.ENOSPC, "No space left"))
    assert (code, count) == (ExitCode.USAGE, 1)
    assert message == "delta-sharing: Cannot write the output: No space left. Free disk space or write elsewhere.\n"
    code, message, count = ended(ZeroDivisionError())
    assert (code, count) == (ExitCode.INTERNAL, 0)
    assert message == "delta-sharing: unexpected ZeroDivisionError: ZeroDivisionError; please report this\n"


def test_buffered_output_can_be_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        program._drop_output()
        stream.write("lost")
        stream.flush()
    assert (tmp_path / "out").read_text() == ""


def test_describe_of_a_model_lists_versions_without_signatures(capsys: pytest.CaptureFixture[str]) -> None:
    item, versions = (
        {"name": "n", "url": "https://h/x?sig=planted"},
        [{"version": 1, "status": "READY", "source": "https://h/v?sig=planted"}, {"version": 2}],
    )
    rest = Recorder(
        get_model_alias={"version": 3}, get_model_version={"version": 4}, get_asset=item, list_model_versions=versions
    )
    client: Any = NS(_rest=rest)
    name: Any = "a.b.c"

    def described(noun: str, version: str | None = None, alias: str | None = None) -> Any:
        shares._describe_asset(client, noun, name, version, alias, AS_JSON)
        output = json.loads(capsys.readouterr().out)
        shares._describe_asset(client, noun, name, version, alias, PLAIN)
        return output, capsys.readouterr().out.splitlines()

    result, lines = described("model", alias="best")
    assert result == {"kind": "model version", "version": 3}
    assert rest.calls[-1] == ("get_model_alias", name, "best", {})
    result, lines = described("model", version="4")
    assert result["version"] == 4
    assert rest.calls[-1] == ("get_model_version", name, 4, {})
    assert "" not in lines
    with pytest.raises(UsageError, match="Expected a number as the --version of a model, found 'x'"):
        described("model", version="x")
    result, lines = described("model")
    versions[0]["source"] = result["versions"][0]["source"]
    assert result == {"kind": "model", "name": "n", "url": result["url"], "versions": versions}
    assert "planted" not in f"{result} {lines}"
    # An empty line, the header, and a line for each version.
    assert [line.split() for line in lines[-4:]] == [[], ["version", "status"], ["1", "READY"], ["2"]]
    result, lines = described("volume")
    assert result == {"kind": "volume", "name": "n", "url": result["url"]}
    assert "" not in lines
