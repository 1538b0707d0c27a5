"""A sample of ``python -m tools.soak urls``: the checked host is the host to which the client connects."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.effort import ALL
from tools.soak import urls


def test_client_connects_to_the_host_that_was_checked() -> None:
    counts, wrong = urls.compare(seed=1, count=200_000 if ALL else 3_000)
    assert wrong == []
    assert counts["answered"] > counts.total() / 20
    assert counts["refused"] > counts.total() / 20


def test_check_by_a_single_url_parser_is_found_insufficient() -> None:
    def naive(url: str) -> bool:
        try:
            parts = urlsplit(url)
            return parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
        except ValueError:
            return False

    _, wrong = urls.compare(seed=1, count=3_000, may_be_asked=naive)
    assert any("\\\\@" in each for each in wrong)
