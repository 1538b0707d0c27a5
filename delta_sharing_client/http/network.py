"""Network settings for requests to servers and storage: allowed URLs, proxies, certificates, and minimum speed.

``requests`` (``http.sessions``) is used for sharing servers, aiohttp (``fetch.http``) for storage. Each takes as
long to import as pandas, so it is imported on first use.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import ipaddress
import os
import re
import socket
import ssl
from urllib.parse import unquote, urljoin, urlsplit

import certifi

from delta_sharing_client.errors import TransportError, UsageError
from delta_sharing_client.http.retry import Transient
from delta_sharing_client.local_paths import LocalPath, expanded
from delta_sharing_client.options import ReadOptions

MAX_REDIRECTS = 5
REDIRECTS = frozenset((301, 302, 303, 307, 308))
_MOST_CONTEXTS = 16
_CERTIFICATE_VARIABLE = "DELTA_SHARING_CLIENT_CERTIFICATE"


# === Allowed URLs ===

# A host, in brackets if it is an IPv6 address, with an optional port.
_ORIGIN = re.compile(
    r"https?://(?:[a-z0-9_][a-z0-9._-]*|\[[0-9a-f:.]+\])(?::[1-9][0-9]{0,4})?(?=[/?#]|\Z)", re.ASCII | re.IGNORECASE
)


class Reach(enum.Enum):
    """The addresses to which a connection may be made. The address to which the host's name resolves decides."""

    ANY = "any"
    REMOTE = "remote"
    """Any machine but this one: a remote server must not make its recipients send requests to their own services."""
    LOCAL = "local"
    """Only this machine: what is sent in clear text must not leave it."""

    def allows(self, address: str) -> bool:
        """Return whether a connection to the IP ``address`` is allowed."""
        return self is Reach.ANY or is_here(address) is (self is Reach.LOCAL)


class OutOfReach(OSError):
    """A host's name resolves to an address that is not allowed. Nothing was sent to it."""

    def __init__(self, reach: Reach) -> None:
        super().__init__("The address is not allowed.")
        self.reach = reach


@dataclasses.dataclass(frozen=True, slots=True)
class Allowed:
    """The requests that a server may make its recipients send, in addition to ``https:`` requests to other machines.

    ``http``: unencrypted requests, because the profile's own endpoint is ``http:``. ``loopback``: requests to this
    machine, because the endpoint is on it; with both, any request.
    """

    http: bool = False
    loopback: bool = False

    def reach(self, url: str) -> Reach:
        """Return the addresses to which a request to ``url`` may connect."""
        if not self.loopback:
            return Reach.REMOTE
        return Reach.ANY if self.http or url[:6].lower() == "https:" else Reach.LOCAL


ONLY_HTTPS = Allowed()


def beside(endpoint: str) -> Allowed:
    """Return which other URLs a profile with ``endpoint`` may contain."""
    served = urlsplit(endpoint)
    return Allowed(http=served.scheme == "http", loopback=is_loopback(served.hostname or ""))


def unfetchable(url: str, allowed: Allowed) -> str | None:
    """Return why ``url`` is not allowed, worded as part of a sentence; ``None`` if it is allowed.

    A server must not make its recipients read local files, send requests in clear text, or use services of their own
    machine. All libraries that parse URLs here (urllib.parse, urllib3 for requests, yarl for aiohttp) must find the
    same host and port, so that the checked host is the connected host. The address to which the host resolves is
    checked when a connection is made (``Allowed.reach``). The reason contains no more of the URL than scheme and host.
    """
    if not _is_sendable(url):
        return "a space, a backslash or a control character in it"
    origin = _ORIGIN.match(url)
    if origin is not None:
        return _judged(origin[0].lower(), allowed)
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            return f"scheme {parts.scheme!r}; only https is allowed"
        if "@" in parts.netloc:
            return "a user name or a password in it"
    except ValueError:
        pass
    return "no unambiguous host and port"


def _is_sendable(url: str) -> bool:
    return url.isprintable() and " " not in url and "\\" not in url


@functools.lru_cache(maxsize=256)
def _judged(origin: str, allowed: Allowed) -> str | None:
    import urllib3.util
    import yarl

    try:
        parts, others = urlsplit(origin), urllib3.util.parse_url(origin)
        address = yarl.URL(origin, encoded=True)
        hosts = {parts.hostname, (others.host or "").strip("[]"), address.raw_host, yarl.URL(origin).raw_host}
        ports = {parts.port or address.port, others.port or address.port, address.port}
    except ValueError:  # includes urllib3's LocationParseError
        hosts, ports = set(), set()
    if len(hosts) != 1 or len(ports) != 1 or not parts.hostname:
        return "no unambiguous host and port"
    is_local = is_loopback(parts.hostname)
    if is_local and not allowed.loopback:
        return f"host {parts.hostname!r}, which is this machine; only a profile with an endpoint on it allows that"
    if parts.scheme == "https" or allowed.http or is_local:
        return None
    return f"http to host {parts.hostname!r}, which only a profile with an http endpoint allows"


def redirected(url: str, location: str) -> str:
    """Return the target of a redirect to ``location`` from ``url``. The caller must still check it.

    ``urljoin`` removes characters that other programs keep; a location with such characters is returned unchanged.
    """
    try:
        return urljoin(url, location) if _is_sendable(location) else location
    except ValueError:
        return location


