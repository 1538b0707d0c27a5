"""Signed URLs for every possible path of a file."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mock_server.signing import SignatureProblem, Signer, Use
from tests.quota import meets, met

PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda path: path.strip("/.") != ""
)
SIGNER = Signer(60)


def parts(url: str) -> tuple[bytes, bytes]:
    split = urlsplit(url)
    return split.path.encode(), split.query.encode()


@meets(quoted=21)
@given(PATHS, st.sampled_from(list(Use)))
def test_signed_path_is_accepted_with_other_encoding(path: str, use: Use) -> None:
    met("quoted", quote(path) != path)
    url = SIGNER.grant("http://h:1", "t").url(path, use)
    assert url.isascii()
    raw_path, query = parts(url)
    assert SIGNER.check(raw_path, query) is None
    assert unquote(raw_path.decode()).endswith(path)
    again = quote(unquote(raw_path.decode()), safe="/~!$'()*").encode()
    assert SIGNER.check(again, query) is None


@meets(other=13)
@given(PATHS, PATHS)
def test_another_path_is_refused(path: str, other: str) -> None:
    met("other", path != other)
    grant = SIGNER.grant("http://h:1", "t")
    _, query = parts(grant.url(path, Use.ADD))
    raw_path, _ = parts(grant.url(other, Use.ADD))
    expected = None if path == other else SignatureProblem.WRONG
    assert SIGNER.check(raw_path, query) is expected


def test_signature_differs_by_table_and_by_use_of_the_file() -> None:
    urls = {SIGNER.grant("http://h:1", table).url("a", use) for table in ("t", "u") for use in Use}
    assert len({url.split("Signature=")[1] for url in urls}) == 8


@pytest.mark.parametrize("query", [b"", b"X-Amz-Expires=x&X-Amz-Signature=00", b"X-Amz-Signature=%00"])
def test_url_without_a_signature_is_refused(query: bytes) -> None:
    assert SIGNER.check(b"/data/t/a", query) is SignatureProblem.MISSING


@pytest.mark.parametrize("ttl", [0.01, 1, 1.5, 3600])
def test_url_expires_within_a_second_of_its_lifetime(ttl: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for now in (1000.0, 1000.001, 1000.999):
        monkeypatch.setattr("time.time", lambda now=now: now)
        signer = Signer(ttl)
        grant = signer.grant("http://h:1", "t")
        assert now + ttl <= grant.expires_ms / 1000 < now + ttl + 1
        url = parts(grant.url("a", Use.ADD))
        monkeypatch.setattr("time.time", lambda end=grant.expires_ms / 1000: end - 0.001)
        assert signer.check(*url) is None
        monkeypatch.setattr("time.time", lambda end=grant.expires_ms / 1000: end)
        assert signer.check(*url) is SignatureProblem.EXPIRED
