"""Identity tokens of machines in a cloud, without a stored secret; each cloud's own library requests them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from delta_sharing_client import optional
from delta_sharing_client.errors import AuthError, UsageError


@dataclasses.dataclass(frozen=True, slots=True)
class WorkloadIdentity:
    """The identity of this machine in a cloud.

    Its token is an assertion for a token endpoint (RFC 7523, section 2.2) or, for a server that trusts the cloud, a
    bearer token. ``client_id`` chooses one of several identities of a machine in Azure.
    """

    cloud: str
    audience: str
    client_id: str | None = None

    def reveal(self) -> str:
        """Return a new token. Raises ``UsageError`` if the cloud's library is not installed, and ``AuthError`` if this
        machine has no identity, or the cloud issues no token."""
        try:
            token = CLOUDS[self.cloud](self)
        except UsageError:
            raise
        except Exception as error:
            # The messages of the libraries may contain the response, and so the token.
            reason = type(error).__name__
        else:
            if token.strip():
                return token.strip()
            reason = "an empty token"
        raise AuthError(
            f"This machine gets no identity token for the audience '{self.audience}' from {self.cloud} ({reason}); "
            "check that it has an identity there, and that the identity may request tokens."
        )


def _azure(identity: WorkloadIdentity) -> str:
    credentials = optional.load("azure.identity", "azure")
    scope = identity.audience if identity.audience.endswith("/.default") else f"{identity.audience}/.default"
    with credentials.ManagedIdentityCredential(client_id=identity.client_id) as credential:
        return str(credential.get_token(scope).token)


def _gcp(identity: WorkloadIdentity) -> str:
    tokens = optional.load("google.oauth2.id_token", "gcp")
    transport = optional.load("google.auth.transport.requests", "gcp")
    return str(tokens.fetch_id_token(transport.Request(), identity.audience))


def _aws(identity: WorkloadIdentity) -> str:
    client = optional.load("boto3", "aws").client("sts")
    response = client.get_web_identity_token(
        Audience=[identity.audience], SigningAlgorithm="RS256", DurationSeconds=3600
    )
    return str(response["WebIdentityToken"])


CLOUDS: dict[str, Callable[[WorkloadIdentity], str]] = {"azure": _azure, "gcp": _gcp, "aws": _aws}
"""How each cloud's library requests a token."""
