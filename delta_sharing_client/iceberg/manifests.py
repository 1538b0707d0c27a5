"""Reads the files of a snapshot from its manifest list and manifests, with the values that manifest entries inherit
(Iceberg, "Manifests").

Counts in a manifest list and in its manifests must agree, so a damaged list is an error and not a table with fewer
rows.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, Union

import msgspec
from msgspec.structs import replace

from delta_sharing_client.delta.actions import Count, Long
from delta_sharing_client.errors import DataError, UnsupportedFeatureError
from delta_sharing_client.iceberg.avro import NamedField, read_avro, stored_types
from delta_sharing_client.iceberg.metadata import PartitionField
from delta_sharing_client.iceberg.partition_types import PartitionTypes
from delta_sharing_client.iceberg.partitioning import FieldSummary
from delta_sharing_client.iceberg.transforms import field_id_of

StructT = TypeVar("StructT", bound=msgspec.Struct)

_MOST_MANIFESTS = 1_000_000
_DATA_FILE, _PARTITION = 2, 102
_SPEC_ID = "partition-spec-id"
# The fields of a data file that are not read.
_UNUSED = (105, 106, 107, 108, 109, 111, 132, 137, 140)
UNSTATED = -1
"""No partition spec has this id."""
_MOST_DIGITS = 10


class Content(enum.IntEnum):
    """The content of a file that a manifest lists."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


