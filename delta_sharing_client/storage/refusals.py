"""The meaning of a store's errors: the status, the code, and the setting that may be wrong.

Messages of stores and of obstore may contain URLs, and so perhaps signatures. Only the status and the store's code and
region are taken from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from delta_sharing_client.errors import TransportError
from delta_sharing_client.fetch.source import Refused
from delta_sharing_client.retry import Transient

_STATUS = re.compile(r"\bstatus(?: code)?:? (\d{3})\b|\b(\d{3}) [A-Z][a-z]+")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_REGION = re.compile(r"<Region>([a-z]{2,}[\w-]{1,30})</Region>|expecting '([a-z]{2,}[\w-]{1,30})'")

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
_REDIRECTS = frozenset((301, 302, 307, 308))
_CODE_HEADER = re.compile(r"[A-Za-z]{1,60}")
_REGION_HEADER = re.compile(r"[a-z]{2,}[\w-]{1,30}", re.ASCII)
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

    @classmethod
    def of_response(cls, status: int, headers: Iterable[tuple[str, str]], body: bytes = b"") -> StoreError:
        """Read the facts from a response, or the first bytes of its body."""
        given = {name.lower(): value for name, value in headers}
        text = body.decode("utf-8", "replace")
        code, region = _CODE.search(text), _REGION.search(text)
        stated = given.get("x-ms-error-code", ""), given.get("x-amz-bucket-region", "")
        if code is None:
            code = _CODE_HEADER.fullmatch(stated[0])
        # The header has the bucket's region; the body of a refusal may also name that of the endpoint.
        named = _REGION_HEADER.fullmatch(stated[1])
        return cls(
            status,
            "" if code is None else code[code.lastindex or 0],
            named[0] if named is not None else "" if region is None else region[1] or region[2],
        )

    @classmethod
    def of(cls, error: Exception) -> StoreError:
        """Read the facts from the message of ``error``."""
        text = str(error)
        status = _STATUS.search(text.partition("\n")[0])
        code, region = _CODE.search(text), _REGION.search(text)
        # In this case, obstore does not state the status.
        redirected = 301 if "incorrectly configured region" in text else None
        return cls(
            redirected if status is None else int(status[1] or status[2]),
            "" if code is None else code[1],
            "" if region is None else region[1] or region[2],
        )

    @property
    def reason(self) -> str:
        """The code and advice, as part of a sentence; empty if there is neither."""
        return ": ".join(part for part in (self.code, advice(self.code, self.region, self.status)) if part)

    @property
    def is_about_credentials(self) -> bool:
        """Whether new credentials may help; they are requested once."""
        return self.status in (401, 403) or (self.status == 400 and self.code in _CREDENTIALS)


def is_refusal(error: Exception) -> bool:
    """Return whether the store refused the credentials; obstore's exceptions for this are not raised by listings."""
    from obstore import exceptions

    named = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    return isinstance(error, named) or StoreError.of(error).status in (401, 403)


def translated(error: Exception, subject: str, table: str | None) -> Refused | Transient:
    """Translate an exception of obstore into ``Refused``, or into ``Transient`` if a retry may help.

    ``subject`` is the owner of the location, for messages.
    """
    from obstore import exceptions

    facts = StoreError.of(error)
    if isinstance(error, FileNotFoundError):
        # A missing bucket may mean a wrong setting, so there is advice about it; a missing file needs none.
        return Refused(404, None, facts.reason if facts.code in _ADVICE else "")
    if isinstance(error, exceptions.PreconditionError):
        return Refused(412, None)
    if is_refusal(error):
        return Refused(403, None, facts.reason)
    if facts.status is not None and (facts.status in _REDIRECTS or facts.status in (400, 405, 416, 501)):
        return Refused(facts.status, None, facts.reason)
    if isinstance(error, (exceptions.InvalidPathError, exceptions.NotSupportedError)):
        return Refused(400, None, "its name cannot be requested")
    said = "it did not respond" if facts.status is None else f"it responded with HTTP status {facts.status}"
    return Transient(TransportError(f"Reading from the storage of {subject} failed: {said}.", table=table))
