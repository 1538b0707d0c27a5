"""Tables in S3 or a compatible store: their logs, signed URLs for their files, and temporary credentials.

The log of such a table is copied to a local directory, object by object, and every request updates that copy. Data
files are not copied: clients get the store's pre-signed URLs (``url``), or credentials that only allow reading below
the table's location (``dir``; protocol, "Generate Temporary Table Credential").
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from delta_sharing_client.redact import Secret

from . import iceberg_metadata
from .catalog import Catalog, TableEntry, TableFormat
from .errors import ConfigError, data_lost
from .signing import Use

_SCHEMES = ("s3://", "s3a://", "s3n://")
# The token service's limits for the lifetime of credentials; the upper limit is the one for a user's access key.
_SHORTEST_SECONDS, _LONGEST_SECONDS = 900, 129_600


def is_s3(location: str) -> bool:
    """Return whether ``location`` is an S3 address."""
    return location.startswith(_SCHEMES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class S3Settings:
    """The settings with which this server accesses S3; ``None`` stands for the value in the environment (such as
    ``AWS_ENDPOINT_URL`` and ``AWS_REGION``) or the AWS configuration.

    ``endpoint`` is the URL of a compatible store and of its token service.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: Secret | None = None


class S3Tables:
    """The tables of a catalog that are in S3. Thread-safe."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._seen: dict[str, dict[str, str]] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._clients: dict[str, Any] = {}

    def close(self) -> None:
        """Remove the copied logs."""
        if self._folder is not None:
            self._folder.cleanup()

    def mirrored(self, catalog: Catalog) -> Catalog:
        """Return the catalog with a local directory for every table in S3. Raises `ConfigError` if a table cannot be
        read."""
        return dataclasses.replace(catalog, tables=tuple(self._mirrored(entry) for entry in catalog.tables))

    def refresh(self, entry: TableEntry) -> None:
        """Update the copied log of a table. Raises `ApiError` if the store fails."""
        if entry.storage is None or not is_s3(entry.storage) or TableFormat.DELTA not in entry.formats:
            return
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with self._lock:
                self._copy_log(entry)
        except (BotoCoreError, ClientError) as error:
            raise data_lost(f"The log of the table '{entry.full_name}' cannot be read: {_reason(error)}.") from error

    def grant(self, entry: TableEntry, lifetime: float) -> S3Grant:
        """Return a grant that signs URLs for a table's files; they are valid for ``lifetime`` seconds."""
        assert entry.storage is not None
        return S3Grant(self._client("s3"), entry.storage, lifetime)

    def credentials(self, location: str, lifetime: float) -> dict[str, Any]:
        """Return ``awsTempCredentials`` that only allow listing and reading below ``location``."""
        from botocore.exceptions import BotoCoreError, ClientError

        seconds = int(min(max(lifetime, _SHORTEST_SECONDS), _LONGEST_SECONDS))
        try:
            response = self._client("sts").get_federation_token(
                Name="delta-sharing", DurationSeconds=seconds, Policy=policy_of(location)
            )
        except (BotoCoreError, ClientError) as error:
            raise data_lost(f"The token service returned no credentials: {_reason(error)}.") from error
        given = response["Credentials"]
        return {
            "accessKeyId": given["AccessKeyId"],
            "secretAccessKey": given["SecretAccessKey"],
            "sessionToken": given["SessionToken"],
        }

    def folder(self, entry: TableEntry) -> S3Folder:
        """Return the location of a table in S3 as a folder, for listing it and reading small files."""
        assert entry.storage is not None
        return S3Folder(self._client("s3"), entry.storage, entry.full_name)

    def client_properties(self) -> dict[str, str]:
        """Return the properties that tell Iceberg clients how to reach this store."""
        properties = {"client.region": self._client("s3").meta.region_name}
        if (endpoint := self._endpoint()) is not None:
            properties |= {"s3.endpoint": endpoint, "s3.path-style-access": "true"}
        return properties

    def _endpoint(self) -> str | None:
        """Return the URL of the store, ``None`` if it is Amazon's own in the region."""
        if self._settings.endpoint is not None:
            return self._settings.endpoint
        # botocore combines the environment and the configuration files, but does not show the result.
        configured, usual = (
            self._client("s3", ignore_configured=ignored).meta.endpoint_url for ignored in (False, True)
        )
        return None if configured == usual else str(configured)

    def _mirrored(self, entry: TableEntry) -> TableEntry:
        if entry.storage is None or not is_s3(entry.storage):
            return entry
        self._client("s3")  # called first, because its error names a missing package
        from botocore.exceptions import BotoCoreError, ClientError

        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="mock-server-logs-")
        entry = dataclasses.replace(entry, location=Path(self._folder.name) / entry.id)
        try:
            with self._lock:
                self._copy_log(entry)
        except (BotoCoreError, ClientError) as error:
            raise ConfigError(f"The table '{entry.full_name}' cannot be read from S3: {_reason(error)}.") from error
        logged = bool(self._seen.get(entry.id))
        names = self.folder(entry).names(iceberg_metadata.FOLDER)
        there = {TableFormat.DELTA: logged, TableFormat.ICEBERG: iceberg_metadata.newest(names) is not None}
        formats = tuple(one for one in TableFormat if there[one])
        return dataclasses.replace(entry, formats=formats) if formats else entry

    def _copy_log(self, entry: TableEntry) -> None:
        assert entry.storage is not None
        bucket, prefix = _split(entry.storage)
        client, seen, found = self._client("s3"), self._seen.get(entry.id, {}), {}
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}_delta_log/")
        for item in (item for page in pages for item in page.get("Contents", ())):
            key, tag = item["Key"], f"{item['ETag']} {item['LastModified']}"
            if key.endswith("/"):
                continue
            found[key] = tag
            if seen.get(key) != tag:
                path = entry.location / key[len(prefix) :]
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(f".{path.name}.partial")
                partial.write_bytes(client.get_object(Bucket=bucket, Key=key)["Body"].read())
                # The modification time of a log file is the time of its commit.
                changed = item["LastModified"].timestamp()
                os.utime(partial, (changed, changed))
                os.replace(partial, path)
        for key in seen.keys() - found.keys():
            (entry.location / key[len(prefix) :]).unlink(missing_ok=True)
        self._seen[entry.id] = found

    def _client(self, service: str, *, ignore_configured: bool = False) -> Any:
        """Return a client of ``service``; ``ignore_configured`` ignores endpoints in the environment and in files."""
        key = f"{service} {ignore_configured}"
        if key not in self._clients:
            try:
                import boto3
                from botocore.config import Config
            except ImportError as error:
                raise ConfigError(
                    "A table in S3 needs boto3: run pip install 'delta-sharing-client[server-s3]'."
                ) from error
            from botocore.exceptions import BotoCoreError

            settings = self._settings
            secret = settings.secret_access_key
            try:
                self._clients[key] = boto3.session.Session().client(
                    service,
                    endpoint_url=settings.endpoint,
                    # botocore knows only AWS_DEFAULT_REGION; other AWS libraries prefer this variable to it.
                    region_name=settings.region or os.environ.get("AWS_REGION"),
                    aws_access_key_id=settings.access_key_id,
                    aws_secret_access_key=None if secret is None else secret.reveal(),
                    config=Config(
                        signature_version="s3v4" if service == "s3" else None,
                        s3={"addressing_style": "path" if settings.endpoint else "auto"},
                        retries={"total_max_attempts": 3},
                        ignore_configured_endpoint_urls=ignore_configured or None,
                    ),
                )
            except (BotoCoreError, ValueError) as error:
                raise ConfigError(f"S3 cannot be reached: {_reason(error)}.") from error
        return self._clients[key]


