"""Runs the checks against the server of a profile."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from delta_sharing_client.checks import (
    access_checks,
    asset_checks,
    asynchronous_checks,
    delta_checks,
    directory_checks,
    feed_checks,
    forms,
    hint_checks,
    iceberg_checks,
    listing_checks,
    model_checks,
    open_table_checks,
    parquet_checks,
    time_travel_checks,
    url_checks,
)
from delta_sharing_client.checks.check import CHECKS, Check, Failed, Level, NotOffered, NotTestable, Outcome
from delta_sharing_client.checks.checked_server import MALFORMED, Server
from delta_sharing_client.checks.conformance_report import ConformanceReport, Result
from delta_sharing_client.errors import AuthError, DeltaSharingError, NotFoundError, UsageError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.profile import Profile, ProfileSource
from delta_sharing_client.redact import safe_url

# Importing these modules registers their checks.
MODULES = (
    access_checks,
    listing_checks,
    parquet_checks,
    hint_checks,
    time_travel_checks,
    asset_checks,
    model_checks,
    open_table_checks,
    iceberg_checks,
    delta_checks,
    feed_checks,
    asynchronous_checks,
    directory_checks,
    url_checks,
)


def conformance(
    profile: ProfileSource = None,
    *,
    share: str | None = None,
    only: Sequence[str] | None = None,
    options: ReadOptions | None = None,
) -> ConformanceReport:
    """Check the server of ``profile`` against the Delta Sharing and OpenSharing protocols; the requests only read.

    Parameters
    ----------
    profile:
        The profile, as for ``SharingClient``.
    share:
        Look only at this share; by default, at all that the profile may see.
    only:
        Run only these checks: ``tables``, ``volumes``, ``skills``, ``models``, ``iceberg``, names of levels, or ids of
        checks.
    options:
        Time limits, proxy and certificates.

    Returns
    -------
    ConformanceReport
        One result for each check.

    Raises
    ------
    UsageError
        If ``only`` has an unknown word, or a package of the extra ``conformance`` is not installed.
    AuthError, TransportError
        If the server refuses the profile, or cannot be reached.
    NotFoundError
        If ``share`` is not shared.
    """
    checks = selected(only)
    server = opened(profile, options, share)
    try:
        results = tuple(result_of(one, server) for one in checks)
    finally:
        server.close()
    return ConformanceReport(safe_url(server.profile.endpoint), results, dt.datetime.now(dt.timezone.utc))


def opened(profile: ProfileSource, options: ReadOptions | None = None, share: str | None = None) -> Server:
    """Return the server of ``profile``, for which it must be valid. Raises the errors of ``conformance``."""
    forms.load()
    server = Server(Profile.load(profile, options), options, share)
    try:
        _require_access(server, share)
    except BaseException:
        server.close()
        raise
    return server


def all_checks() -> list[Check]:
    """Return all checks, level by level."""
    levels = list(Level)
    return sorted(CHECKS.values(), key=lambda one: levels.index(one.level))


def selected(only: Sequence[str] | None) -> list[Check]:
    """Return the checks whose level, subject or id is in ``only``; all checks for ``None``. Raises ``UsageError`` for
    an unknown word."""
    checks = all_checks()
    if only is None:
        return checks
    known = dict.fromkeys(word for level in Level for word in (level.subject, level.text))
    ids = {one.id for one in checks}
    for word in only:
        if word not in known and word not in ids:
            raise UsageError(
                f"Expected what to check as one of {', '.join(known)}, or the id of a check; found {word!r}."
            )
    return [one for one in checks if {one.id, one.level.text, one.level.subject} & set(only)]


def result_of(one: Check, server: Server) -> Result:
    """Run one check."""
    server.latest = None
    try:
        one.run(server)
    except NotOffered as told:
        return Result(one, Outcome.NOT_OFFERED, server.told(told))
    except NotTestable as told:
        return Result(one, Outcome.NOT_TESTABLE, server.told(told))
    except Failed as failure:
        answer = failure.answer or server.latest
        return Result(one, Outcome.FAILS, server.told(failure), server.shown(answer) if answer else "")
    except DeltaSharingError as error:
        return Result(one, Outcome.FAILS, server.told(error), server.shown(server.latest) if server.latest else "")
    except MALFORMED:
        # A response with another form than the check reads; the checks of forms say more.
        found = server.shown(server.latest) if server.latest else ""
        return Result(one, Outcome.FAILS, "The response does not have the form that the specification says.", found)
    return Result(one, Outcome.HOLDS)


def _require_access(server: Server, share: str | None) -> None:
    answer = server.get("shares")
    if answer.status in (401, 403):
        raise AuthError(
            f"The server refused the profile's credentials ({answer.status}); ask the data provider for a new profile.",
            status=answer.status,
        )
    if share is None:
        return
    try:
        names = [str(item.get("name")) for item in server.items("shares")]
    except (Failed, NotOffered):
        return
    if share.lower() not in map(str.lower, names):
        raise NotFoundError(f"The share '{share}' is not shared with this profile.", status=404)
