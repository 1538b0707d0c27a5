"""Files of newer writers are read with any supported pyarrow."""

from __future__ import annotations

import base64
import zlib

import pyarrow as pa
import pytest

from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.parquet import footer
from delta_sharing_client.predicates.tree import col
from tests.unit.storages import Storage, Table, metadata

# In the writer's Arrow schema, the columns i, s and b have the types int64, string_view and binary_view.
VIEWS = (
    "c-nQ6!AiqG5QZmdTzcqrLjpPEl7L`qD<~+rOhTi@R%=0|$0U?kK^s#w)u-"
    "_hd@`TGoot$b)?u?V`_DJSEZHf}1{}D@y#vlfz&Nu2KouWT6p*G?zEyd_+1&n9(AuMdh_>WEq(#{cZSPz&$H!o>b#lLWj5q_XIjW"
    "&7fp^HS9T-"
    "!YJjI|h(=t65EK%n$Fa^nlsK<KjwnrAHsZ{Xxndt%(bwqY5a$S<49=Z<=scWWSRqYoW*X)<F6V|^Kow;q{z_g4G&SuwlXYvxpr+P"
    "?siext^?Gmv-KgAF+#UL#;-$$HK5Fn09q46kF{)(b;-74r)Yf6NhQoL<=tiw6=zxp6_zU9v)G~dN1h3qd5LyCrF-<0OPpt-"
    "k6X~Up|{Gvi@oy4rV&!ns`<b9e+rGa5*QU3h8c<Clt){XLfRoHKfe7#&f*+(b6es5rU;=juUj(9aw@kW0DcKCZP"
)
ROWS = [{"i": 1, "s": "a", "b": b"x"}, {"i": 2, "s": None, "b": b"y"}, {"i": 3, "s": "c", "b": None}]


def test_string_views_are_read_by_any_pyarrow(storage: Storage) -> None:
    table = Table(storage, metadata(pa.schema([("i", pa.int64()), ("s", pa.string()), ("b", pa.binary())])))
    table.add(zlib.decompress(base64.b85decode(VIEWS)))
    assert table.read().to_pylist() == ROWS
    assert table.read(filter=col("s") == "c").to_pylist() == ROWS[2:]
    assert table.read(filter=col("b") == b"y", columns=["i"]).to_pylist() == [{"i": 2}]


def test_error_of_an_unknown_type_names_the_pyarrow_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise OSError("Metadata contains Thrift LogicalType that is not recognized")

    monkeypatch.setattr(footer, "open_reader", unknown)
    tail = pa.py_buffer(b"footer" + (6).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(UnsupportedFeatureError, match=rf"pyarrow {pa.__version__} does not know. Update pyarrow"):
        footer.parse_footer(tail, 1000)
