"""Options: case-insensitive names, values, combinations; errors are raised at once and suggest a valid option."""

from __future__ import annotations

import dataclasses
import json
import operator
import os
import pathlib

import pytest
from pyspark.sql.types import StructType

from delta_sharing_client.errors import ProfileError, UsageError
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.spark.datasource import DeltaSharingSource
from delta_sharing_client.spark.file_options import OPTIONS as FILE_OPTIONS
from delta_sharing_client.spark.source_options import (
    SETTINGS,
    ChangeColumns,
    OnChange,
    SparkOptions,
    names,
    of_settings,
)

TOKEN = "planted-token-77"
INLINE = {"path": "a.b.c", "endpoint": "https://sharing.example/api", "bearerToken": TOKEN}


def parse(**options: str) -> SparkOptions:
    return SparkOptions.parse({**INLINE, **options})


def refused(**options: str) -> str:
    with pytest.raises(UsageError) as error:
        parse(**options)
    return str(error.value)


def test_options_have_defaults() -> None:
    options = parse()
    assert str(options.table) == "a.b.c"
    assert options.profile.endpoint == "https://sharing.example/api"
    assert (options.max_files, options.max_bytes, options.max_versions_per_rpc) == (None, None, 100)
    assert (options.read.response_format, options.on_change, options.version_interval) == (
        ResponseFormat.AUTO,
        OnChange.FAIL,
        30,
    )
    assert not options.read_change_feed
    assert options.starting_version is None
    assert options.parallelism == os.cpu_count()
    assert TOKEN not in repr(options)


def test_option_names_are_case_insensitive() -> None:
    options = parse(MAXFILESPERTRIGGER="7", maxbytespertrigger="10k", StartingVersion="3", skipchangecommits="TRUE")
    assert (options.max_files, options.max_bytes, options.starting_version) == (7, 10240, 3)
    assert options.on_change is OnChange.SKIP_CHANGE_COMMITS


def test_profile_file_in_path_is_split_at_the_last_hash(tmp_path) -> None:
    profile = tmp_path / "a#b.share"
    profile.write_text('{"shareCredentialsVersion": 1, "endpoint": "https://e.example", "bearerToken": "t"}')
    options = SparkOptions.parse({"path": f"{profile}#my.share.s.t"})
    assert str(options.table) == "my.share.s.t"


@pytest.mark.parametrize("path", ["", "  ", "a.b", "a.b.c", "#", "prof#a.b", "prof#a..c"])
def test_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match=r"path|share\.schema\.table"):
        SparkOptions.parse({"path": path})


def test_profile_file_and_inline_credentials_are_exclusive() -> None:
    assert "Both a profile file" in refused(path="prof.share#a.b.c")
    assert "Both option 'profile' and credentials" in refused(profile="prof.share")
    with pytest.raises(UsageError, match="Both a profile file in 'path' and option 'profile'"):
        SparkOptions.parse({"path": "a.share#a.b.c", "profile": "b.share"})


NOT_OF_QUERIES = {
    *("path", "profile", "endpoint", "icebergEndpoint", "bearerToken", "username", "password", "expirationTime"),
    *("tokenEndpoint", "clientId", "clientSecret", "scope", "type", "shareCredentialsType", "shareCredentialsVersion"),
    *("columns", "versionAsOf", "timestampAsOf"),
    *(option.name for option in FILE_OPTIONS.values()),
}
VALUES = {
    **dict.fromkeys(("rowLineage", "readChangeFeed", "readChangeData"), "false"),
    **dict.fromkeys(("failOnDataLoss", "pushDown", "asyncQuery", "skipChangeCommits"), "true"),
    **dict.fromkeys(("ignoreDeletes", "ignoreChanges"), "true"),
    "filter": "id > 1",
    "responseFormat": "delta",
    "accessMode": "url",
    "tableFormat": "iceberg",
    "fileIdHash": "delta",
    "invalidText": "replace",
}


