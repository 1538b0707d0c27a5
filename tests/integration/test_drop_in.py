"""Scripts written for the package ``delta-sharing`` 1.4.2 work with only their import changed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import delta_sharing_client as delta_sharing
import mock_server
from mock_server import demo

# Names, order and defaults of the parameters, from ``inspect.signature`` in that package.
SIGNATURES = {
    "get_table_metadata": "url, use_delta_format=True",
    "get_table_protocol": "url, use_delta_format=True",
    "get_table_version": "url, starting_timestamp=None",
    "load_as_pandas": "url, limit=None, version=None, timestamp=None, jsonPredicateHints=None, use_delta_format=None, "
    "convert_in_batches=False",
    "load_as_spark": "url, version=None, timestamp=None",
    "load_table_changes_as_pandas": "url, starting_version=None, ending_version=None, starting_timestamp=None, "
    "ending_timestamp=None, use_delta_format=None, convert_in_batches=False",
    "load_table_changes_as_spark": "url, starting_version=None, ending_version=None, starting_timestamp=None, "
    "ending_timestamp=None",
    "Share": "name",
    "Schema": "name, share",
    "Table": "name, share, schema",
    "SharingClient": "profile",
    "SharingClient.list_shares": "self",
    "SharingClient.list_schemas": "self, share",
    "SharingClient.list_tables": "self, schema",
    "SharingClient.list_all_tables": "self",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_functions_have_the_parameters_of_delta_sharing(name: str) -> None:
    target: object = delta_sharing
    for part in name.split("."):
        target = getattr(target, part)
    expected = SIGNATURES[name].split(", ")
    ours = list(inspect.signature(target).parameters.values())  # type: ignore[arg-type]

    for theirs, found in zip(expected, ours, strict=False):
        parameter, _, default = theirs.partition("=")
        assert found.name == parameter
        assert found.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        if default:
            assert repr(found.default) == default
    assert len(ours) >= len(expected)
    assert all(further.default is not inspect.Parameter.empty for further in ours[len(expected) :])


@pytest.fixture(scope="module")
def profile_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("drop-in")
    with mock_server.running(demo.build(folder / "tables")) as server:
        yield str(server.profile_path)


def test_scripts_of_the_delta_sharing_documentation_run(profile_file: str) -> None:
    client = delta_sharing.SharingClient(profile_file)
    tables = client.list_all_tables()
    assert delta_sharing.Table(name="orders", share="demo", schema="shop") in [
        delta_sharing.Table(table.name, table.share, table.schema) for table in tables
    ]
    (share,) = client.list_shares()
    assert {schema.name for schema in client.list_schemas(share)} == {"shop", "weather", "lake"}
    assert client.list_schemas(delta_sharing.Share(name="demo")) == client.list_schemas(share)
    result = client.list_tables(delta_sharing.Schema(name="shop", share="demo"))
    assert {table.name for table in result} == {"orders", "products"}

    table_url = profile_file + "#demo.shop.orders"
    assert len(delta_sharing.load_as_pandas(table_url, limit=10)) == 10
    assert len(delta_sharing.load_as_pandas(table_url, 3, 0, None, None, True, True)) == 3
    assert delta_sharing.get_table_version(table_url) == 6
    changes = delta_sharing.load_table_changes_as_pandas(table_url, starting_version=1, ending_version=2)
    assert {"_change_type", "_commit_version", "_commit_timestamp"} <= set(changes.columns)
    assert delta_sharing.__version__


def test_metadata_has_the_attributes_of_delta_sharing(profile_file: str) -> None:
    url = profile_file + "#demo.shop.orders"

    metadata = delta_sharing.get_table_metadata(url)
    assert (metadata.name, metadata.format.provider, metadata.partition_columns) == ("orders", "parquet", ("country",))
    assert metadata.configuration["delta.columnMapping.mode"] == "name"
    assert metadata.schema_string.startswith("{")
    assert metadata.num_files
    assert metadata.size
    assert metadata.created_time is None or metadata.created_time > 0
    assert metadata.description
    assert metadata.id

    protocol = delta_sharing.get_table_protocol(url)
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert set(protocol.reader_features or ()) == {"columnMapping", "deletionVectors"}
    assert "changeDataFeed" in (protocol.writer_features or ())


def test_metadata_without_delta_format_is_in_parquet_format(profile_file: str) -> None:
    url = profile_file + "#demo.weather.readings"
    assert delta_sharing.get_table_protocol(url, use_delta_format=False).min_reader_version == 1
    details = delta_sharing.get_table_metadata(url, False)
    assert details.response_format is delta_sharing.ResponseFormat.PARQUET
    with pytest.raises(delta_sharing.RequestError, match="parquet"):
        delta_sharing.get_table_metadata(profile_file + "#demo.shop.orders", use_delta_format=False)
