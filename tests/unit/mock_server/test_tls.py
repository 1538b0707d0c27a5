"""HTTPS: only clients that trust the certificate get responses, which are the same as over HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
import trustme

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.redact import Secret
from mock_server.config import from_yaml
from mock_server.errors import ConfigError
from mock_server.tls import Tls, prepare
from tests.unit.mock_server.helpers import DELTA, Api


@pytest.fixture
def secure(start: Callable[..., Api]) -> Api:
    api = start(tls=True)
    api.session.verify = str(api.server.ca_path)
    return api


def test_responses_and_files_are_sent_over_https(secure: Api) -> None:
    assert secure.server.endpoint.startswith("https://127.0.0.1:")
    (url, *_) = secure.query("vectors", DELTA).urls
    assert url.startswith("https://")
    whole = requests.get(url, verify=str(secure.server.ca_path)).content
    assert whole.startswith(b"PAR1")
    part = requests.get(url, headers={"Range": "bytes=4-99"}, verify=str(secure.server.ca_path))
    assert (part.status_code, part.content) == (206, whole[4:100])
    secure.server.set_fault("truncate-body=0.5:1@data")
    with pytest.raises(requests.exceptions.RequestException):
        requests.get(url, verify=str(secure.server.ca_path))


def test_https_request_without_trust_in_the_certificate_fails(secure: Api) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(secure.server.endpoint + "shares")


def test_client_reads_a_table_over_https(secure: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(secure.server.ca_path))
    assert ds.load_as_arrow(f"{secure.server.profile_path}#default.default.vectors").num_rows == 7


def test_separate_process_serves_https(tables: Path) -> None:
    with mock_server.running(tables, process=True, tls=True) as server:
        assert server.ca_path is not None
        server.set_fault("503-first")
        headers = {"Authorization": f"Bearer {server.profile['bearerToken']}"}
        answers = [requests.get(f"{server.endpoint}shares", headers=headers, verify=str(server.ca_path)) for _ in "12"]
        assert [answer.status_code for answer in answers] == [503, 200]


def test_configured_certificate_is_used(tmp_path: Path, start: Callable[..., Api], tables: Path) -> None:
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    made.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    made.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "server.yaml").write_text("ssl: {certificateFile: cert.pem, certificateKeyFile: key.pem}\n")
    api = start(tables, tls=from_yaml(tmp_path / "server.yaml").tls)
    api.session.verify = str(tmp_path / "ca.pem")
    assert api.get("shares").status_code == 200
    assert api.server.ca_path is None


def test_configuration_may_request_a_generated_certificate(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text("ssl: {selfSigned: true}\n")
    assert from_yaml(tmp_path / "server.yaml").tls == Tls()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ssl: {}", "certificateFile and certificateKeyFile, or selfSigned, must be given"),
        ("ssl: {certificateFile: a}", "certificateFile and certificateKeyFile"),
        ("ssl: {selfsigned: true}", "must be given"),
        ("ssl: {certificateFile: a, certificateKeyFile: b, certificatePasswordFile: none}", "cannot be read"),
    ],
)
def test_tls_configuration_without_a_certificate_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "server.yaml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        from_yaml(tmp_path / "server.yaml")


def test_invalid_certificate_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nonsense")
    missing = tmp_path / "missing"
    for certificate, reason in ((tmp_path / "x", ".*PEM.*"), (missing, "No such file or directory")):
        with pytest.raises(ConfigError, match=rf"are not a certificate and its key: {reason}\.$"):
            prepare(Tls(certificate=certificate, key=tmp_path / "x", password=Secret("p")), tmp_path, tmp_path / "ca")
    with pytest.raises(ConfigError, match="give both files"):
        Tls(certificate=tmp_path / "x")


def test_missing_trustme_error_names_the_extra(tmp_path: Path, tables: Path) -> None:
    program = "import sys; sys.modules['trustme'] = None; from mock_server.command import app; app()"
    command = [sys.executable, "-c", program, "--tables", str(tables), "--tls"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2
    assert "pip install 'delta-sharing-client[server-tls]'" in run.stderr
