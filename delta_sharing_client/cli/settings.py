"""The options that every command takes, wherever on the command line they stand."""

from __future__ import annotations

import dataclasses

import typer


@dataclasses.dataclass(frozen=True)
class Settings:
    """Where the server is, and how to talk to who asked.

    Parameters
    ----------
    profile:
        Path or URL of the profile file, None for the one of the environment.
    as_json:
        Print JSON, not tables for people.
    verbose:
        Say on stderr what a read cost.
    """

    profile: str | None = None
    as_json: bool = False
    verbose: bool = False

    @classmethod
    def of(cls, context: typer.Context, profile: str | None, as_json: bool, verbose: bool = False) -> Settings:
        """Return the options given after the command, completed by those given before it."""
        before: Settings = context.obj or cls()
        return cls(profile or before.profile, as_json or before.as_json, verbose or before.verbose)