@pytest.mark.parametrize("name", [*names(), "pushed", "tell", "settings", "table", "query", "loadedVersion", "proxy"])
def test_query_may_set_only_read_options(name: str) -> None:
    if name in names() and name not in NOT_OF_QUERIES:
        feed = {"readChangeFeed": "true"} if name.startswith(("ending", "changeFeed")) else {}
        value = VALUES.get(name, "2024-01-01" if "Timestamp" in name else "parquet" if feed else "17")
        value = "3" if name == "endingVersion" else value
        SparkOptions.parse({**INLINE, **feed, "query": json.dumps({name.lower(): value})})
        return
    message = refused(query=json.dumps({name.lower(): TOKEN}))
    assert f"Option '{name if name in names() else name.lower()}' cannot be set by a query of this table" in message
    advice = {"pushed": "Did you mean 'pushDown'?", "columns": "select the columns"}
    assert advice.get(name, "The options are filter, limit,") in message
    assert TOKEN not in message


def test_options_of_a_query_replace_those_of_its_table() -> None:
    options = parse(limit="5", filter="id > 1", query=json.dumps({"limit": "7", "parallelism": "3"}))
    assert (options.read.limit, options.parallelism, str(options.read.filter)) == (7, 3, "id > 1")
    assert "Option 'columns' cannot be set by a query" in refused(query=json.dumps({"columns": "a"}))
    assert "Did you mean 'filter'?" in refused(query=json.dumps({"filtr": "x"}))
    for name in ("readChangeFeed", "readChangeData", "rowLineage"):
        assert f"Option '{name}' adds columns" in refused(query=json.dumps({name.lower(): "true"}))
    for text in ("", "[]", '{"limit": 7}'):
        assert "'query' is set by this data source itself" in refused(query=text)


def test_catalog_table_name_has_three_parts() -> None:
    options = parse(path="#x.y.z", table=json.dumps(["a.b", "c", "d`e"]))
    assert dataclasses.astuple(options.table) == ("a.b", "c", "d`e")
    for text in ("a.b.c", '["a", "b"]', '["a", "b", 3]'):
        assert "'table' is set by this data source itself" in refused(table=text)


@pytest.mark.parametrize("path", ["a.b.c", "#a.b.c"])
def test_profile_comes_from_option_setting_or_environment(
    path: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {}
    for name in ("path", "option", "setting", "environment"):
        places[name] = str(tmp_path / name)
        fields = {"shareCredentialsVersion": 1, "endpoint": f"https://{name}.example", "bearerToken": TOKEN}
        (tmp_path / name).write_text(json.dumps(fields))
    settings = json.dumps({"spark.delta.sharing.profile": places["setting"]})

    def endpoint(path: str, **given: str) -> str:
        options = SparkOptions.parse({"path": path, **given})
        assert str(options.table) == "a.b.c"
        return options.profile.endpoint

    monkeypatch.delenv("DELTA_SHARING_PROFILE", raising=False)
    with pytest.raises(
        UsageError, match=r"names no profile\. Write '<profile file>#a\.b\.c', set option 'profile'"
    ) as found:
        endpoint(path)
    assert "'DELTA_SHARING_PROFILE' before Spark starts" in found.value.message
    assert "add_spark_jar" in found.value.message
    monkeypatch.setenv("DELTA_SHARING_PROFILE", places["environment"])
    assert endpoint(path) == "https://environment.example"
    assert endpoint(path, settings=settings) == "https://setting.example"
    assert endpoint(path, settings=settings, Profile=places["option"]) == "https://option.example"
    assert endpoint(f"{places['path']}#a.b.c", settings=settings) == "https://path.example"
    inline = {"endpoint": "https://inline.example", "bearerToken": TOKEN}
    assert endpoint(path, settings=settings, **inline) == "https://inline.example"


def test_profile_as_json_is_refused() -> None:
    with pytest.raises(UsageError, match="found JSON; set the profile's fields as options") as found:
        SparkOptions.parse({"path": "a.b.c", "profile": json.dumps({"bearerToken": TOKEN})})
    assert TOKEN not in found.value.message


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"type": "basic", "username": "u", "password": TOKEN}, "BasicLogin"),
        ({"type": "bearer_token", "shareCredentialsVersion": "2", "bearerToken": TOKEN}, "BearerToken"),
        ({"shareCredentialsVersion": "2", "bearerToken": TOKEN}, "BearerToken"),
        ({"shareCredentialsType": "basic", "type": "basic", "username": "u", "password": TOKEN}, "BasicLogin"),
        ({"SHARECREDENTIALSTYPE": "basic", "username": "u", "password": TOKEN}, "BasicLogin"),
        (
            {
                "type": "oauth_client_credentials",
                "tokenEndpoint": "https://t.example",
                "clientId": "c",
                "clientSecret": TOKEN,
            },
            "ClientCredentials",
        ),
    ],
)
def test_every_kind_of_credentials_can_be_given_inline(given: dict[str, str], kind: str) -> None:
    options = SparkOptions.parse({"path": "a.b.c", "endpoint": "https://sharing.example", **given})
    assert type(options.profile.credentials).__name__ == kind
    assert TOKEN not in repr(options)


