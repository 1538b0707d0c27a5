"""Complete and failing reads show no credentials in any repr, log line, plan, report or error."""

from __future__ import annotations

import logging
import pickle
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.cli import main

TOKEN = "planted-bearer-token-5f2c"
WRONG_TOKEN = "planted-wrong-token-9d1e"
STORAGE_TOKEN = "planted-storage-token-77aa"
SIGNATURE = re.compile(r"X-Amz-Signature=(?!\*)[^\s&\"'*]+")
QUICK = ds.ReadOptions(max_attempts=2, max_retry_seconds=1.0, connect_timeout=2.0, read_timeout=2.0)
FAULTS = (
    *("truncate-body@data", "cut-connection-after=300@data", "wrong-content-length@data", "503-first=99@data"),
    *("corrupt-body", "ignore-range", "wrong-size=7", "error-in-stream", "503-first=99@api", "expire-urls-now"),
)


@pytest.fixture(scope="module")
def server(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("tables") / "orders"
    for start in (0, 100):
        rows = pa.table({"id": pa.array(range(start, start + 100), pa.int64()), "text": ["x" * 500] * 100})
        deltalake.write_deltalake(folder, rows, mode="append")
    return serve(
        tables={"s.d.orders": folder},
        token=TOKEN,
        volumes={"s.d.docs": f"gs://bucket/docs/eyJhbGciOiJIUzI1NiJ9.{STORAGE_TOKEN}.x"},
        models={"s.d.churn": {1: "gs://bucket/churn/1"}},
        vendors={"gs": lambda *_: {"gcpOauthToken": {"oauthToken": STORAGE_TOKEN}}},
    )


@pytest.fixture(autouse=True)
def _no_faults_left(server: Any) -> Iterator[None]:
    yield
    server.clear_faults()


@pytest.mark.parametrize("response_format", ["parquet", "delta"])
def test_successful_read_shows_no_credential(
    server: Any, response_format: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ds.SharingClient(server.profile, options=QUICK) as client:
        table = client.table("s.d.orders")
        scan = table.scan(filter="id >= 50", response_format=response_format)
        plan = scan.plan()
        tasks = list(plan.tasks)
        assert tasks
        assert scan.to_arrow().num_rows == 150
        shown = [
            client,
            client._rest,
            client._rest.profile,
            table,
            table.metadata(),
            scan,
            plan,
            plan.context,
            scan.report,
        ]
        shown += [*tasks, plan.context.place, client.list_all_tables(), pickle.loads(pickle.dumps(scan))]
        texts = [form(value) for value in shown for form in (repr, str, "{}".format)]

        _assert_clean([*texts, scan.explain(), *_lines(caplog)])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("response_format", ["parquet", "delta"])
# The fault that changes file sizes also makes their sum differ from the table's size, which causes a warning.
@pytest.mark.filterwarnings("ignore::delta_sharing_client.IncompleteReadWarning")
def test_failing_read_shows_no_credential(
    server: Any, fault: str, response_format: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    table = ds.SharingClient(server.profile, options=QUICK).table("s.d.orders")
    server.set_fault(fault)

    try:
        rows = table.scan(response_format=response_format).to_arrow().num_rows
    except ds.DeltaSharingError as error:
        _assert_clean([*_all_of(error), *_lines(caplog)])
    else:
        assert rows == 200
        _assert_clean(_lines(caplog))


@pytest.mark.parametrize(
    "fault", [None, "two-credentials", "no-credentials", "nested-credentials", "503-first=99@api", "cut-chunked@api"]
)
def test_other_assets_show_no_credential(server: Any, fault: str | None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = ds.SharingClient(server.profile, options=QUICK)
    volume, version = client.volume("s.d.docs"), client.model("s.d.churn").version(1)
    listed = client.list_all_volumes()
    assert STORAGE_TOKEN in volume.storage_location
    assert version.storage_location
    shown = [volume, version, version._ref, volume.facts(), listed, client["s"]["d"]]
    texts = [one._repr_html_() for one in (volume, listed, client, client["s"]["d"])]
    if fault is not None:
        server.set_fault(fault)
    given = []
    for asset in (volume, version):
        try:
            given.append(client._rest.credentials(asset._ref, asset.storage_location))
        except ds.DeltaSharingError as error:
            texts += _all_of(error)
    assert all(STORAGE_TOKEN in one.gcp_oauth_token.oauth_token for one in given)
    texts += [form(value) for value in (*shown, *given) for form in (repr, str, "{}".format)]

    assert len(given) == (2 if fault in (None, "nested-credentials") else 0)
    _assert_clean([*texts, *_lines(caplog)])


def test_error_does_not_repeat_refused_credentials(
    server: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    profile = {**server.profile, "bearerToken": WRONG_TOKEN}
    with pytest.raises(ds.AuthError) as caught:
        ds.SharingClient(profile).list_shares()
    (tmp_path / "wrong.share").write_text(str(profile).replace("'", '"'))
    assert main(["ls", "-p", str(tmp_path / "wrong.share")]) == 4

    _assert_clean([*_all_of(caught.value), *_lines(caplog), capsys.readouterr().err])


def test_invalid_profile_error_does_not_show_its_content(tmp_path: Path) -> None:
    path = tmp_path / "broken.share"
    path.write_text(f'{{"shareCredentialsVersion": 1, "endpoint": "https://h", "bearerToken": "{TOKEN}"')

    with pytest.raises(ds.ProfileError) as caught:
        ds.SharingClient(path)

    _assert_clean(_all_of(caught.value))


@pytest.mark.parametrize(
    "command",
    [
        ("tables",),
        ("ls", "--json"),
        ("describe", "s.d.orders"),
        ("describe", "s.d.docs"),
        ("describe", "s.d", "--json"),
        ("version", "s.d.orders"),
        ("head", "s.d.orders", "--json"),
        ("read", "s.d.orders", "--filter", "id >= 50", "--explain"),
        ("read", "s.d.orders", "--verbose"),
        ("read", "s.d.missing"),
        ("changes", "s.d.orders", "--starting-version", "0"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("fault", [None, "expire-urls-now", "503-first=2@data"])
def test_command_line_prints_no_credential(
    server: Any,
    command: tuple[str, ...],
    fault: str | None,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    if fault is not None:
        server.set_fault(fault)

    main([*command, "-p", str(server.profile_path)])

    printed = capsys.readouterr()
    assert printed.out or printed.err
    _assert_clean([printed.out, printed.err, *_lines(caplog)])


def _all_of(error: BaseException) -> list[str]:
    """Return everything that an unhandled ``error`` could print: its attributes, and all its causes, even suppressed
    ones."""
    texts = [repr(pickle.loads(pickle.dumps(error)))]
    pending: list[BaseException | None] = [error]
    while pending:
        if (result := pending.pop()) is not None:
            texts += [str(result), repr(result), repr(vars(result))]
            texts.append("".join(traceback.format_exception(type(result), result, result.__traceback__)))
            pending += [result.__cause__, result.__context__]
    return texts


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.name} {record.getMessage()}" for record in caplog.records]


def _assert_clean(texts: list[str]) -> None:
    secrets = (TOKEN, WRONG_TOKEN, STORAGE_TOKEN)
    leaks = [text for text in texts if any(secret in text for secret in secrets) or SIGNATURE.search(text)]

    assert leaks == []
