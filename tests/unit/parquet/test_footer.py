"""What a footer says is known before anything else is done with the file."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.footer import open_file, parse_footer

LONG = pa.int64()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(LONG, b"outer", id="plain"),
        pytest.param(pa.struct({"inner": LONG}), b"outer", id="nested"),
        pytest.param(pa.struct({"inner": LONG}), b"inner", id="struct"),
        pytest.param(pa.list_(pa.struct({"inner": LONG})), b"inner", id="list"),
        pytest.param(pa.map_(pa.string(), pa.struct({"inner": LONG})), b"inner", id="map"),
    ],
)
def test_a_name_that_is_no_text_is_told_at_once(kind: pa.DataType, name: bytes) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"other": pa.array([1]), "outer": pa.array([None], kind)}), sink, store_schema=False)
    data = pa.py_buffer(sink.getvalue().replace(name, b"\x80" + name[1:]))
    for read in (lambda: open_file(data), lambda: parse_footer(data, data.size)):
        with pytest.raises(DataError, match="does not decode: 'utf-8' codec"):
            read()