@pytest.mark.parametrize("version", ["²", "9" * 5000, "1.0", "-1"])
def test_non_numeric_profile_version_is_refused(version: str) -> None:
    given = {"path": "a.b.c", "endpoint": "https://e", "bearerToken": TOKEN}
    with pytest.raises(ProfileError, match="expected 1 or 2"):
        SparkOptions.parse({**given, "shareCredentialsVersion": version})


def test_conflicting_profile_types_are_refused() -> None:
    given = {"path": "a.b.c", "endpoint": "https://e", "bearerToken": TOKEN, "type": "basic"}
    with pytest.raises(UsageError, match="'type' and 'shareCredentialsType' differ"):
        SparkOptions.parse({**given, "shareCredentialsType": "bearer_token"})


@pytest.mark.parametrize(
    ("name", "value", "fragment"),
    [
        ("maxFilesPerTrigger", "0", "must be a positive integer"),
        ("maxFilesPerTrigger", "-1", "must be a positive integer"),
        ("maxFilesPerTrigger", "string", "must be a positive integer"),
        ("maxVersionsPerRpc", "0", "must be a positive integer"),
        ("maxBytesPerTrigger", "0", "must be a size configuration such as '10g'"),
        ("maxBytesPerTrigger", "2mg", "must be a size configuration such as '10g'"),
        ("maxBytesPerTrigger", "1.5g", "must be a size configuration such as '10g'"),
        ("maxBytesPerTrigger", "-5b", "must be a size configuration such as '10g'"),
        ("maxBytesPerTrigger", "8192p", "must be a size configuration such as '10g'"),
        ("maxPartitionBytes", "9" * 5000, "must be a size configuration such as '10g'"),
        ("readTimeout", "1" + "0" * 400, "must be a number of seconds such as '30s'"),
        ("ignoreDeletes", "1", "must be 'true' or 'false'"),
        ("ignoreChanges", "yes", "must be 'true' or 'false'"),
        ("skipChangeCommits", "", "must be 'true' or 'false'"),
        ("readChangeFeed", "0", "must be 'true' or 'false'"),
        ("startingVersion", "-1", "must be greater than or equal to zero"),
        ("startingVersion", "Latest", "must be greater than or equal to zero"),
        ("startingVersion", "abc", "must be greater than or equal to zero"),
        ("startingVersion", str(2**63), "must be greater than or equal to zero"),
        ("versionAsOf", "", "must be an integer greater than or equal to zero"),
        ("versionAsOf", "-1", "must be an integer greater than or equal to zero"),
        ("startingTimestamp", "", "is not a timestamp"),
        ("startingTimestamp", "202", "is not a timestamp"),
        ("startingTimestamp", "a", "is not a timestamp"),
        ("timestampAsOf", "2024-13-01", "is not a timestamp"),
        ("timestampAsOf", "2024-01-01 Nowhere/City", "is not a timestamp"),
        ("responseFormat", "Delta", "must be one of 'auto', 'parquet', 'delta'"),
        ("changeFeedColumns", "x", "must be one of"),
        ("limit", "-1", "must be an integer greater than or equal to zero"),
        ("columns", "a,,b", "must be names separated by commas"),
        ("columns", "[1]", "must be a JSON array"),
        ("filter", "id >", "id >"),
        ("filter", "", "it must not be empty"),
        ("filter", "  ", "it must not be empty"),
        ("readTimeout", "0", "it must be a second or more"),
        ("versionAsOf", str(2**63), "must be an integer greater than or equal to zero"),
        ("maxFilesPerTrigger", str(2**63), "must be a positive integer"),
        ("failOnDataLoss", "false", "never skips data"),
        ("queryTableVersionIntervalSeconds", "9", "must not be less than 10 seconds"),
        ("queryTableVersionIntervalSeconds", "soon", "must be a number of seconds"),
        ("schemaTrackingLocation", "/x", "startingVersion"),
        ("excludeRegex", ".*", "filter"),
        ("provider", "deltaSharing", "CREATE TEMPORARY VIEW"),
        ("callerOrg", "a\nb", "must be printable ASCII"),
        ("columns", "[]", "must be a JSON array"),
    ],
)
def test_invalid_value_error_lists_the_valid_ones(name: str, value: str, fragment: str) -> None:
    message = refused(**{name: value})
    assert fragment in message
    assert TOKEN not in message


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("maxBytesPerTrigger", "12", "max_bytes", 12),
        ("maxBytesPerTrigger", "12k", "max_bytes", 12 * 1024),
        ("maxBytesPerTrigger", "1b", "max_bytes", 1),
        ("maxBytesPerTrigger", "10G", "max_bytes", 10 * 1024**3),
        ("maxBytesPerTrigger", " 2 tb ", "max_bytes", 2 * 1024**4),
        ("maxPartitionBytes", "8191p", "max_partition_bytes", 8191 * 1024**5),
        ("maxOutage", "2h", "max_outage", 7200),
        ("maxOutage", "0", "max_outage", 0),
        ("queryTableVersionIntervalSeconds", "1 Day", "version_interval", 86_400),
        ("maxFilesPerTrigger", " +5 ", "max_files", 5),
        ("limit", "0", "read.limit", 0),
        ("versionAsOf", str(2**63 - 1), "read.version", 2**63 - 1),
        ("startingVersion", "0", "starting_version", 0),
        ("startingTimestamp", "2022-01-01T00:00:00.0001Z", "starting_timestamp", "2022-01-01T00:00:00.001Z"),
        ("timestampAsOf", "2022-01-01T00:00:00.0001Z", "read.timestamp", "2022-01-01T00:00:00Z"),
        ("startingVersion", "latest", "starting_version", "latest"),
        ("startingTimestamp", "2022", "starting_timestamp", "2022-01-01T00:00:00Z"),
        ("startingTimestamp", "2022-01", "starting_timestamp", "2022-01-01T00:00:00Z"),
        ("startingTimestamp", "2022-01-01 00:00", "starting_timestamp", "2022-01-01T00:00:00Z"),
        ("startingTimestamp", "2022-01-01T10:00:00.5+02:00", "starting_timestamp", "2022-01-01T08:00:00.5Z"),
        ("startingTimestamp", "2022-07-01 12:00:00 Europe/Berlin", "starting_timestamp", "2022-07-01T10:00:00Z"),
        ("timestampAsOf", "2022-01-01 00:00:00 -0130", "read.timestamp", "2022-01-01T01:30:00Z"),
        ("columns", "a, `b,c` ,d.e, d.`e.f`", "read.columns", ("a", "`b,c`", "d.e", "d.`e.f`")),
        ("columns", "`a``b`", "read.columns", ("`a``b`",)),
        ("columns", ' ["a"]', "read.columns", ("a",)),
        ("columns", '["a", ["b.c", "d"]]', "read.columns", ("a", ("b.c", "d"))),
        ("queryTableVersionIntervalSeconds", "5m", "version_interval", 300),
        ("responseFormat", "delta", "read.response_format", ResponseFormat.DELTA),
        ("rowLineage", "True", "read.row_lineage", True),
        ("versionAsOf", " 7 ", "read.version", 7),
        ("versionAsOf", "audit", "read.version", "audit"),
        ("versionAsOf", "v1.0", "read.version", "v1.0"),
        ("icebergEndpoint", "https://sharing.example/ice", "profile.iceberg_endpoint", "https://sharing.example/ice"),
    ],
)
def test_option_values_are_parsed(name: str, value: str, field: str, expected: object) -> None:
    assert operator.attrgetter(field)(parse(**{name: value})) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"startingVersion": "1"}, {"startingTimestamp": "2022"}),
        ({"versionAsOf": "1"}, {"timestampAsOf": "2022"}),
        ({"endingVersion": "1", "readChangeFeed": "true"}, {"endingTimestamp": "2022"}),
    ],
)
def test_version_and_timestamp_for_one_bound_are_refused(first: dict[str, str], second: dict[str, str]) -> None:
    message = refused(**first, **second)
    assert "Please either provide" in message
    assert all(name in message for name in (next(iter(first)), next(iter(second))))