def is_loopback(host: str) -> bool:
    """Return whether ``host``, as written, is this machine: ``localhost``, a name below it, or a loopback address in
    any notation.

    All other names, and in practice names below ``localhost`` as well, may resolve to any address.
    """
    name = host.lower().removesuffix(".")
    return f".{name}".endswith(".localhost") or is_here(name)


def leads_here(host: str) -> bool:
    """Return whether all addresses of ``host`` are this machine's. Asks the resolver if ``host`` is not an address."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(is_here(str(address[0])) for *_, address in addresses)


def is_here(address: str) -> bool:
    """Return whether the IP ``address`` is this machine: a loopback address (also of IPv6) or the unspecified address,
    which connects to loopback."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        try:
            # This accepts the other notations that resolvers accept: 127.1, 0x7f000001, 2130706433, 0177.0.0.1.
            ip = ipaddress.IPv4Address(socket.inet_aton(address))
        except (OSError, ValueError):
            return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    ip = mapped or ip
    return ip.is_loopback or ip.is_unspecified


# === Proxies and certificates ===


@dataclasses.dataclass(frozen=True, slots=True)
class Network:
    """The network settings of requests.

    ``proxy``: the URL of the proxy; ``""`` for none, ``None`` for the environment's setting for each URL. ``trusted``:
    a file or directory of trusted certificates. ``certificate``: the client's own certificate, as one file or as a
    certificate and its key; empty for none. ``changed``: the modification times of these files; once they change, new
    requests use no older connections.
    """

    proxy: str | None = dataclasses.field(repr=False)
    trusted: str
    certificate: tuple[str, ...]
    changed: tuple[int, ...]

    @classmethod
    def of(cls, options: ReadOptions) -> Network:
        """Return the settings from ``options`` or the environment. Raises ``UsageError`` if a file does not exist."""
        environment = os.environ.get
        bundle = options.ca_bundle or environment("REQUESTS_CA_BUNDLE") or environment("CURL_CA_BUNDLE")
        trusted = expanded(bundle or certifi.where())
        certificate = _files(options.client_certificate or environment(_CERTIFICATE_VARIABLE) or ())
        changed = []
        for path in (trusted, *certificate):
            try:
                changed.append(os.stat(path).st_mtime_ns)
            except OSError as error:
                source = "'ca_bundle' or REQUESTS_CA_BUNDLE" if path == trusted else "'client_certificate'"
                why = error.strerror
                raise UsageError(f"The certificates in '{path}', given by {source}, cannot be read: {why}.") from None
        return cls(options.proxy, trusted, certificate, tuple(changed))

    @functools.lru_cache(maxsize=_MOST_CONTEXTS)  # noqa: B019 - certificate files may change every hour
    def tls(self) -> ssl.SSLContext:
        """Return the TLS context. It is cached, because reading the trusted certificates takes longer than
        connecting."""
        import urllib3.util.ssl_

        context = urllib3.util.ssl_.create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
        context.set_alpn_protocols(["http/1.1"])
        if os.path.isdir(self.trusted):
            context.load_verify_locations(capath=self.trusted)
        else:
            context.load_verify_locations(self.trusted)
        if self.certificate:
            certificate, *key = self.certificate
            # Without a password OpenSSL would prompt for one in the terminal.
            context.load_cert_chain(certificate, key[0] if key else None, password="")
        return context


def proxy_headers(proxy: str) -> dict[str, str]:
    """Return the headers that authenticate to the proxy with this URL; user and password may be percent-encoded in
    it."""
    parts = urlsplit(proxy)
    if not parts.username:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(login.encode()).decode("ascii")}


def _files(certificate: LocalPath | tuple[LocalPath, ...]) -> tuple[str, ...]:
    return tuple(map(expanded, certificate if isinstance(certificate, tuple) else (certificate,)))


# === Responses ===

# The registered content codings (RFC 9110, 8.4.1).
_CODINGS = frozenset(
    (
        *("aes128gcm", "br", "bzip2", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "lz4", "lzma", "snappy"),
        *("x-compress", "x-gzip", "xz", "zstd"),
    )
)


def content_codings(header: str) -> list[str]:
    """Return the codings in a ``Content-Encoding`` header, in lower case.

    Other words in the header, such as "utf-8", are not codings; they leave the body as it is. "aws-chunked" describes
    an upload to S3, which returns the word although it sends the file's own bytes.
    """
    return [name for word in header.split(",") if (name := word.strip().lower()) in _CODINGS]


class Throughput:
    """Checks the speed of one response body against ``min_bytes_per_second`` over each ``read_timeout`` seconds of
    waiting; other time does not count. ``doing`` and ``table`` are for messages."""

    def __init__(self, options: ReadOptions, doing: str, table: str | None) -> None:
        self._window, self._rate = options.read_timeout, options.min_bytes_per_second
        self._doing, self._table = doing, table
        self._bytes, self._waited = 0, 0.0

    def note(self, count: int, waited: float) -> None:
        """Add ``count`` bytes, for which the read waited ``waited`` seconds. Raises ``Transient`` if the response is
        too slow."""
        self._bytes += count
        self._waited += waited
        if count and self._waited >= self._window:
            if self._bytes < self._rate * self._waited:
                raise self.slow(
                    f"{self._bytes} bytes in {self._waited:.0f} seconds are fewer than 'min_bytes_per_second' requires"
                )
            self._bytes, self._waited = 0, 0.0

    def slow(self, reason: str) -> Transient:
        return Transient(TransportError(f"{self._doing} failed: {reason}.", table=self._table))
