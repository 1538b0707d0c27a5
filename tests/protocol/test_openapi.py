"""Every response of the server, for each API and each parameter, conforms to the OpenAPI description of the
protocol."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

import mock_server
from delta_sharing_client.checks import forms
from mock_server.running import RunningServer
from tests.unit.mock_server.helpers import Api, stamp, write_feed, write_plain, write_vectors

_HERE = "urn:delta-sharing#/"
DESCRIPTION = forms.description(strict=True)
OPERATIONS = [(method, path) for path, item in DESCRIPTION["paths"].items() for method in item]
TABLES = ("plain", "vectors", "feed")
ASSETS = {"volume": "docs", "skill": "report", "model": "churn", "version": "2", "alias": "champion"}
BOTH = "responseformat=parquet,delta;readerfeatures=deletionvectors"
HINT = {"op": "isNull", "children": [{"op": "column", "name": "id", "valueType": "long"}]}
# The values that are sent for each parameter or field of any API: valid values, and an invalid one.
VALUES: dict[str, list[Any]] = {
    "maxResults": [0, 1, 500, "x"],
    "pageToken": ["", "nonsense"],
    "version": [0, 1, 99],
    "timestamp": [stamp(1), "yesterday"],
    "startingTimestamp": [stamp(1), stamp(-1), "yesterday"],
    "endingTimestamp": [stamp(2), stamp(99), "yesterday"],
    "startingVersion": [1, 2, 99],
    "endingVersion": [2, 99, -1],
    "includeHistoricalMetadata": [True, "maybe"],
    "includeHistoricalProtocol": [True, "maybe"],
    "maxFiles": [1, 100, 0],
    "delta-sharing-capabilities": [
        "responseformat=delta;readerfeatures=deletionvectors",
        f"{BOTH};includeendstreamaction=true",
        f"{BOTH};asyncquery=true",
        "responseformat=avro",
    ],
    "fileidhash": ["parquet", "delta", "crc"],
    "predicateHints": [["id = 1"], [], "id = 1"],
    "jsonPredicateHints": [HINT, json.dumps(HINT), 5],
    "limitHint": [0, 1, -1],
    "includeRefreshToken": [True, 5],
    "refreshToken": ["nonsense"],
    "idempotencyKey": ["k"],
    "location": ["file:///no/such/place", 5],
}

# The APIs with their parameters, and the schemas with their fields, of the description that delta-io/delta-sharing
# publishes (see the head of openapi.yaml). Required fields have an exclamation mark.
PAGES = "maxResults pageToken"
PUBLISHED_APIS = {
    "GET /shares": PAGES,
    "GET /shares/{share}": "",
    "GET /shares/{share}/schemas": PAGES,
    "GET /shares/{share}/schemas/{schema}/tables": PAGES,
    "GET /shares/{share}/schemas/{schema}/tables/{table}": "startingTimestamp",
    "GET /shares/{share}/schemas/{schema}/tables/{table}/metadata": "startingTimestamp",
    "POST /shares/{share}/schemas/{schema}/tables/{table}/query": "startingTimestamp",
    "GET /shares/{share}/schemas/{schema}/tables/{table}/changes": (
        "startingVersion endingVersion startingTimestamp endingTimestamp includeHistoricalMetadata"
    ),
}
PUBLISHED_FIELDS = {
    "Shares": "items nextPageToken!",
    "Share": "name! id",
    "Schemas": "items nextPageToken!",
    "Tables": "items nextPageToken!",
    "Table": "name share schema",
    "Query": ("predicateHints jsonPredicateHints limitHint version timestamp startingVersion endingVersion"),
    "Error": "errorCode message",
}
# Where PROTOCOL.md, which servers and connectors follow, differs from the published description.
UNLIKE_PUBLISHED = {
    "startingTimestamp of GET /shares/{share}/schemas/{schema}/tables/{table}": (
        "Query Table Version is GET .../{table}/version; this path is that of OpenSharing's Get Table."
    ),
    "startingTimestamp of GET /shares/{share}/schemas/{schema}/tables/{table}/metadata": (
        "Query Table Metadata has 'version' and 'timestamp'."
    ),
    "startingTimestamp of POST /shares/{share}/schemas/{schema}/tables/{table}/query": (
        "Read Data from a Table takes its parameters in the body."
    ),
    "nextPageToken!": 'It "may be an empty string or missing" on the last page.',
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    root = tmp_path_factory.mktemp("tables")
    for write in (write_plain, write_vectors, write_feed):
        write(root / write.__name__.removeprefix("write_"))
    assets = root.parent / "assets"
    for directory in ("docs", "report", "churn/1", "churn/2"):
        (assets / directory).mkdir(parents=True)
    (assets / "report" / "SKILL.md").write_text("---\ndescription: Writes a report\nmetadata: {a: b}\n---\n")
    with mock_server.running(
        root,
        local_directories=True,
        volumes={"default.default.docs": assets / "docs", "default.default.far": "gs://b/far"},
        skills={"default.default.report": assets / "report"},
        models={"default.default.churn": assets / "churn"},
        aliases={"default.default.churn": {"champion": 2}},
    ) as running:
        yield running


@pytest.fixture
def api(server: RunningServer) -> Api:
    return Api(server)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_response_conforms_to_the_description(api: Api, method: str, path: str) -> None:
    answers = {_call(api, method, path, table, given) for table in TABLES for given in _choices(method, path, table)}

    assert 200 in answers
    assert answers <= {200, 400, 404}


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_refusals_have_the_described_form_of_an_error(api: Api, method: str, path: str) -> None:
    assert _call(api, method, path, "missing" if "{table}" in path else "plain", {}, share="missing") == (
        200 if path == "/shares" else 404
    )
    token = api.session.headers.pop("Authorization")
    try:
        assert _call(api, method, path, "plain", {}) == 401
    finally:
        api.session.headers["Authorization"] = token


def test_description_rejects_wrong_responses() -> None:
    line = _validator({"$ref": f"{_HERE}components/schemas/Line"})
    assert line.is_valid({"protocol": {"minReaderVersion": 1}})
    for wrong in (
        {"protocol": {"minReaderVersion": 1}, "metaData": {}},
        {"protocol": {"minReaderVersion": 2}},
        {"file": {"id": "x"}},
        {"endStreamAction": {"token": "x"}},
        {},
    ):
        assert not line.is_valid(wrong)
    keys = {"accessKeyId": "a", "secretAccessKey": "b", "sessionToken": "c"}
    given = {"expirationTime": 1_700_000_000_000, "r2Credentials": keys}
    credentials = _validator({"$ref": f"{_HERE}components/schemas/TemporaryCredentials"})
    assert credentials.is_valid(given)
    assert not credentials.is_valid({**given, "awsTempCredentials": keys})
    assert not credentials.is_valid({"r2Credentials": keys})
    ready = {
        "modelName": "m",
        "schema": "d",
        "share": "s",
        "version": 1,
        "status": "READY",
        "storageLocation": "s3://b",
    }
    versions = _validator({"$ref": f"{_HERE}components/schemas/ModelVersions"})
    assert versions.is_valid({"items": [ready]})
    assert not versions.is_valid({"items": [{**ready, "status": "FAILED_REGISTRATION"}]})
    table = {"name": "t", "schema": "d", "share": "s", "accessModes": ["dir"]}
    assert not _validator({"$ref": f"{_HERE}components/schemas/Table"}).is_valid(table)


def test_our_description_covers_the_published_one() -> None:
    results = set()
    for api, parameters in PUBLISHED_APIS.items():
        method, path = api.split()
        operation = DESCRIPTION["paths"].get(path, {}).get(method.lower())
        if operation is None:
            results.add(api)
            continue
        known = {_resolved(parameter)["name"] for parameter in operation.get("parameters", ())}
        results |= {f"{name} of {api}" for name in parameters.split() if name not in known}
    for schema, fields in PUBLISHED_FIELDS.items():
        ours = DESCRIPTION["components"]["schemas"][schema]
        for field in fields.split():
            if field.rstrip("!") not in ours["properties"]:
                results.add(f"{field} of {schema}")
            elif field.endswith("!") and field.rstrip("!") not in ours.get("required", ()):
                results.add(field)

    assert results == set(UNLIKE_PUBLISHED)
    assert "/shares/{share}/schemas/{schema}/tables/{table}/version" in DESCRIPTION["paths"]


def _choices(method: str, path: str, table: str) -> Iterator[dict[str, Any]]:
    """Yield the parameters of requests: none, each parameter alone with each of its values, and, for one table, every
    pair of parameters."""
    operation = DESCRIPTION["paths"][path][method]
    names = [_resolved(parameter)["name"] for parameter in operation.get("parameters", ())]
    with contextlib.suppress(KeyError):
        names += list(_resolved(operation["requestBody"]["content"]["application/json"]["schema"])["properties"])
    yield {}
    for name in dict.fromkeys(names):
        yield from ({name: value} for value in VALUES[name])  # a KeyError means that ``VALUES`` lacks a parameter
    for first, second in itertools.combinations(dict.fromkeys(names), 2) if table == TABLES[-1] else ():
        yield {first: VALUES[first][0], second: VALUES[second][0]}


def _call(api: Api, method: str, path: str, table: str, given: dict[str, Any], *, share: str = "default") -> int:
    operation = DESCRIPTION["paths"][path][method]
    where = {item["name"]: item["in"] for item in map(_resolved, operation.get("parameters", ()))}
    known = table != "missing" and "queries" in path and "Authorization" in api.session.headers
    query_id = _submitted(api, table) if known else "nothing"
    names = {"share": share, "schema": "default", "table": table, "queryId": query_id, **ASSETS}
    url = api.server.endpoint + path.format(**names)[1:]
    headers = {name: str(value) for name, value in given.items() if where.get(name) == "header"}
    query = {name: str(value) for name, value in given.items() if where.get(name) == "query"}
    body = {name: value for name, value in given.items() if name not in where or "requestBody" in operation} or None
    if "requestBody" in operation:
        body = {name: value for name, value in given.items() if name not in headers and name not in query}
    elif "changes" in path and not query.keys() & {"startingVersion", "startingTimestamp"} and given:
        query["startingVersion"] = "1"
    if "asyncquery=true" in headers.get("delta-sharing-capabilities", "") and body is not None:
        body = {"idempotencyKey": f"{table} {given}", **body}
    response = api.session.request(
        method, url, params=query, headers=headers, json=body if "requestBody" in operation else None
    )
    _check(operation, response.status_code, dict(response.headers), response.content)
    return response.status_code


def _submitted(api: Api, table: str) -> str:
    answer = api.post(
        f"shares/default/schemas/default/tables/{table}/query", {"idempotencyKey": table}, f"{BOTH};asyncquery=true"
    )
    query_id: str = json.loads(answer.content)["queryStatus"]["queryId"]
    return query_id


def _check(operation: dict[str, Any], status: int, headers: dict[str, str], content: bytes) -> None:
    answer = operation["responses"].get(str(status), DESCRIPTION["components"]["responses"]["Error"])
    answer = _resolved(answer)
    lower = {name.lower(): value for name, value in headers.items()}
    for name, header in answer.get("headers", {}).items():
        # A query that is pending states no version.
        if name == "delta-table-version" and lower.get("delta-sharing-capabilities") == "asyncquery=true":
            assert name not in lower
            continue
        _validator(header["schema"]).validate(lower[name])
    for kind, form in answer.get("content", {}).items():
        assert lower["content-type"].startswith(kind)
        validator = _validator(form["schema"])
        documents = [json.loads(text) for text in (content.split(b"\n")[:-1] if kind.endswith("ndjson") else [content])]
        for document in documents:
            validator.validate(document)
        if kind.endswith("ndjson") and "queryStatus" not in documents[0]:
            # PROTOCOL.md: "The first line is ... Protocol", "The second line is ... Metadata". The end action is last
            # if the header promises it.
            assert ["protocol" in documents[0], "metaData" in documents[1]] == [True, True]
            if "includeendstreamaction=true" in lower["delta-sharing-capabilities"]:
                assert "endStreamAction" in documents[-1]


def _resolved(part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        result: Any = DESCRIPTION
        for step in part["$ref"].removeprefix(_HERE).split("/"):
            result = result[step]
        part = result
    return part


def _validator(schema: dict[str, Any]) -> Any:
    return forms.validator(schema, strict=True)
