"""Each command works if standard output is not UTF-8, as when it is redirected on Windows."""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

import mock_server
from delta_sharing_client.cli import main
from delta_sharing_client.cli.program import run
from tests.effort import sample
from tests.regressions.hand_made import HandMadeTable

NAMES = ["Köln", "東京", "😀", "Łódź"]
COMMANDS = [
    ["ls"],
    ["tables"],
    ["ls", "s.d.docs"],
    ["describe", "s.d.t"],
    ["files", "s.d.t"],
    ["head", "s.d.t"],
    ["count", "s.d.t", "--filter", "ort = '東京'"],
    ["read", "s.d.t", "--filter", "ort = '東京'", "--explain"],
    ["read", "s.d.t"],
    ["changes", "s.d.t", "--starting-version", "1"],
    ["sql", "SELECT ort FROM s.d.t WHERE ort > 'L'"],
]
BYTES = ("read", "changes", "sql")
ENCODINGS = ["cp1252", "ascii", "cp437", "shift_jis", "utf-16-le"]
# Every command has some encodings, and every encoding some commands.
by_command = pytest.mark.parametrize(
    ("words", "encoding"),
    sample([(words, encoding) for words in COMMANDS for encoding in ENCODINGS], 3),
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("encodings")
    rows = pa.table({"ort": NAMES, "größe": range(len(NAMES))})
    table = HandMadeTable(folder / "t").create(rows.schema, properties={"delta.enableChangeDataFeed": "true"})
    table.commit(table.file(rows))
    (folder / "docs").mkdir()
    (folder / "docs" / "東京.txt").write_text("東京", encoding="utf-8")
    tables = {"s.d.t": folder / "t", "s.d.Köln_東京": folder / "t"}
    with mock_server.running(tables=tables, volumes={"s.d.docs": folder / "docs"}) as server:
        yield str(server.profile_path)


def output(
    words: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch, *, bytes_as: str | None = None
) -> tuple[int, str, str]:
    """Run a command and return its exit code and what it wrote to standard output and standard error.

    ``bytes_as`` is the encoding of the output, if it is not that of the stream.
    """
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}
    with monkeypatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        code = main(words)
    for stream in streams.values():
        stream.flush()
        assert stream.errors == "strict"
    out, err = (stream.buffer.getvalue() for stream in streams.values())  # type: ignore[attr-defined]
    return code, out.decode(bytes_as or encoding), err.decode(encoding)


def words_of(text: str) -> list[str]:
    """Return the words of ``text``, without the lines that draw a tree."""
    return re.sub(r"[│├└─`+|]|--", " ", text).split()


def escaped(text: str, encoding: str) -> str:
    return text.encode(encoding, "backslashreplace").decode(encoding)


@by_command
def test_output_has_escapes_of_missing_characters(
    profile: str, words: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, expected, _ = output(["-p", profile, *words], "utf-8", monkeypatch)
    assert words[0] in ("count", "files") or not expected.isascii()
    if words[0] in BYTES and "--explain" not in words:
        # The commands that write rows always write UTF-8.
        code, out, _ = output(["-p", profile, *words], encoding, monkeypatch, bytes_as="utf-8")
        assert (code, out) == (0, expected)
        return
    code, out, err = output(["-p", profile, *words], encoding, monkeypatch)
    assert (code, err) == (0, "")
    assert words_of(out) == words_of(escaped(re.sub("[│├└─]", " ", expected), encoding))


@by_command
def test_json_is_the_same_in_each_encoding(
    profile: str, words: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for each in ("utf-8", encoding):
        bytes_as = "utf-8" if words[0] in (*BYTES, "head") and "--explain" not in words else each
        code, out, _ = output(["-p", profile, "--json", *words], each, monkeypatch, bytes_as=bytes_as)
        assert code == 0
        texts.append(out)
    assert [json.loads(line) for line in texts[1].splitlines()] == [json.loads(line) for line in texts[0].splitlines()]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_messages_have_escapes_of_missing_characters(
    profile: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = output(["-p", profile, "head", "s.d.東"], encoding, monkeypatch)
    assert (code, out) == (3, "")
    assert escaped("s.d.東", encoding) in err
    assert err.count("\n") == 1
    code, _, err = output(["head", "--東京"], encoding, monkeypatch)
    assert code == 2
    assert escaped("--東京", encoding) in err


@pytest.mark.parametrize("name", ["a.json", "a.csv", "東京.jsonl"])
def test_files_are_utf8_whatever_the_output_is(
    profile: str, name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / name
    code, _, err = output(["-p", profile, "read", "s.d.t", "--to", str(target)], "ascii", monkeypatch)
    assert (code, escaped(name, "ascii") in err) == (0, True)
    assert all(city in target.read_text(encoding="utf-8") for city in NAMES)


CP1252 = {"PYTHONIOENCODING": "cp1252"}
C_LOCALE = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def process(words: list[str], settings: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, env={**os.environ, **settings}, capture_output=True, timeout=100, check=False)


def test_process_writes_in_the_encoding_of_its_environment(profile: str) -> None:
    done = process(["delta_sharing_client", "-p", profile, "head", "s.d.t"], C_LOCALE)
    assert (done.returncode, rb"K\xf6ln" in done.stdout, rb"\u6771\u4eac" in done.stdout) == (0, True, True)


def test_argument_that_the_locale_cannot_decode_is_an_error(profile: str) -> None:
    words = ["delta_sharing_client", "-p", profile, "count", "s.d.t", "--filter", "ort = 'Köln'"]
    done = process(words, C_LOCALE)
    assert (done.returncode, done.stdout, done.stderr.partition(b"nanobind")[0].count(b"\n")) == (2, b"", 1)
    assert b"cannot be used" in done.stderr


def test_error_about_such_an_argument_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def app(**_: object) -> int:
        raise UnicodeEncodeError("utf-8", "K\udcc3ln", 1, 2, "surrogates not allowed")

    streams = {name: io.TextIOWrapper(io.BytesIO(), "ascii") for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    assert run(app, []) == 2
    streams["stderr"].flush()
    message = streams["stderr"].buffer.getvalue()  # type: ignore[attr-defined]
    assert message == (
        b"delta-sharing: The text 'K\\udcc3ln' has bytes that are not valid in the encoding of the locale. Set a "
        b"locale with UTF-8, or PYTHONUTF8=1.\n"
    )


def test_server_lists_tables_with_escapes(tmp_path: pathlib.Path) -> None:
    table = HandMadeTable(tmp_path / "s" / "d" / "東京").create(pa.schema({"id": pa.int64()}.items()))
    table.commit(table.file(pa.table({"id": [1]})))
    words = ["mock_server", "--tables", str(tmp_path), "--profile-out", str(tmp_path / "p.share"), "--stats"]
    environment = {**os.environ, **CP1252}
    with subprocess.Popen([sys.executable, "-u", "-m", *words], env=environment, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        lines = list(iter(server.stdout.readline, b"stop with Ctrl-C" + os.linesep.encode()))
        server.terminate()
    assert any(rb"s.d.\u6771\u4eac" in line for line in lines)