@pytest.mark.parametrize(
    ("given", "fragment"),
    [
        ({"startingVersion": "5", "endingVersion": "3"}, "'endingVersion' (3) is before 'startingVersion' (5)"),
        (
            {"startingTimestamp": "2024-01-02 00:00:00.5", "endingTimestamp": "2024-01-02"},
            "'endingTimestamp' (2024-01-02",
        ),
    ],
)
def test_end_before_the_start_is_refused(given: dict[str, str], fragment: str) -> None:
    assert fragment in refused(readChangeFeed="true", **given)


def test_end_may_equal_the_start() -> None:
    assert parse(readChangeFeed="true", startingVersion="5", endingVersion="5").ending_version == 5
    same = parse(readChangeFeed="true", startingTimestamp="2024-01-02T01:00:00+01:00", endingTimestamp="2024-01-02")
    assert same.starting_timestamp == same.ending_timestamp


def test_empty_caller_org_is_ignored() -> None:
    assert parse(callerOrg="").caller_org is None
    assert parse(callerOrg="  ").caller_org is None
    assert parse(callerOrg=" acme ").caller_org == "acme"


def test_misspelled_option_error_suggests_the_nearest() -> None:
    assert "Did you mean 'maxFilesPerTrigger'?" in refused(maxFilePerTriger="1")
    assert "startingVersion" in refused(zzz="1")
    assert sorted(names(), key=str.lower) == names()


