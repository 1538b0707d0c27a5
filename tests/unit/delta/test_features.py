from __future__ import annotations

import json

import pytest

from delta_sharing_client.delta.actions import Metadata, Protocol
from delta_sharing_client.delta.features import (
    FEATURES,
    FeatureKind,
    Operation,
    check_readable,
    find_feature,
    needed_features,
    parquet_format_refusals,
    reader_features,
)
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError

MAPPED = Metadata(id="t", schema_string="{}", configuration={"delta.columnMapping.mode": "name"})
PLAIN = Metadata(id="t", schema_string="{}")


def _features(*names: str, writer: tuple[str, ...] = ()) -> Protocol:
    return Protocol(3, 7, list(names), [*names, *writer])


@pytest.mark.parametrize("operation", list(Operation))
@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(0),
        Protocol(1),
        Protocol(1, 7, None, ["anything", "at-all"]),
        Protocol(2, 5),
        Protocol(3, 7, [], ["columnMapping"]),
        _features("deletionVectors", "timestampNTZ", "v2Checkpoint", "VACUUMPROTOCOLCHECK"),
        _features("typeWidening-preview", "variantType", "variantShredding-preview", writer=("catalogManaged",)),
    ],
)
def test_protocol_with_known_reader_features_is_read(protocol: Protocol, operation: Operation) -> None:
    check_readable(protocol, PLAIN, operation=operation)


@pytest.mark.parametrize("name", ["redirectReaderWriter-preview", "fromTheFuture"])
def test_error_names_an_unsupported_or_unknown_reader_feature(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=name) as caught:
        check_readable(_features("deletionVectors", name), operation=Operation.SNAPSHOT, table="s.s.t")
    assert caught.value.feature == name
    assert caught.value.table == "s.s.t"


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("timestampWithoutTimezone", "timestampNtz"),
        ("geospatial-dev", "geospatial"),
        ("adaptiveMetadata-preview", "adaptiveMetadata"),
    ],
)
def test_alias_names_the_same_feature(name: str, usual: str) -> None:
    """See ``tools/features.py``, which compares all names with those of the engines."""
    check_readable(_features(name), PLAIN, operation=Operation.SNAPSHOT)
    aliased, feature = find_feature(name), find_feature(usual)
    assert aliased is not None
    assert feature is not None
    for field in ("kind", "operations", "parquet_format", "log_only", "reads_log"):
        assert getattr(aliased, field) == getattr(feature, field)
    assert name.lower() in reader_features(Operation.SNAPSHOT)


@pytest.mark.parametrize(
    ("protocol", "metadata", "error", "message"),
    [
        # A newer version is refused, even with a list of features.
        *((Protocol(new, 7, [], []), PLAIN, UnsupportedFeatureError, f"reader version {new}") for new in (4, 99)),
        *(
            (protocol, MAPPED, ProtocolError, "columnMapping")
            for protocol in (Protocol(1, 2), _features("variantType"))
        ),
        (Protocol(2, 7, ["deletionVectors"], []), PLAIN, ProtocolError, "readerFeatures"),
        (Protocol(3, 7), PLAIN, ProtocolError, "readerFeatures"),
        (Protocol(-1), PLAIN, ProtocolError, "-1"),
    ],
)
def test_unreadable_protocol_is_refused(
    protocol: Protocol, metadata: Metadata, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_readable(protocol, metadata, operation=Operation.SNAPSHOT)


@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(2, 5),
        _features("columnMapping"),
        Protocol(2, 7, None, ["icebergCompatV2"]),
        Protocol(3, 7, [], ["columnMapping"]),
    ],
)
def test_column_mapping_is_read_if_the_protocol_allows_it(protocol: Protocol) -> None:
    check_readable(protocol, MAPPED, operation=Operation.SNAPSHOT)


@pytest.mark.parametrize(("old", "is_read"), [("integer", True), ("decimal(5,0)", False), ("string", False)])
def test_type_change_that_is_no_widening_is_refused(old: str, is_read: bool) -> None:
    changes = f'[{{"fromType":"{old}","toType":"long"}},{{"fromType":1}},"?"]'
    column = f'{{"name":"a","type":"long","nullable":true,"metadata":{{"delta.typeChanges":{changes}}}}}'
    metadata = Metadata(id="t", schema_string=f'{{"type":"struct","fields":[{column}]}}')
    if is_read:
        check_readable(_features("TYPEWIDENING"), metadata, operation=Operation.CHANGES, table="x")
        return
    with pytest.raises(UnsupportedFeatureError, match=r"'a' was changed from .* to long.*table x") as refused:
        check_readable(_features("typeWidening"), metadata, operation=Operation.CHANGES, table="x")
    assert refused.value.feature == f"type change from {old} to long"


