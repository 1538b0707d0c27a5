"""The meaning of a store's errors: the status, the code, and the setting that may be wrong.

Messages of stores may contain URLs, and so perhaps signatures. Only the status and the store's code and region are
shown.
"""

from __future__ import annotations

from typing import NamedTuple

_ENDPOINT = "if the bucket is not in AWS, set 'endpoint' in 'storage_options'"
_REGION_ADVICE = "set 'region' in 'storage_options'"
_CLOCK = "the clock of this machine differs too much from the store's; correct it"
_PATH_STYLE = (
    "check 'endpoint' in 'storage_options', and set 'virtual_hosted_style_request' to 'true' if the host of the "
    "endpoint names the bucket"
)
_ADVICE = {
    "InvalidAccessKeyId": _ENDPOINT,
    "InvalidToken": _ENDPOINT,
    "NoSuchBucket": _PATH_STYLE,
    "InvalidBucketName": _PATH_STYLE,
    "ContainerNotFound": "the container does not exist; check 'endpoint' in 'storage_options', or ask the provider",
    "PermanentRedirect": _REGION_ADVICE,
    "TemporaryRedirect": _REGION_ADVICE,
    "AuthorizationHeaderMalformed": _REGION_ADVICE,
    "IllegalLocationConstraintException": _REGION_ADVICE,
    "SignatureDoesNotMatch": f"{_REGION_ADVICE}, and check 'endpoint' and whether a proxy changes requests",
    "RequestTimeTooSkewed": _CLOCK,
    "RequestExpired": _CLOCK,
}
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
# Codes of responses with status 400 that are about the credentials. AWS refuses expired session tokens in this way.
_CREDENTIALS = frozenset(
    ("ExpiredToken", "TokenRefreshRequired", "InvalidToken", "AuthenticationFailed", "InvalidAuthenticationInfo")
)


def advice(code: str, region: str = "", status: int | None = None) -> str:
    """Return the setting to check after an error with this code, as part of a sentence; empty if nothing is known.

    ``region`` is the region that the store named.
    """
    found = _ADVICE.get(code, _REGION_ADVICE if status in _REDIRECTS else "")
    if found.startswith(_REGION_ADVICE) and region:
        found = found.replace("'region'", f"'region' to '{region}'", 1)
    return found


class StoreError(NamedTuple):
    """The facts in an error of a store: the HTTP status, and the store's error code and region; empty if not stated."""

    status: int | None
    code: str
    region: str

    @property
    def advice(self) -> str:
        """The setting to check, as part of a sentence; empty if nothing is known."""
        return advice(self.code, self.region, self.status)

    @property
    def reason(self) -> str:
        """The code and advice, as part of a sentence; empty if there is neither."""
        return ": ".join(part for part in (self.code, self.advice) if part)

    @property
    def is_about_credentials(self) -> bool:
        """Whether new credentials may help; they are requested once."""
        return self.status in (401, 403) or (self.status == 400 and self.code in _CREDENTIALS)