@pytest.mark.parametrize("name", ["versionAsOf", "rowLineage"])
def test_change_feed_refuses_snapshot_options(name: str) -> None:
    value = "1" if name == "versionAsOf" else "true"
    assert name in refused(readChangeFeed="true", **{name: value})


@pytest.mark.parametrize("name", ["endingVersion", "changeFeedColumns"])
def test_change_feed_options_need_the_change_feed(name: str) -> None:
    assert "readChangeFeed" in refused(**{name: "1" if name == "endingVersion" else "parquet"})


def test_legacy_name_of_the_change_feed_is_accepted() -> None:
    assert parse(readChangeData="true", changeFeedColumns="parquet").change_columns is ChangeColumns.PARQUET
    assert parse(readChangeData="true").read_change_feed


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({"ignoreDeletes": "true"}, OnChange.IGNORE_DELETES),
        ({"ignoreChanges": "true", "ignoreDeletes": "true"}, OnChange.IGNORE_CHANGES),
        ({"ignoreChanges": "true", "skipChangeCommits": "true"}, OnChange.SKIP_CHANGE_COMMITS),
        ({"ignoreChanges": "false"}, OnChange.FAIL),
    ],
)
def test_most_permissive_option_for_changed_rows_wins(given: dict[str, str], policy: OnChange) -> None:
    assert parse(**given).on_change is policy


def test_batch_change_feed_and_its_start_require_each_other() -> None:
    for given, fragment in (
        ({"startingVersion": "1"}, "readChangeFeed"),
        ({"readChangeFeed": "true"}, "No 'startingVersion' or 'startingTimestamp'"),
        ({"readChangeFeed": "true", "startingVersion": "latest"}, "'startingVersion' is not a valid number"),
    ):
        with pytest.raises(UsageError, match=fragment):
            parse(**given).for_batch()
    assert parse(readChangeFeed="true", startingTimestamp="2022").for_batch().starting_timestamp


