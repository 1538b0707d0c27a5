"""Finds the deletes that apply to data files (Iceberg, "Scan Planning", "Delete Formats")."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from delta_sharing_client.errors import DataError, UnsupportedFeatureError
from delta_sharing_client.iceberg.equality_ranges import EqualityRanges
from delta_sharing_client.iceberg.manifests import Content, File
from delta_sharing_client.iceberg.metadata import PartitionSpec
from delta_sharing_client.iceberg.partition_types import Undecoded, value_key
from delta_sharing_client.iceberg.transforms import field_id_of

FILE_PATH_FIELD_ID = 2147483546
POSITION_FIELD_ID = 2147483545
_FRAMING_BYTES = 8
"""The bytes of a deletion vector's length prefix and checksum, in addition to its bitmap."""

PartitionKey = tuple[Any, ...]


class Deletes(NamedTuple):
    """The deletes of one data file: a vector, or else position delete files; and equality deletes."""

    vector: File | None
    positions: tuple[File, ...]
    equality: tuple[File, ...]


NO_DELETES = Deletes(None, (), ())


class DeleteIndex:
    """The delete files of a snapshot, indexed by the data files to which they apply; ``ranges`` shows which equality
    deletes cannot delete a row of a data file.

    Raises ``DataError`` for delete files whose metadata contradicts itself, ``UnsupportedFeatureError`` for delete
    files in a format other than Parquet.
    """

    def __init__(
        self, files: Iterable[File], specs: Mapping[int, PartitionSpec], ranges: EqualityRanges | None = None
    ) -> None:
        self._ranges = ranges or EqualityRanges({}, specs)
        self._vectors: dict[str, File] = {}
        self._by_path: dict[str, list[File]] = {}
        self._by_partition: dict[PartitionKey, list[File]] = {}
        self._equality: dict[PartitionKey, list[File]] = {}
        self._everywhere: list[File] = []
        self._specs = specs
        for file in files:
            self._add(file)

    def _add(self, file: File) -> None:
        if file.content is Content.POSITION_DELETES and file.format == "puffin":
            referenced = _checked_vector(file)
            if referenced in self._vectors:
                raise _corrupted(file, f"the data file '{referenced}' has a second deletion vector")
            self._vectors[referenced] = file
            return
        if file.format != "parquet":
            raise UnsupportedFeatureError(
                f"The table has delete files in the format '{file.format[:40]}', but this client reads Parquet only. "
                "Ask the provider to rewrite the table.",
                feature=f"delete files in {file.format[:40]}",
                file_id=file.path,
            )
        if file.content is Content.POSITION_DELETES:
            path = _only_path(file)
            if path is not None:
                self._by_path.setdefault(path, []).append(file)
            else:
                self._by_partition.setdefault(self._key(file), []).append(file)
        elif _is_unpartitioned(self._specs[file.spec_id]):
            self._everywhere.append(_checked_equality(file))
        else:
            self._equality.setdefault(self._key(file), []).append(_checked_equality(file))

    def _key(self, file: File) -> PartitionKey:
        return partition_key(file, self._specs[file.spec_id])

    def _check_same(self, delete: File, file: File, key: PartitionKey) -> None:
        if self._key(delete) != key:
            raise _corrupted(delete, f"its partition differs from that of its data file '{file.path}'")

    @property
    def compared_ids(self) -> frozenset[int]:
        """The field ids of the columns whose statistics determine which equality deletes apply."""
        ids = (file.equality_ids for files in (self._everywhere, *self._equality.values()) for file in files)
        return self._ranges.ids & frozenset(itertools.chain.from_iterable(ids))

    def of(self, file: File) -> Deletes:
        """Return the deletes that apply to a data file."""
        if not (self._vectors or self._by_path or self._by_partition or self._equality or self._everywhere):
            return NO_DELETES
        key = self._key(file)
        older = file.sequence_number
        equality = (*self._everywhere, *self._equality.get(key, ()))
        strictly_newer = tuple(
            one for one in equality if one.sequence_number > older and self._ranges.may_delete(one, file)
        )
        vector = self._vectors.get(file.path)
        if vector is not None:
            self._check_same(vector, file, key)
            if vector.sequence_number < older:
                raise _corrupted(vector, "a deletion vector is older than its data file")
            # A vector contains all positions of earlier delete files.
            return Deletes(vector, (), strictly_newer)
        named = [one for one in self._by_path.get(file.path, ()) if one.sequence_number >= older]
        for one in named:
            self._check_same(one, file, key)
        of_partition = [one for one in self._by_partition.get(key, ()) if one.sequence_number >= older]
        positions = tuple(one for one in (*named, *of_partition) if _may_name(one, file.path))
        return Deletes(None, positions, strictly_newer)


def partition_key(file: File, spec: PartitionSpec) -> PartitionKey:
    """Return a key that is equal for files of one partition: with the same spec and equal values.

    Raises ``DataError`` if a value is not of its column's type, because it cannot be compared.
    """
    values = [file.partition.get(str(field_id_of(field, place))) for place, field in enumerate(spec.fields)]
    if any(isinstance(value, Undecoded) for value in values):
        raise DataError(
            "The table has deletes, but a partition value of the file is not of the type of its column, so that it "
            "cannot be compared. Ask the provider to rewrite the file.",
            file_id=file.path,
        )
    return (file.spec_id, *map(value_key, values))


def _is_unpartitioned(spec: PartitionSpec) -> bool:
    return all(field.transform.strip().lower() == "void" for field in spec.fields)


def _only_path(file: File) -> str | None:
    """Return the data file to which all positions of a delete file belong, ``None`` if there may be several."""
    if file.referenced_data_file is not None:
        return file.referenced_data_file
    lower, upper = (file.lower or {}).get(FILE_PATH_FIELD_ID), (file.upper or {}).get(FILE_PATH_FIELD_ID)
    if lower is None or lower != upper:
        return None
    try:
        return lower.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _may_name(file: File, path: str) -> bool:
    """Return whether a position delete file may have positions in the data file ``path``, by the bounds of its
    paths."""
    lower, upper = (file.lower or {}).get(FILE_PATH_FIELD_ID), (file.upper or {}).get(FILE_PATH_FIELD_ID)
    encoded = path.encode("utf-8")
    return (lower is None or lower <= encoded) and (upper is None or upper >= encoded)


def _checked_vector(file: File) -> str:
    if file.referenced_data_file is None or file.content_offset is None or file.content_size is None:
        raise _corrupted(file, "a deletion vector must state its data file, its offset and its size")
    if file.content_size < _FRAMING_BYTES:
        raise _corrupted(
            file, f"a deletion vector must have at least {_FRAMING_BYTES} bytes, found {file.content_size}"
        )
    return file.referenced_data_file


def vector_size(file: File) -> int:
    """Return the number of bytes of a deletion vector without its length prefix and checksum."""
    return (file.content_size or 0) - _FRAMING_BYTES


def _checked_equality(file: File) -> File:
    if not file.equality_ids:
        raise _corrupted(file, "an equality delete file must state the columns that it compares")
    return file


def _corrupted(file: File, reason: str) -> DataError:
    return DataError(f"The metadata of a delete file contradicts itself: {reason}.", file_id=file.path)
