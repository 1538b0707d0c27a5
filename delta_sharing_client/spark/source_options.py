"""The options of the Spark data source: their names, meanings and combinations. ``docs/spark.md`` is the page for
users.

Options that the JVM connector also has are named as there; names are case-insensitive. A bad value, a bad combination
or an unknown name is refused when the data source is loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import difflib
import enum
import functools
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from delta_sharing_client.columns import ColumnName
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.follow.follow_request import FollowRequest, OnChange
from delta_sharing_client.instants import parse_instant
from delta_sharing_client.options import (
    AccessMode,
    FileIdHash,
    InvalidText,
    ReadOptions,
    ResponseFormat,
    TableFormat,
    VariantAs,
    with_format,
)
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest
from delta_sharing_client.protocol.asset_kinds import BY_NOUN, TABLE
from delta_sharing_client.protocol.names import AssetName, split_files_url, split_table_url
from delta_sharing_client.protocol.profile import ENVIRONMENT_VARIABLE, Profile
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.sources.traits import lineage_fields
from delta_sharing_client.spark import file_options
from delta_sharing_client.spark.file_options import FileOptions
from delta_sharing_client.spark.option_values import (
    Option,
    by_name,
    parse_columns,
    parse_condition,
    parse_count,
    parse_flag,
    parse_given,
    parse_names,
    parse_positive,
    parse_product,
    parse_seconds,
    parse_size,
    parse_starting_version,
    parse_text,
    parse_timeout,
    parse_timestamp,
    parse_version,
    parser_of,
)
from delta_sharing_client.spark.pushed import LoadedTable, Pushed, not_for_users

LEAST_VERSION_INTERVAL = 10
EXECUTOR_OPTIONS = ReadOptions(
    max_concurrent_requests=8,
    max_bytes_in_flight=96 * 1024 * 1024,
    batch_rows=32_768,
    progress=False,
    variant_as=VariantAs.STRUCT,
)
"""Smaller limits than those of a client that has the machine to itself, because a task has one of many cores."""

_Bound = TypeVar("_Bound", int, datetime.datetime)


class ChangeColumns(enum.Enum):
    """The form of the three columns of the change feed.

    ``DELTA``: ``_change_type``, ``_commit_version``, ``_commit_timestamp`` as a timestamp, as in Delta Lake.
    ``PARQUET``: ``_commit_version``, ``_commit_timestamp`` in epoch milliseconds, ``_change_type``, as the JVM
    connector has them with the response format ``parquet``.
    """

    DELTA = "delta"
    PARQUET = "parquet"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions(FollowRequest):
    """The checked options of one relation. Can be pickled; its repr shows no secret.

    ``read`` is not yet bound to a schema; its columns, filter, limit and response format also apply to change feeds
    and, except for the limit, to streams. ``limits`` are the fields of ``ReadOptions`` that were set; ``max_files`` and
    ``max_bytes`` are ``None`` if they were not set; ``version_interval`` and ``max_outage`` are in seconds. ``files``
    is ``None`` for a table; otherwise ``table`` is the name of the asset whose files are read. Four fields are set by
    us and not by users: ``pushed`` has the predicates and limit of one scan, ``loaded_version`` the version when the
    DataFrame was created, ``loaded`` what the server stated about the table then, and ``tell`` the request of a
    catalog.
    """

    profile: Profile
    limits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    change_columns: ChangeColumns = ChangeColumns.DELTA
    ending_version: int | None = None
    ending_timestamp: str | None = None
    max_partition_bytes: int = 128 * 1024 * 1024
    parallelism: int = 1
    caller_org: str | None = None
    pushed: Pushed | None = None
    loaded_version: int | None = None
    loaded: LoadedTable | None = None
    tell: str | None = None
    files: FileOptions | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SparkOptions:
        """Check the options from Spark.

        Raises ``UsageError`` for an unknown name, a bad value or a bad combination, ``ProfileError`` if the profile
        cannot be read.
        """
        given = _known(_with_settings(_with_query(options)))
        found = {**parse_given(_OPTIONS, given), **parse_given(_OWN, given)}
        _one_of(given, "startingVersion", "startingTimestamp")
        _one_of(given, "endingVersion", "endingTimestamp")
        _one_of(given, "versionAsOf", "timestampAsOf")
        profile, table, folder = _source(given, found.pop("table", None))
        result = cls(
            profile=profile,
            table=table,
            files=FileOptions.parse(given, folder),
            read=ScanRequest(**parse_given(_READ, given)),
            limits=parse_given(_LIMITS, given),
            read_change_feed=any(_is_true(given, name) for name in ("readChangeFeed", "readChangeData")),
            on_change=_on_change(given),
            **{"parallelism": os.cpu_count() or 1, **found},
        )
        result._check_combinations(given)
        return result

    def read_options(self, *, waiting: bool = True) -> ReadOptions:
        """Return the read options of a task, with the limits that were set. If ``waiting``, requests are retried for
        ``maxOutage``."""
        found = dataclasses.replace(EXECUTOR_OPTIONS, **self.limits)
        if self.loaded is not None:
            found = with_format(found, self.loaded.table_format)
        return self.waiting(found) if waiting else self.polling(found)

    def changes(self, columns: Sequence[ColumnName] | None) -> ChangesRequest:
        """Return the request for a batch read of ``columns`` of the change feed."""
        return ChangesRequest(
            starting_version=None if self.starting_version == "latest" else self.starting_version,
            ending_version=self.ending_version,
            starting_timestamp=self.starting_timestamp,
            ending_timestamp=self.ending_timestamp,
            columns=columns,
            filter=self.read.filter,
            limit=self.read.limit,
            response_format=self.read.response_format,
        )

    def for_batch(self) -> SparkOptions:
        """Return ``self`` if a batch read can use it. Raises ``UsageError`` for a change feed whose start is missing or
        ``latest``, and for a start without a change feed."""
        if not self.read_change_feed:
            for name, value in (
                ("startingVersion", self.starting_version),
                ("startingTimestamp", self.starting_timestamp),
            ):
                if value is not None:
                    raise UsageError(f"Option '{name}' of a batch read needs option 'readChangeFeed' to be 'true'.")
        elif self.starting_version == "latest":
            raise UsageError(
                "The value 'latest' of option 'startingVersion' is not a valid number: a batch read of changes must "
                "start at a version; give its number."
            )
        elif self.starting_version is None and self.starting_timestamp is None:
            raise UsageError(
                "No 'startingVersion' or 'startingTimestamp' was provided for the change feed; set one of them."
            )
        return self

    def for_stream(self) -> SparkOptions:
        """Return ``self`` if a stream can use it. Raises ``UsageError`` for time travel, an end, a limit, row
        lineage, files of an asset or directory access."""
        if self.read.version is not None or self.read.timestamp is not None:
            raise UsageError(
                "Cannot time travel streams. Use option 'startingVersion' or 'startingTimestamp' instead of "
                "'versionAsOf' or 'timestampAsOf'."
            )
        for name, is_set in (
            ("endingVersion", self.ending_version is not None),
            ("endingTimestamp", self.ending_timestamp is not None),
            ("limit", self.read.limit is not None),
            ("rowLineage", self.read.row_lineage),
            ("asset", self.files is not None),
        ):
            if is_set:
                raise UsageError(f"Option '{name}' is not for streams; leave it out, or read with 'spark.read'.")
        if self.limits.get("access_mode") is AccessMode.DIR:
            raise UsageError(
                "Option 'accessMode' is 'dir', but a stream follows a table by URL only: leave it out, or read the "
                "table's directory in batches, with 'spark.read' and options 'readChangeFeed' and 'startingVersion'."
            )
        return self

    def times(self) -> dict[str, str]:
        """Return the options that are timestamps, with their values."""
        times = {
            "timestampAsOf": self.read.timestamp,
            "startingTimestamp": self.starting_timestamp,
            "endingTimestamp": self.ending_timestamp,
        }
        return {name: value for name, value in times.items() if value is not None}

    def of_format(self, table_format: TableFormat) -> SparkOptions:
        """Return the options for a table of this format, which determines the names of the row lineage columns."""
        read = dataclasses.replace(self.read, lineage_fields=lineage_fields(table_format))
        return dataclasses.replace(self, read=read)

    def _check_combinations(self, given: Mapping[str, str]) -> None:
        if isinstance(self.starting_version, int) and self.ending_version is not None:
            _in_order("Version", self.starting_version, self.ending_version)
        if self.starting_timestamp is not None and self.ending_timestamp is not None:
            _in_order("Timestamp", parse_instant(self.starting_timestamp), parse_instant(self.ending_timestamp))
        if self.read_change_feed:
            for name in ("versionAsOf", "timestampAsOf", "rowLineage"):
                if name.lower() in given and given[name.lower()].lower() != "false":
                    raise UsageError(
                        f"Option '{name}' cannot be combined with 'readChangeFeed'; leave one of them out."
                    )
        else:
            for name in ("endingVersion", "endingTimestamp", "changeFeedColumns"):
                if name.lower() in given:
                    raise UsageError(f"Option '{name}' needs option 'readChangeFeed' to be 'true'.")
        if self.version_interval < LEAST_VERSION_INTERVAL:
            raise UsageError(
                f"Option 'queryTableVersionIntervalSeconds' must not be less than {LEAST_VERSION_INTERVAL} seconds; "
                f"found {self.version_interval}."
            )


def names() -> list[str]:
    """Return every option name, as documented."""
    tables = (_READ, _LIMITS, _OPTIONS, file_options.OPTIONS)
    valued = (option.name for table in tables for option in table.values())
    return sorted([*valued, *_FLAGS, "path", _PROFILE, *_CREDENTIALS], key=str.lower)


def request_options(request: ScanRequest | ChangesRequest) -> dict[str, object]:
    """Return ``request`` as options of the data source."""
    found: dict[str, object] = {"readChangeFeed": "true"} if isinstance(request, ChangesRequest) else {}
    for option in (*_READ.values(), *_OPTIONS.values()):
        found[option.name] = _text_of(getattr(request, option.field, None))
    return found


def limits(options: ReadOptions) -> dict[str, object]:
    """Return the limits and the access mode in ``options`` as options of the data source."""
    default = ReadOptions()
    changed = [
        one for one in _LIMITS.values() if getattr(options, one.field) not in (None, getattr(default, one.field))
    ]
    return {option.name: _text_of(getattr(options, option.field)) for option in changed}


def _text_of(value: object) -> object:
    """Return ``value`` as the value of an option; ``None`` if the option is left out."""
    if isinstance(value, bool):
        return "true" if value else None
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return json.dumps(value, default=list)
    return math.ceil(value) if isinstance(value, float) else value


def of_settings(settings: Mapping[str, str | None]) -> dict[str, str]:
    """Return the data source options that Spark settings, with their full names, contain. Raises ``UsageError`` for an
    invalid value."""
    given = {name: value for name, value in settings.items() if name in SETTINGS and value is not None}
    parsed = {SETTINGS[name][0]: SETTINGS[name][1](name, value) for name, value in given.items()}
    return {option: str(value).lower() for option, value in parsed.items()}


def profile_of(options: Mapping[str, str]) -> Profile:
    """Return the profile that ``options`` and settings name, for a request about no particular table."""
    return _profile(None, _with_settings(options), None)


_READ = by_name(
    Option("columns", "columns", parse_columns),
    Option("filter", "filter", parse_condition),
    Option("limit", "limit", parse_count),
    Option("versionAsOf", "version", parse_version),
    Option("timestampAsOf", "timestamp", parse_timestamp),
    Option("rowLineage", "row_lineage", parse_flag),
    Option("responseFormat", "response_format", parser_of(ResponseFormat)),
)
_LIMITS = by_name(
    Option("maxAttempts", "max_attempts", parse_positive),
    Option("maxRetrySeconds", "max_retry_seconds", parse_seconds),
    Option("connectTimeout", "connect_timeout", parse_timeout),
    Option("readTimeout", "read_timeout", parse_timeout),
    Option("totalTimeout", "total_timeout", parse_timeout),
    Option("accessMode", "access_mode", parser_of(AccessMode)),
    Option("tableFormat", "table_format", parser_of(TableFormat)),
    Option("fileIdHash", "file_id_hash", parser_of(FileIdHash)),
    Option("invalidText", "invalid_text", parser_of(InvalidText)),
    Option("asyncQuery", "async_query", parse_flag),
)
_OPTIONS = by_name(
    Option("changeFeedColumns", "change_columns", parser_of(ChangeColumns)),
    Option("startingVersion", "starting_version", parse_starting_version),
    Option("startingTimestamp", "starting_timestamp", parse_timestamp),
    Option("endingVersion", "ending_version", parse_count),
    Option("endingTimestamp", "ending_timestamp", parse_timestamp),
    Option("maxFilesPerTrigger", "max_files", parse_positive),
    Option("maxBytesPerTrigger", "max_bytes", parse_size),
    Option("maxVersionsPerRpc", "max_versions_per_rpc", parse_positive),
    Option("queryTableVersionIntervalSeconds", "version_interval", parse_seconds),
    Option("maxPartitionBytes", "max_partition_bytes", parse_size),
    Option("parallelism", "parallelism", parse_positive),
    Option("callerOrg", "caller_org", parse_product),
    Option("maxOutage", "max_outage", parse_seconds),
)
# Our own classes in the driver set these for each scan, so they are not documented.
_OWN = by_name(
    Option("pushed", "pushed", Pushed.parse),
    Option("loadedVersion", "loaded_version", functools.partial(parse_count, least=-1)),
    Option("loaded", "loaded", LoadedTable.parse),
    Option("tell", "tell", parse_text),
    Option("table", "table", parse_names),
)
# Options that a query may set for a table of a catalog or of a table definition: how much is read, and how. The
# location and the credentials are fixed, so that no query sends a token to another server.
_OF_QUERIES = (
    *("filter", "limit", "rowLineage", "responseFormat", "pushDown", "callerOrg"),
    *("readChangeFeed", "readChangeData", "changeFeedColumns"),
    *("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp"),
    *("ignoreDeletes", "ignoreChanges", "skipChangeCommits", "failOnDataLoss"),
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "maxVersionsPerRpc", "queryTableVersionIntervalSeconds"),
    *("maxPartitionBytes", "parallelism", "accessMode", "tableFormat", "fileIdHash"),
    *("asyncQuery", "invalidText"),
    *("maxAttempts", "maxRetrySeconds", "connectTimeout", "readTimeout", "totalTimeout", "maxOutage"),
)
# Options of a query that may change what a server states about a table.
_REDESCRIBING = ("tableformat", "responseformat", "accessmode")
# Properties of a table definition that are options although they are not in its OPTIONS.
_OF_PROPERTIES = (*_OF_QUERIES, "columns", "versionAsOf", "timestampAsOf")
_ADDING = ("readChangeFeed", "readChangeData", "rowLineage")
_FLAGS = (
    *("readChangeFeed", "readChangeData", "ignoreDeletes", "ignoreChanges", "skipChangeCommits", "failOnDataLoss"),
    "pushDown",
)
_PROFILE = "profile"
# The JVM connector up to 1.3 calls the type of a profile "shareCredentialsType".
_TYPES = ("type", "shareCredentialsType")
_CREDENTIALS = (
    "shareCredentialsVersion",
    *_TYPES,
    "endpoint",
    "icebergEndpoint",
    "bearerToken",
    "expirationTime",
    "username",
    "password",
    "tokenEndpoint",
    "clientId",
    "clientSecret",
    "scope",
)
_SHARING = "spark.delta.sharing"
SETTINGS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    f"{_SHARING}.network.numRetries": ("maxAttempts", lambda name, value: parse_count(name, value) + 1),
    f"{_SHARING}.network.maxRetryDuration": (
        "maxRetrySeconds",
        lambda name, value: math.ceil(parse_count(name, value) / 1000),
    ),
    f"{_SHARING}.network.timeout": ("readTimeout", parse_timeout),
    f"{_SHARING}.network.useAsyncQuery": ("asyncQuery", parse_flag),
    f"{_SHARING}.streaming.queryTableVersionIntervalSeconds": ("queryTableVersionIntervalSeconds", parse_seconds),
}
"""The settings of the JVM connector that are used here: the option that each one sets, and the parser of its value."""
PROFILE_SETTING = f"{_SHARING}.profile"
"""The setting with the profile for tables whose path and options name none."""
# Options of Delta Lake and the JVM connector that would change the rows, and what to do instead.
_ELSEWHERE = {
    "excludeRegex": "use option 'filter'",
    "ignoreFileDeletion": "use option 'ignoreDeletes' or 'ignoreChanges'",
    "schemaTrackingLocation": "restart with a new checkpoint and option 'startingVersion' after a breaking schema "
    "change",
    "schemaLocation": "restart with a new checkpoint and option 'startingVersion' after a breaking schema change",
    "streamingSourceTrackingId": "leave it out; every stream keeps its position in its own checkpoint",
    "allowSourceColumnRename": "restart with a new checkpoint and option 'startingVersion' after the rename",
    "allowSourceColumnDrop": "restart with a new checkpoint and option 'startingVersion' after the drop",
    "allowSourceColumnTypeChange": "restart with a new checkpoint and option 'startingVersion' after the change",
    "paths": "load one table at a time",
    "provider": "CREATE TABLE keeps no options of a Python data source; write CREATE TEMPORARY VIEW instead, or use "
    "add_spark_jar",
}


def _texts(given: dict[str, str], name: str) -> dict[str, str]:
    """Remove the option ``name`` from ``given``, and return its value, a JSON object that a class of ``PushDown.java``
    wrote."""
    try:
        return msgspec.json.decode(given.pop(name, "{}"), type=dict[str, str])
    except msgspec.DecodeError:
        raise not_for_users(name) from None


def _with_query(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table combined with those among the properties of its definition and with those of a
    query, both of which a class of ``PushDown.java`` marks.

    Raises ``UsageError`` for an option that a query may not set.
    """
    given = {str(name).lower(): value for name, value in options.items()}
    # Programs that manage tables write properties of their own, which are no options.
    properties = {name.lower(): value for name, value in _texts(given, "properties").items()}
    given = {name.lower(): properties[name.lower()] for name in _OF_PROPERTIES if name.lower() in properties} | given
    query = _texts(given, "query")
    if any(name in query for name in _REDESCRIBING):
        given.pop("loaded", None)
    allowed = {name.lower(): name for name in _OF_QUERIES}
    for key, value in query.items():
        if key == "columns":
            raise UsageError(
                "Option 'columns' cannot be set by a query of this table, because a catalog determines a table's "
                "columns before it knows the option: select the columns, which reduces the read as well."
            )
        if key not in allowed:
            spelled = next((name for name in names() if name.lower() == key), key)
            raise UsageError(
                f"Option '{spelled}' cannot be set by a query of this table: its catalog or its definition sets its "
                f"location and credentials. {_near(key, allowed)}"
            )
        if allowed[key] in _ADDING and value.lower() != "false":
            raise UsageError(
                f"Option '{allowed[key]}' adds columns, but a catalog determines a table's columns before it knows the "
                "option: use the format 'deltaSharing' with this option and the table's path."
            )
    return {**given, **query}