class S3Folder:
    """A location in S3. Methods raise `ApiError` if the store fails."""

    def __init__(self, client: Any, location: str, table: str) -> None:
        self._client = client
        self._bucket, self._prefix = _split(location)
        self._table = table

    def names(self, folder: str) -> list[str]:
        """Return the names of the files directly in a folder."""
        prefix = f"{self._prefix}{folder}/"
        with self._failing():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/"
            )
            return [item["Key"][len(prefix) :] for page in pages for item in page.get("Contents", ())]

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        with self._failing():
            content: bytes = self._client.get_object(Bucket=self._bucket, Key=self._prefix + path)["Body"].read()
            return content

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise data_lost(f"The table '{self._table}' cannot be read: {_reason(error)}.") from error


class S3Grant:
    """Signs the URLs of one response, like ``mock_server.signing.Grant`` for local files."""

    def __init__(self, client: Any, location: str, lifetime: float) -> None:
        self._client = client
        self._bucket, self._prefix = _split(location)
        self._seconds = max(1, int(lifetime))
        self.expires_ms = int((time.time() + self._seconds) * 1000)

    def signer(self, use: Use) -> Callable[[str], str]:
        """Return a function that signs the URL of a file, given its path relative to the table or its S3 address."""

        def url(path: str) -> str:
            bucket, key = _split(unquote(path), folder=False) if is_s3(path) else (self._bucket, self._prefix + path)
            signed: str = self._client.generate_presigned_url(
                "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=self._seconds
            )
            return signed

        return url


def _split(location: str, *, folder: bool = True) -> tuple[str, str]:
    """Return the bucket and the key of an address; the key of a folder ends with a slash."""
    bucket, _, key = location.split("://", 1)[1].partition("/")
    return bucket, f"{key.rstrip('/')}/" if folder and key.strip("/") else key if not folder else ""


def policy_of(location: str) -> str:
    """Return the policy for credentials that allow listing and reading below ``location``, and nothing else."""
    bucket, prefix = _split(location)
    name = f"arn:aws:s3:::{bucket}"
    statements = [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{name}/{prefix}*"},
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": name,
            "Condition": {"StringLike": {"s3:prefix": f"{prefix}*"}},
        },
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def _reason(error: Exception) -> str:
    code = getattr(error, "response", {}).get("Error", {}).get("Code")
    return f"the store responded '{code}'" if code else type(error).__name__
