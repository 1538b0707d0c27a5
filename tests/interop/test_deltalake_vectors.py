"""The PyPI package ``deltalake`` (delta-kernel-rs) and this client decode deletion vectors of every form alike.

deltalake expands a vector to one value per row, so Delta's own library is the oracle for vectors beyond 2^32
(``tests/spark/test_vectors.py``).
"""

from __future__ import annotations

import json
import pathlib
import uuid
from collections import Counter

import deltalake
import numpy as np
import pyarrow as pa
import pyroaring
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import (
    DeletionVector,
    decode_file,
    decode_inline,
    encode_file,
    relative_path,
)
from tests.effort import examples
from tests.vectors import CONTAINER, KINDS, bitmaps, encode_inline, kinds

KEYS = range(3)
ROWS = len(KEYS) * CONTAINER
SCHEMA = {"type": "struct", "fields": [{"name": "a", "type": "integer", "nullable": True, "metadata": {}}]}
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}
METADATA = {
    "id": "vectors",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(SCHEMA),
    "partitionColumns": [],
    "configuration": {"delta.enableDeletionVectors": "true"},
}


# How a vector is stored; an inline one is padded before or after it is encoded as text.
FORMS = ["inline", "inline, padded in the text", "file", "URL"]


def test_vectors_of_every_form_delete_the_same_rows(tmp_path_factory: pytest.TempPathFactory) -> None:
    met: Counter[str] = Counter()

    @settings(max_examples=examples(240))
    @given(st.lists(bitmaps(KEYS), min_size=1, max_size=4))
    def check(drawn: list[pyroaring.BitMap64]) -> None:
        root = tmp_path_factory.mktemp("table")
        vectors = [DeletionVector(bitmap) for bitmap in drawn]
        written = [item for vector in vectors for item in stored(root, vector)]
        theirs = deleted_by_deltalake(root, [descriptor for descriptor, _ in written])
        assert [ours.positions().tolist() for _, ours in written] == theirs
        for bitmap, (descriptor, _) in zip(drawn, written[:: len(FORMS)], strict=True):
            met.update(kinds(bitmap, descriptor.size_in_bytes, KEYS))

    check()

    assert not [kind for kind in KINDS if met[kind] < 2], f"too few cases: {met}"


def test_vector_padded_in_its_text_deletes_the_same_row(tmp_path: pathlib.Path) -> None:
    descriptor = encode_inline(DeletionVector.from_positions([3]), text_padding=True)
    assert descriptor.path_or_inline_dv.endswith("##093")

    assert deleted_by_deltalake(tmp_path, [descriptor]) == [[3]]
    assert decode_inline(descriptor).positions().tolist() == [3]


def stored(root: pathlib.Path, vector: DeletionVector) -> list[tuple[DeletionVectorDescriptor, DeletionVector]]:
    """Store a vector in each of ``FORMS``, below ``root`` if in a file; return each descriptor and the vector that we
    decode from it."""
    results = [
        (item, decode_inline(item)) for item in (encode_inline(vector), encode_inline(vector, text_padding=True))
    ]
    other = DeletionVector.from_positions([1, 7])
    named, (_, by_name) = encode_file([other, vector], uuid.uuid4())
    (root / relative_path(by_name)).write_bytes(named)
    path = root / f"{uuid.uuid4()}.bin"
    blob, (by_url, _) = encode_file([vector, other], path.as_uri())
    path.write_bytes(blob)
    return [*results, (by_name, decode_file(named, by_name)), (by_url, decode_file(blob, by_url))]


def deleted_by_deltalake(root: pathlib.Path, descriptors: list[DeletionVectorDescriptor]) -> list[list[int]]:
    """Return, for each descriptor, the rows that it deletes from a file of ``ROWS`` rows according to ``deltalake``."""
    lines: list[dict[str, object]] = [{"protocol": PROTOCOL}, {"metaData": METADATA}]
    for number, item in enumerate(descriptors):
        vector = {
            "storageType": item.storage_type,
            "pathOrInlineDv": item.path_or_inline_dv,
            "offset": item.offset,
            "sizeInBytes": item.size_in_bytes,
            "cardinality": item.cardinality,
        }
        stats = json.dumps({"numRecords": ROWS})
        lines.append(
            {
                "add": {
                    "path": f"{number}.parquet",
                    "partitionValues": {},
                    "size": 1,
                    "modificationTime": 0,
                    "dataChange": True,
                    "stats": stats,
                    "deletionVector": vector,
                }
            }
        )
    (root / "_delta_log").mkdir()
    (root / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    rows = pa.table(deltalake.DeltaTable(root).deletion_vectors().read_all())
    # A vector that deletes no rows may be omitted.
    deleted: list[list[int]] = [[] for _ in descriptors]
    for path, kept in zip(rows["filepath"].to_pylist(), rows["selection_vector"], strict=True):
        mask = kept.values.to_numpy(zero_copy_only=False)
        deleted[int(pathlib.PurePath(path).stem)] = np.flatnonzero(~mask).tolist()
    return deleted