def _with_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return ``options``, completed with the session's settings, which a class of ``PushDown.java`` passes on."""
    given = {str(name).lower(): value for name, value in options.items()}
    settings = _texts(given, "settings")
    profile = settings.get(PROFILE_SETTING)
    if profile and not _names_profile(given):
        given[_PROFILE] = profile
    return {**{name.lower(): value for name, value in of_settings(settings).items()}, **given}


def _names_profile(given: Mapping[str, str]) -> bool:
    return _PROFILE in given or bool(_inline(given)) or "#" in given.get("path", "").lstrip("#")


def _inline(given: Mapping[str, str]) -> dict[str, str]:
    return {name: given[name.lower()] for name in _CREDENTIALS if name.lower() in given}


def _known(options: Mapping[str, str]) -> dict[str, str]:
    given = {str(key).lower(): str(value) for key, value in options.items() if value is not None}
    for name, advice in _ELSEWHERE.items():
        if name.lower() in given:
            raise UsageError(f"Option '{name}' is not supported by this data source: {advice}.")
    spelled = {name.lower(): name for name in names()}
    for key in given:
        if key not in spelled and key not in _OWN:
            raise UsageError(f"Unknown option '{key}'. {_near(key, spelled)}")
    for name in _FLAGS:
        if name.lower() in given:
            parse_flag(name, given[name.lower()])
    if given.get("failondataloss", "true").lower() == "false":
        raise UsageError("Option 'failOnDataLoss' must be 'true', because this source never skips data that is gone.")
    return given


