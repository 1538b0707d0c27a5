"""Passes credentials from a session to the data source.

Spark shows the options of a classic session nowhere. A server of Spark Connect, however, writes every plan with all
options into the event log and on its UI's page "Connect". So the plan contains random bytes, and a file among the
session's artifacts contains the credentials combined with them (XOR). Neither alone reveals the credentials. The
files of a planned read, with credentials and signed URLs, are sent in the same way, but with a key in place of the
random bytes.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import itertools
import json
import operator
import os
import re
import secrets
import tempfile
import weakref
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from pyspark import SparkFiles

from delta_sharing_client.errors import UsageError
from delta_sharing_client.http.logins import BasicLogin, BearerToken, ClientCredentials
from delta_sharing_client.instants import to_instant
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.redact import Secret
from delta_sharing_client.spark.pushed import not_for_users
from delta_sharing_client.spark.spark_sessions import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTION = "credentials"
_REFERENCE = re.compile(r"(delta-sharing-[0-9a-f]{32}):([A-Za-z0-9+/=]+)")
# For each session of Spark Connect: the credentials that were sent, and the reference to each.
_sent: weakref.WeakKeyDictionary[SparkSession, dict[str, str]] = weakref.WeakKeyDictionary()


def fields_of(profile: Profile) -> dict[str, str] | None:
    """Return ``profile`` as options, or ``None`` if options cannot represent it: if its credentials have an audience,
    are sent in the body, are signed, or come from a file or function. Spark redacts option names that contain
    ``token``, ``secret`` and ``password``."""
    credentials = profile.credentials
    found: dict[str, str | None] = {
        "endpoint": profile.endpoint,
        "icebergEndpoint": profile.iceberg_endpoint,
        "shareCredentialsVersion": str(profile.version),
    }
    if isinstance(credentials, BearerToken) and isinstance(credentials.token, Secret):
        expires = credentials.expires
        found["type"] = None if profile.version == 1 else "bearer_token"
        found["bearerToken"] = credentials.token.reveal()
        found["expirationTime"] = None if expires is None else to_instant(expires, "expirationTime")
    elif isinstance(credentials, BasicLogin):
        found |= {"type": "basic", "username": credentials.username, "password": credentials.password.reveal()}
    elif isinstance(credentials, ClientCredentials) and credentials.client_secret:
        if any((credentials.audience, credentials.assertion, credentials.resource, credentials.secret_in_body)):
            return None
        found |= {
            "type": "oauth_client_credentials",
            "tokenEndpoint": credentials.token_endpoint,
            "clientId": credentials.client_id,
            "clientSecret": credentials.client_secret.reveal(),
            "scope": credentials.scope,
        }
    else:
        return None
    return {name: value for name, value in found.items() if value is not None}


def given_to(session: SparkSession, fields: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options that give a read in ``session`` the credentials ``fields``. With Spark Connect, the
    credentials are sent to the server, once per session."""
    if context_of(session) is not None:
        return fields
    sent = _sent.setdefault(session, {})
    text = json.dumps(dict(fields))
    if text not in sent:
        sent[text] = _send(session, text.encode())
    return {OPTION: sent[text]}


def _send(session: SparkSession, content: bytes) -> str:
    pad = secrets.token_bytes(len(content))
    return f"{_sent_file(session, _combined(content, pad))}:{base64.b64encode(pad).decode()}"


def _sent_file(session: SparkSession, content: bytes) -> str:
    """Make ``content`` a file of the session's artifacts, and return its name."""
    name = f"delta-sharing-{secrets.token_hex(16)}"
    with tempfile.TemporaryDirectory(prefix="delta-sharing-") as folder:
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(content)
        session.addArtifacts(path, file=True)
    return name


@dataclasses.dataclass(frozen=True, repr=False)
class SentParts:
    """The parts of a planned read, encrypted in a file of the session's artifacts. Can be pickled."""

    _name: str
    _key: bytes
    _ends: tuple[int, ...]

    def part(self, number: int) -> bytes:
        """Return the pickle of a part; call it in a task of the session."""
        begin = self._ends[number - 1] if number else 0
        with open(SparkFiles.get(self._name), "rb") as file:
            file.seek(begin)
            return _keyed(file.read(self._ends[number] - begin), self._key, number)


def send_parts(session: SparkSession, parts: Sequence[bytes]) -> SentParts:
    """Send the pickles ``parts`` to the server of a Spark Connect session."""
    key = secrets.token_bytes(32)
    content = b"".join(_keyed(part, key, number) for number, part in enumerate(parts))
    return SentParts(_sent_file(session, content), key, tuple(itertools.accumulate(map(len, parts))))


def _keyed(content: bytes, key: bytes, number: int) -> bytes:
    """Encrypt or decrypt a part. Each key and number is used once, so the hash can be used as a stream of a cipher."""
    stream = hashlib.shake_256(key + number.to_bytes(8, "big")).digest(len(content))
    return (int.from_bytes(content, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(content), "big")


def found_by(options: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """Return ``options`` with the credentials to which the reference from ``given_to`` points. Call it in a Python
    worker that Spark starts on the driver.

    Raises ``UsageError`` if the server does not have the credentials, or if ``given_to`` did not write the reference.
    """
    given = {str(name).lower(): value for name, value in options.items()}
    if OPTION not in given:
        return options
    match = _REFERENCE.fullmatch(given.pop(OPTION))
    if match is None:
        raise not_for_users(OPTION)
    try:
        with open(SparkFiles.get(match[1]), "rb") as file:
            content = _combined(file.read(), base64.b64decode(match[2], validate=True))
        fields = msgspec.json.decode(content, type=dict[str, str])
    except OSError:
        raise UsageError(
            "The server of Spark Connect does not have the credentials of this DataFrame or catalog: they were sent to "
            "another session. Load the table, or attach the catalog, in this session again."
        ) from None
    except (binascii.Error, ValueError):
        raise not_for_users(OPTION) from None
    return {**given, **{name.lower(): value for name, value in fields.items()}}


def _combined(content: bytes, pad: bytes) -> bytes:
    return bytes(map(operator.xor, content, pad))
