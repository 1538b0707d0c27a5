"""Profile files: the address of a sharing server, and how to authenticate (protocol, "Profile File Format").

Version 2 of the format is documented only with the connectors. ``bearerTokenFile``, ``clientAssertionFile``,
``tokenEndpointAuthMethod``, ``resource``, ``workloadIdentity`` and ``privateKey.privateKey`` are our extensions.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import IO, Any, Union
from urllib.parse import urlsplit

from delta_sharing_client import optional
from delta_sharing_client.errors import DeltaSharingError, ProfileError, UsageError
from delta_sharing_client.http.logins import (
    BasicLogin,
    BearerToken,
    ClientCredentials,
    Credentials,
    PrivateKeyJwt,
    SecretCall,
    SecretFile,
    SecretSource,
)
from delta_sharing_client.http.network import Allowed, beside, is_loopback, unfetchable
from delta_sharing_client.http.workload_identity import CLOUDS, WorkloadIdentity
from delta_sharing_client.instants import parse_instant
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.activation_link import refuse_one_time
from delta_sharing_client.protocol.named_profiles import located, where_it_is_not
from delta_sharing_client.redact import Secret, safe_url, shown

ENVIRONMENT_VARIABLE = "DELTA_SHARING_PROFILE"
NEWEST_VERSION = 2

# fsspec also chains file systems: simplecache::s3://bucket/my.share
_URL = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+.-]*::)*[a-zA-Z][a-zA-Z0-9+.-]*://")
# Patterns of field values that an error may show; any other value could be a misplaced token.
_NUMBER, _WORD, _ALGORITHM, _TIME = r"\d{1,4}", r"[a-z_]{1,40}", r"[A-Z]{1,5}\d{0,3}", r"[\d:.TZ+/ -]{1,35}"
_OTHER_URL = r"(?:ftp|s3|file|abfss?|gs)://[a-z.]{0,40}/?"
_JWT_ALGORITHMS = ("RS256", "ES256")
_MAX_PROFILE_BYTES = 1 << 20
_CLOUDS = ("s3://", "gs://", "abfs://", "abfss://")

# Enough bytes to recognize the kind of a file that is not a profile.
_START = 200

_log = logging.getLogger(__name__)


ProfileSource = Union[str, "os.PathLike[str]", IO[str], IO[bytes], Mapping[str, object], "Profile", None]
_Stamp = tuple[int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """A profile: endpoint (without a trailing slash) and credentials. Its repr masks secrets, but its pickle has them.

    Parameters
    ----------
    endpoint:
        ``http(s)`` URL of the sharing server's REST API.
    credentials:
        How to authenticate.
    version:
        The file's ``shareCredentialsVersion``, 1 or 2.
    iceberg_endpoint:
        ``http(s)`` URL of the server's Iceberg REST catalog, which takes the same credentials (OpenSharing protocol,
        "Profile File Format"); ``None`` if the server has no Iceberg tables.
    """

    endpoint: str
    credentials: Credentials
    version: int = 1
    iceberg_endpoint: str | None = None
    # The file of the profile, and its state when it was read.
    _origin: tuple[str, _Stamp | None] | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def expiration_time(self) -> dt.datetime | None:
        """When the bearer token expires (UTC); ``None`` if it never does, or for other kinds of credentials."""
        return self.credentials.expires if isinstance(self.credentials, BearerToken) else None

    @classmethod
    def load(cls, source: ProfileSource = None, options: ReadOptions | None = None) -> Profile:
        """Read a profile.

        Parameters
        ----------
        source:
            A path (``str`` or ``PathLike``, also relative), a name (``prod`` for the file
            ``~/.config/delta-sharing/prod.share``, if there is no file ``prod``), a URL that fsspec opens, an open file
            (which stays open), the profile's JSON object as a mapping or a string, a ``Profile``, or ``None`` for the
            path, name, URL or JSON in the environment variable ``DELTA_SHARING_PROFILE``. In a mapping, a token, an
            assertion or a private key may be a function.
        options:
            Proxy, certificates and timeouts for a profile that is at an https URL.

        Raises
        ------
        ProfileError
            If the profile cannot be found or read, a field is missing, blank or malformed, or its version or type of
            authentication is not supported. An expired token is an error only when it is used.
        """
        if isinstance(source, Profile):
            return source
        if isinstance(source, Mapping):
            return _from_fields(source, "in the given mapping")
        if source is None:
            path = os.environ.get(ENVIRONMENT_VARIABLE, "")
            if not path.strip():
                raise ProfileError(
                    f"No profile was given and the environment variable '{ENVIRONMENT_VARIABLE}' is not set; "
                    "pass the path of the profile file that the data provider sent."
                )
            return _from_path(path, f" (from {ENVIRONMENT_VARIABLE})", options)
        if isinstance(source, (str, os.PathLike)):
            path = os.fspath(source)
            if not isinstance(path, str):
                raise ProfileError("Expected the path of a profile file as a string, found bytes.")
            return _from_path(path, options=options)
        if hasattr(source, "read"):
            return parse_profile(source.read(), "in the given file object")
        raise ProfileError(
            f"Expected a profile as a path, URL, JSON text, open file or mapping, found {type(source).__name__}.",
        )

    def reread(self, *, unless_changed: bool = True) -> Profile:
        """Return the profile as its file is now, so that a long-running program can use a rotated token.

        Returns this profile if it is not from a local file, or if the file is missing or temporarily invalid, names
        another server, or has not changed (with ``unless_changed``).
        """
        if self._origin is None:
            return self
        path, before = self._origin
        stamp = _stamp(path)
        if unless_changed and stamp == before:
            return self
        try:
            fresh = _from_path(path)
        except ProfileError as error:
            _log.debug("The profile's file changed, but its new content cannot be used: %s", error)
            return self
        return fresh if fresh.endpoint == self.endpoint else self


def _from_path(path: str, origin: str = "", options: ReadOptions | None = None) -> Profile:
    if path.lstrip().startswith("{"):
        return parse_profile(path, f"in JSON text{origin}")  # not shown, because it contains the token
    if _URL.match(path):
        return parse_profile(read_profile(path, options), _shown(path) + origin)
    full = os.path.abspath(located(path))
    stamp = _stamp(full)  # before reading, so that a change in between is found later
    profile = parse_profile(read_profile(path), _shown(path) + origin)
    return dataclasses.replace(profile, _origin=(full, stamp))


def _stamp(path: str) -> _Stamp | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_profile(path: str, options: ReadOptions | None = None) -> bytes:
    """Return the content of a path or URL; ``ProfileError`` if it cannot be read."""
    try:
        if path.lower().startswith(("https://", "http://")):
            return _download(path, options or ReadOptions())
        if _URL.match(path):
            return _opened(path)
        with open(located(path), "rb") as file:
            return file.read()
    except FileNotFoundError:
        is_url = _URL.match(path)
        hint = "check the URL, and that it can be reached from here" if is_url else where_it_is_not(path)
        raise ProfileError(f"There is no profile file at {_shown(path)}; {hint}.") from None
    except ImportError as error:
        raise ProfileError(f"Reading the profile {_shown(path)} needs another package ({error}).") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        if isinstance(error, ValueError) and "rotocol not known" in str(error):
            reason = "there is no file system for this kind of URL"
        raise ProfileError(f"The profile file {_shown(path)} cannot be read: {reason}.") from None


def _opened(url: str) -> bytes:
    """Return the content of a file that fsspec opens, or, in cloud storage, obstore."""
    import fsspec  # for URLs only, because the import takes longer than reading a profile

    try:
        with fsspec.open(url, "rb") as file:
            return bytes(file.read())
    except ImportError:
        if not url.lower().startswith(_CLOUDS):
            raise
    try:
        folder, _, name = url.rpartition("/")
        store = optional.load_other("obstore.store", "Reading it").from_url(folder)
        return bytes(store.get(name).bytes())
    except UsageError as error:
        raise ProfileError(f"The profile {_shown(url)} cannot be read. {error.message}") from None


def _download(url: str, options: ReadOptions) -> bytes:
    """Return the content of an https URL."""
    # Imported here, because requests takes longer than reading a profile.
    from delta_sharing_client.http.sessions import download

    refuse_one_time(url)
    try:
        return download(url, options, f"Downloading the profile {_shown(url)}", limit=_MAX_PROFILE_BYTES)
    except DeltaSharingError as error:
        raise ProfileError(error.message) from None


def parse_profile(content: object, where: str) -> Profile:
    """Return the profile in ``content`` (bytes or text), or raise ``ProfileError``; ``where`` says its origin."""
    fields, reason = None, _what_else(content)
    try:
        text = content.decode("utf-8-sig") if isinstance(content, (bytes, bytearray)) else content
        text = text.removeprefix("\ufeff") if isinstance(text, str) else text
        fields = json.loads(text) if isinstance(text, str) else None
    except json.JSONDecodeError as error:
        reason = reason or f"is not valid JSON (line {error.lineno}, column {error.colno})"
    except ValueError:  # not UTF-8, or a number with more digits than Python parses
        reason = reason or "is not valid JSON"
    except RecursionError:
        reason = "is nested too deeply"
    if reason is not None:
        # Raised here; otherwise its context would be the decoder's error, which contains the JSON with the token.
        comma = "" if reason.endswith(" or") else ";"
        raise ProfileError(f"The profile {where} {reason}{comma} download it again from the provider.")
    if not isinstance(fields, dict):
        raise ProfileError(f"The profile {where} is not a JSON object; download it again from the provider.")
    return _from_fields(fields, where)


def _what_else(content: object) -> str | None:
    """Return a clause about the file that was given instead of a profile, if its kind can be recognized."""
    start = content if isinstance(content, (bytes, bytearray)) else str(content).encode("utf-8", "replace")
    start = start[:_START]
    if not bytes(start).strip(b"\xef\xbb\xbf \t\r\n"):
        return "is empty"
    if b"\x00" in start:
        return "is in UTF-16, but UTF-8 was expected; save it as UTF-8, or"
    if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        return "is an HTML page, perhaps a login page, and not JSON"
    return None


def _from_fields(fields: Mapping[str, object], where: str) -> Profile:
    read = _ProfileFields(fields, where)
    version = fields.get("shareCredentialsVersion")
    if version is None:
        raise ProfileError(f"The profile {where} has no 'shareCredentialsVersion'; expected 1 or 2.")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise read.wrong("shareCredentialsVersion", shown(version, _NUMBER), "1 or 2")
    if version > NEWEST_VERSION:
        raise ProfileError(
            f"The profile {where} has 'shareCredentialsVersion' {version}, but this package reads up to "
            f"{NEWEST_VERSION}; upgrade delta-sharing-client."
        )
    endpoint, iceberg = _http_url(read, "endpoint"), _iceberg_endpoint(read)
    if version == 1:
        return Profile(endpoint, _bearer(read), version, iceberg)
    kind = read.text("type")
    maker = _KINDS.get(kind)
    if maker is None:
        raise ProfileError(
            f"The profile {where} has type {shown(kind, _WORD)}; expected one of {', '.join(map(repr, _KINDS))}. "
            "If the type is newer than this package, upgrade delta-sharing-client."
        )
    return Profile(endpoint, maker(read), version, iceberg)


def _bearer(read: _ProfileFields) -> BearerToken:
    expires = read.optional_text("expirationTime")
    try:
        end = None if expires is None else parse_instant(expires)
    except ValueError:
        expected = "an ISO-8601 timestamp such as 2030-01-01T00:00:00Z"
        raise read.wrong("expirationTime", shown(expires, _TIME), expected) from None
    return BearerToken(read.identity() or read.secret("bearerToken"), end)


def _basic(read: _ProfileFields) -> BasicLogin:
    return BasicLogin(read.text("username"), Secret(read.text("password")))


def _client_credentials(read: _ProfileFields) -> ClientCredentials:
    method = read.optional_text("tokenEndpointAuthMethod")
    if method not in (None, "client_secret_basic", "client_secret_post"):
        expected = "'client_secret_basic' or 'client_secret_post'"
        raise read.wrong("tokenEndpointAuthMethod", shown(method, _WORD), expected)
    names = ("clientAssertion", "clientAssertionFile", "workloadIdentity")
    given = [name for name in names if read.fields.get(name) is not None]
    if len(given) > 1:
        raise ProfileError(f"The profile {read.where} has both '{given[0]}' and '{given[1]}'; expected only one.")
    return ClientCredentials(
        token_endpoint=_token_endpoint(read),
        client_id=read.text("clientId"),
        client_secret=None if given else Secret(read.text("clientSecret")),
        scope=read.optional_text("scope"),
        audience=read.optional_text("audience"),
        secret_in_body=None if method is None else method == "client_secret_post",
        assertion=(read.identity() or read.secret("clientAssertion")) if given else None,
        resource=read.texts("resource"),
    )


def _private_key_jwt(outer: _ProfileFields) -> PrivateKeyJwt:
    read = outer.inner("auth")
    key = read.inner("privateKey")
    algorithm = key.optional_text("algorithm") or "RS256"
    if algorithm not in _JWT_ALGORITHMS:
        expected = f"one of {', '.join(map(repr, _JWT_ALGORITHMS))}"
        raise key.wrong("algorithm", shown(algorithm, _ALGORITHM), expected)
    return PrivateKeyJwt(
        token_endpoint=_token_endpoint(read, _http_url(outer, "endpoint")),
        client_id=read.text("clientId"),
        issuer=read.text("issuer"),
        private_key=key.secret("privateKey"),
        key_id=key.optional_text("keyId"),
        algorithm=algorithm,
        audience=read.optional_text("audience"),
        scope=read.optional_text("scope"),
    )


_KINDS: dict[str, Callable[[_ProfileFields], Credentials]] = {
    "bearer_token": _bearer,
    "basic": _basic,
    "oauth_client_credentials": _client_credentials,
    "oauth_jwt_bearer_private_key_jwt": _private_key_jwt,
}


def _token_endpoint(read: _ProfileFields, endpoint: str | None = None) -> str:
    url = _http_url(read, "tokenEndpoint", query=True)
    advice = " To use a token from this machine, write it to a file, and set 'bearerTokenFile' to the path."
    return _encrypted(url, "tokenEndpoint", read, endpoint or _http_url(read, "endpoint"), advice)


def _iceberg_endpoint(read: _ProfileFields) -> str | None:
    if read.optional_text("icebergEndpoint") is None:
        return None
    return _encrypted(_http_url(read, "icebergEndpoint"), "icebergEndpoint", read, _http_url(read, "endpoint"))


def _encrypted(url: str, name: str, read: _ProfileFields, endpoint: str, advice: str = "") -> str:
    """Return ``url``; raise ``ProfileError`` if it is http, or, with ``advice``, if it is on this machine and the
    server's ``endpoint`` is not."""
    allowed = beside(endpoint)
    if unfetchable(url, allowed) is None:
        return url
    if not allowed.loopback and is_loopback(urlsplit(url).hostname or ""):
        raise ProfileError(
            f"'{name}' of the profile {read.where} is on this machine, but 'endpoint' is not; expected both on this "
            f"machine or neither.{advice}"
        )
    raise ProfileError(
        f"'{name}' of the profile {read.where} is an http URL, to which the client would send its credentials in clear "
        "text; expected https."
    )


