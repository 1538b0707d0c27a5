"""Which URLs of an answer may be fetched."""

from __future__ import annotations

import pytest

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.fetch.http import check_data_url
from delta_sharing_client.protocol.profile import BearerToken, Profile
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import Secret


@pytest.mark.parametrize(
    "url",
    ["https://h/x?sig=1", "http://localhost:9/x", "http://127.0.0.1/x", "http://[::1]:9/x", "http://a.localhost/x"],
)
def test_https_and_loopback_are_allowed(url):
    check_data_url(url, allow_http=False)


def test_http_is_allowed_only_where_the_endpoint_is_http():
    assert RestClient(Profile("http://h/api", BearerToken(Secret("t")))).allows_http_data
    assert not RestClient(Profile("https://h/api", BearerToken(Secret("t")))).allows_http_data
    check_data_url("http://h/x", allow_http=True)
    with pytest.raises(ProtocolError, match="http to host 'h'"):
        check_data_url("http://h/x", allow_http=False)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "/etc/passwd", "s3://b/x", "ftp://localhost/x", "https:///x", "http:x", "", "http://[::x/"],
)
def test_everything_else_is_refused_without_its_query_string(url):
    with pytest.raises(ProtocolError) as caught:
        check_data_url(url + "?sig=planted", allow_http=True, table="s.d.t", file_id="f")
    assert "planted" not in str(caught.value)
    assert (caught.value.table, caught.value.file_id) == ("s.d.t", "f")
