"""What differs between stores: the URL of an object and of a page of a listing, signatures, and the stated checksum.

A dialect is a value without secrets and without I/O: S3 (and compatible stores, R2, access points), Azure Blob Storage
(and OneLake), and the XML API of Google Cloud Storage.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol
from urllib.parse import quote, urlencode, urlsplit

from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from delta_sharing_client.fetch.place import Checksum, Refused
from delta_sharing_client.http.network import Allowed, unfetchable
from delta_sharing_client.storage.credentials import AWS, AZURE, GOOGLE, R2, StorageCredentials
from delta_sharing_client.storage.listing_pages import Listing, azure_listing, md5_checksum, s3_listing
from delta_sharing_client.storage.locations import ONLY_S3, StoreSettings
from delta_sharing_client.storage.signing import sign_s3

_UNRESERVED = "-._~"
_DOTS = frozenset((".", ".."))
_AZURE_VERSION = "2023-11-03"
_PAGE = 1000
_DEFAULT_REGION = "us-east-1"
_REGION = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII | re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9_][a-z0-9._-]*", re.ASCII | re.IGNORECASE)
_ACCESS_POINT = re.compile(r"arn:(aws[\w-]*):s3:([a-z0-9-]+):(\d+):accesspoint[:/]([a-z0-9-]+)", re.ASCII)
_R2_HOST = re.compile(r"[\w-]+(?:\.(?:eu|fedramp))?\.r2\.cloudflarestorage\.com", re.ASCII)
# Domains of sovereign clouds and of OneLake; all other locations use the public cloud.
_OTHER_AZURE = frozenset(("core.chinacloudapi.cn", "core.usgovcloudapi.net", "fabric.microsoft.com"))
_ONELAKE = ".fabric.microsoft.com"
# The domains of AWS by the first part of a region's name.
_DOMAINS = {
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "eu-isoe-": "cloud.adc-e.uk",
    "us-isof-": "csp.hci.ic.gov",
}
_MD5 = re.compile(r'"([0-9a-f]{32})"', re.ASCII | re.IGNORECASE)
_IN_HEADER = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_TRUE, _FALSE = ("1", "true", "on", "yes", "y"), ("0", "false", "off", "no", "n")


def requestable(key: str) -> bool:
    """Return whether a request can name ``key``.

    A client, proxy or server may remove the segments ``.`` and ``..`` from a path (RFC 3986, 6.2.2.3), even encoded
    ones, and then return a different object. A key must be UTF-8 in all stores. All other keys are sent as they are.
    """
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return bool(key) and _DOTS.isdisjoint(key.split("/"))


class Dialect(Protocol):
    """How a store is addressed. A frozen value without secrets, which can be pickled."""

    def url(self, key: str) -> str:
        """Return the URL of an object, without a signature. Raises ``Refused`` if no request can name ``key``."""

    def listing(self, prefix: str, mark: str | None, *, recursive: bool) -> str:
        """Return the URL of a page of keys that begin with ``prefix``, without a signature.

        ``mark`` is ``Listing.next`` of the previous page. If not ``recursive``, keys with a slash after the prefix are
        combined to folders.
        """

    def request(self, url: str, credentials: StorageCredentials) -> tuple[str, dict[str, str]]:
        """Return what is sent for ``url``: the URL with its signature, and headers.

        Raises ``ProtocolError`` for credentials that cannot be sent.
        """

    def page(self, body: bytes) -> Listing:
        """Parse a page. Raises ``DataError`` if ``body`` is anything but a page of a listing."""

    def checksum(self, headers: Iterable[tuple[str, str]]) -> Checksum | None:
        """Return the checksum of the whole object that the ``headers`` of a response state, if any."""

    def with_region(self, region: str) -> Dialect:
        """Return the dialect for the region that the store named, or the dialect itself if that changes nothing.

        Raises ``ProtocolError`` for a name that no region has.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class S3:
    """S3 and compatible stores.

    Attributes
    ----------
    bucket:
        The name of the bucket.
    region:
        The region for signatures.
    endpoint:
        The URL of the store; empty for the one of AWS in the region.
    is_in_host:
        Whether the host of the endpoint names the bucket, so that the path does not ("virtual-hosted style").
    is_region_assumed:
        Whether nobody stated the region.
    pays:
        Whether the requester pays for requests.
    """

    bucket: str
    region: str
    endpoint: str = ""
    is_in_host: bool = False
    is_region_assumed: bool = False
    pays: bool = False
    base: str = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        endpoint, is_in_host = self.endpoint, self.is_in_host
        if not endpoint:
            # A wildcard certificate does not match a name with more dots.
            is_in_host = is_in_host and "." not in self.bucket
            endpoint = f"https://{self.bucket}." if is_in_host else "https://"
            endpoint += f"s3.{self.region}.{aws_domain(self.region)}"
        object.__setattr__(self, "base", endpoint if is_in_host else f"{endpoint}/{self.bucket}")

    def url(self, key: str) -> str:
        return _object_url(self.base, key)

    def listing(self, prefix: str, mark: str | None, *, recursive: bool) -> str:
        return _s3_listing_url(self.base, prefix, mark, recursive=recursive)

    def request(self, url: str, credentials: StorageCredentials) -> tuple[str, dict[str, str]]:
        _check_sendable(credentials)
        more = {"x-amz-request-payer": "requester"} if self.pays else None
        return url, sign_s3(url, credentials, self.region, datetime.datetime.now(datetime.timezone.utc), more)

    def page(self, body: bytes) -> Listing:
        return s3_listing(body)

    def checksum(self, headers: Iterable[tuple[str, str]]) -> Checksum | None:
        """Return the MD5 in the ETag: of an object that was uploaded in one part, and not encrypted with a key of the
        key service or of the customer."""
        given = _by_name(headers)
        if given.get("x-amz-server-side-encryption", "").lower().startswith("aws:kms") or (
            "x-amz-server-side-encryption-customer-algorithm" in given
        ):
            return None
        match = _MD5.fullmatch(given.get("etag", ""))
        return None if match is None else Checksum("md5", bytes.fromhex(match[1]))

    def with_region(self, region: str) -> Dialect:
        if not self.is_region_assumed or region == self.region:
            return self
        if not _REGION.fullmatch(region):
            raise ProtocolError("The store names a region that is not valid.")
        return dataclasses.replace(self, region=region, is_region_assumed=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Google:
    """A bucket of Google Cloud Storage, through its XML API; ``base`` is the URL of the bucket."""

    base: str

    def url(self, key: str) -> str:
        return _object_url(self.base, key)

    def listing(self, prefix: str, mark: str | None, *, recursive: bool) -> str:
        return _s3_listing_url(self.base, prefix, mark, recursive=recursive)

    def request(self, url: str, credentials: StorageCredentials) -> tuple[str, dict[str, str]]:
        _check_sendable(credentials)
        return url, {"Authorization": f"Bearer {credentials.reveal('token') or ''}"}

    def page(self, body: bytes) -> Listing:
        return s3_listing(body)

    def checksum(self, headers: Iterable[tuple[str, str]]) -> Checksum | None:
        """Return the MD5 in ``x-goog-hash``; composed objects have none."""
        given = _by_name(headers)
        if given.get("x-goog-stored-content-encoding", "identity").lower() != "identity":
            # The hash is that of the stored, compressed bytes, which Google decompresses.
            return None
        hashes = [part.strip().partition("=") for part in given.get("x-goog-hash", "").split(",")]
        return md5_checksum(next((value for name, _, value in hashes if name == "md5"), None))

    def with_region(self, region: str) -> Dialect:
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class Azure:
    """A container of Azure Blob Storage, with a shared access signature; ``base`` is the URL of the container."""

    base: str

    def url(self, key: str) -> str:
        return _object_url(self.base, key)

    def listing(self, prefix: str, mark: str | None, *, recursive: bool) -> str:
        query = {"restype": "container", "comp": "list", "prefix": prefix, "maxresults": str(_PAGE)}
        if not (urlsplit(self.base).hostname or "").endswith(_ONELAKE):
            # Metadata may mark directories; in OneLake, which has only real directories, the resource type does.
            query["include"] = "metadata"
        if not recursive:
            query["delimiter"] = "/"
        if mark is not None:
            query["marker"] = mark
        return f"{self.base}?{_query(query)}"

    def request(self, url: str, credentials: StorageCredentials) -> tuple[str, dict[str, str]]:
        _check_sendable(credentials)
        if (token := credentials.reveal("token")) is not None:
            return url, {"Authorization": f"Bearer {token}", "x-ms-version": _AZURE_VERSION}
        signature = (credentials.reveal("sas_token") or "").lstrip("?")
        # A "+" is part of the signature, but a server would read it as a space.
        signature = quote(signature, safe="%&=/:,;@!$'()*-._~")
        return f"{url}{'&' if '?' in url else '?'}{signature}", {"x-ms-version": _AZURE_VERSION}

    def page(self, body: bytes) -> Listing:
        return azure_listing(body)

    def checksum(self, headers: Iterable[tuple[str, str]]) -> Checksum | None:
        """Return the stored MD5. A response with a range states it in a different header, because there ``Content-MD5``
        may be that of the range."""
        given = _by_name(headers)
        whole = given.get("x-ms-blob-content-md5")
        return md5_checksum(given.get("content-md5") if whole is None and "content-range" not in given else whole)

    def with_region(self, region: str) -> Dialect:
        return self


# === URLs and headers ===


def _object_url(base: str, key: str) -> str:
    if not requestable(key):
        raise Refused(400, None, "its name cannot be requested")
    return f"{base}/{quote(key, safe='/-._~')}"


def _s3_listing_url(base: str, prefix: str, mark: str | None, *, recursive: bool) -> str:
    query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
    if not recursive:
        query["delimiter"] = "/"
    if mark is not None:
        query["continuation-token"] = mark
    slash = "" if urlsplit(base).path else "/"
    return f"{base}{slash}?{_query(query)}"


def _query(parameters: Mapping[str, str]) -> str:
    return urlencode(parameters, quote_via=quote, safe=_UNRESERVED, errors="surrogateescape")


def _by_name(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by their names in lower case; the values of repeated headers are joined with commas."""
    given: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        given[name] = f"{given[name]},{value}" if name in given else value
    return given


def _check_sendable(credentials: StorageCredentials) -> None:
    for name, secret in credentials.secrets.items():
        if not _IN_HEADER.fullmatch(secret.reveal()):
            raise ProtocolError(
                f"The server's credentials for a store of {credentials.cloud} cannot be sent: '{name}' has a character "
                "that a request cannot contain, such as a line break, or it is empty; ask the data provider."
            )


def aws_domain(region: str) -> str:
    """Return the domain of the AWS partition of a region."""
    return next((domain for start, domain in _DOMAINS.items() if region.startswith(start)), "amazonaws.com")


# === Settings ===


def dialect_of(settings: StoreSettings, credentials: StorageCredentials) -> Dialect:
    """Return the dialect for the store of a location.

    Raises ``ProtocolError`` if the server provides credentials for a different cloud or an invalid name,
    ``UnsupportedFeatureError`` for stores that are not supported, and ``UsageError`` for invalid settings.
    """
    scheme = settings.location.scheme
    clouds, make = _STORES[scheme]
    if credentials.cloud not in clouds:
        raise ProtocolError(
            f"Expected credentials of {' or '.join(clouds)} for a location with the scheme '{scheme}', found "
            f"credentials of {credentials.cloud}."
        )
    given = settings.of(credentials)
    known = {"endpoint", *((*ONLY_S3, "access_point") if make is _s3 else ())}
    if unknown := sorted(given.keys() - known):
        raise UsageError(
            f"The store of a location with the scheme '{scheme}' cannot be opened with the 'storage_options' "
            f"{', '.join(map(repr, unknown))}; expected 'endpoint', and for S3 also {', '.join(map(repr, ONLY_S3))}."
        )
    return make(settings, given, credentials)


def reach_of(settings: StoreSettings, credentials: StorageCredentials) -> Allowed:
    """Return what requests to the store may reach. The user may name an endpoint anywhere; the server that named the
    location may not make its recipients use services of their own network. An endpoint that both name is the server's:
    the user may have copied it, and has not vouched for it."""
    stated = settings.of(credentials).get("endpoint")
    if credentials.cloud == AWS:
        stated = stated or _environment_endpoint()
    is_own = stated is not None and stated != credentials.settings.get("endpoint")
    return Allowed(http=True, loopback=True) if is_own else settings.allowed


def _s3(settings: StoreSettings, given: Mapping[str, str], credentials: StorageCredentials) -> Dialect:
    location = settings.location
    bucket, _, host = location.bucket.partition("@")
    bucket = in_host(bucket, location.scheme)
    endpoint, region = given.get("endpoint", ""), given.get("region", "")
    is_in_host, pays = (_is_true(given, name) for name in ("virtual_hosted_style_request", "request_payer"))
    if credentials.cloud == R2:
        endpoint, region = endpoint or r2_endpoint(bucket, host), region or "auto"
    point = given.get("access_point", "")
    if point.startswith("arn:"):
        found, its_region = access_point(point)
        endpoint, region, is_in_host = endpoint or found, region or its_region, True
    elif point:
        # The alias of an access point is used like the name of a bucket.
        bucket = in_host(point, location.scheme)
    elif "virtual_hosted_style_request" in credentials.settings and endpoint:
        endpoint = with_bucket(endpoint, bucket)
    if credentials.cloud == AWS:
        endpoint = endpoint or _environment_endpoint() or ""
        region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    if not endpoint and bucket.endswith("--x-s3"):
        raise UnsupportedFeatureError(
            "The location is in a directory bucket of S3 ('S3 Express One Zone'), which is not supported.",
            feature="S3 Express One Zone",
        )
    if region and not _REGION.fullmatch(region):
        is_theirs = region == credentials.settings.get("region")
        raise (ProtocolError if is_theirs else UsageError)("The region of the store has characters that no region has.")
    return S3(
        bucket,
        region or _DEFAULT_REGION,
        _endpoint(endpoint) if endpoint else "",
        is_in_host=is_in_host,
        is_region_assumed=not region,
        pays=pays,
    )


def _azure(settings: StoreSettings, given: Mapping[str, str], credentials: StorageCredentials) -> Dialect:
    container, _, host = settings.location.bucket.partition("@")
    account, _, domain = host.partition(".")
    account = in_host(account, settings.location.scheme)
    endpoint = given.get("endpoint") or azure_endpoint(account, domain)
    if not requestable(container):
        raise ProtocolError("A location with the scheme 'abfss' has an invalid container name.")
    # A workspace of OneLake may have any name, and containers such as "$web" exist.
    return Azure(f"{_endpoint(endpoint)}/{quote(container, safe='$-._~')}")


def _google(settings: StoreSettings, given: Mapping[str, str], credentials: StorageCredentials) -> Dialect:
    bucket = in_host(settings.location.bucket, settings.location.scheme)
    return Google(f"{_endpoint(given.get('endpoint') or 'https://storage.googleapis.com')}/{bucket}")


_Make = Callable[[StoreSettings, Mapping[str, str], StorageCredentials], Dialect]
_STORES: Mapping[str, tuple[tuple[str, ...], _Make]] = {
    "s3": ((AWS, R2), _s3),
    "r2": ((R2, AWS), _s3),
    "abfss": ((AZURE,), _azure),
    "gs": ((GOOGLE,), _google),
}


def in_host(name: str, scheme: str) -> str:
    """Return the ``name`` of a bucket or account, which becomes part of the store's URL; raise ``ProtocolError`` if the
    name has characters that could change the rest of the URL."""
    if not _NAME.fullmatch(name):
        raise ProtocolError(f"A location with the scheme '{scheme}' has an invalid bucket or account name.")
    return name


def access_point(name: str) -> tuple[str, str]:
    """Return the endpoint, whose host names the access point, and the region of the access point with an ARN."""
    match = _ACCESS_POINT.fullmatch(name)
    if match is None:
        raise UnsupportedFeatureError(
            f"Expected an access point as 'arn:aws:s3:<region>:<account>:accesspoint/<name>', found '{name[:100]}', "
            "which is not supported.",
            feature="accessPoint",
        )
    _, region, account, point = match.groups()
    return f"https://{point}-{account}.s3-accesspoint.{region}.{aws_domain(region)}", region


def r2_endpoint(bucket: str, host: str) -> str:
    """Return the endpoint of Cloudflare R2 from the ``host`` of a location."""
    if not _R2_HOST.fullmatch(host):
        raise UsageError(
            f"The location of the bucket '{bucket}' does not include its endpoint at Cloudflare; set 'endpoint' in "
            "'storage_options' to 'https://<account id>.r2.cloudflarestorage.com'."
        )
    return f"https://{host}"


def azure_endpoint(account: str, domain: str) -> str:
    """Return the endpoint of an Azure account; ``domain`` follows the account in the host of a location."""
    domain = domain.partition(".")[2]
    return f"https://{account}.blob.{domain if domain in _OTHER_AZURE else 'core.windows.net'}"


def with_bucket(endpoint: str, bucket: str) -> str:
    """Return an endpoint whose host begins with the bucket, for virtual-hosted-style requests."""
    parts = urlsplit(endpoint)
    if parts.netloc.startswith(f"{bucket}."):
        return endpoint
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()


def _environment_endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _endpoint(text: str) -> str:
    """Return an endpoint as it is sent: without a slash at the end and without the default port."""
    reason = unfetchable(text, Allowed(http=True, loopback=True))
    if reason is None and re.search("[?#]", text):
        reason = "a query or a fragment in it"
    if reason is not None:
        raise UsageError(f"Expected the URL of the store in 'endpoint', found {reason}.")
    parts = urlsplit(text)
    host = parts.netloc.lower().removesuffix(":443" if parts.scheme == "https" else ":80")
    return f"{parts.scheme}://{host}{quote(parts.path, safe='/%-._~').rstrip('/')}"


def _is_true(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in (*_TRUE, *_FALSE):
        raise UsageError(f"Expected 'true' or 'false' for '{name}' in 'storage_options', found another value.")
    return text in _TRUE
