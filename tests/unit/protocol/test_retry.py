"""When a request is tried again, and when not."""

from __future__ import annotations

import datetime as dt
import email.utils

import pytest
import requests
import urllib3.exceptions

from delta_sharing_client.errors import RequestError, TransportError
from delta_sharing_client.protocol.retry import RetryPolicy, Transient, network_failure, retry_after


def failing(times, after=None):
    calls = []

    def attempt():
        calls.append(1)
        if len(calls) <= times:
            raise Transient(RequestError("busy", status=503), after)
        return "done"

    attempt.calls = calls
    return attempt


def test_waits_grow_are_random_and_are_capped():
    policy = RetryPolicy(20, 1e9)
    for attempt, longest in ((2, 0.5), (3, 1.0), (4, 2.0), (12, 30.0), (5000, 30.0)):
        waits = [policy.wait_before(attempt) for _ in range(200)]
        assert longest / 2 <= min(waits) < max(waits) <= longest


def test_retry_after_is_the_least_wait(sleeps):
    assert RetryPolicy(3, 100).call(failing(1, after=7)) == "done"
    assert sleeps == [7]


def test_retry_after_beyond_the_limit_ends_it_at_once_and_is_told(sleeps):
    attempt = failing(1, after=3600)

    with pytest.raises(RequestError, match="asks to wait 3600 s"):
        RetryPolicy(3, 100).call(attempt)
    assert sleeps == []


def test_no_try_is_made_after_the_time_limit(sleeps):
    attempt = failing(99)

    with pytest.raises(RequestError, match="busy"):
        RetryPolicy(99, 0.2).call(attempt)
    assert len(attempt.calls) == 1


def test_other_errors_pass_through_at_once():
    def attempt():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        RetryPolicy(3, 100).call(attempt)


def test_retry_after_is_read_as_seconds_or_as_a_date():
    def read(value):
        response = requests.Response()
        if value is not None:
            response.headers["Retry-After"] = value
        return retry_after(response)

    soon = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=60)
    assert read("120") == 120
    assert 50 < read(email.utils.format_datetime(soon, usegmt=True)) <= 60
    assert read("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert [read(None), read(""), read("soon"), read("-5")] == [None] * 4


@pytest.mark.parametrize(
    "error",
    [
        requests.exceptions.ConnectionError("reset"),
        requests.exceptions.ConnectTimeout("slow"),
        requests.exceptions.ReadTimeout("slow"),
        requests.exceptions.ChunkedEncodingError("short"),
        requests.exceptions.SSLError("EOF occurred in violation of protocol"),
        urllib3.exceptions.ProtocolError("short"),
        ConnectionResetError("reset"),
    ],
)
def test_failures_of_the_network_may_pass(error):
    failure = network_failure(error, "Asking", "s.d.t")

    assert isinstance(failure, Transient)
    assert failure.error.table == "s.d.t"


@pytest.mark.parametrize(
    "error",
    [
        requests.exceptions.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
        requests.exceptions.TooManyRedirects("30"),
        requests.exceptions.InvalidSchema("file:"),
        requests.exceptions.InvalidURL("x"),
    ],
)
def test_failures_that_stay_are_not_tried_again(error):
    assert isinstance(network_failure(error, "Asking", None), TransportError)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:9/x?sig=planted", "127.0.0.1:9 refuses the connection"),
        ("http://nowhere.invalid/x?sig=planted", "the host nowhere.invalid is not known here"),
    ],
)
def test_unreachable_servers_are_named_in_plain_words(url, said):
    with pytest.raises(requests.ConnectionError) as caught:
        requests.get(url, timeout=5, proxies={"http": ""})

    failure = network_failure(caught.value, "Asking", None)

    message = failure.error.message if isinstance(failure, Transient) else failure.message
    assert message.startswith(f"Asking failed: {said}")
    assert "planted" not in message


def test_messages_of_libraries_are_scrubbed():
    failure = network_failure(requests.exceptions.InvalidURL("https://u:planted@h/x?sig=planted"), "Asking", None)

    assert "planted" not in str(failure)
