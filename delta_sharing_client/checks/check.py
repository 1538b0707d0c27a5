"""A check: one requirement that a specification puts on servers, with the function that tests it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delta_sharing_client.checks.checked_server import Answer, Server


class Level(enum.Enum):
    """What a provider can claim to support: the checks of one level together.

    ``subject`` is what ``--only`` calls the level's assets, and ``title`` describes the level.
    """

    ACCESS = ("access", "tables", "tokens and errors")
    LISTINGS = ("listings", "tables", "shares, schemas and tables, in pages")
    PARQUET = ("tables-parquet", "tables", "tables in parquet format")
    DELTA = ("tables-delta", "tables", "tables in delta format: deletion vectors, column mapping, type widening")
    FEED = ("change-feed", "tables", "the change data feed")
    STREAMING = ("streaming", "tables", "queries of a range of versions, for streams")
    ASYNCHRONOUS = ("asynchronous", "tables", "asynchronous queries")
    DIRECTORY = ("directory-access", "tables", "temporary credentials for the directories of tables")
    URLS = ("urls", "tables", "files behind pre-signed URLs: ranges, expiry and renewal")
    OPEN_TABLES = ("opensharing-tables", "tables", "OpenSharing: one table and its formats")
    VOLUMES = ("volumes", "volumes", "OpenSharing: volumes")
    SKILLS = ("skills", "skills", "OpenSharing: agent skills")
    MODELS = ("models", "models", "OpenSharing: models and their versions")
    ICEBERG = ("iceberg", "iceberg", "OpenSharing: the Iceberg REST catalog")

    def __init__(self, text: str, subject: str, title: str) -> None:
        self.text = text
        self.subject = subject
        self.title = title


class Outcome(enum.Enum):
    """The result of a check."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_OFFERED = "not offered"
    NOT_TESTABLE = "not testable"


class Failed(Exception):
    """The server broke the requirement. The message says what was expected and what was found; ``answer`` shows it."""

    def __init__(self, message: str, answer: Answer | None = None) -> None:
        super().__init__(message)
        self.answer = answer


class NotOffered(Exception):
    """The server does not offer what the requirement is about. The message says how it told so."""


class NotTestable(Exception):
    """The profile shows nothing that the check needs. The message says what the share would need."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One requirement. ``id`` never changes; ``statement`` is the requirement in our words; ``source`` names the
    specification and the section."""

    id: str
    level: Level
    statement: str
    source: str
    run: Callable[[Server], None] = dataclasses.field(repr=False)


CHECKS: dict[str, Check] = {}


def check(name: str, level: Level, statement: str, source: str) -> Callable[[Callable[[Server], None]], Check]:
    """Register a function as the check called ``name``. It gets the server, and raises ``Failed``, ``NotOffered`` or
    ``NotTestable``; if it returns, the requirement holds."""

    def register(run: Callable[[Server], None]) -> Check:
        assert name not in CHECKS, name
        CHECKS[name] = Check(name, level, statement, source, run)
        return CHECKS[name]

    return register