@pytest.mark.parametrize(
    ("old", "new", "is_read"),
    [
        ("void", "long", True),
        ("null", "long", True),
        ("void", "struct", True),
        ("long", "void", False),
        ("x", "long", False),
    ],
)
def test_void_may_change_to_any_type(old: str, new: str, is_read: bool) -> None:
    column = {"name": "a", "type": "long", "nullable": True, "metadata": {}}
    column["metadata"] = {"delta.typeChanges": [{"fromType": old, "toType": new}]}
    metadata = Metadata(id="t", schema_string=json.dumps({"type": "struct", "fields": [column]}))
    if is_read:
        check_readable(_features("typeWidening"), metadata, operation=Operation.SNAPSHOT)
        return
    with pytest.raises(UnsupportedFeatureError):
        check_readable(_features("typeWidening"), metadata, operation=Operation.SNAPSHOT)


def test_capabilities_name_exactly_the_supported_features() -> None:
    supported = reader_features(Operation.SNAPSHOT)
    assert {"deletionvectors", "columnmapping", "timestampntz", "typewidening", "varianttype"} <= set(supported)
    assert all(name == name.lower() for name in supported)
    for name in supported:
        check_readable(_features(name), operation=Operation.SNAPSHOT)
    refused = {f.name.lower() for f in FEATURES if f.kind is FeatureKind.READER_WRITER} - set(supported)
    assert refused == {"redirectreaderwriter-preview"}
    assert not any(find_feature(name).kind is FeatureKind.WRITER for name in supported)  # type: ignore[union-attr]


def test_feature_names_are_unique_and_case_insensitive() -> None:
    assert len({feature.name.lower() for feature in FEATURES}) == len(FEATURES)
    assert find_feature("DELETIONvectors") is find_feature("deletionVectors")
    assert find_feature("nope") is None


@pytest.mark.parametrize(
    ("protocol", "configuration", "expected"),
    [
        (Protocol(1, 2), {}, []),
        (Protocol(1, 7, None, ["rowTracking"]), {"delta.appendOnly": "true"}, []),
        (_features("v2Checkpoint", "vacuumProtocolCheck"), {}, []),
        (_features("deletionVectors"), {}, ["deletionVectors"]),
        (_features("fromTheFuture"), {}, ["fromTheFuture"]),
        (Protocol(2, 5), {"delta.columnMapping.mode": "name"}, ["delta.columnMapping.mode=name"]),
        (Protocol(2, 5), {"delta.columnMapping.mode": "none"}, []),
        (
            Protocol(3, 7, [], []),
            {"delta.enableDeletionVectors": "true"},
            ["delta.enableDeletionVectors=true"],
        ),
    ],
)
def test_parquet_format_refuses_unsupported_features(
    protocol: Protocol, configuration: dict[str, str], expected: list[str]
) -> None:
    metadata = Metadata(id="t", schema_string="{}", configuration=configuration)
    assert parquet_format_refusals(protocol, metadata) == expected


@pytest.mark.parametrize(
    ("protocol", "metadata", "expected"),
    [
        (Protocol(1, 2), PLAIN, []),
        (Protocol(2, 5), MAPPED, ["columnMapping"]),
        (_features("COLUMNMAPPING"), MAPPED, ["COLUMNMAPPING"]),
        (_features("v2checkpoint", "vacuumProtocolCheck", "deletionVectors"), PLAIN, ["deletionVectors"]),
        (_features("catalogManaged", "fromTheFuture"), PLAIN, ["fromTheFuture"]),
    ],
)
def test_file_list_needs_no_log_only_feature(protocol: Protocol, metadata: Metadata, expected: list[str]) -> None:
    assert needed_features(protocol, metadata) == expected


@pytest.mark.parametrize(
    "name", ["catalogManaged", "catalogOwned-preview", "adaptiveMetadata", "columnMappingUsageTracking"]
)
def test_log_only_features_do_not_prevent_reading_files(name: str) -> None:
    protocol = _features("deletionVectors", name)
    for operation in Operation:
        check_readable(protocol, operation=operation)
        with pytest.raises(UnsupportedFeatureError, match=name):
            check_readable(protocol, operation=operation, from_log=True)