class Status(enum.IntEnum):
    """The status of a manifest entry."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


class Manifest(msgspec.Struct, frozen=True):
    """A manifest in a snapshot's manifest list. The encoded names are field ids. The spec's id is ``UNSTATED`` in a
    snapshot without such a list: the manifest itself states it."""

    path: str = msgspec.field(name="500")
    length: Count = msgspec.field(name="501")
    spec_id: int = msgspec.field(name="502")
    content: Literal[0, 1] = msgspec.field(name="517", default=0)
    sequence_number: Long = msgspec.field(name="515", default=0)
    added_files: Union[Count, None] = msgspec.field(name="504", default=None)
    existing_files: Union[Count, None] = msgspec.field(name="505", default=None)
    summaries: Union[list[dict[str, Any]], None] = msgspec.field(name="507", default=None)
    key_metadata: Union[bytes, None] = msgspec.field(name="519", default=None)
    first_row_id: Union[Count, None] = msgspec.field(name="520", default=None)

    @property
    def is_of_deletes(self) -> bool:
        return self.content == 1

    @property
    def may_have_files(self) -> bool:
        """Whether it may have entries that are not deleted."""
        return self.added_files != 0 or self.existing_files != 0

    def summary(self, place: int) -> FieldSummary | None:
        """Return the summary of the partition field at position ``place`` of the spec, ``None`` if there is none."""
        if self.summaries is None or place >= len(self.summaries):
            return None
        summary = self.summaries[place]
        nulls, lower, upper = summary.get("509"), summary.get("510"), summary.get("511")
        return FieldSummary(
            nulls if isinstance(nulls, bool) else None,
            lower if isinstance(lower, bytes) else None,
            upper if isinstance(upper, bytes) else None,
        )


class _DataFile(msgspec.Struct, frozen=True):
    path: str = msgspec.field(name="100")
    format: str = msgspec.field(name="101")
    partition: dict[str, Any] = msgspec.field(name="102")
    records: Count = msgspec.field(name="103")
    size: Count = msgspec.field(name="104")
    content: Literal[0, 1, 2] = msgspec.field(name="134", default=0)
    null_counts: Union[dict[int, int], None] = msgspec.field(name="110", default=None)
    lower: Union[dict[int, bytes], None] = msgspec.field(name="125", default=None)
    upper: Union[dict[int, bytes], None] = msgspec.field(name="128", default=None)
    key_metadata: Union[bytes, None] = msgspec.field(name="131", default=None)
    equality_ids: Union[list[int], None] = msgspec.field(name="135", default=None)
    first_row_id: Union[Count, None] = msgspec.field(name="142", default=None)
    referenced_data_file: Union[str, None] = msgspec.field(name="143", default=None)
    content_offset: Union[Count, None] = msgspec.field(name="144", default=None)
    content_size: Union[Count, None] = msgspec.field(name="145", default=None)


class File(NamedTuple):
    """A live file of a snapshot, with its inherited values.

    Attributes
    ----------
    path, format, size, records:
        Its location, its format in lower case, its length in bytes, and its number of rows (for a deletion vector, its
        cardinality).
    spec_id, partition:
        Its partition: the id of the spec, and the values by the ids of the partition fields, in the types that the
        table has now (``PartitionTypes``).
    sequence_number:
        The data sequence number.
    first_row_id:
        The id of its first row, ``None`` if its rows have none.
    null_counts, lower, upper:
        Statistics by field id, ``None`` where they were not written.
    """

    path: str
    format: str
    size: int
    records: int
    content: Content
    spec_id: int
    partition: Mapping[str, Any]
    sequence_number: int
    first_row_id: int | None
    null_counts: Mapping[int, int] | None
    lower: Mapping[int, bytes] | None
    upper: Mapping[int, bytes] | None
    equality_ids: tuple[int, ...]
    referenced_data_file: str | None
    content_offset: int | None
    content_size: int | None


def read_manifest_list(data: bytes, name: str) -> list[Manifest]:
    """Return the manifests of a snapshot; ``name`` is the file's name, for errors.

    Raises ``DataError`` if the file is damaged or lists a manifest twice, ``UnsupportedFeatureError`` for encryption.
    """
    records = read_avro(data, name, names=lambda properties: _LIST_NAMES).records
    return _distinct((_converted(record, Manifest, name) for record in records), name)


def listed_in_snapshot(paths: Iterable[str], name: str) -> list[Manifest]:
    """Return the manifests of a snapshot of version 1 that lists them itself. Raises ``DataError`` as
    ``read_manifest_list``."""
    return _distinct((Manifest(path, 0, UNSTATED) for path in paths), name)


def _distinct(listed: Iterable[Manifest], name: str) -> list[Manifest]:
    manifests: list[Manifest] = []
    paths: set[str] = set()
    for manifest in listed:
        if manifest.key_metadata is not None:
            raise _encrypted(name)
        if manifest.path in paths:
            raise _broken(name, f"it lists the manifest '{manifest.path}' twice")
        paths.add(manifest.path)
        if len(paths) > _MOST_MANIFESTS:
            raise _broken(name, f"it lists more than {_MOST_MANIFESTS} manifests")
        manifests.append(manifest)
    return manifests


def read_manifest(
    data: bytes, manifest: Manifest, *, statistics: Collection[int], partitions: PartitionTypes
) -> Iterator[File]:
    """Yield the live files of a manifest in order, including inherited values.

    ``statistics`` are the field ids of the columns whose statistics are read. Raises ``DataError`` if the file is
    damaged, or its entries contradict the manifest list, ``UnsupportedFeatureError`` for encryption.
    """
    name = manifest.path
    if len(data) < manifest.length:
        raise _broken(name, f"the manifest list states {manifest.length} bytes, but the file has {len(data)}")
    names = functools.partial(_entry_names, manifest=manifest, partitions=partitions)
    opened = read_avro(data, name, _UNUSED, statistics, names)
    manifest = _with_header(opened.properties, manifest, partitions)
    decode = partitions.decoder(manifest.spec_id, stored_types(opened.schema, _DATA_FILE, _PARTITION))
    counts = [0, 0, 0]
    next_row_id = manifest.first_row_id
    for record in opened.records:
        status, data_file = record.get("0"), record.get("2")
        if status not in (0, 1, 2) or not isinstance(data_file, dict):
            raise _broken(name, f"an entry must have a status from 0 to 2 and a data file, found the status {status!r}")
        counts[status] += 1
        if status == Status.DELETED:
            continue
        file = _converted(data_file, _DataFile, name)
        if file.key_metadata is not None:
            raise _encrypted(file.path)
        first_row_id = None
        if manifest.first_row_id is not None and next_row_id is not None:
            first_row_id = file.first_row_id
            if first_row_id is None:
                first_row_id, next_row_id = next_row_id, next_row_id + file.records
        sequence_number = _sequence_number(record.get("3"), status, manifest)
        yield _file(file, manifest, decode(file.partition), sequence_number, first_row_id)
    _check_counts(manifest, counts)


def _with_header(properties: Mapping[str, bytes], manifest: Manifest, partitions: PartitionTypes) -> Manifest:
    """Return ``manifest`` after comparing it with the header of its file, which states the partition spec if the
    snapshot does not. Writers may omit the content; each entry states it, too."""
    stated = "deletes" if manifest.is_of_deletes else "data"
    content = properties.get("content", stated.encode()).decode("utf-8", "replace")
    if content != stated:
        raise _broken(
            manifest.path, f"the manifest list states the content {stated!r}, but the file has {content[:40]!r}"
        )
    spec_id = properties.get(_SPEC_ID)
    if manifest.spec_id == UNSTATED:
        return replace(manifest, spec_id=_spec_id_of(properties, manifest, partitions))
    if spec_id is not None and spec_id != str(manifest.spec_id).encode():
        raise _broken(
            manifest.path,
            f"the manifest list states the partition spec {manifest.spec_id}, but the file has {spec_id[:20]!r}",
        )
    return manifest


def _spec_id_of(properties: Mapping[str, bytes], manifest: Manifest, partitions: PartitionTypes) -> int:
    if manifest.spec_id != UNSTATED:
        return manifest.spec_id
    # Only a table that never changed its partitioning may omit the id.
    text = properties.get(_SPEC_ID, b"0")
    spec_id = int(text) if text.isdigit() and len(text) < _MOST_DIGITS else UNSTATED
    if spec_id not in partitions.specs or (_SPEC_ID not in properties and len(partitions.specs) > 1):
        raise _broken(manifest.path, f"its header must state one of the table's partition specs, found {text[:20]!r}")
    return spec_id


def _check_counts(manifest: Manifest, counts: list[int]) -> None:
    # Writers of version 1 may omit the counts.
    for what, stated, counted in (
        ("added files", manifest.added_files, counts[Status.ADDED]),
        ("existing files", manifest.existing_files, counts[Status.EXISTING]),
    ):
        if stated is not None and stated != counted:
            raise _broken(manifest.path, f"the manifest list states {stated} {what}, but the file has {counted}")


def _sequence_number(own: Any, status: int, manifest: Manifest) -> int:
    if own is None:
        # Version 1 has no sequence numbers: all of its files are older than any delete.
        if status != Status.ADDED and manifest.sequence_number != 0:
            raise _broken(manifest.path, "an existing file has no sequence number, which only added files inherit")
        return manifest.sequence_number
    if not isinstance(own, int):
        raise _broken(manifest.path, "a sequence number must be a whole number")
    return own


def _file(
    file: _DataFile, manifest: Manifest, partition: Mapping[str, Any], sequence_number: int, first_row_id: int | None
) -> File:
    content = Content(file.content)
    if (content is not Content.DATA) is not manifest.is_of_deletes:
        raise _broken(manifest.path, f"its header does not state that it lists files of the content {content.name}")
    return File(
        path=file.path,
        format=file.format.lower(),
        size=file.size,
        records=file.records,
        content=content,
        spec_id=manifest.spec_id,
        partition=partition,
        sequence_number=sequence_number,
        first_row_id=None if manifest.is_of_deletes else first_row_id,
        null_counts=file.null_counts,
        lower=file.lower,
        upper=file.upper,
        equality_ids=tuple(file.equality_ids or ()),
        referenced_data_file=file.referenced_data_file,
        content_offset=file.content_offset,
        content_size=file.content_size,
    )


def _entry_names(
    properties: Mapping[str, bytes], manifest: Manifest, partitions: PartitionTypes
) -> Mapping[str, NamedField]:
    """Return the names of a manifest's fields; those of the partition are in the spec, as it was at that time."""
    try:
        fields = msgspec.json.decode(properties.get("partition-spec", b"null"), type=Union[list[PartitionField], None])
    except (msgspec.DecodeError, RecursionError):
        fields = None
    if fields is None:
        fields = partitions.specs[_spec_id_of(properties, manifest, partitions)].fields
    names: dict[str, NamedField] = {}
    for place, field in enumerate(fields):
        named = NamedField(field_id_of(field, place))
        names[field.name] = names[_avro_name(field.name)] = named
    data_file = {**_DATA_FILE_NAMES, "partition": NamedField(_PARTITION, names)}
    return {**_ENTRY_NAMES, "data_file": NamedField(_DATA_FILE, data_file)}