def _near(key: str, spelled: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(key, spelled, n=1, cutoff=0.7)
    return f"Did you mean '{spelled[near[0]]}'?" if near else f"The options are {', '.join(spelled.values())}."


def _one_of(given: Mapping[str, str], first: str, second: str) -> None:
    if first.lower() in given and second.lower() in given:
        raise UsageError(f"Please either provide '{first}' or '{second}', not both of them.")


def _in_order(bound: str, start: _Bound, end: _Bound) -> None:
    if end < start:
        raise UsageError(
            f"Option 'ending{bound}' ({end}) is before 'starting{bound}' ({start}); swap them, or leave one out."
        )


def _is_true(given: Mapping[str, str], name: str) -> bool:
    return given.get(name.lower(), "false").lower() == "true"


def _on_change(given: Mapping[str, str]) -> OnChange:
    strongest_first = (OnChange.SKIP_CHANGE_COMMITS, OnChange.IGNORE_CHANGES, OnChange.IGNORE_DELETES)
    return next((policy for policy in strongest_first if _is_true(given, policy.value)), OnChange.FAIL)


def _source(given: Mapping[str, str], named: AssetName | None) -> tuple[Profile, AssetName, str]:
    """Return the profile, the name of the table or asset, and a path in the asset."""
    if named is not None:
        return _profile(None, given, None), named, ""
    noun, path = given.get("asset", TABLE.noun), given.get("path", "").strip()
    if not path:
        raise UsageError(f"'path' is not specified: write load('<profile file>#<share>.<schema>.<{noun}>').")
    source, name, folder = None, path, ""
    if noun != TABLE.noun:
        source, name, folder = split_files_url(path)
    elif "#" in path:
        source, name = split_table_url(path)
    try:
        table = AssetName.parse(name, noun)
    except UsageError as error:
        near = ""
        with contextlib.suppress(DeltaSharingError):
            near = RestClient(_profile(source, given, None)).near_names(name, (BY_NOUN.get(noun, TABLE),))
        raise UsageError(f"The path '{path}' is not valid. {error.message} {near}".rstrip()) from None
    return _profile(source, given, path), table, folder


def _profile(source: str | None, given: Mapping[str, str], path: str | None) -> Profile:
    """Return the profile from ``source`` or the options, of which only one may be given, or else from the environment
    variable."""
    inline = _inline(given)
    named = [
        *(["a profile file in 'path'"] if source else []),
        *(["option 'profile'"] if _PROFILE in given else []),
        *([f"credentials in options ({', '.join(inline)})"] if inline else []),
    ]
    if len(named) > 1:
        raise UsageError(f"Both {' and '.join(named)} are given; use one of them.")
    if inline:
        return Profile.load(_profile_fields(inline))
    source = source or given.get(_PROFILE)
    if source is None and not os.environ.get(ENVIRONMENT_VARIABLE, "").strip():
        here = f"The path '{path}' names no profile. Write '<profile file>#{path.lstrip('#')}', set" if path else "Set"
        raise UsageError(
            f"{here} option 'profile', give the credentials as options, or set the environment variable "
            f"'{ENVIRONMENT_VARIABLE}' before Spark starts. The setting '{PROFILE_SETTING}' applies to load_as_spark "
            "and, after add_spark_jar, to the format and to SQL."
        )
    if source is not None and source.lstrip().startswith("{"):
        raise UsageError(
            "Expected the path or URL of a profile, found JSON; set the profile's fields as options instead."
        )
    return Profile.load(source)


def _profile_fields(inline: Mapping[str, str]) -> dict[str, object]:
    fields: dict[str, object] = {name: value for name, value in inline.items() if name not in _TYPES}
    kinds = {inline[name] for name in _TYPES if name in inline}
    if len(kinds) > 1:
        raise UsageError("Options 'type' and 'shareCredentialsType' differ; set only one of them.")
    kind = next(iter(kinds), None)
    number = inline.get("shareCredentialsVersion", "1" if kind in (None, "bearer_token") else "2")
    fields["shareCredentialsVersion"] = int(number) if re.fullmatch(r"\d{1,9}", number) else number
    if kind is not None or fields["shareCredentialsVersion"] == 2:
        fields["type"] = kind or "bearer_token"
    if "expirationTime" in inline:
        fields["expirationTime"] = parse_timestamp("expirationTime", inline["expirationTime"])
    return fields
