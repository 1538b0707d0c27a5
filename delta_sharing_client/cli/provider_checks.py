"""The command that checks a server; ``commands`` registers it.

Its imports run when it is called, as in ``commands``.
"""

import enum
import sys
from typing import Annotated, Optional

import typer

from delta_sharing_client.cli.program import ExitCode, Settings
from delta_sharing_client.errors import UsageError


class ReportFormat(str, enum.Enum):
    """The formats of the report."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    HTML = "html"


def conformance(
    settings: Settings,
    profile_file: Annotated[
        Optional[str], typer.Argument(metavar="PROFILE", help="profile file, URL or name; default: as --profile")
    ] = None,
    share: Annotated[Optional[str], typer.Option("--share", metavar="SHARE", help="Look only at this share.")] = None,
    only: Annotated[
        Optional[str],
        typer.Option(
            "--only",
            metavar="WHAT,...",
            help="tables, volumes, skills, models, iceberg, levels such as change-feed, or ids of checks.",
        ),
    ] = None,
    report_format: Annotated[
        Optional[ReportFormat],
        typer.Option("--format", metavar="FORMAT", help="text, json, junit or html; default: text."),
    ] = None,
) -> None:
    """Check a server against the sentences of the protocols, with requests that only read. The exit code is 5 if one
    fails.

    Example: delta-sharing conformance demo.share
    Example: delta-sharing conformance demo.share --only tables --format junit
    """
    from delta_sharing_client import optional

    if profile_file is not None and settings.profile not in (None, profile_file):
        raise UsageError(f"Two profiles were given, {settings.profile!r} and {profile_file!r}; give one of them.")
    if settings.as_json and report_format not in (None, ReportFormat.JSON):
        raise UsageError(f"The option --json prints JSON, but --format requests {report_format.value}; give one.")
    kit = optional.load("delta_sharing_client.checks.run", "conformance")
    words = None if only is None else [word.strip() for word in only.split(",") if word.strip()]
    report = kit.conformance(profile_file or settings.profile, share=share, only=words)
    chosen = ReportFormat.JSON if settings.as_json else report_format or ReportFormat.TEXT
    text = getattr(report, f"to_{chosen.value}")()
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    if report.failed:
        raise typer.Exit(ExitCode.SERVER)


COMMANDS = {"conformance": conformance}
