"""What a server lists, as values."""

from __future__ import annotations

import delta_sharing_client as ds


def test_listed_values_print_what_the_server_told_and_nothing_else() -> None:
    assert repr(ds.Share("s")) == "Share(name='s')"
    assert repr(ds.Schema("d", "s", id="1")) == "Schema(name='d', share='s', id='1')"
    assert repr(ds.Table("t", "s", "d")) == "Table(name='t', share='s', schema='d')"
    modes = ds.Table("t", "s", "d", access_modes=("url",))
    assert repr(modes) == "Table(name='t', share='s', schema='d', access_modes=('url',))"
