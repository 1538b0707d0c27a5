"""Profile files: where a sharing server is, and how to authenticate there (protocol, "Profile File Format")."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import re
from collections.abc import Mapping
from typing import IO, Any, Union
from urllib.parse import urlsplit

import fsspec

from delta_sharing_client.data_urls import is_loopback
from delta_sharing_client.errors import ProfileError
from delta_sharing_client.instants import parse_instant
from delta_sharing_client.redact import Secret, safe_url

ENVIRONMENT_VARIABLE = "DELTA_SHARING_PROFILE"
NEWEST_VERSION = 2

# fsspec also chains file systems: simplecache::s3://bucket/my.share
_URL = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+.-]*::)*[a-zA-Z][a-zA-Z0-9+.-]*://")


@dataclasses.dataclass(frozen=True, slots=True)
class BearerToken:
    """A token sent with each request; ``expires`` is ``None`` for a token that does not expire."""

    token: Secret
    expires: dt.datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class BasicLogin:
    """A user name and password sent with each request (profile version 2, type ``basic``)."""

    username: str
    password: Secret


@dataclasses.dataclass(frozen=True, slots=True)
class ClientCredentials:
    """An OAuth 2.0 client that fetches its tokens itself (profile version 2, type ``oauth_client_credentials``)."""

    token_endpoint: str
    client_id: str
    client_secret: Secret
    scope: str | None = None


Credentials = Union[BearerToken, BasicLogin, ClientCredentials]
ProfileSource = Union[str, "os.PathLike[str]", IO[str], IO[bytes], Mapping[str, object], "Profile", None]


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """A profile: endpoint (without a trailing slash) and credentials. Its repr shows no secret; it pickles with them.

    Parameters
    ----------
    endpoint:
        ``http(s)`` URL of the sharing server's REST API.
    credentials:
        How to authenticate.
    version:
        The file's ``shareCredentialsVersion``, 1 or 2.
    """

    endpoint: str
    credentials: Credentials
    version: int = 1

    @property
    def expiration_time(self) -> dt.datetime | None:
        """When the bearer token expires (UTC), ``None`` if never or if the credentials are of another kind."""
        return self.credentials.expires if isinstance(self.credentials, BearerToken) else None

    @classmethod
    def load(cls, source: ProfileSource = None) -> Profile:
        """Read a profile.

        Parameters
        ----------
        source:
            A path (``str`` or ``PathLike``, relative ones too), a URL that fsspec opens, an open file (which stays
            open), the profile's JSON object as a mapping, a ``Profile``, or ``None`` for the path or URL in the
            environment variable ``DELTA_SHARING_PROFILE``.

        Raises
        ------
        ProfileError
            If it cannot be found or read, if a field is missing, blank or malformed, if its version is newer than
            this package, or if it needs an authentication that this package does not have. An expired token is
            not an error here but with the first request.
        """
        if isinstance(source, Profile):
            return source
        if isinstance(source, Mapping):
            return _from_fields(source, "the given mapping")
        if source is None:
            path = os.environ.get(ENVIRONMENT_VARIABLE, "")
            if not path.strip():
                raise ProfileError(
                    f"No profile was given and the environment variable '{ENVIRONMENT_VARIABLE}' is not set; "
                    "pass the path of the profile file that the data provider sent."
                )
            return _from_path(path, f" (from {ENVIRONMENT_VARIABLE})")
        if isinstance(source, (str, os.PathLike)):
            path = os.fspath(source)
            if not isinstance(path, str):
                raise ProfileError("Expected the path of a profile file as text, found bytes.")
            return _from_path(path)
        if hasattr(source, "read"):
            return _from_text(source.read(), "the given file object")
        raise ProfileError(
            f"Expected a profile as a path, URL, open file or mapping, found {type(source).__name__}.",
        )


def _from_path(path: str, origin: str = "") -> Profile:
    if path.lstrip().startswith("{"):
        raise ProfileError(  # not shown: it holds the token
            f"Expected the path of a profile file{origin}, found JSON text; save it as a file, or pass it as a mapping "
            "(json.loads)."
        )
    return _from_text(_read(path), _shown(path) + origin)


def _read(path: str) -> bytes:
    try:
        if _URL.match(path):
            with fsspec.open(path, "rb") as file:
                return bytes(file.read())
        with open(os.path.expanduser(path), "rb") as file:
            return file.read()
    except FileNotFoundError:
        hint = (
            "check the URL, and that it can be reached from here"
            if _URL.match(path)
            else f"check the path (relative ones start at {os.getcwd()})"
        )
        raise ProfileError(f"There is no profile file at {_shown(path)}; {hint}.") from None
    except ImportError as error:
        raise ProfileError(f"Reading the profile {_shown(path)} needs another package ({error}).") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        if isinstance(error, ValueError) and "rotocol not known" in str(error):
            reason = "no file system is known for such a URL"
        raise ProfileError(f"The profile file {_shown(path)} cannot be read: {reason}.") from None


def _from_text(content: object, where: str) -> Profile:
    fields, reason = None, None
    try:
        text = content.decode("utf-8-sig") if isinstance(content, (bytes, bytearray)) else content
        text = text.removeprefix("\ufeff") if isinstance(text, str) else text
        fields = json.loads(text) if isinstance(text, str) else None
    except json.JSONDecodeError as error:
        reason = f"is not valid JSON (line {error.lineno}, column {error.colno})"
    except ValueError:  # no UTF-8, or a number of more digits than Python reads
        reason = "is not valid JSON"
    except RecursionError:
        reason = "nests too deep to be one"
    if reason is not None:
        # Raised out here, or the error would carry along the one of the decoder, and with it the text and its token.
        raise ProfileError(f"The profile {where} {reason}; download it again from the provider.")
    if not isinstance(fields, dict):
        raise ProfileError(f"The profile {where} is not a JSON object; download it again from the provider.")
    return _from_fields(fields, where)


def _from_fields(fields: Mapping[str, object], where: str) -> Profile:
    version = fields.get("shareCredentialsVersion")
    if version is None:
        raise ProfileError(f"The profile {where} has no 'shareCredentialsVersion'; expected 1 or 2.")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ProfileError(f"'shareCredentialsVersion' of the profile {where} is {version!r}; expected 1 or 2.")
    if version > NEWEST_VERSION:
        raise ProfileError(
            f"The profile {where} has 'shareCredentialsVersion' {version}, this package reads up to {NEWEST_VERSION}; "
            "upgrade delta-sharing-client."
        )
    read = _Fields(fields, where)
    endpoint = _http_url(read, "endpoint")
    if version == 1:
        return Profile(endpoint, _bearer(read), version)
    kind = read.text("type")
    if kind == "bearer_token":
        return Profile(endpoint, _bearer(read), version)
    if kind == "basic":
        return Profile(endpoint, BasicLogin(read.text("username"), Secret(read.text("password"))), version)
    if kind == "oauth_client_credentials":
        return Profile(endpoint, _client_credentials(read, endpoint), version)
    if kind == "oauth_jwt_bearer_private_key_jwt":
        raise ProfileError(
            f"The profile {where} authenticates with 'oauth_jwt_bearer_private_key_jwt', which this package does not "
            "support; ask the provider for a bearer token or an OAuth client."
        )
    raise ProfileError(
        f"The profile {where} has type {kind!r}; expected 'bearer_token', 'basic' or 'oauth_client_credentials'. "
        "If the type is newer than this package, upgrade delta-sharing-client."
    )


def _bearer(read: _Fields) -> BearerToken:
    expires = read.optional_text("expirationTime")
    if expires is None:
        return BearerToken(Secret(read.text("bearerToken")))
    try:
        return BearerToken(Secret(read.text("bearerToken")), parse_instant(expires))
    except ValueError:
        raise ProfileError(
            f"'expirationTime' of the profile {read.where} is {expires!r}; expected an ISO-8601 timestamp such as "
            "2030-01-01T00:00:00Z."
        ) from None


def _client_credentials(read: _Fields, endpoint: str) -> ClientCredentials:
    token_endpoint = _http_url(read, "tokenEndpoint", query=True)
    parts = urlsplit(token_endpoint)
    if parts.scheme == "http" and not is_loopback(parts.hostname or "") and urlsplit(endpoint).scheme != "http":
        raise ProfileError(
            f"'tokenEndpoint' of the profile {read.where} is http, which would send the client secret in clear text; "
            "expected https."
        )
    return ClientCredentials(
        token_endpoint, read.text("clientId"), Secret(read.text("clientSecret")), read.optional_text("scope")
    )


def _http_url(read: _Fields, name: str, *, query: bool = False) -> str:
    url = read.text(name)
    expected = f"'{name}' of the profile {read.where} must be an http(s) URL"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ProfileError(f"{expected}; the one found is malformed.") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ProfileError(f"{expected}, such as https://sharing.example.com/delta-sharing; found {safe_url(url)!r}.")
    if parts.username is not None or parts.password is not None:
        raise ProfileError(f"{expected} without user name and password in it; credentials are fields of their own.")
    if parts.fragment or (parts.query and not query):
        raise ProfileError(f"{expected} without query string and fragment; found {safe_url(url)!r}.")
    return url[:-1] if url.endswith("/") else url


def _shown(path: str) -> str:
    return safe_url(path) if _URL.match(path) else repr(path)


@dataclasses.dataclass(frozen=True)
class _Fields:
    fields: Mapping[str, Any]
    where: str

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if value is None:
            raise ProfileError(f"The profile {self.where} has no '{name}'; download it again from the provider.")
        if not isinstance(value, str) or not value.strip():
            found = "blank" if isinstance(value, str) else f"a {type(value).__name__}"
            raise ProfileError(f"'{name}' of the profile {self.where} is {found}; expected text.")
        return value.strip()

    def optional_text(self, name: str) -> str | None:
        value = self.fields.get(name)
        return None if value is None or value == "" else self.text(name)
