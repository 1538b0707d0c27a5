"""Reads the files of a snapshot from its manifest list and manifests, with the values that manifest entries inherit
(Iceberg, "Manifests").

Counts in a manifest list and in its manifests must agree, so a damaged list is an error and not a table with fewer
rows.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, Union

import msgspec

from delta_sharing_client.delta.actions import Count, Long
from delta_sharing_client.errors import DataError, UnsupportedFeatureError
from delta_sharing_client.iceberg.avro import read_avro
from delta_sharing_client.iceberg.partitioning import FieldSummary

StructT = TypeVar("StructT", bound=msgspec.Struct)

_MOST_MANIFESTS = 1_000_000
# The fields of a data file that are not read.
_UNUSED = (105, 106, 107, 108, 109, 111, 132, 137, 140)


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
    """A manifest in a snapshot's manifest list. The encoded names are field ids."""

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
        Its partition: the id of the spec, and the values by the ids of the partition fields, as in Avro.
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
    manifests: list[Manifest] = []
    paths: set[str] = set()
    for record in read_avro(data, name).records:
        manifest = _converted(record, Manifest, name)
        if manifest.key_metadata is not None:
            raise _encrypted(name)
        if manifest.path in paths:
            raise _broken(name, f"it lists the manifest '{manifest.path}' twice")
        paths.add(manifest.path)
        if len(paths) > _MOST_MANIFESTS:
            raise _broken(name, f"it lists more than {_MOST_MANIFESTS} manifests")
        manifests.append(manifest)
    return manifests


def read_manifest(data: bytes, manifest: Manifest, *, statistics: Collection[int]) -> Iterator[File]:
    """Yield the live files of a manifest in order, including inherited values.

    ``statistics`` are the field ids of the columns whose statistics are read. Raises ``DataError`` if the file is
    damaged, or its entries contradict the manifest list, ``UnsupportedFeatureError`` for encryption.
    """
    name = manifest.path
    if len(data) < manifest.length:
        raise _broken(name, f"the manifest list states {manifest.length} bytes, but the file has {len(data)}")
    opened = read_avro(data, name, _UNUSED, statistics)
    _check_header(opened.properties, manifest)
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
        yield _file(file, manifest, _sequence_number(record.get("3"), status, manifest), first_row_id)
    _check_counts(manifest, counts)


def _check_header(properties: Mapping[str, bytes], manifest: Manifest) -> None:
    content = properties.get("content", b"data").decode("utf-8", "replace")
    if content != ("deletes" if manifest.is_of_deletes else "data"):
        stated = "deletes" if manifest.is_of_deletes else "data"
        raise _broken(
            manifest.path, f"the manifest list states the content {stated!r}, but the file has {content[:40]!r}"
        )
    spec_id = properties.get("partition-spec-id")
    if spec_id is not None and spec_id != str(manifest.spec_id).encode():
        raise _broken(
            manifest.path,
            f"the manifest list states the partition spec {manifest.spec_id}, but the file has {spec_id[:20]!r}",
        )


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


def _file(file: _DataFile, manifest: Manifest, sequence_number: int, first_row_id: int | None) -> File:
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
        partition=file.partition,
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
