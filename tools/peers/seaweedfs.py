"""Run SeaweedFS as an Iceberg REST catalog: sign-in with OAuth2, and temporary credentials for the files of a table."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import requests

from tests.s3 import REGION

PROGRAM = os.environ.get("SEAWEEDFS")
WAREHOUSE = "lake"
WRITER = ("planted-writer", "planted-writer-secret")
READER = ("planted-reader", "planted-reader-secret")
"""A key that may read the catalog. It may not read files without the credentials of the catalog."""
STRANGER = ("planted-stranger", "planted-stranger-secret")
"""A key that may do nothing."""

_SIGNING_KEY = base64.b64encode(b"planted signing key of tests").decode()
_ROLE = "arn:aws:iam::role/Tables"
_IDENTITIES = {
    "identities": [
        {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
        for name, (key, secret), actions in (
            ("writer", WRITER, ["Admin"]),
            ("reader", READER, ["s3tables:Get*", "s3tables:List*"]),
            ("stranger", STRANGER, []),
        )
    ]
}


@dataclasses.dataclass(frozen=True)
class Seaweedfs:
    """A running server: the addresses of its catalog and of its store."""

    catalog: str
    store: str

    @property
    def sign_in(self) -> str:
        """The token endpoint."""
        return f"{self.catalog}/v1/oauth/tokens"

    def get(self, path: str, key: tuple[str, str] = READER, **headers: str) -> requests.Response:
        """Return the catalog's response to a request for ``path`` by the owner of a key."""
        with requests.Session() as session:
            session.trust_env = False
            form = {"grant_type": "client_credentials", "client_id": key[0], "client_secret": key[1]}
            token = session.post(self.sign_in, data=form, timeout=10).json()["access_token"]
            headers["Authorization"] = f"Bearer {token}"
            return session.get(f"{self.catalog}{path}", headers=headers, timeout=10)

    @property
    def properties(self) -> dict[str, str]:
        """Properties of a catalog with which pyiceberg and Spark write tables; the writer has keys of its own."""
        return {
            "type": "rest",
            "uri": self.catalog,
            "warehouse": WAREHOUSE,
            "credential": ":".join(WRITER),
            "oauth2-server-uri": self.sign_in,
            "header.X-Iceberg-Access-Delegation": "",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self.store,
            "s3.path-style-access": "true",
            "s3.access-key-id": WRITER[0],
            "s3.secret-access-key": WRITER[1],
            "client.region": REGION,
        }


@contextlib.contextmanager
def seaweedfs(
    folder: pathlib.Path, *, token_seconds: int = 3600, key_seconds: int = 3600, trusts_catalog: bool = True
) -> Iterator[Seaweedfs]:
    """Run a server with an empty warehouse on free ports; its files are in ``folder``.

    ``token_seconds`` and ``key_seconds`` are the lifetimes of the tokens of OAuth2 and of the credentials of tables.
    Without ``trusts_catalog``, the catalog may not assume its role, and so has no credentials to give.
    """
    (folder / "s3.json").write_text(json.dumps(_IDENTITIES))
    (folder / "iam.json").write_text(json.dumps(_access(key_seconds, trusts_catalog=trusts_catalog)))
    services = ("master", "volume", "filer", "s3", "admin")
    names = [f"{service}.port{kind}" for service in services for kind in ("", ".grpc")] + ["s3.port.iceberg"]
    with contextlib.ExitStack() as held:
        free = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        ports = dict(zip(names, (one.getsockname()[1] for one in free), strict=True))
    server = Seaweedfs(f"http://127.0.0.1:{ports['s3.port.iceberg']}", f"http://127.0.0.1:{ports['s3.port']}")
    options = {
        **ports,
        "dir": folder,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "s3.config": folder / "s3.json",
        "s3.iam.config": folder / "iam.json",
        "s3.iceberg.credentialRole": _ROLE,
        # With 0, the duration in the configuration of roles; others are at least 15 minutes.
        "s3.iceberg.credentialDurationSeconds": 0,
        "s3.externalUrl": server.store,
        "s3.localSocket": folder / "s3.sock",
        "filer.localSocket": folder / "filer.sock",
        "s3.port.lance": 0,
        "admin.port.legacy": 0,
        "admin.ui": "false",
        "webdav": "false",
        "master.telemetry": "false",
        "tableBucket": WAREHOUSE,
    }
    command = [str(PROGRAM), "mini", *(f"-{name}={value}" for name, value in options.items())]
    environment = {**os.environ, "HOME": str(folder), "ICEBERG_OAUTH_TOKEN_EXPIRY": str(token_seconds)}
    log = folder / "log"
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        try:
            for _ in range(600):
                with contextlib.suppress(requests.RequestException, ValueError, KeyError):
                    if server.get(f"/v1/{WAREHOUSE}/namespaces").ok:
                        break
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield server
        finally:
            # It takes long to end by itself.
            process.kill()


def _access(key_seconds: int, *, trusts_catalog: bool) -> dict[str, Any]:
    """Return the configuration of the role that the catalog assumes to give credentials."""
    trusted = {
        "Effect": "Allow",
        "Principal": {"Federated": "iceberg-catalog" if trusts_catalog else "another"},
        "Action": ["sts:AssumeRoleWithCredentials"],
    }
    everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}
    return {
        "sts": {
            "tokenDuration": f"{key_seconds}s",
            "issuer": "seaweedfs",
            "signingKey": _SIGNING_KEY,
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "policies": [{"name": "All", "document": {"Version": "2012-10-17", "Statement": [everything]}}],
        "roles": [
            {
                "roleName": "Tables",
                "roleArn": _ROLE,
                "attachedPolicies": ["All"],
                "trustPolicy": {"Version": "2012-10-17", "Statement": [trusted]},
            }
        ],
    }