@pytest.mark.parametrize(
    ("given", "fragment"),
    [
        ({"versionAsOf": "1"}, "Cannot time travel streams"),
        ({"timestampAsOf": "2022"}, "Cannot time travel streams"),
        ({"limit": "1"}, "Option 'limit' is not for streams"),
        ({"rowLineage": "true"}, "Option 'rowLineage' is not for streams"),
        ({"readChangeFeed": "true", "endingVersion": "1"}, "Option 'endingVersion' is not for streams"),
        ({"readChangeFeed": "true", "endingTimestamp": "2022"}, "Option 'endingTimestamp' is not for streams"),
        ({"accessMode": "dir"}, "follows a table by URL only"),
    ],
)
def test_stream_refuses_batch_only_options(given: dict[str, str], fragment: str) -> None:
    options = parse(**given)
    with pytest.raises(UsageError, match=fragment):
        options.for_stream()
    # PySpark hides errors raised when the reader is created, so its first call raises this one, without a request.
    stream = DeltaSharingSource({}, options).streamReader(StructType())
    with pytest.raises(UsageError, match=fragment):
        stream.initialOffset()


# --- settings of the JVM connector ---


@pytest.mark.parametrize(
    ("setting", "value", "found", "expected"),
    [
        ("network.numRetries", "2", lambda options: options.limits["max_attempts"], 3),
        ("network.maxRetryDuration", "90500", lambda options: options.limits["max_retry_seconds"], 91),
        ("network.timeout", "2m", lambda options: options.limits["read_timeout"], 120),
        ("network.useAsyncQuery", "TRUE", lambda options: options.limits["async_query"], True),
        ("streaming.queryTableVersionIntervalSeconds", "45s", lambda options: options.version_interval, 45),
    ],
)
def test_option_takes_precedence_over_a_setting(setting: str, value: str, found, expected) -> None:
    full = f"spark.delta.sharing.{setting}"
    assert found(parse(settings=json.dumps({full: value, "spark.delta.sharing.pushDown": "true"}))) == expected
    assert f"'x' for option '{full}'" in refused(settings=json.dumps({full: "x"}))
    option = SETTINGS[full][0]
    own = {"asyncQuery": "false"}.get(option, "11")
    assert found(parse(settings=json.dumps({full: value}), **{option.upper(): own})) == found(parse(**{option: own}))
    assert of_settings({full: None}) == {}


@pytest.mark.parametrize("text", ["x", "[1]", "3"])
def test_settings_are_not_accepted_as_options(text: str) -> None:
    assert "'settings' is set by this data source itself" in refused(settings=text)


# The settings that the connector's source code (delta-io/delta-sharing, 5c1b002) reads, without the prefix
# ``spark.delta.sharing.``.
OF_THE_CONNECTOR = """
network.numRetries network.maxRetryDuration network.retrySleepInterval network.asyncQueryRetryInterval
network.asyncQueryTimeout network.useAsyncQuery query.includeEndStreamAction network.timeout network.maxConnections
network.sslTrustAll profile.provider.class client.class jsonPredicateHints.enabled jsonPredicateV2Hints.enabled
jsonPredicateHints.partialFilter.enabled queryPagination.enabled maxFilesPerQueryRequest
streaming.queryTableVersionIntervalSeconds limitPushdown.enabled network.proxyHost network.proxyPort
network.noProxyHosts oauth.tokenExchangeMaxRetries oauth.tokenExchangeMaxRetryDurationInSeconds
oauth.tokenRenewalThresholdInSeconds network.never.use.https client.useStructuralSchemaMatch
client.sparkParquetIOCache.enabled client.logPreSignedUrlAccess.enabled client.streamReadRetry.enabled
profile.optionsProvider.enabled client.skipFileIdHashVerification preSignedUrl.expirationMs
driver.refreshCheckIntervalMs driver.refreshThresholdMs driver.accessThresholdToExpireMs executor.refreshThresholdMs
loadDataFilesInMemory
"""


def test_connector_settings_are_options_or_named_in_the_docs() -> None:
    page = pathlib.Path(__file__, "../../../docs/from-jvm-connector.md").resolve().read_text(encoding="utf-8")
    honoured, others = page.split("## Settings")[1].split("The other settings of the connector are not read:")
    prefix = "spark.delta.sharing."
    for name in OF_THE_CONNECTOR.split():
        assert f"`{name}`" in (honoured if prefix + name in SETTINGS else others), name
    assert {name.removeprefix(prefix) for name in SETTINGS} <= set(OF_THE_CONNECTOR.split())