def _http_url(read: _ProfileFields, name: str, *, query: bool = False) -> str:
    url = read.text(name)
    expected = f"'{name}' of the profile {read.where} must be an http(s) URL"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ProfileError(f"{expected}, but it is malformed.") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ProfileError(
            f"{expected}, such as https://sharing.example.com/delta-sharing; found {shown(url, _OTHER_URL)}."
        )
    if parts.username is not None or parts.password is not None:
        raise ProfileError(f"{expected} without a user name or password; put credentials into other fields.")
    if parts.fragment or (parts.query and not query):
        raise ProfileError(f"{expected} without {'a' if query else 'a query string or a'} fragment; found one.")
    problem = unfetchable(url, Allowed(http=True, loopback=True))
    if problem is not None:
        raise ProfileError(f"{expected}; found {problem}.")
    return url[:-1] if url.endswith("/") else url


def _shown(path: str) -> str:
    return safe_url(path) if _URL.match(path) else repr(path)


@dataclasses.dataclass(frozen=True)
class _ProfileFields:
    fields: Mapping[str, Any]
    where: str

    def wrong(self, name: str, found: str, expected: str) -> ProfileError:
        return ProfileError(f"'{name}' of the profile {self.where} is {found}; expected {expected}.")

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if value is None:
            raise ProfileError(f"The profile {self.where} has no '{name}'; download it again from the provider.")
        if not isinstance(value, str) or not value.strip():
            found = "blank" if isinstance(value, str) else f"of type {type(value).__name__}"
            raise self.wrong(name, found, "a string")
        return value.strip()

    def optional_text(self, name: str) -> str | None:
        value = self.fields.get(name)
        return None if value is None or value == "" else self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the strings of a field that has one or several; an empty tuple if the field is missing."""
        value = self.fields.get(name)
        if not isinstance(value, (list, tuple)):
            one = self.optional_text(name)
            return () if one is None else (one,)
        return tuple(_ProfileFields({name: item}, self.where).text(name) for item in value)

    def secret(self, name: str) -> SecretSource:
        """Return the source of the secret ``name``: a string or a function, or a file whose path is in the field
        ``name`` + ``File``."""
        value, path = self.fields.get(name), self.optional_text(f"{name}File")
        if value is not None and path is not None:
            raise ProfileError(f"The profile {self.where} has both '{name}' and '{name}File'; expected only one.")
        if path is not None:
            return SecretFile(path)
        return SecretCall(value) if callable(value) else Secret(self.text(name))

    def identity(self) -> WorkloadIdentity | None:
        """Return the ``workloadIdentity`` of the profile, which is in place of a secret; ``None`` if it has none."""
        if self.fields.get("workloadIdentity") is None:
            return None
        read = self.inner("workloadIdentity")
        cloud = read.text("cloud")
        if cloud not in CLOUDS:
            raise read.wrong("cloud", shown(cloud, _WORD), f"one of {', '.join(map(repr, CLOUDS))}")
        return WorkloadIdentity(cloud, read.text("audience"), read.optional_text("clientId"))

    def inner(self, name: str) -> _ProfileFields:
        value = self.fields.get(name)
        if not isinstance(value, Mapping):
            raise self.wrong(name, "missing or not a JSON object", "a JSON object")
        return _ProfileFields(value, f"{self.where} (in '{name}')")
