"""Translates exceptions of HTTP libraries: decides which failures are temporary, and writes their messages.

Imported only when a request fails (``http.request_limits.library_errors``).
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import zlib
from urllib.parse import urlsplit

import aiohttp
import urllib3.exceptions

from delta_sharing_client.errors import DeltaSharingError, ProtocolError, TransportError, limit_reached
from delta_sharing_client.http.network import OutOfReach, Reach, is_loopback
from delta_sharing_client.http.retry import RETRIED_STATUSES, Transient

# The base classes of exceptions from requests, urllib3 and the standard library. A RequestException is an OSError, and
# has one of urllib3 as its cause; a malformed address or proxy causes a ValueError or, inside urllib3, a TypeError.
LIBRARY_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    http.client.HTTPException,
    urllib3.exceptions.HTTPError,
    zlib.error,
    aiohttp.ClientError,
)

# For how many seconds requests are retried if nothing listens on the port: the port is probably wrong, but a server may
# be restarting. The second value is for a port of this machine.
_REFUSED = 5.0
_REFUSED_HERE = 0.0


def translated(
    error: Exception,
    doing: str,
    table: str | None,
    *,
    url: str | None = None,
    receiving: bool = False,
    refused_briefly: bool = False,
) -> Transient | DeltaSharingError:
    """Translate one of ``LIBRARY_ERRORS`` to a ``Transient`` if a retry may help, otherwise to an error.

    ``doing`` describes the request ("Listing the shares"). ``url`` is its URL, of which only the host is shown;
    ``receiving``: the request was sent, and the response is the problem. ``refused_briefly``: a refused connection is
    not retried for long. The library's messages are not used, because they may contain a URL.
    """
    causes = _causes(error)
    host = _host(causes, url)
    reason, may_pass = _verdict(causes, host, receiving)
    of_protocol = (zlib.error, urllib3.exceptions.DecodeError, OutOfReach)
    kind = ProtocolError if _find(causes, *of_protocol) else TransportError
    problem = kind(f"{doing} failed: {reason}.", table=table)
    if not may_pass:
        return problem
    if refused_briefly and _find(causes, ConnectionRefusedError):
        hosts = (host, host.rpartition(":")[0])
        return Transient(problem, max_seconds=_REFUSED_HERE if any(map(is_loopback, hosts)) else _REFUSED)
    return Transient(problem)


def _verdict(causes: list[BaseException], host: str, receiving: bool) -> tuple[str, bool]:
    """Return the reason, worded as part of a sentence, and whether a retry may succeed."""
    for judge in (_reached, _limits, _names, _tls, _proxy, _addresses, _connections):
        verdict = None if receiving and judge is _addresses else judge(causes, host)
        if verdict is not None:
            return verdict
    error = causes[0]
    if _find(causes, zlib.error, urllib3.exceptions.DecodeError):
        return f"the response cannot be decompressed ({type(error).__name__})", False
    cut = (http.client.HTTPException, urllib3.exceptions.ProtocolError)
    cut_of_aiohttp = (aiohttp.ClientPayloadError, aiohttp.ClientResponseError, aiohttp.ServerDisconnectedError)
    if _find(causes, *cut, *cut_of_aiohttp) or isinstance(error, (ValueError, TypeError)):
        return f"the response was cut off or is not HTTP ({type(causes[-1]).__name__})", True
    return f"the connection broke ({_kind(causes[-1])})", isinstance(
        error, (OSError, urllib3.exceptions.HTTPError, aiohttp.ClientConnectionError)
    )


def _reached(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    cause = _find(causes, OutOfReach)
    if not isinstance(cause, OutOfReach):
        return None
    if cause.reach is Reach.LOCAL:
        return f"{host} is not this machine, so http would send the request to it in clear text", False
    return f"{host} resolves to this machine, to which only a server on this machine may refer", False


def _limits(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    reached = next((cause for cause in causes if isinstance(cause, OSError) and limit_reached(cause)), None)
    if reached is None:
        return None
    # A retry may succeed, because other requests may end meanwhile.
    return (
        f"this process cannot open another connection ({_kind(reached)}); raise the limit of open files (ulimit -n), "
        "or lower 'max_concurrent_requests'"
    ), True


def _names(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    cause = _find(causes, socket.gaierror)
    if cause is None:
        return None
    # With a proxy, the proxy's host was looked up, not the host in the request.
    host = "of the proxy" if _is_of_proxy(causes) else host.partition(":")[0]
    unknown = cause.args[:1] == (socket.EAI_NONAME,)
    return f"the host {host} cannot be resolved; check the endpoint, the network and the proxy", not unknown


# OpenSSL's reasons for a broken connection, as opposed to a failed negotiation.
_BROKEN_TLS = re.compile(r"UNEXPECTED_EOF|BAD_RECORD_MAC|EOF occurred|SYSCALL|INTERNAL_ERROR", re.IGNORECASE)
_NO_PEM = re.compile(r"NO_CERTIFICATE_OR_CRL_FOUND|NO_START_LINE|\[SSL\] PEM|KEY_VALUES_MISMATCH", re.IGNORECASE)
_CERTIFICATE_WANTED = re.compile(r"CERTIFICATE_REQUIRED|BAD_CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE", re.IGNORECASE)
_NO_TLS = re.compile(r"WRONG_VERSION_NUMBER|HTTP_REQUEST|RECORD_LAYER_FAILURE|PACKET_LENGTH", re.IGNORECASE)


def _tls(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    cause = _find(causes, ssl.SSLError, ssl.CertificateError, urllib3.exceptions.SSLError)
    if cause is None:
        return None
    text = str(cause)
    if isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)) or _BROKEN_TLS.search(text):
        return f"the TLS connection to {host} was cut off", True
    if isinstance(cause, ssl.CertificateError) or "CERTIFICATE_VERIFY_FAILED" in text:
        why = getattr(cause, "verify_message", "") or "it does not match"
        return (
            f"the certificate of {host} is not accepted ({why}); check the clock of this machine, the host in the "
            "URL, and whether REQUESTS_CA_BUNDLE must name the certificates of your organization"
        ), False
    if _NO_TLS.search(text):
        return (
            f"{host} does not speak TLS on this port; check the port, and whether the URL should begin with 'http:'"
        ), False
    why = getattr(cause, "reason", None)
    if _NO_PEM.search(text):
        return "the file in 'ca_bundle' or 'client_certificate' contains no readable certificate or key", False
    if _CERTIFICATE_WANTED.search(text):
        return f"{host} does not accept this client's certificate; check 'client_certificate'", False
    return (
        f"{host} and this client share no TLS settings ({why if isinstance(why, str) else type(cause).__name__})",
        False,
    )


def _proxy(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    if _find(causes, urllib3.exceptions.ProxySchemeUnknown):
        return "the URL of the proxy cannot be used; check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY", False
    if not _is_of_proxy(causes):
        return None
    statuses = (re.search(r"Tunnel connection failed: (\d{3})", str(each)) for each in causes)
    status = next((int(match[1]) for match in statuses if match is not None), None)
    if isinstance(causes[0], aiohttp.ClientHttpProxyError):
        status = getattr(causes[0], "status", None)
    if status is not None:
        passing = status in RETRIED_STATUSES
        return f"the proxy refuses the connection (HTTP status {status}); check its URL and its password", passing
    return (
        f"the proxy does not respond ({type(causes[-1]).__name__}); check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY",
        True,
    )


def _addresses(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    # If no library wrapped it, a TypeError or ValueError comes from building addresses and headers.
    if not _find(causes[:1], ValueError, TypeError, urllib3.exceptions.LocationValueError):
        return None
    return f"an address or a header cannot be sent ({type(causes[0]).__name__}); check the URL and the proxy", False


def _connections(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    if _find(causes, ConnectionRefusedError):
        return f"{host} refuses the connection; check that the server is running and the endpoint is right", True
    if _find(causes, urllib3.exceptions.NewConnectionError):
        return f"no connection to {host} ({_kind(causes[-1])}); check the network and the proxy", True
    if _find(causes, urllib3.exceptions.ConnectTimeoutError, aiohttp.ConnectionTimeoutError):
        return f"no connection to {host} within the time limit", True
    if _find(causes, urllib3.exceptions.ReadTimeoutError, TimeoutError):
        return "no bytes within the time limit", True
    return None


def _is_of_proxy(causes: list[BaseException]) -> bool:
    return (
        _find(causes, urllib3.exceptions.ProxyError, aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError)
        is not None
    )


def _kind(cause: BaseException) -> str:
    """Return the operating system's message or, without one, the name of the class; a library's message may contain a
    URL."""
    return (isinstance(cause, OSError) and isinstance(cause.errno, int) and cause.strerror) or type(cause).__name__


def _find(causes: list[BaseException], *kinds: type[BaseException]) -> BaseException | None:
    # Take the innermost one, because the outer ones only repeat it.
    return next((cause for cause in reversed(causes) if isinstance(cause, kinds)), None)


def _causes(error: Exception) -> list[BaseException]:
    seen: list[BaseException] = [error]
    for candidate in seen:  # grows during the loop, by causes, contexts and wrapped reasons
        inner = (candidate.__cause__, candidate.__context__, getattr(candidate, "reason", None), *candidate.args)
        seen += [e for e in inner if isinstance(e, BaseException) and not any(e is s for s in seen)]
    return seen


def _host(causes: list[BaseException], url: str | None) -> str:
    for cause in causes:
        pool = vars(cause).get("conn") or vars(cause).get("pool")
        if pool is not None and getattr(pool, "host", None):
            return f"{pool.host}:{pool.port}"
        url = url or getattr(getattr(cause, "request", None), "url", None)
    try:
        parts = urlsplit(url or "")
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "the server"
    except ValueError:
        return "the server"