def _avro_name(name: str) -> str:
    """Return the spelling of a name in Avro, which allows only letters, digits and underscores, as in Iceberg's
    library for Java."""
    text = "".join(one if one == "_" or (one.isalnum() and one.isascii()) else f"_x{ord(one):X}" for one in name)
    return f"_{text}" if text[:1].isdigit() else text


def _named(**ids: int) -> dict[str, NamedField]:
    return {name: NamedField(field_id) for name, field_id in ids.items()}


# The names that the specification fixes ("Manifest Lists", "Manifests"), and three older ones of Iceberg's library.
_LIST_NAMES = _named(
    manifest_path=500, manifest_length=501, partition_spec_id=502, content=517, sequence_number=515,
    min_sequence_number=516, added_snapshot_id=503, added_files_count=504, existing_files_count=505,
    deleted_files_count=506, added_data_files_count=504, existing_data_files_count=505, deleted_data_files_count=506,
    added_rows_count=512, existing_rows_count=513, deleted_rows_count=514, key_metadata=519, first_row_id=520,
)  # fmt: skip
_LIST_NAMES["partitions"] = NamedField(
    507, _named(contains_null=509, contains_nan=518, lower_bound=510, upper_bound=511)
)
_ENTRY_NAMES = _named(status=0, snapshot_id=1, sequence_number=3, file_sequence_number=4)
_DATA_FILE_NAMES = _named(
    content=134, file_path=100, file_format=101, record_count=103, file_size_in_bytes=104, block_size_in_bytes=105,
    column_sizes=108, value_counts=109, null_value_counts=110, nan_value_counts=137, distinct_counts=111,
    lower_bounds=125, upper_bounds=128, key_metadata=131, split_offsets=132, equality_ids=135, sort_order_id=140,
    first_row_id=142, referenced_data_file=143, content_offset=144, content_size_in_bytes=145,
)  # fmt: skip


def _converted(record: dict[str, Any], kind: type[StructT], name: str) -> StructT:
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        raise _broken(name, f"a record does not have the form that Iceberg defines ({error})") from None


def _encrypted(name: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        "The table's files are encrypted, which this client does not support. Ask the provider for a table without "
        "encryption.",
        feature="encryption",
        file_id=name,
    )


def _broken(name: str, reason: str) -> DataError:
    return DataError(f"The Iceberg metadata file '{name}' cannot be used: {reason}.", file_id=name)
